package web

import (
	"fmt"
	"testing"
)

func TestABackoffOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email","backoff":{"policy":"exponential","base_seconds":0.25,"max_seconds":90}}`)
	if got := s.do("GET", "/api/v1/jobs/"+id, ""); got.text("backoff", "policy") != "exponential" || fmt.Sprint(got.field("backoff", "base_seconds")) != "0.25" || fmt.Sprint(got.field("backoff", "max_seconds")) != "90" {
		t.Errorf("the job: %s", got.body)
	}
	def := s.enqueue(`{"type":"email","backoff":{}}`)
	if got := s.do("GET", "/api/v1/jobs/"+def, ""); got.text("backoff", "policy") != "full_jitter" || fmt.Sprint(got.field("backoff", "max_seconds")) != "300" {
		t.Errorf("the defaults: %s", got.body)
	}
	if got := s.do("GET", "/api/v1/jobs/"+s.enqueue(`{"type":"email"}`), ""); got.field("backoff") != nil {
		t.Errorf("without: %s", got.body)
	}
	for body, place := range map[string]string{
		`null`: "/backoff", `[]`: "/backoff", `"exponential"`: "/backoff", `{"policy":"linear"}`: "/backoff/policy", `{"policy":""}`: "/backoff/policy", `{"policy":null}`: "/backoff/policy",
		`{"base_seconds":0}`: "/backoff/base_seconds", `{"base_seconds":-1}`: "/backoff/base_seconds", `{"base_seconds":"1"}`: "/backoff/base_seconds",
		`{"base_seconds":86401}`: "/backoff/base_seconds", `{"base_seconds":600}`: "/backoff/max_seconds", `{"max_seconds":2592001}`: "/backoff/max_seconds",
		`{"max_seconds":1e300}`: "/backoff/max_seconds", `{"base":1}`: "/backoff/base", `{"policy":"exponential","policy":"exponential"}`: "/backoff",
	} {
		s.post(`{"type":"email","backoff":`+body+`}`).refused(body, 422, "validation-failed", place)
	}
	s.bulk(`{"jobs":[{"type":"email"},{"type":"email","backoff":{"policy":"linear"}}]}`).refused("among many", 422, "validation-failed", "/jobs/1/backoff/policy")
}

// TestPagesShowWhatIsAJobsOwn: its backoff, and that it was edited.
func TestPagesShowWhatIsAJobsOwn(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.enqueue(`{"type":"email","backoff":{"policy":"exponential","base_seconds":5,"max_seconds":40}}`)
	if got := s.patch(id, `{"priority":5,"reason":"first of all"}`, "If-Match", "*"); got.status != 200 {
		t.Fatalf("PATCH = %d %s", got.status, got.body)
	}
	s.get("/jobs/"+id).shows("the job's page", 200, "Backoff", "exponential, from 5.0 s, at most 40 s", "Edited", "first of all")
	s.get("/audit").shows("the trail", 200, "edit", "priority: 1 → priority: 5")
}
