package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestB1CompletionAgainstTheReaper lets leases expire all the time while their jobs complete.
func TestB1CompletionAgainstTheReaper(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"short": func(ctx context.Context, j *work) error {
		time.Sleep(time.Duration(j.FencingToken%10) * time.Millisecond)
		return nil
	}})
	c := hasty(ws)
	c.ReaperInterval, c.HeartbeatInterval = 10*time.Millisecond, 200*time.Millisecond
	e := start(t, pool, c)
	// After its start it waits for a heartbeat first.
	eventually(t, "the reaper goes round", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM maintenance_tasks WHERE task = 'reaper'") > 0
	})
	jobs := 0
	reaped := func() int { return one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 6") }
	for wave := 0; wave < 3 || wave < 60 && reaped() == 0; wave++ {
		items := make([]engine.EnqueueItem, 100)
		for i := range items {
			items[i].Args = engine.RawArgs{Type: "short"}
		}
		if _, err := e.Client().EnqueueMany(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		jobs += len(items)
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
			if _, err := pool.Exec(t.Context(), `WITH late AS MATERIALIZED (SELECT id FROM job_claims WHERE random() < 0.2 ORDER BY id FOR NO KEY UPDATE)
				UPDATE job_claims AS c SET lease_expires_at = now() - interval '1 ms' FROM late WHERE c.id = late.id`); err != nil {
				t.Fatal(err)
			}
		}
	}
	within(t, 30*time.Second, "all completed", func() bool {
		return one[int](t, pool, "SELECT count(DISTINCT job_id) FROM job_executions WHERE outcome = 1") == jobs
	})
	if n := one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 1"); n != jobs {
		t.Errorf("%d accepted completions of %d jobs", n, jobs)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM job_states WHERE state <> 'completed'"); n > 0 {
		t.Errorf("%d completed jobs stand somewhere", n)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 6"); n == 0 {
		t.Error("the reaper took nothing back: no race was run")
	} else {
		t.Logf("%d runs were taken back by the reaper", n)
	}
	healthy(t, pool, e)
}

func TestB2RecoveryNeedsNoHandler(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := start(t, pool, hasty(handlers(nil)))
	id := enqueue(t, e, "strange", engine.EnqueueOptions{Queue: "elsewhere"})
	began := time.Now()
	lose(t, pool, id)
	reaches(t, pool, id, "pending")
	t.Logf("claimable after %v", time.Since(began))
	if got := outcomes(t, pool, id); got != "lease_expired" {
		t.Errorf("outcomes = %s", got)
	}
	if n := one[int](t, pool, "SELECT crashes FROM job_ready WHERE job_id = $1", id); n != 1 {
		t.Errorf("crashes = %d, want 1", n)
	}
	healthy(t, pool, e)
}

func TestB4HeartbeatOfMoreThanAThirdOfTheLeaseIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for _, c := range []struct {
		heartbeat, lease time.Duration
		ok               bool
	}{{10 * time.Second, 30 * time.Second, true}, {10*time.Second + 1, 30 * time.Second, false}, {20 * time.Second, 30 * time.Second, false},
		{0, 20 * time.Second, false}, {time.Second, 0, true}} {
		_, err := engine.New(engine.Config{Pool: pool, Workers: handlers(nil), HeartbeatInterval: c.heartbeat, LeaseDuration: c.lease})
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "HeartbeatInterval") {
			t.Errorf("heartbeat %v, lease %v: %v", c.heartbeat, c.lease, err)
		}
	}
}

