package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestE5UniqueInBulk: inside one batch as against what is there, answers in input order, all or none.
func TestE5UniqueInBulk(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	there, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: engine.Unique{Key: "there"}})
	if err != nil {
		t.Fatal(err)
	}
	item := func(n int, key string, on engine.OnConflict) engine.EnqueueItem {
		x := engine.EnqueueItem{Args: engine.RawArgs{Type: "plain", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}}
		if key != "" {
			x.Options.Unique = engine.Unique{Key: key, OnConflict: on}
		}
		return x
	}
	done, err := c.EnqueueMany(ctx, []engine.EnqueueItem{item(0, "", ""), item(1, "z", ""), item(2, "there", ""), item(3, "z", engine.ConflictReplace),
		item(4, "a", engine.ConflictReject), item(5, "z", ""), item(6, "", "")})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []engine.UniqueOutcome{"", "", engine.UniqueHeld, engine.UniqueReplaced, "", engine.UniqueHeld, ""} {
		if done[i].Unique != want {
			t.Errorf("answer %d: %+v, want %q", i, done[i], want)
		}
	}
	if done[2].ID != there.ID || done[3].ID != done[1].ID || done[5].ID != done[1].ID {
		t.Errorf("answers %+v", done)
	}
	for i, n := range map[int]string{0: "0", 1: "3", 4: "4", 6: "6"} {
		if got := one[string](t, pool, "SELECT payload->>'n' FROM jobs WHERE id = $1", done[i].ID); got != n {
			t.Errorf("answer %d is the job with n = %s, want %s", i, got, n)
		}
	}
	before := one[int](t, pool, "SELECT count(*) FROM jobs")
	var conflict *engine.UniqueConflictError
	if _, err := c.EnqueueMany(ctx, []engine.EnqueueItem{item(7, "", ""), item(8, "there", engine.ConflictReject)}); !errors.As(err, &conflict) || conflict.Holder != there.ID {
		t.Errorf("a conflict with what is there: %v", err)
	}
	// The holder goes with the batch: its id would lead nowhere.
	var invalid *engine.ValidationError
	if _, err := c.EnqueueMany(ctx, []engine.EnqueueItem{item(9, "new", ""), item(10, "", ""), item(11, "new", engine.ConflictReject)}); !errors.As(err, &invalid) ||
		!invalid.Has("items.2.unique.key", "conflict") {
		t.Errorf("a conflict inside the batch: %v", err)
	}
	if after := one[int](t, pool, "SELECT count(*) FROM jobs"); after != before {
		t.Errorf("refused batches left %d jobs", after-before)
	}
}

// TestE5UniqueBatchesAgainstSingles: batches with the same keys in other orders, and singles, at once.
func TestE5UniqueBatchesAgainstSingles(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	const keys = 20
	var mu sync.Mutex
	ids := map[string]map[engine.ID]int{}
	note := func(key string, d engine.Enqueued) {
		mu.Lock()
		defer mu.Unlock()
		if ids[key] == nil {
			ids[key] = map[engine.ID]int{}
		}
		if ids[key][d.ID] += 0; d.Unique == "" {
			ids[key][d.ID]++
		}
	}
	options := func(i int) engine.EnqueueOptions {
		return engine.EnqueueOptions{Unique: engine.Unique{Key: fmt.Sprint("k", i)}}
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			items := make([]engine.EnqueueItem, keys)
			for i := range items {
				items[i] = engine.EnqueueItem{Args: engine.RawArgs{Type: "plain"}, Options: options((i*7 + w*3) % keys)}
			}
			done, err := c.EnqueueMany(t.Context(), items)
			if err != nil {
				t.Error(err)
				return
			}
			for i, d := range done {
				note(items[i].Options.Unique.Key, d)
			}
		})
		wg.Go(func() {
			for i := range keys {
				o := options((keys - i + w) % keys)
				d, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, o)
				if err != nil {
					t.Error(err)
					return
				}
				note(o.Unique.Key, d)
			}
		})
	}
	wg.Wait()
	for key, answers := range ids {
		for id, created := range answers {
			if len(answers) != 1 || created != 1 {
				t.Errorf("%s: %d jobs, %s created %d times", key, len(answers), id, created)
			}
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM jobs"); n != keys {
		t.Errorf("%d jobs, want %d", n, keys)
	}
}

