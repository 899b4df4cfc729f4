package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// The tests named TestA1 to TestI7, here and in the files pitfalls_*_test.go, are situations in which job engines have
// gone wrong, on real engines and a real Postgres.

type (
	work    = engine.Job[engine.RawArgs]
	handler = engine.WorkerFunc[engine.RawArgs]
)

// handlers makes a set of workers; plain is always among them.
func handlers(byType map[string]handler) *engine.Workers {
	ws := engine.NewWorkers()
	for name, h := range byType {
		engine.RegisterType(ws, name, h, engine.TypeOptions{})
	}
	engine.RegisterType(ws, "plain", handler(func(context.Context, *work) error { return nil }), engine.TypeOptions{})
	return ws
}

// hasty is an engine's pace for tests: a lost lease is noticed within a second.
func hasty(ws *engine.Workers) engine.Config {
	return engine.Config{Workers: ws, LeaseDuration: 600 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond,
		ReaperInterval: 50 * time.Millisecond, PollInterval: 100 * time.Millisecond,
		Retry: engine.FullJitter{Base: time.Millisecond, Max: 5 * time.Millisecond}}
}

func enqueue(t *testing.T, e *engine.Engine, jobType string, o engine.EnqueueOptions) engine.ID {
	t.Helper()
	done, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: jobType}, o)
	if err != nil {
		t.Fatal(err)
	}
	return done.ID
}

// within is eventually with a limit of its own.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func reaches(t *testing.T, pool *pgxpool.Pool, id engine.ID, state string) {
	t.Helper()
	eventually(t, fmt.Sprintf("job %s is %s", id, state), func() bool { return stateOf(t, pool, id) == state })
}

