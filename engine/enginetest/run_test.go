package enginetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/enginetest"
)

// one is a set with one handler.
func one(work func(ctx context.Context, job *engine.Job[task]) error) *engine.Workers {
	ws := engine.NewWorkers()
	engine.Register(ws, engine.WorkerFunc[task](work), engine.TypeOptions{})
	return ws
}

// The end of ctx is the end of the handler's, with its cause and with what it makes of
// the job.
func TestWhyAHandlersContextEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause   error
		outcome engine.Outcome
		state   engine.State
		refused bool
	}{
		"its process stops": {engine.ErrStopping, engine.OutcomeHandedBack, engine.StatePending, false},
		"the test ends it":  {context.Canceled, engine.OutcomeHandedBack, engine.StatePending, false},
		"asked to stop":     {engine.ErrStopRequested, engine.OutcomeCancelled, engine.StateCancelled, false},
		"its lease is lost": {engine.ErrLeaseLost, engine.OutcomeFailed, engine.StateLeased, true},
	} {
		for _, deaf := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, end := context.WithCancelCause(t.Context())
					time.AfterFunc(5*time.Second, func() { end(c.cause) })
					r, err := enginetest.Run(ctx, one(func(ctx context.Context, _ *engine.Job[task]) error {
						<-ctx.Done()
						if deaf {
							time.Sleep(30 * time.Second)
						}
						return context.Cause(ctx)
					}), task{}, enginetest.Options{})
					if err != nil {
						t.Fatal(err)
					}
					if r.Outcome != c.outcome || r.State != c.state || r.Refused != c.refused {
						t.Errorf("%s, %s, refused %t; want %s, %s, %t", r.Outcome, r.State, r.Refused, c.outcome, c.state, c.refused)
					}
					time.Sleep(time.Minute) // the deaf one comes too late
				})
			})
		}
	}
}

// In a bubble of synctest a timeout of days passes at once.
func TestATimeoutOfDaysPassesInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r, err := enginetest.Run(t.Context(), one(func(ctx context.Context, _ *engine.Job[task]) error { <-ctx.Done(); return ctx.Err() }), task{},
			enginetest.Options{Job: engine.EnqueueOptions{Timeout: 48 * time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); r.Outcome != engine.OutcomeTimedOut || took != 48*time.Hour {
			t.Errorf("%s after %s, want timed_out after 48h", r.Outcome, took)
		}
	})
}

// A worker's settings count where neither the job nor its type says otherwise.
func TestTheWorkersSettingsCount(t *testing.T) {
	t.Parallel()
	ws := one(func(context.Context, *engine.Job[task]) error { return errors.New("no") })
	settings := engine.Config{MaxAttempts: 2, Retry: engine.RetryFunc(func(n int) time.Duration { return time.Duration(n) * time.Hour })}
	for attempt, want := range map[int]enginetest.Result{
		1: {State: engine.StateFailed, Delay: time.Hour, Used: 1},
		2: {State: engine.StateDeadLetter, Reason: engine.ReasonExhausted, Used: 2},
	} {
		r, err := enginetest.Run(t.Context(), ws, task{}, enginetest.Options{Attempt: attempt, Engine: settings})
		if err != nil {
			t.Fatal(err)
		}
		if r.State != want.State || r.Reason != want.Reason || r.Delay != want.Delay || r.Used != want.Used {
			t.Errorf("attempt %d: %s %q in %s after %d; want %s %q in %s after %d", attempt, r.State, r.Reason, r.Delay, r.Used, want.State, want.Reason,
				want.Delay, want.Used)
		}
	}
}

func TestARunThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	ws := one(func(context.Context, *engine.Job[task]) error { t.Error("the handler was called"); return nil })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want, run := range map[string]func() (enginetest.Result, error){
		`no worker is registered for this type; there are ["task"]`: func() (enginetest.Result, error) {
			return enginetest.Run(t.Context(), ws, job("mail", `{}`), enginetest.Options{})
		},
		"attempt 6: use 1 to 5": func() (enginetest.Result, error) {
			return enginetest.Run(t.Context(), ws, task{}, enginetest.Options{Attempt: 6})
		},
		"queue: 1 to 100 of": func() (enginetest.Result, error) {
			return enginetest.Run(t.Context(), ws, task{}, enginetest.Options{Job: engine.EnqueueOptions{Queue: "!"}})
		},
		"HeartbeatInterval 1h0m0s": func() (enginetest.Result, error) {
			return enginetest.Run(t.Context(), ws, task{}, enginetest.Options{Engine: engine.Config{HeartbeatInterval: time.Hour}})
		},
		"Workers has no job type": func() (enginetest.Result, error) {
			return enginetest.Run(t.Context(), engine.NewWorkers(), task{}, enginetest.Options{})
		},
		"context canceled": func() (enginetest.Result, error) {
			return enginetest.Run(ended, ws, task{}, enginetest.Options{})
		},
	} {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
