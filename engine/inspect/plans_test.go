package inspect_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// TestReadsNeverScanJobsOrExecutions covers pitfall K2 for the reads: with generic
// plans, as a prepared statement has them after its fifth use.
func TestReadsNeverScanJobsOrExecutions(t *testing.T) {
	s := newStage(t)
	conn, err := s.pool.Acquire(s.ctx)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	defer conn.Release()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(s.ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`SET statement_timeout = '60s'`)
	exec(`INSERT INTO jobs (id, type, queue, version, payload)
		SELECT uuid_v7(now() - make_interval(secs => 50000 - i)), 'type' || i % 20, 'queue' || i % 10, 1, jsonb_build_object('n', i, 'pad', repeat('x', 200))
		FROM generate_series(1, 50000) AS i`)
	exec(`CREATE TEMP TABLE numbered AS SELECT id, type, queue, row_number() OVER (ORDER BY md5(id::text)) AS n FROM jobs`)
	// Failures too: without them the index of rare ends holds what that of all other ends does, and the two cost the same.
	exec(`INSERT INTO job_executions (job_id, fencing_token, attempt, outcome, claimed_at)
		SELECT id, n, 1, CASE WHEN n <= 44000 THEN 1 WHEN n <= 48000 THEN 2 ELSE 5 END, now() FROM numbered WHERE n <= 48500`)
	exec(`INSERT INTO job_ready (job_id, priority, queue, type) SELECT id, 1, queue, type FROM numbered WHERE n BETWEEN 48501 AND 49000`)
	exec(`INSERT INTO job_scheduled (run_at, job_id, priority, failed, queue, type) SELECT now() + interval '1 hour', id, 1, n % 2 = 0, queue, type FROM numbered WHERE n BETWEEN 49001 AND 49500`)
	exec(`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason) SELECT id, n, 1, queue, type, 'exhausted' FROM numbered WHERE n BETWEEN 49501 AND 49900`)
	exec(`INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
		SELECT 1, now() + interval '1 hour', array_agg(id), array_agg(0::smallint), array_agg(0::smallint) FROM numbered WHERE n > 49900`)
	exec(`ANALYZE jobs, job_executions, job_ready, job_scheduled, dead_letter_jobs, job_claims`)
	exec(`SET plan_cache_mode = force_generic_plan`)

	scan := regexp.MustCompile(`Seq Scan on (jobs|job_executions)\b`)
	firstPages := regexp.MustCompile(`->  Limit [^\n]*\n *->  Seq Scan on job_executions`) // under a limit, which nearly every row meets
	for name, sql := range map[string]string{
		"ScanJobs": dbsqlc.ScanJobs, "ScanCompleted": dbsqlc.ScanCompleted, "ScanCancelled": dbsqlc.ScanCancelled, "CountClosed": dbsqlc.CountClosed, "CountLostRuns": dbsqlc.CountLostRuns, "ListPendingIDs": dbsqlc.ListPendingIDs,
		"ListFailedIDs": dbsqlc.ListFailedIDs, "ListLeasedIDs": dbsqlc.ListLeasedIDs, "ListDeadIDs": dbsqlc.ListDeadIDs,
		"GetJobs": dbsqlc.GetJobs, "ListExecutions": dbsqlc.ListExecutions, "GetResult": dbsqlc.GetResult, "JobExists": dbsqlc.JobExists,
		"ListRefusedWrites": dbsqlc.ListRefusedWrites, "ListActions": dbsqlc.ListActions, "ListCopies": dbsqlc.ListCopies, "CountReady": dbsqlc.CountReady,
		"OldestReady": dbsqlc.OldestReady, "CountScheduled": dbsqlc.CountScheduled, "CountHeld": dbsqlc.CountHeld,
		"CountRunning": dbsqlc.CountRunning, "CountDead": dbsqlc.CountDead, "RecentEnqueues": dbsqlc.RecentEnqueues,
		"RecentOutcomes": dbsqlc.RecentOutcomes, "ListMinutes": dbsqlc.ListMinutes, "ListDead": dbsqlc.ListDead,
		"ListDeadGroup": dbsqlc.ListDeadGroup, "GetDead": dbsqlc.GetDead, "ListWorkers": dbsqlc.ListWorkers, "SearchFacts": dbsqlc.SearchFacts,
		"JobsOfKeys": dbsqlc.JobsOfKeys, "ListFingerprints": dbsqlc.ListFingerprints, "JobsOfFingerprints": dbsqlc.JobsOfFingerprints,
		"ExplainPlace": dbsqlc.ExplainPlace, "ListClaimers": dbsqlc.ListClaimers, "CountAhead": dbsqlc.CountAhead,
		"CountSuspectsAhead": dbsqlc.CountSuspectsAhead, "CountRecentRuns": dbsqlc.CountRecentRuns,
	} {
		exec("PREPARE p AS " + sql)
		var params int
		if err := conn.QueryRow(s.ctx, `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'p'`).Scan(&params); err != nil {
			t.Fatalf("%s: count parameters: %v", name, err)
		}
		execute := "EXPLAIN EXECUTE p"
		if params > 0 {
			execute += "(" + strings.TrimSuffix(strings.Repeat("NULL,", params), ",") + ")"
		}
		rows, err := conn.Query(s.ctx, execute, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatalf("%s: explain: %v", name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: explain: %v", name, err)
		}
		plan := strings.Join(lines, "\n")
		if scan.MatchString(firstPages.ReplaceAllString(plan, "")) {
			t.Errorf("%s reads a large table whole:\n%s", name, plan)
		}
		if (name == "ScanCancelled" || name == "CountClosed" || name == "CountLostRuns") && !strings.Contains(plan, "job_executions_rare") {
			t.Errorf("%s looks for rare ends among all others:\n%s", name, plan)
		}
		exec("DEALLOCATE p")
	}
}