// TestE6UniqueWithOtherContentChangesNothing unless it says replace, and never makes another type's job of the holder.
func TestE6UniqueWithOtherContentChangesNothing(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	u := engine.Unique{Key: "k", Scope: engine.UniqueGlobal}
	first, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain", Payload: json.RawMessage(`{"a":1}`)}, engine.EnqueueOptions{Unique: u})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "other", Payload: json.RawMessage(`{"a":2}`)}, engine.EnqueueOptions{Queue: "q", Unique: u})
	if err != nil || second.ID != first.ID || second.Type != "plain" || second.Queue != "default" {
		t.Errorf("other content: %+v, %v", second, err)
	}
	u.OnConflict = engine.ConflictReplace
	var conflict *engine.UniqueConflictError
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "other"}, engine.EnqueueOptions{Unique: u}); !errors.As(err, &conflict) || conflict.Holder != first.ID {
		t.Errorf("replace by another type: %v", err)
	}
	if got := one[string](t, pool, "SELECT concat_ws(' ', type, payload, version) FROM jobs"); got != `plain {"a": 1} 1` {
		t.Errorf("the holder is %s", got)
	}
}

// TestF5ReplayTakesItsUniqueKeyAgain, or is refused with the name of who holds it; of a crowd one wins.
func TestF5ReplayTakesItsUniqueKeyAgain(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c, by := w.e.Client(), engine.Actor{Name: "test"}
	u := engine.Unique{Key: "k"}
	dead := w.add(t, "doomed", u, engine.EnqueueOptions{})
	reaches(t, w.pool, dead, "dead_letter")
	next := free(t, c, "doomed", u)
	var conflict *engine.UniqueConflictError
	if err := c.Replay(t.Context(), dead, by); !errors.As(err, &conflict) || conflict.Holder != next.ID || conflict.State != engine.StatePending {
		t.Errorf("replay while another holds the key: %v", err)
	}
	if s, n := stateOf(t, w.pool, dead), one[int](t, w.pool, "SELECT count(*) FROM operator_actions WHERE action = 'replay'"); s != "dead_letter" || n != 0 {
		t.Errorf("after a refused replay: %s, %d audit rows", s, n)
	}
	cancelled(t, c, next.ID)
	stop(t, w.e) // what is replayed waits from here on
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders := map[engine.ID]bool{}
	for i := range 16 {
		wg.Go(func() {
			if i%4 == 0 {
				if err := c.Replay(t.Context(), dead, by); err == nil {
					mu.Lock()
					defer mu.Unlock()
					holders[dead] = true
				}
				return
			}
			done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "doomed"}, engine.EnqueueOptions{Unique: u})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			holders[done.ID] = true
		})
	}
	wg.Wait()
	if n := one[int](t, w.pool, "SELECT count(*) FROM job_states WHERE type = 'doomed' AND state = 'pending'"); n != 1 || len(holders) != 1 {
		t.Errorf("%d jobs wait under one key; the answers named %v", n, holders)
	}
}

