package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Retention is how long finished jobs are kept, counted from their end. Zero
// takes the default; negative means for ever.
type Retention struct {
	Completed time.Duration // default 168 h
	Cancelled time.Duration // default 168 h
	Dead      time.Duration // default: for ever
	// Audit is how long the trail of operators' acts is kept. Default 8,760 h.
	Audit time.Duration
}

// Config is what an [Engine] needs. Pool and, unless MaintenanceOnly is set,
// Workers are required; the zero value of the rest is its default.
type Config struct {
	// Pool reaches the database, for the caller's own work and the engine's
	// client. Claims, heartbeats and the listener have connections of their own
	// beside it, made with its settings: up to 6 a process. The caller closes it after
	// Stop.
	Pool    *pgxpool.Pool
	Workers *Workers
	// Log gets the engine's lines. Default: none.
	Log      *slog.Logger
	Observer Observer
	// Name tells this worker from others, for people. Default host-pid.
	Name string
	// Version is the program's, shown with its runs.
	Version string
	// Queues served; none means all.
	Queues []string
	// Concurrency is how many handlers run at once. Default 10.
	Concurrency int
	// MaintenanceOnly runs no jobs: the reaper, promotion and retention alone.
	MaintenanceOnly bool
	// LeaseDuration is how long a claim lasts without a heartbeat. Longer, and a
	// crashed worker's jobs wait longer; shorter, and a paused worker loses its
	// jobs sooner. [New] refuses less than three HeartbeatIntervals. Default 30s.
	LeaseDuration time.Duration
	// HeartbeatInterval is how often leases are renewed. Default 10s.
	HeartbeatInterval time.Duration
	// ReaperInterval is how often the leader looks for expired leases. Default 5s.
	ReaperInterval time.Duration
	// PollInterval is how often an idle worker looks for jobs that no
	// notification announced. Default 1s.
	PollInterval time.Duration
	// JobTimeout ends one run's context, unless its job or type says otherwise.
	// Default 60s.
	JobTimeout time.Duration
	// StopGrace is how long a handler may go on after its job was asked to stop,
	// before the job is cancelled over its head. Default 10s.
	StopGrace time.Duration
	// Retry is the delay after a failure. Default [FullJitter] of 1s up to 300s.
	Retry RetryPolicy
	// CrashLimit is how many runs of a suspect may be seen to die with their own
	// process before it is a dead letter. Default 3.
	CrashLimit int
	// Isolation says where suspects run. Default [IsolateAuto]: in a child process,
	// which is this program started again. In the child, Start runs them and ends the
	// process when there are no more.
	Isolation Isolation
	// SuspectMemoryBytes is how much memory a suspect's process may take beyond what
	// the program has at its start, so that a job that takes too much ends that
	// process alone. At least 16 MiB; Linux only. Default: no limit.
	SuspectMemoryBytes int64
	// OnStart is called by Start before the first job is claimed, with its ctx; an
	// error refuses the start. OnStop is called once the last handler has returned,
	// after an OnStart that succeeded; it must return when its ctx ends. Both are
	// called in the child process for suspects too. Default: none.
	OnStart func(ctx context.Context) error
	OnStop  func(ctx context.Context)
	// Prefetch is how many jobs are claimed beyond the free slots, at most 1000.
	// Negative: about 100 ms of work, as measured. Default negative; NoPrefetch
	// claims none ahead.
	Prefetch   int
	NoPrefetch bool
	// DiscardDead makes dead letters discarded at once (DLQ_ENABLED=false): they
	// are counted, listed and restorable for [RestoreWindow].
	DiscardDead bool
	Retention   Retention
	// DBTimeout bounds one statement of the engine. Default 5s.
	DBTimeout time.Duration
	// PayloadMaxBytes, MaxAttempts, KeyTTL, CheckCallback are those of [ClientConfig].
	PayloadMaxBytes int
	MaxAttempts     int
	KeyTTL          time.Duration
	CheckCallback   func(url string) error
}

// lostRunLimit is the reaper's own limit: a lease that merely expired is weak
// evidence against a job, so that ten of them in a row bury it.
const lostRunLimit = 9

