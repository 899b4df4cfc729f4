package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// TestInterleavingsOfUniqueKeys is TestInterleavings for the calls that take, keep and lose a unique key. After each order
// one job at most may stand for the key, and one more enqueue must agree with the tables on which.
func TestInterleavingsOfUniqueKeys(t *testing.T) {
	t.Parallel()
	share := int64(1)
	if *interleavings == "all" {
		share = 1 << 40
	} else if n, err := strconv.ParseInt(*interleavings, 10, 64); err == nil {
		share = max(n/int64(2*len(scenes)), 1)
	}
	if testing.Short() {
		share = min(share, 5)
	}
	began := time.Now()
	tried := inRings(t, func(yield func(scene, int64)) {
		for _, s := range uniqueScenes {
			all := s.orders()
			n := min(all, share)
			for i := range n {
				yield(s, i*all/n)
			}
		}
	}, func(s scene, rank int64, faults []string) {
		t.Errorf("%s, order %d %v:\n  %s", s.name, rank, s.order(rank), joinLines(faults))
	})
	t.Logf("%d orders of %d scenes in %v", tried, len(uniqueScenes), time.Since(began).Round(time.Millisecond))
}

// TestInterleavingsOfRejectedUniqueShapesFail holds those scenes to what they are for.
func TestInterleavingsOfRejectedUniqueShapesFail(t *testing.T) {
	t.Parallel()
	for _, s := range rejectedUniqueScenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			l := newRing(t)
			all, failed, first := s.orders(), 0, ""
			for i := range all {
				if faults := l.try(t.Context(), s, i); len(faults) > 0 {
					failed++
					first = faults[0]
				}
			}
			if failed == 0 {
				t.Errorf("no fault found in %d orders", all)
			}
			t.Logf("%d of %d orders at fault, as in: %s", failed, all, first)
		})
	}
}

var uniqueScenes = []scene{
	{"two enqueues x end of the holder", unique(leased(1)), []program{add(returns), add(returns), finish(completes, 0)}},
	{"two enqueues x death of the holder x replay", unique(leased(1)), []program{add(returns), add(rejects), finish(dies, 0), replayUnique}},
	{"two enqueues x replay", unique(dead(0)), []program{add(returns), add(rejects), replayUnique}},
	{"enqueue x replay x replay x sweep", unique(dead(0)), []program{add(returns), replayUnique, replayUnique, sweepKeys}},
	{"enqueue rolled back x two enqueues", unique(nothing), []program{addRolledBack, add(returns), add(returns)}},
	{"enqueue rolled back x replay x enqueue", unique(dead(0)), []program{addRolledBack, replayUnique, add(returns)}},
	{"three enqueues", unique(nothing), []program{add(returns), add(replaces), add(rejects)}},
	{"enqueue x sweep x end of the holder", unique(leased(1)), []program{add(returns), sweepKeys, finish(completes, 0)}},
	{"replace x claim x replace", unique(ready(1)), []program{add(replaces), claim(1), add(replaces)}},
	{"replace x promote x claim", unique(scheduled), []program{add(replaces), promote, claim(1)}},
	{"replace x cancel x enqueue", unique(ready(1)), []program{add(replaces), cancel, add(returns)}},
	{"replace x expire x enqueue", unique(ready(1)), []program{add(replaces), expire, add(returns)}},
	{"replace x failure of the holder x enqueue", unique(leased(1)), []program{add(replaces), finish(fails, 0), add(returns)}},
	{"enqueue x reap x cancel", unique(leased(1)), []program{add(returns), reap, cancel}},
	{"enqueue x restore x prune", unique(dead(8 * 24 * time.Hour)), []program{add(returns), restore, pruneDead}},
}

// rejectedUniqueScenes play a way of taking a key over that was tried in thought and given up.
var rejectedUniqueScenes = []scene{
	// It takes the key from a dead job that a replay has just brought back.
	{"take over by the job's id alone", unique(dead(0)), []program{takeOverByID, replayUnique}},
}

const raceKey = "one"

func nothing(*world) error { return nil }

// unique gives the first job of a set-up the key.
func unique(setUp func(*world) error) func(*world) error {
	return func(w *world) error {
		w.answered(w.checkKey)
		if _, err := w.admin.Exec(w.ctx, "TRUNCATE job_unique_keys"); err != nil {
			return err
		}
		if err := setUp(w); err != nil || len(w.jobs) == 0 {
			return err
		}
		_, err := w.admin.Exec(w.ctx, `WITH j AS (UPDATE jobs SET unique_key = unique_job_key('type', 'race', 'default', $2), unique_through = 2
			WHERE id = $1 RETURNING id, unique_key)
			INSERT INTO job_unique_keys (key, job_id) SELECT unique_key, id FROM j`, w.jobs[0], raceKey)
		return err
	}
}

// enqueueUnique is the doors' own statement.
func (w *world) enqueueUnique(ctx context.Context, db dbsqlc.DBTX, o OnConflict) (dbsqlc.EnqueueKeyedRow, ID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return dbsqlc.EnqueueKeyedRow{}, id, err
	}
	key := raceKey
	row, err := w.q.EnqueueKeyed(ctx, db, dbsqlc.EnqueueKeyedParams{ID: id, Type: "race", Payload: []byte("{}"), Queue: DefaultQueue, Priority: 1,
		DefaultMaxAttempts: 5, UniqueKey: &key, UniqueScope: string(UniqueByType), UniqueThrough: throughRunning, OnConflict: string(o)})
	return row, id, err
}

const (
	returns  = ConflictReturn
	replaces = ConflictReplace
	rejects  = ConflictReject
)

