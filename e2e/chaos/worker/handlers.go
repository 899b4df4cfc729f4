//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// task is the payload of every job here.
type task struct {
	Ref   string `json:"ref"`   // names the request that made the job, and its effects outside
	Fail  int    `json:"fail"`  // attempts that fail before one succeeds
	Work  int    `json:"work"`  // milliseconds
	Until int64  `json:"until"` // Unix milliseconds: snooze until then
}

// JobType implements engine.Args; the types are given where they are registered.
func (task) JobType() string { return "chaos" }

type job = engine.Job[task]

var errOnPurpose = errors.New("fails on purpose")

func handlers(pool *pgxpool.Pool, effects *effectLog) *engine.Workers {
	ws := engine.NewWorkers()
	add := func(name string, o engine.TypeOptions, work func(context.Context, *job) error) {
		engine.RegisterType(ws, name, engine.WorkerFunc[task](func(ctx context.Context, j *job) error {
			return effects.around(j, func() error { return work(ctx, j) })
		}), o)
	}
	none := engine.TypeOptions{}
	add("ok", none, func(context.Context, *job) error { return nil })
	add("flaky", none, flaky)
	add("snooze", none, snooze)
	add("slow", none, slow)
	add("long", none, long)
	add("hopeless", none, func(context.Context, *job) error { return errOnPurpose })
	add("doomed", none, func(context.Context, *job) error { return engine.Permanent(errOnPurpose) })
	add("deaf", engine.TypeOptions{Timeout: 200 * time.Millisecond}, deaf)
	add("tx", none, func(ctx context.Context, j *job) error { return inTx(ctx, pool, j, completeWithEffect) })
	add("once", none, func(ctx context.Context, j *job) error { return inTx(ctx, pool, j, effectOnce) })
	add("spawn", none, spawner(pool))
	for name, swallow := range pills {
		add(name, engine.TypeOptions{Timeout: 5 * time.Second}, func(_ context.Context, j *job) error { return swallow(j) })
	}
	return ws
}

// spawner enqueues three jobs in two calls, under keys, so that a run after a lost
// one adds none.
func spawner(pool *pgxpool.Pool) func(context.Context, *job) error {
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	return func(ctx context.Context, j *job) error {
		if err != nil {
			return err
		}
		var items []engine.EnqueueItem
		for i := range 3 {
			ref := fmt.Sprintf("%s.%d", j.Args.Ref, i)
			items = append(items, engine.EnqueueItem{Args: named{Ref: ref}, Options: engine.EnqueueOptions{IdempotencyKey: ref}})
		}
		if _, err := client.Enqueue(ctx, items[0].Args, items[0].Options); err != nil {
			return err
		}
		_, err := client.EnqueueMany(ctx, items[1:])
		return err
	}
}

// named is the payload of a job that only has to be there.
type named struct {
	Ref string `json:"ref"`
}

// JobType implements engine.Args.
func (named) JobType() string { return "ok" }

func flaky(_ context.Context, j *job) error {
	if j.Attempt <= j.Args.Fail {
		return fmt.Errorf("attempt %d: %w", j.Attempt, errOnPurpose)
	}
	return nil
}

func snooze(_ context.Context, j *job) error {
	if wait := time.Until(time.UnixMilli(j.Args.Until)); wait > 0 {
		return engine.Snooze(wait)
	}
	return nil
}

func slow(ctx context.Context, j *job) error {
	select {
	case <-time.After(time.Duration(j.Args.Work) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// long works in steps, with a line for each, and leaves a result.
func long(ctx context.Context, j *job) error {
	const steps = 5
	for i := range steps {
		j.Log().Info("step", "step", i)
		select {
		case <-time.After(time.Duration(j.Args.Work) * time.Millisecond / steps):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return j.SetResult(map[string]string{"ref": j.Args.Ref})
}

// deaf goes on after its deadline the first time, longer than its run is waited for.
func deaf(_ context.Context, j *job) error {
	if j.Attempt == 1 {
		time.Sleep(900 * time.Millisecond)
	}
	return nil
}

func inTx(ctx context.Context, pool *pgxpool.Pool, j *job, work func(context.Context, pgx.Tx, *job) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return work(ctx, tx, j) })
}

func writeEffect(ctx context.Context, tx pgx.Tx, j *job) error {
	_, err := tx.Exec(ctx, "INSERT INTO chaos.effects (job_id, fencing_token) VALUES ($1, $2)", j.ID, j.FencingToken)
	return err
}

func completeWithEffect(ctx context.Context, tx pgx.Tx, j *job) error {
	if err := writeEffect(ctx, tx, j); err != nil {
		return err
	}
	if j.Args.Work > 0 {
		time.Sleep(time.Duration(j.Args.Work) * time.Millisecond)
	}
	return engine.CompleteTx(ctx, tx)
}

func effectOnce(ctx context.Context, tx pgx.Tx, j *job) error {
	_, err := engine.Once(ctx, tx, j.Args.Ref, func(ctx context.Context) error { return writeEffect(ctx, tx, j) })
	return err
}
