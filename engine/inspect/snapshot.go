package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// CountCap is where the counts of a snapshot stop: per queue for ready jobs, in
// all for scheduled, held and dead ones. A count to it takes about half a second,
// and a snapshot must not take longer the worse things stand.
const CountCap = 1_000_000

// snapshotBudget is how long one snapshot may take.
const snapshotBudget = 2 * time.Second

const (
	rateMinutes  = 5
	knownMinutes = 60
	recentScan   = 10_000
	maxQueues    = 10_000
)

// Depth counts the jobs of a queue by what they wait for. Held jobs are among
// none of the others.
type Depth struct{ Ready, Scheduled, Running, Retrying, Held, Dead int64 }

// Rates are per minute, over the last five. Failed counts failures, timeouts and
// runs that were lost.
type Rates struct{ Enqueued, Completed, Failed float64 }

// Queue is a queue as it stands.
type Queue struct {
	Name               string
	Paused             bool
	PausedAt, ResumeAt time.Time
	PausedReason       string
	Depth              Depth
	// OldestReady is how long the first of the ready jobs waits; 0 without any.
	OldestReady time.Duration
	// Workers serve this queue and are alive; Slots is how many runs they may hold,
	// Busy how many of this queue's jobs run.
	Workers, Slots int
	Busy           int64
	PerMinute      Rates
}

// DeadCount counts the dead letters of one type that are not discarded.
type DeadCount struct {
	Queue, Type string
	N           int64
}

// Fleet is the workers in figures. Slots, Busy and Stuck count those that live.
type Fleet struct {
	ByStatus           map[WorkerStatus]int
	Slots, Busy, Stuck int
}

// Snapshot is the figures of one moment, read together.
type Snapshot struct {
	// At is by this process's clock, Took what reading cost.
	At   time.Time
	Took time.Duration
	// Queues in order of name: those with jobs, settings or a worker, and those with
	// an end in the last hour.
	Queues []Queue
	Dead   []DeadCount
	Fleet  Fleet
	Tasks  []Task
	// Integrity is the last check of the stored history; nil before the first.
	Integrity *Integrity
}

