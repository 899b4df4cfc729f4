package web

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// An act under an Idempotency-Key happens once: whoever repeats it after a lost answer is told what stands, and does not
// act on what has become of the job since.
func TestAnActUnderAKeyHappensOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	s.die(id, 1)
	replay := func(body string, headers ...string) reply {
		return s.ask("POST", "/api/v1/dlq/"+id+"/replay", body, append([]string{"Idempotency-Key", `"replay-1"`}, headers...)...)
	}
	if got := replay(`{"reason":"mended"}`); got.status != http.StatusOK || got.header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("the first = %d %s", got.status, got.body)
	}
	if got := replay(`{"reason":"mended"}`); got.status != http.StatusOK || got.header.Get("Idempotency-Replayed") != "true" || got.text("status") != "pending" {
		t.Errorf("again = %d %s", got.status, got.body)
	}
	if got := replay(`{"reason":"another"}`); got.status != http.StatusUnprocessableEntity || got.text("code") != "idempotency-key-reused" {
		t.Errorf("with another reason = %d %s", got.status, got.body)
	}
	if got := s.ask("POST", "/api/v1/dlq/"+id+"/discard", `{"reason":"mended"}`, "Idempotency-Key", "replay-1"); got.text("code") != "idempotency-key-reused" {
		t.Errorf("for another act = %d %s", got.status, got.body)
	}
	s.die(id, 3)
	if got := replay(`{"reason":"mended"}`); got.status != http.StatusOK || got.text("status") != "dead_letter" || got.field("replays") != json.Number("1") {
		t.Errorf("after another death = %d %s, want it left dead", got.status, got.body)
	}
	if n := s.count("SELECT count(*) FROM operator_actions WHERE action = 'replay'"); n != 1 {
		t.Errorf("%d replays in the trail", n)
	}
	// What was refused holds no key.
	if got := s.ask("POST", "/api/v1/dlq/"+id+"/restore", `{}`, "Idempotency-Key", "later"); got.status != http.StatusConflict {
		t.Fatalf("restore of what is not discarded = %d %s", got.status, got.body)
	}
	if got := s.ask("POST", "/api/v1/dlq/"+id+"/discard", `{}`, "Idempotency-Key", "later"); got.status != http.StatusOK {
		t.Errorf("with the key of a refused act = %d %s", got.status, got.body)
	}
	for _, bad := range []string{`""`, strings.Repeat("k", 256), "a\xffb"} {
		if got := s.ask("POST", "/api/v1/dlq/"+id+"/restore", `{}`, "Idempotency-Key", bad); got.status != http.StatusUnprocessableEntity || got.text("errors", "0", "header") != "Idempotency-Key" {
			t.Errorf("key %.10q = %d %s", bad, got.status, got.body)
		}
	}
}

// Many clients that repeat one operation under one key make one operation, and all are told which.
func TestAnOperationUnderAKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range int64(3) {
		s.die(s.enqueue(`{"type":"email","queue":"mail"}`), i+1)
	}
	const body = `{"action":"replay","queue":"mail","reason":"mended"}`
	var mu sync.Mutex
	ids, firsts := map[string]int{}, 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got := s.ask("POST", "/api/v1/operations", body, "Idempotency-Key", "op-1")
			mu.Lock()
			defer mu.Unlock()
			if got.status != http.StatusAccepted || got.header.Get("Location") != "/api/v1/operations/"+got.text("id") {
				t.Errorf("= %d %s", got.status, got.body)
			}
			ids[got.text("id")]++
			if got.header.Get("Idempotency-Replayed") == "" {
				firsts++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || firsts != 1 {
		t.Errorf("operations %v, %d of them the first", ids, firsts)
	}
	for id := range ids {
		for range 2 {
			if got := s.ask("POST", "/api/v1/operations/"+id+"/pause", `{}`, "Idempotency-Key", "hold"); got.status != http.StatusOK && got.text("code") != "operation-state" {
				t.Errorf("pause = %d %s", got.status, got.body)
			}
		}
	}
	if got := s.ask("POST", "/api/v1/operations", `{"action":"replay","queue":"mail"}`, "Idempotency-Key", "op-1"); got.text("code") != "idempotency-key-reused" {
		t.Errorf("another operation under the key = %d %s", got.status, got.body)
	}
}