// TestB4RenewalUnderLoad has jobs run for several leases while every core is busy and the job traffic is dense.
func TestB4RenewalUnderLoad(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var long atomic.Int64
	ws := handlers(map[string]handler{"long": func(ctx context.Context, _ *work) error {
		long.Add(1)
		select {
		case <-time.After(5 * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	c := hasty(ws)
	c.LeaseDuration, c.HeartbeatInterval = 2*time.Second, 200*time.Millisecond
	e := start(t, pool, c)
	ids := []engine.ID{enqueue(t, e, "long", engine.EnqueueOptions{}), enqueue(t, e, "long", engine.EnqueueOptions{})}
	eventually(t, "both run", func() bool { return long.Load() == 2 })
	quit, done := make(chan struct{}), sync.WaitGroup{}
	for range 2 * runtime.NumCPU() {
		done.Add(1)
		go func() {
			defer done.Done()
			for n := 0; ; n++ {
				select {
				case <-quit:
					return
				default:
				}
				if n%64 == 0 {
					runtime.Gosched()
				}
			}
		}()
	}
	items := make([]engine.EnqueueItem, 500)
	for i := range items {
		items[i].Args = engine.RawArgs{Type: "plain"}
	}
	for one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 1 AND job_id = ANY($1::uuid[])", ids) < 2 && long.Load() == 2 {
		if _, err := e.Client().EnqueueMany(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	close(quit)
	done.Wait()
	if n := one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 6"); n > 0 || long.Load() != 2 {
		t.Errorf("%d runs lost their lease; 2 long jobs ran %d times", n, long.Load())
	}
}

func TestB5RecoveryNeedsNoWorkerRow(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := start(t, pool, hasty(handlers(nil)))
	eventually(t, "it leads", func() bool { return e.Status().Leader })
	if _, err := pool.Exec(t.Context(), "DELETE FROM workers"); err != nil {
		t.Fatal(err)
	}
	id := enqueue(t, e, "other", engine.EnqueueOptions{})
	lose(t, pool, id) // its worker never had a row
	reaches(t, pool, id, "pending")
	eventually(t, "the row of the living worker is put back", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM workers WHERE id = $1", e.Status().WorkerID) == 1
	})
	healthy(t, pool, e)
}

func TestB6CrashOnTheLastAttempt(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var ran atomic.Int64
	ws := handlers(map[string]handler{"last": func(_ context.Context, j *work) error {
		ran.Add(1)
		if j.Attempt != 1 || j.Crashes != 1 {
			return fmt.Errorf("attempt %d, crashes %d, want 1 and 1", j.Attempt, j.Crashes)
		}
		return nil
	}})
	e := start(t, pool, hasty(ws))
	// The queue's lock keeps the job from being claimed until it is lost.
	if _, err := pool.Exec(t.Context(), "INSERT INTO queues (name, paused_at) VALUES ('last', now())"); err != nil {
		t.Fatal(err)
	}
	id := enqueue(t, e, "last", engine.EnqueueOptions{Queue: "last", MaxAttempts: 1})
	lose(t, pool, id)
	if _, err := pool.Exec(t.Context(), "DELETE FROM queues"); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, id, "completed")
	if got := outcomes(t, pool, id); got != "lease_expired completed" || ran.Load() != 1 {
		t.Errorf("outcomes = %s, ran %d times", got, ran.Load())
	}
	healthy(t, pool, e)
}

func TestB8AnImpossibleRowDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := start(t, pool, hasty(handlers(map[string]handler{"fails": func(context.Context, *work) error { return errors.New("no") }})))
	if _, err := pool.Exec(t.Context(), "INSERT INTO queues (name, paused_at) VALUES ('q', now())"); err != nil {
		t.Fatal(err)
	}
	atLimit := enqueue(t, e, "fails", engine.EnqueueOptions{Queue: "q", MaxAttempts: 1})
	gone := enqueue(t, e, "plain", engine.EnqueueOptions{Queue: "q"})
	behind := enqueue(t, e, "plain", engine.EnqueueOptions{Queue: "q"})
	for _, sql := range []string{"UPDATE job_ready SET attempt = 32000 WHERE job_id = $1", "DELETE FROM jobs WHERE id = $2"} {
		args := []any{atLimit}
		if strings.Contains(sql, "$2") {
			sql, args = strings.Replace(sql, "$2", "$1", 1), []any{gone}
		}
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "DELETE FROM queues"); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, behind, "completed")
	reaches(t, pool, atLimit, "dead_letter")
}

type ownError struct{ Code int }

func (e ownError) Error() string { return fmt.Sprint("code ", e.Code) }

func TestB9PanicsAreErrorsWithTheirStack(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	kinds := map[string]func(){
		"string": func() { panic("a word") }, "error": func() { panic(errors.New("an error")) }, "nil": func() { panic(nil) },
		"custom": func() { panic(ownError{7}) }, "bounds": func() { _ = []int{}[len(pool.Config().ConnString())] },
		"nul": func() { panic("a\x00b\xff") }, "goexit": func() { runtime.Goexit() },
	}
	want := map[string]string{"string": "panic: a word", "error": "panic: an error", "nil": "panic called with nil argument",
		"custom": "panic: code 7", "bounds": "index out of range", "nul": "a\ufffdb\ufffd", "goexit": "runtime.Goexit"}
	byType := map[string]handler{}
	for name, f := range kinds {
		byType[name] = func(context.Context, *work) error { f(); return nil }
	}
	log := &lines{}
	c := hasty(handlers(byType))
	c.Concurrency, c.Log = 2, log.logger()
	e := start(t, pool, c)
	for name := range kinds {
		id := enqueue(t, e, name, engine.EnqueueOptions{MaxAttempts: 1})
		reaches(t, pool, id, "dead_letter")
		message := one[string](t, pool, "SELECT error FROM dead_letter_jobs WHERE job_id = $1", id)
		stack := one[string](t, pool, "SELECT coalesce(stack, '') FROM dead_letter_jobs WHERE job_id = $1", id)
		if !strings.Contains(message, want[name]) {
			t.Errorf("%s: error = %q, want %q in it", name, message, want[name])
		}
		if name != "goexit" && !strings.Contains(stack, "TestB9PanicsAreErrorsWithTheirStack") {
			t.Errorf("%s: the stack does not name the handler:\n%s", name, stack)
		}
		// The line follows the commit that was just seen.
		eventually(t, name+": one log line of the death with job_id and attempt", func() bool {
			return len(log.with(map[string]any{"job_id": id.String(), "msg": engine.LogJobFailedPermanently, "attempt": 1.0})) == 1
		})
	}
	if s := e.Status(); s.Busy != 0 || s.Stuck != 0 {
		t.Errorf("status = %+v", s)
	}
	healthy(t, pool, e)
}

func TestB10TheResultOfSomethingGoneIsDroppedOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for _, how := range []string{"re-claimed", "deleted"} {
		began, gate := make(chan struct{}, 2), make(chan struct{})
		log, watch := &lines{}, newWatcher()
		c := hasty(handlers(map[string]handler{"slow": func(context.Context, *work) error { began <- struct{}{}; <-gate; return nil }}))
		c.Concurrency, c.Log, c.Observer, c.NoPrefetch = 1, log.logger(), watch, true
		c.Queues = []string{how}
		c.LeaseDuration, c.HeartbeatInterval = 30*time.Second, 10*time.Second // it does not notice in time
		e := start(t, pool, c)
		id := enqueue(t, e, "slow", engine.EnqueueOptions{Queue: how})
		<-began
		sql := "DELETE FROM job_claims WHERE $1 = ANY (job_ids)"
		if _, err := pool.Exec(t.Context(), sql, id); err != nil {
			t.Fatal(err)
		}
		if how == "deleted" {
			if _, err := pool.Exec(t.Context(), "DELETE FROM jobs WHERE id = $1", id); err != nil {
				t.Fatal(err)
			}
		}
		next := enqueue(t, e, "plain", engine.EnqueueOptions{Queue: how})
		close(gate)
		reaches(t, pool, next, "completed")
		eventually(t, "the refusal is counted", func() bool { return watch.refusals()["complete"] == 1 })
		time.Sleep(300 * time.Millisecond)
		if got := watch.refusals(); len(got) != 1 || got["complete"] != 1 {
			t.Errorf("%s: refusals = %v, want one", how, got)
		}
		if found := log.with(map[string]any{"msg": engine.LogStaleWriteRefused, "level": "WARN"}); len(found) != 1 {
			t.Errorf("%s: %d warnings, want 1", how, len(found))
		}
		if n := one[int](t, pool, "SELECT count(*) FROM refused_writes WHERE job_id = $1 AND operation = 'complete'", id); n != 1 {
			t.Errorf("%s: %d rows of evidence, want 1", how, n)
		}
	}
}

