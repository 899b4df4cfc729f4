package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// askedToStop sets up n jobs in one lease that has just expired, the first of them asked to stop.
func askedToStop(n int) func(*world) error {
	return func(w *world) error {
		if err := leased(n)(w); err != nil {
			return err
		}
		worker, err := w.q.MarkStop(w.ctx, w.admin, w.jobs[0], w.token)
		return errors.Join(err, w.q.NoteStopRequest(w.ctx, w.admin, w.jobs[0], w.token, worker, "ann", nil))
	}
}

// requestStop is Client.RequestStop, a statement a step: from the answer on the job does not run again.
var requestStop = program{steps: 4, run: func(a *actor) {
	for try := 0; try <= actTries; try++ {
		again, done := a.requestStop()
		if done {
			a.w.answered(func() string { return a.w.wantState(a.w.jobs[0], "stop", StateLeased, StateCompleted, StateCancelled) })
		}
		if !again {
			return
		}
	}
	a.w.fault("stop: told that a running job cannot be stopped")
}}

func (a *actor) requestStop() (again, done bool) {
	w, id := a.w, a.w.jobs[0]
	var s dbsqlc.GetJobStateRow
	var worker int64
	err := a.step(func(ctx context.Context) (err error) {
		if err := a.begin(ctx); err != nil {
			return err
		}
		s, err = w.q.GetJobState(ctx, a.tx, id)
		return err
	})
	leased := State(s.State) == StateLeased
	if err == nil && leased {
		err = a.step(func(ctx context.Context) (err error) {
			worker, err = w.q.MarkStop(ctx, a.tx, id, s.FencingToken)
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			var marked bool
			err = a.step(func(ctx context.Context) (err error) {
				marked, err = w.q.IsStopMarked(ctx, a.tx, s.FencingToken, id)
				return err
			})
			return a.end(err) && !marked, false
		}
	}
	open := false
	if err == nil && leased {
		err = a.step(func(ctx context.Context) error {
			_, err := w.q.GetExecutionOutcome(ctx, a.tx, id, s.FencingToken)
			if open = errors.Is(err, pgx.ErrNoRows); open {
				err = w.q.NoteStopRequest(ctx, a.tx, id, s.FencingToken, worker, "ann", nil)
			}
			return err
		})
	}
	return a.end(err) && leased && !open, open
}

// revoke is the leader's answer to a request that nobody has answered.
var revoke = program{steps: 3, run: func(a *actor) {
	w, id := a.w, a.w.jobs[0]
	var closed []dbsqlc.RevokeJobRow
	err := a.step(func(ctx context.Context) error {
		if err := a.begin(ctx); err != nil {
			return err
		}
		asked, err := w.q.ListOverdueStops(ctx, a.tx, -1, 10)
		if err != nil || len(asked) == 0 {
			return err
		}
		_, err = w.q.LockClaim(ctx, a.tx, asked[0].FencingToken)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		closed = make([]dbsqlc.RevokeJobRow, 1)
		return err
	})
	if err == nil && closed != nil {
		err = a.step(func(ctx context.Context) (err error) {
			if closed, err = w.q.RevokeJob(ctx, a.tx, id, w.token, "no answer"); err != nil {
				return err
			}
			return w.q.DropStopRequest(ctx, a.tx, id, w.token)
		})
	}
	if a.end(err) {
		for _, r := range closed {
			w.accept(key{r.JobID, r.FencingToken}, OutcomeCancelled)
		}
	}
}}

// flush tells of the first job's run. Told that it was written, its run had not ended then; told that it was refused, it had.
var flush = simple(func(ctx context.Context, a *actor) (func(), error) {
	k := key{a.w.jobs[0], a.w.token}
	kept, err := a.w.q.FlushLive(ctx, a.tx, dbsqlc.FlushLiveParams{Claims: []int64{k.token}, WorkerID: keeper, Tokens: []int64{k.token},
		JobIds: []ID{k.id}, Progress: []float32{50}, ProgressTexts: []string{"half"}, Logs: []string{`[{"n": 1}]`}})
	return func() {
		if len(kept) == 0 {
			a.w.refused(k)
		}
	}, err
})

// finishByKeyShare is a failure closed by the statement as it was before stop requests.
var finishByKeyShare = simple(func(ctx context.Context, a *actor) (func(), error) {
	k := key{a.w.jobs[0], a.w.token}
	_, p := a.w.batch(keeper, true, a.w.ending(k.id, k.token, fails))
	weak := strings.Replace(dbsqlc.CloseJobs, "FOR SHARE", "FOR KEY SHARE", 1)
	if weak == dbsqlc.CloseJobs {
		return nil, fmt.Errorf("CloseJobs has no FOR SHARE")
	}
	rows, err := a.tx.Query(ctx, weak, p.Claims, p.WorkerID, p.JobIds, p.Tokens, p.Attempts, p.Carried, p.Crashes, p.Started, p.StartedAt, p.WaitMs,
		p.Outcomes, p.Next, p.DelaySeconds, p.Classes, p.Errors, p.Stacks, p.Fingerprints, p.Logs, p.Results, p.Progress, p.ProgressTexts, p.DiscardDead, p.Worker, false)
	if err != nil {
		return nil, err
	}
	closed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[dbsqlc.CloseJobsRow])
	return func() {
		for _, r := range closed {
			a.w.accept(key{r.JobID, r.FencingToken}, Outcome(r.Outcome))
		}
	}, err
})
