package engine

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

const (
	reapBatch = 500 // jobs, and what more the last lease has
	// firstReapBatch is what a new leader begins with. What it has taken back stays so
	// if it does not live long either.
	firstReapBatch = 50
)

// reapPass is the reaper's. Who does not lead looks at the time too: a leader is not
// asleep because it led for the last time long ago.
func (e *Engine) reapPass(ctx context.Context) error {
	if e.slept() || !e.leader.leading() {
		return nil
	}
	return e.reapOnce(ctx)
}

// reapOnce takes back the jobs of expired leases. After an outage it gives the
// living one heartbeat's time to renew theirs first.
func (e *Engine) reapOnce(context.Context) error {
	if e.troubled.calmFor() < e.cfg.HeartbeatInterval {
		return nil
	}
	for {
		rows, called, err := e.reapStep()
		if err != nil {
			return err
		}
		e.reapedAt = wallClock()
		if len(rows) == 0 {
			break
		}
		fault.Point("reap.after")
		for i := range rows {
			e.tellReaped(&rows[i])
		}
		e.client.calledBack(called)
		if !e.leader.leading() {
			return nil
		}
	}
	ctx, cancel := e.dbContext()
	defer cancel()
	if _, err := e.q.ShortenLeases(ctx, e.hot, e.cfg.LeaseDuration.Seconds()); err != nil {
		return err
	}
	return e.q.NoteTask(ctx, e.hot, "reaper")
}

// wallClock is without the monotonic clock, which a suspended machine stops.
func wallClock() time.Time { return time.Now().Round(0) }

// reapStep takes back some leases in a transaction with a time of its own.
func (e *Engine) reapStep() (rows []dbsqlc.ReapClaimsRow, called []dbsqlc.CallBackRow, err error) {
	within := e.cfg.DBTimeout * e.batches.reap.patience()
	ctx, cancel := context.WithTimeout(e.db, within)
	defer cancel()
	fault.Point("reap.before")
	err = pgx.BeginFunc(ctx, e.hot, func(tx pgx.Tx) (err error) {
		if within > e.cfg.DBTimeout {
			if err = e.q.StatementTimeout(ctx, tx, strconv.FormatInt(within.Milliseconds(), 10)); err != nil {
				return err
			}
		}
		quiet := e.cfg.HeartbeatInterval
		rows, err = e.q.ReapClaims(ctx, tx, quiet.Seconds(), e.clock.latest(quiet), e.workerID, e.batches.reap.size(), lostRunLimit, e.cfg.DiscardDead)
		if err != nil || len(rows) == 0 {
			return err
		}
		fault.Point("reap.open")
		var over []ID
		for i := range rows {
			if r := &rows[i]; Outcome(r.Outcome) == OutcomeCancelled || int(r.Crashes) > lostRunLimit {
				over = append(over, r.JobID)
			}
		}
		if called, err = e.client.callBack(ctx, tx, over); err != nil {
			return err
		}
		return e.countReaped(ctx, tx, rows)
	})
	e.batches.reap.after(err)
	return rows, called, err
}

// slept tells whether this process, and maybe the machine with all its workers,
// stood still since the last pass; it answers true for one heartbeat after.
func (e *Engine) slept() bool {
	now := wallClock()
	still := !e.reapedAt.IsZero() && now.Sub(e.reapedAt) > e.cfg.ReaperInterval+e.cfg.HeartbeatInterval+e.cfg.DBTimeout
	e.reapedAt = now
	if still {
		e.troubled.note()
	}
	return still
}

func (e *Engine) tellReaped(r *dbsqlc.ReapClaimsRow) {
	e.obs.LeaseReaped(r.Queue)
	e.obs.RunEnded(r.Queue, r.Type, Outcome(r.Outcome), 0, 0)
	l := e.log.With("job_id", r.JobID.String(), "job_type", r.Type, "queue", r.Queue, "worker_id", e.workerID, "attempt", r.Attempt+1,
		"fencing_token", r.Token, "lost_worker_id", r.WorkerID, "expired_at", r.LeaseExpiresAt.UTC(), "crashes", r.Crashes)
	l.Warn(LogStaleLockRecovered)
	if Outcome(r.Outcome) == OutcomeCancelled {
		l.Info(LogJobCancelled)
		return
	}
	if int(r.Crashes) > lostRunLimit {
		e.obs.JobDied(r.Queue, r.Type, ReasonPoison)
		l.Error(LogJobFailedPermanently, "reason", string(ReasonPoison))
		return
	}
	e.client.notify.queue(r.Queue)
	e.claimer.wake(r.Queue)
}

func (e *Engine) countReaped(ctx context.Context, tx pgx.Tx, rows []dbsqlc.ReapClaimsRow) error {
	batch := make([]ended, len(rows))
	for i, r := range rows {
		batch[i] = ended{run: &run{row: Row{Queue: r.Queue, Type: r.Type}, lease: &lease{}}, verdict: verdict{outcome: Outcome(r.Outcome)}}
	}
	for _, s := range tally(batch) {
		if err := e.q.AddStats(ctx, tx, s); err != nil {
			return err
		}
	}
	return nil
}

const (
	foldEvery = 5 * time.Second
	foldBatch = 10_000
)

// foldOnce sums finished batches into minutes.
func (e *Engine) foldOnce(ctx context.Context) error {
	_, err := e.q.FoldStats(ctx, e.hot, e.batches.fold.size())
	e.batches.fold.after(err)
	fault.Point("stats.folded")
	e.obs.TaskDone("stats", err)
	return err
}
