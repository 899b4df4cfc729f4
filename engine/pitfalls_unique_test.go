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

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

var allStates = []engine.UniqueState{engine.UniqueWaiting, engine.UniqueRunning, engine.UniqueDead}

// held checks that an enqueue under the key is answered with this holder in this state, and refused when it asks for that.
func held(t *testing.T, c *engine.Client, jobType string, u engine.Unique, holder engine.ID, state engine.State) {
	t.Helper()
	done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: jobType}, engine.EnqueueOptions{Unique: u})
	if err != nil || done.Unique != engine.UniqueHeld || done.ID != holder || done.State != state || done.Duplicate {
		t.Errorf("enqueue while the holder is %s: %+v, %v", state, done, err)
	}
	u.OnConflict = engine.ConflictReject
	var conflict *engine.UniqueConflictError
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: jobType}, engine.EnqueueOptions{Unique: u}); !errors.As(err, &conflict) ||
		conflict.Holder != holder || conflict.State != state || conflict.Key != u.Key {
		t.Errorf("enqueue or reject while the holder is %s: %v", state, err)
	}
}

// free checks that an enqueue under the key makes a new job, and answers it.
func free(t *testing.T, c *engine.Client, jobType string, u engine.Unique) engine.Enqueued {
	t.Helper()
	done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: jobType}, engine.EnqueueOptions{Unique: u, Delay: time.Hour})
	if err != nil || done.Unique != "" || done.State != engine.StatePending || done.Version != 1 {
		t.Errorf("enqueue under a free key: %+v, %v", done, err)
	}
	return done
}

func cancelled(t *testing.T, c *engine.Client, id engine.ID) {
	t.Helper()
	if err := c.Cancel(t.Context(), id, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
}

// TestUniqueHoldsThroughEveryDoor: each door meets what another one added, returns it, is refused, and replaces it.
func TestUniqueHoldsThroughEveryDoor(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	for name, door := range doors(t, pool) {
		u := engine.Unique{Key: "key of " + name}
		add := func(n int, on engine.OnConflict, o engine.EnqueueOptions) (engine.Enqueued, error) {
			o.Unique = u
			o.Unique.OnConflict = on
			return door(engine.RawArgs{Type: "plain", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}, o)
		}
		first, err := add(1, engine.ConflictReject, engine.EnqueueOptions{Queue: "a", Tags: []string{"x"}})
		if err != nil || first.Unique != "" {
			t.Errorf("%s: %+v, %v", name, first, err)
			continue
		}
		second, err := add(2, "", engine.EnqueueOptions{Queue: "b"})
		if err != nil || second.ID != first.ID || second.Unique != engine.UniqueHeld || second.Queue != "a" || !second.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("%s, second: %+v, %v", name, second, err)
		}
		held(t, c, "plain", u, first.ID, engine.StatePending)
		at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		third, err := add(3, engine.ConflictReplace, engine.EnqueueOptions{Queue: "c", Priority: engine.PriorityHigh.Ptr(), ScheduledAt: at, MaxAttempts: 9,
			Timeout: time.Second, ExpiresAt: at.Add(time.Hour), CopiedFrom: first.ID})
		if err != nil || third.ID != first.ID || third.Unique != engine.UniqueReplaced || third.Version != 2 || third.Queue != "c" || !third.ScheduledAt.Equal(at) {
			t.Errorf("%s, replace: %+v, %v", name, third, err)
		}
		const stored = `SELECT concat_ws('|', j.payload, j.queue, j.priority, j.max_attempts, j.timeout_ms, j.expires_at = $2, j.scheduled_at = $3, j.tags,
			j.version, j.copied_from = j.id, s.run_at = $3, s.queue, s.priority, s.failed) FROM jobs j JOIN job_scheduled s ON s.job_id = j.id WHERE j.id = $1`
		if got, want := one[string](t, pool, stored, first.ID, at.Add(time.Hour), at), `{"n": 3}|c|3|9|1000|t|t|2|t|t|c|3|f`; got != want {
			t.Errorf("%s, replaced: %s, want %s", name, got, want)
		}
	}
	if jobs, keys := one[int](t, pool, "SELECT count(*) FROM jobs"), one[int](t, pool, "SELECT count(*) FROM job_unique_keys"); jobs != 5 || keys != 5 {
		t.Errorf("%d jobs, %d keys, want 5 of each", jobs, keys)
	}
}

