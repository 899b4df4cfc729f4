package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/enginetest"
)

// task is a job whose name says what its handler does.
type task struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

func (task) JobType() string { return "task" }

// quotaError says its own class.
type quotaError struct{}

func (quotaError) Error() string      { return "quota of customer 42 is used up" }
func (quotaError) ErrorClass() string { return "quota" }

var errRefused = errors.New("the target refuses order 8123")

// scene is one handler and what its job is enqueued with.
type scene struct {
	work    func(ctx context.Context, job *engine.Job[task]) error
	job     engine.EnqueueOptions
	attempt int    // the last one, 1 by default
	payload string // instead of a task's
	stop    bool   // somebody asks the job to stop
}

var scenes = map[string]scene{
	"completes": {work: func(_ context.Context, job *engine.Job[task]) error {
		job.Log().With("order", 8123).WithGroup("mail").Info("sent", "to", "a\x00b", "took", time.Second)
		job.Log().Debug("is not kept")
		job.SetProgress(250, "all of it")
		return job.SetResult(map[string]any{"id": int64(1970670598291982290), "size": job.Args.Size})
	}},
	"fails": {work: func(_ context.Context, job *engine.Job[task]) error {
		job.SetProgress(12.5, "begun")
		job.Log().Warn("refused")
		return errors.Join(fmt.Errorf("send: %w", errRefused), job.SetResult("is not kept"))
	}},
	"fails with its own backoff": {work: func(context.Context, *engine.Job[task]) error { return errRefused },
		job: engine.EnqueueOptions{Backoff: engine.Backoff{Policy: engine.BackoffExponential, Base: time.Hour, Max: 2 * time.Hour}}},
	"fails for the last time": {work: func(context.Context, *engine.Job[task]) error { return engine.RetryAfter(errRefused, 0) },
		job: engine.EnqueueOptions{MaxAttempts: 3}, attempt: 3},
	"says when": {work: func(context.Context, *engine.Job[task]) error { return engine.RetryAfter(errRefused, 42*time.Minute) }},
	"asks for too long": {work: func(context.Context, *engine.Job[task]) error {
		return engine.RetryAfter(errRefused, 1000*time.Hour)
	}},
	"is permanent": {work: func(context.Context, *engine.Job[task]) error {
		return fmt.Errorf("send: %w", engine.Permanent(quotaError{}))
	}},
	"is snoozed": {work: func(context.Context, *engine.Job[task]) error { return engine.Snooze(time.Hour) }},
	"panics":     {work: func(context.Context, *engine.Job[task]) error { panic("no such order: 8123") }},
	"panics for ever": {work: func(context.Context, *engine.Job[task]) error {
		panic(engine.Permanent(errRefused))
	}},
	"leaves its goroutine": {work: func(context.Context, *engine.Job[task]) error { runtime.Goexit(); return nil }},
	"times out": {work: func(ctx context.Context, _ *engine.Job[task]) error {
		<-ctx.Done()
		return fmt.Errorf("send: %w", context.Cause(ctx))
	}, job: engine.EnqueueOptions{Timeout: 50 * time.Millisecond}},
	"is deaf to its deadline": {work: func(context.Context, *engine.Job[task]) error { time.Sleep(1200 * time.Millisecond); return nil },
		job: engine.EnqueueOptions{Timeout: 50 * time.Millisecond}},
	"has another payload": {payload: `{"size": "many"}`},
	"has no result":       {work: func(_ context.Context, job *engine.Job[task]) error { return job.SetResult(math.NaN()) }},
	"meets middleware":    {work: func(context.Context, *engine.Job[task]) error { return nil }},
	"stops as asked": {work: func(ctx context.Context, _ *engine.Job[task]) error {
		<-ctx.Done()
		return fmt.Errorf("half of it is done: %w", errRefused)
	}, stop: true},
	"completes though asked to stop": {work: func(ctx context.Context, _ *engine.Job[task]) error { <-ctx.Done(); return nil }, stop: true},
}

// handlers run the scenes, each under a type of its own. running is told when one that is
// to be stopped has begun.
func handlers(running func(name string)) *engine.Workers {
	ws := engine.NewWorkers()
	ws.Use(func(next engine.HandlerFunc) engine.HandlerFunc {
		return func(ctx context.Context, row engine.Row) error {
			engine.Logger(ctx).Info("run", "attempt", row.Attempt, "payload", len(row.Payload) > 0)
			if row.Type == jobType("meets middleware") {
				return errors.New("no tenant")
			}
			return next(ctx, row)
		}
	})
	for name, s := range scenes {
		engine.RegisterType(ws, jobType(name), engine.WorkerFunc[task](func(ctx context.Context, job *engine.Job[task]) error {
			if s.stop {
				running(name)
			}
			return s.work(ctx, job)
		}), engine.TypeOptions{Retry: engine.RetryFunc(func(n int) time.Duration { return time.Duration(n) * 90 * time.Minute })})
	}
	return ws
}

