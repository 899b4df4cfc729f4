package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// breaks has, for each rule, what would break it, in SQL that goes around the
// engine and, where one stands in the way, around a constraint.
var breaks = []struct{ rule, what, sql string }{
	{"acknowledged_exists", "an acknowledged job is lost", `DELETE FROM jobs WHERE id = job('completed'); DELETE FROM job_executions WHERE job_id = job('completed')`},
	{"one_place", "a job is nowhere", `DELETE FROM job_ready WHERE job_id = job('ready')`},
	{"one_place", "a lease went with an open job", `DELETE FROM job_claims`},
	{"one_place", "a job is in line and in the schedule", `INSERT INTO job_scheduled (run_at, job_id, priority, queue, type) SELECT now(), job_id, priority, queue, type FROM job_ready`},
	{"one_place", "a job is leased and in line", `INSERT INTO job_ready (job_id, priority, queue, type) VALUES (job('leased'), 1, 'elsewhere', 'fate')`},
	{"one_place", "a job is in two leases", `INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) SELECT 2, lease_expires_at, job_ids, attempts, crashes FROM job_claims`},
	{"no_orphans", "a place without a job", `INSERT INTO job_ready (job_id, priority, queue, type) VALUES (gen_random_uuid(), 1, 'default', 'fate')`},
	{"no_orphans", "a lease entry without a job", `INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) VALUES (1, now() + interval '1 min', ARRAY[gen_random_uuid()], '{0}', '{0}')`},
	{"no_orphans", "a dead letter without a job", `DELETE FROM jobs WHERE id = job('permanent'); DELETE FROM job_executions WHERE job_id = job('permanent')`},
	{"no_orphans", "an execution without a job", `DELETE FROM jobs WHERE id = job('due')`},
	{"states_as_designed", "a dead letter that nothing killed", `UPDATE job_executions SET outcome = 3 WHERE job_id = job('permanent')`},
	{"states_as_designed", "a dead letter of an older run", `UPDATE dead_letter_jobs SET fencing_token = fencing_token - 1 WHERE job_id = job('exhausted')`},
	{"states_as_designed", "a failed job that did not fail", `UPDATE job_scheduled SET failed = true WHERE job_id = job('scheduled')`},
	{"states_as_designed", "a backoff that is not shown as failed", `UPDATE job_scheduled SET failed = false WHERE job_id = job('retrying')`},
	{"nothing_after_the_end", "a completed job waits", `INSERT INTO job_ready (job_id, priority, queue, type) VALUES (job('completed'), 1, 'default', 'fate')`},
	{"nothing_after_the_end", "a cancelled job completed", `INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome)
		VALUES (job('cancelled'), nextval('job_claims_id_seq'), 1, now(), now(), 1, 1)`},
	{"nothing_after_the_end", "an expired job ran without a replay", `INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome)
		VALUES (job('expired'), nextval('job_claims_id_seq'), 1, now(), now(), 1, 1)`},
	{"unique_keys_held_once", "two jobs under one key", `UPDATE jobs SET unique_key = (SELECT unique_key FROM jobs WHERE id = job('unique')), unique_through = 2 WHERE id = job('leased')`},
	{"unique_keys_held_once", "the key of a living job was let go", `DELETE FROM job_unique_keys`},
	{"unique_keys_held_once", "the key was given to another", `UPDATE job_unique_keys SET job_id = job('completed')`},
	{"attempts_within_limit", "a run too many", `UPDATE jobs SET max_attempts = 1 WHERE id = job('exhausted')`},
	{"attempts_within_limit", "a job waits with no attempt left", `UPDATE jobs SET max_attempts = 1 WHERE id = job('retrying')`},
	{"run_closed_once", "a run has two executions", `ALTER TABLE job_executions DROP CONSTRAINT job_executions_pkey;
		INSERT INTO job_executions SELECT * FROM job_executions WHERE job_id = job('due')`},
	{"tokens_rise", "a token that was never given out", `UPDATE job_executions SET fencing_token = 1000000 WHERE job_id = job('due')`},
	{"tokens_rise", "a lease under an old token", `INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, attempt, outcome)
		VALUES (job('leased'), nextval('job_claims_id_seq'), 1, now(), 1, 4)`},
	{"claims_do_not_overlap", "a run was claimed while the one before went on", `UPDATE job_executions SET claimed_at = claimed_at - interval '10 s'
		WHERE job_id = job('exhausted') AND attempt = 2`},
	{"leases_end", "the reaper leaves a lease", `UPDATE job_claims SET lease_expires_at = now() - interval '3 min';
		INSERT INTO leaders (role, worker_id, acquired_at, expires_at) VALUES ('maintenance', 1, now() - interval '1 h', now() + interval '5 s')
		ON CONFLICT (role) DO UPDATE SET acquired_at = excluded.acquired_at, expires_at = excluded.expires_at`},
	{"leases_hold_open_jobs", "a lease outlives its jobs", `INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, finished_at, attempt, outcome)
		SELECT job('leased'), id, 1, claimed_at, claimed_at, claimed_at, 1, 1 FROM job_claims;
		UPDATE job_executions SET finished_at = now() - interval '3 min', claimed_at = now() - interval '4 min', started_at = now() - interval '4 min' WHERE job_id = job('leased');
		UPDATE job_claims SET claimed_at = now() - interval '4 min', lease_expires_at = now() - interval '3 min';
		INSERT INTO leaders (role, worker_id, acquired_at, expires_at) VALUES ('maintenance', 1, now() - interval '1 h', now() + interval '5 s')
		ON CONFLICT (role) DO UPDATE SET acquired_at = excluded.acquired_at, expires_at = excluded.expires_at`},
	{"leases_hold_open_jobs", "a lease names a job twice", `UPDATE job_claims SET job_ids = job_ids || job_ids, attempts = attempts || attempts, crashes = crashes || crashes`},
	{"crashes_add_up", "crashes without a lost run", `UPDATE job_ready SET crashes = 1`},
	{"crashes_add_up", "more crashes than a job may have", `UPDATE job_claims SET crashes = '{11}'`},
	{"retry_after_the_failure", "a retry due before the failure", `UPDATE job_scheduled SET run_at = run_at - interval '2 h' WHERE job_id = job('retrying')`},
	{"retry_after_the_failure", "a retry due next year", `UPDATE job_scheduled SET run_at = run_at + interval '1 year' WHERE job_id = job('retrying')`},
	{"retry_after_the_failure", "a run that was ready before the one before had ended", `UPDATE job_executions SET wait_ms = wait_ms + 60000 WHERE job_id = job('exhausted') AND attempt = 2`},
	{"never_before_its_time", "a run before its time", `UPDATE jobs SET scheduled_at = now() + interval '1 h' WHERE id = job('due')`},
	{"never_before_its_time", "in line before its time", `UPDATE job_ready SET ready_at = now() + interval '1 h'`},
	{"attempts_add_up", "an attempt that was counted twice", `UPDATE job_executions SET attempt = 3 WHERE job_id = job('exhausted') AND attempt = 2; UPDATE jobs SET max_attempts = 5`},
	{"attempts_add_up", "a snooze that used an attempt", `UPDATE job_scheduled SET attempt = 1 WHERE job_id = job('snoozed')`},
	{"attempts_add_up", "a failure that used none", `UPDATE job_scheduled SET attempt = 0 WHERE job_id = job('retrying')`},
	{"acts_are_recorded", "a replay without its act", `ALTER TABLE operator_actions DISABLE TRIGGER USER; UPDATE operator_actions SET target = gen_random_uuid()::text WHERE action = 'replay'`},
	{"acts_are_recorded", "a cancellation without its act", `ALTER TABLE operator_actions DISABLE TRIGGER USER; UPDATE operator_actions SET target = gen_random_uuid()::text WHERE action = 'cancel'`},
	{"acts_are_recorded", "a discard without its act", `ALTER TABLE operator_actions DISABLE TRIGGER USER; UPDATE operator_actions SET target = gen_random_uuid()::text WHERE action = 'discard'`},
	{"trail_is_whole", "an act was changed", `ALTER TABLE operator_actions DISABLE TRIGGER USER; UPDATE operator_actions SET actor = 'bob' WHERE id = 2`},
	{"trail_is_whole", "an act was taken out", `DELETE FROM operator_actions WHERE id = 2`},
	{"trail_is_whole", "the last act was taken out", `DELETE FROM operator_actions WHERE id = 3`},
	{"ends_are_explained", "an expiry without an expires_at", `UPDATE jobs SET expires_at = NULL WHERE id = job('expired')`},
	{"ends_are_explained", "an expiry before its time", `UPDATE jobs SET expires_at = now() + interval '1 h' WHERE id = job('expired')`},
	{"run_instants_in_order", "a run that ended before it began", `UPDATE job_executions SET started_at = finished_at + interval '5 s' WHERE job_id = job('completed')`},
	{"run_instants_in_order", "a run that began before its claim", `UPDATE job_executions SET started_at = claimed_at - interval '5 s' WHERE job_id = job('completed')`},
	{"run_instants_in_order", "a completion that never started", `UPDATE job_executions SET started_at = NULL WHERE job_id = job('completed')`},
	{"counters_equal_history", "a failure that was not counted", `DELETE FROM job_stats_deltas WHERE outcome = 2; DELETE FROM job_stats_minutes WHERE outcome = 2`},
	{"counters_equal_history", "a completion that was not counted", `DELETE FROM job_stats_deltas WHERE outcome = 1; DELETE FROM job_stats_minutes WHERE outcome = 1`},
	{"counters_equal_history", "completions that nobody ran", `INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms) VALUES ('default', 'fate', 1, 100, 0)`},
}

func TestEveryBreachIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if bad := w.check(t, verify.Options{}); len(bad) > 0 {
		t.Fatalf("before anything was broken: %v", bad)
	}
	// The server of this test has just started, and so would be given a minute to reap.
	soon := verify.Options{LeaseGrace: 10 * time.Millisecond}
	for _, b := range breaks {
		t.Run(b.rule+"/"+b.what, func(t *testing.T) {
			w.exec(t, `SET session_replication_role = replica; `+b.sql+`; RESET session_replication_role`)
			defer w.mend(t)
			bad := w.check(t, soon)
			if _, found := bad[b.rule]; !found {
				t.Errorf("not found; found: %v", bad)
			}
			for _, o := range bad[b.rule].Offenders {
				if o.Subject == "" || o.Detail == "" {
					t.Errorf("an offender says too little: %+v", o)
				}
			}
		})
	}
	for _, rule := range verify.Rules {
		if !slices.ContainsFunc(breaks, func(b struct{ rule, what, sql string }) bool { return b.rule == rule.Name }) {
			t.Errorf("nothing here breaks %s", rule.Name)
		}
	}
	if bad := w.check(t, verify.Options{}); len(bad) > 0 {
		t.Errorf("after all was mended: %v", bad)
	}
}

// What cannot be read is no success: each rule that needs it says so, and why.
func TestWhatCannotBeReadIsUnchecked(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	if _, err := pool.Exec(t.Context(), `ALTER TABLE operator_actions RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	r, err := verify.Run(t.Context(), pool, verify.Options{})
	if err == nil || r.Verdict() != verify.Unchecked {
		t.Fatalf("verdict %s, error %v", r.Verdict(), err)
	}
	for _, res := range r.Results {
		want := verify.OK
		if slices.Contains([]string{"acts_are_recorded", "trail_is_whole", "never_before_its_time"}, res.Rule.Name) || strings.Contains(res.Problem, "operator_actions") {
			want = verify.Unchecked
		}
		if res.Verdict != want || want == verify.Unchecked && res.Problem == "" {
			t.Errorf("%s: %s %q, want %s", res.Rule.Name, res.Verdict, res.Problem, want)
		}
	}
}

func TestACheckThatTakesTooLongIsUnchecked(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE job_executions IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	r, err := verify.Run(t.Context(), pool, verify.Options{StatementTimeout: 100 * time.Millisecond})
	if err == nil || r.Verdict() != verify.Unchecked {
		t.Fatalf("verdict %s, error %v", r.Verdict(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r, err = verify.Run(ctx, pool, verify.Options{})
	if err == nil || r.Verdict() != verify.Unchecked || r.Count(verify.OK) == len(verify.Rules) {
		t.Fatalf("cut short: verdict %s, error %v", r.Verdict(), err)
	}
}

func TestADatabaseThatIsAwayIsUnchecked(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	pool.Close()
	r, err := verify.Run(t.Context(), pool, verify.Options{})
	if err == nil || r.Count(verify.Unchecked) != len(verify.Rules) {
		t.Fatalf("%d of %d rules unchecked, error %v", r.Count(verify.Unchecked), len(verify.Rules), err)
	}
}
