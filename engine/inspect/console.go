package inspect

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// TabCap is how far the console counts completed, cancelled and all jobs; one more
// stands for "and more".
const TabCap = 10_001

const (
	pulseMinutes  = 60
	pulseBudget   = 2 * time.Second
	failureScan   = 50_000
	deathScan     = 100_000
	failureGroups = 20
	// enqueueScan bounds the jobs that one pulse counts. Minutes beyond it stay
	// unknown until a later pulse begins nearer to them.
	enqueueScan = 200_000
	// openMinutes are counted again with each pulse: a job may commit some seconds
	// after its id was made.
	openMinutes = 2
)

// PulseActions is how many acts a pulse holds.
const PulseActions = 10

// Pulse is what the console's overview shows besides the [Snapshot]: the last hour
// by minute, what fails, what died, what people did. It is read in one transaction.
type Pulse struct {
	// At is by this process's clock, Took what reading cost.
	At   time.Time
	Took time.Duration
	// Enqueued counts new jobs in each of the last 60 minutes, the one that is
	// running last; -1 where there were too many to count at once.
	Enqueued []int64
	// Minutes is the rollup of the same 60 minutes.
	Minutes  []Minute
	Failures []FailureGroup
	Deaths   Deaths
	Actions  []Action // the last [PulseActions]
	Builds   []Build  // the last ten that were first seen
	// Lost counts the runs that were taken back from a worker within a day, by its id.
	Lost map[int64]int64
	// Jobs, Completed, Cancelled and Discarded stop at [TabCap].
	Jobs, Completed, Cancelled, Discarded int64
}

// FirstMinute is the minute that Enqueued begins with.
func (p *Pulse) FirstMinute() time.Time {
	return p.At.UTC().Truncate(time.Minute).Add(-(pulseMinutes - 1) * time.Minute)
}

// FailureGroup is failed runs with one fingerprint.
type FailureGroup struct {
	Failure
	// N counts the last 60 minutes, Recent the last 5.
	N, Recent   int64
	Type, Queue string
	FirstAt     time.Time // ever, as far as history is kept
	Sample      engine.ID // the newest job
}

// Deaths counts jobs that became dead letters in the last 60 minutes and in the
// last 5, with the commonest error of them.
type Deaths struct {
	N, Recent int64
	Top       Failure // without a message
	TopN      int64
	TopFirst  time.Time
	Type      string
	Queue     string
}

// Build is a version of a worker's program.
type Build struct {
	Version string
	FirstAt time.Time
	Workers int64
	Names   []string // of three workers at most
}

// Pulse reads a new pulse. From last, which may be nil, it takes the counts of
// minutes that are over.
func (r *Reader) Pulse(ctx context.Context, last *Pulse) (*Pulse, error) {
	ctx, cancel := context.WithTimeout(ctx, pulseBudget)
	defer cancel()
	p := &Pulse{At: time.Now()}
	err := pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, part := range []func(context.Context, pgx.Tx, *Pulse, *Pulse) error{
			r.pulseMinutes, r.pulseEnqueued, r.pulseFailures, r.pulseDeaths, r.pulseChanges, r.pulseTotals,
		} {
			if err := part(ctx, tx, p, last); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read pulse: %w", err)
	}
	p.Took = time.Since(p.At)
	return p, nil
}

func (r *Reader) pulseMinutes(ctx context.Context, tx pgx.Tx, p, _ *Pulse) error {
	rows, err := r.q.ListMinutes(ctx, tx, p.FirstMinute(), p.At.Add(time.Minute), nil, nil, MaxMinutes)
	if err != nil {
		return fmt.Errorf("read minutes: %w", err)
	}
	p.Minutes = minutesOf(rows)
	return nil
}

func (r *Reader) pulseEnqueued(ctx context.Context, tx pgx.Tx, p, last *Pulse) error {
	first, left := p.FirstMinute(), int64(enqueueScan)
	p.Enqueued = make([]int64, pulseMinutes)
	for i := pulseMinutes - 1; i >= 0; i-- {
		at := first.Add(time.Duration(i) * time.Minute)
		if n, ok := last.enqueuedIn(at); ok && i < pulseMinutes-openMinutes {
			p.Enqueued[i] = n
			continue
		}
		if left <= 0 {
			p.Enqueued[i] = -1
			continue
		}
		n, err := r.q.CountEnqueued(ctx, tx, firstID(at), firstID(at.Add(time.Minute)), int32(left))
		if err != nil {
			return fmt.Errorf("count enqueued jobs: %w", err)
		}
		if left -= n; left <= 0 && i < pulseMinutes-1 {
			n = -1
		}
		p.Enqueued[i] = n
	}
	return nil
}

