package engine_test

import (
	"fmt"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestALeaseThatExpiredUnderALivingWorkerIsNoCrash: what the worker's row says since the lease's end decides whether its jobs
// are suspects. Without a row, or with one that says nothing newer, they are.
func TestALeaseThatExpiredUnderALivingWorkerIsNoCrash(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := start(t, pool, hasty(handlers(nil)))
	for i, c := range []struct {
		what, row string
		crashes   int
		says      string
	}{
		{"lived on", "VALUES ($1, 'lived', 'h', 1, '', '{}', '{}', 1, 600, 'running', now())", 0, "the lease expired while its worker lived on"},
		{"drains", "VALUES ($1, 'drains', 'h', 1, '', '{}', '{}', 1, 600, 'draining', now())", 0, "the lease expired while its worker lived on"},
		{"froze", "VALUES ($1, 'froze', 'h', 1, '', '{}', '{}', 1, 600, 'running', now() - interval '10 s')", 1, "the worker stopped renewing the lease"},
		{"stopped", "VALUES ($1, 'stopped', 'h', 1, '', '{}', '{}', 1, 600, 'stopped', now())", 1, "the worker stopped renewing the lease"},
		{"is forgotten", "SELECT $1, 'x', 'h', 1, '', '{}', '{}', 1, 600, 'running', now() WHERE false", 1, "the worker stopped renewing the lease"},
	} {
		worker := int64(1000 + i)
		if _, err := pool.Exec(t.Context(), `INSERT INTO workers (id, name, hostname, pid, version, queues, types, slots, lease_ms, state, heartbeat_at)
			OVERRIDING SYSTEM VALUE `+c.row, worker); err != nil {
			t.Fatal(err)
		}
		id := enqueue(t, e, "nobody_runs_it", engine.EnqueueOptions{})
		if n := one[int](t, pool, `WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id),
			c AS (INSERT INTO job_claims (worker_id, claimed_at, lease_expires_at, job_ids, attempts, crashes)
			SELECT $2, now() - interval '1 min', now() - interval '1 s', ARRAY[job_id], '{2}', '{0}' FROM d) SELECT count(*) FROM d`, id, worker); n != 1 {
			t.Fatal("the job does not stand in line")
		}
		reaches(t, pool, id, "pending")
		if got, want := one[string](t, pool, "SELECT concat_ws(' ', attempt, crashes) FROM job_ready WHERE job_id = $1", id), fmt.Sprint(2, c.crashes); got != want {
			t.Errorf("its worker %s: attempt and crashes %s, want %s", c.what, got, want)
		}
		if got := one[string](t, pool, "SELECT error FROM job_executions WHERE job_id = $1", id); got != c.says {
			t.Errorf("its worker %s: the run says %q, want %q", c.what, got, c.says)
		}
	}
	healthy(t, pool, e)
}
