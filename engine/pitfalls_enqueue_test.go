package engine_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

func newClient(t *testing.T, pool *pgxpool.Pool) *engine.Client {
	t.Helper()
	c, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func openSQL(t *testing.T, pool *pgxpool.Pool) *sql.DB {
	t.Helper()
	d, err := sql.Open("pgx", dbtest.URL(t, pool))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// doors are the ways from Go and SQL into the database; each enqueues one job of type plain and answers its id.
func doors(t *testing.T, pool *pgxpool.Pool) map[string]func(engine.RawArgs, engine.EnqueueOptions) (engine.Enqueued, error) {
	t.Helper()
	c, d := newClient(t, pool), openSQL(t, pool)
	ctx := t.Context()
	return map[string]func(engine.RawArgs, engine.EnqueueOptions) (engine.Enqueued, error){
		"Enqueue": func(a engine.RawArgs, o engine.EnqueueOptions) (engine.Enqueued, error) { return c.Enqueue(ctx, a, o) },
		"EnqueueTx": func(a engine.RawArgs, o engine.EnqueueOptions) (engine.Enqueued, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return engine.Enqueued{}, err
			}
			done, err := c.EnqueueTx(ctx, tx, a, o)
			return done, errors.Join(err, tx.Commit(ctx))
		},
		"EnqueueSQLTx": func(a engine.RawArgs, o engine.EnqueueOptions) (engine.Enqueued, error) {
			tx, err := d.BeginTx(ctx, nil)
			if err != nil {
				return engine.Enqueued{}, err
			}
			done, err := c.EnqueueSQLTx(ctx, tx, a, o)
			return done, errors.Join(err, tx.Commit())
		},
		"EnqueueMany": func(a engine.RawArgs, o engine.EnqueueOptions) (engine.Enqueued, error) {
			done, err := c.EnqueueMany(ctx, []engine.EnqueueItem{{Args: a, Options: o}})
			if err != nil {
				return engine.Enqueued{}, err
			}
			return done[0], nil
		},
		"EnqueueManyTx": func(a engine.RawArgs, o engine.EnqueueOptions) (engine.Enqueued, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return engine.Enqueued{}, err
			}
			done, err := c.EnqueueManyTx(ctx, tx, []engine.EnqueueItem{{Args: a, Options: o}})
			if err := errors.Join(err, tx.Commit(ctx)); err != nil {
				return engine.Enqueued{}, err
			}
			return done[0], nil
		},
	}
}