func TestB11HandlersThatIgnoreTheirContextAreVisible(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	gate := make(chan struct{})
	ws := handlers(map[string]handler{"deaf": func(context.Context, *work) error { <-gate; return nil }})
	c := hasty(ws)
	c.Concurrency, c.NoPrefetch = 2, true
	e := start(t, pool, c)
	first := enqueue(t, e, "deaf", engine.EnqueueOptions{Timeout: 100 * time.Millisecond, MaxAttempts: 1})
	reaches(t, pool, first, "dead_letter")
	if s := e.Status(); s.Stuck != 1 || !s.Ready() {
		t.Errorf("one of two stuck: %+v, ready %v", s, s.Ready())
	}
	healthy(t, pool, e)
	second := enqueue(t, e, "deaf", engine.EnqueueOptions{Timeout: 100 * time.Millisecond, MaxAttempts: 1})
	reaches(t, pool, second, "dead_letter")
	if s := e.Status(); s.Stuck != 2 || s.Ready() {
		t.Errorf("both stuck: %+v, ready %v", s, s.Ready())
	}
	if got := outcomes(t, pool, second); got != "timed_out" {
		t.Errorf("outcomes = %s", got)
	}
	eventually(t, "the worker's row tells", func() bool {
		return one[int](t, pool, "SELECT stuck FROM workers WHERE id = $1", e.Status().WorkerID) == 2
	})
	eventually(t, "their leases are gone", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_claims") == 0 })
	close(gate)
	eventually(t, "the slots are free again", func() bool { return e.Status().Stuck == 0 && e.Status().Busy == 0 && e.Status().Ready() })
	healthy(t, pool, e)
	if got := outcomes(t, pool, first); got != "timed_out" {
		t.Errorf("after its late return: %s", got)
	}
}

func TestB12NotYetDueInFront(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"later": func(context.Context, *work) error { return engine.RetryAfter(errors.New("not now"), time.Hour) }})
	c := hasty(ws)
	c.Concurrency = 1
	e := start(t, pool, c)
	backing := enqueue(t, e, "later", engine.EnqueueOptions{Priority: engine.PriorityCritical.Ptr()})
	reaches(t, pool, backing, "failed")
	items := make([]engine.EnqueueItem, 1000)
	for i := range items {
		items[i] = engine.EnqueueItem{Args: engine.RawArgs{Type: "plain"}, Options: engine.EnqueueOptions{Priority: engine.PriorityCritical.Ptr(), Delay: time.Hour}}
	}
	if _, err := e.Client().EnqueueMany(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	low := enqueue(t, e, "plain", engine.EnqueueOptions{Priority: engine.PriorityLow.Ptr()})
	reaches(t, pool, low, "completed")
}