// add enqueues under the key.
func add(o OnConflict) program {
	return simple(func(ctx context.Context, a *actor) (func(), error) {
		row, id, err := a.w.enqueueUnique(ctx, a.tx, o)
		return func() { a.w.told(row, id, o) }, err
	})
}

// told notes an answer: a new job is there from now on; any other answer names a job that there is, or says why it cannot.
func (w *world) told(row dbsqlc.EnqueueKeyedRow, id ID, o OnConflict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fits := map[string]bool{"created": true, "unique_held": o == returns, "unique_replaced": o == replaces, "unique_conflict": o != returns}[row.Outcome]
	switch {
	case !fits:
		w.faults = append(w.faults, fmt.Sprintf("enqueue to %s: answered %s", o, row.Outcome))
	case row.Outcome == "created":
		w.jobs = append(w.jobs, id)
	case row.JobID == id || row.Holder == "":
		w.faults = append(w.faults, fmt.Sprintf("enqueue to %s: answered %s without a holder: %s %s", o, row.Outcome, row.JobID, row.Holder))
	}
}

// addRolledBack enqueues in a transaction that does not commit.
var addRolledBack = program{steps: 2, run: func(a *actor) {
	err := a.step(func(ctx context.Context) error {
		if err := a.begin(ctx); err != nil {
			return err
		}
		_, _, err := a.w.enqueueUnique(ctx, a.tx, returns)
		return err
	})
	if err != nil {
		a.w.fault("statement refused: %v", err)
	}
	_ = a.step(func(ctx context.Context) error { return a.tx.Rollback(ctx) })
}}

// replayUnique is Client.Replay's transaction: what cannot have its key again stays dead.
var replayUnique = program{steps: 3, run: func(a *actor) {
	c := &Client{q: a.w.q}
	a.w.mu.Lock()
	first := a.w.jobs[0] // others add to the list meanwhile
	a.w.mu.Unlock()
	moved := false
	err := a.step(func(ctx context.Context) error {
		if err := a.begin(ctx); err != nil {
			return err
		}
		rows, err := a.w.q.ReplayDead(ctx, a.tx, []ID{first})
		moved = len(rows) > 0
		return err
	})
	if err == nil && moved {
		err = a.step(func(ctx context.Context) error { return c.takeKeyAgain(ctx, a.tx, first) })
	}
	var conflict *UniqueConflictError
	if errors.As(err, &conflict) {
		if conflict.Holder == first || conflict.State == "" {
			a.w.fault("replay: refused for %s, which is %q", conflict.Holder, conflict.State)
		}
		_ = a.step(func(ctx context.Context) error { return a.tx.Rollback(ctx) })
		return
	}
	a.end(err)
}}

var sweepKeys = simple(func(ctx context.Context, a *actor) (func(), error) {
	_, err := a.w.q.SweepUniqueKeys(ctx, a.tx, []byte{}, 100)
	return func() {}, err
})

// checkKey: one job at most stands for the key, and one more enqueue agrees.
func (w *world) checkKey() string {
	rows, err := w.admin.Query(w.ctx, `SELECT s.id FROM jobs j JOIN job_states s ON s.id = j.id
		WHERE j.unique_key = unique_job_key('type', 'race', 'default', $1) AND s.state NOT IN ('completed', 'cancelled', 'dead_letter')`, raceKey)
	if err != nil {
		return err.Error()
	}
	standing, err := pgx.CollectRows(rows, pgx.RowTo[ID])
	if err != nil {
		return err.Error()
	}
	row, id, err := w.enqueueUnique(w.ctx, w.admin, rejects)
	switch {
	case err != nil:
		return err.Error()
	case len(standing) > 1:
		return fmt.Sprintf("%d jobs stand for one key", len(standing))
	case len(standing) == 0 && (row.Outcome != "created" || row.JobID != id):
		return fmt.Sprintf("nobody stands for the key, yet an enqueue was answered %s", row.Outcome)
	case len(standing) == 1 && (row.Outcome != "unique_conflict" || row.JobID != standing[0]):
		return fmt.Sprintf("%s stands for the key, yet an enqueue was answered %s with %s", standing[0], row.Outcome, row.JobID)
	}
	return ""
}

// takeOverByID gives a key whose holder it saw dead to a new job, in two statements of one transaction, each with a snapshot
// of its own.
var takeOverByID = program{steps: 3, run: func(a *actor) {
	var free bool
	err := a.step(func(ctx context.Context) error {
		if err := a.begin(ctx); err != nil {
			return err
		}
		return a.tx.QueryRow(ctx, "SELECT NOT holds_unique_key(job_id, until) FROM job_unique_keys WHERE job_id = $1", a.w.jobs[0]).Scan(&free)
	})
	id := uuid.Must(uuid.NewV7())
	took := false
	if err == nil && free {
		err = a.step(func(ctx context.Context) error {
			tag, err := a.tx.Exec(ctx, "UPDATE job_unique_keys SET job_id = $2 WHERE job_id = $1", a.w.jobs[0], id)
			if took = tag.RowsAffected() > 0; err != nil || !took {
				return err
			}
			if _, err := a.w.q.EnqueueJob(ctx, a.tx, dbsqlc.EnqueueJobParams{ID: id, Type: "race", Queue: DefaultQueue, Priority: 1, MaxAttempts: 5,
				Payload: []byte("{}")}); err != nil {
				return err
			}
			_, err = a.tx.Exec(ctx, "UPDATE jobs SET unique_key = unique_job_key('type', 'race', 'default', $2), unique_through = 2 WHERE id = $1", id, raceKey)
			return err
		})
	}
	if a.end(err) && took {
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
		a.w.jobs = append(a.w.jobs, id)
	}
}}
