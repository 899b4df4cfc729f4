package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestTheAuditTrailOverTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.deadIn("mail", 2)
	s.ask("POST", "/api/v1/dlq/"+ids[0]+"/discard", `{"reason":"of no use"}`)
	s.do("POST", "/api/v1/dlq/"+ids[0]+"/restore", "", "User-Agent", "jobctl/1.2.3", "X-Request-Id", "req-7")
	s.ask("POST", "/api/v1/dlq/"+ids[1]+"/replay", `{"reason":"fixed"}`)

	all := s.do("GET", "/api/v1/audit", "")
	if list, ok := all.field("data").([]any); all.status != http.StatusOK || !ok || len(list) != 3 || all.field("has_more") != false || all.field("next_cursor") != nil {
		t.Fatalf("GET = %d %s", all.status, all.body)
	}
	if got := fmt.Sprint(all.field("data", "1", "id"), all.text("data", "1", "actor"), all.text("data", "1", "source"), all.text("data", "1", "action"),
		all.text("data", "1", "target_kind"), all.text("data", "1", "request_id"), all.text("data", "1", "address"), all.field("data", "1", "affected"),
		all.text("data", "1", "after", "state")); got != "2bootstrapclirestorejobreq-7127.0.0.11dead_letter" {
		t.Errorf("the second act is %s: %s", got, all.body)
	}
	if all.text("data", "1", "target") != ids[0] || all.text("data", "2", "reason") != "of no use" {
		t.Errorf("acts %s", all.body)
	}
	for query, want := range map[string]string{
		"?action=replay": "3", "?source=cli": "2", "?target=" + ids[0]: "2 1", "?actor=boot": "3 2 1", "?actor=token:": "", "?action=repl": "",
		"?since=2026-01-01T00:00:00Z": "3 2 1", "?until=2026-01-01T00:00:00Z": "", "?since=2099-01-01T00:00:00%2B01:00": "", "?source=api&action=discard": "1",
	} {
		got := s.do("GET", "/api/v1/audit"+query, "")
		var found []string
		list, _ := got.field("data").([]any)
		for i := range list {
			found = append(found, fmt.Sprint(got.field("data", fmt.Sprint(i), "id")))
		}
		if got.status != http.StatusOK || strings.Join(found, " ") != want {
			t.Errorf("%s = %d, acts %v, want %s", query, got.status, found, want)
		}
	}
	first := s.do("GET", "/api/v1/audit?limit=2&actor=bootstrap", "")
	next := s.do("GET", "/api/v1/audit?limit=2&actor=bootstrap&cursor="+first.text("next_cursor"), "")
	if first.field("has_more") != true || first.field("partial") != nil || fmt.Sprint(next.field("data", "0", "id")) != "1" || next.field("has_more") != false {
		t.Errorf("pages %s and %s", first.body, next.body)
	}
	if link := first.header.Get("Link"); !strings.Contains(link, "/api/v1/audit?actor=bootstrap&cursor=") {
		t.Errorf("link %q", link)
	}
	for query, place := range map[string]string{
		"?source=web": "source", "?source=": "source", "?since=yesterday": "since", "?until=2026-11-30": "until", "?limit=201": "limit", "?who=ann": "who",
		"?cursor=" + first.text("next_cursor"): "cursor", "?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "until", "?since=1900-01-01T00:00:00Z": "since",
	} {
		s.do("GET", "/api/v1/audit"+query, "").refused(query, http.StatusBadRequest, "bad-query", place)
	}
}
