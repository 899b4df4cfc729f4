package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

const maxWorkers = 1_000

// WorkerStatus is how a worker's row and heartbeat are read.
type WorkerStatus string

// The statuses. Late: a heartbeat is missing. Lost: nothing came for the length
// of a lease.
const (
	WorkerLive     WorkerStatus = "live"
	WorkerLate     WorkerStatus = "late"
	WorkerLost     WorkerStatus = "lost"
	WorkerDraining WorkerStatus = "draining"
	WorkerStopped  WorkerStatus = "stopped"
)

// WorkerStatuses lists every status.
var WorkerStatuses = []WorkerStatus{WorkerLive, WorkerLate, WorkerLost, WorkerDraining, WorkerStopped}

// Alive tells whether the worker may still hold slots.
func (s WorkerStatus) Alive() bool { return s == WorkerLive || s == WorkerLate || s == WorkerDraining }

// workerStatus: heartbeats come at least three to a lease, so two thirds of it
// without one is a heartbeat missed.
func workerStatus(state string, age float64, leaseMS int32) WorkerStatus {
	lease := float64(leaseMS) / 1000
	switch {
	case state == "stopped":
		return WorkerStopped
	case age > lease:
		return WorkerLost
	case state == "draining":
		return WorkerDraining
	case age > lease*2/3:
		return WorkerLate
	}
	return WorkerLive
}

// Worker is a process that runs jobs, or did within a day.
type Worker struct {
	ID             int64
	Name, Hostname string
	PID            int
	Build          string
	// Queues it serves; none means all.
	Queues, Types []string
	Status        WorkerStatus
	// Running counts the jobs its leases hold, prefetched ones too. Stuck slots are
	// held by handlers that ignored the end of their context.
	Slots, Busy, Stuck int
	Running            int64
	// DonePerMinute are the jobs completed within the minute before the last
	// heartbeat, FailedLately the runs that failed within 15 minutes before it.
	DonePerMinute, FailedLately int
	Lease                       time.Duration
	HeartbeatAge                time.Duration // by the database's clock
	StartedAt                   time.Time
	HeartbeatAt                 time.Time
	StoppedAt                   time.Time // zero unless stopped
}

// workersAge is how old a list of workers may be: pages of many viewers ask for it,
// and heartbeats are seconds apart.
const workersAge = time.Second

// Workers lists workers, those that live first, then by latest heartbeat; at most
// 1,000. The list is up to a second old, so that many callers cost one read.
func (r *Reader) Workers(ctx context.Context) ([]Worker, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list, err := r.workers.get(ctx, workersAge, r.readWorkers)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return slices.Clone(list), nil // callers sort it
}

func (r *Reader) readWorkers(ctx context.Context) ([]Worker, error) {
	rows, err := r.q.ListWorkers(ctx, r.pool, maxWorkers)
	if err != nil {
		return nil, err
	}
	list := make([]Worker, len(rows))
	for i, x := range rows {
		list[i] = Worker{
			ID: x.ID, Name: x.Name, Hostname: x.Hostname, PID: int(x.Pid), Build: x.Version, Queues: x.Queues, Types: x.Types,
			Status: workerStatus(x.State, x.HeartbeatAgeSeconds, x.LeaseMs), Slots: int(x.Slots), Busy: int(x.Busy), Stuck: int(x.Stuck),
			Running: x.Running, Lease: time.Duration(x.LeaseMs) * time.Millisecond, HeartbeatAge: seconds(max(x.HeartbeatAgeSeconds, 0)),
			StartedAt: x.StartedAt.UTC(), HeartbeatAt: x.HeartbeatAt.UTC(), StoppedAt: optional(x.StoppedAt), DonePerMinute: int(x.DonePerMinute), FailedLately: int(x.FailedLately),
		}
	}
	return list, nil
}

// WorkerSlots is what the figures need of a worker.
type WorkerSlots struct {
	ID                 int64
	Queues             []string
	Status             WorkerStatus
	Slots, Busy, Stuck int
}

// Serves tells whether the worker claims from a queue.
func (w WorkerSlots) Serves(queue string) bool {
	return len(w.Queues) == 0 || slices.Contains(w.Queues, "*") || slices.Contains(w.Queues, queue)
}

func (r *Reader) workerSlots(ctx context.Context, tx dbsqlc.DBTX) ([]WorkerSlots, error) {
	rows, err := r.q.ListWorkerSlots(ctx, tx, maxWorkers)
	if err != nil {
		return nil, fmt.Errorf("read worker slots: %w", err)
	}
	list := make([]WorkerSlots, len(rows))
	for i, x := range rows {
		list[i] = WorkerSlots{
			ID: x.ID, Queues: x.Queues, Status: workerStatus(x.State, x.HeartbeatAgeSeconds, x.LeaseMs),
			Slots: int(x.Slots), Busy: int(x.Busy), Stuck: int(x.Stuck),
		}
	}
	return list, nil
}

// Leader is who does the maintenance.
type Leader struct {
	Role       string
	WorkerID   int64
	WorkerName string // empty if the worker's row is gone
	// Term rises with each change of hands.
	Term                  int64
	AcquiredAt, ExpiresAt time.Time
	// Live is false once the leadership ran out and nobody took it.
	Live bool
}

// Leader reads the leader; nil if there never was one.
func (r *Reader) Leader(ctx context.Context) (*Leader, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	x, err := r.q.GetLeader(ctx, r.pool)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read leader: %w", err)
	}
	return &Leader{
		Role: x.Role, WorkerID: x.WorkerID, WorkerName: x.WorkerName, Term: x.Term, AcquiredAt: x.AcquiredAt.UTC(),
		ExpiresAt: x.ExpiresAt.UTC(), Live: x.Live,
	}, nil
}

// Task is a maintenance task and when it last succeeded.
type Task struct {
	Name          string
	LastSuccessAt time.Time
	Age           time.Duration // by the database's clock; 0 before the first success
}

// Tasks lists the maintenance tasks by name.
func (r *Reader) Tasks(ctx context.Context) ([]Task, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return r.tasks(ctx, r.pool)
}

func (r *Reader) tasks(ctx context.Context, db dbsqlc.DBTX) ([]Task, error) {
	rows, err := r.q.ListTasks(ctx, db, maxWorkers)
	if err != nil {
		return nil, fmt.Errorf("list maintenance tasks: %w", err)
	}
	list := make([]Task, len(rows))
	for i, x := range rows {
		list[i] = Task{Name: x.Task, LastSuccessAt: optional(x.LastSuccessAt), Age: seconds(max(x.AgeSeconds, 0))}
	}
	return list, nil
}
