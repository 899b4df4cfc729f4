package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// finish ends runs of the first lease as the finisher does: close, drop, commit. A plain success that meets a closed run
// asks again with the careful statement.
func finish(v verdict, jobs ...int) program {
	return program{steps: 3, run: func(a *actor) { a.finish(a.w.token, v, dropClosed, jobs...) }}
}

type dropper func(ctx context.Context, a *actor, token int64) error

func dropClosed(ctx context.Context, a *actor, token int64) error {
	_, err := a.w.q.DropClosedClaims(ctx, a.tx, []int64{token}, keeper)
	return err
}

func (a *actor) finish(token int64, v verdict, drop dropper, jobs ...int) {
	w := a.w
	xs := make([]ended, len(jobs))
	for i, j := range jobs {
		xs[i] = w.ending(w.jobs[j], token, v)
	}
	closed := map[key]Outcome{}
	send := func(careful bool) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := a.begin(ctx); err != nil {
				return err
			}
			return a.close(ctx, careful, closed, xs...)
		}
	}
	err := a.step(send(false))
	if notAsTold(err) {
		err = a.step(func(ctx context.Context) error {
			if err := a.tx.Rollback(ctx); err != nil {
				return err
			}
			return send(true)(ctx)
		})
	}
	if err == nil {
		err = a.step(func(ctx context.Context) error { return drop(ctx, a, token) })
	}
	if !a.end(err) {
		return
	}
	for i := range xs {
		k := xs[i].key()
		if o, ok := closed[k]; ok {
			w.accept(k, o)
		} else {
			w.refused(k)
		}
	}
}

func (a *actor) close(ctx context.Context, careful bool, closed map[key]Outcome, xs ...ended) error {
	fast, slow := a.w.batch(keeper, careful, xs...)
	fast.Whole, slow.Whole = !careful, !careful
	if !careful {
		for i := range xs {
			closed[xs[i].key()] = xs[i].verdict.outcome
		}
	} else {
		clear(closed)
	}
	if len(fast.JobIds) > 0 {
		_, err := a.w.q.CompleteJobs(ctx, a.tx, fast)
		return err
	}
	rows, err := a.w.q.CloseJobs(ctx, a.tx, slow)
	for _, r := range rows {
		closed[key{r.JobID, r.FencingToken}] = Outcome(r.Outcome)
	}
	return err
}

var (
	completes  = verdict{outcome: OutcomeCompleted}
	fails      = verdict{outcome: OutcomeFailed, next: nextScheduled, carried: 1, delay: 0}
	dies       = verdict{outcome: OutcomeFailed, next: next(ReasonExhausted), carried: 1}
	handsBack  = verdict{outcome: OutcomeHandedBack, next: nextReady}
	crashes    = verdict{outcome: OutcomeCrashed, next: nextReady, crashes: 1}
	completeTx = completeInTx(true)
	rolledBack = completeInTx(false)
)

// completeInTx is a handler that completes the first job inside its own transaction, does a little more, and commits or not.
func completeInTx(commit bool) program {
	return program{steps: 3, run: func(a *actor) {
		k, n := key{a.w.jobs[0], a.w.token}, int64(0)
		err := a.step(func(ctx context.Context) (err error) {
			if err := a.begin(ctx); err != nil {
				return err
			}
			n, err = a.w.q.CompleteJobInTx(ctx, a.tx, dbsqlc.CompleteJobInTxParams{JobID: k.id, Token: k.token, StartedAt: time.Now(), WaitMs: 1, Attempt: 1})
			return err
		})
		if err == nil {
			err = a.step(func(ctx context.Context) error { _, err := a.tx.Exec(ctx, "SELECT 1"); return err })
		}
		if n == 0 {
			a.w.refused(k) // the handler's transaction fails
		}
		if !commit || n == 0 {
			_ = a.step(func(ctx context.Context) error { return a.tx.Rollback(ctx) })
			return
		}
		if a.end(err) {
			a.w.accept(k, OutcomeCompleted)
		}
	}}
}

// completeJob is the same through the SQL door.
var completeJob = program{steps: 2, run: func(a *actor) {
	k := key{a.w.jobs[0], a.w.token}
	err := a.step(func(ctx context.Context) error {
		if err := a.begin(ctx); err != nil {
			return err
		}
		_, err := a.tx.Exec(ctx, "SELECT complete_job($1, $2)", k.id, k.token)
		return err
	})
	if sqlState(err) == "40001" {
		a.w.refused(k)
		_ = a.step(func(ctx context.Context) error { return a.tx.Rollback(ctx) })
		return
	}
	if a.end(err) {
		a.w.accept(k, OutcomeCompleted)
	}
}}

