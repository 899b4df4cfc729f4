package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// launch starts an engine that the test stops by itself.
func launch(t *testing.T, pool *pgxpool.Pool, c engine.Config) *engine.Engine {
	t.Helper()
	c.Pool = pool
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// stopIn stops e with that much time for its handlers and returns how long it took.
func stopIn(e *engine.Engine, d time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	began := time.Now()
	err := e.Stop(ctx)
	return time.Since(began), err
}

// breakable is a server of the test's own, migrated, and a pool on it.
func breakable(t *testing.T) (*dbtest.Server, *pgxpool.Pool) {
	t.Helper()
	s := dbtest.NewServer(t)
	if err := db.Migrate(t.Context(), s.URL("jobs"), nil); err != nil {
		t.Fatal(err)
	}
	return s, dbtest.OpenURL(t, s.URL("jobs"))
}

func TestC1StopHandsBackWhatCannotFinish(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	release, stopping := make(chan struct{}), make(chan struct{})
	defer close(release)
	var running atomic.Int64
	ws := handlers(map[string]handler{
		"listens": func(ctx context.Context, _ *work) error {
			running.Add(1)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), engine.ErrStopping) {
				return fmt.Errorf("cause = %w", context.Cause(ctx))
			}
			return ctx.Err()
		},
		"deaf": func(context.Context, *work) error { running.Add(1); <-release; return nil },
		"ends": func(context.Context, *work) error {
			running.Add(1)
			<-stopping
			time.Sleep(200 * time.Millisecond)
			return nil
		},
	})
	c := hasty(ws)
	c.Prefetch = 10
	c.Concurrency = 3
	e := launch(t, pool, c)
	ids := map[string]engine.ID{}
	for _, name := range []string{"listens", "deaf", "ends"} {
		ids[name] = enqueue(t, e, name, engine.EnqueueOptions{MaxAttempts: 1})
	}
	eventually(t, "all run", func() bool { return running.Load() == 3 })
	ids["waits"] = enqueue(t, e, "plain", engine.EnqueueOptions{MaxAttempts: 1})
	eventually(t, "one is claimed ahead", func() bool { return stateOf(t, pool, ids["waits"]) == "leased" })
	close(stopping)
	took, err := stopIn(e, time.Second)
	if err == nil || took > 3*time.Second {
		t.Errorf("Stop took %v, error %v; want an error that counts the deaf handler, within 3 s", took, err)
	}
	for name, want := range map[string]string{"listens": "handed_back", "deaf": "handed_back", "ends": "completed", "waits": "handed_back"} {
		got := outcomes(t, pool, ids[name])
		if name == "waits" { // what was claimed ahead is given back too when the others take long
			got = strings.TrimPrefix(got, "handed_back ")
		}
		if got != want {
			t.Errorf("%s: outcomes = %q, want %q", name, got, want)
		}
		if name == "ends" {
			continue
		}
		if s := stateOf(t, pool, ids[name]); s != "pending" {
			t.Errorf("%s: state right after the exit = %s", name, s)
		}
		if n := one[int](t, pool, "SELECT attempt FROM job_ready WHERE job_id = $1", ids[name]); n != 0 {
			t.Errorf("%s: %d attempts counted", name, n)
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM job_claims"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if s := one[string](t, pool, "SELECT state FROM workers WHERE id = $1", e.Status().WorkerID); s != "stopped" && !testing.Short() { // a good-bye has 200 ms, which the race detector may use up
		t.Errorf("the worker's row says %s", s)
	}
	if took, again := stopIn(e, time.Second); took > 100*time.Millisecond || !errors.Is(again, err) {
		t.Errorf("Stop again took %v: %v", took, again)
	}
}