// TestA6EveryOptionIsKeptByEveryDoor: stored, in line at the right place, and still there after a replay.
func TestA6EveryOptionIsKeptByEveryDoor(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	o := engine.EnqueueOptions{Queue: "mail", Priority: engine.PriorityHigh.Ptr(), ScheduledAt: at, MaxAttempts: 7, Timeout: 1500 * time.Millisecond,
		ExpiresAt: at.Add(time.Hour), Tags: []string{"a", `b "quoted" \ {c}`, "d,e"}, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", CopiedFrom: engine.ID{1, 2, 3}}
	const stored = `SELECT concat_ws('|', j.type, j.queue, j.priority, j.max_attempts, j.timeout_ms, j.expires_at = $2, j.tags, j.traceparent, j.copied_from = '01020300-0000-0000-0000-000000000000', j.payload,
		s.run_at = $3, s.priority, s.queue, s.type) FROM jobs j JOIN job_scheduled s ON s.job_id = j.id WHERE j.id = $1`
	want := `plain|mail|3|7|1500|t|{a,"b \"quoted\" \\ {c}","d,e"}|` + o.Traceparent + `|t|{"n": 1}|t|3|mail|plain`
	check := func(door string, id engine.ID) {
		t.Helper()
		if got := one[string](t, pool, stored, id, o.ExpiresAt, at); got != want {
			t.Errorf("%s stored\n%s, want\n%s", door, got, want)
		}
	}
	for _, keyed := range []bool{false, true} {
		for name, door := range doors(t, pool) {
			o := o
			if keyed {
				o.IdempotencyKey = "key of " + name
			}
			done, err := door(engine.RawArgs{Type: "plain", Payload: json.RawMessage(`{"n":1}`)}, o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if !done.ScheduledAt.Equal(at) || done.Queue != "mail" || done.Priority != 3 || done.MaxAttempts != 7 || done.State != engine.StatePending || done.Duplicate {
				t.Errorf("%s answered %+v", name, done)
			}
			check(name, done.ID)
			if !keyed {
				continue
			}
			again, err := door(engine.RawArgs{Type: "plain", Payload: json.RawMessage(` { "n" : 1 } `)}, o)
			if err != nil || !again.Duplicate || again.ID != done.ID || !again.ScheduledAt.Equal(at) || !again.CreatedAt.Equal(done.CreatedAt) {
				t.Errorf("%s again: %+v, %v, want the first answer %+v", name, again, err, done)
			}
		}
	}
	id := one[engine.ID](t, pool, `SELECT enqueue_job(type => 'plain', payload => '{"n":1}', queue => 'mail', priority => 3, scheduled_at => $1, max_attempts => 7,
		timeout => '1500 ms', expires_at => $2, tags => $3, traceparent => $4, copied_from => $5)`, at, o.ExpiresAt, o.Tags, o.Traceparent, o.CopiedFrom)
	check("enqueue_job", id)
	id = one[engine.ID](t, pool, `INSERT INTO job_inbox (type, payload, queue, priority, scheduled_at, max_attempts, timeout, expires_at, tags, traceparent, copied_from)
		VALUES ('plain', '{"n":1}', 'mail', 3, $1, 7, '1500 ms', $2, $3, $4, $5) RETURNING id`, at, o.ExpiresAt, o.Tags, o.Traceparent, o.CopiedFrom)
	check("job_inbox", id)
}

// TestEnqueueLivesAndDiesWithTheCallersTransaction, through both kinds of transaction, with a key and without.
func TestEnqueueLivesAndDiesWithTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, d, ctx := newClient(t, pool), openSQL(t, pool), t.Context()
	for _, key := range []string{"", "k"} {
		for _, commit := range []bool{true, false} {
			o := engine.EnqueueOptions{IdempotencyKey: key}
			if key != "" {
				o.IdempotencyKey = fmt.Sprint(key, commit)
			}
			tx, err := pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			viaPgx, err := c.EnqueueTx(ctx, tx, engine.RawArgs{Type: "plain"}, o)
			if err != nil {
				t.Fatal(err)
			}
			end := map[bool]func(context.Context) error{true: tx.Commit, false: tx.Rollback}[commit]
			if err := end(ctx); err != nil {
				t.Fatal(err)
			}
			if key != "" {
				o.IdempotencyKey += " sql"
			}
			std, err := d.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			viaSQL, err := c.EnqueueSQLTx(ctx, std, engine.RawArgs{Type: "plain"}, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := map[bool]func() error{true: std.Commit, false: std.Rollback}[commit](); err != nil {
				t.Fatal(err)
			}
			for _, id := range []engine.ID{viaPgx.ID, viaSQL.ID} {
				if n := one[int](t, pool, "SELECT count(*) FROM job_states WHERE id = $1 AND state = 'pending'", id); (n == 1) != commit {
					t.Errorf("committed %v, key %q: %d jobs", commit, key, n)
				}
			}
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM idempotency_keys"); n != 2 {
		t.Errorf("%d keys, want those of the two commits", n)
	}
}

// TestARefusedEnqueueLeavesTheTransactionAlive: only the database's own errors abort it.
func TestARefusedEnqueueLeavesTheTransactionAlive(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	first, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var invalid *engine.ValidationError
	if _, err := c.EnqueueTx(ctx, tx, engine.RawArgs{Type: "a b"}, engine.EnqueueOptions{}); !errors.As(err, &invalid) {
		t.Errorf("bad type: %v", err)
	}
	var reused *engine.KeyReusedError
	if _, err := c.EnqueueTx(ctx, tx, engine.RawArgs{Type: "other"}, engine.EnqueueOptions{IdempotencyKey: "k"}); !errors.As(err, &reused) || reused.Holder != first.ID {
		t.Errorf("key used before: %v", err)
	}
	done, err := c.EnqueueTx(ctx, tx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{})
	if err := errors.Join(err, tx.Commit(ctx)); err != nil {
		t.Fatal(err)
	}
	if s := stateOf(t, pool, done.ID); s != "pending" {
		t.Errorf("state = %s", s)
	}
}

func TestEnqueueManyAnswersInOrderAndKnowsItsOwnKeys(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	single, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: "there"})
	if err != nil {
		t.Fatal(err)
	}
	item := func(n int, o engine.EnqueueOptions) engine.EnqueueItem {
		return engine.EnqueueItem{Args: engine.RawArgs{Type: "plain", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}, Options: o}
	}
	items := []engine.EnqueueItem{item(0, engine.EnqueueOptions{}), item(1, engine.EnqueueOptions{IdempotencyKey: "twin"}), item(2, engine.EnqueueOptions{Delay: time.Hour}),
		item(1, engine.EnqueueOptions{IdempotencyKey: "twin"}), {Args: engine.RawArgs{Type: "plain"}, Options: engine.EnqueueOptions{IdempotencyKey: "there"}},
		item(5, engine.EnqueueOptions{IdempotencyKey: "a"}), item(6, engine.EnqueueOptions{Priority: engine.PriorityCritical.Ptr()})}
	done, err := c.EnqueueMany(ctx, items)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range done {
		n := map[int]int{3: 1}[i]
		if n == 0 {
			n = i
		}
		if got := one[string](t, pool, "SELECT coalesce(payload->>'n', 'none') FROM jobs WHERE id = $1", d.ID); i != 4 && got != fmt.Sprint(n) {
			t.Errorf("answer %d is the job with n = %s, want %d", i, got, n)
		}
		if want := i == 3 || i == 4; d.Duplicate != want {
			t.Errorf("answer %d: duplicate %v, want %v", i, d.Duplicate, want)
		}
	}
	if done[1].ID != done[3].ID || done[4].ID != single.ID {
		t.Error("repeated keys got other jobs")
	}
	if s := one[string](t, pool, "SELECT string_agg(DISTINCT state, ' ') FROM job_states"); s != "pending" {
		t.Errorf("states: %s", s)
	}
	// All or none.
	before := one[int](t, pool, "SELECT count(*) FROM jobs")
	var invalid *engine.ValidationError
	if _, err := c.EnqueueMany(ctx, []engine.EnqueueItem{item(7, engine.EnqueueOptions{}), item(8, engine.EnqueueOptions{Priority: engine.Priority(6).Ptr()})}); !errors.As(err, &invalid) ||
		!invalid.Has("items.1.priority", "out-of-range") {
		t.Errorf("a bad item: %v", err)
	}
	var reused *engine.KeyReusedError
	if _, err := c.EnqueueMany(ctx, []engine.EnqueueItem{item(9, engine.EnqueueOptions{}), item(10, engine.EnqueueOptions{IdempotencyKey: "a"})}); !errors.As(err, &reused) || reused.Holder != done[5].ID {
		t.Errorf("a key with other content: %v", err)
	}
	if after := one[int](t, pool, "SELECT count(*) FROM jobs"); after != before {
		t.Errorf("refused batches left %d jobs", after-before)
	}
}

// TestE1NobodyIsADuplicateOfSomethingRolledBack: the second caller waits for the first one's end.
func TestE1NobodyIsADuplicateOfSomethingRolledBack(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	for _, commit := range []bool{false, true} {
		o := engine.EnqueueOptions{IdempotencyKey: fmt.Sprint("e1 ", commit)}
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
		end := map[bool]func(context.Context) error{true: tx.Commit, false: tx.Rollback}[commit]
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		second := <-answer
		if second.Duplicate != commit || (second.ID == first.ID) != commit {
			t.Errorf("first committed %v: second is %+v, first %s", commit, second, first.ID)
		}
		if n := one[int](t, pool, "SELECT count(*) FROM jobs WHERE id = ANY($1::uuid[])", []engine.ID{first.ID, second.ID}); n != 1 {
			t.Errorf("%d jobs", n)
		}
	}
	// A first one that does not end: a clear answer after two seconds.
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.EnqueueTx(ctx, tx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: "open"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: "open"}); !errors.Is(err, engine.ErrKeyInFlight) {
		t.Errorf("err = %v, want ErrKeyInFlight", err)
	}
	if d := time.Since(began); d < 1900*time.Millisecond || d > 4*time.Second {
		t.Errorf("answered after %v, want about 2 s", d)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestE2ManyCallersWithOneKey(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	var wg sync.WaitGroup
	answers := make([]engine.Enqueued, 64)
	for i := range answers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if answers[i], err = c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: "one"}); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	created := 0
	for _, a := range answers {
		if !a.Duplicate {
			created++
		}
		if a.ID != answers[0].ID {
			t.Errorf("ids %s and %s", a.ID, answers[0].ID)
		}
	}
	if created != 1 || one[int](t, pool, "SELECT count(*) FROM jobs") != 1 {
		t.Errorf("%d of 64 callers created the job", created)
	}
}

