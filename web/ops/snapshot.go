package ops

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// Snapshots reads the figures of the database. maxAge is how old they may be.
type Snapshots interface {
	Snapshot(ctx context.Context, maxAge time.Duration) (*inspect.Snapshot, error)
}

var _ Snapshots = (*inspect.Reader)(nil)

// A snapshot is kept for a hundred times what it cost, within these bounds, so that
// scrapes take a hundredth of the database's time at most.
const (
	costFactor = 100
	minAge     = 3 * time.Second
	maxAge     = time.Minute
	// failedAge is how long a failed read is not tried again.
	failedAge = 3 * time.Second
)

// AddSnapshot adds the gauges that only the database knows. They are made anew for
// each scrape: what is gone from the snapshot is gone from the answer, and when no
// snapshot can be read there are none, since an old number is worse than none.
func (m *Metrics) AddSnapshot(read Snapshots, log *slog.Logger) {
	m.registry.MustRegister(&snapshotGauges{read: read, log: log})
}

type snapshotGauges struct {
	read Snapshots
	log  *slog.Logger

	mu       sync.Mutex
	cost     time.Duration
	failed   time.Time
	failures int
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

var (
	jobsDesc       = desc("jobs", "Jobs by what they wait for.", "queue", "state")
	oldestDesc     = desc("oldest_ready_age_seconds", "How long the first ready job waits.", "queue")
	pausedDesc     = desc("queue_paused", "1 while the queue is paused.", "queue")
	deadDesc       = desc("dead_letter_jobs", "Dead letters that are not discarded.", "queue", "type")
	workersDesc    = desc("workers", "Workers by state.", "state")
	slotsDesc      = desc("worker_slots", "Slots of live workers.")
	busyDesc       = desc("worker_slots_busy", "Slots that hold a run.")
	stuckDesc      = desc("worker_slots_stuck", "Slots held by handlers that ignore the end of their context.")
	reaperDesc     = desc("reaper_last_success_timestamp_seconds", "When the leader's reaper last succeeded.")
	taskDesc       = desc("maintenance_last_success_timestamp_seconds", "When a maintenance task last succeeded.", "task")
	violationsDesc = desc("integrity_violations", "Rules that the last check of the stored history found violated.")
	uncheckedDesc  = desc("integrity_unchecked", "Rules that the last check of the stored history could not look at.")
	integrityDesc  = desc("integrity_last_success_timestamp_seconds", "When a check of the stored history last looked at every rule.")
	snapshotAtDesc = desc("snapshot_timestamp_seconds", "When these gauges were read.")
	failuresDesc   = desc("snapshot_errors_total", "Scrapes without a snapshot: their gauges are missing.")
)

// Describe implements prometheus.Collector. Naming none makes it an unchecked
// collector, which may leave gauges out.
func (*snapshotGauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g *snapshotGauges) Collect(out chan<- prometheus.Metric) {
	s, failures := g.snapshot()
	out <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(failures))
	if s == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, q := range s.Queues {
		for state, n := range map[string]int64{
			"ready": q.Depth.Ready, "scheduled": q.Depth.Scheduled, "running": q.Depth.Running,
			"retrying": q.Depth.Retrying, "held": q.Depth.Held, "dead": q.Depth.Dead,
		} {
			gauge(jobsDesc, float64(n), q.Name, state)
		}
		gauge(oldestDesc, q.OldestReady.Seconds(), q.Name)
		paused := 0.0
		if q.Paused {
			paused = 1
		}
		gauge(pausedDesc, paused, q.Name)
	}
	for _, d := range s.Dead {
		gauge(deadDesc, float64(d.N), d.Queue, d.Type)
	}
	for _, status := range inspect.WorkerStatuses {
		if status != inspect.WorkerStopped { // stopped workers are no part of the fleet
			gauge(workersDesc, float64(s.Fleet.ByStatus[status]), string(status))
		}
	}
	gauge(slotsDesc, float64(s.Fleet.Slots))
	gauge(busyDesc, float64(s.Fleet.Busy))
	gauge(stuckDesc, float64(s.Fleet.Stuck))
	for _, t := range s.Tasks {
		if t.LastSuccessAt.IsZero() {
			continue
		}
		at := float64(t.LastSuccessAt.UnixMilli()) / 1000
		gauge(taskDesc, at, t.Name)
		if t.Name == "reaper" {
			gauge(reaperDesc, at)
		}
	}
	if i := s.Integrity; i != nil {
		gauge(violationsDesc, float64(len(i.Violated)))
		gauge(uncheckedDesc, float64(len(i.Unchecked)))
		if !i.CompleteAt.IsZero() {
			gauge(integrityDesc, float64(i.CompleteAt.UnixMilli())/1000)
		}
	}
	gauge(snapshotAtDesc, float64(s.At.UnixMilli())/1000)
}

// snapshot returns nil when none can be read, and how often that was so.
func (g *snapshotGauges) snapshot() (*inspect.Snapshot, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.failed) < failedAge {
		g.failures++
		return nil, g.failures
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	s, err := g.read.Snapshot(ctx, min(max(costFactor*g.cost, minAge), maxAge))
	if err != nil {
		g.failed = time.Now()
		g.failures++
		g.log.WarnContext(ctx, "metrics snapshot failed", "error", err)
		return nil, g.failures
	}
	g.cost = s.Took
	return s, g.failures
}

// AddPool adds the connections of a pool.
func (m *Metrics) AddPool(pool *pgxpool.Pool) {
	m.registry.MustRegister(poolGauges{pool})
}

type poolGauges struct{ pool *pgxpool.Pool }

var poolDesc = desc("db_pool_connections", "Connections of this process's pool.", "state")

// Describe implements prometheus.Collector.
func (poolGauges) Describe(ch chan<- *prometheus.Desc) { ch <- poolDesc }

// Collect implements prometheus.Collector.
func (g poolGauges) Collect(out chan<- prometheus.Metric) {
	stat := g.pool.Stat()
	for state, n := range map[string]int32{
		"in_use": stat.AcquiredConns(), "idle": stat.IdleConns(), "opening": stat.ConstructingConns(), "max": stat.MaxConns(),
	} {
		out <- prometheus.MustNewConstMetric(poolDesc, prometheus.GaugeValue, float64(n), state)
	}
}
