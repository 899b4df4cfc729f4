package web

import (
	"net/http"
	"strings"
	"testing"
)

// TestUniqueOverHTTP: 201 for a new job, 200 with the holder, 409 that names it and its state.
func TestUniqueOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.post(`{"type":"email","payload":{"n":1},"unique":{"key":"k","scope":"type","states":["waiting","running"],"on_conflict":"reject"}}`)
	id := first.text("id")
	if first.status != http.StatusCreated || first.field("unique_outcome") != nil {
		t.Fatalf("first: %d %s", first.status, first.body)
	}
	second := s.post(`{"type":"email","queue":"other","unique":{"key":"k"}}`)
	if second.status != http.StatusOK || second.text("id") != id || second.text("unique_outcome") != "held" || second.text("queue") != "default" ||
		second.header.Get("Location") != "/api/v1/jobs/"+id || second.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("return: %d %s", second.status, second.body)
	}
	third := s.post(`{"type":"email","payload":{"n":3},"priority":"high","unique":{"key":"k","on_conflict":"replace"}}`)
	if third.status != http.StatusOK || third.text("id") != id || third.text("unique_outcome") != "replaced" || !strings.Contains(third.body, `"priority":3`) || !strings.Contains(third.body, `"version":2`) {
		t.Errorf("replace: %d %s", third.status, third.body)
	}
	if got := s.do("GET", "/api/v1/jobs/"+id, ""); !strings.Contains(got.body, `"payload":{"n":3}`) || got.field("unique_outcome") != nil {
		t.Errorf("the job: %s", got.body)
	}
	reject := s.post(`{"type":"email","unique":{"key":"k","on_conflict":"reject"}}`)
	reject.refused("reject", http.StatusConflict, "unique-conflict", "")
	if reject.text("job_id") != id || reject.text("job_status") != "pending" {
		t.Errorf("reject: %s", reject.body)
	}
	s.run(id, 7)
	s.post(`{"type":"email","unique":{"key":"k","on_conflict":"replace"}}`).refused("replace of a running job", http.StatusConflict, "unique-conflict", "")
	if running := s.post(`{"type":"email","unique":{"key":"k"}}`); running.text("status") != "leased" || !strings.Contains(running.body, `"attempts":1`) {
		t.Errorf("return of a running job: %s", running.body)
	}
	s.end(id, 7, 1)
	fresh := s.post(`{"type":"email","unique":{"key":"k","window_seconds":3600}}`, "Idempotency-Key", "i")
	if fresh.status != http.StatusCreated || fresh.text("id") == id {
		t.Errorf("after the end: %d %s", fresh.status, fresh.body)
	}
	if again := s.post(`{"type":"email","unique":{"key":"k","window_seconds":3600}}`, "Idempotency-Key", "i"); again.status != http.StatusOK ||
		again.text("id") != fresh.text("id") || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the same call: %d %s", again.status, again.body)
	}
	s.post(`{"type":"email","unique":{"key":"k"}}`, "Idempotency-Key", "i").refused("the same key, other content", http.StatusUnprocessableEntity, "idempotency-key-reused", "")
	s.exec("UPDATE jobs SET unique_through = 2; DELETE FROM job_ready")
	s.exec("INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) VALUES ($1, 9, 1, 1)", fresh.text("id"))
	if windowed := s.post(`{"type":"email","unique":{"key":"k","on_conflict":"reject"}}`); windowed.status != http.StatusConflict ||
		!strings.Contains(windowed.text("detail"), "is completed and holds the unique key until ") {
		t.Errorf("in the window: %d %s", windowed.status, windowed.body)
	}
}

// TestUniqueFieldsAreRefusedByName at their limits, and nothing is stored.
func TestUniqueFieldsAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for unique, place := range map[string]string{
		`null`: "/unique", `"k"`: "/unique", `[]`: "/unique", `{"key":"a","key":"b"}`: "/unique",
		`{}`: "/unique/key", `{"scope":"type"}`: "/unique/key", `{"key":""}`: "/unique/key", `{"key":1}`: "/unique/key",
		`{"key":"` + strings.Repeat("x", 256) + `"}`: "/unique/key", `{"key":"a\u0007"}`: "/unique/key", `{"key":"a\u0000"}`: "/unique",
		`{"key":"k","scope":"all"}`: "/unique/scope", `{"key":"k","scope":""}`: "/unique/scope", `{"key":"k","scope":null}`: "/unique/scope",
		`{"key":"k","states":[]}`: "/unique/states", `{"key":"k","states":"waiting"}`: "/unique/states", `{"key":"k","states":["running"]}`: "/unique/states",
		`{"key":"k","states":["waiting","dead"]}`: "/unique/states", `{"key":"k","states":["waiting",1]}`: "/unique/states/1",
		`{"key":"k","window_seconds":0.999}`: "/unique/window_seconds", `{"key":"k","window_seconds":31536001}`: "/unique/window_seconds",
		`{"key":"k","window_seconds":"60"}`: "/unique/window_seconds", `{"key":"k","window_seconds":-1}`: "/unique/window_seconds",
		`{"key":"k","window_seconds":1e400}`: "/unique/window_seconds", `{"key":"k","on_conflict":"ignore"}`: "/unique/on_conflict",
		`{"key":"k","on_confict":"reject"}`: "/unique/on_confict",
	} {
		s.post(`{"type":"email","unique":`+unique+`}`).refused(unique, http.StatusUnprocessableEntity, "validation-failed", place)
	}
	for _, id := range []string{`""`, `"x"`, `1`, `null`, `"0193b6a26f1e7c419a572d1f0c9b5e10"`, `"00000000-0000-0000-0000-000000000000"`, `"{0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10}"`} {
		s.post(`{"type":"email","copied_from":`+id+`}`).refused(id, http.StatusUnprocessableEntity, "validation-failed", "/copied_from")
	}
	s.nothingStored()
	for _, unique := range []string{`{"key":"` + strings.Repeat("é", 255) + `"}`, `{"key":"a","window_seconds":1}`, `{"key":"b","window_seconds":31536000}`,
		`{"key":"c","states":["waiting"]}`, `{"key":"d","states":["waiting","running","dead"],"scope":"global","on_conflict":"return"}`} {
		s.enqueue(`{"type":"email","unique":` + unique + `}`)
	}
}

// TestCopiedFromIsStoredAndShown by the API.
func TestCopiedFromIsStoredAndShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.enqueue(`{"type":"email"}`)
	for _, body := range []string{`{"type":"email","copied_from":"` + first + `"}`, `{"type":"email","delay_seconds":60,"copied_from":"` + first + `"}`,
		`{"type":"email","idempotency_key":"k","copied_from":"` + first + `"}`} {
		if got := s.do("GET", "/api/v1/jobs/"+s.enqueue(body), ""); got.text("copied_from") != first {
			t.Errorf("%s: %s", body, got.body)
		}
	}
}
