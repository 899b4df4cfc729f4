package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// ErrWorkerNotFound says that no worker has an id, or that its row is gone.
var ErrWorkerNotFound = errors.New("worker not found")

// recentRunsScan is how many of the newest runs are looked at for those of one
// worker.
const recentRunsScan = 20_000

// Run is a run as its worker's page shows it. Outcome is 0 and FinishedAt zero
// while it goes on; LeaseExpiresAt is zero afterwards.
type Run struct {
	JobID                engine.ID
	FencingToken         int64
	Type, Queue          string
	Attempt, MaxAttempts int
	Outcome              engine.Outcome
	ClaimedAt, StartedAt time.Time
	FinishedAt           time.Time
	LeaseExpiresAt       time.Time
	ErrorClass, Error    string
}

// Worker reads one worker. Running is not counted: see [Reader.WorkerRunning].
// Error: [ErrWorkerNotFound].
func (r *Reader) Worker(ctx context.Context, id int64) (Worker, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	x, err := r.q.GetWorker(ctx, r.pool, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrWorkerNotFound
	}
	if err != nil {
		return Worker{}, fmt.Errorf("read worker %d: %w", id, err)
	}
	return Worker{
		ID: x.ID, Name: x.Name, Hostname: x.Hostname, PID: int(x.Pid), Build: x.Version, Queues: x.Queues, Types: x.Types,
		Status: workerStatus(x.State, x.HeartbeatAgeSeconds, x.LeaseMs), Slots: int(x.Slots), Busy: int(x.Busy), Stuck: int(x.Stuck),
		Lease: time.Duration(x.LeaseMs) * time.Millisecond, HeartbeatAge: seconds(max(x.HeartbeatAgeSeconds, 0)),
		StartedAt: x.StartedAt.UTC(), HeartbeatAt: x.HeartbeatAt.UTC(), StoppedAt: optional(x.StoppedAt), DonePerMinute: int(x.DonePerMinute), FailedLately: int(x.FailedLately),
	}, nil
}

// WorkerRunning reads what the leases of a worker hold, the oldest claim first.
func (r *Reader) WorkerRunning(ctx context.Context, id int64, limit int) ([]Run, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := r.q.ListWorkerRunning(ctx, r.pool, id, int32(clampLimit(limit)))
	if err != nil {
		return nil, fmt.Errorf("read running jobs of worker %d: %w", id, err)
	}
	list := make([]Run, len(rows))
	for i, x := range rows {
		list[i] = Run{
			JobID: x.JobID, FencingToken: x.Token, Type: x.Type, Queue: x.Queue, Attempt: int(x.Attempt), MaxAttempts: int(x.MaxAttempts),
			ClaimedAt: x.ClaimedAt.UTC(), LeaseExpiresAt: x.LeaseExpiresAt.UTC(),
		}
	}
	return list, nil
}

// WorkerRecent reads the last runs of a worker among the newest 20,000 of all.
func (r *Reader) WorkerRecent(ctx context.Context, id int64, limit int) ([]Run, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := r.q.ListWorkerRecent(ctx, r.pool, recentRunsScan, id, int32(clampLimit(limit)))
	if err != nil {
		return nil, fmt.Errorf("read recent runs of worker %d: %w", id, err)
	}
	list := make([]Run, len(rows))
	for i, x := range rows {
		list[i] = Run{
			JobID: x.JobID, FencingToken: x.FencingToken, Type: x.Type, Queue: x.Queue, Attempt: int(x.Attempt), MaxAttempts: int(x.MaxAttempts),
			Outcome: engine.Outcome(x.Outcome), ClaimedAt: optional(x.ClaimedAt), StartedAt: optional(x.StartedAt), FinishedAt: x.FinishedAt.UTC(),
			ErrorClass: x.ErrorClass, Error: x.Error,
		}
	}
	return list, nil
}

// Database is the server and the tables as the console shows them. Counts of rows
// are the statistics' estimates.
type Database struct {
	Version           string
	SizeBytes         int64
	At                time.Time // by the database's clock
	OldestTransaction time.Duration
	Connections       int64
	MaxConnections    int
	StartedAt         time.Time
	Tables            []Table // the largest first
}

// Table is one table of the engine.
type Table struct {
	Name                  string
	Live, Dead, SizeBytes int64
	VacuumedAt            time.Time
}

// Database reads what is known of the database server.
func (r *Reader) Database(ctx context.Context) (Database, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	x, err := r.q.GetDatabase(ctx, r.pool)
	if err != nil {
		return Database{}, fmt.Errorf("read database facts: %w", err)
	}
	d := Database{
		Version: x.Version, SizeBytes: x.SizeBytes, At: x.At.UTC(), OldestTransaction: seconds(max(x.OldestTransactionSeconds, 0)),
		Connections: x.Connections, MaxConnections: int(x.MaxConnections), StartedAt: x.StartedAt.UTC(),
	}
	tables, err := r.q.ListTables(ctx, r.pool, 30)
	if err != nil {
		return Database{}, fmt.Errorf("read table facts: %w", err)
	}
	for _, t := range tables {
		d.Tables = append(d.Tables, Table{Name: t.Name, Live: t.Live, Dead: t.Dead, SizeBytes: t.SizeBytes, VacuumedAt: instant(t.VacuumedAt)})
	}
	return d, nil
}
