package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// steps are what happened, in order.
type steps struct {
	mu  sync.Mutex
	all []string
}

func (s *steps) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf(format, args...))
}

func (s *steps) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func TestMiddlewareRunsOutermostFirst(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var s steps
	type key struct{}
	named := func(name string) engine.Middleware {
		return func(next engine.HandlerFunc) engine.HandlerFunc {
			return func(ctx context.Context, row engine.Row) error {
				s.add("%s in", name)
				before, _ := ctx.Value(key{}).(string)
				err := next(context.WithValue(ctx, key{}, before+name), row)
				s.add("%s out", name)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return nil
			}
		}
	}
	ws := engine.NewWorkers()
	ws.Use(named("a"), named("b"))
	engine.RegisterType(ws, "plain", handler(func(context.Context, *work) error { return nil }), engine.TypeOptions{})
	engine.RegisterType(ws, "fails", handler(func(ctx context.Context, _ *work) error {
		s.add("handler with %v", ctx.Value(key{}))
		return engine.Permanent(errors.New("ill"))
	}), engine.TypeOptions{})
	ws.Use(named("c")) // also around what was registered before
	e := start(t, pool, hasty(ws))
	id := enqueue(t, e, "fails", engine.EnqueueOptions{})
	reaches(t, pool, id, "dead_letter")
	if got, want := strings.Join(s.list(), ", "), "a in, b in, c in, handler with abc, c out, b out, a out"; got != want {
		t.Errorf("it went: %s, want %s", got, want)
	}
	if got := one[string](t, pool, "SELECT reason || ' ' || error FROM dead_letter_jobs WHERE job_id = $1", id); got != "permanent a: b: c: ill" {
		t.Errorf("it died of: %s", got)
	}
	healthy(t, pool, e)
}

// TestMiddlewareMayAnswerItself: what it returns is what the run ends with, also without the handler.
func TestMiddlewareMayAnswerItself(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var called atomic.Int64
	ws := handlers(map[string]handler{"job": func(ctx context.Context, j *work) error {
		called.Add(1)
		return errors.New("the handler's own")
	}})
	ws.Use(func(next engine.HandlerFunc) engine.HandlerFunc {
		return func(ctx context.Context, row engine.Row) error {
			switch row.Queue {
			case "swallow":
				_ = next(ctx, row) // its error is what this test drops
				return nil
			case "deny":
				return engine.Permanent(errors.New("denied"))
			case "panic":
				panic("in the middleware")
			case "foreign":
				return next(context.Background(), row)
			}
			return next(ctx, row)
		}
	})
	e := start(t, pool, hasty(ws))
	for _, c := range []struct{ queue, state, says string }{{"swallow", "completed", ""}, {"deny", "dead_letter", "denied"},
		{"panic", "dead_letter", "panic: in the middleware"}, {"foreign", "dead_letter", "middleware must pass on a context made from the one it got"}} {
		id := enqueue(t, e, "job", engine.EnqueueOptions{Queue: c.queue, MaxAttempts: 1})
		reaches(t, pool, id, c.state)
		got := one[string](t, pool, "SELECT concat_ws(' ', error, stack) FROM job_executions WHERE job_id = $1", id)
		if !strings.Contains(got, c.says) || c.queue == "panic" && !strings.Contains(got, "middleware_test.go") {
			t.Errorf("%s: it ended with %q, want %q", c.queue, got, c.says)
		}
	}
	if n := called.Load(); n != 1 {
		t.Errorf("the handler was called %d times, want 1", n)
	}
	healthy(t, pool, e)
}

// TestHooksOfStartAndStop: OnStart before the first job, OnStop after the last handler; a refusal starts nothing.
func TestHooksOfStartAndStop(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var s steps
	began := make(chan struct{})
	ws := handlers(map[string]handler{"job": func(context.Context, *work) error {
		s.add("job begins")
		close(began)
		time.Sleep(100 * time.Millisecond)
		s.add("job ends")
		return nil
	}})
	c := hasty(ws)
	c.OnStart = func(context.Context) error { s.add("start"); return nil }
	c.OnStop = func(ctx context.Context) {
		s.add("stop, in time: %t", ctx.Err() == nil)
	}
	e := start(t, pool, c)
	enqueue(t, e, "job", engine.EnqueueOptions{})
	<-began
	stop(t, e)
	stop(t, e)
	if got, want := strings.Join(s.list(), ", "), "start, job begins, job ends, stop, in time: true"; got != want {
		t.Errorf("it went: %s, want %s", got, want)
	}
	c.Pool, c.OnStart = pool, func(context.Context) error { return errors.New("no licence") }
	refused, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := refused.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "OnStart: no licence") {
		t.Errorf("Start: %v", err)
	}
	stop(t, refused)
	if got := strings.Count(strings.Join(s.list(), ", "), "stop"); got != 1 {
		t.Errorf("OnStop was called %d times", got)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM workers"); n != 1 {
		t.Errorf("%d workers are registered, want 1", n)
	}
}
