package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// The workers of a scene: the one whose lease is fought over, and another.
const (
	keeper    = int64(1)
	successor = int64(2)
)

// world is what one order plays in, and what its callers were told.
type world struct {
	ctx   context.Context
	admin *pgx.Conn
	q     *dbsqlc.Queries
	jobs  []ID
	token int64 // of the lease that stands at the beginning

	mu       sync.Mutex
	accepted map[key]Outcome // runs whose end a caller was told of
	claimed  map[key]bool
	answers  []func() string
	faults   []string
}

func newWorld(ctx context.Context, admin *pgx.Conn) *world {
	return &world{ctx: ctx, admin: admin, q: dbsqlc.New(), accepted: map[key]Outcome{}, claimed: map[key]bool{}}
}

// accept notes that a caller was told, by a commit, that it ended a run.
func (w *world) accept(k key, o Outcome) {
	w.mu.Lock()
	before, twice := w.accepted[k]
	w.accepted[k] = o
	w.mu.Unlock()
	if twice {
		w.fault("token %d: ended twice, as %s and as %s", k.token, before, o)
	}
}

// refused notes that a caller was told that its token no longer holds the job.
func (w *world) refused(k key) {
	w.answered(func() string {
		if _, err := w.outcome(k); err != nil {
			return fmt.Sprintf("token %d: refused, but nobody else ended that run: %v", k.token, err)
		}
		return ""
	})
}

func (w *world) outcome(k key) (Outcome, error) {
	o, err := w.q.GetExecutionOutcome(w.ctx, w.admin, k.id, k.token)
	return Outcome(o), err
}

// check holds the tables against each other and against the answers.
func (w *world) check() {
	if w.ctx.Err() != nil {
		w.fault("the order did not end: %v", w.ctx.Err())
		return
	}
	rows := w.executions()
	for k, o := range w.accepted {
		if rows[k] != o {
			w.fault("token %d: told %s, stored %s", k.token, o, rows[k])
		}
	}
	for k, o := range rows {
		if _, ok := w.accepted[k]; !ok {
			w.fault("token %d: stored %s, told nobody", k.token, o)
		}
	}
	for _, id := range w.jobs {
		w.checkJob(id)
	}
	for _, answer := range w.answers {
		if fault := answer(); fault != "" {
			w.fault("%s", fault)
		}
	}
	w.checkLeases()
}

func (w *world) executions() map[key]Outcome {
	out := map[key]Outcome{}
	rows, err := w.admin.Query(w.ctx, "SELECT job_id, fencing_token, outcome FROM job_executions")
	if err != nil {
		w.fault("read executions: %v", err)
		return out
	}
	var k key
	var o Outcome
	if _, err := pgx.ForEachRow(rows, []any{&k.id, &k.token, &o}, func() error { out[k] = o; return nil }); err != nil {
		w.fault("read executions: %v", err)
	}
	return out
}

const placesOf = `SELECT
	(SELECT count(*) FROM job_ready WHERE job_id = $1) + (SELECT count(*) FROM job_scheduled WHERE job_id = $1)
	+ (SELECT count(*) FROM job_held WHERE job_id = $1) + (SELECT count(*) FROM dead_letter_jobs WHERE job_id = $1)
	+ (SELECT count(*) FROM job_claims c WHERE $1 = ANY (c.job_ids)
	   AND NOT EXISTS (SELECT FROM job_executions e WHERE e.job_id = $1 AND e.fencing_token = c.id)),
	coalesce((SELECT outcome FROM job_executions WHERE job_id = $1 ORDER BY fencing_token DESC LIMIT 1), 0),
	coalesce((SELECT max(fencing_token) FROM job_executions WHERE job_id = $1), 0),
	coalesce((SELECT max(c.id) FROM job_claims c WHERE $1 = ANY (c.job_ids)), 0),
	(SELECT last_value FROM job_claims_id_seq),
	(SELECT state FROM job_states WHERE id = $1), EXISTS (SELECT FROM jobs WHERE id = $1)`

// checkJob: one place, or ended for good; nothing runs after its end; tokens rise.
func (w *world) checkJob(id ID) {
	var places int
	var last Outcome
	var top, leased, sequence int64
	var state *string
	var exists bool
	if err := w.admin.QueryRow(w.ctx, placesOf, id).Scan(&places, &last, &top, &leased, &sequence, &state, &exists); err != nil {
		w.fault("read places: %v", err)
		return
	}
	ended := last == OutcomeCompleted || last == OutcomeCancelled
	switch {
	case !exists && (places > 0 || top > 0):
		w.fault("a removed job stands in %d places and has runs up to %d", places, top)
	case !exists:
	case state == nil:
		w.fault("a job stands nowhere: its last run ended as %s", last)
	case places > 1:
		w.fault("a job stands in %d places", places)
	case places == 1 && ended:
		w.fault("a job that is %s stands in a place, as %s", last, *state)
	case places == 0 && !ended:
		w.fault("a job stands in no place, its last run ended as %s", last)
	}
	if next := max(top, leased); next > sequence {
		w.fault("the next token would be %d or less, the job has had %d", sequence+1, next)
	}
}