// TestReplaceKeepsAttemptsAndBackoff: what waits out its backoff is not brought forward by callers, however many, and what
// a worker has taken is not touched.
func TestReplaceKeepsAttemptsAndBackoff(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c := w.e.Client()
	u := engine.Unique{Key: "k"}
	id := w.add(t, "flaky", u, engine.EnqueueOptions{})
	reaches(t, w.pool, id, "failed")
	due := one[time.Time](t, w.pool, "SELECT run_at FROM job_scheduled WHERE job_id = $1", id)
	u.OnConflict = engine.ConflictReplace
	done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "flaky", Payload: json.RawMessage(`{"n":2}`)}, engine.EnqueueOptions{Unique: u})
	if err != nil || done.ID != id || done.State != engine.StateFailed || done.Attempt != 1 || !done.ScheduledAt.Equal(due) {
		t.Errorf("replace: %+v, %v, want it due at %s", done, err, due)
	}
	later := due.Add(time.Hour)
	if done, err = c.Enqueue(t.Context(), engine.RawArgs{Type: "flaky"}, engine.EnqueueOptions{Unique: u, ScheduledAt: later}); err != nil || !done.ScheduledAt.Equal(later) {
		t.Errorf("replace for later: %+v, %v, want it due at %s", done, err, later)
	}
	if got := one[string](t, w.pool, "SELECT concat_ws(' ', attempt, failed, run_at = $2) FROM job_scheduled WHERE job_id = $1", id, later); got != "1 t t" {
		t.Errorf("scheduled: %s", got)
	}

	// Brought forward: the job runs, with the new content.
	soon := engine.Unique{Key: "soon", OnConflict: engine.ConflictReplace}
	far := w.add(t, "plain", soon, engine.EnqueueOptions{Delay: time.Hour})
	if done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: soon}); err != nil || done.ID != far {
		t.Errorf("replace to run now: %+v, %v", done, err)
	}
	reaches(t, w.pool, far, "completed")

	// Held for want of a worker, and running.
	nobody := engine.Unique{Key: "nobody", OnConflict: engine.ConflictReplace}
	parked := w.add(t, "nobody", nobody, engine.EnqueueOptions{})
	if _, err := w.pool.Exec(t.Context(), `WITH r AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING *) INSERT INTO job_held (job_id, priority, attempt, crashes, queue, type, reason, hold_key)
		SELECT job_id, priority, attempt, crashes, queue, type, 'no_worker', type FROM r`, parked); err != nil {
		t.Fatal(err)
	}
	if done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "nobody"}, engine.EnqueueOptions{Unique: nobody, Queue: "elsewhere"}); err != nil || done.ID != parked || done.Queue != "elsewhere" {
		t.Errorf("replace of a held job: %+v, %v", done, err)
	}
	running := w.add(t, "slow", nobody, engine.EnqueueOptions{})
	<-w.running
	var conflict *engine.UniqueConflictError
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "slow"}, engine.EnqueueOptions{Unique: nobody}); !errors.As(err, &conflict) || conflict.Holder != running || conflict.State != engine.StateLeased {
		t.Errorf("replace of a running job: %v", err)
	}
	close(w.end)
	healthy(t, w.pool, w.e)
}

// TestUniqueAndIdempotencyKeyTogether: the idempotency key comes first and keeps the answer; what was refused is not kept.
func TestUniqueAndIdempotencyKeyTogether(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	add := func(key string, u engine.Unique) (engine.Enqueued, error) {
		return c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: key, Unique: u})
	}
	u := engine.Unique{Key: "u"}
	first, err := add("i1", u)
	if err != nil || first.Unique != "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := add("i1", u); err != nil || !again.Duplicate || again.ID != first.ID || again.Unique != "" {
		t.Errorf("the same call: %+v, %v", again, err)
	}
	second, err := add("i2", u)
	if err != nil || second.Duplicate || second.Unique != engine.UniqueHeld || second.ID != first.ID {
		t.Errorf("another call: %+v, %v", second, err)
	}
	cancelled(t, c, first.ID)
	if again, err := add("i2", u); err != nil || !again.Duplicate || again.ID != first.ID || again.State != engine.StateCancelled {
		t.Errorf("that call again, with the unique key free: %+v, %v, want its first answer", again, err)
	}
	third, err := add("i3", u)
	if err != nil || third.Unique != "" || third.ID == first.ID {
		t.Errorf("a new call: %+v, %v", third, err)
	}
	reject := engine.Unique{Key: "u", OnConflict: engine.ConflictReject}
	var conflict *engine.UniqueConflictError
	if _, err := add("i4", reject); !errors.As(err, &conflict) || conflict.Holder != third.ID {
		t.Errorf("reject: %v", err)
	}
	cancelled(t, c, third.ID)
	fourth, err := add("i4", reject)
	if err != nil || fourth.Duplicate || fourth.Unique != "" {
		t.Errorf("the refused call again: %+v, %v, want a new job", fourth, err)
	}
	for name, other := range map[string]engine.Unique{"key": {Key: "v", OnConflict: "reject"}, "scope": {Key: "u", Scope: "queue", OnConflict: "reject"},
		"states": {Key: "u", States: allStates, OnConflict: "reject"}, "window": {Key: "u", Window: time.Hour, OnConflict: "reject"}, "on_conflict": {Key: "u"}, "none": {}} {
		var reused *engine.KeyReusedError
		if _, err := add("i4", other); !errors.As(err, &reused) || reused.Holder != fourth.ID {
			t.Errorf("other %s under the same idempotency key: %v", name, err)
		}
	}
}

