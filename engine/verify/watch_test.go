package verify_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// found is the newest stored check, and how many there are.
func found(t *testing.T, pool *pgxpool.Pool) (n int, verdict, report string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*), coalesce((array_agg(verdict ORDER BY id DESC))[1], ''), coalesce((array_agg(report::text ORDER BY id DESC))[1], '')
		FROM integrity_checks`).Scan(&n, &verdict, &report); err != nil {
		t.Fatal(err)
	}
	return n, verdict, report
}

func TestAWatchChecksWhenItIsDueAndKeepsWhatItFound(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	w := verify.Watch{Pool: pool, Leads: func() bool { return true }, Every: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Options: verify.Options{StatementTimeout: 500 * time.Millisecond}}
	check := func() {
		t.Helper()
		if err := w.CheckIfDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	check()
	check() // an hour has not passed
	if n, verdict, report := found(t, pool); n != 1 || verdict != "ok" || report != "[]" || !strings.Contains(log.String(), "every rule holds") {
		t.Errorf("%d checks, the last %s with %s; log %s", n, verdict, report, &log)
	}

	exec(`UPDATE integrity_checks SET checked_at = now() - interval '61 min'`)
	exec(`INSERT INTO job_ready (job_id, priority, queue, type) VALUES (gen_random_uuid(), 1, 'default', 'fate')`)
	check()
	if n, verdict, report := found(t, pool); n != 2 || verdict != "violated" || !strings.Contains(report, `"rule": "no_orphans"`) ||
		!strings.Contains(report, "a job that does not exist") || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%d checks, the last %s with %s; log %s", n, verdict, report, &log)
	}

	exec(`UPDATE integrity_checks SET checked_at = now() - interval '61 min'`)
	exec(`DELETE FROM job_ready; ALTER TABLE operator_action_head RENAME TO elsewhere`)
	check()
	if n, verdict, report := found(t, pool); n != 3 || verdict != "unchecked" || !strings.Contains(report, "operator_action_head") {
		t.Errorf("%d checks, the last %s with %s", n, verdict, report)
	}

	exec(`UPDATE integrity_checks SET checked_at = now() - interval '31 days' WHERE id < 3`)
	exec(`UPDATE integrity_checks SET checked_at = now() - interval '2 h' WHERE id = 3`)
	check()
	if n, _, _ := found(t, pool); n != 2 {
		t.Errorf("%d checks are kept, want the two of the last month", n)
	}
}
