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
func (e *Engine) pruneOnce(ctx context.Context) error {
	err := errors.Join(e.expireWaiting(ctx), e.callOwed(ctx), e.sweepUniqueKeys(ctx), e.pruneDead(ctx), e.pruneRest(ctx), e.pruneJobs(ctx))
	e.obs.TaskDone("retention", err)
	return err
}

func (e *Engine) pruneDead(ctx context.Context) error {
	dead := -1.0
	if e.cfg.Retention.Dead > 0 {
		dead = e.cfg.Retention.Dead.Seconds()
	}
	_, err := e.q.PruneDead(ctx, e.hot, RestoreWindow.Seconds(), dead, pruneBatch)
	return err
}

func (e *Engine) pruneRest(ctx context.Context) error {
	_, keys := e.q.PruneKeys(ctx, e.hot, pruneBatch)
	_, refused := e.q.PruneRefusedWrites(ctx, e.hot, refusedKept.Seconds(), pruneBatch)
	_, minutes := e.q.PruneMinutes(ctx, e.hot, minutesKept.Seconds())
	_, workers := e.q.ForgetWorkers(ctx, e.hot, workersKept.Seconds())
	return errors.Join(keys, refused, minutes, workers, e.sweepLive(ctx))
}

// pruneJobs walks jobs in id order, which is the order of their making, and
// keeps its place in the database. Unfinished and dead jobs are passed over;
// once a day the walk begins anew and comes back for them. It uses at most a
// tenth of the time between two passes.
func (e *Engine) pruneJobs(ctx context.Context) error {
	const task = "retention"
	after, err := e.cursor(ctx, task)
	if err != nil {
		return err
	}
	cutoff := time.Now().Add(-min(keptFor(e.cfg.Retention.Completed), keptFor(e.cfg.Retention.Cancelled)))
	for began := time.Now(); time.Since(began) < pruneEvery/10 && ctx.Err() == nil; {
		step, err := e.q.PruneStep(ctx, e.hot, after, e.batches.prune.size(), keep(e.cfg.Retention.Completed), keep(e.cfg.Retention.Cancelled))
		e.batches.prune.after(err)
		if err != nil {
			return err
		}
		if step.Pruned > 0 {
			fault.Point("retention.pruned")
			e.log.Info("finished jobs removed", "worker_id", e.workerID, "jobs", step.Pruned)
		}
		if step.LastID == uuid.Nil || madeAt(step.LastID).After(cutoff) {
			break // younger jobs only: from here on nothing is past its time
		}
		after = step.LastID
	}
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
