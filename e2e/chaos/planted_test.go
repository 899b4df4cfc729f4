//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// planted is a defect put into a run without one, and the rule that must find it.
type planted struct {
	rule string
	sql  string
	line string // for the requests' journal
}

// The jobs are named by the order of [stage.work]: p-1 is ok, p-2 slow, p-3 tx, p-4 once,
// p-6 flaky, p-7 ok after 300 ms, p-8 ok, p-9 slow, p-15 doomed, p-16 hopeless.

var defects = []planted{
	{rule: "an acknowledged job exists once", sql: "DELETE FROM jobs WHERE payload->>'ref' = 'p-1'"},
	{rule: "a request makes a job once, however often it is repeated", sql: `INSERT INTO jobs (id, type, version, payload)
		SELECT gen_random_uuid(), type, 1, payload FROM jobs WHERE payload->>'ref' = 'p-2'`},
	{rule: "a payload reads back equal", sql: "UPDATE jobs SET payload = payload || '{\"big\": 12345678901234567891}' WHERE payload->>'ref' = 'p-8'"},
	{rule: "what was rolled back or refused does not exist", line: `{"door":"sql","outcome":"rolled back","jobs":[{"ref":"p-9","type":"slow","payload":null}]}`},
	{rule: "a lost answer is all or nothing", line: `{"door":"bulk","outcome":"unknown","jobs":[{"ref":"p-9","type":"slow","payload":null},{"ref":"never","type":"ok","payload":null}]}`},
	{rule: "nobody but a request makes a job", sql: "INSERT INTO jobs (id, type, version, payload) VALUES (gen_random_uuid(), 'ok', 1, '{\"ref\": \"whose\"}')"},
	{rule: "the caller's rows and the jobs live and die together", sql: "INSERT INTO chaos.orders (ref) VALUES ('sql-nowhere')"},
	{rule: "every job ends as its handler says", sql: "UPDATE dead_letter_jobs SET reason = 'exhausted' WHERE reason = 'permanent'"},
	{rule: "a cancelled job never completes", line: `{"door":"cancel","outcome":"acknowledged","jobs":[{"id":"ID","ref":"","type":"","payload":null}]}`},
	{rule: "one final end in each life", sql: `INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, attempt, outcome)
		SELECT e.job_id, nextval('job_claims_id_seq'), e.worker_id, e.finished_at, e.attempt, 1 FROM job_executions AS e WHERE e.outcome = 1 LIMIT 1`},
	{rule: "claims of a job never overlap", sql: `UPDATE job_executions AS e SET claimed_at = e.claimed_at - interval '1 hour'
		WHERE e.attempt > 1 AND e.claimed_at IS NOT NULL`},
	{rule: "a run that began is closed", sql: "DELETE FROM job_executions WHERE outcome = 9"},
	{rule: "a run is told by the worker that holds it", sql: "UPDATE job_executions SET worker_id = worker_id + 1 WHERE outcome = 2"},
	{rule: "an effect in the handler's transaction happens exactly once", sql: "INSERT INTO chaos.effects SELECT * FROM chaos.effects LIMIT 1"},
	{rule: "an effect under CompleteTx is that of the completed run", sql: `UPDATE chaos.effects SET fencing_token = fencing_token + 1
		WHERE job_id IN (SELECT id FROM jobs WHERE type = 'tx')`},
	{rule: "a completed run did what it says", sql: "UPDATE job_executions SET outcome = 1 WHERE outcome = 2 AND attempt = 1"},
	{rule: "no run before its time", sql: "UPDATE job_executions SET claimed_at = claimed_at - interval '1 hour' WHERE job_id = (SELECT id FROM jobs WHERE payload->>'ref' = 'p-7')"},
	{rule: "a backoff is within its range", sql: "UPDATE moves.log SET detail = (detail::timestamptz + interval '1 hour')::text WHERE place = 'failed' AND op = 'insert'"},
	{rule: "counters equal history", sql: "UPDATE job_stats_minutes SET n = n + 1; UPDATE job_stats_deltas SET n = n + 1"},
	{rule: "nothing is left over", sql: "INSERT INTO job_ready (job_id, priority, queue, type) SELECT id, 1, queue, type FROM jobs LIMIT 1"},
}

