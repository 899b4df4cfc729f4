package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

type greet struct {
	Name string `json:"name"`
}

func (greet) JobType() string { return "greet" }

// start runs an engine on pool until the test ends.
func start(t *testing.T, pool *pgxpool.Pool, c engine.Config) *engine.Engine {
	t.Helper()
	c.Pool = pool
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

// eventually waits until ok, and fails the test after ten seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func stateOf(t *testing.T, pool *pgxpool.Pool, id engine.ID) string {
	t.Helper()
	var s string
	if err := pool.QueryRow(t.Context(), "SELECT coalesce(state, 'nowhere') FROM job_states WHERE id = $1", id).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func one[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestEnqueuedJobsRunOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var ran atomic.Int64
	ws := engine.NewWorkers()
	engine.Register(ws, engine.WorkerFunc[greet](func(ctx context.Context, job *engine.Job[greet]) error {
		ran.Add(1)
		if job.Args.Name == "" {
			return errors.New("no name")
		}
		return nil
	}), engine.TypeOptions{})
	e := start(t, pool, engine.Config{Workers: ws})
	for i := range 100 {
		if _, err := e.Client().Enqueue(t.Context(), greet{fmt.Sprint("n", i)}, engine.EnqueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	items := make([]engine.EnqueueItem, 2000)
	for i := range items {
		items[i].Args = greet{fmt.Sprint("m", i)}
	}
	if _, err := e.Client().EnqueueMany(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	eventually(t, "2100 jobs completed", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 1") == 2100
	})
	if n := ran.Load(); n != 2100 {
		t.Errorf("handlers ran %d times, want 2100", n)
	}
	eventually(t, "leases dropped", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_claims") == 0 })
}

// A process without handlers does the upkeep for those that have some.
func TestMaintenanceOnlyEngineKeepsUp(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := start(t, pool, engine.Config{MaintenanceOnly: true, PollInterval: 50 * time.Millisecond})
	job, err := e.Client().Enqueue(t.Context(), greet{"later"}, engine.EnqueueOptions{Delay: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "promoted", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_ready WHERE job_id = $1", job.ID) == 1 })
	time.Sleep(100 * time.Millisecond)
	if s := stateOf(t, pool, job.ID); s != "pending" {
		t.Errorf("state %s, want pending: nobody may claim it", s)
	}
	if slots := e.Status().Slots; slots != 0 {
		t.Errorf("%d slots, want none", slots)
	}
}

func TestHeartbeatTellsWhatTheWorkerDid(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := engine.NewWorkers()
	engine.RegisterType(ws, "odd", engine.WorkerFunc[engine.RawArgs](func(_ context.Context, job *engine.Job[engine.RawArgs]) error {
		if strings.Contains(string(job.Payload), "bad") {
			return errors.New("no")
		}
		return nil
	}), engine.TypeOptions{})
	e := start(t, pool, engine.Config{Workers: ws, HeartbeatInterval: 100 * time.Millisecond, LeaseDuration: time.Second})
	for _, payload := range []string{`{}`, `{}`, `{"bad": 1}`} {
		if _, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: "odd", Payload: []byte(payload)}, engine.EnqueueOptions{MaxAttempts: 1}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the worker's row counts two done and one failed", func() bool {
		var done, failed int
		if err := pool.QueryRow(t.Context(), `SELECT done_per_minute, failed_lately FROM workers`).Scan(&done, &failed); err != nil {
			t.Fatal(err)
		}
		return done == 2 && failed == 1
	})
}
