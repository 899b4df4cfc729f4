package verify_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// inTx completes in its own transaction.
type inTx struct{}

func (inTx) JobType() string { return "in_tx" }

// Workers run, fail, come and go, leases may be lost and an operator acts: at no moment
// does a check find fault, and no move was wrong.
func TestALiveSystemBreaksNoRule(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	moves.Log(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	for _, loop := range []func(){
		func() { comeAndGo(t, ctx, pool) }, func() { comeAndGo(t, ctx, pool) },
		func() { produce(t, ctx, client) }, func() { operate(t, ctx, pool, client) },
	} {
		all.Go(loop)
	}
	began := time.Now()
	for checks := 0; checks < 5 || time.Since(began) < 4*time.Second; time.Sleep(50 * time.Millisecond) {
		// Retention here is short, so that a key may outlive its job.
		r, err := verify.Run(context.WithoutCancel(ctx), pool, verify.Options{Retention: time.Second, LeaseGrace: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range r.Results {
			if res.Verdict != verify.OK {
				t.Errorf("check %d: %s: %v", checks, res.Rule.Name, res.Offenders)
			}
		}
		checks++
	}
}

// comeAndGo runs workers one after another, whose leases are too short for some
// of their jobs on a busy machine.
func comeAndGo(t *testing.T, ctx context.Context, pool *pgxpool.Pool) {
	ws := engine.NewWorkers()
	engine.Register(ws, &worker{}, engine.TypeOptions{Retry: engine.FullJitter{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}})
	engine.Register(ws, engine.WorkerFunc[inTx](func(ctx context.Context, _ *engine.Job[inTx]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return engine.CompleteTx(ctx, tx) })
	}), engine.TypeOptions{})
	for ctx.Err() == nil {
		e, err := engine.New(engine.Config{Pool: pool, Workers: ws, Concurrency: 8, NoPrefetch: true, LeaseDuration: 60 * time.Millisecond, HeartbeatInterval: 20 * time.Millisecond,
			ReaperInterval: 20 * time.Millisecond, Retention: engine.Retention{Completed: time.Second, Cancelled: time.Second}})
		if err != nil {
			t.Error(err)
			return
		}
		if err := e.Start(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(600+rand.IntN(800)) * time.Millisecond):
		}
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Millisecond)
		_ = e.Stop(bye) // what cannot finish is handed back
		cancel()
	}
}

func produce(t *testing.T, ctx context.Context, client *engine.Client) {
	ends := []string{"ok", "ok", "ok", "retry", "exhaust", "permanent", "mended", "snooze"}
	for n := 0; ctx.Err() == nil; n++ {
		var items []engine.EnqueueItem
		for range 20 {
			items = append(items, engine.EnqueueItem{Args: fate{ends[rand.IntN(len(ends))]}, Options: engine.EnqueueOptions{MaxAttempts: 2,
				Delay: time.Duration(rand.IntN(3)) * 20 * time.Millisecond}}, engine.EnqueueItem{Args: inTx{}})
		}
		if _, err := client.EnqueueMany(context.WithoutCancel(ctx), items); err != nil {
			t.Error(err)
		}
		for _, conflict := range []engine.OnConflict{engine.ConflictReturn, engine.ConflictReplace} {
			same := engine.Unique{Key: []string{"a", "b", "c"}[rand.IntN(3)], OnConflict: conflict, States: [][]engine.UniqueState{nil, {engine.UniqueWaiting}}[rand.IntN(2)]}
			_, err := client.Enqueue(context.WithoutCancel(ctx), fate{ends[rand.IntN(len(ends))]}, engine.EnqueueOptions{Unique: same, MaxAttempts: 2,
				Delay: time.Duration(rand.IntN(2)) * 30 * time.Millisecond})
			var held *engine.UniqueConflictError
			if err != nil && !errors.As(err, &held) && !errors.Is(err, engine.ErrUniqueInFlight) {
				t.Error(err)
			}
		}
		key := engine.EnqueueOptions{IdempotencyKey: "k" + time.Now().String()}
		if _, err := client.Enqueue(context.WithoutCancel(ctx), fate{"ok"}, key); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// operate replays, discards and cancels what it finds.
func operate(t *testing.T, ctx context.Context, pool *pgxpool.Pool, client *engine.Client) {
	ann := engine.Actor{Name: "ann"}
	for ; ctx.Err() == nil; time.Sleep(30 * time.Millisecond) {
		for from, act := range map[string]func(context.Context, engine.ID, engine.Actor) error{
			"dead_letter_jobs": client.Replay, "dead_letter_jobs WHERE attempt = 2": client.Discard, "job_scheduled": client.Cancel, "job_ready": client.Cancel,
			"job_executions": client.RequestStop, "(SELECT unnest(job_ids) AS job_id FROM job_claims) AS c": client.RequestStop} {
			rows, err := pool.Query(context.WithoutCancel(ctx), "SELECT job_id FROM "+from+" LIMIT 3")
			if err != nil {
				t.Error(err)
				return
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[engine.ID])
			if err != nil {
				t.Error(err)
			}
			for _, id := range ids {
				var moved *engine.StateError
				var held *engine.UniqueConflictError
				if err := act(context.WithoutCancel(ctx), id, ann); err != nil && !errors.As(err, &moved) && !errors.As(err, &held) &&
					!errors.Is(err, engine.ErrJobNotFound) && !errors.Is(err, engine.ErrStopPending) {
					t.Error(err)
				}
			}
		}
	}
}
