package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

var ann = engine.Actor{Name: "ann", Source: "api", Reason: "wrong customer"}

// listener is a handler that runs until its context ends, and passes on why.
func listener(running *atomic.Int64, causes chan<- error, answer func(context.Context) error) handler {
	return func(ctx context.Context, _ *work) error {
		running.Add(1)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return answer(ctx)
	}
}

// calm is an engine's pace at which only a hint makes a heartbeat come soon.
func calm(ws *engine.Workers) engine.Config {
	c := hasty(ws)
	c.LeaseDuration, c.HeartbeatInterval = 90*time.Second, 30*time.Second
	return c
}

func TestStopRequestEndsTheHandlersContext(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var running atomic.Int64
	causes := make(chan error, 1)
	e := start(t, pool, calm(handlers(map[string]handler{"long": listener(&running, causes, func(ctx context.Context) error { return ctx.Err() })})))
	eventually(t, "it listens", func() bool { return e.Status().Listening })
	id := enqueue(t, e, "long", engine.EnqueueOptions{})
	eventually(t, "it runs", func() bool { return running.Load() == 1 })
	began := time.Now()
	if err := e.Client().RequestStop(t.Context(), id, ann); err != nil {
		t.Fatal(err)
	}
	select {
	case cause := <-causes:
		t.Logf("the context ended %v after the request", time.Since(began).Round(time.Millisecond))
		if !errors.Is(cause, engine.ErrStopRequested) {
			t.Errorf("cause = %v, want %v", cause, engine.ErrStopRequested)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the context did not end in 5 s, with a heartbeat every 30 s")
	}
	reaches(t, pool, id, "cancelled")
	if got := outcomes(t, pool, id); got != "cancelled" {
		t.Errorf("runs = %s", got)
	}
	if got := one[string](t, pool, "SELECT concat_ws('|', error_class, error, fingerprint) FROM job_executions WHERE job_id = $1", id); got != "stopped|stopped as asked" {
		t.Errorf("the run keeps %s", got)
	}
	if got := one[string](t, pool, "SELECT concat_ws(' ', actor, source, action, reason, after) FROM operator_actions WHERE target = $1", id.String()); got !=
		`ann api stop wrong customer {"state": "stop_requested"}` {
		t.Errorf("audit row = %s", got)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM job_stop_requests"); n != 0 {
		t.Errorf("%d requests are left over", n)
	}
	healthy(t, pool, e)
}

// TestStopComesWithTheHeartbeat: the notification is a hint, a heartbeat carries the request.
func TestStopComesWithTheHeartbeat(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var running atomic.Int64
	causes := make(chan error, 1)
	e := start(t, pool, hasty(handlers(map[string]handler{"long": listener(&running, causes, func(ctx context.Context) error { return ctx.Err() })})))
	id := enqueue(t, e, "long", engine.EnqueueOptions{})
	eventually(t, "it runs", func() bool { return running.Load() == 1 })
	mark(t, pool, id)
	reaches(t, pool, id, "cancelled")
	if cause := <-causes; !errors.Is(cause, engine.ErrStopRequested) {
		t.Errorf("cause = %v", cause)
	}
}

// mark is a stop request without its notification.
func mark(t *testing.T, pool *pgxpool.Pool, id engine.ID) {
	t.Helper()
	if n := one[int](t, pool, `WITH m AS (UPDATE job_claims SET stops = ARRAY[$1::uuid] WHERE $1::uuid = ANY(job_ids) RETURNING id, worker_id),
		r AS (INSERT INTO job_stop_requests (job_id, fencing_token, worker_id, actor) SELECT $1::uuid, id, worker_id, 'ann' FROM m RETURNING 1)
		SELECT count(*) FROM r`, id); n != 1 {
		t.Fatalf("%d leases hold job %s", n, id)
	}
}

// TestWhatAHandlerMakesOfAStopRequest: nil completes; whatever else cancels, and nothing runs again.
func TestWhatAHandlerMakesOfAStopRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(context.Context) error
		state  string
		keeps  string
	}{
		"completes":    {func(context.Context) error { return nil }, "completed", ""},
		"fails":        {func(context.Context) error { return errors.New("half done") }, "cancelled", "stopped as asked: half done"},
		"snoozes":      {func(context.Context) error { return engine.Snooze(time.Hour) }, "cancelled", "stopped as asked: snoozed for 1h0m0s"},
		"is permanent": {func(context.Context) error { return engine.Permanent(errors.New("no")) }, "cancelled", "stopped as asked: no"},
		"panics":       {func(context.Context) error { panic("at the end") }, "cancelled", "stopped as asked: panic: at the end"},
		"passes on":    {func(ctx context.Context) error { return fmt.Errorf("read: %w", ctx.Err()) }, "cancelled", "stopped as asked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			var running atomic.Int64
			causes := make(chan error, 1)
			e := start(t, pool, hasty(handlers(map[string]handler{"long": listener(&running, causes, c.answer)})))
			id := enqueue(t, e, "long", engine.EnqueueOptions{MaxAttempts: 5})
			eventually(t, "it runs", func() bool { return running.Load() == 1 })
			if err := e.Client().RequestStop(t.Context(), id, ann); err != nil {
				t.Fatal(err)
			}
			reaches(t, pool, id, c.state)
			if got := one[string](t, pool, "SELECT coalesce(error, '') FROM job_executions WHERE job_id = $1", id); got != c.keeps {
				t.Errorf("the run keeps %q, want %q", got, c.keeps)
			}
			if got := outcomes(t, pool, id); got != c.state {
				t.Errorf("runs = %s", got)
			}
			eventually(t, "the request is gone", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_stop_requests") == 0 })
			healthy(t, pool, e)
		})
	}
}

