package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func explainPath(id string) string { return "/api/v1/jobs/" + id + "/explain" }

// TestExplainOverTheAPI holds the answer's fields, which callers rely on.
func TestExplainOverTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`INSERT INTO workers (name, hostname, pid, version, queues, types, slots, lease_ms) VALUES ('w1', 'host', 1, '1', '{}', '{email}', 2, 3600000)`)
	first, id := s.enqueue(`{"type":"email","queue":"mail"}`), s.enqueue(`{"type":"email","queue":"mail"}`)

	got := s.do("GET", explainPath(first), "")
	if got.status != http.StatusOK || got.text("job_id") != first || got.text("status") != "pending" || got.text("at") == "" || got.field("claimable") != true ||
		fmt.Sprint(got.field("jobs_ahead")) != "0" || got.text("headline", "code") != "not_started" || got.text("headline", "text") != "Nothing is in the way: it should start within 1 s." {
		t.Errorf("the first in line = %d %s", got.status, got.body)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control = %q", got.header.Get("Cache-Control"))
	}
	for i, want := range []string{"queue_paused", "not_due", "leased", "no_worker", "slots_busy", "suspect_waits", "held", "jobs_ahead", "not_started"} {
		n := fmt.Sprint(i)
		if got.text("checks", n, "code") != want || got.text("checks", n, "verdict") != "passed" || got.text("checks", n, "text") == "" || got.field("checks", n, "evidence") == nil {
			t.Errorf("check %d = %v, want %s passed", i, got.field("checks", n), want)
		}
	}
	if types := fmt.Sprint(got.field("checks", "3", "evidence", "types_known")); types != "[email]" {
		t.Errorf("types_known = %s", types)
	}
	if poll := fmt.Sprint(got.field("checks", "8", "evidence", "poll_interval_seconds")); poll != "1" {
		t.Errorf("poll_interval_seconds = %s", poll)
	}

	got = s.do("GET", explainPath(id), "")
	if got.field("claimable") != true || fmt.Sprint(got.field("jobs_ahead")) != "1" || got.text("headline", "code") != "jobs_ahead" ||
		got.text("checks", "7", "action", "code") != "view_queue" || got.text("checks", "7", "action", "method") != "GET" {
		t.Errorf("the second in line = %s", got.body)
	}
	if r := s.do("GET", got.text("checks", "7", "action", "href"), ""); r.status != http.StatusOK || r.text("name") != "mail" {
		t.Errorf("its action leads to %d %s", r.status, r.body)
	}

	later := s.enqueue(`{"type":"email","delay_seconds":3600}`)
	got = s.do("GET", explainPath(later), "")
	if got.field("claimable") != false || got.field("jobs_ahead") != nil || got.text("headline", "code") != "not_due" || got.text("checks", "1", "action", "method") != "POST" {
		t.Errorf("a scheduled job = %s", got.body)
	}
	if r := s.do("POST", got.text("checks", "1", "action", "href"), ""); r.status != http.StatusOK {
		t.Errorf("its action = %d %s", r.status, r.body)
	}

	s.run(id, 77)
	got = s.do("GET", explainPath(id), "")
	if got.text("status") != "leased" || got.text("headline", "code") != "leased" || got.text("checks", "2", "evidence", "fencing_token") != "77" ||
		got.text("checks", "0", "verdict") != "not_applicable" || got.text("checks", "2", "evidence", "lease_expires_at") == "" {
		t.Errorf("a run = %s", got.body)
	}
	s.die(first, 78)
	got = s.do("GET", explainPath(first), "")
	if got.text("headline", "code") != "ended" || got.text("checks", "0", "action", "code") != "replay" || got.text("checks", "0", "evidence", "finished_at") == "" {
		t.Errorf("a dead job = %s", got.body)
	}
	if r := s.do("POST", got.text("checks", "0", "action", "href"), ""); r.status != http.StatusOK {
		t.Errorf("its action = %d %s", r.status, r.body)
	}

	s.do("GET", explainPath(uuid.NewString()), "").refused("no such job", http.StatusNotFound, "not-found", "")
	s.do("GET", explainPath("seven"), "").refused("no id", http.StatusNotFound, "not-found", "")
	s.do("GET", explainPath(id)+"?verbose=1", "").refused("an unknown parameter", http.StatusBadRequest, "bad-query", "")
}

// TestAJobsPageSaysWhyItIsNotRunning: the panel stands there while the job has not
// ended, with what helps as a form or link that works without script.
func TestAJobsPageSaysWhyItIsNotRunning(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.exec(`INSERT INTO queues (name, paused_at, paused_reason) VALUES ('mail', now() - interval '5 min', '<b>gateway</b> outage')`)
	id := s.enqueue(`{"type":"email","queue":"mail","delay_seconds":3600}`)
	s.get("/jobs/"+id).shows("a paused queue", http.StatusOK, `data-testid="why-panel"`, "Why is this job not running?", "Its queue mail was paused 5 min ago.",
		"In the way It is not due yet: in 59 min.", "&lt;b&gt;gateway&lt;/b&gt; outage", `href="/console/queues/mail"`, "No worker is alive.", "Clear No worker holds it.", "Not asked")
	s.exec(`DELETE FROM queues`)
	page := s.get("/jobs/" + id)
	page.shows("its schedule", http.StatusOK, `action="/console/jobs/`+id+`/run-now"`)
	s.get("/jobs/"+id, fragment("div#live")...).shows("its live region", http.StatusOK, `data-testid="why-panel"`, "It is not due yet")
	if r := s.submit("/jobs/"+id+"/run-now", url.Values{"version": {"1"}}); r.status != http.StatusSeeOther {
		t.Errorf("run now = %d", r.status)
	}
	s.get("/jobs/"+id).shows("in line", http.StatusOK, "It has been due for", "No worker is alive.", `href="/console/workers"`)
	s.run(id, 77)
	s.get("/jobs/"+id).shows("while it runs", http.StatusOK, "under token 77, for")
	s.end(id, 77, 1)
	if r := s.get("/jobs/" + id); r.status != http.StatusOK || strings.Contains(r.body, "why-panel") {
		t.Errorf("a job that has ended still says why it is not running: %d", r.status)
	}
}