// checkLeases: what has no open job can be dropped, what has one can't.
func (w *world) checkLeases() {
	const open = `SELECT coalesce(array_agg(c.id), '{}') FROM job_claims c WHERE EXISTS (SELECT FROM unnest(c.job_ids) AS u(id)
		WHERE NOT EXISTS (SELECT FROM job_executions e WHERE e.job_id = u.id AND e.fencing_token = c.id))`
	var before, all, after []int64
	if err := w.admin.QueryRow(w.ctx, open).Scan(&before); err != nil {
		w.fault("read leases: %v", err)
		return
	}
	for _, worker := range []int64{keeper, successor} {
		ids := []int64{}
		for id := range w.tokens() {
			ids = append(ids, id)
		}
		if _, err := w.q.DropClosedClaims(w.ctx, w.admin, ids, worker); err != nil {
			w.fault("drop leases: %v", err)
		}
	}
	err := errors.Join(w.admin.QueryRow(w.ctx, open).Scan(&after),
		w.admin.QueryRow(w.ctx, "SELECT coalesce(array_agg(id), '{}') FROM job_claims").Scan(&all))
	slices.Sort(before)
	slices.Sort(after)
	slices.Sort(all)
	if err != nil || !slices.Equal(before, after) || !slices.Equal(after, all) {
		w.fault("leases with an open job: %v, after the drop %v of %v; %v", before, after, all, err)
	}
}

func (w *world) tokens() map[int64]bool {
	tokens := map[int64]bool{w.token: true}
	for k := range w.claimed {
		tokens[k.token] = true
	}
	return tokens
}

// add enqueues a job, due now or a moment ago.
func (w *world) add(later bool) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	w.jobs = append(w.jobs, id)
	past := time.Now().Add(-time.Minute) // for expire; nothing else minds
	_, err = w.q.EnqueueJob(w.ctx, w.admin, dbsqlc.EnqueueJobParams{ID: id, Type: "race", Queue: DefaultQueue, Priority: 1, MaxAttempts: 5,
		Payload: []byte("{}"), ExpiresAt: &past})
	if err == nil && later {
		_, err = w.admin.Exec(w.ctx, `WITH r AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING *)
			INSERT INTO job_scheduled (run_at, job_id, priority, queue, type, failed) SELECT now() - interval '1 s', job_id, priority, queue, type, true FROM r`, id)
	}
	return err
}

// ready sets up n jobs in line.
func ready(n int) func(*world) error {
	return func(w *world) error {
		for range n {
			if err := w.add(false); err != nil {
				return err
			}
		}
		return nil
	}
}

// scheduled sets up a job whose backoff has just ended.
func scheduled(w *world) error { return w.add(true) }

// leased sets up n jobs in one lease, which has just expired: the reaper may take it, and so may its keeper still.
func leased(n int) func(*world) error {
	return func(w *world) error {
		if err := ready(n)(w); err != nil {
			return err
		}
		rows, err := w.q.ClaimJobs(w.ctx, w.admin, claimParams(keeper, n))
		if err != nil || len(rows) != n {
			return errors.Join(err, fmt.Errorf("claimed %d jobs of %d", len(rows), n))
		}
		w.token = rows[0].Token
		_, err = w.admin.Exec(w.ctx, "UPDATE job_claims SET lease_expires_at = now() - interval '1 s'")
		return err
	}
}

// reaped sets up a job whose lease was lost: it stands in line as a suspect, and its keeper does not know.
func reaped(w *world) error {
	if err := leased(1)(w); err != nil {
		return err
	}
	rows, err := w.q.ReapClaims(w.ctx, w.admin, 0, nil, 0, 100, lostRunLimit, false)
	if err != nil || len(rows) != 1 {
		return errors.Join(err, fmt.Errorf("reaped %d runs", len(rows)))
	}
	w.accept(key{w.jobs[0], w.token}, OutcomeLeaseExpired)
	return nil
}

// dead sets up a dead letter; discarded tells for how long it has been off the list.
func dead(discarded time.Duration) func(*world) error {
	return func(w *world) error {
		if err := leased(1)(w); err != nil {
			return err
		}
		_, slow := w.batch(keeper, true, w.ending(w.jobs[0], w.token, verdict{outcome: OutcomeFailed, next: next(ReasonPermanent), carried: 1}))
		rows, err := w.q.CloseJobs(w.ctx, w.admin, slow)
		if err != nil || len(rows) != 1 {
			return errors.Join(err, fmt.Errorf("buried %d jobs", len(rows)))
		}
		w.accept(key{w.jobs[0], w.token}, OutcomeFailed)
		if _, err = w.q.DropClosedClaims(w.ctx, w.admin, []int64{w.token}, keeper); err == nil && discarded > 0 {
			_, err = w.admin.Exec(w.ctx, "UPDATE dead_letter_jobs SET discarded_at = now() - make_interval(secs => $1::float8)", discarded.Seconds())
		}
		return err
	}
}

func claimParams(worker int64, most int) dbsqlc.ClaimJobsParams {
	return dbsqlc.ClaimJobsParams{Queues: []string{DefaultQueue}, Priorities: []int16{1}, Marks: []int64{0}, Wants: []int32{int32(most)},
		Types: []string{"race"}, MaxJobs: int32(most), WorkerID: worker, LeaseSeconds: 30}
}

// ending is a run with its verdict, as the finisher gets it.
func (w *world) ending(id ID, token int64, v verdict) ended {
	now := time.Now()
	return ended{verdict: v, run: &run{row: Row{ID: id, Attempt: 1, MaxAttempts: 5, FencingToken: token, Type: "race", Queue: DefaultQueue},
		lease: &lease{token: token, claimedAt: now, seenAt: now}, began: now}}
}

// batch is the finisher's own way from runs to the arguments of its two statements.
func (w *world) batch(worker int64, careful bool, xs ...ended) (dbsqlc.CompleteJobsParams, dbsqlc.CloseJobsParams) {
	f := newFinisher(&Engine{workerID: worker, self: []byte("{}")})
	slices.SortFunc(xs, func(a, b ended) int { return slices.Compare(a.run.row.ID[:], b.run.row.ID[:]) })
	return f.split(xs, careful)
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
