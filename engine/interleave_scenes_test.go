package engine

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// staleFinish writes the end of a run whose lease was lost before.
func staleFinish(v verdict) program {
	return program{steps: 3, run: func(a *actor) { a.finish(a.w.token, v, dropClosed, 0) }}
}

var scenes = []scene{
	{"finish x reap x heartbeat", leased(1), []program{finish(completes, 0), reap, heartbeat}},
	{"finish x finish of a neighbour x reap x heartbeat", leased(2), []program{finish(completes, 0), finish(completes, 1), reap, heartbeat}},
	{"the same finish twice x reap", leased(1), []program{finish(completes, 0), finish(completes, 0), reap}},
	{"two different ends of one run x reap", leased(1), []program{finish(completes, 0), finish(fails, 0), reap}},
	{"failure x reap x claim", leased(1), []program{finish(fails, 0), reap, claim(1)}},
	{"failure x promote x claim x cancel", leased(1), []program{finish(fails, 0), promote, claim(1), cancel}},
	{"hand-back x reap x claim", leased(1), []program{finish(handsBack, 0), reap, claim(1)}},
	{"hand-back x cancel x claim", leased(1), []program{finish(handsBack, 0), cancel, claim(1)}},
	{"crash x reap x claim", leased(1), []program{finish(crashes, 0), reap, claim(1)}},
	{"death x reap x replay", leased(1), []program{finish(dies, 0), reap, replay}},
	{"CompleteTx x reap x heartbeat", leased(2), []program{completeTx, reap, heartbeat}},
	{"CompleteTx x reap x the rest of the batch", leased(2), []program{completeTx, reap, finish(completes, 1)}},
	{"CompleteTx rolled back x reap x heartbeat", leased(2), []program{rolledBack, reap, heartbeat}},
	{"CompleteTx rolled back x reap x the rest of the batch", leased(2), []program{rolledBack, reap, finish(completes, 1)}},
	{"fast finish with its fallback x CompleteTx x reap", leased(2), []program{finish(completes, 0, 1), completeTx, reap}},
	{"fast finish with its fallback x CompleteTx rolled back x reap", leased(2), []program{finish(completes, 0, 1), rolledBack, reap}},
	{"complete_job x finish x reap", leased(1), []program{completeJob, finish(completes, 0), reap}},
	{"CompleteTx x complete_job x heartbeat", leased(1), []program{completeTx, completeJob, heartbeat}},
	{"two reapers x finish", leased(2), []program{reap, reap, finish(completes, 0)}},
	{"two reapers x heartbeat x claim", leased(2), []program{reap, reap, heartbeat, claim(2)}},
	{"stale finish x new claim x heartbeat", reaped, []program{staleFinish(completes), claim(1), heartbeat}},
	{"stale failure x new claim x cancel", reaped, []program{staleFinish(fails), claim(1), cancel}},
	{"lost answer of a claim x finish x reap", leased(2), []program{releaseUnknown, finish(completes, 0), reap}},
	{"claim x claim x claim", ready(4), []program{claim(2), claim(2), claim(2)}},
	{"claim of a suspect x claim x cancel", reaped, []program{claim(1), claim(1), cancel}},
	{"promote x cancel x claim", scheduled, []program{promote, cancel, claim(1)}},
	{"promote x promote x cancel", scheduled, []program{promote, promote, cancel}},
	{"run now x promote x cancel", scheduled, []program{runNow, promote, cancel}},
	{"run now x run now x promote x claim", scheduled, []program{runNow, runNow, promote, claim(1)}},
	{"edit x claim x claim", ready(2), []program{edit(5), claim(2), claim(2)}},
	{"edit x edit x claim", ready(1), []program{edit(5), edit(0), claim(1)}},
	{"edit x cancel x claim", ready(1), []program{edit(5), cancel, claim(1)}},
	{"edit x promote x claim", scheduled, []program{edit(5), promote, claim(1)}},
	{"edit x promote x cancel", scheduled, []program{edit(5), promote, cancel}},
	{"edit x run now x promote", scheduled, []program{edit(5), runNow, promote}},
	{"edit x park x unpark", ready(1), []program{edit(5), park, unpark}},
	{"edit x expire x claim", ready(1), []program{edit(5), expire, claim(1)}},
	{"edit x failure x reap", leased(1), []program{edit(5), finish(fails, 0), reap}},
	{"promote x expire x cancel", scheduled, []program{promote, expire, cancel}},
	{"expire x claim x cancel", ready(2), []program{expire, claim(2), cancel}},
	{"park x claim x cancel", ready(2), []program{park, claim(2), cancel}},
	{"park x unpark x cancel", ready(1), []program{park, unpark, cancel}},
	{"park x unpark x claim x expire", ready(1), []program{park, unpark, claim(1), expire}},
	{"cancel x cancel x claim", ready(1), []program{cancel, cancel, claim(1)}},
	{"cancel x reap x claim", leased(1), []program{cancel, reap, claim(1)}},
	{"replay x replay x discard", dead(0), []program{replay, replay, discard}},
	{"replay x claim x discard", dead(0), []program{replay, claim(1), discard}},
	{"restore x prune x replay", dead(8 * 24 * time.Hour), []program{restore, pruneDead, replay}},
	{"stop x failure x promote x claim", leased(1), []program{requestStop, finish(fails, 0), promote, claim(1)}},
	{"stop x finish x reap", leased(1), []program{requestStop, finish(completes, 0), reap}},
	{"stop x hand-back x heartbeat x claim", leased(1), []program{requestStop, finish(handsBack, 0), heartbeat, claim(1)}},
	{"stop x reap x claim", leased(2), []program{requestStop, reap, claim(2)}},
	{"stop x death x replay", leased(1), []program{requestStop, finish(dies, 0), replay}},
	{"stop x stop x failure", leased(1), []program{requestStop, requestStop, finish(fails, 0)}},
	{"stop x CompleteTx x reap", leased(2), []program{requestStop, completeTx, reap}},
	{"stop x CompleteTx rolled back x failure", leased(2), []program{requestStop, rolledBack, finish(fails, 0)}},
	{"stop x lost answer of a claim x claim", leased(2), []program{requestStop, releaseUnknown, claim(1)}},
	{"stop x revoke x failure", leased(1), []program{requestStop, revoke, finish(fails, 0)}},
	{"finish x revoke x reap", askedToStop(1), []program{finish(completes, 0), revoke, reap}},
	{"failure x revoke x revoke", askedToStop(1), []program{finish(fails, 0), revoke, revoke}},
	{"CompleteTx x revoke x heartbeat", askedToStop(2), []program{completeTx, revoke, heartbeat}},
	{"CompleteTx rolled back x revoke x reap", askedToStop(2), []program{rolledBack, revoke, reap}},
	{"flush x revoke x reap", askedToStop(2), []program{flush, revoke, reap}},
	{"flush x finish x reap", leased(2), []program{flush, finish(fails, 0), reap}},
	{"flush x CompleteTx x reap", leased(2), []program{flush, completeTx, reap}},
	{"prune x prune x restore", dead(8 * 24 * time.Hour), []program{pruneDead, pruneDead, restore}},
}

