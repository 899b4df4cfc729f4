package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// I7: the upkeep of two processes that both believe they lead, without a pause between its passes, under enqueues, runs that
// fail and die, cancels and replays: no deadlock, nothing waits for long.
func TestI7UpkeepWithoutAPauseUnderLoad(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := NewWorkers()
	var turn atomic.Int64
	RegisterType(ws, "mixed", WorkerFunc[RawArgs](func(context.Context, *Job[RawArgs]) error {
		switch turn.Add(1) % 5 {
		case 0:
			return errors.New("again")
		case 1:
			return Permanent(errors.New("for good"))
		case 2:
			return Snooze(time.Millisecond)
		}
		return nil
	}), TypeOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	loop := func(name string, pass func() error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				var pg *pgconn.PgError
				if err := pass(); err != nil && ctx.Err() == nil && (errors.As(err, &pg) || errors.Is(err, context.DeadlineExceeded)) {
					err = fmt.Errorf("%s: %w", name, err)
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	engines := make([]*Engine, 2)
	for i := range engines {
		e, err := New(Config{Pool: pool, Workers: ws, Concurrency: 20, LeaseDuration: 900 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond,
			ReaperInterval: 100 * time.Millisecond, Retry: FullJitter{Base: time.Millisecond, Max: 10 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := e.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
		engines[i] = e
		bounded := func(pass func(context.Context) error) func() error {
			return func() error {
				call, cancel := context.WithTimeout(t.Context(), e.cfg.DBTimeout)
				defer cancel()
				defer time.Sleep(5 * time.Millisecond) // a thousand times the usual pace, and the machine can still do something else
				return pass(call)
			}
		}
		loop("fold", bounded(e.foldOnce))
		loop("prune", bounded(func(ctx context.Context) error {
			_, err := e.q.PruneStep(ctx, e.hot, uuid.Nil, 500, 0.1, 0.1)
			return errors.Join(e.pruneDead(), e.pruneRest(), err)
		}))
		loop("park", bounded(func(ctx context.Context) error {
			queues, priorities, err := e.allLanes(ctx)
			if err == nil && len(queues) > 0 {
				_, err = e.q.ParkJobs(ctx, e.hot, queues, priorities, []string{"nobody"}, holdBatch, e.workerID)
			}
			return errors.Join(err, e.unpark(ctx, []string{"mixed"}))
		}))
	}
	c := engines[0].client
	var ids sync.Map
	for range 3 {
		loop("enqueue", func() error {
			items := make([]EnqueueItem, 20)
			for i := range items {
				items[i].Args = RawArgs{Type: "mixed"}
				if i%4 == 0 {
					items[i].Args = RawArgs{Type: "nobody"}
				}
			}
			done, err := c.EnqueueMany(ctx, items)
			for _, d := range done {
				ids.Store(d.ID, nil)
			}
			return err
		})
	}
	loop("acts", func() error {
		var err error
		ids.Range(func(id, _ any) bool {
			ids.Delete(id)
			var state *StateError
			for _, act := range []func(context.Context, ID, Actor) error{c.Cancel, c.Replay, c.Discard} {
				if e := act(ctx, id.(ID), Actor{Name: "op"}); e != nil && !errors.As(e, &state) && !errors.Is(e, ErrJobNotFound) {
					err = e
				}
			}
			return ctx.Err() == nil && err == nil
		})
		time.Sleep(time.Millisecond)
		return err
	})
	most, before := 0, turn.Load()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		var waiting int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND now() - query_start > interval '1 s'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		most = max(most, waiting)
		time.Sleep(100 * time.Millisecond)
	}
	ran := turn.Load() - before
	cancel()
	wg.Wait()
	if most > 0 {
		t.Errorf("%d statements waited for a lock for more than a second", most)
	}
	if err := failed.Load(); err != nil {
		t.Error(*err)
	}
	var deadlocks int
	if err := pool.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks); err != nil || deadlocks > 0 {
		t.Errorf("%d deadlocks, %v", deadlocks, err)
	}
	if ran < 100 {
		t.Errorf("only %d runs under the load", ran)
	}
}
