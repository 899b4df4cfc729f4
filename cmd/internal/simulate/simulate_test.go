package simulate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

var anInstant = time.Date(2026, 11, 30, 2, 14, 7, 0, time.UTC)

func simulate(t testing.TB, pool *pgxpool.Pool, o Options) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	got, err := Run(ctx, pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func one[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := pool.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// broken are rows that no engine would leave, by what is wrong with them.
var broken = map[string]string{
	"jobs in no place": `SELECT count(*) FROM job_states WHERE state IS NULL`,
	"jobs in two places": `SELECT count(*) FROM (SELECT job_id FROM (
		SELECT job_id FROM job_ready UNION ALL SELECT job_id FROM job_scheduled UNION ALL SELECT job_id FROM job_held
		UNION ALL SELECT job_id FROM dead_letter_jobs UNION ALL SELECT unnest(job_ids) FROM job_claims
		UNION ALL SELECT job_id FROM job_executions WHERE outcome IN (1, 5)) AS p GROUP BY job_id HAVING count(*) > 1) AS x`,
	"places and runs without a job": `SELECT count(*) FROM (
		SELECT job_id FROM job_ready UNION ALL SELECT job_id FROM job_scheduled UNION ALL SELECT job_id FROM job_held
		UNION ALL SELECT job_id FROM dead_letter_jobs UNION ALL SELECT unnest(job_ids) FROM job_claims
		UNION ALL SELECT job_id FROM job_executions UNION ALL SELECT job_id FROM refused_writes) AS p WHERE NOT EXISTS (SELECT FROM jobs AS j WHERE j.id = p.job_id)`,
	"places that say another queue, type or priority": `SELECT count(*) FROM (
		SELECT job_id, queue, type, priority FROM job_ready UNION ALL SELECT job_id, queue, type, priority FROM job_scheduled
		UNION ALL SELECT job_id, queue, type, priority FROM job_held) AS p JOIN jobs AS j ON j.id = p.job_id
		WHERE (j.queue, j.type, j.priority) <> (p.queue, p.type, p.priority)`,
	"dead letters that say another queue or type": `SELECT count(*) FROM dead_letter_jobs AS d JOIN jobs AS j ON j.id = d.job_id WHERE (j.queue, j.type) <> (d.queue, d.type)`,
	"dead letters that the last run did not close": `SELECT count(*) FROM dead_letter_jobs AS d WHERE NOT EXISTS (
		SELECT FROM job_executions AS e WHERE e.job_id = d.job_id AND e.fencing_token = d.fencing_token AND e.finished_at = d.died_at
		AND e.fingerprint = d.fingerprint AND e.error = d.error AND e.outcome IN (2, 7, 9))
		OR d.fencing_token < (SELECT max(e.fencing_token) FROM job_executions AS e WHERE e.job_id = d.job_id)`,
	"ends that a later run follows": `SELECT count(*) FROM job_executions AS e JOIN job_executions AS later ON later.job_id = e.job_id AND later.fencing_token > e.fencing_token
		WHERE e.outcome IN (1, 5)`,
	"runs that begin before the one before has ended": `SELECT count(*) FROM (
		SELECT e.claimed_at, lag(e.finished_at) OVER (PARTITION BY e.job_id ORDER BY e.fencing_token) AS before FROM job_executions AS e) AS x WHERE x.claimed_at < x.before`,
	"runs out of time": `SELECT count(*) FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id
		WHERE e.started_at < e.claimed_at OR e.finished_at < coalesce(e.started_at, e.claimed_at) OR e.claimed_at < j.created_at OR e.finished_at > $1 OR e.wait_ms < 0`,
	"runs of nobody": `SELECT count(*) FROM job_executions AS e WHERE (e.worker_id IS NULL) <> (e.claimed_at IS NULL) OR (e.claimed_at IS NULL AND e.outcome <> 5)
		OR e.worker_id IS NOT NULL AND NOT EXISTS (SELECT FROM workers AS w WHERE w.id = e.worker_id AND w.started_at <= e.claimed_at AND coalesce(w.stopped_at, $1) >= e.claimed_at)
		AND e.claimed_at > $1 - interval '7 hours'`,
	"tokens of two workers or two claims": `SELECT count(*) FROM (SELECT 1 FROM (
		SELECT fencing_token, worker_id, claimed_at FROM job_executions WHERE worker_id IS NOT NULL UNION SELECT id, worker_id, claimed_at FROM job_claims) AS u
		GROUP BY u.fencing_token HAVING count(*) > 1) AS x`,
	"claims of more than a thousand jobs": `SELECT count(*) FROM (SELECT 1 FROM job_executions WHERE worker_id IS NOT NULL GROUP BY fencing_token HAVING count(*) > 1000) AS x`,
	"tokens that the sequence has not given": `SELECT count(*) FROM (SELECT fencing_token AS token FROM job_executions UNION ALL SELECT id FROM job_claims) AS x
		WHERE x.token < 1 OR x.token > (SELECT last_value FROM job_claims_id_seq)`,
	"claims whose token a closed run of the job reaches": `SELECT count(*) FROM job_claims AS k CROSS JOIN unnest(k.job_ids) AS u(job_id)
		WHERE EXISTS (SELECT FROM job_executions AS e WHERE e.job_id = u.job_id AND e.fencing_token >= k.id)`,
	"attempts that are not counted": `SELECT count(*) FROM (
		SELECT e.attempt, j.replays, 1 + count(*) FILTER (WHERE e.outcome IN (2, 9)) OVER (PARTITION BY e.job_id ORDER BY e.fencing_token ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS want
		FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id WHERE e.worker_id IS NOT NULL) AS x WHERE x.attempt <> x.want AND x.replays IS NULL`,
	"more attempts than a job has": `SELECT count(*) FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id WHERE e.attempt > j.max_attempts`,
	"waiting jobs whose attempts are not those of their runs": `SELECT count(*) FROM (
		SELECT job_id, attempt FROM job_ready UNION ALL SELECT job_id, attempt FROM job_scheduled UNION ALL SELECT job_id, attempt FROM job_held) AS p
		WHERE p.attempt <> (SELECT count(*) FROM job_executions AS e WHERE e.job_id = p.job_id AND e.outcome IN (2, 9))`,
	"retrying jobs that no failed run left": `SELECT count(*) FROM job_scheduled AS s WHERE s.failed AND (
		SELECT e.outcome FROM job_executions AS e WHERE e.job_id = s.job_id ORDER BY e.fencing_token DESC LIMIT 1) IS DISTINCT FROM 2`,
	"failures without class, message or fingerprint": `SELECT count(*) FROM job_executions WHERE outcome IN (2, 7, 9) AND (error_class IS NULL OR error IS NULL OR fingerprint IS NULL)`,
	"ids whose time is not that of the job":          `SELECT count(*) FROM jobs AS j WHERE left(replace(j.id::text, '-', ''), 12) <> lpad(to_hex(floor(extract(epoch FROM j.created_at) * 1000)::bigint), 12, '0')`,
	"webhooks that leave this machine":               `SELECT count(*) FROM jobs WHERE type = 'webhook' AND payload ->> 'url' IS DISTINCT FROM substring(payload ->> 'url' FROM '^http://127\.0\.0\.1:9/.*')`,
	"payloads beyond the limit, or names":            `SELECT count(*) FROM jobs WHERE octet_length(payload::text) > 262144 OR type !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$' OR queue !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'`,
	"minutes that are not the sum of their runs": `SELECT count(*) FROM (
		SELECT date_trunc('minute', e.finished_at) AS minute, j.queue, j.type, e.outcome, count(*) AS n,
		  coalesce(sum(floor(extract(epoch FROM e.finished_at - e.started_at) * 1000)), 0)::bigint AS ms, count(e.started_at) AS buckets
		FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id WHERE e.worker_id IS NOT NULL GROUP BY 1, 2, 3, 4) AS x
		FULL JOIN job_stats_minutes AS m USING (minute, queue, type, outcome)
		WHERE x.n IS DISTINCT FROM m.n OR x.ms IS DISTINCT FROM m.run_ms OR x.buckets IS DISTINCT FROM (SELECT sum(b) FROM unnest(m.wait_buckets) AS b)
		OR x.buckets IS DISTINCT FROM (SELECT sum(b) FROM unnest(m.run_buckets) AS b)`,
	"acts that the trail's hashes do not bear out": `SELECT count(*) FROM (SELECT a.*, lag(a.hash, 1, '\x') OVER (ORDER BY a.id) AS before_hash FROM operator_actions AS a) AS a
		WHERE a.previous_hash <> a.before_hash OR a.hash <> operator_action_hash(a.previous_hash, a.id, a.at, a.actor, a.source, a.action, a.target_kind, a.target,
		  a.reason, a.before, a.after, a.affected, a.request_id, a.address)`,
	"a trail that does not end at its head": `SELECT count(*) FROM operator_action_head AS h WHERE h.id <> (SELECT coalesce(max(id), 0) FROM operator_actions)
		OR h.id > 0 AND h.hash <> (SELECT hash FROM operator_actions WHERE id = h.id)`,
	"ends by hand without an act": `SELECT count(*) FROM (
		SELECT job_id::text AS target, 'cancel' AS action FROM job_executions WHERE outcome = 5 UNION ALL
		SELECT job_id::text, 'discard' FROM dead_letter_jobs WHERE discarded_at IS NOT NULL UNION ALL
		SELECT id::text, 'replay' FROM jobs WHERE replays > 0) AS x
		WHERE NOT EXISTS (SELECT FROM operator_actions AS a WHERE a.target = x.target AND a.action = x.action)`,
	"late writes whose token is current": `SELECT count(*) FROM refused_writes AS r WHERE r.token_held >= r.token_current
		OR NOT EXISTS (SELECT FROM job_executions AS e WHERE e.job_id = r.job_id AND e.fencing_token = r.token_held AND e.outcome = 6)`,
}

func TestEveryRowIsOneTheEngineCouldHaveWritten(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Scenario: "incident", Jobs: 12_000, Seed: 7}, {Scenario: "incident", Jobs: 60, Seed: 3}, {Scenario: "incident", Jobs: 1}, {Scenario: "steady", Jobs: 3000, Seed: 1},
	} {
		t.Run(fmt.Sprintf("%s of %d", o.Scenario, o.Jobs), func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			got := simulate(t, pool, o)
			if n := one[int](t, pool, `SELECT count(*) FROM jobs`); n != o.Jobs || got.Jobs != o.Jobs {
				t.Errorf("%d jobs, the answer says %d, want %d", n, got.Jobs, o.Jobs)
			}
			check(t, pool, got.Now)
			places := map[string]int{}
			for _, c := range got.Counts {
				for name, n := range map[string]int{"pending": c.Ready + c.Scheduled + c.Held, "leased": c.Running, "failed": c.Retrying, "completed": c.Completed,
					"cancelled": c.Cancelled, "dead_letter": c.Dead + c.Discarded} {
					places[name] += n
				}
			}
			for state, n := range places {
				if is := one[int](t, pool, `SELECT count(*) FROM job_states WHERE state = $1`, state); is != n {
					t.Errorf("%d jobs are %s, the answer says %d", is, state, n)
				}
			}
		})
	}
}

