package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestCancelAppliesToJobsThatWait(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	later := s.enqueue(`{"type":"email","delay_seconds":3600}`)
	for range 2 { // a repeat is no error
		for _, x := range []string{id, later} {
			if got := s.do("DELETE", "/jobs/"+x, ""); got.status != 200 || got.text("status") != "cancelled" || got.text("finished_at") == "" {
				t.Errorf("DELETE = %d %s, want 200 cancelled", got.status, got.body)
			}
		}
	}
	running, done, dead := s.enqueue(`{"type":"email"}`), s.enqueue(`{"type":"email"}`), s.enqueue(`{"type":"email"}`)
	s.run(running, 101)
	s.run(done, 102)
	s.end(done, 102, 1)
	s.die(dead, 103)
	for x, status := range map[string]string{running: "leased", done: "completed", dead: "dead_letter"} {
		got := s.do("DELETE", "/api/v1/jobs/"+x, "")
		got.refused("cancel a job "+status, http.StatusConflict, "not-cancellable", "")
		if got.text("job_status") != status || got.text("job_id") != x {
			t.Errorf("cancel a job %s answers %s", status, got.body)
		}
	}
	if n := s.count(`SELECT count(*) FROM operator_actions WHERE action = 'cancel' AND source = 'api' AND actor = 'bootstrap'`); n != 2 {
		t.Errorf("%d audit rows, want one for each job", n)
	}
	if got := s.do("GET", "/metrics", "").body; !strings.Contains(got, `jobengine_operator_actions_total{action="cancel",result="refused"} 3`) {
		t.Errorf("metrics lack 3 refused cancels")
	}
}

func TestDeadLettersAreReplayedDiscardedAndRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email","queue":"mail","payload":{"n":1}}`)
	act := func(verb string, headers ...string) reply {
		return s.do("POST", "/api/v1/dlq/"+id+"/"+verb, "", headers...)
	}
	for _, verb := range []string{"replay", "discard", "restore"} {
		act(verb).refused(verb+" a waiting job", http.StatusConflict, "not-dead", "")
	}
	s.die(id, 7)
	list := s.do("GET", "/api/v1/dlq?queue=mail&type=email&reason=exhausted&fingerprint=fp1", "")
	if list.text("data", "0", "id") != id || list.text("data", "0", "error", "message") != "mailbox full" || list.text("data", "0", "died_at") == "" {
		t.Errorf("dead letters = %s", list.body)
	}
	act("restore").refused("restore what was not discarded", http.StatusConflict, "not-dead", "")
	if got := act("discard", "User-Agent", "jobctl/1.0"); got.status != 200 || got.text("discarded_at") == "" {
		t.Errorf("discard = %d %s", got.status, got.body)
	}
	act("discard").refused("discard again", http.StatusConflict, "not-dead", "")
	act("replay").refused("replay a discarded one", http.StatusConflict, "not-dead", "")
	if got := s.do("GET", "/api/v1/dlq", ""); got.text("data", "0", "id") != "" {
		t.Errorf("a discarded one is listed: %s", got.body)
	}
	if got := s.do("GET", "/api/v1/dlq?discarded=true", ""); got.text("data", "0", "id") != id {
		t.Errorf("discarded = %s", got.body)
	}
	if got := act("restore"); got.status != 200 || got.field("discarded_at") != nil || got.text("status") != "dead_letter" {
		t.Errorf("restore = %d %s", got.status, got.body)
	}
	got := s.do("POST", "/api/v1/dlq/"+id+"/replay", `{"reason":"gateway mended"}`, "Content-Type", "application/json", "X-Request-Id", "req-9")
	if got.status != 200 || got.text("status") != "pending" || fmt.Sprint(got.field("replays")) != "1" || fmt.Sprint(got.field("attempts")) != "0" || got.text("id") != id {
		t.Errorf("replay = %d %s", got.status, got.body)
	}
	again := act("replay")
	again.refused("replay again", http.StatusConflict, "already-replayed", "")
	if again.text("job_status") != "pending" {
		t.Errorf("replay again says %s", again.body)
	}
	if n := s.count(`SELECT count(*) FROM operator_actions WHERE action = 'replay' AND reason = 'gateway mended' AND request_id = 'req-9' AND address = '127.0.0.1'`); n != 1 {
		t.Errorf("%d audit rows of the replay, want 1", n)
	}
	if n := s.count(`SELECT count(*) FROM operator_actions WHERE action = 'discard' AND source = 'cli'`); n != 1 {
		t.Errorf("%d audit rows of the discard by jobctl, want 1", n)
	}
	s.do("POST", "/api/v1/dlq/"+id+"/replay", `{"raison":"x"}`, "Content-Type", "application/json").refused("a misspelt reason", 422, "validation-failed", "/raison")
	s.do("POST", "/api/v1/dlq/"+id+"/replay", `{"reason":"\u0000"}`, "Content-Type", "application/json").refused("a NUL in the reason", 422, "validation-failed", "/reason")
	s.do("POST", "/api/v1/dlq/"+id+"/replay", `reason=x`, "Content-Type", "application/x-www-form-urlencoded").refused("a form", 415, "unsupported-media-type", "")
	s.do("GET", "/api/v1/dlq/"+id, "").refused("a job no longer dead", 404, "not-found", "")
}