// TestPlantedDefectsAreFound judges a quiet run, which must pass, and then plants
// one defect after another.
func TestPlantedDefectsAreFound(t *testing.T) {
	withPrograms(t)
	t.Parallel()
	s := newStage(t, "planted", scene{})
	s.work()
	s.finish()
	if t.Failed() {
		t.Fatal("a quiet run does not pass")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var id string
	if err := s.pool.QueryRow(ctx, "SELECT id::text FROM jobs WHERE payload->>'ref' = 'p-9'").Scan(&id); err != nil {
		t.Fatal(err)
	}
	var found map[string]bool
	for _, d := range defects {
		if d.sql != "" {
			if tag, err := s.pool.Exec(ctx, d.sql); err != nil || tag.RowsAffected() == 0 {
				t.Fatalf("plant for %q: %v, %v", d.rule, tag, err)
			}
		}
		if d.line != "" {
			appendTo(t, filepath.Join(s.dir, requestsFile), strings.Replace(d.line, "ID", id, 1)+"\n")
		}
		found = s.rulesBroken(ctx)
		if !found[d.rule] {
			t.Errorf("nobody found the defect planted for %q; broken are %v", d.rule, found)
		}
	}
	t.Logf("%d defects planted", len(defects))
}

// TestACheckerThatCannotReadIsNoPass cuts the evidence in three ways.
func TestACheckerThatCannotReadIsNoPass(t *testing.T) {
	withPrograms(t)
	t.Parallel()
	s := newStage(t, "unread", scene{})
	s.work()
	s.finish()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := s.pool.Exec(ctx, "ALTER TABLE chaos.effects RENAME TO hidden"); err != nil {
		t.Fatal(err)
	}
	if v, _ := check(ctx, s.dir, s.pool); len(v.unchecked) == 0 {
		t.Error("a missing table was no reason not to judge")
	}
	if _, err := s.pool.Exec(ctx, "ALTER TABLE chaos.hidden RENAME TO effects"); err != nil {
		t.Fatal(err)
	}
	if v, _ := check(ctx, s.dir, s.pool); len(v.unchecked) != 0 {
		t.Fatalf("with the table back: %v", v.unchecked)
	}
	appendTo(t, filepath.Join(s.dir, effectsFile), `{"job":"01`)
	if v, _ := check(ctx, s.dir, s.pool); len(v.unchecked) == 0 {
		t.Error("half a line was no reason not to judge")
	}
	if err := os.Truncate(filepath.Join(s.dir, effectsFile), 0); err != nil {
		t.Fatal(err)
	}
	if v, _ := check(ctx, s.dir, s.pool); len(v.unchecked) == 0 {
		t.Error("an empty journal was no reason not to judge")
	}
}

// withPrograms skips what builds and runs programs, where nobody asked for chaos.
func withPrograms(t *testing.T) {
	t.Helper()
	if *sizeFlag == "" && *pointsFlag == 0 {
		t.Skip("runs programs: give -chaos short, or use make chaos-short")
	}
}

func (s *stage) rulesBroken(ctx context.Context) map[string]bool {
	v, _ := check(ctx, s.dir, s.pool)
	for _, err := range v.unchecked {
		s.t.Fatal(err)
	}
	broken := map[string]bool{}
	for _, w := range v.violations {
		broken[w.rule] = true
	}
	return broken
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryRuleHasADefectPlanted(t *testing.T) {
	t.Parallel()
	// What a quiet run has none of to spoil, or what waits for the end of connections.
	elsewhere := []string{"a run is executed once", "tokens rise in the order in which runs began", "outside effects have one key per job",
		"backoffs are spread over their range", "connections and transactions are back to none"}
	for _, r := range rules {
		has := slices.ContainsFunc(defects, func(d planted) bool { return d.rule == r.name })
		if has == slices.Contains(elsewhere, r.name) {
			t.Errorf("%q: planted %v, excused %v", r.name, has, !has)
		}
	}
}