// rejectedScenes play statements that were tried and given up: each lost something in some order.
var rejectedScenes = []scene{
	// It looks for open jobs with a snapshot that is older than the lock it waited for: duplicate key, and the whole pass is lost.
	{"reaper that looks by NOT EXISTS", leased(2), []program{finish(completes, 0), reapByLooking, heartbeat}},
	// A job that was counted as ended and was not stands nowhere.
	{"drop on the worker's own count", leased(2), []program{rolledBack, finishCounting(1), heartbeat}},
	// A job that is being promoted is seen in neither of its places.
	{"cancel that tries once", scheduled, []program{promote, cancelOnce}},
	// It reads the lease as it was before the request was committed, and the job runs again.
	{"closer that locks FOR KEY SHARE", leased(1), []program{requestStop, finishByKeyShare}},
	// The drop may run before the lock, and then nothing is inserted.
	{"finish and drop in one statement", leased(1), []program{finishAndDrop, heartbeat}},
}

const reapNotExists = `WITH dead AS (
	DELETE FROM job_claims AS k WHERE k.id = ANY(ARRAY(
		SELECT c.id FROM job_claims AS c WHERE c.lease_expires_at < now() ORDER BY c.id FOR UPDATE))
	RETURNING k.id, k.worker_id, k.claimed_at, k.job_ids),
gone AS (SELECT d.id, d.worker_id, d.claimed_at, unnest(d.job_ids) AS job_id FROM dead AS d),
lost AS (SELECT g.* FROM gone AS g WHERE NOT EXISTS (
	SELECT 1 FROM job_executions AS e WHERE e.job_id = g.job_id AND e.fencing_token = g.id)),
closed AS (
	INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, attempt, outcome)
	SELECT l.job_id, l.id, l.worker_id, l.claimed_at, 1, 6 FROM lost AS l RETURNING e.job_id, e.fencing_token),
back AS (
	INSERT INTO job_ready (job_id, queue, type, priority, crashes)
	SELECT j.id, j.queue, j.type, j.priority, 1 FROM closed JOIN jobs AS j ON j.id = closed.job_id)
SELECT closed.job_id, closed.fencing_token FROM closed`