// TestE3AKeyIsHeldAsLongAsItsJobExists: whatever became of the job, until retention removes it or the key's time is over.
func TestE3AKeyIsHeldAsLongAsItsJobExists(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"doomed": func(context.Context, *work) error { return engine.Permanent(errors.New("no")) }})
	e := start(t, pool, hasty(ws))
	keyed := func(jobType string, o engine.EnqueueOptions) engine.Enqueued {
		t.Helper()
		o.IdempotencyKey = "key of " + jobType + fmt.Sprint(o.Delay)
		done, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: jobType}, o)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	later := engine.EnqueueOptions{Delay: time.Hour}
	completed, dead, cancelled := keyed("plain", engine.EnqueueOptions{}), keyed("doomed", engine.EnqueueOptions{}), keyed("plain", later)
	reaches(t, pool, completed.ID, "completed")
	reaches(t, pool, dead.ID, "dead_letter")
	if err := e.Client().Cancel(t.Context(), cancelled.ID, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, again := range []engine.Enqueued{keyed("plain", engine.EnqueueOptions{}), keyed("doomed", engine.EnqueueOptions{}), keyed("plain", later)} {
		if !again.Duplicate || again.ID != completed.ID && again.ID != dead.ID && again.ID != cancelled.ID {
			t.Errorf("again: %+v, want the first", again)
		}
	}
	// Pruned: the key is held by nothing, so it is free.
	if _, err := pool.Exec(t.Context(), "DELETE FROM job_executions WHERE job_id = $1", completed.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "DELETE FROM jobs WHERE id = $1", completed.ID); err != nil {
		t.Fatal(err)
	}
	if again := keyed("plain", engine.EnqueueOptions{}); again.Duplicate || again.ID == completed.ID {
		t.Errorf("after pruning: %+v, want a new job", again)
	}
	// Its time is over.
	if _, err := pool.Exec(t.Context(), "UPDATE idempotency_keys SET expires_at = now()"); err != nil {
		t.Fatal(err)
	}
	if again := keyed("doomed", engine.EnqueueOptions{}); again.Duplicate {
		t.Errorf("after its time: %+v, want a new job", again)
	}
}

