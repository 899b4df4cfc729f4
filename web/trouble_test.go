package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

// TestWithoutADatabaseEveryCallIs503 breaks a real server under the API and mends
// it: never a 2xx for what was not committed, and no restart afterwards.
func TestWithoutADatabaseEveryCallIs503(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	address := server.URL("jobs")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.Migrate(ctx, address, nil); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	s := newSiteOn(t, dbtest.OpenURL(t, address), func(c *Config) { c.RequestTimeout = 3 * time.Second })
	id := s.enqueue(`{"type":"email"}`)
	s.do("GET", "/metrics", "")
	server.StopImmediate()
	for range 3 {
		s.post(`{"type":"email"}`).refused("enqueue", http.StatusServiceUnavailable, "unavailable", "")
	}
	s.do("GET", "/api/v1/jobs", "").refused("list", http.StatusServiceUnavailable, "unavailable", "")
	s.do("GET", "/api/v1/jobs/"+id, "").refused("read", http.StatusServiceUnavailable, "unavailable", "")
	s.do("DELETE", "/api/v1/jobs/"+id, "").refused("cancel", http.StatusServiceUnavailable, "unavailable", "")
	time.Sleep(300 * time.Millisecond) // the last snapshot is shown for 250 ms
	s.do("GET", "/api/v1/queues", "").refused("queues", http.StatusServiceUnavailable, "unavailable", "")
	if got := s.send("GET", "/healthz", nil); got.status != 200 {
		t.Errorf("/healthz = %d, want 200: the process lives", got.status)
	}
	ready := s.send("GET", "/readyz", nil)
	if ready.status != 503 || ready.text("checks", "database", "status") != "fail" || ready.header.Get("Retry-After") == "" || strings.Contains(ready.body, "127.0.0.1") {
		t.Errorf("/readyz = %d %s, want 503 without addresses", ready.status, ready.body)
	}
	server.Start()
	deadline := time.Now().Add(20 * time.Second)
	for s.post(`{"type":"email","queue":"after"}`).status != 201 {
		if time.Now().After(deadline) {
			t.Fatal("no enqueue succeeds after the database came back")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := s.count(`SELECT count(*) FROM jobs WHERE queue = 'default'`); n != 1 {
		t.Errorf("%d jobs, want the one that was answered with 201", n)
	}
}

func TestARequestThatTakesTooLongIs503(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatalf("lock: %v", err)
	}
	start := time.Now()
	s.post(`{"type":"email"}`).refused("enqueue behind a lock", http.StatusServiceUnavailable, "timeout", "")
	s.do("GET", "/api/v1/jobs", "").refused("list behind a lock", http.StatusServiceUnavailable, "timeout", "")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("two requests took %s, want 300ms each", took)
	}
	slow := s.send("POST", "/api/v1/jobs", slowBody{}, "Authorization", "Bearer "+apiToken, "Content-Type", "application/json")
	slow.refused("a body that never comes", http.StatusRequestTimeout, "request-timeout", "")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatalf("rollback: %v", err)
	}
	s.nothingStored()
}

// slowBody gives a byte every 50 ms, for at most 5 s.
type slowBody struct{}

func (slowBody) Read(p []byte) (int, error) {
	time.Sleep(50 * time.Millisecond)
	p[0] = ' '
	return 1, nil
}

// brokenEngine fails as told.
type brokenEngine struct {
	Engine
	err   error
	panic bool
}

func (b brokenEngine) Enqueue(context.Context, engine.Args, engine.EnqueueOptions) (engine.Enqueued, error) {
	if b.panic {
		panic("secret of the inside")
	}
	return engine.Enqueued{}, b.err
}

func TestUnknownErrorsAndPanicsShowNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	for name, e := range map[string]Engine{"error": brokenEngine{err: errors.New("secret of the inside")}, "panic": brokenEngine{panic: true}} {
		s := newSiteOn(t, pool, func(c *Config) { c.Engine = e })
		got := s.post(`{"type":"email"}`)
		got.refused(name, http.StatusInternalServerError, "internal", "")
		if strings.Contains(got.body, "secret") || strings.Contains(got.body, ".go:") {
			t.Errorf("%s shows its text: %s", name, got.body)
		}
		if log := s.log.String(); !strings.Contains(log, "secret of the inside") || !strings.Contains(log, `"level":"ERROR"`) {
			t.Errorf("%s is not logged: %s", name, log)
		}
	}
}

func TestReadinessTellsWhatFails(t *testing.T) {
	t.Parallel()
	draining := false
	s := newSite(t, func(c *Config) {
		c.Ready = append(c.Ready, ops.Check{Name: "migrations", Tell: true, Run: func(context.Context) error {
			return errors.New("database has version 1, this build needs 2: run jobctl migrate up")
		}})
		c.Draining = func() bool { return draining }
	})
	got := s.send("GET", "/readyz", nil)
	if got.status != 503 || got.text("status") != "fail" || got.text("checks", "database", "status") != "pass" || got.field("checks", "database", "duration_ms") == nil ||
		!strings.Contains(got.text("checks", "migrations", "output"), "needs 2") || got.text("checks", "draining", "status") != "pass" {
		t.Errorf("/readyz = %d %s", got.status, got.body)
	}
	draining = true
	if got := s.send("GET", "/readyz", nil); got.text("checks", "draining", "status") != "fail" {
		t.Errorf("/readyz while draining = %s", got.body)
	}
	if n := strings.Count(s.log.String(), "readiness check fails"); n != 2 {
		t.Errorf("%d lines about readiness, want one for each check that fails", n)
	}
}