// TestUniqueHoldsThroughTheSQLDoor, by function and by view, with the same rules and the holder's id as the detail.
func TestUniqueHoldsThroughTheSQLDoor(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	id := one[engine.ID](t, pool, `SELECT enqueue_job(type => 'plain', unique_key => 'k', copied_from => '0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10')`)
	held(t, c, "plain", engine.Unique{Key: "k"}, id, engine.StatePending)
	for _, sql := range []string{"SELECT enqueue_job(type => 'plain', unique_key => 'k')", "INSERT INTO job_inbox (type, unique_key) VALUES ('plain', 'k') RETURNING id",
		`SELECT enqueue_job(type => 'plain', payload => '{"n":2}', unique_key => 'k', on_conflict => 'replace')`,
		`INSERT INTO job_inbox (type, payload, unique_key, on_conflict, unique_scope, unique_states) VALUES ('plain', '{"n":3}', 'k', 'replace', 'type', '{waiting,running}') RETURNING id`} {
		if again := one[engine.ID](t, pool, sql); again != id {
			t.Errorf("%s answered %s, want %s", sql, again, id)
		}
	}
	if got := one[string](t, pool, "SELECT concat_ws(' ', payload, version) FROM jobs"); got != `{"n": 3} 3` {
		t.Errorf("replaced: %s", got)
	}
	var pg *pgconn.PgError
	if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 'plain', unique_key => 'k', on_conflict => 'reject')"); !errors.As(err, &pg) ||
		pg.Code != "23505" || pg.Detail != id.String() || pg.Message != "unique_key: held by job "+id.String()+", which is pending" {
		t.Errorf("reject: %+v", err)
	}
	for call, want := range map[string]string{
		"unique_key => ''": "unique_key", "unique_key => repeat('x', 256)": "unique_key", "unique_key => E'a\\nb'": "unique_key",
		"unique_key => 'x', unique_scope => 'all'": "unique_scope", "unique_key => 'x', unique_scope => NULL": "unique_scope",
		"unique_key => 'x', unique_states => '{running}'": "unique_states", "unique_key => 'x', unique_states => '{}'": "unique_states",
		"unique_key => 'x', unique_states => '{waiting,dead}'": "unique_states", "unique_key => 'x', unique_window => '999 ms'": "unique_window",
		"unique_key => 'x', unique_window => '366 days'": "unique_window", "unique_key => 'x', on_conflict => 'ignore'": "on_conflict",
		"unique_window => '1 hour'": "unique_key", "on_conflict => 'reject'": "unique_key"} {
		if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 't', "+call+")"); !errors.As(err, &pg) || pg.Code != "23514" || !slices.Contains([]string{pg.Message[:len(want)]}, want) {
			t.Errorf("%s: %v, want a refusal of %s", call, err, want)
		}
	}
	for _, call := range []string{"unique_key => repeat('é', 255)", "unique_key => 'x', unique_window => '1 s'", "unique_key => 'y', unique_window => '365 days'",
		"unique_key => 'z', unique_states => '{dead,waiting,running,waiting}'"} {
		if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 't', "+call+")"); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestUniqueOptionsAreChecked at their limits, with the field that is wrong.