// TestE6TheSameKeyWithOtherContentIsRefused, and with the same content written otherwise is not.
func TestE6TheSameKeyWithOtherContentIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	add := func(a engine.RawArgs, o engine.EnqueueOptions) (engine.Enqueued, error) {
		o.IdempotencyKey = "Ärger"
		return c.Enqueue(t.Context(), a, o)
	}
	base := engine.RawArgs{Type: "plain", Payload: json.RawMessage(`{"a":1,"b":[1.0,{"c":"d"}]}`)}
	first, err := add(base, engine.EnqueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		args engine.RawArgs
		o    engine.EnqueueOptions
	}{
		"type":     {engine.RawArgs{Type: "other", Payload: base.Payload}, engine.EnqueueOptions{}},
		"queue":    {base, engine.EnqueueOptions{Queue: "other"}},
		"payload":  {engine.RawArgs{Type: "plain", Payload: json.RawMessage(`{"a":1,"b":[1.0,{"c":"D"}]}`)}, engine.EnqueueOptions{}},
		"priority": {base, engine.EnqueueOptions{Priority: engine.PriorityHigh.Ptr()}},
		"delay":    {base, engine.EnqueueOptions{Delay: time.Minute}},
		"tags":     {base, engine.EnqueueOptions{Tags: []string{"x"}}},
	} {
		var reused *engine.KeyReusedError
		if _, err := add(x.args, x.o); !errors.As(err, &reused) || reused.Holder != first.ID || reused.Key != "Ärger" {
			t.Errorf("other %s: %v, want a KeyReusedError that names %s", name, err, first.ID)
		}
	}
	same, err := add(engine.RawArgs{Type: "plain", Payload: json.RawMessage(`{ "b": [1.0, {"c": "\u0064"}], "a": 1 }`)}, engine.EnqueueOptions{Queue: "default", Priority: engine.PriorityDefault.Ptr()})
	if err != nil || !same.Duplicate || same.ID != first.ID {
		t.Errorf("the same content in other words: %+v, %v", same, err)
	}
	for _, key := range []string{"ärger", "A\u0308rger"} { // keys are compared byte by byte
		done, err := c.Enqueue(t.Context(), base, engine.EnqueueOptions{IdempotencyKey: key})
		if err != nil || done.Duplicate {
			t.Errorf("key %q: %+v, %v, want a new job", key, done, err)
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM jobs"); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
}