var reapByLooking = simple(func(ctx context.Context, a *actor) (func(), error) {
	rows, err := a.tx.Query(ctx, reapNotExists)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var got []key
	for rows.Next() {
		var k key
		if err := rows.Scan(&k.id, &k.token); err != nil {
			return nil, err
		}
		got = append(got, k)
	}
	return func() {
		for _, k := range got {
			a.w.accept(k, OutcomeLeaseExpired)
		}
	}, rows.Err()
})

// finishCounting ends the second job of the lease and drops it, since by its own count the first has ended as well.
func finishCounting(jobs ...int) program {
	return program{steps: 3, run: func(a *actor) {
		a.finish(a.w.token, completes, func(ctx context.Context, a *actor, token int64) error {
			_, err := a.tx.Exec(ctx, "DELETE FROM job_claims WHERE id = $1", token)
			return err
		}, jobs...)
	}}
}

var cancelOnce = simple(func(ctx context.Context, a *actor) (func(), error) {
	rows, err := a.w.q.CancelWaiting(ctx, a.tx, a.w.jobs[:1])
	return func() {
		if len(rows) > 0 {
			a.w.accept(key{rows[0].JobID, rows[0].FencingToken}, OutcomeCancelled)
			return
		}
		a.w.answered(func() string {
			if s, err := a.w.q.GetJobState(a.w.ctx, a.w.admin, a.w.jobs[0]); err == nil && State(s.State) == StatePending {
				return "cancel: told that nothing waits, but nobody has claimed the job"
			}
			return ""
		})
	}, err
})

const finishDropping = `WITH live AS (
	SELECT k.id, k.claimed_at FROM job_claims AS k WHERE k.id = $1 FOR KEY SHARE),
closed AS (
	INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, attempt, outcome)
	SELECT $2, live.id, 1, live.claimed_at, 1, 1 FROM live ON CONFLICT (job_id, fencing_token) DO NOTHING RETURNING e.job_id)
DELETE FROM job_claims AS k WHERE k.id = $1 RETURNING (SELECT count(*) FROM closed)`

var finishAndDrop = simple(func(ctx context.Context, a *actor) (func(), error) {
	id, token, n := a.w.jobs[0], a.w.token, 0
	err := a.tx.QueryRow(ctx, finishDropping, token, uuid.UUID(id)).Scan(&n)
	return func() {
		if n > 0 {
			a.w.accept(key{id, token}, OutcomeCompleted)
		}
	}, err
})
