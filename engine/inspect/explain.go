package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

const (
	// AheadCap is how far the jobs ahead of one are looked at.
	AheadCap = 10_000

	aheadMinutes  = 5
	aheadScan     = 20_000 // of the figures not folded yet
	maxProfiles   = 20     // kinds of workers asked for the suspects before one
	servedListMax = 20
)

// Pace is what workers are told, for the sentences of [Reader.Explain]. Zero takes
// the engine's defaults.
type Pace struct {
	// Poll is how often an idle worker looks for jobs, Reaper how often expired
	// leases are taken back.
	Poll, Reaper time.Duration
	// Retry is the policy of types that have none of their own.
	Retry engine.RetryPolicy
}

func (p Pace) filled() Pace {
	if p.Poll <= 0 {
		p.Poll = time.Second
	}
	if p.Reaper <= 0 {
		p.Reaper = 5 * time.Second
	}
	if p.Retry == nil {
		p.Retry = engine.FullJitter{Base: time.Second, Max: 300 * time.Second}
	}
	return p
}

// CheckCode names what a check looks for in a job's way. Codes are part of the API:
// they stay.
type CheckCode string

// The checks, in the order in which they are made. A job that has ended, or that
// stands nowhere, gets one check alone.
const (
	CheckEnded   CheckCode = "ended"
	CheckNoPlace CheckCode = "no_place"
	CheckPaused  CheckCode = "queue_paused"
	CheckNotDue  CheckCode = "not_due"
	CheckLeased  CheckCode = "leased"
	CheckWorker  CheckCode = "no_worker"
	CheckSlots   CheckCode = "slots_busy"
	CheckSuspect CheckCode = "suspect_waits"
	CheckHeld    CheckCode = "held"
	CheckAhead   CheckCode = "jobs_ahead"
	CheckStart   CheckCode = "not_started"
)

// Verdict is how a check came out.
type Verdict string

// The verdicts. Failed: this keeps the job from starting. NotApplicable: the job
// does not stand where it would matter.
const (
	Passed        Verdict = "passed"
	Failed        Verdict = "failed"
	NotApplicable Verdict = "not_applicable"
)

// HelpCode names what a person can do about a check that failed.
type HelpCode string

// The helps. HelpQueue and HelpWorker lead to the one named by [Help].Target, the
// others act on the job or lead to a list.
const (
	HelpRunNow  HelpCode = "run_now"
	HelpReplay  HelpCode = "replay"
	HelpRestore HelpCode = "restore"
	HelpQueue   HelpCode = "view_queue"
	HelpWorker  HelpCode = "view_worker"
	HelpWorkers HelpCode = "view_workers"
	HelpSystem  HelpCode = "view_system"
)

// Help is the one thing that helps; the zero value is none.
type Help struct {
	Code   HelpCode
	Target string // the queue's name, the worker's id
}

// Evidence is one thing that a check rests on. Value is a string, bool, int64,
// float64, time.Time, time.Duration, []string, [engine.ID] or [Token].
type Evidence struct {
	Name  string
	Value any
}

// Token is a fencing token or a worker's id, as evidence.
type Token int64

// Check is one thing that could be in a job's way.
type Check struct {
	Code     CheckCode
	Verdict  Verdict
	Text     string // a sentence, whatever the verdict
	Evidence []Evidence
	Help     Help
}

// Explanation says why a job is not running.
type Explanation struct {
	ID    engine.ID
	State engine.State // empty: it stands nowhere
	// At is the moment it is told from.
	At time.Time
	// Claimable: nothing is in the way. One idle worker that serves the job's queue
	// and knows its type gets it with its next claim, if that takes at least Ahead
	// jobs more.
	Claimable bool
	// Ahead counts the jobs that are claimed before this one; -1 unless it stands in
	// line. AheadMore says that there may be more of them.
	Ahead     int64
	AheadMore bool
	Checks    []Check
}

// Headline is the first check that failed, else the last one.
func (x *Explanation) Headline() Check {
	if i := slices.IndexFunc(x.Checks, func(c Check) bool { return c.Verdict == Failed }); i >= 0 {
		return x.Checks[i]
	}
	return x.Checks[len(x.Checks)-1]
}

// Explain makes every check on one job, with the claim's own conditions and from
// one moment of the database. Ages are told from now; zero takes the database's
// clock. Its cost does not depend on how many jobs there are. Error:
// [engine.ErrJobNotFound].
func (r *Reader) Explain(ctx context.Context, id engine.ID, now time.Time) (Explanation, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var x Explanation
	err := pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if err = r.q.PinPlans(ctx, tx); err != nil {
			return err
		}
		x, err = r.explain(ctx, tx, id, now)
		return err
	})
	if err != nil {
		return Explanation{}, fmt.Errorf("explain job %s: %w", id, err)
	}
	return x, nil
}

func (r *Reader) explain(ctx context.Context, db dbsqlc.DBTX, id engine.ID, now time.Time) (Explanation, error) {
	q, err := r.inquire(ctx, db, id)
	if err != nil {
		return Explanation{}, err
	}
	q.now = now
	if now.IsZero() {
		q.now = q.place.Now
	}
	x := Explanation{ID: id, State: q.job.State, At: q.now.UTC(), Ahead: -1, Checks: q.checks()}
	if q.place.InLine {
		x.Claimable = q.claimable(x.Checks)
		if !q.job.Suspect() {
			x.Ahead, x.AheadMore = q.ahead, q.aheadMore
		}
	}
	return x, nil
}