// TestAHandlerThatIgnoresItsStopRequestIsRevoked: after the grace its job is cancelled while the rest of the lease lives
// on; its slot is stuck until it returns, and what it brings is refused, kept and counted.
func TestAHandlerThatIgnoresItsStopRequestIsRevoked(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var running atomic.Int64
	release, neighbour := make(chan struct{}), make(chan struct{})
	seen := newWatcher()
	c := hasty(handlers(map[string]handler{
		"deaf":      func(context.Context, *work) error { running.Add(1); <-release; return nil },
		"neighbour": func(context.Context, *work) error { running.Add(1); <-neighbour; return nil },
	}))
	c.StopGrace, c.Observer = 300*time.Millisecond, seen
	e := engineWithJobsWaiting(t, pool, c, "deaf", "neighbour")
	id, other := waitingIDs(t, pool, "deaf"), waitingIDs(t, pool, "neighbour")
	eventually(t, "both run", func() bool { return running.Load() == 2 })
	if n := one[int](t, pool, "SELECT count(*) FROM job_claims"); n != 1 {
		t.Fatalf("%d leases, want one for both", n)
	}
	asked := time.Now()
	if err := e.Client().RequestStop(t.Context(), id, ann); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, id, "cancelled")
	if d := time.Since(asked); d < c.StopGrace {
		t.Errorf("revoked after %v, within its grace", d)
	}
	if s := e.Status(); s.Stuck != 1 || s.Busy != 2 {
		t.Errorf("stuck = %d, busy = %d, want 1 and 2", s.Stuck, s.Busy)
	}
	if s := stateOf(t, pool, other); s != "leased" {
		t.Errorf("its neighbour is %s", s)
	}
	close(release)
	eventually(t, "the late result is kept", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM refused_writes WHERE job_id = $1 AND operation = 'complete' AND tried->>'outcome' = 'completed'", id) == 1
	})
	eventually(t, "no slot is stuck", func() bool { return e.Status().Stuck == 0 })
	eventually(t, "the refusal is counted", func() bool { return seen.refusals()["complete"] == 1 })
	close(neighbour)
	reaches(t, pool, other, "completed")
	if got := outcomes(t, pool, id); got != "cancelled" {
		t.Errorf("runs = %s", got)
	}
	healthy(t, pool, e)
}

