package enginetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/rehearse"
)

var newLedger = rehearse.NewLedger.(func(engine.ClientConfig) (any, error))

// ledger is package engine's book of what was enqueued.
type ledger interface {
	Enqueue(args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error)
	EnqueueMany(items []engine.EnqueueItem) ([]engine.Enqueued, error)
	Each(yield func(job engine.Enqueued, payload []byte))
}

// Recorder is an [engine.Enqueuer] that keeps jobs instead of storing them. It checks
// and answers as a [engine.Client] does: limits, payloads, a repeated idempotency key, a
// unique key that a job holds. None of its jobs ever runs and no time passes, so that a
// key once taken stays taken; a type that no worker knows is accepted, as by a client,
// and refused by [Run]. The zero value is ready; it is safe for many goroutines.
type Recorder struct {
	// Config has the client's limits and defaults. Pool is not looked at.
	Config engine.ClientConfig

	once sync.Once
	book ledger
	err  error
}

var _ engine.Enqueuer = (*Recorder)(nil)

func (r *Recorder) ledger(ctx context.Context) (ledger, error) {
	r.once.Do(func() {
		book, err := newLedger(r.Config)
		if r.err = err; err == nil {
			r.book = book.(ledger)
		}
	})
	if r.err != nil {
		return nil, r.err
	}
	return r.book, ctx.Err()
}

// Enqueue implements [engine.Enqueuer].
func (r *Recorder) Enqueue(ctx context.Context, args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error) {
	book, err := r.ledger(ctx)
	if err != nil {
		return engine.Enqueued{}, err
	}
	return book.Enqueue(args, o)
}

// EnqueueTx implements [engine.Enqueuer]. tx may be nil: the recorder does not see
// whether it commits.
func (r *Recorder) EnqueueTx(ctx context.Context, _ pgx.Tx, args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error) {
	return r.Enqueue(ctx, args, o)
}

// EnqueueSQLTx implements [engine.Enqueuer], as EnqueueTx.
func (r *Recorder) EnqueueSQLTx(ctx context.Context, _ *sql.Tx, args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error) {
	return r.Enqueue(ctx, args, o)
}

// EnqueueMany implements [engine.Enqueuer]: all or none.
func (r *Recorder) EnqueueMany(ctx context.Context, items []engine.EnqueueItem) ([]engine.Enqueued, error) {
	book, err := r.ledger(ctx)
	if err != nil {
		return nil, err
	}
	return book.EnqueueMany(items)
}

// Recorded is a job that a [Recorder] keeps.
type Recorded struct {
	engine.Enqueued
	Payload json.RawMessage
}

// Jobs returns what was enqueued, in order; a duplicate adds nothing.
func (r *Recorder) Jobs() []Recorded {
	book, err := r.ledger(context.Background())
	if err != nil {
		return nil
	}
	var jobs []Recorded
	book.Each(func(job engine.Enqueued, payload []byte) { jobs = append(jobs, Recorded{job, payload}) })
	return jobs
}

// ArgsOf returns the arguments of the jobs of T's type, in order, decoded as a worker
// would get them.
func ArgsOf[T engine.Args](r *Recorder) ([]T, error) {
	var list []T
	for _, job := range r.Jobs() {
		var args T
		if job.Type != args.JobType() {
			continue
		}
		if err := json.Unmarshal(job.Payload, &args); err != nil {
			return nil, fmt.Errorf("decode payload of job %s: %w", job.ID, err)
		}
		list = append(list, args)
	}
	return list, nil
}