func TestListsGoOnFromTheirCursorWhileJobsArrive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var want []string
	for i := range 7 {
		want = append(want, s.enqueue(fmt.Sprintf(`{"type":"email","queue":"mail","priority":%d}`, i%2)))
	}
	slices.Reverse(want)
	var got []string
	path := "/api/v1/jobs?type=email&status=pending&limit=3"
	for path != "" {
		r := s.do("GET", path, "")
		data, _ := r.field("data").([]any)
		for i := range data {
			got = append(got, r.text("data", fmt.Sprint(i), "id"))
		}
		more, _ := r.field("has_more").(bool)
		link := r.header.Get("Link")
		if more != (r.text("next_cursor") != "") || more != (link != "") {
			t.Fatalf("has_more %t, next_cursor %q, Link %q", more, r.text("next_cursor"), link)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
		s.enqueue(`{"type":"email","queue":"late"}`)
	}
	if !slices.Equal(got, want) {
		t.Errorf("walked %v, want %v", got, want)
	}
	cursor := url.QueryEscape(s.do("GET", "/api/v1/jobs?queue=mail&limit=1", "").text("next_cursor"))
	if r := s.do("GET", "/api/v1/jobs?queue=mail&limit=5&cursor="+cursor, ""); r.status != 200 || r.text("data", "0", "id") != want[1] {
		t.Errorf("another limit = %d %s, want it to go on", r.status, r.body)
	}
	for _, path := range []string{"/api/v1/jobs?queue=late&cursor=", "/api/v1/jobs?cursor=", "/api/v1/dlq?queue=mail&cursor=", "/api/v1/jobs?queue=mail&status=failed&cursor="} {
		s.do("GET", path+cursor, "").refused("a foreign cursor at "+path, 400, "bad-query", "cursor")
	}
	if r := s.do("GET", "/jobs?status=running,failed&status=completed", ""); r.status != 200 || r.text("data", "0", "id") != "" {
		t.Errorf("states without jobs = %d %s", r.status, r.body)
	}
	if r := s.do("GET", "/jobs?page=2&limit=3&queue=mail", ""); r.text("data", "0", "id") != want[3] {
		t.Errorf("page 2 = %s, want it to begin with %s", r.body, want[3])
	}
}

func TestStatusRunningIsLeased(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	s.run(id, 5)
	for _, status := range []string{"running", "leased"} {
		if r := s.do("GET", "/jobs?status="+status, ""); r.text("data", "0", "id") != id || r.text("data", "0", "status") != "leased" {
			t.Errorf("status=%s = %s", status, r.body)
		}
	}
}

