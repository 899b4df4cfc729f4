package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// logLines collects JSON lines.
type logLines struct {
	mu  sync.Mutex
	all []map[string]any
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, raw := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			return 0, err
		}
		l.all = append(l.all, line)
	}
	return len(b), nil
}

// find returns the first line with this message about this job; any job for "".
func (l *logLines) find(message, id string) map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if line["msg"] == message && (id == "" || line["job_id"] == id) {
			return line
		}
	}
	return nil
}

// The events that searches and alerts rely on: message, level, fields.
func TestLogEventsAreAsDocumented(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	log := &logLines{}
	ws := engine.NewWorkers()
	engine.RegisterType(ws, "ok", engine.WorkerFunc[engine.RawArgs](func(context.Context, *engine.Job[engine.RawArgs]) error { return nil }), engine.TypeOptions{})
	engine.RegisterType(ws, "bad", engine.WorkerFunc[engine.RawArgs](func(context.Context, *engine.Job[engine.RawArgs]) error { return errors.New("boom") }), engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: pool, Workers: ws, Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		LeaseDuration: 300 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond, ReaperInterval: 100 * time.Millisecond,
		Retry: engine.RetryFunc(func(int) time.Duration { return time.Millisecond })})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := e.Client()
	secret := `{"card":"4000-secret"}`
	add := func(jobType string, o engine.EnqueueOptions) string {
		t.Helper()
		d, err := c.Enqueue(t.Context(), engine.RawArgs{Type: jobType, Payload: json.RawMessage(secret)}, o)
		if err != nil {
			t.Fatal(err)
		}
		return d.ID.String()
	}
	ok := add("ok", engine.EnqueueOptions{IdempotencyKey: "k"})
	bad := add("bad", engine.EnqueueOptions{MaxAttempts: 2})
	waits := add("ok", engine.EnqueueOptions{Delay: time.Hour})
	eventually(t, "the bad job is dead", func() bool { return log.find(engine.LogJobFailedPermanently, bad) != nil })
	eventually(t, "the good job is done", func() bool { return log.find(engine.LogJobCompleted, ok) != nil })
	who := engine.Actor{Name: "oncall", Source: "go", Reason: "gateway fixed"}
	if err := c.Cancel(t.Context(), uuidOf(t, waits), who); err != nil {
		t.Fatal(err)
	}
	if err := c.Replay(t.Context(), uuidOf(t, bad), who); err != nil {
		t.Fatal(err)
	}
	// A lease of a worker that is no more.
	if _, err := pool.Exec(t.Context(), `WITH j AS (INSERT INTO jobs (id, type, version) VALUES (uuid_v7(), 'ok', 1) RETURNING id)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) SELECT 999, now() - interval '1 hour', ARRAY[id], '{0}', '{0}' FROM j`); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the lost lease is reaped", func() bool { return log.find(engine.LogStaleLockRecovered, "") != nil })
	stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := e.Stop(stop); err != nil {
		t.Fatal(err)
	}
	inJob := []string{"job_id", "job_type", "queue", "worker_id", "attempt", "fencing_token"}
	for _, want := range []struct {
		message, level, job string
		fields              []string
	}{
		{engine.LogJobCreated, "INFO", ok, []string{"job_id", "job_type", "queue", "priority", "run_at", "idempotency_key"}},
		{engine.LogJobLocked, "DEBUG", ok, append(inJob, "lease_expires_at")},
		{engine.LogJobStarted, "INFO", ok, append(inJob, "wait_ms")},
		{engine.LogJobCompleted, "INFO", ok, append(inJob, "duration_ms")},
		{engine.LogJobFailedRetrying, "WARN", bad, append(inJob, "error", "error_class", "fingerprint", "next_run_at")},
		{engine.LogJobFailedPermanently, "ERROR", bad, append(inJob, "error", "fingerprint", "reason")},
		{engine.LogJobCancelled, "INFO", waits, []string{"job_id", "actor"}},
		{engine.LogJobReplayed, "INFO", bad, []string{"job_id", "actor"}},
		{engine.LogOperatorAction, "INFO", "", []string{"actor", "reason", "action", "target"}},
		{engine.LogStaleLockRecovered, "WARN", "", append(inJob, "lost_worker_id", "expired_at")},
		{engine.LogWorkerShuttingDown, "INFO", "", []string{"worker_id", "running"}},
		{engine.LogWorkerStopped, "INFO", "", []string{"worker_id", "unfinished"}},
	} {
		line := log.find(want.message, want.job)
		if line == nil {
			t.Errorf("no line %q", want.message)
			continue
		}
		if line["level"] != want.level {
			t.Errorf("%q has level %v, want %s", want.message, line["level"], want.level)
		}
		for _, f := range want.fields {
			if _, has := line[f]; !has {
				t.Errorf("%q lacks %s: %v", want.message, f, line)
			}
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if i := slices.IndexFunc(log.all, func(l map[string]any) bool {
		b, err := json.Marshal(l)
		return err != nil || strings.Contains(string(b), "4000-secret")
	}); i >= 0 {
		t.Errorf("a payload was logged: %v", log.all[i])
	}
}

func uuidOf(t *testing.T, s string) (id engine.ID) {
	t.Helper()
	if err := id.UnmarshalText([]byte(s)); err != nil {
		t.Fatal(err)
	}
	return id
}
