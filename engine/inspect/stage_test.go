package inspect_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
)

// stage puts jobs into their places by plain SQL, so that what is read does not
// depend on the code that writes.
type stage struct {
	t    *testing.T
	ctx  context.Context
	pool *pgxpool.Pool
	r    *inspect.Reader

	facts   map[uuid.UUID]search.Facts // of TestSearchLeavesNothingOut
	payload map[uuid.UUID]string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	pool := dbtest.New(t)
	return &stage{t: t, ctx: ctx, pool: pool, r: inspect.New(pool)}
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.ctx, sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *stage) enqueue(args string) uuid.UUID {
	s.t.Helper()
	var id uuid.UUID
	if err := s.pool.QueryRow(s.ctx, "SELECT enqueue_job("+args+")").Scan(&id); err != nil {
		s.t.Fatalf("enqueue_job(%s): %v", args, err)
	}
	return id
}

// claim leases a ready job to worker and returns its token.
func (s *stage) claim(id uuid.UUID, worker int64) int64 {
	s.t.Helper()
	var token int64
	err := s.pool.QueryRow(s.ctx, `WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id, attempt, crashes)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
		SELECT $2, now() + interval '30 seconds', ARRAY[job_id], ARRAY[attempt], ARRAY[crashes] FROM d RETURNING id`, id, worker).Scan(&token)
	if err != nil {
		s.t.Fatalf("claim job %s: %v", id, err)
	}
	return token
}

// finish closes a run with an outcome and an error text.
func (s *stage) finish(id uuid.UUID, token int64, outcome int, message string) {
	s.t.Helper()
	s.exec(`WITH k AS (DELETE FROM job_claims WHERE id = $2 RETURNING *)
		INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, wait_ms, attempt, outcome, error_class, error, fingerprint)
		SELECT $1, $2, k.worker_id, k.claimed_at, k.claimed_at, 7, k.attempts[1] + 1, $3, nullif($4, ''), nullif($4, ''), nullif($4, '') FROM k`,
		id, token, outcome, message)
}

// retry puts a failed job into its backoff.
func (s *stage) retry(id uuid.UUID, attempt int) {
	s.t.Helper()
	s.exec(`INSERT INTO job_scheduled (run_at, job_id, priority, attempt, failed, queue, type)
		SELECT now() + interval '1 hour', id, priority, $2, true, queue, type FROM jobs WHERE id = $1`, id, attempt)
}

// bury makes a closed job a dead letter.
func (s *stage) bury(id uuid.UUID, token int64, reason, message string) {
	s.t.Helper()
	s.exec(`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, stack, fingerprint, worker)
		SELECT id, $2, 1, queue, type, $3, 'class', $4, 'main.go:1', 'fp', '{"id":"9007199254740993"}' FROM jobs WHERE id = $1`, id, token, reason, message)
}

// ready puts a failed job back in line.
func (s *stage) ready(id uuid.UUID, attempt int) {
	s.t.Helper()
	s.exec(`INSERT INTO job_ready (job_id, priority, attempt, queue, type) SELECT id, priority, $2, queue, type FROM jobs WHERE id = $1`, id, attempt)
}

func (s *stage) cancel(id uuid.UUID) {
	s.t.Helper()
	s.exec(`WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id, attempt)
		INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) SELECT job_id, nextval('job_claims_id_seq'), attempt, 5 FROM d`, id)
}

func (s *stage) worker(name string, slots, busy int, queues []string, age time.Duration) int64 {
	s.t.Helper()
	var id int64
	err := s.pool.QueryRow(s.ctx, `INSERT INTO workers (name, hostname, pid, version, queues, types, slots, busy, lease_ms, heartbeat_at)
		VALUES ($1, 'host', 1, '1.2.3', $4, '{email}', $2, $3, 30000, now() - make_interval(secs => $5)) RETURNING id`,
		name, slots, busy, append([]string{}, queues...), age.Seconds()).Scan(&id)
	if err != nil {
		s.t.Fatalf("insert worker %s: %v", name, err)
	}
	return id
}

func mail(more string) string {
	return fmt.Sprintf("type => 'email', queue => 'mail'%s", more)
}