func TestUniqueOptionsAreChecked(t *testing.T) {
	t.Parallel()
	c := newClient(t, dbtest.New(t))
	long := func(n int) string { return string(slices.Repeat([]rune{'é'}, n)) }
	for name, x := range map[string]struct {
		u           engine.Unique
		field, code string
	}{
		"no key":          {engine.Unique{Scope: engine.UniqueGlobal}, "unique.key", "required"},
		"window alone":    {engine.Unique{Window: time.Hour}, "unique.key", "required"},
		"long key":        {engine.Unique{Key: long(256)}, "unique.key", "too-long"},
		"control":         {engine.Unique{Key: "a\x00b"}, "unique.key", "invalid"},
		"scope":           {engine.Unique{Key: "k", Scope: "all"}, "unique.scope", "invalid"},
		"gap":             {engine.Unique{Key: "k", States: []engine.UniqueState{engine.UniqueWaiting, engine.UniqueDead}}, "unique.states", "invalid"},
		"running alone":   {engine.Unique{Key: "k", States: []engine.UniqueState{engine.UniqueRunning}}, "unique.states", "invalid"},
		"no state":        {engine.Unique{Key: "k", States: []engine.UniqueState{"completed"}}, "unique.states", "invalid"},
		"short window":    {engine.Unique{Key: "k", Window: time.Second - 1}, "unique.window_seconds", "out-of-range"},
		"negative window": {engine.Unique{Key: "k", Window: -time.Hour}, "unique.window_seconds", "out-of-range"},
		"long window":     {engine.Unique{Key: "k", Window: 365*24*time.Hour + 1}, "unique.window_seconds", "out-of-range"},
		"on_conflict":     {engine.Unique{Key: "k", OnConflict: "ignore"}, "unique.on_conflict", "invalid"},
	} {
		var invalid *engine.ValidationError
		if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: x.u}); !errors.As(err, &invalid) || !invalid.Has(x.field, x.code) {
			t.Errorf("%s: %v, want %s %s", name, err, x.field, x.code)
		}
	}
	for i, u := range []engine.Unique{{Key: long(255)}, {Key: "a", Window: time.Second}, {Key: "b", Window: 365 * 24 * time.Hour},
		{Key: "c", States: []engine.UniqueState{engine.UniqueDead, engine.UniqueRunning, engine.UniqueWaiting, engine.UniqueWaiting}}} {
		if done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: u}); err != nil || done.Unique != "" {
			t.Errorf("at the limit, %d: %+v, %v", i, done, err)
		}
	}
}

// TestE1UniqueNobodyMeetsSomethingRolledBack: the second caller waits for the first one's end, and is told of nothing that
// does not exist.
func TestE1UniqueNobodyMeetsSomethingRolledBack(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	for _, commit := range []bool{false, true} {
		o := engine.EnqueueOptions{Unique: engine.Unique{Key: fmt.Sprint("e1 ", commit)}}
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		first, err := c.EnqueueTx(ctx, tx, engine.RawArgs{Type: "plain"}, o)
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan engine.Enqueued, 1)
		go func() {
			done, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, o)
			if err != nil {
				t.Error(err)
			}
			answer <- done
		}()
		select {
		case d := <-answer:
			t.Fatalf("answered %+v while the first was open", d)
		case <-time.After(300 * time.Millisecond):
		}
		if err := map[bool]func(context.Context) error{true: tx.Commit, false: tx.Rollback}[commit](ctx); err != nil {
			t.Fatal(err)
		}
		second := <-answer
		if (second.Unique == engine.UniqueHeld) != commit || (second.ID == first.ID) != commit {
			t.Errorf("first committed %v: second is %+v, first %s", commit, second, first.ID)
		}
		if n := one[int](t, pool, "SELECT count(*) FROM jobs WHERE id = ANY($1::uuid[])", []engine.ID{first.ID, second.ID}); n != 1 {
			t.Errorf("%d jobs", n)
		}
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	o := engine.EnqueueOptions{Unique: engine.Unique{Key: "open"}, IdempotencyKey: "not kept"}
	if _, err := c.EnqueueTx(ctx, tx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: o.Unique}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, o); !errors.Is(err, engine.ErrUniqueInFlight) {
		t.Errorf("err = %v, want ErrUniqueInFlight", err)
	}
	if d := time.Since(began); d < 1900*time.Millisecond || d > 4*time.Second {
		t.Errorf("answered after %v, want about 2 s", d)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if done, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, o); err != nil || done.Duplicate || done.Unique != "" {
		t.Errorf("after that: %+v, %v, want a new job", done, err)
	}
}

