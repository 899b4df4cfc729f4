package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// large are the tables that may never be read whole, nor sorted.
var large = []string{"jobs", "job_executions", "job_ready", "job_scheduled"}

// ownConnections are the files whose statements the engine sends over its own connections; the others go over the caller's.
var ownConnections = []string{"callback.sql.go", "claim.sql.go", "finish.sql.go", "hold.sql.go", "lease.sql.go", "live.sql.go", "promote.sql.go", "reaper.sql.go", "retention.sql.go", "stop.sql.go"}

// TestNoStatementReadsALargeTableWhole asks for the plan of every statement on 60,000 jobs in all places, as a prepared
// statement gets it that has been used for a while: a generic plan, under the settings of the engine's connections. Once
// with statistics and once as a fresh database has them, none.
func TestNoStatementReadsALargeTableWhole(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{true, false} {
		t.Run(fmt.Sprintf("analyzed=%v", analyzed), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			pool := dbtest.New(t)
			fillLarge(t, ctx, pool, analyzed)
			e, err := New(Config{Pool: pool, MaintenanceOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.openPools(ctx); err != nil {
				t.Fatal(err)
			}
			defer e.closePools()
			conns := map[bool]*pgxpool.Conn{}
			for hot, p := range map[bool]*pgxpool.Pool{true: e.hot, false: pool} {
				if conns[hot], err = p.Acquire(ctx); err != nil {
					t.Fatal(err)
				}
				defer conns[hot].Release()
				if _, err := conns[hot].Exec(ctx, "SET plan_cache_mode = force_generic_plan"); err != nil {
					t.Fatal(err)
				}
			}
			statements := readStatements(t)
			if len(statements) < 40 {
				t.Fatalf("only %d statements were found", len(statements))
			}
			for _, s := range statements {
				if wholeByRight[s.name] {
					continue
				}
				if own := slices.Contains(ownConnections, s.file); !own && !analyzed {
					continue // what only people wait for may wait for the first statistics
				}
				plan := explain(t, ctx, conns[slices.Contains(ownConnections, s.file)].Conn(), s)
				for _, fault := range plan.faults(nil) {
					t.Errorf("%s/%s: %s", s.file, s.name, fault)
				}
			}
			for name, sql := range trappedStatements {
				s := statement{"", name, sql}
				if plan := explain(t, ctx, conns[false].Conn(), s); analyzed && len(plan.faults(nil)) == 0 {
					t.Errorf("%s: its plan was not found at fault: %+v", name, plan)
				}
			}
		})
	}
}

// wholeByRight are statements that an operator asks for, once, about all that waits, under a time limit of their own.
var wholeByRight = map[string]bool{"SelectWaiting": true}

// trappedStatements are shapes that fell into a trap of the planner: the test must find it.
var trappedStatements = map[string]string{
	"one_scan_for_all_priorities": "SELECT r.ctid FROM job_ready AS r WHERE r.queue = $1 AND r.crashes = 0 ORDER BY r.priority DESC, r.seq LIMIT $2 FOR UPDATE SKIP LOCKED",
	"payloads_by_join":            "SELECT j.payload FROM (SELECT r.job_id FROM job_ready AS r LIMIT $1) AS d JOIN jobs AS j ON j.id = d.job_id",
	"executions_by_time":          "SELECT count(*) FROM job_executions AS e WHERE e.worker_id = $1",
}

type statement struct{ file, name, sql string }

var generatedSQL = regexp.MustCompile("(?s)const \\w+ = `-- name: (\\w+) :(\\w+)\n(.*?)`")

// readStatements takes the statements as sqlc made them, numbered parameters and all.
func readStatements(t *testing.T) (all []statement) {
	t.Helper()
	files, err := filepath.Glob("internal/dbsqlc/*.sql.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Base(f) == "verify.sql.go" {
			continue // its questions are about all rows, once an hour, and bring their own settings
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range generatedSQL.FindAllStringSubmatch(string(text), -1) {
			if m[2] != "copyfrom" && !strings.HasPrefix(m[3], "LOCK") {
				all = append(all, statement{filepath.Base(f), m[1], m[3]})
			}
		}
	}
	return all
}

// fillLarge makes 60,000 jobs: 20,000 in line over three queues and all priorities, 15,000 scheduled, 20,000 completed, 5,000
// dead, and the odd lease.
func fillLarge(t *testing.T, ctx context.Context, pool *pgxpool.Pool, analyzed bool) {
	t.Helper()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		"SET statement_timeout = 0", // a busy machine needs its time
		"ALTER TABLE jobs SET (autovacuum_enabled = off); ALTER TABLE job_executions SET (autovacuum_enabled = off)",
		"ALTER TABLE job_ready SET (autovacuum_enabled = off); ALTER TABLE job_scheduled SET (autovacuum_enabled = off)",
		`INSERT INTO jobs (id, type, queue, priority, version, expires_at)
			SELECT uuid_v7(now() - i * interval '1 s'), 'type' || i % 5, 'queue' || i % 3, i % 6, 1, CASE WHEN i % 50 = 0 THEN now() + i * interval '1 s' END
			FROM generate_series(1, 60000) AS i`,
		"CREATE TABLE numbered AS SELECT *, row_number() OVER (ORDER BY id) AS n FROM jobs",
		"INSERT INTO job_ready (job_id, queue, type, priority, crashes) SELECT id, queue, type, priority, (n % 1000 = 0)::int FROM numbered WHERE n <= 20000",
		`INSERT INTO job_scheduled (run_at, job_id, queue, type, priority, failed) SELECT now() + (n - 21000) * interval '1 s', id, queue, type, priority, n % 2 = 0
			FROM numbered WHERE n BETWEEN 20001 AND 35000`,
		"INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, attempt, outcome) SELECT id, n, 1, now(), 1, 1 FROM numbered WHERE n BETWEEN 35001 AND 55000",
		`INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, attempt, outcome, fingerprint) SELECT id, n, 1, now(), 1, 2, 'v1:' || n % 20 FROM numbered WHERE n > 55000`,
		`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, fingerprint) SELECT id, n, 1, queue, type, 'permanent', 'v1:' || n % 20 FROM numbered WHERE n > 55000`,
		`INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) SELECT 1, now(), ARRAY[uuid_v7()], '{0}', '{0}' FROM generate_series(1, 50)`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if analyzed {
		if _, err := conn.Exec(ctx, "ANALYZE"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(ctx, "RESET statement_timeout"); err != nil {
		t.Fatal(err)
	}
}

// planNode is what EXPLAIN says of one step.
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Plans    []planNode `json:"Plans"`
}

// faults are reads of a whole large table, and sorts of a lane. A scan right under a LIMIT ends there.
func (p planNode) faults(above []string) (found []string) {
	path := append(slices.Clone(above), p.Type)
	if p.Type == "Seq Scan" && slices.Contains(large, p.Relation) && (len(above) == 0 || above[len(above)-1] != "Limit") {
		found = append(found, fmt.Sprintf("reads %s whole: %s", p.Relation, strings.Join(path, " > ")))
	}
	if (p.Type == "Sort" || p.Type == "Incremental Sort") && p.scans("job_ready") {
		found = append(found, "sorts a lane: "+strings.Join(path, " > "))
	}
	for _, c := range p.Plans {
		found = append(found, c.faults(path)...)
	}
	return found
}

// scans tells whether a step gets its rows straight from a table.
func (p planNode) scans(relation string) bool {
	for len(p.Plans) == 1 && p.Relation == "" {
		p = p.Plans[0]
		if !strings.Contains(p.Type, "Scan") && p.Type != "LockRows" && p.Type != "Limit" {
			return false
		}
	}
	return p.Relation == relation
}

func explain(t *testing.T, ctx context.Context, conn *pgx.Conn, s statement) planNode {
	t.Helper()
	name := "plan_" + strings.ToLower(s.name)
	described, err := conn.Prepare(ctx, name, s.sql)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	nulls := strings.TrimSuffix(strings.Repeat("NULL,", len(described.ParamOIDs)), ",")
	if nulls != "" {
		nulls = "(" + nulls + ")"
	}
	var out string
	if err := conn.QueryRow(ctx, "EXPLAIN (FORMAT JSON) EXECUTE "+name+nulls, pgx.QueryExecModeSimpleProtocol).Scan(&out); err != nil {
		t.Fatalf("explain %s: %v", s.name, err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(out), &plans); err != nil {
		t.Fatalf("explain %s: %v in %s", s.name, err, out)
	}
	return plans[0].Plan
}