// Engine runs jobs, and takes part in the upkeep of all. Its methods are safe
// for many goroutines.
type Engine struct {
	cfg    Config
	log    *slog.Logger
	obs    Observer
	q      *dbsqlc.Queries
	client *Client
	types  []string
	chain  HandlerFunc // the middleware around each handler; nil without any

	hot  *pgxpool.Pool // claims and finishes, with pinned plans
	beat *pgxpool.Pool // heartbeats: never behind job traffic

	workerID int64
	self     []byte // this worker, as a dead letter keeps it

	buffer   *buffer
	claimer  *claimer
	finisher *finisher
	promoter *promoter
	leader   *leader
	leases   leases
	pace     pace
	running  []atomic.Pointer[run]
	isolator *isolator

	inFlight  atomic.Int64 // claimed here and not yet out of a slot
	busy      atomic.Int64
	stuck     atomic.Int64
	suspects  atomic.Int64
	claimers  atomic.Int32
	lastClaim atomic.Int64
	listening atomic.Bool
	draining  atomic.Bool
	troubled  troubles
	rates     rates

	stopHint chan struct{} // a notification told of a stop request

	runs     context.Context // of every handler
	endRuns  context.CancelCauseFunc
	claims   context.Context // of the claimer
	endClaim context.CancelFunc
	loops    context.Context // of everything that goes on while handlers finish
	endLoops context.CancelFunc
	db       context.Context // of every statement; ends last
	endDB    context.CancelFunc

	slotsDone   sync.WaitGroup
	claimerDone sync.WaitGroup
	loopsDone   sync.WaitGroup

	mu      sync.Mutex
	started bool
	stopped chan struct{} // closed when Stop has done its work
	stopErr error

	// Of the retention pass, which one goroutine runs.
	walkedAt  time.Time
	sweptKey  []byte
	owedAfter ID
	holder    holder
	clock     clock
	liveFrom  int // of the flush, which one goroutine runs
	// batches are how much of each backlog a call takes.
	batches struct {
		reap, promote, fold, hold, prune, dead, expire, unique, keys, refused, minutes, audit, live, owed batchSize
	}
	// Of the reaper: when it last looked, by the wall clock.
	reapedAt time.Time
	// Of the expiry: the walk, and the one that goes after it.
	expired, expiredAgain expiry
}

// New checks c. It opens nothing yet. All mistakes come in one error.
func New(c Config) (*Engine, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	client, err := NewClient(ClientConfig{Pool: c.Pool, Log: c.Log, Observer: c.Observer, PayloadMaxBytes: c.PayloadMaxBytes,
		MaxAttempts: c.MaxAttempts, KeyTTL: c.KeyTTL, CheckCallback: c.CheckCallback})
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, log: c.Log, obs: c.Observer, q: dbsqlc.New(), client: client, types: c.Workers.Types(), buffer: newBuffer(),
		leases: leases{held: map[int64]*lease{}}, running: make([]atomic.Pointer[run], c.Concurrency), holder: holder{since: map[string]time.Time{}},
		stopHint: make(chan struct{}, 1)}
	e.claimer, e.finisher, e.promoter, e.leader = newClaimer(e), newFinisher(e), newPromoter(e), newLeader(e)
	b := &e.batches
	for size, most := range map[*batchSize]int32{&b.reap: reapBatch, &b.promote: promoteBatch, &b.fold: foldBatch, &b.hold: holdBatch, &b.prune: pruneBatch,
		&b.dead: pruneBatch, &b.expire: expireBatch, &b.unique: sweepBatch, &b.keys: pruneBatch, &b.refused: pruneBatch, &b.minutes: pruneBatch,
		&b.audit: auditBatch, &b.live: pruneBatch, &b.owed: owedBatch} {
		size.most = most
	}
	b.reap.first = firstReapBatch
	e.isolator, e.chain = newIsolator(e), c.Workers.around(callHandler)
	client.wake = e.claimer.wake
	e.runs, e.endRuns = context.WithCancelCause(context.Background())
	e.claims, e.endClaim = context.WithCancel(context.Background())
	e.loops, e.endLoops = context.WithCancel(context.Background())
	e.db, e.endDB = context.WithCancel(context.Background())
	return e, nil
}

