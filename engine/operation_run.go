package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

const (
	operateBatch = 500
	operateEvery = time.Second // how soon a new operation is seen
	canaryLook   = time.Second
	// haltAfter is how many of the last jobs must have run before they say anything,
	// and how many of them are looked at.
	haltAfter  = 5
	haltWindow = 200
)

// operateOnce makes the steps that are due. Each is one transaction that holds the
// operation's row, so that any number of processes may do this; the next step goes
// on from what the last one wrote.
func (e *Engine) operateOnce(context.Context) error {
	for e.loops.Err() == nil {
		ctx, cancel := e.dbContext()
		worked, err := e.operateStep(ctx)
		cancel()
		if err != nil || !worked {
			return err
		}
	}
	return nil
}

func (e *Engine) operateStep(ctx context.Context) (worked bool, err error) {
	var moved []line
	var id ID
	err = pgx.BeginFunc(ctx, e.hot, func(tx pgx.Tx) error {
		o, err := e.q.TakeOperation(ctx, tx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		worked, id = true, o.ID
		moved, err = e.step(ctx, tx, &o)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("operation %s: %w", id, err)
	}
	for _, l := range moved {
		e.client.notify.queue(l.queue)
		e.claimer.wake(l.queue)
		if l.replayed {
			e.obs.JobReplayed(l.queue, l.jobType)
		}
	}
	return worked, nil
}

// line is where an operation put a job.
type line struct {
	queue, jobType string
	replayed       bool
}

// step does the next part of an operation, or looks what came of the last one.
func (e *Engine) step(ctx context.Context, tx pgx.Tx, o *dbsqlc.TakeOperationRow) ([]line, error) {
	n, next, err := e.pacing(ctx, tx, o)
	if err != nil {
		return nil, err
	}
	// Asked last: what let a canary go on, and ran a moment ago, is judged here too.
	if bad, err := e.failsAgain(ctx, tx, o); err != nil || bad {
		return nil, err
	}
	at := o.Done + o.PassedOver
	next.ID = o.ID
	if n == 0 {
		return nil, e.q.AdvanceOperation(ctx, tx, next)
	}
	upTo := min(at+n, o.Total)
	moved, acted, err := e.operateOn(ctx, tx, o, at, upTo)
	if err != nil {
		return nil, err
	}
	if err := e.q.NoteOperationJobs(ctx, tx, o.ID, at, upTo, acted); err != nil {
		return nil, err
	}
	next.Done, next.PassedOver = int32(len(acted)), upTo-at-int32(len(acted))
	next.Finished = upTo == o.Total && Pace(o.Pace) != PaceCanary // which watches its last step too
	return moved, e.q.AdvanceOperation(ctx, tx, next)
}

// pacing tells how many jobs are due, and when to come back.
func (e *Engine) pacing(ctx context.Context, tx pgx.Tx, o *dbsqlc.TakeOperationRow) (int32, dbsqlc.AdvanceOperationParams, error) {
	at := o.Done + o.PassedOver
	next := dbsqlc.AdvanceOperationParams{Step: o.Step, StepFrom: o.StepFrom, StepAt: o.StepAt}
	switch Pace(o.Pace) {
	case PaceRate:
		each := time.Minute / time.Duration(*o.PerMinute)
		due := int64(0) // until StepAt, after a pause
		if passed := o.Now.Sub(o.StepAt); passed >= 0 {
			due = int64(passed/each) + 1 - int64(at-o.StepFrom)
		}
		n := int32(min(max(due, 0), operateBatch))
		next.WaitSeconds = max(o.StepAt.Add(time.Duration(at-o.StepFrom+n)*each).Sub(o.Now), 0).Seconds()
		return n, next, nil
	case PaceCanary:
		if end := min(o.StepFrom+o.Step, o.Total); at < end {
			return min(end-at, operateBatch), next, nil
		}
		j, err := e.q.JudgeOperation(ctx, tx, o.ID, o.StepFrom, at)
		if err != nil {
			return 0, next, err
		}
		if j.Judged < j.Acted {
			next.WaitSeconds = canaryLook.Seconds()
			return 0, next, nil
		}
		if at == o.Total {
			next.Finished = true
			return 0, next, nil
		}
		next.StepFrom, next.Step, next.StepAt = at, min(2*o.Step, MaxOperationJobs), o.Now
		return min(next.Step, operateBatch), next, nil
	case PaceAll:
	}
	return operateBatch, next, nil
}

// failsAgain halts a replay of which more than half of the last jobs that have run
// failed again.
func (e *Engine) failsAgain(ctx context.Context, tx pgx.Tx, o *dbsqlc.TakeOperationRow) (bool, error) {
	at := o.Done + o.PassedOver
	if OperationAction(o.Action) != OperateReplay || at == o.StepFrom {
		return false, nil
	}
	from := max(o.StepFrom, at-haltWindow)
	j, err := e.q.JudgeOperation(ctx, tx, o.ID, from, at)
	if err != nil || j.Judged < min(haltAfter, o.Total) || 2*j.Failed <= j.Judged {
		return false, err
	}
	why := fmt.Sprintf("%d of the last %d jobs that ran failed again", j.Failed, j.Judged)
	if err := e.q.HaltOperation(ctx, tx, why, o.ID); err != nil {
		return false, err
	}
	e.log.Warn(LogOperationHalted, "operation_id", o.ID.String(), "action", o.Action, "failed", j.Failed, "of", j.Judged, "done", o.Done, "total", o.Total)
	return true, e.client.recordOperation(ctx, tx, "operation halt", o.ID, 1, map[string]any{"state": OperationHalted, "why": why},
		Actor{Name: "operation", Source: "system"})
}

// operateOn acts on the jobs after at, up to upTo, that are still what they were.
func (e *Engine) operateOn(ctx context.Context, tx pgx.Tx, o *dbsqlc.TakeOperationRow, at, upTo int32) (moved []line, acted []ID, err error) {
	rows, err := e.q.ListOperationJobs(ctx, tx, o.ID, at, upTo)
	if err != nil {
		return nil, nil, err
	}
	ids := make([]ID, len(rows))
	for i, r := range rows {
		ids[i] = r.JobID
	}
	switch OperationAction(o.Action) {
	case OperateReplay, OperateDiscard:
		if ids, err = e.q.ListStillDead(ctx, tx, ids, o.CutOff); err != nil {
			return nil, nil, err
		}
		if OperationAction(o.Action) == OperateDiscard {
			rows, err := e.q.DiscardDead(ctx, tx, ids)
			for _, r := range rows {
				acted = append(acted, r.JobID)
			}
			return nil, acted, errors.Join(err, e.touch(ctx, tx, acted))
		}
		rows, err := e.replayMany(ctx, tx, ids)
		for _, r := range rows {
			acted, moved = append(acted, r.JobID), append(moved, line{r.Queue, r.Type, true})
		}
		return moved, acted, errors.Join(err, e.touch(ctx, tx, acted))
	case OperateCancel:
		rows, err := e.q.CancelWaiting(ctx, tx, ids)
		for _, r := range rows {
			acted = append(acted, r.JobID)
		}
		called, callErr := e.client.callBack(ctx, tx, acted)
		for _, r := range called {
			moved = append(moved, line{r.Queue, callbackType, false})
		}
		return moved, acted, errors.Join(err, callErr, e.touch(ctx, tx, acted))
	case OperateRunNow:
		rows, err := e.q.RunNow(ctx, tx, ids)
		for _, r := range rows {
			acted, moved = append(acted, r.JobID), append(moved, line{r.Queue, r.Type, false})
		}
		return moved, acted, errors.Join(err, e.touch(ctx, tx, acted))
	}
	return nil, nil, fmt.Errorf("operation %s: unknown action %q", o.ID, o.Action)
}

// replayMany replays dead letters. Those whose unique key another job holds by now
// stay dead; each of them is a savepoint of its own.
func (e *Engine) replayMany(ctx context.Context, tx pgx.Tx, ids []ID) ([]dbsqlc.ReplayDeadRow, error) {
	if _, err := e.client.callBack(ctx, tx, ids); err != nil { // what is owed for the lives that are over
		return nil, err
	}
	keyed, err := e.q.ListKeyed(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	plain := slices.DeleteFunc(slices.Clone(ids), func(id ID) bool { return slices.Contains(keyed, id) })
	all, err := e.q.ReplayDead(ctx, tx, plain)
	if err != nil {
		return nil, err
	}
	for _, id := range keyed {
		var rows []dbsqlc.ReplayDeadRow
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			if rows, err = e.q.ReplayDead(ctx, tx, []ID{id}); err != nil {
				return err
			}
			return e.client.takeKeyAgain(ctx, tx, id)
		})
		var held *UniqueConflictError
		switch {
		case errors.As(err, &held), errors.Is(err, ErrUniqueInFlight):
		case err != nil:
			return nil, err
		default:
			all = append(all, rows...)
		}
	}
	return all, nil
}

func (e *Engine) touch(ctx context.Context, tx pgx.Tx, ids []ID) error {
	if len(ids) == 0 {
		return nil
	}
	return e.q.TouchJobs(ctx, tx, ids)
}