func TestAnUnchangedJobIs304(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	tag := s.do("GET", "/api/v1/jobs/"+id, "").header.Get("ETag")
	if r := s.do("GET", "/api/v1/jobs/"+id, "", "If-None-Match", tag); r.status != http.StatusNotModified || r.body != "" || tag == "" {
		t.Errorf("with %q = %d %q, want 304", tag, r.status, r.body)
	}
	s.run(id, 5)
	if r := s.do("GET", "/api/v1/jobs/"+id, "", "If-None-Match", tag); r.status != 200 {
		t.Errorf("after a claim = %d, want 200", r.status)
	}
	s.do("GET", "/api/v1/jobs/"+id+"?include=secrets", "").refused("an unknown include", 400, "bad-query", "include")
}

// TestResultsAreDownloads: what a handler wrote is never shown by a browser.
func TestResultsAreDownloads(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, c := range []struct{ result, kind, disposition, body string }{
		{`{"content_type":"text/csv; charset=utf-8","filename":"report.csv","encoding":"base64","data":"YSxiCg=="}`, "text/csv; charset=utf-8", `attachment; filename=report.csv`, "a,b\n"},
		{`{"content_type":"text/html","filename":"..\\..\\/etc/pass\"wd\n.html","encoding":"base64","data":"PGI+"}`, "text/html", `attachment; filename=pass_wd_.html`, "<b>"},
		{`{"content_type":"bad type;;","filename":"","data":"x"}`, "application/octet-stream", "", "x"},
		{`{"content_type":"text/csv","encoding":"base64","data":"%%"}`, "application/json", "", ""},
		{`{"n": 1970670598291982290}`, "application/json", "", `{"n": 1970670598291982290}`},
		{`"text"`, "application/json", "", `"text"`},
	} {
		id := s.enqueue(`{"type":"report"}`)
		s.do("GET", "/api/v1/jobs/"+id+"/result", "").refused("a result not there yet", 404, "not-found", "")
		s.run(id, int64(i+1))
		s.end(id, int64(i+1), 1)
		s.exec(`UPDATE job_executions SET result = $2 WHERE job_id = $1`, uuid.MustParse(id), c.result)
		r := s.do("GET", "/api/v1/jobs/"+id+"/result", "")
		if c.disposition == "" {
			c.disposition = "attachment; filename=job-" + id + ".json"
		}
		if r.status != 200 || r.header.Get("Content-Type") != c.kind || r.header.Get("Content-Disposition") != c.disposition || c.body != "" && r.body != c.body {
			t.Errorf("%s = %d %s, %s: %q", c.result, r.status, r.header.Get("Content-Type"), r.header.Get("Content-Disposition"), r.body)
		}
		if r.header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(r.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: headers %v", c.result, r.header)
		}
	}
}

func TestQueuesTellTheirDepth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(`{"type":"email","queue":"mail"}`)
	s.enqueue(`{"type":"email","queue":"mail:urgent"}`)
	s.exec(`INSERT INTO workers (name, hostname, pid, version, queues, types, slots, busy, stuck, lease_ms) VALUES ('w', 'h', 1, '1', '{}', '{email}', 10, 3, 1, 30000)`)
	for path, name := range map[string]string{"/api/v1/queues/mail": "mail", "/api/v1/queues/mail:urgent": "mail:urgent", "/api/v1/queues/mail%3Aurgent": "mail:urgent"} {
		r := s.do("GET", path, "")
		if r.text("name") != name || fmt.Sprint(r.field("depth", "ready")) != "1" || fmt.Sprint(r.field("slots", "total")) != "10" || fmt.Sprint(r.field("workers")) != "1" {
			t.Errorf("%s = %d %s", path, r.status, r.body)
		}
	}
	w := s.do("GET", "/api/v1/workers", "")
	if w.text("data", "0", "id") == "" || w.text("data", "0", "status") != "live" || fmt.Sprint(w.field("data", "0", "slots", "stuck")) != "1" {
		t.Errorf("workers = %s", w.body)
	}
	s.do("GET", "/api/v1/queues/nobody", "").refused("an unknown queue", 404, "not-found", "")
}