// inquiry is what the database says of one job and of all that a claim of it
// depends on.
type inquiry struct {
	pace Pace
	now  time.Time

	job   Job
	place dbsqlc.ExplainPlaceRow
	// workers live and may hold slots; of them, could serve the queue, know the type
	// and are not draining.
	workers, could []dbsqlc.ListClaimersRow
	// ahead are the jobs, or for a suspect the suspects, that are claimed first.
	ahead     int64
	aheadMore bool
	perSecond float64
}

func (r *Reader) inquire(ctx context.Context, db dbsqlc.DBTX, id engine.ID) (*inquiry, error) {
	rows, err := r.q.GetJobs(ctx, db, 0, jobErrorMax, []engine.ID{id})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, engine.ErrJobNotFound
	}
	q := &inquiry{pace: r.Pace.filled(), job: jobOf(&rows[0])}
	if q.place, err = r.q.ExplainPlace(ctx, db, q.job.Queue, rows[0].WorkerID, id); err != nil {
		return nil, fmt.Errorf("read its place: %w", err)
	}
	if q.job.State == "" || q.job.State == engine.StateLeased || q.job.State.Finished() {
		return q, nil
	}
	if q.workers, err = r.q.ListClaimers(ctx, db, q.job.Queue, q.job.Type, maxWorkers); err != nil {
		return nil, fmt.Errorf("list who may claim it: %w", err)
	}
	for _, w := range q.workers {
		if w.Serves && w.Knows && w.State == "running" {
			q.could = append(q.could, w)
		}
	}
	if !q.place.InLine {
		return q, nil
	}
	if q.job.Suspect() {
		err = r.suspectsAhead(ctx, db, q)
	} else {
		err = r.jobsAhead(ctx, db, q)
	}
	return q, err
}

// jobsAhead counts the jobs of the queue that workers of this job's kind take
// first, and how fast the queue's runs end.
func (r *Reader) jobsAhead(ctx context.Context, db dbsqlc.DBTX, q *inquiry) error {
	types := []string{q.job.Type}
	for _, w := range q.could {
		types = append(types, w.Types...)
	}
	slices.Sort(types)
	x, err := r.q.CountAhead(ctx, db, slices.Compact(types), q.job.Queue, int16(q.job.Priority), q.place.Seq, AheadCap)
	if err != nil {
		return fmt.Errorf("count jobs ahead: %w", err)
	}
	if q.ahead, q.aheadMore = x.N, x.Seen >= AheadCap; q.ahead == 0 {
		return nil
	}
	runs, err := r.q.CountRecentRuns(ctx, db, aheadMinutes, q.job.Queue, aheadScan)
	if err != nil {
		return fmt.Errorf("count recent runs: %w", err)
	}
	q.perSecond = float64(runs.N) / runs.Seconds
	return nil
}

// suspectsAhead counts the suspects that go first on the worker where they are the
// fewest, among those that could take one now.
func (r *Reader) suspectsAhead(ctx context.Context, db dbsqlc.DBTX, q *inquiry) error {
	type profile struct{ queues, types []string }
	var asked []profile
	for _, w := range q.could {
		p := profile{w.Queues, w.Types}
		if !idle(w) || w.Suspects > 0 || len(asked) >= maxProfiles ||
			slices.ContainsFunc(asked, func(o profile) bool { return slices.Equal(o.queues, p.queues) && slices.Equal(o.types, p.types) }) {
			continue
		}
		asked = append(asked, p)
	}
	if len(asked) == 0 {
		asked = []profile{{[]string{q.job.Queue}, []string{q.job.Type}}}
	}
	for i, p := range asked {
		queues, err := r.claimOrder(ctx, db, p.queues, q.job.Queue)
		if err != nil {
			return err
		}
		n, err := r.q.CountSuspectsAhead(ctx, db, queues, p.types, q.job.Queue, int16(q.job.Priority), q.place.Seq, AheadCap)
		if err != nil {
			return fmt.Errorf("count suspects ahead: %w", err)
		}
		if i == 0 || n < q.ahead {
			q.ahead = n
		}
	}
	return nil
}

// claimOrder are the queues that a worker asks for a suspect, in its order, up to
// one of them. A worker without a list asks all that have jobs in line.
func (r *Reader) claimOrder(ctx context.Context, db dbsqlc.DBTX, served []string, last string) ([]string, error) {
	if len(served) == 0 || slices.Contains(served, "*") {
		var err error
		if served, err = r.q.ListReadyQueues(ctx, db); err != nil {
			return nil, fmt.Errorf("list queues with ready jobs: %w", err)
		}
	}
	return served[:slices.Index(served, last)+1], nil
}

// idle tells whether a worker has a free slot.
func idle(w dbsqlc.ListClaimersRow) bool { return taken(w) < int64(w.Slots) }

// taken are the slots in use: by runs that go on, prefetched ones too, and by
// handlers that outlived theirs.
func taken(w dbsqlc.ListClaimersRow) int64 { return min(w.Running+int64(w.Stuck), int64(w.Slots)) }

// claimable tells whether all that stands before the jobs ahead came out well.
func (q *inquiry) claimable(checks []Check) bool {
	for _, c := range checks {
		if c.Code == CheckAhead {
			return true
		}
		if c.Verdict == Failed {
			return false
		}
	}
	return false
}
