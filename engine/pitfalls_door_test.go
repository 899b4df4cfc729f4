package engine_test

import (
	"errors"
	"strings"
	"testing"

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