// fill sets defaults and lists what cannot work.
func (c *Config) fill() error {
	var bad []error
	wrong := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Pool != nil, "Pool is nil")
	if c.Workers == nil {
		c.Workers = NewWorkers()
	}
	if c.MaintenanceOnly {
		c.Concurrency = 0
	} else {
		wrong(len(c.Workers.byType) > 0, "Workers has no job type; register one, or set MaintenanceOnly")
		or(&c.Concurrency, 10)
		wrong(c.Concurrency > 0 && c.Concurrency <= 100_000, "Concurrency %d: use 1 to 100000", c.Concurrency)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = host + "-" + strconv.Itoa(os.Getpid())
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{{"LeaseDuration", &c.LeaseDuration, 30 * time.Second}, {"HeartbeatInterval", &c.HeartbeatInterval, 10 * time.Second},
		{"ReaperInterval", &c.ReaperInterval, 5 * time.Second}, {"PollInterval", &c.PollInterval, time.Second},
		{"JobTimeout", &c.JobTimeout, time.Minute}, {"DBTimeout", &c.DBTimeout, 5 * time.Second}, {"StopGrace", &c.StopGrace, 10 * time.Second}} {
		or(d.value, d.def)
		wrong(*d.value >= 10*time.Millisecond, "%s %s: use 10ms or more", d.name, *d.value)
	}
	wrong(c.HeartbeatInterval <= c.LeaseDuration/3, "HeartbeatInterval %s: use a third of LeaseDuration %s or less, so that two may fail",
		c.HeartbeatInterval, c.LeaseDuration)
	or(&c.CrashLimit, 3)
	wrong(c.CrashLimit >= 1 && c.CrashLimit <= lostRunLimit, "CrashLimit %d: use 1 to %d", c.CrashLimit, lostRunLimit)
	wrong(c.SuspectMemoryBytes == 0 || canLimitMemory && c.SuspectMemoryBytes >= 16<<20, "SuspectMemoryBytes %d: use 16777216 or more, on Linux",
		c.SuspectMemoryBytes)
	wrong(c.Isolation != IsolateAlways || canIsolate, "Isolation IsolateAlways: there are no child processes for suspects on this system")
	if c.Prefetch == 0 && !c.NoPrefetch {
		c.Prefetch = -1
	}
	wrong(c.Prefetch <= maxBatch, "Prefetch %d: use at most %d", c.Prefetch, maxBatch)
	if c.Retry == nil {
		c.Retry = FullJitter{Base: time.Second, Max: 300 * time.Second}
	}
	wrong(validPolicy(c.Retry), "Retry %+v: Base must be positive and Max at least Base", c.Retry)
	for name, reg := range c.Workers.byType {
		wrong(reg.options.Retry == nil || validPolicy(reg.options.Retry), "type %s: Retry %+v: Base must be positive and Max at least Base",
			name, reg.options.Retry)
	}
	for _, q := range c.Queues {
		wrong(validName(q), "queue %q: %s", q, nameRule)
	}
	c.Queues = slices.Compact(slices.Sorted(slices.Values(c.Queues)))
	or(&c.Retention.Completed, 168*time.Hour)
	or(&c.Retention.Cancelled, 168*time.Hour)
	or(&c.Retention.Audit, 8760*time.Hour)
	if len(bad) > 0 {
		return fmt.Errorf("new engine: %w", errors.Join(bad...))
	}
	return nil
}

func or[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}

func validPolicy(p RetryPolicy) bool {
	switch p := p.(type) {
	case FullJitter:
		return p.Base > 0 && p.Max >= p.Base
	case Exponential:
		return p.Base > 0 && p.Max >= p.Base
	}
	return true
}

// Client returns a client that shares this engine's settings and wakes it at
// once. Stop closes it.
func (e *Engine) Client() *Client { return e.client }

// Start registers this worker and begins to claim. ctx bounds the start alone.
// It returns once the database knows the worker; after an error nothing runs.
//
// In a child process for suspects (see [Config.Isolation]) it runs those, ends
// the process when its parent lets it go or is gone, and returns only an error
// that keeps it from beginning: OnStart's, for one. Where a program has several
// engines, the Start of those whose child it is not does nothing. Call it before
// listeners are opened, so that the child opens none.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped != nil:
		return ErrStopped
	case e.started:
		return errors.New("start engine: it runs already")
	}
	if in := inherited(); in != nil {
		return e.serveParent(ctx, in)
	}
	if err := e.open(ctx); err != nil {
		return err
	}
	e.started = true
	e.claimers.Store(1)
	e.log.Info(LogWorkerStarted, "worker_id", e.workerID, "name", e.cfg.Name, "slots", e.cfg.Concurrency, "queues", e.cfg.Queues,
		"types", e.types)
	e.every(e.cfg.HeartbeatInterval, "heartbeat", e.beatOnce)
	e.every(e.cfg.HeartbeatInterval, "finish", e.finisher.poke)
	e.spawn(e.leader.run)
	e.spawn(e.promoter.run)
	e.spawn(e.listen)
	e.everyOr(e.leader.taken, e.cfg.ReaperInterval, "reaper", e.reapPass)
	e.every(foldEvery, "stats", e.whileLeading(e.foldOnce))
	e.every(holdEvery, "hold", e.whileLeading(e.holdOnce))
	e.every(pruneEvery, "retention", e.whileLeading(e.pruneOnce))
	e.every(e.cfg.ReaperInterval, "stop", e.whileLeading(e.revokeOnce))
	e.every(operateEvery, "operations", e.whileLeading(e.operateOnce))
	e.spawn(e.finisher.run)
	if e.cfg.MaintenanceOnly {
		return nil
	}
	e.every(watchEvery, "watchdog", e.watch)
	e.every(liveEvery, "live", e.flushLive)
	e.spawn(e.beatOnHint)
	for i := range e.cfg.Concurrency {
		e.slotsDone.Add(1)
		go e.slot(i)
	}
	e.claimerDone.Add(1)
	go func() {
		defer e.claimerDone.Done()
		e.claimer.run(e.claims)
	}()
	return nil
}