// healthy is what must hold after every situation: a fresh job runs, each run is closed once, every job stands in one
// place, and no lease is left over.
func healthy(t *testing.T, pool *pgxpool.Pool, e *engine.Engine) {
	t.Helper()
	began := time.Now()
	fresh := enqueue(t, e, "plain", engine.EnqueueOptions{Priority: engine.PriorityCritical.Ptr()})
	reaches(t, pool, fresh, "completed")
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("a fresh job took %v", d)
	}
	eventually(t, "no lease is left without an open job", func() bool {
		return one[int](t, pool, `SELECT count(*) FROM job_claims c WHERE NOT EXISTS (SELECT FROM unnest(c.job_ids) AS u(id)
			WHERE NOT EXISTS (SELECT FROM job_executions x WHERE x.job_id = u.id AND x.fencing_token = c.id))`) == 0
	})
	if n := one[int](t, pool, "SELECT count(*) FROM job_states WHERE state IS NULL"); n > 0 {
		t.Errorf("%d jobs stand nowhere", n)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM (SELECT job_id FROM (SELECT job_id FROM job_ready UNION ALL SELECT job_id FROM job_scheduled
		UNION ALL SELECT job_id FROM dead_letter_jobs UNION ALL SELECT job_id FROM job_held) AS p GROUP BY job_id HAVING count(*) > 1) AS d`); n > 0 {
		t.Errorf("%d jobs stand in two places", n)
	}
}

// lose makes what a worker that died leaves behind: jobs in a lease that nobody renews, of a worker without a row.
func lose(t *testing.T, pool *pgxpool.Pool, ids ...engine.ID) {
	t.Helper()
	n := one[int](t, pool, `WITH d AS (DELETE FROM job_ready WHERE job_id = ANY($1::uuid[]) RETURNING job_id, attempt, crashes),
		c AS (INSERT INTO job_claims (worker_id, claimed_at, lease_expires_at, job_ids, attempts, crashes)
		SELECT 987654, now() - interval '1 min', now() - interval '1 s', array_agg(job_id), array_agg(attempt), array_agg(crashes) FROM d HAVING count(*) > 0)
		SELECT count(*) FROM d`, ids)
	if n != len(ids) {
		t.Fatalf("%d of %d jobs stood in line", n, len(ids))
	}
}

func outcomes(t *testing.T, pool *pgxpool.Pool, id engine.ID) string {
	t.Helper()
	codes := one[[]int16](t, pool, "SELECT coalesce(array_agg(outcome ORDER BY fencing_token), '{}') FROM job_executions WHERE job_id = $1", id)
	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = engine.Outcome(c).String()
	}
	return strings.Join(words, " ")
}

// watcher is an Observer that counts.
type watcher struct {
	engine.NopObserver
	mu      sync.Mutex
	died    map[string]int // queue type reason
	refused map[string]int
	ended   map[engine.Outcome]int
}

func newWatcher() *watcher {
	return &watcher{died: map[string]int{}, refused: map[string]int{}, ended: map[engine.Outcome]int{}}
}

func (w *watcher) JobDied(queue, jobType string, reason engine.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.died[queue+" "+jobType+" "+string(reason)]++
}

func (w *watcher) WriteRefused(operation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[operation]++
}

func (w *watcher) RunEnded(_, _ string, o engine.Outcome, _, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[o]++
}

func (w *watcher) deaths() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.died)
}

func (w *watcher) refusals() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.refused)
}

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	got []map[string]any
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line map[string]any
	if err := json.Unmarshal(b, &line); err != nil {
		return 0, err
	}
	l.got = append(l.got, line)
	return len(b), nil
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// with returns the lines whose fields are these.
func (l *lines) with(fields map[string]any) (found []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.got {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(fields)), func(k string) bool { return line[k] != fields[k] }) {
			found = append(found, line)
		}
	}
	return found
}

func TestA2LargeNumbersSurviveDigitForDigit(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	const payload = `{"a": 1970670598291982290, "b": 12345678901234567890123, "c": 0.1000000000000000000000000000000000001, "d": [9007199254740993]}`
	var seen sync.Map
	var tries atomic.Int64
	type loose struct {
		A any   `json:"a"`
		B any   `json:"b"`
		D []any `json:"d"`
	}
	ws := handlers(map[string]handler{"numbers": func(_ context.Context, j *work) error {
		seen.Store("raw", string(j.Payload))
		var l loose
		d := json.NewDecoder(strings.NewReader(string(j.Args.Payload)))
		d.UseNumber()
		if err := d.Decode(&l); err != nil {
			return err
		}
		seen.Store("decoded", fmt.Sprintf("%v %v %v", l.A, l.B, l.D))
		if tries.Add(1) == 1 {
			return engine.Permanent(fmt.Errorf("once"))
		}
		return nil
	}})
	e := start(t, pool, hasty(ws))
	done, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: "numbers", Payload: json.RawMessage(payload)}, engine.EnqueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		raw, _ := seen.Load("raw")
		decoded, _ := seen.Load("decoded")
		if want := one[string](t, pool, "SELECT $1::jsonb::text", payload); raw != want {
			t.Errorf("payload = %s, want %s", raw, want)
		}
		if want := "1970670598291982290 12345678901234567890123 [9007199254740993]"; decoded != want {
			t.Errorf("decoded = %s, want %s", decoded, want)
		}
	}
	reaches(t, pool, done.ID, "dead_letter")
	check()
	if err := e.Client().Replay(t.Context(), done.ID, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, done.ID, "completed")
	check()
}

func TestA3RetentionTakesEndedJobsAlone(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"doomed": func(context.Context, *work) error { return engine.Permanent(fmt.Errorf("no")) }})
	c := hasty(ws)
	c.Retention = engine.Retention{Completed: time.Nanosecond, Cancelled: time.Nanosecond}
	first := start(t, pool, hasty(ws)) // keeps for days
	far := enqueue(t, first, "plain", engine.EnqueueOptions{ScheduledAt: time.Now().AddDate(9, 0, 0)})
	waiting := enqueue(t, first, "nobody", engine.EnqueueOptions{})
	dead := enqueue(t, first, "doomed", engine.EnqueueOptions{})
	completed := enqueue(t, first, "plain", engine.EnqueueOptions{})
	cancelled := enqueue(t, first, "plain", engine.EnqueueOptions{Delay: time.Hour})
	if err := first.Client().Cancel(t.Context(), cancelled, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, dead, "dead_letter")
	reaches(t, pool, completed, "completed")
	stop(t, first)
	// It leads now, and prunes at once.
	start(t, pool, c)
	within(t, 25*time.Second, "what has ended is gone", func() bool { // a pass is made every ten seconds
		return one[int](t, pool, "SELECT count(*) FROM jobs WHERE id = ANY($1::uuid[])", []engine.ID{completed, cancelled}) == 0
	})
	if n := one[int](t, pool, "SELECT count(*) FROM jobs WHERE id = ANY($1::uuid[])", []engine.ID{far, waiting, dead}); n != 3 {
		t.Errorf("%d of 3 jobs that have not ended are left", n)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM job_executions x WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = x.job_id)"); n != 0 {
		t.Errorf("%d runs of removed jobs are left", n)
	}
	for id, want := range map[engine.ID]string{far: "pending", waiting: "pending", dead: "dead_letter"} {
		if s := stateOf(t, pool, id); s != want {
			t.Errorf("state = %s, want %s", s, want)
		}
	}
}

func stop(t *testing.T, e *engine.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// TestA8CriticalIsNextOnEveryPath fills the line while the only slot is taken, and looks who runs first then. A suspect is
// looked for once a second, so that a recovered job may find some before it.
func TestA8CriticalIsNextOnEveryPath(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	gate, began := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var order []string
	var tries sync.Map
	ws := handlers(map[string]handler{
		"gate": func(context.Context, *work) error { close(began); <-gate; return nil },
		"ordinary": func(_ context.Context, j *work) error {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, "ordinary")
			return nil
		},
		"critical": func(_ context.Context, j *work) error {
			var args struct{ Path string }
			if err := json.Unmarshal(j.Payload, &args); err != nil {
				return err
			}
			if _, again := tries.LoadOrStore(args.Path, true); !again && args.Path == "replay" {
				return engine.Permanent(fmt.Errorf("once"))
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, args.Path)
			return nil
		},
	})
	c := hasty(ws)
	c.Concurrency, c.NoPrefetch = 1, true
	e := start(t, pool, c)
	critical := func(path string, o engine.EnqueueOptions) engine.ID {
		o.Priority = engine.PriorityCritical.Ptr()
		done, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: "critical", Payload: json.RawMessage(`{"Path":"` + path + `"}`)}, o)
		if err != nil {
			t.Fatal(err)
		}
		return done.ID
	}
	replayed := critical("replay", engine.EnqueueOptions{})
	reaches(t, pool, replayed, "dead_letter")
	enqueue(t, e, "gate", engine.EnqueueOptions{})
	<-began
	for range 20 {
		enqueue(t, e, "ordinary", engine.EnqueueOptions{})
	}
	critical("delay", engine.EnqueueOptions{Delay: 50 * time.Millisecond})
	lost := critical("recovery", engine.EnqueueOptions{})
	lose(t, pool, lost)
	critical("direct", engine.EnqueueOptions{})
	if err := e.Client().Replay(t.Context(), replayed, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all critical jobs stand in line", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_ready WHERE type = 'critical'") == 4
	})
	close(gate)
	eventually(t, "24 jobs ran", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == 24
	})
	at := slices.Index(order, "recovery")
	rest := slices.Delete(slices.Clone(order), at, at+1)
	if first := slices.Sorted(slices.Values(rest[:3])); !slices.Equal(first, []string{"delay", "direct", "replay"}) || at > 15 {
		t.Errorf("ran in this order: %v", order)
	}
	healthy(t, pool, e)
}
