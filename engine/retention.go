package engine

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

const (
	pruneEvery   = 10 * time.Second
	pruneBatch   = 5000
	auditBatch   = 500 // its head is locked meanwhile: no act is committed
	refusedKept  = 30 * 24 * time.Hour
	minutesKept  = 90 * 24 * time.Hour
	workersKept  = 24 * time.Hour
	fullPassTime = 24 * time.Hour
)

// forever stands in for a retention without end: longer than any job is old.
const forever = 100 * 365 * 24 * time.Hour

func keep(d time.Duration) float64 {
	if d < 0 {
		return forever.Seconds()
	}
	return d.Seconds()
}

// pruneOnce removes what is past its time, in small steps, and buries what
// expired before it could run.
func (e *Engine) pruneOnce(context.Context) error {
	err := errors.Join(e.expireWaiting(), e.callOwed(), e.sweepUniqueKeys(), e.pruneDead(), e.pruneRest(), e.pruneJobs())
	e.obs.TaskDone("retention", err)
	return err
}

// sweep repeats a call until it finds less than it asked for, or until a tenth of
// the time between two passes is used. Each call has a time of its own.
func (e *Engine) sweep(size *batchSize, call func(ctx context.Context, most int32) (int64, error)) error {
	for began := time.Now(); ; {
		most := size.size()
		n, err := e.sweepCall(size, call)
		if err != nil || n < int64(most) || time.Since(began) > pruneEvery/10 || !e.leader.leading() {
			return err
		}
	}
}

func (e *Engine) sweepCall(size *batchSize, call func(ctx context.Context, most int32) (int64, error)) (int64, error) {
	ctx, cancel := e.dbContext()
	defer cancel()
	n, err := call(ctx, size.size())
	size.after(err)
	return n, err
}

func (e *Engine) pruneDead() error {
	dead := -1.0
	if e.cfg.Retention.Dead > 0 {
		dead = e.cfg.Retention.Dead.Seconds()
	}
	return e.sweep(&e.batches.dead, func(ctx context.Context, most int32) (int64, error) {
		gone, err := e.q.PruneDead(ctx, e.hot, RestoreWindow.Seconds(), dead, most)
		return int64(len(gone)), err
	})
}

func (e *Engine) pruneRest() error {
	b := &e.batches
	return errors.Join(
		e.sweep(&b.keys, func(ctx context.Context, most int32) (int64, error) { return e.q.PruneKeys(ctx, e.hot, most) }),
		e.sweep(&b.refused, func(ctx context.Context, most int32) (int64, error) {
			return e.q.PruneRefusedWrites(ctx, e.hot, refusedKept.Seconds(), most)
		}),
		e.sweep(&b.minutes, func(ctx context.Context, most int32) (int64, error) {
			return e.q.PruneMinutes(ctx, e.hot, minutesKept.Seconds(), most)
		}),
		e.sweep(&b.audit, func(ctx context.Context, most int32) (int64, error) {
			n, err := e.q.PruneAudit(ctx, e.hot, most, keep(e.cfg.Retention.Audit))
			return int64(n), err
		}),
		e.sweep(&b.live, func(ctx context.Context, most int32) (int64, error) {
			return e.q.SweepLive(ctx, e.hot, liveKept.Seconds(), most)
		}),
		e.forgetWorkers())
}

func (e *Engine) forgetWorkers() error {
	ctx, cancel := e.dbContext()
	defer cancel()
	_, err := e.q.ForgetWorkers(ctx, e.hot, workersKept.Seconds())
	return err
}

// pruneJobs walks jobs in id order, which is the order of their making, and
// keeps its place in the database. Unfinished and dead jobs are passed over;
// once a day the walk begins anew and comes back for them.
func (e *Engine) pruneJobs() error {
	const task = "retention"
	ctx, cancel := e.dbContext()
	defer cancel()
	after, err := e.cursor(ctx, task)
	if err != nil {
		return err
	}
	r := e.cfg.Retention
	cutoff := time.Now().Add(-min(keptFor(r.Completed), keptFor(r.Cancelled)))
	err = e.sweep(&e.batches.prune, func(ctx context.Context, most int32) (int64, error) {
		step, err := e.q.PruneStep(ctx, e.hot, after, most, keep(r.Completed), keep(r.Cancelled))
		if err != nil {
			return 0, err
		}
		if step.Pruned > 0 {
			fault.Point("retention.pruned")
			e.log.Info("finished jobs removed", "worker_id", e.workerID, "jobs", step.Pruned)
		}
		if step.LastID == uuid.Nil || madeAt(step.LastID).After(cutoff) {
			return 0, nil // younger jobs only: from here on nothing is past its time
		}
		after = step.LastID
		return int64(step.Seen), nil
	})
	if err != nil {
		return err
	}
	ctx, cancel = e.dbContext()
	defer cancel()
	return e.q.SetCursor(ctx, e.hot, task, &after)
}

func keptFor(d time.Duration) time.Duration {
	if d < 0 {
		return forever
	}
	return d
}

func (e *Engine) cursor(ctx context.Context, task string) (ID, error) {
	if now := time.Now(); now.Sub(e.walkedAt) > fullPassTime {
		e.walkedAt = now
		return uuid.Nil, nil
	}
	at, err := e.q.GetCursor(ctx, e.hot, task)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && at == nil {
		return uuid.Nil, nil
	}
	if err != nil {
		return uuid.Nil, err
	}
	return *at, nil
}

// madeAt is the instant a UUIDv7 carries.
func madeAt(id ID) time.Time {
	ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	return time.UnixMilli(ms)
}