const watchEvery = 100 * time.Millisecond

func (e *Engine) register(ctx context.Context) error {
	w := e.workerRow()
	id, err := e.q.RegisterWorker(ctx, e.hot, dbsqlc.RegisterWorkerParams{Name: w.Name, Hostname: w.Hostname, Pid: w.Pid, Version: w.Version,
		Queues: w.Queues, Types: w.Types, Slots: w.Slots, LeaseMs: w.LeaseMs})
	if err != nil {
		return fmt.Errorf("register worker %s: %w", e.cfg.Name, err)
	}
	e.workerID = id
	e.self, err = json.Marshal(map[string]any{"id": strconv.FormatInt(id, 10), "name": w.Name, "hostname": w.Hostname, "pid": w.Pid, "version": w.Version})
	return err
}

func (e *Engine) workerRow() dbsqlc.BeatWorkerParams {
	host, _ := os.Hostname()
	state := "running"
	if e.draining.Load() {
		state = "draining"
	}
	queues := e.cfg.Queues
	if queues == nil {
		queues = []string{}
	}
	done, failed := e.rates.read(time.Now())
	return dbsqlc.BeatWorkerParams{ID: e.workerID, Name: e.cfg.Name, Hostname: host, Pid: int32(os.Getpid()), Version: e.cfg.Version,
		Queues: queues, Types: e.types, Slots: int32(e.cfg.Concurrency), Busy: int32(e.busy.Load()), Stuck: int32(e.stuck.Load()),
		LeaseMs: int32(e.cfg.LeaseDuration.Milliseconds()), State: state, DonePerMinute: done, FailedLately: failed}
}

// Status is what this process knows of itself.
type Status struct {
	WorkerID           int64
	Slots, Busy, Stuck int
	// Leader tells whether this process does the upkeep now.
	Leader bool
	// Listening tells whether notifications arrive; polling carries the work
	// without them.
	Listening bool
	Draining  bool
	// LastClaim is when a claim last succeeded, with or without jobs.
	LastClaim time.Time
}

// Ready tells whether this worker can take work: it is not draining and not
// every slot is held by a handler that ignores its deadline.
func (s Status) Ready() bool { return !s.Draining && (s.Slots == 0 || s.Stuck < s.Slots) }

// Status returns what this process knows of itself, without asking the database.
func (e *Engine) Status() Status {
	s := Status{WorkerID: e.workerID, Slots: e.cfg.Concurrency, Busy: int(e.busy.Load()), Stuck: int(e.stuck.Load()), Leader: e.leader.leading(),
		Listening: e.listening.Load(), Draining: e.draining.Load()}
	if at := e.lastClaim.Load(); at > 0 {
		s.LastClaim = time.Unix(0, at)
	}
	return s
}

func (e *Engine) serves(queue string) bool {
	return len(e.cfg.Queues) == 0 || slices.Contains(e.cfg.Queues, queue)
}

// room is how many jobs to claim now. Under load it waits until half of the
// room is free, so that batches stay large; a free slot with nothing in the
// buffer does not wait.
func (e *Engine) room() int {
	prefetch := e.cfg.Prefetch
	if prefetch < 0 {
		prefetch = e.pace.prefetch(e.cfg.Concurrency)
	}
	all := e.cfg.Concurrency + prefetch
	free := all - int(e.inFlight.Load())
	if free <= 0 || free < (all+1)/2 && e.buffer.len() > 0 {
		return 0
	}
	return min(free, maxBatch)
}
