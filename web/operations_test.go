package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

const operationsPath = "/api/v1/operations"

func (s *site) ask(method, path, body string, headers ...string) reply {
	s.t.Helper()
	return s.do(method, path, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

// deadIn makes n dead letters of a queue.
func (s *site) deadIn(queue string, n int) (ids []string) {
	s.t.Helper()
	for range n {
		id := s.enqueue(fmt.Sprintf(`{"type":"email","queue":%q}`, queue))
		s.die(id, int64(s.count("SELECT nextval('job_claims_id_seq')")))
		ids = append(ids, id)
	}
	return ids
}

func TestAnOperationOverTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.deadIn("mail", 7)
	s.deadIn("other", 2)

	dry := s.ask("POST", operationsPath, `{"action":"replay","queue":"mail","dry_run":true}`)
	if dry.status != http.StatusOK || fmt.Sprint(dry.field("total")) != "7" || fmt.Sprint(dry.field("groups", "0", "jobs")) != "7" || dry.text("groups", "0", "queue") != "mail" {
		t.Fatalf("dry run = %d %s", dry.status, dry.body)
	}
	if n := s.count("SELECT count(*) FROM operations") + s.count("SELECT count(*) FROM operation_jobs") + s.count("SELECT count(*) FROM operator_actions"); n != 0 {
		t.Errorf("a dry run has left %d rows", n)
	}
	made := s.ask("POST", operationsPath, `{"action":"replay","queue":"mail","pace":"canary","expected":7,"reason":"gateway fixed"}`)
	id := made.text("id")
	if made.status != http.StatusAccepted || made.header.Get("Location") != operationsPath+"/"+id || made.text("status") != "running" || made.text("select", "queue") != "mail" ||
		made.text("actor") != "bootstrap" || made.text("source") != "api" {
		t.Fatalf("POST = %d %v %s", made.status, made.header, made.body)
	}
	if n := s.count("SELECT count(*) FROM operation_jobs"); n != 7 {
		t.Errorf("its set has %d jobs, want 7", n)
	}
	if got := s.do("GET", operationsPath+"/"+id, ""); got.status != 200 || fmt.Sprint(got.field("total")) != "7" || got.field("outcomes", "ran") == nil {
		t.Errorf("GET = %d %s", got.status, got.body)
	}
	for _, step := range []struct {
		act, state string
		status     int
	}{{"continue", "", 409}, {"pause", "paused", 200}, {"pause", "", 409}, {"continue", "running", 200}, {"stop", "stopped", 200}, {"continue", "", 409}, {"stop", "", 409}} {
		got := s.ask("POST", operationsPath+"/"+id+"/"+step.act, `{"reason":"look"}`)
		if got.status != step.status || step.status == 200 && got.text("status") != step.state || step.status == 409 && got.text("code") != "operation-state" {
			t.Errorf("%s = %d %s, want %d %s", step.act, got.status, got.body, step.status, step.state)
		}
	}
	if n := s.count(`SELECT count(*) FROM operator_actions WHERE target_kind = 'operation' AND source = 'api' AND actor = 'bootstrap' AND reason IS NOT NULL`); n != 4 {
		t.Errorf("%d rows in the trail, want 4: one for each act that was done", n)
	}
	// By id, and by the short form.
	short := s.ask("POST", "/api/v1/dlq/discard", fmt.Sprintf(`{"ids":[%q,%q],"reason":"of no use"}`, ids[0], ids[1]))
	if short.status != http.StatusAccepted || short.text("action") != "discard" || fmt.Sprint(short.field("total")) != "2" {
		t.Errorf("the short form = %d %s", short.status, short.body)
	}
	list := s.do("GET", operationsPath+"?limit=1", "")
	if list.status != 200 || list.text("data", "0", "action") != "discard" || list.field("has_more") != true {
		t.Fatalf("the list = %d %s", list.status, list.body)
	}
	next := s.do("GET", operationsPath+"?limit=1&cursor="+list.text("next_cursor"), "")
	if next.status != 200 || next.text("data", "0", "id") != id || next.field("has_more") != false {
		t.Errorf("its next page = %d %s", next.status, next.body)
	}
	s.do("GET", operationsPath+"?cursor="+list.text("next_cursor")+"x", "").refused("a broken cursor", 400, "bad-query", "")
	if got := s.do("GET", "/metrics", ""); !strings.Contains(got.body, `jobengine_operator_actions_total{action="operation replay",result="done"} 1`) {
		t.Error("the metrics do not count it")
	}
}

func TestOperationsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.deadIn("mail", 3)
	many := strings.Repeat(`"`+ids[0]+`",`, engine.MaxSelectedIDs)
	for body, want := range map[string]struct {
		status        int
		code, pointer string
	}{
		``:                                    {422, "validation-failed", ""},
		`[]`:                                  {422, "validation-failed", ""},
		`{`:                                   {400, "malformed-json", ""},
		`{}`:                                  {422, "validation-failed", "/action"},
		`{"action":"replay"}`:                 {422, "validation-failed", ""},
		`{"action":"explode","queue":"mail"}`: {422, "validation-failed", "/action"},
		`{"action":7,"queue":"mail"}`:         {422, "validation-failed", "/action"},
		`{"action":"replay","queue":""}`:      {422, "validation-failed", "/queue"},
		`{"action":"replay","queue":null}`:    {422, "validation-failed", "/queue"},
		`{"action":"replay","queu":"mail"}`:   {422, "validation-failed", "/queu"},
		`{"action":"replay","queue":"mail","queue":"mail"}`:                               {422, "validation-failed", "/queue"},
		`{"action":"replay","ids":[]}`:                                                    {422, "validation-failed", "/ids"},
		`{"action":"replay","ids":"all"}`:                                                 {422, "validation-failed", "/ids"},
		`{"action":"replay","ids":["1"]}`:                                                 {422, "validation-failed", "/ids/0"},
		`{"action":"replay","ids":[` + many + `"` + ids[1] + `"]}`:                        {422, "validation-failed", "/ids"},
		`{"action":"replay","dead_reason":"age"}`:                                         {422, "validation-failed", "/dead_reason"},
		`{"action":"replay","queue":"mail","pace":"fast"}`:                                {422, "validation-failed", "/pace"},
		`{"action":"replay","queue":"mail","pace":"rate"}`:                                {422, "validation-failed", "/per_minute"},
		`{"action":"replay","queue":"mail","pace":"rate","per_minute":0}`:                 {422, "validation-failed", "/per_minute"},
		`{"action":"replay","queue":"mail","pace":"rate","per_minute":1000001}`:           {422, "validation-failed", "/per_minute"},
		`{"action":"replay","queue":"mail","per_minute":5}`:                               {422, "validation-failed", "/per_minute"},
		`{"action":"discard","queue":"mail","pace":"canary"}`:                             {422, "validation-failed", "/pace"},
		`{"action":"cancel","dead_reason":"poison"}`:                                      {422, "validation-failed", "/dead_reason"},
		`{"action":"replay","queue":"mail","dry_run":"yes"}`:                              {422, "validation-failed", "/dry_run"},
		`{"action":"replay","queue":"mail","reason":"` + strings.Repeat("x", 1001) + `"}`: {422, "validation-failed", "/reason"},
		`{"action":"replay","queue":"mail","reason":"a\u0000b"}`:                          {422, "validation-failed", "/reason"},
		`{"action":"replay","queue":"mail","expected":9}`:                                 {409, "count-moved", ""},
		`{"action":"replay","queue":"nowhere"}`:                                           {404, "not-found", ""},
		`{"action":"cancel","queue":"mail"}`:                                              {404, "not-found", ""},
	} {
		got := s.ask("POST", operationsPath, body)
		got.refused(fmt.Sprintf("POST %.80s", body), want.status, want.code, want.pointer)
	}
	s.ask("POST", "/api/v1/dlq/replay", `{"action":"discard","queue":"mail"}`).refused("the short form with another action", 422, "validation-failed", "/action")
	s.do("GET", operationsPath+"/"+uuid.NewString(), "").refused("no operation", 404, "not-found", "")
	s.do("GET", operationsPath+"/seven", "").refused("no id", 404, "not-found", "")
	s.do("POST", operationsPath+"/"+uuid.NewString()+"/stop", "").refused("stop of none", 404, "not-found", "")
	if n := s.count("SELECT count(*) FROM operations") + s.count("SELECT count(*) FROM operation_jobs") + s.count("SELECT count(*) FROM operator_actions"); n != 0 {
		t.Errorf("what was refused has left %d rows", n)
	}
}