// engineWithJobsWaiting starts an engine on jobs that wait, so that one claim takes them all.
func engineWithJobsWaiting(t *testing.T, pool *pgxpool.Pool, c engine.Config, types ...string) *engine.Engine {
	t.Helper()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range types {
		if _, err := client.Enqueue(t.Context(), engine.RawArgs{Type: name}, engine.EnqueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, pool, c)
}

func waitingIDs(t *testing.T, pool *pgxpool.Pool, jobType string) engine.ID {
	t.Helper()
	return one[engine.ID](t, pool, "SELECT id FROM jobs WHERE type = $1", jobType)
}

// TestLateResultAfterTheDeadlineIsKept: a run closed over its handler's head for its deadline is refused like a revoked one.
func TestLateResultAfterTheDeadlineIsKept(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	release := make(chan struct{})
	seen := newWatcher()
	c := hasty(handlers(map[string]handler{"deaf": func(context.Context, *work) error { <-release; return nil }}))
	c.JobTimeout, c.Observer = 50*time.Millisecond, seen
	e := start(t, pool, c)
	id := enqueue(t, e, "deaf", engine.EnqueueOptions{MaxAttempts: 1})
	reaches(t, pool, id, "dead_letter")
	close(release)
	eventually(t, "the late result is kept", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM refused_writes WHERE job_id = $1 AND operation = 'complete'", id) == 1
	})
	eventually(t, "it is counted", func() bool { return seen.refusals()["complete"] == 1 })
	healthy(t, pool, e)
}

// TestStopOfAJobClaimedAhead: a run that waits for a slot never starts.
func TestStopOfAJobClaimedAhead(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var started atomic.Int64
	release := make(chan struct{})
	c := hasty(handlers(map[string]handler{
		"first":  func(context.Context, *work) error { <-release; return nil },
		"second": func(context.Context, *work) error { started.Add(1); return nil },
	}))
	c.Concurrency, c.Prefetch = 1, 5
	e := engineWithJobsWaiting(t, pool, c, "first", "second")
	id := waitingIDs(t, pool, "second")
	eventually(t, "it is claimed ahead", func() bool { return stateOf(t, pool, id) == "leased" })
	if err := e.Client().RequestStop(t.Context(), id, ann); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, id, "cancelled") // while the slot is taken: what starts first may complete
	close(release)
	if started.Load() > 0 {
		t.Error("it was started")
	}
	healthy(t, pool, e)
}

// freeze makes what a worker holds that has an hour for each lease and does not answer.
func freeze(t *testing.T, pool *pgxpool.Pool, ids ...engine.ID) {
	t.Helper()
	run(t, pool, `WITH w AS (INSERT INTO workers (id, name, hostname, pid, version, queues, types, slots, lease_ms) OVERRIDING SYSTEM VALUE
			VALUES (987654, 'frozen', 'elsewhere', 1, 'test', '{frozen}', '{elsewhere}', 1, 3600000)),
		d AS (DELETE FROM job_ready WHERE job_id = ANY($1::uuid[]) RETURNING job_id, attempt, crashes)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
		SELECT 987654, now() + interval '1 h', array_agg(job_id), array_agg(attempt), array_agg(crashes) FROM d`, ids)
}

// TestStopWorksOnAWorkerThatDoesNotAnswer: a lease that somebody keeps alive, or that ends far in the future, is no refuge.
func TestStopWorksOnAWorkerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := hasty(handlers(map[string]handler{"elsewhere": func(context.Context, *work) error { return nil }}))
	c.Queues, c.StopGrace = []string{"default"}, 100*time.Millisecond
	e := start(t, pool, c)
	seen := enqueueIn(t, e, "frozen", "elsewhere", 2)
	freeze(t, pool, seen...)
	run(t, pool, `INSERT INTO job_live (fencing_token, job_id, progress, progress_text, logs)
		SELECT c.id, $1, 40, 'page 4', '[{"n": 1, "level": "INFO", "msg": "hello"}]' FROM job_claims c WHERE $1 = ANY(c.job_ids)`, seen[0])
	if err := e.Client().RequestStop(t.Context(), seen[0], ann); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, seen[0], "cancelled")
	if s := stateOf(t, pool, seen[1]); s != "leased" {
		t.Errorf("its neighbour is %s", s)
	}
	if got := one[string](t, pool, `SELECT concat_ws('|', error_class, progress, progress_text, logs->0->>'msg') FROM job_executions WHERE job_id = $1`, seen[0]); got !=
		"stopped|40|page 4|hello" {
		t.Errorf("the run keeps %s", got)
	}
	if n := one[int](t, pool, "SELECT (SELECT count(*) FROM job_stop_requests) + (SELECT count(*) FROM job_live)"); n != 0 {
		t.Errorf("%d rows are left over", n)
	}
	healthy(t, pool, e)
}