// TestAnOpenEnqueueKeepsNobodyWaiting: a producer that met a holder, and holds its transaction open, does not keep the
// holder from ending, nor the next from its key.
func TestAnOpenEnqueueKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c := w.e.Client()
	u := engine.Unique{Key: "k"}
	id := w.add(t, "slow", u, engine.EnqueueOptions{})
	<-w.running
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if done, err := c.EnqueueTx(t.Context(), tx, engine.RawArgs{Type: "slow"}, engine.EnqueueOptions{Unique: u}); err != nil || done.ID != id {
		t.Fatalf("%+v, %v", done, err)
	}
	close(w.end)
	within(t, 2*time.Second, "the holder has ended", func() bool { return stateOf(t, w.pool, id) == "completed" })
	began := time.Now()
	free(t, c, "slow", u)
	if d := time.Since(began); d > time.Second {
		t.Errorf("the next enqueue took %v", d)
	}
}

// TestSweepTakesKeysThatNobodyHolds, and no other: not of what waits, runs or has an open window, nor what a caller is
// taking just now.
func TestSweepTakesKeysThatNobodyHolds(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c := w.e.Client()
	waiting := []engine.UniqueState{engine.UniqueWaiting}
	for i := range 1200 { // more than one step
		if _, err := w.pool.Exec(t.Context(), "INSERT INTO job_unique_keys (key, job_id) VALUES (sha256($1::text::bytea), gen_random_uuid())", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	done := w.add(t, "plain", engine.Unique{Key: "done"}, engine.EnqueueOptions{})
	windowed := w.add(t, "plain", engine.Unique{Key: "windowed", Window: time.Hour}, engine.EnqueueOptions{})
	scheduled := w.add(t, "plain", engine.Unique{Key: "scheduled"}, engine.EnqueueOptions{Delay: time.Hour})
	running := w.add(t, "slow", engine.Unique{Key: "running", States: waiting}, engine.EnqueueOptions{})
	<-w.running
	reaches(t, w.pool, done, "completed")
	reaches(t, w.pool, windowed, "completed")
	taken := w.add(t, "plain", engine.Unique{Key: "taken"}, engine.EnqueueOptions{Delay: time.Hour})
	cancelled(t, c, taken)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.EnqueueTx(t.Context(), tx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: engine.Unique{Key: "taken"}})
	if err != nil || next.Unique != "" {
		t.Fatalf("%+v, %v", next, err)
	}
	within(t, 25*time.Second, "dead keys are gone", func() bool { return one[int](t, w.pool, "SELECT count(*) FROM job_unique_keys") == 4 })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := one[[]engine.ID](t, w.pool, "SELECT array_agg(job_id) FROM job_unique_keys")
	for _, id := range []engine.ID{windowed, scheduled, running, next.ID} {
		if !slices.Contains(left, id) {
			t.Errorf("the key of %s was swept: %v", id, left)
		}
	}
	close(w.end)
}