// enqueuedIn tells what p knows of a minute, if that was over when p was read.
func (p *Pulse) enqueuedIn(at time.Time) (int64, bool) {
	if p == nil {
		return 0, false
	}
	i := int(at.Sub(p.FirstMinute()) / time.Minute)
	if i < 0 || i >= len(p.Enqueued)-openMinutes || p.Enqueued[i] < 0 {
		return 0, false
	}
	return p.Enqueued[i], true
}

// firstID is below every id made from t on and above every id made before.
func firstID(t time.Time) uuid.UUID {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixMilli()))
	var id uuid.UUID
	copy(id[:6], b[2:])
	return id
}

func (r *Reader) pulseFailures(ctx context.Context, tx pgx.Tx, p, _ *Pulse) error {
	rows, err := r.q.ListFailureGroups(ctx, tx, p.At.Add(-time.Hour), failureScan, p.At.Add(-5*time.Minute), failureGroups)
	if err != nil {
		return fmt.Errorf("list failures: %w", err)
	}
	p.Failures = make([]FailureGroup, len(rows))
	for i, x := range rows {
		p.Failures[i] = FailureGroup{
			Failure: Failure{Class: x.ErrorClass, Message: x.Error, Fingerprint: x.Fingerprint}, N: x.N, Recent: x.Recent,
			Type: x.Type, Queue: x.Queue, FirstAt: x.FirstAt.UTC(), Sample: x.Sample,
		}
	}
	return nil
}

func (r *Reader) pulseDeaths(ctx context.Context, tx pgx.Tx, p, _ *Pulse) error {
	x, err := r.q.CountRecentDeaths(ctx, tx, p.At.Add(-5*time.Minute), p.At.Add(-time.Hour), deathScan)
	if err != nil {
		return fmt.Errorf("count deaths: %w", err)
	}
	p.Deaths = Deaths{
		N: x.N, Recent: x.Recent, Top: Failure{Class: x.ErrorClass, Fingerprint: x.Fingerprint}, TopN: x.TopN, TopFirst: instant(x.FirstAt),
		Type: x.Type, Queue: x.Queue,
	}
	return nil
}

func (r *Reader) pulseChanges(ctx context.Context, tx pgx.Tx, p, _ *Pulse) error {
	acts, err := r.q.ListAudit(ctx, tx, dbsqlc.ListAuditParams{BeforeID: maxID, MaxRows: PulseActions})
	if err != nil {
		return fmt.Errorf("list last acts: %w", err)
	}
	p.Actions = actionsOf(acts)
	builds, err := r.q.ListBuilds(ctx, tx, 10)
	if err != nil {
		return fmt.Errorf("list builds: %w", err)
	}
	for _, x := range builds {
		p.Builds = append(p.Builds, Build{Version: x.Version, FirstAt: x.FirstAt.UTC(), Workers: x.Workers, Names: x.Names})
	}
	lost, err := r.q.CountLostRuns(ctx, tx, p.At.Add(-24*time.Hour), maxWorkers)
	if err != nil {
		return fmt.Errorf("count lost runs: %w", err)
	}
	p.Lost = map[int64]int64{}
	for _, x := range lost {
		p.Lost[x.WorkerID] = x.N
	}
	return nil
}

func (r *Reader) pulseTotals(ctx context.Context, tx pgx.Tx, p, _ *Pulse) error {
	var err error
	if p.Jobs, err = r.q.CountJobs(ctx, tx, TabCap); err != nil {
		return fmt.Errorf("count jobs: %w", err)
	}
	if p.Discarded, err = r.q.CountDiscarded(ctx, tx, TabCap); err != nil {
		return fmt.Errorf("count discarded dead letters: %w", err)
	}
	closed, err := r.q.CountClosed(ctx, tx, TabCap)
	if err != nil {
		return fmt.Errorf("count closed jobs: %w", err)
	}
	for _, x := range closed {
		if engine.Outcome(x.Outcome) == engine.OutcomeCompleted {
			p.Completed = x.N
		} else {
			p.Cancelled = x.N
		}
	}
	return nil
}

const maxID = int64(1<<63 - 1)
