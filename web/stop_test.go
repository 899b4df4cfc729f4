package web

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestStopAppliesToJobsThatRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	s.run(id, 101)
	s.tell(id, 101)
	first := s.do("POST", "/api/v1/jobs/"+id+"/stop", `{"reason":"wrong customer"}`, "Content-Type", "application/json")
	if first.status != http.StatusAccepted || first.text("status") != "leased" || first.text("stop_request", "actor") != "bootstrap" || first.text("stop_request", "reason") != "wrong customer" {
		t.Fatalf("POST stop = %d %s, want 202 with the request", first.status, first.body)
	}
	if at, err := time.Parse(time.RFC3339, first.text("stop_request", "requested_at")); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("requested at %v, %v", at, err)
	}
	if again := s.do("POST", "/api/v1/jobs/"+id+"/stop", ""); again.status != http.StatusAccepted || again.text("stop_request", "requested_at") != first.text("stop_request", "requested_at") {
		t.Errorf("once more = %d %s, want 202 with the first request", again.status, again.body)
	}
	waiting, done := s.enqueue(`{"type":"email"}`), s.enqueue(`{"type":"email"}`)
	s.run(done, 102)
	s.end(done, 102, 1)
	for x, status := range map[string]string{waiting: "pending", done: "completed"} {
		got := s.do("POST", "/api/v1/jobs/"+x+"/stop", "")
		got.refused("stop a job "+status, http.StatusConflict, "not-running", "")
		if got.text("job_status") != status || got.text("job_id") != x {
			t.Errorf("stop a job %s answers %s", status, got.body)
		}
	}
	s.do("POST", "/api/v1/jobs/01a22b67-67dd-7b0e-975e-909b4f6472ab/stop", "").refused("stop no job", http.StatusNotFound, "not-found", "")
	if got := s.do("DELETE", "/api/v1/jobs/"+id, ""); got.status != http.StatusConflict {
		t.Errorf("DELETE of a running job = %d, want 409", got.status)
	}
	if n := s.count(`SELECT count(*) FROM operator_actions WHERE action = 'stop' AND source = 'api' AND actor = 'bootstrap' AND reason = 'wrong customer'`); n != 1 {
		t.Errorf("%d audit rows, want one", n)
	}
	metrics := s.do("GET", "/metrics", "").body
	for _, want := range []string{`action="stop",result="done"} 1`, `action="stop",result="repeated"} 1`, `action="stop",result="refused"} 2`} {
		if !strings.Contains(metrics, "jobengine_operator_actions_total{"+want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestARunningJobTellsOfItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	s.run(id, 101)
	if got := s.do("GET", "/api/v1/jobs/"+id, ""); got.field("progress") != nil || got.field("logs") != nil {
		t.Errorf("before it told anything: %s", got.body)
	}
	tag := s.do("GET", "/api/v1/jobs/"+id, "").header.Get("ETag")
	s.tell(id, 101)
	got := s.do("GET", "/api/v1/jobs/"+id+"?include=attempts,logs,refused_writes", "")
	for _, want := range []string{`"progress":{"percent":40,"text":"page 4`, `"logs":[{"run":1,"fencing_token":"101","n":1,"time":"2026-11-30T02:14:07Z","level":"INFO","msg":"page`, `"refused_writes":[]`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%s lacks %s", got.body, want)
		}
	}
	if got := s.send("GET", "/api/v1/jobs/"+id, nil, "Authorization", "Bearer "+apiToken, "If-None-Match", tag); got.status != http.StatusOK {
		t.Errorf("with the tag from before it told more: %d", got.status)
	}
	s.exec(`INSERT INTO refused_writes (job_id, token_held, token_current, worker_id, operation, tried) VALUES ($1, 7, 101, 3, 'complete', '{"outcome": "completed"}')`, parse(id))
	if got := s.do("GET", "/api/v1/jobs/"+id+"?include=refused_writes", ""); !strings.Contains(got.body,
		`"operation":"complete","token_held":"7","token_current":"101","worker_id":"3","tried":{"outcome":`) {
		t.Errorf("refused writes: %s", got.body)
	}
	s.do("GET", "/api/v1/jobs/01a22b67-67dd-7b0e-975e-909b4f6472ab/logs", "").refused("logs of no job", http.StatusNotFound, "not-found", "")
}

func TestStopFromThePage(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.enqueue(`{"type":"email","queue":"mail"}`)
	ask := "/jobs/" + id + "/stop"
	s.get(ask).shows("asking to stop a job that waits", http.StatusConflict, "was not asked to stop: it is", "Ready")
	s.run(id, 101)
	s.tell(id, 101)
	page := s.get("/jobs/" + id)
	page.shows("the page of a running job", http.StatusOK, "Request stop…", `href="/console`+ask+`"`, `role="progressbar"`, `aria-valuenow="40"`, "40 %",
		"page 4 &lt;b&gt;of&lt;/b&gt; 10", "page &lt;i&gt;4&lt;/i&gt;", "rows=12", "token=••••••••")
	// The panel shows log fields masked; the API body on the same page has no log.
	if strings.Contains(page.body, "s3cret") {
		t.Error("a masked field of a log line is shown")
	}
	s.get(ask).shows("the question", http.StatusOK, "Stop job "+short(id)+"?", "may be half done", "Let it run", "Reason", `name="version"`)
	r := s.submit(ask, nil)
	r.redirects("the request", http.StatusSeeOther, "/console/jobs/"+id)
	at := s.text(`SELECT to_char(requested_at AT TIME ZONE 'UTC', 'HH24:MI:SS') FROM job_stop_requests`)
	s.get("/jobs/"+id, "Cookie", flashOf(r)).shows("the page after it", http.StatusOK, "Stop requested "+at+" UTC", "by anonymous")
	if body := s.get("/jobs/" + id).body; strings.Contains(body, "Request stop…") {
		t.Error("the button stands there still")
	}
	s.submit(ask, nil).redirects("once more", http.StatusSeeOther, "/console/jobs/"+id)
	s.exec(`INSERT INTO refused_writes (job_id, token_held, token_current, worker_id, operation) VALUES ($1, 7, 101, 3, 'complete')`, parse(id))
	s.get("/jobs/"+id).shows("a refused write", http.StatusOK, "token 7 refused, current 101")
}
