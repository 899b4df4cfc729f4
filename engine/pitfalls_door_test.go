package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestTheSQLDoorRefusesWhatItCannotKeep names the argument in every refusal, and writes nothing.
func TestTheSQLDoorRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for call, want := range map[string]string{
		`type => 'a b'`:                                                        "type:",
		`type => ''`:                                                           "type:",
		`type => NULL`:                                                         "type:",
		`type => 't', queue => 'ä'`:                                            "queue:",
		`type => 't', priority => 6`:                                           "priority:",
		`type => 't', priority => -1`:                                          "priority:",
		`type => 't', max_attempts => 0`:                                       "max_attempts:",
		`type => 't', max_attempts => 101`:                                     "max_attempts:",
		`type => 't', timeout => '0 s'`:                                        "timeout:",
		`type => 't', timeout => '8 days'`:                                     "timeout:",
		`type => 't', delay => '-1 s'`:                                         "delay:",
		`type => 't', delay => '11 years'`:                                     "scheduled_at:",
		`type => 't', delay => '1 s', scheduled_at => now()`:                   "scheduled_at, delay:",
		`type => 't', scheduled_at => 'infinity'`:                              "scheduled_at:",
		`type => 't', scheduled_at => '-infinity'`:                             "scheduled_at:",
		`type => 't', scheduled_at => '0001-01-01'`:                            "scheduled_at:",
		`type => 't', expires_at => now() - interval '1 s'`:                    "expires_at:",
		`type => 't', expires_at => 'infinity'`:                                "expires_at:",
		`type => 't', payload => '[]'`:                                         "payload:",
		`type => 't', payload => NULL`:                                         "payload:",
		`type => 't', payload => jsonb_build_object('x', repeat('y', 300000))`: "payload:",
		`type => 't', payload => ('{"a":' || repeat('[', 70) || repeat(']', 70) || '}')::jsonb`:              "payload:",
		`type => 't', payload => (SELECT jsonb_object_agg('k' || i, 1) FROM generate_series(1, 10001) AS i)`: "payload:",
		`type => 't', tags => ARRAY['']`:                        "tags:",
		`type => 't', tags => ARRAY[NULL]`:                      "tags:",
		`type => 't', tags => array_fill('x'::text, ARRAY[21])`: "tags:",
		`type => 't', idempotency_key => ''`:                    "idempotency_key:",
		`type => 't', idempotency_key => repeat('k', 256)`:      "idempotency_key:",
		`type => 't', idempotency_key => E'a\nb'`:               "idempotency_key:",
		`type => 't', traceparent => repeat('0', 56)`:           "traceparent:",
	} {
		var pg *pgconn.PgError
		if _, err := pool.Exec(t.Context(), "SELECT enqueue_job("+call+")"); !errors.As(err, &pg) || pg.Code != "23514" || !strings.HasPrefix(pg.Message, want) {
			t.Errorf("%s: %v, want a check violation that begins with %s", call, err, want)
		}
	}
	for _, sql := range []string{"INSERT INTO jobs (id, type) VALUES (uuid_v7(), 't')", "INSERT INTO jobs (id, type, payload) SELECT uuid_v7(), 't', '{}'"} {
		var pg *pgconn.PgError
		if _, err := pool.Exec(t.Context(), sql); !errors.As(err, &pg) || !strings.Contains(pg.Hint, "enqueue_job") || !strings.Contains(pg.Hint, "job_inbox") {
			t.Errorf("a bare insert: %v, want a hint that names the doors", err)
		}
	}
	if _, err := pool.Exec(t.Context(), "INSERT INTO job_inbox (id, type) VALUES (uuid_v7(), 't')"); err == nil {
		t.Error("job_inbox took an id")
	}
	if n := one[int](t, pool, "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM job_ready) + (SELECT count(*) FROM idempotency_keys)"); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	first := one[engine.ID](t, pool, "SELECT enqueue_job(type => 't', idempotency_key => 'k')")
	if again := one[engine.ID](t, pool, "SELECT enqueue_job(type => 't', idempotency_key => 'k')"); again != first {
		t.Errorf("the same call again: %s, want %s", again, first)
	}
	var pg *pgconn.PgError
	if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 'u', idempotency_key => 'k')"); !errors.As(err, &pg) || pg.Code != "23505" || pg.Detail != first.String() {
		t.Errorf("other content under the key: %v, want its holder %s", err, first)
	}
	if n := one[int](t, pool, "WITH i AS (INSERT INTO job_inbox (type) VALUES ('a'), ('b'), ('c') RETURNING id) SELECT count(DISTINCT id) FROM i"); n != 3 {
		t.Errorf("three rows into job_inbox gave %d ids", n)
	}
}

// TestARunThatSQLCompletesIsCountedOnce: by complete_job, in the handler's transaction, and not again by the worker, which
// finds it closed.
func TestARunThatSQLCompletesIsCountedOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var after atomic.Bool
	ws := handlers(map[string]handler{"sql": func(ctx context.Context, j *work) error {
		time.Sleep(20 * time.Millisecond)
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT complete_job($1, $2)", j.ID, j.FencingToken)
			if err == nil && after.Load() {
				err = errors.New("the handler changes its mind")
			}
			return err
		})
	}})
	e := start(t, pool, hasty(ws))
	const counts = `SELECT coalesce(sum(n), 0)::int FROM (SELECT n, outcome FROM job_stats_deltas UNION ALL SELECT n, outcome FROM job_stats_minutes) AS s WHERE outcome = $1`
	for range 5 {
		reaches(t, pool, enqueue(t, e, "sql", engine.EnqueueOptions{}), "completed")
	}
	after.Store(true)
	reaches(t, pool, enqueue(t, e, "sql", engine.EnqueueOptions{MaxAttempts: 1}), "dead_letter")
	eventually(t, "the worker has closed its leases", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_claims") == 0 })
	if done, failed := one[int](t, pool, counts, 1), one[int](t, pool, counts, 2); done != 5 || failed != 1 {
		t.Errorf("%d completions and %d failures are counted, want 5 and 1", done, failed)
	}
	// The histogram has the run in the place of what it took: 20 to 25 ms is the third, up to 50 the fourth.
	if n := one[int](t, pool, `SELECT coalesce(sum(u.x), 0)::int FROM (SELECT run_buckets::bigint[] AS b, outcome FROM job_stats_deltas UNION ALL
		SELECT run_buckets, outcome FROM job_stats_minutes) AS s, unnest(s.b) WITH ORDINALITY AS u(x, i) WHERE s.outcome = 1 AND u.i >= 3`); n != 5 {
		t.Errorf("%d of 5 runs stand in the histogram at 20 ms or more", n)
	}
	// One whose worker dies right after the commit is counted too.
	id := enqueue(t, e, "nobody", engine.EnqueueOptions{Queue: "elsewhere"})
	token := one[int64](t, pool, `WITH r AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) SELECT 424242, now() + interval '1 hour', ARRAY[job_id], '{0}', '{0}' FROM r RETURNING id`, id)
	if _, err := pool.Exec(t.Context(), "SELECT complete_job($1, $2)", id, token); err != nil {
		t.Fatal(err)
	}
	if done := one[int](t, pool, counts, 1); done != 6 {
		t.Errorf("%d completions are counted, want 6", done)
	}
	if _, err := pool.Exec(t.Context(), "SELECT complete_job($1, $2)", id, token); err == nil {
		t.Error("a run was completed twice")
	}
	if done := one[int](t, pool, counts, 1); done != 6 {
		t.Errorf("%d completions are counted after one that was refused, want 6", done)
	}
}
