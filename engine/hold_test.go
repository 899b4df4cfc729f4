package engine

import (
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// A type without a worker is held, shown as pending with its reason, and comes
// back when a worker for it lives. It never fails for that.
func TestTypeWithoutWorkerIsHeldAndComesBack(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ctx := t.Context()
	ws := NewWorkers()
	RegisterType(ws, "known", WorkerFunc[RawArgs](nil), TypeOptions{})
	e, err := New(Config{Pool: pool, Workers: ws})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.openPools(ctx); err != nil {
		t.Fatal(err)
	}
	defer e.closePools()
	if err := e.register(ctx); err != nil {
		t.Fatal(err)
	}
	job, err := e.client.Enqueue(ctx, RawArgs{Type: "unknown"}, EnqueueOptions{Priority: PriorityCritical.Ptr()})
	if err != nil {
		t.Fatal(err)
	}
	state := func() (state, reason string) {
		t.Helper()
		if err := pool.QueryRow(ctx, "SELECT state, coalesce(held_reason, '') FROM job_states WHERE id = $1", job.ID).Scan(&state, &reason); err != nil {
			t.Fatal(err)
		}
		return state, reason
	}
	hold := func() {
		t.Helper()
		e.holder.next = time.Time{}
		if err := e.holdOnce(ctx); err != nil {
			t.Fatal(err)
		}
	}
	hold()
	if s, reason := state(); s != "pending" || reason != "" {
		t.Errorf("at first sight: %s %q, want pending and still in line", s, reason)
	}
	e.holder.since["unknown"] = time.Now().Add(-holdAfter)
	hold()
	if s, reason := state(); s != "pending" || reason != "no_worker" {
		t.Errorf("after %s: %s %q, want pending, held for no_worker", holdAfter, s, reason)
	}
	if _, err := pool.Exec(ctx, "UPDATE workers SET types = '{known,unknown}'"); err != nil {
		t.Fatal(err)
	}
	hold()
	if s, reason := state(); s != "pending" || reason != "" {
		t.Errorf("with a worker: %s %q, want pending, back in line", s, reason)
	}
	var priority, ready int
	if err := pool.QueryRow(ctx, "SELECT count(*), max(priority) FROM job_ready").Scan(&ready, &priority); err != nil || ready != 1 || priority != 5 {
		t.Errorf("in line: %d jobs of priority %d (%v), want 1 of 5", ready, priority, err)
	}
}