// Snapshot returns the last snapshot if it is younger than maxAge and reads a new
// one otherwise; callers that arrive meanwhile wait for it. What it returns is
// shared: do not change it.
func (r *Reader) Snapshot(ctx context.Context, maxAge time.Duration) (*Snapshot, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s, err := r.snap.get(ctx, maxAge, func(ctx context.Context) (*Snapshot, error) {
		ctx, cancel := context.WithTimeout(ctx, snapshotBudget)
		defer cancel()
		return r.read(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return s, nil
}

// read takes the counts in one transaction, so that a job that moves meanwhile is
// counted once.
func (r *Reader) read(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{At: time.Now()}
	b := newBoard()
	var slots []WorkerSlots
	err := pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, part := range []func(context.Context, pgx.Tx, *board) error{
			r.readWaiting, r.readRunning, r.readSettings, r.readRates,
		} {
			if err := part(ctx, tx, b); err != nil {
				return err
			}
		}
		var err error
		if s.Dead, err = r.readDead(ctx, tx, b); err != nil {
			return err
		}
		if slots, err = r.workerSlots(ctx, tx); err != nil {
			return err
		}
		if s.Tasks, err = r.tasks(ctx, tx); err != nil {
			return err
		}
		s.Integrity, err = r.integrity(ctx, tx)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.Fleet = b.addWorkers(slots)
	s.Queues = b.sorted()
	s.Took = time.Since(s.At)
	return s, nil
}

// board gathers queues by name.
type board struct{ byName map[string]*Queue }

func newBoard() *board { return &board{byName: map[string]*Queue{}} }

func (b *board) at(name string) *Queue {
	q := b.byName[name]
	if q == nil {
		q = &Queue{Name: name}
		b.byName[name] = q
	}
	return q
}

func (b *board) sorted() []Queue {
	list := make([]Queue, 0, len(b.byName))
	for _, q := range b.byName {
		list = append(list, *q)
	}
	slices.SortFunc(list, func(x, y Queue) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// addWorkers names the queues that workers were told to serve and counts for each
// queue who serves it.
func (b *board) addWorkers(slots []WorkerSlots) Fleet {
	fleet := Fleet{ByStatus: map[WorkerStatus]int{}}
	for _, w := range slots {
		fleet.ByStatus[w.Status]++
		if !w.Status.Alive() {
			continue
		}
		fleet.Slots += w.Slots
		fleet.Busy += w.Busy
		fleet.Stuck += w.Stuck
		for _, name := range w.Queues {
			if name != "*" && w.Slots > 0 {
				b.at(name)
			}
		}
	}
	for _, q := range b.byName {
		for _, w := range slots {
			if w.Status.Alive() && w.Slots > 0 && w.Serves(q.Name) {
				q.Workers++
				q.Slots += w.Slots
			}
		}
	}
	return fleet
}

func (r *Reader) readWaiting(ctx context.Context, tx pgx.Tx, b *board) error {
	ready, err := r.q.CountReady(ctx, tx, CountCap)
	if err != nil {
		return fmt.Errorf("count ready jobs: %w", err)
	}
	for _, x := range ready {
		b.at(x.Queue).Depth.Ready = x.N
	}
	oldest, err := r.q.OldestReady(ctx, tx)
	if err != nil {
		return fmt.Errorf("find oldest ready jobs: %w", err)
	}
	for _, x := range oldest {
		b.at(x.Queue).OldestReady = seconds(max(x.Seconds, 0))
	}
	scheduled, err := r.q.CountScheduled(ctx, tx, CountCap)
	if err != nil {
		return fmt.Errorf("count scheduled jobs: %w", err)
	}
	for _, x := range scheduled {
		if x.Failed {
			b.at(x.Queue).Depth.Retrying = x.N
		} else {
			b.at(x.Queue).Depth.Scheduled = x.N
		}
	}
	held, err := r.q.CountHeld(ctx, tx, CountCap)
	if err != nil {
		return fmt.Errorf("count held jobs: %w", err)
	}
	for _, x := range held {
		b.at(x.Queue).Depth.Held = x.N
	}
	return nil
}

func (r *Reader) readRunning(ctx context.Context, tx pgx.Tx, b *board) error {
	rows, err := r.q.CountRunning(ctx, tx)
	if err != nil {
		return fmt.Errorf("count running jobs: %w", err)
	}
	for _, x := range rows {
		q := b.at(x.Queue)
		q.Depth.Running, q.Busy = x.N, x.N
	}
	return nil
}

func (r *Reader) readDead(ctx context.Context, tx pgx.Tx, b *board) ([]DeadCount, error) {
	rows, err := r.q.CountDead(ctx, tx, CountCap)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	list := make([]DeadCount, len(rows))
	for i, x := range rows {
		list[i] = DeadCount{Queue: x.Queue, Type: x.Type, N: x.N}
		b.at(x.Queue).Depth.Dead += x.N
	}
	return list, nil
}

func (r *Reader) readSettings(ctx context.Context, tx pgx.Tx, b *board) error {
	rows, err := r.q.ListQueueSettings(ctx, tx, maxQueues)
	if err != nil {
		return fmt.Errorf("read queue settings: %w", err)
	}
	for _, x := range rows {
		q := b.at(x.Name)
		q.PausedAt, q.ResumeAt, q.PausedReason = optional(x.PausedAt), optional(x.ResumeAt), x.PausedReason
		q.Paused = x.PausedAt != nil
	}
	return nil
}

func (r *Reader) readRates(ctx context.Context, tx pgx.Tx, b *board) error {
	enqueued, err := r.q.RecentEnqueues(ctx, tx, rateMinutes*60, recentScan)
	if err != nil {
		return fmt.Errorf("count recent enqueues: %w", err)
	}
	for _, x := range enqueued {
		b.at(x.Queue).PerMinute.Enqueued = float64(x.N) * 60 / x.Seconds
	}
	ends, err := r.q.RecentOutcomes(ctx, tx, rateMinutes, knownMinutes)
	if err != nil {
		return fmt.Errorf("count recent outcomes: %w", err)
	}
	for _, x := range ends {
		q, perMinute := b.at(x.Queue), float64(x.N)*60/x.Seconds
		switch engine.Outcome(x.Outcome) {
		case engine.OutcomeCompleted:
			q.PerMinute.Completed += perMinute
		case engine.OutcomeFailed, engine.OutcomeTimedOut, engine.OutcomeCrashed, engine.OutcomeLeaseExpired:
			q.PerMinute.Failed += perMinute
		case engine.OutcomeSnoozed, engine.OutcomeHandedBack, engine.OutcomeCancelled, engine.OutcomeExpired:
		}
	}
	return nil
}
