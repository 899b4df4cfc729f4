package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// RequestStop asks a running job to stop. Its handler's context ends with the
// cause [ErrStopRequested], at the latest with the worker's next heartbeat; a
// handler that returns nil even so has completed the job, whatever else it
// returns cancels it. One that has not returned [Config.StopGrace] later loses
// its run: the job is cancelled over its head and what it brings is refused.
// From the answer on the job does not run again. Errors: [ErrJobNotFound];
// *[StateError] for a job that does not run; [ErrStopPending].
func (c *Client) RequestStop(ctx context.Context, id ID, a Actor) error {
	var worker int64
	err := c.act(ctx, "stop", id, a, func(tx pgx.Tx) (done bool, err error) {
		worker, done, err = c.markStop(ctx, tx, id, a)
		return done, err
	})
	if err != nil {
		return err
	}
	c.log.InfoContext(ctx, LogJobStopRequested, "job_id", id.String(), "worker_id", worker, "actor", a.Name)
	// A hint: without it the worker learns of it with its next heartbeat.
	_ = c.q.Notify(ctx, c.pool, channelStop, strconv.FormatInt(worker, 10))
	return nil
}

// markStop marks the run in its lease, then looks whether the run has ended: a
// closer that came first has committed by then, one that comes later sees the
// mark. The mark of a run that had ended changes nothing.
func (c *Client) markStop(ctx context.Context, tx pgx.Tx, id ID, a Actor) (worker int64, done bool, err error) {
	s, err := c.q.GetJobState(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && State(s.State) != StateLeased {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	worker, err = c.q.MarkStop(ctx, tx, id, s.FencingToken)
	if errors.Is(err, pgx.ErrNoRows) {
		marked, err := c.q.IsStopMarked(ctx, tx, s.FencingToken, id)
		if err == nil && marked {
			err = ErrStopPending
		}
		return 0, false, err
	}
	if err != nil {
		return 0, false, err
	}
	if _, err = c.q.GetExecutionOutcome(ctx, tx, id, s.FencingToken); !errors.Is(err, pgx.ErrNoRows) {
		return 0, false, err
	}
	return worker, true, c.q.NoteStopRequest(ctx, tx, id, s.FencingToken, worker, a.Name, optional(a.Reason))
}

// asked tells whether the run of a job of this lease should stop.
func (l *lease) asked(id ID) bool {
	stops := l.stops.Load()
	return stops != nil && slices.Contains(*stops, id)
}

// deliverStops passes on what a heartbeat brought. Runs that wait for a slot
// find it out when they get one.
func (e *Engine) deliverStops(leases []dbsqlc.RenewLeasesRow) {
	for _, x := range leases {
		e.leases.mu.Lock()
		l := e.leases.held[x.ID]
		e.leases.mu.Unlock()
		if l == nil {
			continue
		}
		l.stops.Store(&x.Stops)
		for i := range e.running {
			if r := e.running[i].Load(); r != nil && r.lease == l && slices.Contains(x.Stops, r.row.ID) {
				fault.Point("request.delivered")
				r.stop()
			}
		}
	}
}

// stop ends the handler's context, once, and starts its grace.
func (r *run) stop() {
	if !r.stopAt.CompareAndSwap(0, time.Now().UnixNano()) {
		return
	}
	if ctx := r.handler.Load(); ctx != nil {
		ctx.halt(ErrStopRequested)
	}
	r.engine.log.With(r.attrs()...).Info("job is asked to stop")
}

// revokeDeaf closes runs whose handlers went on after the grace of a stop
// request. Their slots stay taken, visibly, until they return. A run that called
// CompleteTx is left alone: its end waits in a transaction.
func (e *Engine) revokeDeaf(now time.Time) {
	for i := range e.running {
		r := e.running[i].Load()
		if r == nil || r.closedInTx.Load() {
			continue
		}
		at := r.stopAt.Load()
		if at == 0 || now.UnixNano()-at < int64(e.cfg.StopGrace) || !r.settleOver(stopped(r.row, outOfGrace(e.cfg.StopGrace))) {
			continue
		}
		e.log.With(r.attrs()...).Warn("handler ignores its stop request; its slot stays taken until it returns", "grace", e.cfg.StopGrace.String())
	}
}

func outOfGrace(grace time.Duration) error {
	return fmt.Errorf("the handler went on for %s after it was asked to stop", grace)
}

// stopped is for a run that did not complete after its job was asked to stop.
func stopped(row Row, err error) verdict {
	v := verdict{outcome: OutcomeCancelled, carried: row.Attempt, class: "stopped", message: "stopped as asked"}
	if err != nil && !interrupted(err) {
		v.message = clean("stopped as asked: "+err.Error(), maxErrorBytes)
	}
	return v
}

// beatOnHint asks at once when a notification tells of a stop request, instead
// of at the next heartbeat.
func (e *Engine) beatOnHint(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.stopHint:
		}
		call, cancel := e.dbContext()
		if err := e.beatOnce(call); err != nil {
			e.trouble("heartbeat", err)
		}
		cancel()
	}
}