// simple is a caller of one statement in a transaction. What answer returns runs once it is committed.
func simple(do func(ctx context.Context, a *actor) (answer func(), err error)) program {
	return program{steps: 2, run: func(a *actor) {
		answer := func() {}
		err := a.step(func(ctx context.Context) (err error) {
			if err := a.begin(ctx); err != nil {
				return err
			}
			answer, err = do(ctx, a)
			return err
		})
		if a.end(err) {
			answer()
		}
	}}
}

var reap = simple(func(ctx context.Context, a *actor) (func(), error) {
	rows, err := a.w.q.ReapClaims(ctx, a.tx, 0, nil, 0, 100, lostRunLimit, false)
	return func() {
		for _, r := range rows {
			a.w.accept(key{r.JobID, r.Token}, Outcome(r.Outcome))
		}
	}, err
})

var heartbeat = simple(func(ctx context.Context, a *actor) (func(), error) {
	kept, err := a.w.q.RenewLeases(ctx, a.tx, 30, keeper, []int64{a.w.token})
	return func() {
		if len(kept) > 0 {
			return
		}
		a.w.answered(func() string {
			var n int
			if err := a.w.admin.QueryRow(a.w.ctx, "SELECT count(*) FROM job_claims WHERE id = $1", a.w.token).Scan(&n); err != nil || n > 0 {
				return fmt.Sprintf("heartbeat: told that the lease is lost, but it stands; %v", err)
			}
			return ""
		})
	}, err
})

var releaseUnknown = simple(func(ctx context.Context, a *actor) (func(), error) {
	back, err := a.w.q.ReleaseUnknownClaims(ctx, a.tx, keeper, []int64{})
	return func() {
		for _, r := range back {
			a.w.accept(key{r.JobID, a.w.token}, Outcome(r.Outcome))
		}
	}, err
})

// claim takes up to most jobs: a suspect, else of the line.
func claim(most int) program {
	return simple(func(ctx context.Context, a *actor) (func(), error) {
		got := []key{}
		suspects, err := a.w.q.ClaimSuspects(ctx, a.tx, []string{DefaultQueue}, []string{"race"}, 1, 3, successor, 30)
		for _, r := range suspects {
			got = append(got, key{r.JobID, r.Token})
		}
		if err == nil && len(got) == 0 {
			var rows []dbsqlc.ClaimJobsRow
			rows, err = a.w.q.ClaimJobs(ctx, a.tx, claimParams(successor, most))
			for _, r := range rows {
				got = append(got, key{r.JobID, r.Token})
			}
		}
		return func() { a.w.claims(got) }, err
	})
}

// claims notes what a worker was given: each job to one at a time, under a token above all before.
func (w *world) claims(got []key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range got {
		for before := range w.claimed {
			if before.id != k.id {
				continue
			}
			if _, closed := w.accepted[before]; !closed {
				w.faults = append(w.faults, fmt.Sprintf("a job was given out under token %d while %d held it", k.token, before.token))
			}
		}
		if k.token <= w.token {
			w.faults = append(w.faults, fmt.Sprintf("token %d after %d", k.token, w.token))
		}
		w.claimed[k] = true
	}
}

var promote = simple(func(ctx context.Context, a *actor) (func(), error) {
	_, err := a.w.q.PromoteDue(ctx, a.tx, time.Unix(0, 0), 100)
	return func() {}, err
})

// runNow brings forward what waits for its time; what is due already it leaves.
var runNow = simple(func(ctx context.Context, a *actor) (func(), error) {
	rows, err := a.w.q.RunNow(ctx, a.tx, a.w.jobs[:1])
	if err == nil && len(rows) == 0 {
		_, err = a.w.q.IsDue(ctx, a.tx, a.w.jobs[0])
	}
	return func() {}, err
})

// park takes what no worker can run out of line, unpark brings it back.
var park = simple(func(ctx context.Context, a *actor) (func(), error) {
	_, err := a.w.q.ParkJobs(ctx, a.tx, []string{DefaultQueue}, []int16{1}, []string{"race"}, 100, 0)
	return func() {}, err
})

var unpark = simple(func(ctx context.Context, a *actor) (func(), error) {
	_, err := a.w.q.UnparkJobs(ctx, a.tx, []string{"race"}, 100)
	return func() {}, err
})

var expire = simple(func(ctx context.Context, a *actor) (func(), error) {
	rows, err := a.w.q.ExpireWaiting(ctx, a.tx, false, a.w.jobs)
	got := make([]key, len(rows))
	for i, r := range rows {
		got[i].id = r.JobID
		err = errors.Join(err, a.tx.QueryRow(ctx, "SELECT fencing_token FROM dead_letter_jobs WHERE job_id = $1", r.JobID).Scan(&got[i].token))
	}
	return func() {
		for _, k := range got {
			a.w.accept(k, OutcomeExpired)
		}
	}, err
})

// pruneDead removes what was discarded more than seven days ago.
var pruneDead = simple(func(ctx context.Context, a *actor) (func(), error) {
	gone, err := a.w.q.PruneDead(ctx, a.tx, RestoreWindow.Seconds(), -1, 100)
	return func() {
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
		for _, id := range gone {
			delete(a.w.accepted, key{id, a.w.token})
		}
	}, err
})