func enqueueIn(t *testing.T, e *engine.Engine, queue, jobType string, n int) (ids []engine.ID) {
	t.Helper()
	for range n {
		done, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: jobType}, engine.EnqueueOptions{Queue: queue})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, done.ID)
	}
	return ids
}

func run(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestAStoppedJobDoesNotRunAgain: after the answer no way for a run to end but completion leads back into the line.
func TestAStoppedJobDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	seen := newWatcher()
	c := hasty(handlers(map[string]handler{"elsewhere": func(context.Context, *work) error { return nil }}))
	c.Queues, c.Observer = []string{"default"}, seen
	e := start(t, pool, c)
	ids := enqueueIn(t, e, "frozen", "elsewhere", 2)
	freeze(t, pool, ids...)
	if err := e.Client().RequestStop(t.Context(), ids[0], ann); err != nil {
		t.Fatal(err)
	}
	run(t, pool, "UPDATE job_claims SET lease_expires_at = now() - interval '1 s'") // its worker has died
	reaches(t, pool, ids[0], "cancelled")
	reaches(t, pool, ids[1], "pending")
	if got := outcomes(t, pool, ids[0]) + ", " + outcomes(t, pool, ids[1]); got != "cancelled, lease_expired" {
		t.Errorf("runs = %s", got)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.ended[engine.OutcomeCancelled] != 1 || seen.ended[engine.OutcomeLeaseExpired] != 1 {
		t.Errorf("counted %v", seen.ended)
	}
}

func TestShutdownOfAStoppedJobCancelsIt(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var running atomic.Int64
	causes := make(chan error, 1)
	c := calm(handlers(map[string]handler{"long": listener(&running, causes, func(ctx context.Context) error { return ctx.Err() })}))
	e := launch(t, pool, c)
	id := enqueue(t, e, "long", engine.EnqueueOptions{})
	eventually(t, "it runs", func() bool { return running.Load() == 1 })
	mark(t, pool, id) // the worker does not know of it
	if _, err := stopIn(e, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if s := stateOf(t, pool, id); s != "cancelled" {
		t.Errorf("state = %s, want cancelled", s)
	}
	if n := one[int](t, pool, "SELECT coalesce(sum(n), 0) FROM job_stats_deltas WHERE type = 'long' AND outcome = 4"); n != 0 {
		t.Errorf("%d hand-backs are counted", n)
	}
	if n := one[int](t, pool, "SELECT coalesce(sum(n), 0) FROM job_stats_deltas WHERE type = 'long' AND outcome = 5"); n != 1 {
		t.Errorf("%d cancelled runs are counted", n)
	}
}

func TestWhatCannotBeStopped(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var running atomic.Int64
	release := make(chan struct{})
	e := start(t, pool, calm(handlers(map[string]handler{"deaf": func(context.Context, *work) error { running.Add(1); <-release; return nil }})))
	defer close(release)
	if err := e.Client().RequestStop(t.Context(), uuid.New(), ann); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("an unknown job: %v", err)
	}
	waiting := enqueue(t, e, "deaf", engine.EnqueueOptions{ScheduledAt: time.Now().Add(time.Hour)})
	var state *engine.StateError
	if err := e.Client().RequestStop(t.Context(), waiting, ann); !errors.As(err, &state) || state.State != engine.StatePending || state.Act != "stop" {
		t.Errorf("a job that waits: %v", err)
	}
	id := enqueue(t, e, "deaf", engine.EnqueueOptions{})
	eventually(t, "it runs", func() bool { return running.Load() == 1 })
	if err := e.Client().RequestStop(t.Context(), id, ann); err != nil {
		t.Fatal(err)
	}
	if err := e.Client().RequestStop(t.Context(), id, engine.Actor{Name: "bob"}); !errors.Is(err, engine.ErrStopPending) {
		t.Errorf("a second request: %v", err)
	}
	actors := one[[]string](t, pool, "SELECT array_agg(actor) FROM operator_actions")
	if !slices.Equal(actors, []string{"ann"}) {
		t.Errorf("acts of %s", strings.Join(actors, ", "))
	}
}
