package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/rehearse"
)

func init() {
	rehearse.Run = rehearseRun
	rehearse.NewLedger = func(c ClientConfig) (any, error) { return newLedger(c) }
}

// rehearseRun makes the attempt-th run of a job in this process and answers what
// the finisher would write of it. The engine is a real one that is never started:
// its slots, decoding, middleware, deadline, watch and verdicts are used, its
// database is not. The end of ctx stands for what ends a handler's context.
func rehearseRun(ctx context.Context, c Config, args Args, o EnqueueOptions, attempt int) (rehearse.Ended, error) {
	c.Pool, c.Concurrency, c.MaintenanceOnly = new(pgxpool.Pool), 1, false // a pool that nobody asks
	e, err := New(c)
	if err != nil {
		return rehearse.Ended{}, err
	}
	defer e.endRuns(ErrStopping)
	r, err := e.rehearsed(args, o, attempt)
	if err != nil {
		return rehearse.Ended{}, err
	}
	if err := ctx.Err(); err != nil {
		return rehearse.Ended{}, fmt.Errorf("run %s: %w", r.row.Type, err)
	}
	stop := context.AfterFunc(ctx, func() { r.endFor(context.Cause(ctx)) })
	defer stop()
	e.running[0].Store(r)
	if r.begin(time.Now()) { // nobody settles a run before
		go e.handle(r)
	}
	return e.rehearsalEnd(r), nil
}

// rehearsed is a run as a claim would make it.
func (e *Engine) rehearsed(args Args, o EnqueueOptions, attempt int) (*run, error) {
	q, err := e.client.prepare(args, o)
	if err != nil {
		return nil, err
	}
	job := e.client.accepted(q)
	switch {
	case e.cfg.Workers.byType[q.jobType] == nil:
		return nil, fmt.Errorf("run %s: no worker is registered for this type; there are %q", q.jobType, e.types)
	case attempt < 1 || attempt > job.MaxAttempts:
		return nil, fmt.Errorf("run %s: attempt %d: use 1 to %d, the job's most", q.jobType, attempt, job.MaxAttempts)
	}
	now := time.Now()
	runs, cancel := context.WithCancelCause(e.runs)
	l := &lease{token: int64(attempt), claimedAt: now, seenAt: now, cancel: cancel}
	l.open.Store(1)
	r := &run{}
	e.fill(r, &dbsqlc.ClaimJobsRow{JobID: q.id, Type: q.jobType, Queue: q.queue, Priority: int16(q.priority), Attempt: int16(attempt - 1),
		MaxAttempts: int16(job.MaxAttempts), Token: l.token, ReadyAt: now, ClaimedAt: now, Payload: q.payload, ExpiresAt: q.expiresAt,
		TimeoutMs: q.timeoutMS, Backoff: q.backoff}, l, runs, false)
	return r, nil
}

// endFor ends the handler's context as the engine would for this cause. One that is
// none of the engine's is taken for the end of the process.
func (r *run) endFor(cause error) {
	switch {
	case errors.Is(cause, ErrStopRequested):
		r.stop()
	case errors.Is(cause, ErrLeaseLost):
		r.lease.cancel(ErrLeaseLost)
	default:
		r.engine.endRuns(ErrStopping)
		time.AfterFunc(stopHandlers, func() { r.settleOver(handedBack(r.row)) })
	}
}

// rehearsalEnd waits until the run is settled, by its handler or over its head.
func (e *Engine) rehearsalEnd(r *run) rehearse.Ended {
	pass := time.NewTicker(watchEvery)
	defer pass.Stop()
	for {
		select {
		case <-e.finisher.signal:
			x := e.finisher.next()[0]
			return x.rehearsal(errors.Is(context.Cause(r.ctx), ErrLeaseLost))
		case <-pass.C:
			_ = e.watch(e.loops) // it answers nil
		}
	}
}

func (x *ended) rehearsal(refused bool) rehearse.Ended {
	v := x.verdict
	return rehearse.Ended{Outcome: int16(v.outcome), Next: string(v.next), Delay: v.delay, Used: v.carried, Class: v.class, Message: v.message,
		Stack: v.stack, Fingerprint: v.fingerprint, Logs: x.logs, Result: x.result, Percent: x.percent, ProgressText: x.text, Refused: refused}
}