// act is an operator's act as Client.act does it: when nothing was there to move, the state decides whether to look again.
// must tells, at the end, what is wrong with the answer that it was done.
func act(name string, move func(ctx context.Context, a *actor) ([]key, error), done func(w *world, moved key)) program {
	return program{steps: 3, run: func(a *actor) {
		for try := 0; ; try++ {
			var moved []key
			err := a.step(func(ctx context.Context) (err error) {
				if err := a.begin(ctx); err != nil {
					return err
				}
				moved, err = move(ctx, a)
				return err
			})
			if !a.end(err) {
				return
			}
			if len(moved) > 0 {
				done(a.w, moved[0])
				return
			}
			state := &StateError{Act: name}
			err = a.step(func(ctx context.Context) error {
				s, err := a.w.q.GetJobState(ctx, a.conn, a.w.jobs[0])
				state.State, state.Discarded = State(s.State), s.Discarded
				return err
			})
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				return // pruned
			case err != nil:
				a.w.fault("%s: read the state: %v", name, err)
				return
			case !state.mayApply():
				return
			case try == actTries:
				a.w.fault("%s: told that a job that is %s cannot be moved", name, state.State)
				return
			}
		}
	}}
}

var cancel = act("cancel", func(ctx context.Context, a *actor) (moved []key, err error) {
	rows, err := a.w.q.CancelWaiting(ctx, a.tx, a.w.jobs[:1])
	for _, r := range rows {
		moved = append(moved, key{r.JobID, r.FencingToken})
	}
	return moved, err
}, func(w *world, k key) { w.accept(k, OutcomeCancelled) })

var replay = act("replay", func(ctx context.Context, a *actor) (moved []key, err error) {
	rows, err := a.w.q.ReplayDead(ctx, a.tx, a.w.jobs[:1])
	for _, r := range rows {
		moved = append(moved, key{id: r.JobID})
	}
	return moved, err
}, func(w *world, k key) {
	w.answered(func() string {
		var n int
		if err := w.admin.QueryRow(w.ctx, "SELECT coalesce(replays, 0) FROM jobs WHERE id = $1", k.id).Scan(&n); err != nil || n == 0 {
			return fmt.Sprintf("replay: told done, the job has %d; %v", n, err)
		}
		return ""
	})
})

var discard = act("discard", func(ctx context.Context, a *actor) (moved []key, err error) {
	rows, err := a.w.q.DiscardDead(ctx, a.tx, a.w.jobs[:1])
	for _, r := range rows {
		moved = append(moved, key{id: r.JobID})
	}
	return moved, err
}, func(w *world, k key) {
	w.answered(func() string { return w.wantState(k.id, "discard", StateDeadLetter) })
})

var restore = act("restore", func(ctx context.Context, a *actor) (moved []key, err error) {
	rows, err := a.w.q.RestoreDead(ctx, a.tx, a.w.jobs[:1])
	for _, r := range rows {
		moved = append(moved, key{id: r.JobID})
	}
	return moved, err
}, func(w *world, k key) {
	w.answered(func() string { return w.wantState(k.id, "restore", StateDeadLetter, StatePending) })
})

func (w *world) wantState(id ID, act string, any ...State) string {
	s, err := w.q.GetJobState(w.ctx, w.admin, id)
	for _, want := range any {
		if err == nil && State(s.State) == want {
			return ""
		}
	}
	return fmt.Sprintf("%s: told done, but the job is %s; %v", act, s.State, err)
}

// edit gives the first job another priority. Whoever has the job after that, in line or by a claim, has it as edited.
func edit(priority int32) program {
	return act("edit", func(ctx context.Context, a *actor) ([]key, error) {
		row, err := a.w.q.EditWaiting(ctx, a.tx, a.w.jobs[0], &priority, nil, nil, nil, nil)
		if err != nil || row.Outcome == "absent" {
			return nil, err
		}
		return []key{{id: a.w.jobs[0]}}, nil
	}, func(w *world, k key) {
		w.answered(func() string {
			const odd = `SELECT count(*) FROM jobs AS j JOIN (SELECT job_id, priority, queue FROM job_ready UNION ALL
				SELECT job_id, priority, queue FROM job_scheduled UNION ALL SELECT job_id, priority, queue FROM job_held) AS p ON p.job_id = j.id
				WHERE j.id = $1 AND (p.priority <> j.priority OR p.queue <> j.queue) OR j.id = $1 AND j.priority NOT IN (0, 5)`
			var n int
			if err := w.admin.QueryRow(w.ctx, odd, k.id).Scan(&n); err != nil || n > 0 {
				return fmt.Sprintf("edit: told done, the job or its place is not so; %v", err)
			}
			return ""
		})
	})
}