func jobType(name string) string { return strings.ReplaceAll(name, " ", "_") }

// raw is the scene's payload under its own type.
func raw(t *testing.T, name string) engine.RawArgs {
	t.Helper()
	payload := []byte(scenes[name].payload)
	if len(payload) == 0 {
		var err error
		if payload, err = json.Marshal(task{Name: name, Size: 1970670598291982290}); err != nil {
			t.Fatal(err)
		}
	}
	return engine.RawArgs{Type: jobType(name), Payload: payload}
}

// TestARehearsalEndsAsARunDoes holds what Run answers against what a worker wrote for
// the same handlers: no rule of verdicts may stand here and not there.
func TestARehearsalEndsAsARunDoes(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var mu sync.Mutex
	ids := map[string]engine.ID{}
	var e *engine.Engine
	ws := handlers(func(name string) {
		mu.Lock()
		defer mu.Unlock() // until the job's id is known
		if err := e.Client().RequestStop(context.Background(), ids[name], engine.Actor{Name: "test", Source: "cli"}); err != nil {
			t.Error(err)
		}
	})
	e, err := engine.New(engine.Config{Pool: pool, Workers: ws, Concurrency: 30, PollInterval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	for name, s := range scenes {
		job, err := e.Client().Enqueue(t.Context(), raw(t, name), s.job)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = job.ID
	}
	mu.Unlock()
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			want := written(t, pool, ids[name], max(s.attempt, 1))
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			got, err := enginetest.Run(ctx, handlers(func(string) { stop(engine.ErrStopRequested) }), raw(t, name),
				enginetest.Options{Job: s.job, Attempt: s.attempt})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, s, got, want)
		})
	}
}

// written is what the database says of a job's last run.
func written(t *testing.T, pool *pgxpool.Pool, id engine.ID, runs int) enginetest.Result {
	t.Helper()
	var r enginetest.Result
	var logs string
	var seconds float64
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := pool.QueryRow(t.Context(), `
			SELECT e.outcome, s.state, coalesce(d.reason, ''), coalesce(e.error_class, ''), coalesce(e.error, ''), coalesce(e.stack, ''),
			  coalesce(e.fingerprint, ''), coalesce(e.result::text, ''), coalesce(e.progress, -1), coalesce(e.progress_text, ''),
			  coalesce(e.logs::text, ''), coalesce(extract(epoch FROM w.run_at - e.finished_at), 0)::float8, coalesce(w.attempt, -1)
			FROM job_executions AS e JOIN job_states AS s ON s.id = e.job_id
			LEFT JOIN dead_letter_jobs AS d ON d.job_id = e.job_id LEFT JOIN job_scheduled AS w ON w.job_id = e.job_id
			WHERE e.job_id = $1 ORDER BY e.fencing_token DESC OFFSET 0 LIMIT (SELECT (count(*) = $2)::int FROM job_executions WHERE job_id = $1)`,
			id, runs).Scan(&r.Outcome, &r.State, &r.Reason, &r.Class, &r.Message, &r.Stack, &r.Fingerprint, &r.Output, &r.Percent, &r.ProgressText,
			&logs, &seconds, &r.Used)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("job %s has not %d runs within 10 s: %v", id, runs, err)
		}
	}
	r.Delay = time.Duration(math.Round(seconds)) * time.Second
	if logs != "" {
		if err := json.Unmarshal([]byte(logs), &r.Logs); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

var anID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func compare(t *testing.T, s scene, got, want enginetest.Result) {
	t.Helper()
	if (got.Stack == "") != (want.Stack == "") {
		t.Errorf("stack %q, want %q", got.Stack, want.Stack)
	}
	if want.Used < 0 { // no place keeps it
		got.Used, want.Used = 0, 0
	}
	if b := s.job.Backoff; b != (engine.Backoff{}) {
		least, most, _ := engine.DelayBounds(engine.Exponential{Base: b.Base, Max: b.Max}, 1)
		for _, d := range []time.Duration{got.Delay, want.Delay} {
			if d < least || d > most {
				t.Errorf("delay %s, want %s to %s", d, least, most)
			}
		}
		got.Delay = want.Delay
	}
	got.Stack, want.Stack = "", ""
	got.Message, want.Message = anID.ReplaceAllString(got.Message, "ID"), anID.ReplaceAllString(want.Message, "ID")
	ignored := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Time" }, cmp.Ignore())
	asValue := cmp.Transformer("value", func(m json.RawMessage) string { return strings.ReplaceAll(string(m), " ", "") })
	if d := cmp.Diff(want, got, ignored, asValue); d != "" {
		t.Errorf("rehearsed otherwise than run (-run +rehearsed):\n%s", d)
	}
}
