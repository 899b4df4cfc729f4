package engine

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

const (
	expireBatch = 500
	// againSteps bounds how far one pass goes over what has expired before: 5,000
	// jobs. With 100,000 expired jobs kept, each is looked at every 200 s.
	againSteps = 10
)

// expiry is a walk over the jobs whose expires_at has passed, in that order.
type expiry struct {
	at time.Time
	id ID
}

// expireWaiting buries jobs whose expires_at passed while they waited, for their
// first run or another. It goes on where the last pass ended, and then some steps
// over what it has passed: a job that ran then may wait now, and one may have been
// committed late. Without the second walk such a job waits for its next claim,
// which for a type without a worker is never.
func (e *Engine) expireWaiting() error {
	size := &e.batches.expire
	if err := e.sweep(size, e.expireStep(&e.expired)); err != nil {
		return err
	}
	for range againSteps {
		most := size.size()
		n, err := e.sweepCall(size, e.expireStep(&e.expiredAgain))
		if err != nil {
			return err
		}
		if n < int64(most) {
			e.expiredAgain = expiry{}
			break
		}
	}
	return nil
}

// expireStep looks at the next jobs of a walk and answers how many there were.
func (e *Engine) expireStep(w *expiry) func(context.Context, int32) (int64, error) {
	return func(ctx context.Context, most int32) (int64, error) {
		rows, err := e.q.ListExpired(ctx, e.hot, w.at, w.id, most)
		if err != nil || len(rows) == 0 {
			return 0, err
		}
		ids := make([]uuid.UUID, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		dead, err := e.expireJobs(ctx, ids)
		if err != nil {
			return 0, err
		}
		for _, d := range dead {
			e.obs.JobDied(d.Queue, d.Type, ReasonExpired)
			e.log.Error(LogJobFailedPermanently, "job_id", d.JobID.String(), "job_type", d.Type, "queue", d.Queue, "worker_id", e.workerID,
				"reason", string(ReasonExpired))
		}
		last := rows[len(rows)-1]
		w.at, w.id = last.ExpiresAt, last.ID
		return int64(len(rows)), nil
	}
}

// expireJobs buries those of the jobs that have expired while they waited, and
// makes their callbacks with it.
func (e *Engine) expireJobs(ctx context.Context, ids []ID) (dead []dbsqlc.ExpireWaitingRow, err error) {
	var called []dbsqlc.CallBackRow
	err = pgx.BeginFunc(ctx, e.hot, func(tx pgx.Tx) (err error) {
		if dead, err = e.q.ExpireWaiting(ctx, tx, e.cfg.DiscardDead, ids); err != nil {
			return err
		}
		over := make([]ID, len(dead))
		for i, d := range dead {
			over[i] = d.JobID
		}
		called, err = e.client.callBack(ctx, tx, over)
		return err
	})
	if err != nil {
		return nil, err
	}
	fault.Point("retention.expired")
	e.client.calledBack(called)
	return dead, nil
}
