package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestPrefetchedJobsAreHandedBackWhenAHandlerTurnsSlow: what was claimed ahead may run elsewhere.
func TestPrefetchedJobsAreHandedBackWhenAHandlerTurnsSlow(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	gate, began := make(chan struct{}), make(chan struct{})
	ws := handlers(map[string]handler{"slow": func(context.Context, *work) error { close(began); <-gate; return nil }})
	c := hasty(ws)
	c.Concurrency, c.Prefetch = 1, 50
	e := start(t, pool, c)
	slow := enqueue(t, e, "slow", engine.EnqueueOptions{})
	<-began
	var ids []engine.ID
	for range 20 {
		ids = append(ids, enqueue(t, e, "plain", engine.EnqueueOptions{}))
	}
	eventually(t, "some are claimed ahead and handed back", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 4 AND started_at IS NULL") >= 20
	})
	other := start(t, pool, hasty(handlers(nil)))
	for _, id := range ids {
		reaches(t, pool, id, "completed")
	}
	if n := one[int](t, pool, "SELECT max(attempt) FROM job_executions WHERE job_id = ANY($1::uuid[])", ids); n != 1 {
		t.Errorf("attempt = %d after hand-backs, want 1", n)
	}
	close(gate)
	reaches(t, pool, slow, "completed")
	healthy(t, pool, other)
}

// TestASuspectThatWasHandedBackIsTakenAgain: a worker runs one suspect at a time, also after it gave one back unstarted.
func TestASuspectThatWasHandedBackIsTakenAgain(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	gate, began := make(chan struct{}), make(chan struct{})
	ws := handlers(map[string]handler{"slow": func(context.Context, *work) error { close(began); <-gate; return nil }})
	c := hasty(ws)
	c.Concurrency, c.Prefetch, c.Queues = 1, 5, []string{"default"}
	e := start(t, pool, c)
	slow := enqueue(t, e, "slow", engine.EnqueueOptions{})
	<-began
	id := enqueue(t, e, "plain", engine.EnqueueOptions{Queue: "elsewhere"})
	for _, sql := range []string{"UPDATE jobs SET queue = 'default' WHERE id = $1", "UPDATE job_ready SET crashes = 1, queue = 'default' WHERE job_id = $1"} {
		if _, err := pool.Exec(t.Context(), sql, id); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the suspect is handed back", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_executions WHERE job_id = $1 AND outcome = 4", id) > 0
	})
	close(gate)
	reaches(t, pool, slow, "completed")
	reaches(t, pool, id, "completed")
	healthy(t, pool, e)
}

// TestAJobWhoseLeaseWasLostDoesNotStart: it waited for a slot while its lease was taken, and runs elsewhere by now.
func TestAJobWhoseLeaseWasLostDoesNotStart(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	gate, began := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	started := map[int64]bool{}
	ws := handlers(map[string]handler{
		"slow": func(context.Context, *work) error { close(began); <-gate; return nil },
		"behind": func(_ context.Context, j *work) error {
			mu.Lock()
			defer mu.Unlock()
			started[j.FencingToken] = true
			return nil
		},
	})
	c := hasty(ws)
	c.Concurrency, c.Prefetch = 1, 10
	e := start(t, pool, c)
	enqueue(t, e, "slow", engine.EnqueueOptions{})
	<-began
	behind := enqueue(t, e, "behind", engine.EnqueueOptions{})
	// It is reaped while it waits, as after a long pause of the process. A second later it would be handed back.
	var token int64
	eventually(t, "its lease is lost", func() bool {
		err := pool.QueryRow(t.Context(), `WITH c AS (DELETE FROM job_claims WHERE $1 = ANY (job_ids) AND cardinality(job_ids) = 1 RETURNING id),
			x AS (INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) SELECT $1, c.id, 1, 6 FROM c),
			r AS (INSERT INTO job_ready (job_id, queue, type, priority, crashes) SELECT $1, 'default', 'behind', 1, 1 FROM c)
			SELECT c.id FROM c`, behind).Scan(&token)
		return err == nil
	})
	for range 2 { // once the second heartbeat since is there, the first one's answer has been heard
		at := one[time.Time](t, pool, "SELECT clock_timestamp()")
		eventually(t, "a heartbeat comes", func() bool { return one[bool](t, pool, "SELECT max(heartbeat_at) > $1 FROM workers", at) })
	}
	close(gate)
	reaches(t, pool, behind, "completed")
	mu.Lock()
	defer mu.Unlock()
	if started[token] {
		t.Errorf("the handler was called under token %d, which was lost before", token)
	}
}

// TestADeadListenerDoesNotStopTheReaper: nothing depends on notifications.
func TestADeadListenerDoesNotStopTheReaper(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := hasty(handlers(nil))
	c.HeartbeatInterval = 200 * time.Millisecond
	e := start(t, pool, c)
	eventually(t, "it leads and listens", func() bool { return e.Status().Leader && e.Status().Listening })
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-quit:
				done <- nil
				return
			case <-time.After(50 * time.Millisecond):
			}
			_, err := pool.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()")
			if err != nil {
				done <- err
				return
			}
		}
	}()
	time.Sleep(300 * time.Millisecond)
	id := enqueue(t, e, "elsewhere", engine.EnqueueOptions{})
	lose(t, pool, id)
	reaches(t, pool, id, "pending")
	close(quit)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestKeyedBatchesInOppositeOrdersDoNotDeadlock enqueues the same keys in opposite orders.
func TestKeyedBatchesInOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var created atomic.Int64
	for caller := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for round := range 10 {
				items := make([]engine.EnqueueItem, 20)
				for i := range items {
					n := i
					if caller%2 == 1 {
						n = len(items) - 1 - i
					}
					items[i] = engine.EnqueueItem{Args: engine.RawArgs{Type: "plain"}, Options: engine.EnqueueOptions{IdempotencyKey: fmt.Sprint(round, "-", n)}}
				}
				done, err := client.EnqueueMany(t.Context(), items)
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					continue
				}
				for _, d := range done {
					if !d.Duplicate {
						created.Add(1)
					}
				}
			}
		}()
	}
	wg.Wait()
	if n := one[int64](t, pool, "SELECT count(*) FROM jobs"); n != 200 || created.Load() != n {
		t.Errorf("%d jobs, %d told created, want 200", n, created.Load())
	}
}

// TestSuspectsFollowOneAnother: a worker that died with many jobs leaves many suspects, and each is run alone. The next is
// taken when one has ended, not at the next poll.
func TestSuspectsFollowOneAnother(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := hasty(handlers(nil))
	c.PollInterval = time.Second
	e := start(t, pool, c)
	if _, err := pool.Exec(t.Context(), "INSERT INTO queues (name, paused_at) VALUES ('q', now())"); err != nil {
		t.Fatal(err)
	}
	var ids []engine.ID
	for range 60 {
		ids = append(ids, enqueue(t, e, "plain", engine.EnqueueOptions{Queue: "q"}))
	}
	lose(t, pool, ids...)
	if _, err := pool.Exec(t.Context(), "DELETE FROM queues"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "60 suspects complete", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 1") == 60
	})
	healthy(t, pool, e)
}
