package web

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestE4TheKeyOfADeadJob is pitfall E4 over HTTP: who asks under the unique key of a dead
// job that still holds it is told which and where it is; discarding it frees the key.
func TestE4TheKeyOfADeadJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"type":"email","unique":{"key":"customer-42","states":["waiting","running","dead"],"on_conflict":"reject"}}`
	id := s.enqueue(body)
	s.die(id, 1)
	got := s.post(body)
	if got.status != http.StatusConflict || got.text("code") != "unique-conflict" || got.text("job_id") != id || got.text("job_status") != "dead_letter" {
		t.Errorf("under a dead job's key = %d %s, want 409 with its id and state", got.status, got.body)
	}
	if got := s.ask("POST", "/api/v1/dlq/"+id+"/discard", `{}`); got.status != http.StatusOK {
		t.Fatalf("discard = %d %s", got.status, got.body)
	}
	if got := s.post(body); got.status != http.StatusCreated || got.text("id") == id {
		t.Errorf("after the discard = %d %s, want a new job", got.status, got.body)
	}
	// By default death frees the key: a recurring job is not blocked by one dead run.
	const plain = `{"type":"email","unique":{"key":"customer-43"}}`
	s.die(s.enqueue(plain), 2)
	if got := s.post(plain); got.status != http.StatusCreated {
		t.Errorf("by default = %d %s, want a new job", got.status, got.body)
	}
}

// TestE5BulkObeysTheKeysOfSingles is pitfall E5 over HTTP: against jobs made one by one,
// inside one bulk, and against singles at the same time; answers in the order of the items.
func TestE5BulkObeysTheKeysOfSingles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.enqueue(`{"type":"email"}`, "Idempotency-Key", "k0")
	got := s.bulk(`{"jobs":[{"type":"sms"},{"type":"email","idempotency_key":"k1"},{"type":"email","idempotency_key":"k0"},{"type":"email","idempotency_key":"k1"}]}`)
	if got.status != http.StatusCreated || got.text("jobs", "0", "type") != "sms" || got.text("jobs", "2", "id") != first ||
		got.text("jobs", "1", "id") != got.text("jobs", "3", "id") {
		t.Errorf("bulk = %d %s", got.status, got.body)
	}
	if n := s.count("SELECT count(*) FROM jobs"); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
	ids := make([]string, 16)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			if i%2 == 0 {
				ids[i] = s.post(`{"type":"email"}`, "Idempotency-Key", "race").text("id")
				return
			}
			ids[i] = s.bulk(`{"jobs":[{"type":"sms"},{"type":"email","idempotency_key":"race"}]}`).text("jobs", "1", "id")
		})
	}
	all.Wait()
	for i, id := range ids {
		if id == "" || id != ids[0] {
			t.Errorf("caller %d got job %q, want %q as all", i, id, ids[0])
		}
	}
}

// TestF1AReplayBeginsAnew is pitfall F1 over HTTP, whatever the job died of: no attempt is
// used, the old runs stay and their number goes on, the token keeps rising.
func TestF1AReplayBeginsAnew(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"exhausted", "permanent", "poison"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			id := s.enqueue(`{"type":"email","max_attempts":1}`)
			s.die(id, 7)
			s.exec(`UPDATE dead_letter_jobs SET reason = $1, crashes = 3`, reason)
			if got := s.ask("POST", "/api/v1/dlq/"+id+"/replay", `{"reason":"mended"}`); got.status != http.StatusOK {
				t.Fatalf("replay = %d %s", got.status, got.body)
			}
			job := s.do("GET", "/api/v1/jobs/"+id, "")
			if job.text("status") != "pending" || fmt.Sprintf("%v %v %v", job.field("attempts"), job.field("crashes"), job.field("replays")) != "0 0 1" ||
				job.field("dead_reason") != nil || !strings.Contains(job.body, `"fencing_token":"7"`) {
				t.Errorf("the replayed job = %s", job.body)
			}
			if runs := s.do("GET", "/api/v1/jobs/"+id+"/attempts", ""); runs.text("data", "0", "fencing_token") != "7" {
				t.Errorf("its old run is gone: %s", runs.body)
			}
		})
	}
}

// TestF5AReplayIsAnEnqueue is pitfall F5 over HTTP: a replay meets the unique key that
// another job has taken meanwhile, and does nothing.
func TestF5AReplayIsAnEnqueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"type":"email","priority":"high","unique":{"key":"customer-42"}}`
	dead := s.enqueue(body)
	s.die(dead, 1)
	holder := s.enqueue(body)
	got := s.ask("POST", "/api/v1/dlq/"+dead+"/replay", `{}`)
	if got.status != http.StatusConflict || got.text("code") != "unique-conflict" || got.text("job_id") != holder {
		t.Errorf("replay = %d %s, want 409 that names the holder", got.status, got.body)
	}
	if job := s.do("GET", "/api/v1/jobs/"+dead, ""); job.text("status") != "dead_letter" {
		t.Errorf("after the refusal the job is %s", job.text("status"))
	}
	s.do("DELETE", "/api/v1/jobs/"+holder, "")
	if got := s.ask("POST", "/api/v1/dlq/"+dead+"/replay", `{}`); got.status != http.StatusOK {
		t.Errorf("replay with the key free = %d %s", got.status, got.body)
	}
	if n := s.count("SELECT priority FROM job_ready"); n != 3 { // A8 too: by replay as directly
		t.Errorf("priority %d after the replay, want 3", n)
	}
}