// hintStop is called with the worker that a notification names.
func (e *Engine) hintStop(worker string) {
	if worker != strconv.FormatInt(e.workerID, 10) {
		return
	}
	select {
	case e.stopHint <- struct{}{}:
	default:
	}
}

const (
	// revokeMargin is what the leader waits beyond the grace and a heartbeat: a
	// worker that answers is given the first word.
	revokeMargin = 5 * time.Second
	revokeBatch  = 100
)

// revokeOnce revokes the runs of workers that do not answer their stop
// requests, and removes requests whose run ended otherwise.
func (e *Engine) revokeOnce(ctx context.Context) error {
	patience := e.cfg.StopGrace + e.cfg.HeartbeatInterval + min(revokeMargin, e.cfg.LeaseDuration)
	asked, err := e.q.ListOverdueStops(ctx, e.hot, patience.Seconds(), revokeBatch)
	if err != nil {
		return err
	}
	var failed []error
	for _, a := range asked {
		var pg *pgconn.PgError
		if err := e.revoke(ctx, a.JobID, a.FencingToken, patience); err != nil && !(errors.As(err, &pg) && pg.Code == "55P03") {
			failed = append(failed, err) // but not for a lock, which the next pass asks for again
		}
	}
	return errors.Join(failed...)
}

// revoke closes one run of a batch as cancelled, over its worker's head.
func (e *Engine) revoke(ctx context.Context, id ID, token int64, patience time.Duration) error {
	var closed []dbsqlc.RevokeJobRow
	var called []dbsqlc.CallBackRow
	err := pgx.BeginFunc(ctx, e.hot, func(tx pgx.Tx) (err error) {
		closed, err = e.revokeIn(ctx, tx, id, token, "its worker did not answer the stop request within "+patience.String())
		if err != nil || len(closed) == 0 {
			return err
		}
		called, err = e.client.callBack(ctx, tx, []ID{id})
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke job %s: %w", id, err)
	}
	e.client.calledBack(called)
	for _, r := range closed {
		e.obs.RunEnded(r.Queue, r.Type, OutcomeCancelled, 0, 0)
		e.log.Warn(LogJobCancelled, "job_id", id.String(), "job_type", r.Type, "queue", r.Queue, "worker_id", r.WorkerID, "attempt", r.Attempt,
			"fencing_token", token, "error_class", "stopped")
	}
	return nil
}

func (e *Engine) revokeIn(ctx context.Context, tx pgx.Tx, id ID, token int64, why string) ([]dbsqlc.RevokeJobRow, error) {
	if err := e.q.LimitLockWait(ctx, tx); err != nil {
		return nil, err
	}
	if _, err := e.q.LockClaim(ctx, tx, token); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	closed, err := e.q.RevokeJob(ctx, tx, id, token, why)
	if err != nil {
		return nil, err
	}
	for _, r := range closed {
		if err := e.count(ctx, tx, r.Queue, r.Type, OutcomeCancelled); err != nil {
			return nil, err
		}
	}
	return closed, e.q.DropStopRequest(ctx, tx, id, token)
}

// count adds one run without durations to the statistics.
func (e *Engine) count(ctx context.Context, tx pgx.Tx, queue, jobType string, o Outcome) error {
	for _, s := range tally([]ended{{run: &run{row: Row{Queue: queue, Type: jobType}, lease: &lease{}}, verdict: verdict{outcome: o}}}) {
		if err := e.q.AddStats(ctx, tx, s); err != nil {
			return err
		}
	}
	return nil
}