func check(t *testing.T, pool *pgxpool.Pool, now time.Time) {
	t.Helper()
	for what, sql := range broken {
		var args []any
		if strings.Contains(sql, "$1") {
			args = []any{now}
		}
		if n := one[int](t, pool, sql, args...); n > 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// The check of a check: each statement finds what it looks for.
func TestBrokenRowsAreFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for what, damage := range map[string]string{
		"jobs in no place":                             `DELETE FROM job_ready WHERE job_id = (SELECT job_id FROM job_ready LIMIT 1)`,
		"jobs in two places":                           `INSERT INTO job_held SELECT job_id, now(), priority, attempt, crashes, queue, type, 'no_worker', type FROM job_ready LIMIT 1`,
		"places and runs without a job":                `DELETE FROM jobs WHERE id = (SELECT job_id FROM job_scheduled LIMIT 1)`,
		"minutes that are not the sum of their runs":   `UPDATE job_stats_minutes SET n = n + 1 WHERE ctid = (SELECT ctid FROM job_stats_minutes LIMIT 1)`,
		"acts that the trail's hashes do not bear out": `ALTER TABLE operator_actions DISABLE TRIGGER USER; UPDATE operator_actions SET actor = 'x' WHERE id = 2`,
		"ends that a later run follows":                `INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) SELECT job_id, fencing_token + 1, 1, 2 FROM job_executions WHERE outcome = 1 LIMIT 1`,
	} {
		pool := dbtest.New(t)
		now := simulate(t, pool, Options{Jobs: 2000, Seed: 7}).Now
		if _, err := pool.Exec(ctx, damage); err != nil {
			t.Fatal(err)
		}
		var args []any
		if strings.Contains(broken[what], "$1") {
			args = []any{now}
		}
		if one[int](t, pool, broken[what], args...) == 0 {
			t.Errorf("%s are not found", what)
		}
	}
}

// digests are of all that a table holds, in order of its text.
func digests(t *testing.T, pool *pgxpool.Pool) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, table := range []string{"jobs", "job_executions", "job_ready", "job_scheduled", "job_held", "job_claims", "dead_letter_jobs", "workers", "queues", "refused_writes",
		"job_stats_minutes", "operator_actions", "operator_action_head"} {
		out[table] = one[string](t, pool, `SELECT count(*) || ' rows ' || coalesce(md5(string_agg(x.row, E'\n' ORDER BY x.row)), '') FROM (SELECT t::text AS row FROM `+table+` AS t) AS x`)
	}
	return out
}

