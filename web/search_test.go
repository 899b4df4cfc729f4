package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestJobsAreSearchedOverTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(`{"type":"email","queue":"mail","tags":["vip"],"payload":{"customer":{"id":7}}}`)
	for range 5 {
		s.enqueue(`{"type":"charge","queue":"billing"}`)
	}
	s.deadIn("billing", 2)
	find := func(q, more string) reply { return s.do("GET", "/api/v1/jobs?q="+url.QueryEscape(q)+more, "") }
	for q, want := range map[string]int{"": 8, "queue:billing": 7, "state:dead": 2, "queue:billing -state:dead": 5, "tag:vip": 1, "payload.customer.id:7": 1, "chr": 0, "char": 5} {
		r := find(q, "&limit=50")
		if list, _ := r.field("data").([]any); r.status != http.StatusOK || len(list) != want || r.text("query") != q {
			t.Errorf("%s = %d, %d jobs, query %q, want %d", q, r.status, len(list), r.text("query"), want)
		}
	}
	if r := find("state:completed", ""); r.text("query") != "state:completed finished:-24h.." {
		t.Errorf("what was added is not told: %s", r.body)
	}
	// Pages: the cursor is the query's own.
	seen := map[string]bool{}
	next := ""
	for range 10 {
		r := find("queue:billing", "&limit=3"+next)
		for i := range 3 {
			if id := r.text("data", fmt.Sprint(i), "id"); id != "" {
				seen[id] = true
			}
		}
		if r.field("has_more") != true {
			break
		}
		if !strings.Contains(r.header.Get("Link"), "q=queue%3Abilling") {
			t.Errorf("Link = %s", r.header.Get("Link"))
		}
		next = "&cursor=" + url.QueryEscape(r.text("next_cursor"))
	}
	if len(seen) != 7 {
		t.Errorf("%d jobs over all pages, want 7", len(seen))
	}
	if r := find("queue:mail", next); r.status != http.StatusBadRequest {
		t.Errorf("a cursor of another query = %d", r.status)
	}
	for q, want := range map[string][2]float64{"state:runing": {6, 12}, "queue:mail quee:mail": {11, 16}, `error:"a`: {6, 8}} {
		r := find(q, "")
		if r.status != http.StatusBadRequest || r.text("code") != "bad-query" || r.text("errors", "0", "parameter") != "q" ||
			fmt.Sprint(r.field("errors", "0", "mark", "from")) != fmt.Sprint(want[0]) ||
			fmt.Sprint(r.field("errors", "0", "mark", "to")) != fmt.Sprint(want[1]) {
			t.Errorf("%s = %d %s", q, r.status, r.body)
		}
	}
	for _, path := range []string{"/api/v1/jobs?q=a&queue=b", "/api/v1/jobs?q=a&q=b", "/api/v1/jobs?q=a&page=2", "/api/v1/jobs?q=%00"} {
		if r := s.do("GET", path, ""); r.status != http.StatusBadRequest {
			t.Errorf("%s = %d", path, r.status)
		}
	}
}

func TestAnOperationOnASearchOverTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.deadIn("mail", 3)
	s.deadIn("other", 2)
	dry := s.ask("POST", operationsPath, `{"action":"replay","q":"state:dead -queue:other","dry_run":true}`)
	if dry.status != http.StatusOK || fmt.Sprint(dry.field("total")) != "3" || dry.text("select", "q") != "state:dead -queue:other" {
		t.Errorf("dry run = %d %s", dry.status, dry.body)
	}
	for body, status := range map[string]int{
		`{"action":"replay","q":"queu:mail"}`: 422, `{"action":"replay","q":" "}`: 422, `{"action":"replay","q":"queue:nobody"}`: 404, `{"action":"replay","q":7}`: 422,
	} {
		if r := s.ask("POST", operationsPath, body); r.status != status {
			t.Errorf("%s = %d %s, want %d", body, r.status, r.body, status)
		}
	}
	if r := s.ask("POST", operationsPath, `{"action":"discard","q":"queue:other","expected":2}`); r.status != http.StatusAccepted || r.text("select", "q") != "queue:other" {
		t.Errorf("POST = %d %s", r.status, r.body)
	}
}

// TestWhatMatchesIsActedOnFromTheList: a search leads to its operation, which says what it was.
func TestWhatMatchesIsActedOnFromTheList(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.deadIn("mail", 3)
	s.enqueue(`{"type":"email","queue":"mail","delay_seconds":3600}`)
	s.get("/jobs?q="+url.QueryEscape("state:dead queue:mail")).shows("dead ones", http.StatusOK, "Replay all that match…", "Discard all that match…", "/operations/new?action=replay&amp;q=state%3Adead+queue%3Amail")
	s.get("/operations/new?action=replay&q="+url.QueryEscape("state:dead queue:mail")).shows("the question", http.StatusOK, "Replay 3 jobs?", "state:dead queue:mail")
	s.get("/jobs?q=state:scheduled").shows("scheduled ones", http.StatusOK, "Run all now…", "Cancel all that match…")
	page := s.get("/operations/new?action=run_now&q=state:scheduled")
	page.shows("the question", http.StatusOK, "Run 1 job now?", "passed over")
	r := s.submit("/operations", url.Values{"action": {"run_now"}, "q": {"state:scheduled"}, "expected": {"1"}, "reason": {"deploy is over"}})
	if r.status != http.StatusSeeOther || !strings.HasPrefix(r.header.Get("Location"), "/console/operations/") {
		t.Errorf("the act = %d to %q", r.status, r.header.Get("Location"))
	}
	if n := s.count("SELECT count(*) FROM operations WHERE action = 'run_now' AND selection->>'q' = 'state:scheduled'"); n != 1 {
		t.Errorf("%d operations, want 1", n)
	}
	s.get("/operations/new?action=cancel").shows("a cancel of everything", http.StatusBadRequest, "Say which jobs")
	s.get("/jobs?q="+url.QueryEscape("state:dead queue:nobody")).shows("nothing to act on", http.StatusOK, "No job matches")
}
