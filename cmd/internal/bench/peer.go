// Package bench measures the engine on a database of its own. Peer is one
// operation of a comparison with other engines, told what to do by variables:
// DATABASE_URL, SCENARIO, JOBS, CONNS, RATE, OPTIONS.
package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// Task is one operation.
type Task struct {
	URL      string
	Scenario string // setup, fill-done, fill-future, bulk, single, drain, latency
	Jobs     int
	Conns    int
	Rate     int // jobs a second
	Options  map[string]string
	Log      *slog.Logger
}

// Result is one measurement; Seconds is 0 for what is not timed.
type Result struct {
	Seconds     float64   `json:"seconds"`
	Jobs        int       `json:"jobs"`
	LatenciesMS []float64 `json:"latencies_ms,omitempty"`
}

// ParseOptions reads "key=value,key=value".
func ParseOptions(s string) (map[string]string, error) {
	o := map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("option %q: use key=value", part)
		}
		o[k] = v
	}
	return o, nil
}

func (t Task) int(key string, def int) int {
	if n, err := strconv.Atoi(t.Options[key]); err == nil {
		return n
	}
	return def
}

// noop is a job of about 100 bytes that does nothing.
type noop struct {
	N   int    `json:"n"`
	T   int64  `json:"t"`
	Pad string `json:"pad"`
}

func (noop) JobType() string { return "noop" }

var pad = strings.Repeat("x", 60)

func newNoop(i int) noop { return noop{i, time.Now().UnixNano(), pad} }

// Run does the task. Errors name it.
func Run(ctx context.Context, t Task) (Result, error) {
	if t.Log == nil {
		t.Log = slog.New(slog.DiscardHandler)
	}
	run, ok := map[string]func(context.Context, Task) (Result, error){
		"setup": setup, "fill-done": fillDone, "fill-future": fillFuture, "bulk": bulk, "single": single, "drain": drain, "latency": latency,
	}[t.Scenario]
	if !ok {
		return Result{}, fmt.Errorf("scenario %q: use setup, fill-done, fill-future, bulk, single, drain or latency", t.Scenario)
	}
	r, err := run(ctx, t)
	if err != nil {
		return r, fmt.Errorf("bench %s: %w", t.Scenario, err)
	}
	r.Jobs = t.Jobs
	return r, nil
}

func setup(ctx context.Context, t Task) (Result, error) {
	return Result{}, db.Migrate(ctx, t.URL, t.Log)
}

const fillPayload = `jsonb_build_object('n', 1, 't', 1, 'pad', repeat('x', 60))`

// fillDone adds finished jobs as the engine would have left them.
func fillDone(ctx context.Context, t Task) (Result, error) {
	return Result{}, exec(ctx, t, `
		WITH j AS (
			INSERT INTO jobs (id, type, version, payload) SELECT uuid_v7(), 'noop', 1, `+fillPayload+` FROM generate_series(1, $1) RETURNING id)
		INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, wait_ms, attempt, outcome)
		SELECT j.id, nextval('job_claims_id_seq'), 0, now(), now(), 1, 1, 1 FROM j`)
}

func fillFuture(ctx context.Context, t Task) (Result, error) {
	return Result{}, exec(ctx, t, `
		WITH j AS (
			INSERT INTO jobs (id, type, version, payload, scheduled_at)
			SELECT uuid_v7(), 'noop', 1, `+fillPayload+`, now() + interval '30 days' + g * interval '1 second' FROM generate_series(1, $1) AS g
			RETURNING id, type, queue, priority, scheduled_at)
		INSERT INTO job_scheduled (run_at, job_id, priority, queue, type) SELECT j.scheduled_at, j.id, j.priority, j.queue, j.type FROM j`)
}

func exec(ctx context.Context, t Task, sql string) error {
	conn, err := pgx.Connect(ctx, t.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, t.Jobs)
	return err
}

func pool(ctx context.Context, t Task, conns int) (*pgxpool.Pool, error) {
	return db.Open(ctx, db.PoolConfig{URL: t.URL, MaxConns: int32(conns), StatementTimeout: time.Minute, ApplicationName: "bench"})
}