// TestE2UniqueManyCallersWithOneKey: one creation, all others are told its id.
func TestE2UniqueManyCallersWithOneKey(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	var wg sync.WaitGroup
	answers := make([]engine.Enqueued, 64)
	for i := range answers {
		wg.Go(func() {
			var err error
			if answers[i], err = c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: engine.Unique{Key: "one"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	created := 0
	for _, a := range answers {
		if a.Unique == "" {
			created++
		}
		if a.ID != answers[0].ID || a.State != engine.StatePending {
			t.Errorf("answers %+v and %+v", a, answers[0])
		}
	}
	if created != 1 || one[int](t, pool, "SELECT count(*) FROM jobs") != 1 {
		t.Errorf("%d of 64 callers created the job", created)
	}
}

// uniqueWorld has a job of each kind of end under a key of its own.
type uniqueWorld struct {
	pool    *pgxpool.Pool
	e       *engine.Engine
	running chan struct{}
	end     chan struct{}
}

func newUniqueWorld(t *testing.T) *uniqueWorld {
	w := &uniqueWorld{pool: dbtest.New(t), running: make(chan struct{}, 10), end: make(chan struct{})}
	ws := handlers(map[string]handler{
		"doomed": func(context.Context, *work) error { return engine.Permanent(errors.New("no")) },
		"flaky":  func(context.Context, *work) error { return engine.RetryAfter(errors.New("later"), time.Hour) },
		"slow":   func(context.Context, *work) error { w.running <- struct{}{}; <-w.end; return nil },
	})
	w.e = start(t, w.pool, hasty(ws))
	return w
}

func (w *uniqueWorld) add(t *testing.T, jobType string, u engine.Unique, o engine.EnqueueOptions) engine.ID {
	t.Helper()
	o.Unique = u
	done, err := w.e.Client().Enqueue(t.Context(), engine.RawArgs{Type: jobType}, o)
	if err != nil || done.Unique != "" {
		t.Fatalf("enqueue %s: %+v, %v", jobType, done, err)
	}
	return done.ID
}

// TestE3UniqueKeyIsFreeByTheEndOfItsJob, state by state, for each coverage.
func TestE3UniqueKeyIsFreeByTheEndOfItsJob(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c := w.e.Client()
	for last := range allStates {
		u := func(name string) engine.Unique {
			return engine.Unique{Key: fmt.Sprint(name, last), States: allStates[:last+1]}
		}
		scheduled := w.add(t, "plain", u("scheduled"), engine.EnqueueOptions{Delay: time.Hour})
		held(t, c, "plain", u("scheduled"), scheduled, engine.StatePending)
		cancelled(t, c, scheduled)
		free(t, c, "plain", u("scheduled"))

		flaky := w.add(t, "flaky", u("flaky"), engine.EnqueueOptions{})
		reaches(t, w.pool, flaky, "failed")
		held(t, c, "flaky", u("flaky"), flaky, engine.StateFailed)
		cancelled(t, c, flaky)

		nobody := w.add(t, "nobody", u("nobody"), engine.EnqueueOptions{})
		held(t, c, "nobody", u("nobody"), nobody, engine.StatePending)

		done := w.add(t, "plain", u("done"), engine.EnqueueOptions{})
		reaches(t, w.pool, done, "completed")
		free(t, c, "plain", u("done"))

		slow := w.add(t, "slow", u("slow"), engine.EnqueueOptions{})
		<-w.running
		if last >= 1 {
			held(t, c, "slow", u("slow"), slow, engine.StateLeased)
		} else {
			free(t, c, "slow", u("slow"))
		}
	}
	close(w.end)
	healthy(t, w.pool, w.e)
}

// TestE4UniqueKeyOfADeadJob: by default it is free, so that a recurring job is not blocked by one dead run; where dead is
// covered the answer names the dead holder, and to discard it frees the key.
func TestE4UniqueKeyOfADeadJob(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c := w.e.Client()
	recurring := engine.Unique{Key: "recurring"}
	for range 3 {
		reaches(t, w.pool, w.add(t, "doomed", recurring, engine.EnqueueOptions{}), "dead_letter")
	}
	covered := engine.Unique{Key: "covered", States: allStates}
	id := w.add(t, "doomed", covered, engine.EnqueueOptions{})
	reaches(t, w.pool, id, "dead_letter")
	held(t, c, "doomed", covered, id, engine.StateDeadLetter)
	covered.OnConflict = engine.ConflictReplace
	var conflict *engine.UniqueConflictError
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "doomed"}, engine.EnqueueOptions{Unique: covered}); !errors.As(err, &conflict) || conflict.State != engine.StateDeadLetter {
		t.Errorf("replace of a dead holder: %v", err)
	}
	if err := c.Discard(t.Context(), id, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	next := free(t, c, "doomed", engine.Unique{Key: "covered", States: allStates})
	if err := c.Restore(t.Context(), id, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	held(t, c, "doomed", engine.Unique{Key: "covered", States: allStates}, next.ID, engine.StatePending)
}

// TestUniqueWindowOutlivesTheJob: from the enqueue on, whatever becomes of it, and retention keeps the holder as long.
func TestUniqueWindowOutlivesTheJob(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c := w.e.Client()
	u := engine.Unique{Key: "hourly", Window: time.Hour}
	began := time.Now()
	id := w.add(t, "plain", u, engine.EnqueueOptions{})
	reaches(t, w.pool, id, "completed")
	held(t, c, "plain", u, id, engine.StateCompleted)
	u.OnConflict = engine.ConflictReplace
	var conflict *engine.UniqueConflictError
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: u}); !errors.As(err, &conflict) ||
		conflict.Until.Before(began.Add(59*time.Minute)) || conflict.Until.After(time.Now().Add(61*time.Minute)) {
		t.Errorf("replace of one that has ended: %v, until %v", err, conflict)
	}
	if _, err := w.pool.Exec(t.Context(), "UPDATE job_unique_keys SET until = now() - interval '1 s'"); err != nil {
		t.Fatal(err)
	}
	free(t, c, "plain", u)
}

// TestUniqueScopesAreApart: the same key means something else in another type, queue or scope.
func TestUniqueScopesAreApart(t *testing.T) {
	t.Parallel()
	c := newClient(t, dbtest.New(t))
	seen := map[engine.ID]bool{}
	add := func(jobType, queue string, scope engine.UniqueScope) engine.Enqueued {
		t.Helper()
		done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: jobType}, engine.EnqueueOptions{Queue: queue, Unique: engine.Unique{Key: "k", Scope: scope}})
		if err != nil {
			t.Fatal(err)
		}
		seen[done.ID] = true
		return done
	}
	for _, x := range []struct {
		jobType, queue string
		scope          engine.UniqueScope
		jobs           int
	}{
		{"a", "q", "", 1}, {"a", "r", engine.UniqueByType, 1}, {"b", "q", engine.UniqueByType, 2},
		{"a", "q", engine.UniqueByQueue, 3}, {"b", "q", engine.UniqueByQueue, 3}, {"a", "r", engine.UniqueByQueue, 4},
		{"a", "q", engine.UniqueGlobal, 5}, {"b", "r", engine.UniqueGlobal, 5},
		// A type that has the name of a queue, and another form and case of the key, are something else.
		{"q", "x", engine.UniqueByType, 6},
	} {
		if done := add(x.jobType, x.queue, x.scope); len(seen) != x.jobs {
			t.Errorf("%+v: %+v, %d jobs", x, done, len(seen))
		}
	}
	if done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "a"}, engine.EnqueueOptions{Unique: engine.Unique{Key: "K"}}); err != nil || done.Unique != "" {
		t.Errorf("another case: %+v, %v", done, err)
	}
}
