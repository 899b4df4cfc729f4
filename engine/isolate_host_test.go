package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// hostOptions are what a test tells its host, a process that runs an engine whose suspects run in children of its own.
type hostOptions struct {
	URL        string
	Memory     int64
	Timeout    time.Duration
	StopWithin time.Duration
	StopGrace  time.Duration
	// Lease is one that a busy machine does not miss, unless a test waits for its end.
	Lease time.Duration
	// Broken is what the host's children do instead of running suspects: exit or hang.
	Broken string
}

type host struct {
	t      *testing.T
	cmd    *exec.Cmd
	ended  chan struct{}
	stderr *heard
}

// heard is what a process has said so far.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *heard) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *heard) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startHost starts a host, which the test's end kills. What its handlers do is found in table probe.
func startHost(t *testing.T, pool *pgxpool.Pool, o hostOptions) *host {
	t.Helper()
	if testing.Short() {
		t.Skip("processes with processes of their own: make test has them without the race detector")
	}
	if _, err := pool.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS probe (what text, pid int, at timestamptz DEFAULT now())"); err != nil {
		t.Fatal(err)
	}
	o.URL = pool.Config().ConnString()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, cmd: child(context.Background(), "host", []string{"RJE_TEST_HOST=" + string(b), "GOTRACEBACK=single"}), ended: make(chan struct{}),
		stderr: &heard{}}
	h.cmd.Stderr, h.cmd.WaitDelay = h.stderr, time.Second
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.ended)
		_ = h.cmd.Wait() // its state tells
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill() // it may have ended
		<-h.ended
		if t.Failed() {
			t.Logf("the host's stderr:\n%.8000s", h.stderr)
		}
	})
	return h
}

// lives fails the test if the worker itself has ended.
func (h *host) lives() {
	h.t.Helper()
	select {
	case <-h.ended:
		h.t.Fatalf("the worker itself ended: %s", h.cmd.ProcessState)
	default:
	}
}

// gone tells whether a process does not run: it may wait for its parent to ask how it ended.
func gone(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, found := bytes.Cut(stat, []byte(") "))
	return found && rest[0] == 'Z'
}

type traceKey struct{}

var onStartCalled bool

// childHost is the host's main. Nothing in it is there for its children, but what breaks them.
func childHost() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
	}
	var o hostOptions
	fail(json.Unmarshal([]byte(os.Getenv("RJE_TEST_HOST")), &o))
	if engine.InChild() && o.Broken != "" {
		if o.Broken == "hang" {
			time.Sleep(time.Minute)
		}
		fmt.Fprintln(os.Stderr, "no room here")
		os.Exit(5)
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, o.URL)
	fail(err)
	ws := handlers(hostHandlers(pool))
	ws.Use(func(next engine.HandlerFunc) engine.HandlerFunc {
		return func(ctx context.Context, row engine.Row) error {
			return next(context.WithValue(ctx, traceKey{}, "trace of "+row.Type), row)
		}
	})
	c := hasty(ws)
	c.Pool, c.Isolation, c.SuspectMemoryBytes, c.JobTimeout = pool, engine.IsolateAlways, o.Memory, o.Timeout
	c.StopGrace, c.LeaseDuration = o.StopGrace, cmp.Or(o.Lease, 20*time.Second)
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	c.OnStart = func(context.Context) error { onStartCalled = true; return nil }
	e, err := engine.New(c)
	fail(err)
	fail(e.Start(ctx))
	if engine.InChild() {
		fail(errors.New("Start has returned in a child"))
	}
	<-stopped
	within, cancel := context.WithTimeout(ctx, o.StopWithin)
	defer cancel()
	fail(e.Stop(within))
}

// hostHandlers are the job types of a host.
func hostHandlers(pool *pgxpool.Pool) map[string]handler {
	note := func(ctx context.Context, what string) error {
		_, err := pool.Exec(ctx, "INSERT INTO probe (what, pid) VALUES ($1, $2)", what, os.Getpid())
		return err
	}
	return map[string]handler{
		"fails": func(context.Context, *work) error { return errors.New("it broke") },
		"kill": func(_ context.Context, j *work) error {
			j.Log().Info("about to die", "of", how(j))
			deaths[how(j)]()
			return nil
		},
		"neighbour": func(context.Context, *work) error { return nil },
		"loop": func(ctx context.Context, _ *work) error {
			if err := note(context.WithoutCancel(ctx), "looping"); err != nil { // a busy machine may need longer than its deadline
				return err
			}
			for {
				deepest++
			}
		},
		"slow": func(ctx context.Context, _ *work) error {
			if err := note(ctx, "began"); err != nil {
				return err
			}
			time.Sleep(2 * time.Second) // whatever ctx says
			return note(context.WithoutCancel(ctx), "ended")
		},
		"polite": func(ctx context.Context, _ *work) error {
			if err := note(ctx, "began"); err != nil {
				return err
			}
			<-ctx.Done()
			return errors.Join(note(context.WithoutCancel(ctx), context.Cause(ctx).Error()), ctx.Err())
		},
		"told": func(ctx context.Context, j *work) error {
			j.Log().Warn("half way", "step", 2)
			j.SetProgress(50, "half")
			if !onStartCalled {
				return errors.New("OnStart was not called")
			}
			return j.SetResult(map[string]any{"trace": ctx.Value(traceKey{}), "crashes": j.Crashes, "pid": os.Getpid()})
		},
		"tx": func(ctx context.Context, j *work) error {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				for range 2 {
					_, err := engine.Once(ctx, tx, "effect", func(ctx context.Context) error {
						_, err := tx.Exec(ctx, "INSERT INTO probe (what) VALUES ('effect')")
						return err
					})
					if err != nil {
						return err
					}
				}
				if err := engine.CompleteTx(ctx, tx); err != nil {
					return err
				}
				if how(j) == "before" {
					os.Exit(3)
				}
				return nil
			})
			if how(j) == "after" {
				os.Exit(3)
			}
			return err
		},
	}
}

// how is the payload's word for what a handler does.
func how(j *work) string {
	var args struct{ How string }
	if err := json.Unmarshal(j.Payload, &args); err != nil {
		panic(err)
	}
	return args.How
}