func TestTheSameSeedMakesTheSameData(t *testing.T) {
	t.Parallel()
	make := func(o Options) map[string]string {
		pool := dbtest.New(t)
		simulate(t, pool, o)
		return digests(t, pool)
	}
	o := Options{Scenario: "incident", Jobs: 6000, Seed: 7, Now: anInstant}
	first := make(o)
	if diff := cmp.Diff(first, make(o)); diff != "" {
		t.Errorf("two runs with seed 7 differ: %s", diff)
	}
	o.Seed = 8
	other := make(o)
	for _, table := range []string{"jobs", "job_executions", "dead_letter_jobs", "job_stats_minutes"} {
		if first[table] == other[table] {
			t.Errorf("seeds 7 and 8 make the same %s", table)
		}
	}
}

// TestTheIncidentTellsItsStory compares the figures that the drawn pages show.
func TestTheIncidentTellsItsStory(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	simulate(t, pool, Options{Jobs: 12_000, Seed: 7, Now: anInstant})
	for want, sql := range map[string]string{
		"312 GatewayTimeout charge, 11 MailboxUnavailable email, 9 EndpointGone webhook, 3 crash report, 2 DeadlineExceeded crm.sync, 2 ImportRejected import.rows, 2 InvalidPayload invoice": `
			SELECT string_agg(x.n || ' ' || x.error_class || ' ' || x.type, ', ' ORDER BY x.n DESC, x.error_class) FROM (
			  SELECT count(*) AS n, error_class, type FROM dead_letter_jobs WHERE discarded_at IS NULL GROUP BY fingerprint, error_class, type) AS x`,
		"325 of 341":           `SELECT count(*) FILTER (WHERE died_at > timestamptz '2026-11-30 01:14:07Z') || ' of ' || count(*) FROM dead_letter_jobs WHERE discarded_at IS NULL`,
		"18 discarded":         `SELECT count(*) || ' discarded' FROM dead_letter_jobs WHERE discarded_at IS NOT NULL`,
		"20 lost, 20 jobs":     `SELECT count(*) || ' lost, ' || count(DISTINCT job_id) || ' jobs' FROM job_executions WHERE outcome = 6`,
		"5 replayed, all dead": `SELECT count(*) || ' replayed, ' || CASE WHEN bool_and(EXISTS (SELECT FROM dead_letter_jobs AS d WHERE d.job_id = j.id)) THEN 'all dead' END FROM jobs AS j WHERE j.replays = 1`,
		"2080 ready in mail":   `SELECT count(*) || ' ready in mail' FROM job_ready WHERE queue = 'mail'`,
		"118 retry":            `SELECT count(*) || ' retry' FROM job_scheduled WHERE failed AND type = 'charge'`,
		"20, 20, 10, 10":       `SELECT string_agg(x.n::text, ', ' ORDER BY x.n DESC) FROM (SELECT sum(cardinality(job_ids)) AS n FROM job_claims GROUP BY worker_id) AS x`,
		"60 characters":        `SELECT max(length(queue)) || ' characters' FROM jobs`,
		"23 digits":            `SELECT max(length(payload ->> 'ledger_position')) || ' digits' FROM jobs`,
		"10 lines":             `SELECT max(cardinality(string_to_array(error, E'\n'))) || ' lines' FROM job_executions`,
		"a large payload":      `SELECT CASE WHEN max(octet_length(payload::text)) > 100000 THEN 'a large payload' END FROM jobs`,
		"late":                 `SELECT CASE WHEN count(*) BETWEEN 1 AND 20 THEN 'late' END FROM refused_writes`,
		"since 02:07":          `SELECT 'since ' || to_char(min(finished_at) AT TIME ZONE 'UTC', 'HH24:MI') FROM job_executions WHERE error_class = 'GatewayTimeout'`,
		"no charge completed":  `SELECT 'no charge completed' FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id WHERE j.type = 'charge' AND e.outcome = 1 HAVING max(e.finished_at) < '2026-11-30 02:07:10Z'`,
		"paused by oncall-eu":  `SELECT 'paused by ' || actor FROM operator_actions AS a JOIN queues AS q ON q.name = a.target AND q.paused_at = a.at WHERE a.action = 'pause'`,
		"10 workers of 2":      `SELECT count(*) || ' workers of ' || count(DISTINCT version) FROM workers`,
		"12 queues and more":   `SELECT CASE WHEN count(DISTINCT queue) >= 12 THEN '12 queues and more' END FROM jobs`,
	} {
		if got := one[*string](t, pool, sql); got == nil || *got != want {
			t.Errorf("got %v, want %q: %s", str(got), want, sql)
		}
	}
}

func str(s *string) string {
	if s == nil {
		return "nothing"
	}
	return *s
}

func TestASimulationThatIsThereIsNotWrittenTwice(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := Options{Jobs: 500, Seed: 7, Now: anInstant}
	if found, err := HasJobs(ctx, pool); err != nil || found {
		t.Fatalf("jobs in an empty database: %v, %v", found, err)
	}
	simulate(t, pool, o)
	if _, err := Run(ctx, pool, o); !errors.Is(err, ErrThere) {
		t.Errorf("the same again: %v, want ErrThere", err)
	}
	o.Seed = 8
	simulate(t, pool, o)
	check(t, pool, anInstant)
	if n := one[int](t, pool, `SELECT count(*) FROM jobs`); n != 1000 {
		t.Errorf("%d jobs, want 1000", n)
	}
	for _, bad := range []Options{{Jobs: -1}, {Jobs: MaxJobs + 1}, {Scenario: "storm"}} {
		if _, err := Run(ctx, pool, bad); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v, want ErrOptions", bad, err)
		}
	}
}
