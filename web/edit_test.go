package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func (s *site) patch(id, body string, headers ...string) reply {
	s.t.Helper()
	return s.do("PATCH", "/api/v1/jobs/"+id, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

func (s *site) tag(id string) string {
	s.t.Helper()
	return s.do("GET", "/api/v1/jobs/"+id, "").header.Get("ETag")
}

func TestAWaitingJobIsEdited(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email","payload":{"n":1}}`)
	first := s.tag(id)
	s.patch(id, `{"priority":5}`).refused("without If-Match", http.StatusPreconditionRequired, "precondition-required", "")
	got := s.patch(id, `{"priority":"critical","queue":"mail","max_attempts":7,"payload":{"n":1970670598291982290},"reason":"wrong queue"}`, "If-Match", first, "X-Request-Id", "req-7")
	if got.status != 200 || fmt.Sprint(got.field("priority"), got.field("max_attempts"), got.field("version")) != "572" || got.text("queue") != "mail" ||
		fmt.Sprint(got.field("payload", "n")) != "1970670598291982290" || got.header.Get("ETag") == first || got.header.Get("ETag") != s.tag(id) {
		t.Fatalf("PATCH = %d %s, ETag %s", got.status, got.body, got.header.Get("ETag"))
	}
	stale := s.patch(id, `{"priority":0}`, "If-Match", first)
	stale.refused("with an old tag", http.StatusPreconditionFailed, "precondition-failed", "")
	if stale.header.Get("ETag") != s.tag(id) {
		t.Errorf("412 names the tag %s", stale.header.Get("ETag"))
	}
	if n := s.count(`SELECT count(*) FROM operator_actions WHERE action = 'edit' AND source = 'api' AND reason = 'wrong queue' AND request_id = 'req-7'
		AND before->>'queue' = 'default' AND after->>'queue' = 'mail' AND before->>'priority' = '1' AND after::text NOT LIKE '%1970670598291982290%'`); n != 1 {
		t.Errorf("%d audit rows, want 1", n)
	}
	same := s.patch(id, `{"priority":5,"queue":"mail"}`, "If-Match", s.tag(id))
	if same.status != 200 || same.header.Get("ETag") != got.header.Get("ETag") || s.count("SELECT count(*) FROM operator_actions") != 1 {
		t.Errorf("no change = %d %s, ETag %s", same.status, same.body, same.header.Get("ETag"))
	}
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	if put := s.patch(id, `{"run_at":"`+later+`"}`, "If-Match", `"other", `+s.tag(id)); put.status != 200 || put.text("run_at") != later || put.text("status") != "pending" {
		t.Errorf("put off = %d %s", put.status, put.body)
	}
	if echoed := s.patch(id, `{"run_at":"`+later+`"}`, "If-Match", "*"); echoed.status != 200 || s.count("SELECT count(*) FROM operator_actions") != 2 {
		t.Errorf("the same run_at = %d %s", echoed.status, echoed.body)
	}
	if now := s.patch(id, `{"scheduled_at":"2001-01-01T00:00:00Z"}`, "If-Match", "*"); now.status != 200 || s.count("SELECT count(*) FROM job_ready WHERE queue = 'mail' AND priority = 5") != 1 {
		t.Errorf("brought forward = %d %s", now.status, now.body)
	}
	s.patch(id, `{"priority":0}`, "If-Match", "W/"+s.tag(id)).refused("with a weak tag", http.StatusPreconditionFailed, "precondition-failed", "")
}

func TestWhatCannotBeEdited(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	for body, place := range map[string]string{
		`{}`: "", `[]`: "", `{"reason":"x"}`: "", `{"type":"sms"}`: "/type", `{"priority":6}`: "/priority", `{"priority":null}`: "/priority", `{"max_attempts":0}`: "/max_attempts",
		`{"queue":""}`: "/queue", `{"queue":"a b"}`: "/queue", `{"payload":[]}`: "/payload", `{"payload":null}`: "/payload", `{"payload":{"a":"\u0000"}}`: "/payload/a",
		`{"run_at":"9999-01-01T00:00:00Z"}`: "/run_at", `{"run_at":null}`: "/run_at", `{"priorty":1}`: "/priorty", `{"queue":"\u0000"}`: "/queue",
		`{"run_at":"2026-12-01T00:00:00Z","scheduled_at":"2026-12-01T00:00:00Z"}`: "/scheduled_at",
	} {
		s.patch(id, body, "If-Match", "*").refused(body, 422, "validation-failed", place)
	}
	s.patch(id, `{"payload":{"x":"`+strings.Repeat("y", 262144)+`"}}`, "If-Match", "*").refused("a payload too large", 413, "payload-too-large", "")
	s.patch(uuid.NewString(), `{"priority":1}`, "If-Match", "*").refused("no job", 404, "not-found", "")
	s.do("PATCH", "/api/v1/jobs/"+id, `{"priority":1}`, "If-Match", "*", "Content-Type", "application/x-www-form-urlencoded").refused("a form", 415, "unsupported-media-type", "")
	done, dead, gone := s.enqueue(`{"type":"email"}`), s.enqueue(`{"type":"email"}`), s.enqueue(`{"type":"email"}`)
	tag := s.tag(id)
	s.run(id, 101)
	s.run(done, 102)
	s.end(done, 102, 1)
	s.die(dead, 103)
	s.do("DELETE", "/api/v1/jobs/"+gone, "")
	for x, status := range map[string]string{id: "leased", done: "completed", dead: "dead_letter", gone: "cancelled"} {
		got := s.patch(x, `{"priority":2}`, "If-Match", tag) // a worker took it meanwhile
		got.refused("edit a job "+status, http.StatusConflict, "not-waiting", "")
		if got.text("job_status") != status {
			t.Errorf("edit a job %s: %s", status, got.body)
		}
	}
	if n := s.count("SELECT count(*) FROM operator_actions WHERE action = 'edit'"); n != 0 {
		t.Errorf("%d audit rows of refused edits", n)
	}
	if got := s.do("GET", "/metrics", "").body; !strings.Contains(got, `jobengine_operator_actions_total{action="edit",result="refused"} 4`) {
		t.Error("metrics lack 4 refused edits")
	}
}
