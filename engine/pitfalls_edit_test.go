package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestAnEditedJobRunsAsEdited edits jobs while workers take them: who is told that a job was edited will never see it run
// as it was, and who is told that it runs will not see it run as edited.
func TestAnEditedJobRunsAsEdited(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var mu sync.Mutex
	ran := map[engine.ID]string{}
	ws := engine.NewWorkers()
	engine.RegisterType(ws, "plain", engine.WorkerFunc[engine.RawArgs](func(_ context.Context, j *engine.Job[engine.RawArgs]) error {
		mu.Lock()
		defer mu.Unlock()
		ran[j.ID] += string(j.Payload)
		return nil
	}), engine.TypeOptions{})
	c := newClient(t, pool)
	items := make([]engine.EnqueueItem, 300)
	for i := range items {
		items[i].Args = engine.RawArgs{Type: "plain", Payload: json.RawMessage(`{"n": 1}`)}
	}
	done, err := c.EnqueueMany(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	edited := make([]bool, len(done))
	var wg sync.WaitGroup
	turns := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range turns {
				err := c.Edit(t.Context(), done[i].ID, engine.Edit{Payload: json.RawMessage(`{"n": 2}`)}, engine.Actor{Name: "op"})
				var state *engine.StateError
				if edited[i] = err == nil; err != nil && !errors.As(err, &state) {
					t.Errorf("edit: %v", err)
				}
			}
		})
	}
	for i := len(done) - 1; i >= 0; i-- { // against the order of the claims
		if i == len(done)-20 {
			cfg := hasty(ws)
			cfg.Concurrency = 2
			start(t, pool, cfg)
		}
		turns <- i
	}
	close(turns)
	wg.Wait()
	eventually(t, "all jobs have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == len(done)
	})
	mu.Lock()
	defer mu.Unlock()
	counts := map[bool]int{}
	for i, d := range done {
		counts[edited[i]]++
		want := map[bool]string{false: `{"n": 1}`, true: `{"n": 2}`}[edited[i]]
		if ran[d.ID] != want {
			t.Errorf("a job told edited=%v ran with %s", edited[i], ran[d.ID])
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM operator_actions WHERE action = 'edit'"); n != counts[true] {
		t.Errorf("%d audit rows of %d edits", n, counts[true])
	}
	t.Logf("%d jobs were edited in time, %d were not", counts[true], counts[false])
}

// TestAnEditIsChecked at the limits of an enqueue, and leaves a trail without payloads.
func TestAnEditIsChecked(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	secret := json.RawMessage(`{"password": "s3cret"}`)
	done, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain", Payload: secret}, engine.EnqueueOptions{Unique: engine.Unique{Key: "k", Scope: engine.UniqueByQueue}})
	if err != nil {
		t.Fatal(err)
	}
	far, past, none, many, queue := time.Now().AddDate(11, 0, 0), time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), 0, 101, "no queue"
	for field, e := range map[string]engine.Edit{
		"run_at too-far": {ScheduledAt: &far}, "run_at out-of-range": {ScheduledAt: &past}, "max_attempts out-of-range": {MaxAttempts: &none},
		"max_attempts  out-of-range": {MaxAttempts: &many}, "queue invalid": {Queue: &queue}, "priority out-of-range": {Priority: engine.Priority(6).Ptr()},
		"payload invalid": {Payload: json.RawMessage(`[]`)}, "payload malformed": {Payload: json.RawMessage(`{`)}, "payload.a invalid": {Payload: json.RawMessage(`{"a":"\u0000"}`)},
	} {
		var name, code string
		if _, err := fmt.Sscan(field, &name, &code); err != nil {
			t.Fatal(err)
		}
		var invalid *engine.ValidationError
		if err := c.Edit(ctx, done.ID, e, engine.Actor{Name: "op"}); !errors.As(err, &invalid) || !invalid.Has(name, code) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := c.Edit(ctx, uuid.Must(uuid.NewV7()), engine.Edit{Priority: engine.PriorityHigh.Ptr()}, engine.Actor{Name: "op"}); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("an edit of no job: %v", err)
	}
	same := engine.Edit{Priority: engine.PriorityDefault.Ptr(), Payload: json.RawMessage(` {"password":"s3cret"}`)}
	if err := c.Edit(ctx, done.ID, same, engine.Actor{Name: "op"}); err != nil {
		t.Error(err)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM operator_actions") + one[int](t, pool, "SELECT version - 1 FROM jobs"); n != 0 {
		t.Errorf("refused edits and one that changes nothing left %d traces", n)
	}
	queue = "other"
	if err := c.Edit(ctx, done.ID, engine.Edit{Queue: &queue, Payload: json.RawMessage(`{"password": "an0ther"}`)}, engine.Actor{Name: "op", Version: 1}); err != nil {
		t.Fatal(err)
	}
	trail := one[string](t, pool, "SELECT before::text || after::text FROM operator_actions WHERE action = 'edit' AND target = $1", done.ID.String())
	var before, after map[string]any
	d := json.NewDecoder(strings.NewReader(trail))
	if err := errors.Join(d.Decode(&before), d.Decode(&after)); err != nil {
		t.Fatal(err)
	}
	if before["queue"] != "default" || after["queue"] != "other" || before["payload_sha256"] == after["payload_sha256"] || len(before) != 2 || len(after) != 2 {
		t.Errorf("the trail says %s", trail)
	}
	var state *engine.StateError
	if err := c.Edit(ctx, done.ID, engine.Edit{Priority: engine.PriorityLow.Ptr()}, engine.Actor{Name: "op", Version: 1}); !errors.As(err, &state) || !state.Changed {
		t.Errorf("an edit of what was edited meanwhile: %v", err)
	}
	// The key stays as it was taken.
	held, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: engine.Unique{Key: "k", Scope: engine.UniqueByQueue}})
	if err != nil || held.ID != done.ID || held.Queue != "other" {
		t.Errorf("an enqueue under its unique key = %+v, %v", held, err)
	}
}