// bulk enqueues through the batch call, in chunks.
func bulk(ctx context.Context, t Task) (Result, error) {
	p, err := pool(ctx, t, 2)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	c, err := engine.NewClient(engine.ClientConfig{Pool: p, Log: t.Log})
	if err != nil {
		return Result{}, err
	}
	chunk := t.int("chunk", 10_000)
	began := time.Now()
	for from := 0; from < t.Jobs; from += chunk {
		items := make([]engine.EnqueueItem, min(chunk, t.Jobs-from))
		for i := range items {
			items[i].Args = newNoop(from + i)
		}
		if _, err := c.EnqueueMany(ctx, items); err != nil {
			return Result{}, err
		}
	}
	took := time.Since(began)
	return Result{Seconds: took.Seconds()}, c.Close(ctx)
}

// single enqueues one job a call from several callers at once.
func single(ctx context.Context, t Task) (Result, error) {
	callers := max(t.Conns, 1)
	p, err := pool(ctx, t, callers)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	c, err := engine.NewClient(engine.ClientConfig{Pool: p, Log: t.Log})
	if err != nil {
		return Result{}, err
	}
	var next atomic.Int64
	errs := make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			for n := next.Add(1); int(n) <= t.Jobs; n = next.Add(1) {
				if _, errs[i] = c.Enqueue(ctx, newNoop(int(n)), engine.EnqueueOptions{}); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	return Result{Seconds: took.Seconds()}, errors.Join(errors.Join(errs...), c.Close(ctx))
}

// ends counts runs whose end is committed.
type ends struct {
	engine.NopObserver
	left atomic.Int64
	all  chan struct{}
}

func (e *ends) RunEnded(string, string, engine.Outcome, time.Duration, time.Duration) {
	if e.left.Add(-1) == 0 {
		close(e.all)
	}
}

// drain runs what stands ready; the clock goes from the engine's start until
// the last completion is committed.
func drain(ctx context.Context, t Task) (Result, error) {
	p, err := pool(ctx, t, 4)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	counted := &ends{all: make(chan struct{})}
	counted.left.Store(int64(t.Jobs))
	ws := engine.NewWorkers()
	engine.Register(ws, engine.WorkerFunc[noop](func(context.Context, *engine.Job[noop]) error { return nil }), engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: p, Workers: ws, Log: t.Log, Observer: counted, Concurrency: t.int("workers", 64)})
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	if err := e.Start(ctx); err != nil {
		return Result{}, err
	}
	select {
	case <-counted.all:
	case <-ctx.Done():
		err = fmt.Errorf("%d of %d jobs left: %w", counted.left.Load(), t.Jobs, ctx.Err())
	}
	took := time.Since(began)
	return Result{Seconds: took.Seconds()}, errors.Join(err, stop(e))
}

func stop(e *engine.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return e.Stop(ctx)
}

// latency enqueues at a fixed rate from one client and measures until each
// handler starts in an engine of its own.
func latency(ctx context.Context, t Task) (Result, error) {
	p, err := pool(ctx, t, 8)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	starts := make(chan float64, t.Jobs)
	ws := engine.NewWorkers()
	engine.Register(ws, engine.WorkerFunc[noop](func(_ context.Context, job *engine.Job[noop]) error {
		starts <- float64(time.Now().UnixNano()-job.Args.T) / 1e6
		return nil
	}), engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: p, Workers: ws, Log: t.Log, Concurrency: t.int("workers", 64)})
	if err != nil {
		return Result{}, err
	}
	if err := e.Start(ctx); err != nil {
		return Result{}, err
	}
	// A client of its own, as in another process: it can wake the engine by
	// notification alone.
	c, err := engine.NewClient(engine.ClientConfig{Pool: p, Log: t.Log})
	if err != nil {
		return Result{}, errors.Join(err, stop(e))
	}
	time.Sleep(500 * time.Millisecond)
	r := Result{}
	began, gap := time.Now(), time.Second/time.Duration(max(t.Rate, 1))
	for i := range t.Jobs {
		time.Sleep(time.Until(began.Add(time.Duration(i) * gap)))
		if _, err := c.Enqueue(ctx, newNoop(i), engine.EnqueueOptions{}); err != nil {
			return r, errors.Join(err, stop(e))
		}
	}
	for range t.Jobs {
		select {
		case ms := <-starts:
			r.LatenciesMS = append(r.LatenciesMS, ms)
		case <-ctx.Done():
			return r, errors.Join(fmt.Errorf("%d of %d jobs started: %w", len(r.LatenciesMS), t.Jobs, ctx.Err()), stop(e))
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, errors.Join(c.Close(ctx), stop(e))
}