func TestC1StopWithoutWorkIsQuick(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := launch(t, pool, hasty(handlers(nil)))
	if took, err := stopIn(e, 10*time.Second); err != nil || took > time.Second {
		t.Errorf("Stop of an idle engine took %v: %v", took, err)
	}
	if err := e.Start(t.Context()); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("Start after Stop = %v, want ErrStopped", err)
	}
	unstarted, err := engine.New(engine.Config{Pool: pool, Workers: handlers(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if took, err := stopIn(unstarted, time.Second); err != nil || took > time.Second {
		t.Errorf("Stop before Start took %v: %v", took, err)
	}
}

func TestC2StopEndsWithAFrozenDatabase(t *testing.T) {
	t.Parallel()
	server, pool := breakable(t)
	var running atomic.Int64
	ws := handlers(map[string]handler{
		"listens": func(ctx context.Context, _ *work) error { running.Add(1); <-ctx.Done(); return ctx.Err() },
	})
	c := hasty(ws)
	c.LeaseDuration, c.HeartbeatInterval = 30*time.Second, 100*time.Millisecond
	e := launch(t, pool, c)
	for range 3 {
		enqueue(t, e, "listens", engine.EnqueueOptions{})
	}
	eventually(t, "all run", func() bool { return running.Load() == 3 })
	server.Freeze()
	time.Sleep(300 * time.Millisecond)
	var wg sync.WaitGroup
	for range 2 { // a second signal, too
		wg.Add(1)
		go func() {
			defer wg.Done()
			if took, err := stopIn(e, time.Second); took > 3*time.Second {
				t.Errorf("Stop took %v: %v; want the timeout of 1 s and 2 s more at most", took, err)
			} else {
				t.Logf("Stop took %v: %v", took, err)
			}
		}()
	}
	wg.Wait()
	server.Thaw()
	if n := one[int](t, pool, "SELECT count(*) FROM job_claims"); n == 0 {
		t.Log("the hand-back got through after all")
	}
}

func TestC3FiveRestartsInARowBuryNothing(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var running atomic.Int64
	ws := handlers(map[string]handler{"long": func(ctx context.Context, _ *work) error {
		running.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}})
	var ids []engine.ID
	for i := range 5 {
		e := launch(t, pool, hasty(ws))
		for len(ids) < 4 {
			ids = append(ids, enqueue(t, e, "long", engine.EnqueueOptions{MaxAttempts: 1}))
		}
		eventually(t, "all run", func() bool { return running.Load() == int64(4*(i+1)) })
		if _, err := stopIn(e, 50*time.Millisecond); err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			if s := stateOf(t, pool, id); s != "pending" {
				t.Errorf("after exit %d: %s, want pending", i+1, s)
			}
		}
	}
	if n := one[int](t, pool, "SELECT max(attempt) + max(crashes) FROM job_ready"); n != 0 {
		t.Errorf("attempts and crashes after five restarts: %d", n)
	}
	for _, id := range ids {
		if got := outcomes(t, pool, id); got != "handed_back handed_back handed_back handed_back handed_back" {
			t.Errorf("outcomes = %s", got)
		}
	}
}

func TestC4ClaimingResumesAfterAnOutage(t *testing.T) {
	t.Parallel()
	server, pool := breakable(t)
	var began atomic.Int64
	ws := handlers(map[string]handler{"through": func(ctx context.Context, _ *work) error {
		began.Add(1)
		time.Sleep(2 * time.Second) // ends in the middle of the outage
		return nil
	}})
	c := hasty(ws)
	c.LeaseDuration = 3 * time.Second
	e := start(t, pool, c)
	through := enqueue(t, e, "through", engine.EnqueueOptions{})
	eventually(t, "it runs", func() bool { return began.Load() == 1 })
	server.StopImmediate()
	time.Sleep(4 * time.Second)
	server.Start()
	up := time.Now()
	fresh := restored(t, server)
	done, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reaches(t, fresh, done.ID, "completed")
	t.Logf("a job completed %v after the database was back", time.Since(up))
	reaches(t, fresh, through, "completed")
	// A worker that lived on through an outage is given time to say so: its run is no crash.
	if got := outcomes(t, fresh, through); got != "completed" {
		t.Errorf("the job that ran through the outage: %s, want completed at once", got)
	}
	eventually(t, "it listens again", func() bool { return e.Status().Listening })
	healthy(t, fresh, e)
}

// restored waits until the server answers and returns a pool whose connections are all new.
func restored(t *testing.T, server *dbtest.Server) *pgxpool.Pool {
	t.Helper()
	pool := dbtest.OpenURL(t, server.URL("jobs"))
	eventually(t, "the database answers", func() bool { return pool.Ping(t.Context()) == nil })
	return pool
}

func TestI1TheListenerComesBackAfterARestart(t *testing.T) {
	t.Parallel()
	server, pool := breakable(t)
	c := hasty(handlers(nil))
	c.PollInterval = time.Minute // only a notification, or a full look at once, brings a job sooner
	e := start(t, pool, c)
	eventually(t, "it listens", func() bool { return e.Status().Listening })
	healthy(t, pool, e)
	// Announced to nobody, as what is committed while nobody listens.
	var id engine.ID
	eventually(t, "an unannounced job waits for the poll", func() bool { // a hint still on its way for an earlier job finds this one too
		id = one[engine.ID](t, pool, "SELECT enqueue_job(type => 'plain', notify => false)")
		time.Sleep(200 * time.Millisecond)
		return stateOf(t, pool, id) == "pending"
	})
	server.Stop()
	eventually(t, "it says that it does not", func() bool { return !e.Status().Listening })
	server.Start()
	up := time.Now()
	other := restored(t, server)
	within(t, 5*time.Second, "it listens again", func() bool { return e.Status().Listening })
	t.Logf("it listened again after %v", time.Since(up))
	reaches(t, other, id, "completed")
	id = one[engine.ID](t, other, "SELECT enqueue_job(type => 'plain')")
	reaches(t, other, id, "completed")
}

func TestI2AnAbsentDatabaseIsNotLoggedWithoutEnd(t *testing.T) {
	t.Parallel()
	server, pool := breakable(t)
	log := &lines{}
	c := hasty(handlers(nil))
	c.Log = log.logger()
	e := start(t, pool, c)
	eventually(t, "it listens", func() bool { return e.Status().Listening })
	server.StopImmediate()
	before := len(log.with(nil))
	const outage = 4 * time.Second
	time.Sleep(outage)
	perComponent := map[any]int{}
	for _, line := range log.with(nil)[before:] {
		name := line["component"]
		if name == nil {
			name = line["msg"]
		}
		perComponent[name]++
	}
	if len(perComponent) == 0 {
		t.Error("an outage of 4 s left no line in the log")
	}
	for name, n := range perComponent {
		if n > int(outage/time.Second)+1 {
			t.Errorf("%v: %d lines in %v", name, n, outage)
		}
	}
	server.Start()
	healthy(t, restored(t, server), e)
}

func TestI4NotificationsStaySmall(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := start(t, pool, hasty(handlers(nil)))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN jobs"); err != nil {
		t.Fatal(err)
	}
	big := engine.RawArgs{Type: "plain", Payload: []byte(`{"x":"` + string(make([]byte, 0)) + repeat("y", 200_000) + `"}`)}
	items := make([]engine.EnqueueItem, 50)
	queue := repeat("q", 100)
	for i := range items {
		items[i] = engine.EnqueueItem{Args: big, Options: engine.EnqueueOptions{Queue: queue}}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // after a commit it has nothing to do
	if _, err := e.Client().EnqueueManyTx(t.Context(), tx, items); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	n, err := conn.Conn().WaitForNotification(ctx)
	if err != nil || n.Payload != queue {
		t.Fatalf("notification = %+v, %v, want the queue's name", n, err)
	}
	few, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if n, err := conn.Conn().WaitForNotification(few); err == nil {
		t.Errorf("a second notification of one transaction: %+v", n)
	}
	if _, err := conn.Exec(t.Context(), "UNLISTEN *"); err != nil {
		t.Fatal(err)
	}
}

func repeat(s string, n int) string {
	b := make([]byte, 0, n*len(s))
	for range n {
		b = append(b, s...)
	}
	return string(b)
}

// TestI6ASmallPoolIsSlowAndNoDeadlock gives handlers that enqueue children a pool that is smaller than the slots.
func TestI6ASmallPoolIsSlowAndNoDeadlock(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	watch := dbtest.OpenURL(t, url)
	for _, size := range []int32{1, 2, 9} {
		c, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		c.MaxConns = size
		pool, err := pgxpool.NewWithConfig(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		var e *engine.Engine
		ready := make(chan struct{})
		ws := handlers(map[string]handler{"parent": func(ctx context.Context, j *work) error {
			<-ready
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it has nothing to do
			for range 3 {
				if _, err := e.Client().EnqueueTx(ctx, tx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{}); err != nil {
					return err
				}
			}
			if err := engine.CompleteTx(ctx, tx); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}})
		e = launch(t, pool, hasty(ws))
		close(ready)
		before := one[int](t, watch, "SELECT count(*) FROM job_executions WHERE outcome = 1")
		items := make([]engine.EnqueueItem, 40)
		for i := range items {
			items[i].Args = engine.RawArgs{Type: "parent"}
		}
		if _, err := e.Client().EnqueueMany(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		within(t, 20*time.Second, fmt.Sprintf("40 parents and 120 children complete on %d connections", size), func() bool {
			return one[int](t, watch, "SELECT count(*) FROM job_executions WHERE outcome = 1")-before == 160
		})
		// What was claimed ahead and waited a second for a slot is handed back before it starts: slow, as it should be.
		if n := one[int](t, watch, "SELECT count(*) FROM job_executions WHERE outcome <> 1 AND NOT (outcome = 4 AND started_at IS NULL)"); n > 0 {
			t.Errorf("pool of %d: %d runs began and did not complete", size, n)
		}
		if _, err := stopIn(e, 5*time.Second); err != nil {
			t.Error(err)
		}
	}
}
