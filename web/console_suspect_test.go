package web

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
)

// A suspect, and a job that was quarantined, say why on their page, in the list and over the API.
func TestASuspectSaysWhyItIsOne(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	const text = "Suspect: ran in 2 runs that were lost with their process; runs alone in a child process next."
	id := s.enqueue(`{"type":"fatal","queue":"mail"}`)
	if got := s.do("GET", "/api/v1/jobs/"+id, "").field("suspect"); got != nil {
		t.Errorf("a fresh job: suspect = %v", got)
	}
	s.exec("UPDATE job_ready SET crashes = 2 WHERE job_id = $1", uuid.MustParse(id))
	if got := s.do("GET", "/api/v1/jobs/"+id, "").field("suspect"); got != true {
		t.Errorf("suspect = %v, want true", got)
	}
	s.get("/jobs/"+id).shows("its page", http.StatusOK, text, "It is cleared once a run ends by itself")
	s.get("/jobs?type=fatal").shows("the list", http.StatusOK, text)
	s.run(id, 77)
	s.get("/jobs/"+id).shows("its page while it runs", http.StatusOK, "runs alone in a child process now.")
	s.end(id, 77, 7)
	s.exec(`UPDATE job_executions SET error_class = 'crash', error = 'the child process ended: exit status 2: fatal error: stack overflow' WHERE fencing_token = 77`)
	s.exec(`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, crashes, queue, type, reason, error_class, error, fingerprint)
		SELECT id, 77, 0, 3, queue, type, 'poison', 'crash', 'quarantined: 3 runs in a row were lost with their process', 'fp' FROM jobs WHERE id = $1`, uuid.MustParse(id))
	if got := s.do("GET", "/api/v1/jobs/"+id, "").field("suspect"); got != nil {
		t.Errorf("a dead job: suspect = %v", got)
	}
	s.get("/jobs/"+id).shows("its page when it is dead", http.StatusOK, "Quarantined: 3 runs in a row were lost with their process.",
		"fatal error: stack overflow", "its runs were lost with their process too often")
	s.get("/dlq?view=jobs").shows("the dead letters", http.StatusOK, "poison")
	if got := s.do("GET", "/api/v1/dlq/"+id, "").text("error", "message"); got != "quarantined: 3 runs in a row were lost with their process" {
		t.Errorf("the dead letter's reason: %q", got)
	}
}
