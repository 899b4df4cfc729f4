//go:build linux || darwin || freebsd

package chaos

// rule is a question whose every row is a violation: the job, nil without one,
// and what is wrong.
type rule struct {
	name string
	sql  string
}

// rules are the invariants that journals and tables answer together. Others are
// asked of verify, of the log of moves, and of the times of recovery.
var rules = []rule{
	{"an acknowledged job exists once", `
		SELECT w.id, format('%s: acknowledged as %s, found %s times', w.ref, w.id, count(j.id))
		FROM evidence.wanted AS w JOIN evidence.requests AS r ON r.id = w.request AND r.outcome = 'acknowledged' AND r.door NOT IN ('cancel', 'stop')
		LEFT JOIN evidence.jobs AS j ON j.ref = w.ref AND (w.id IS NULL OR j.id = w.id)
		GROUP BY w.id, w.ref HAVING count(DISTINCT j.id) <> 1`},
	{"a request makes a job once, however often it is repeated", `
		SELECT min(j.id::text)::uuid, format('%s: %s jobs', j.ref, count(*)) FROM evidence.jobs AS j GROUP BY j.ref HAVING count(*) > 1`},
	{"a payload reads back equal", `
		SELECT j.id, format('%s: stored %s, sent %s', w.ref, j.payload, w.payload)
		FROM evidence.wanted AS w JOIN evidence.requests AS r ON r.id = w.request AND r.door NOT IN ('cancel', 'stop')
		JOIN evidence.jobs AS e ON e.ref = w.ref JOIN jobs AS j ON j.id = e.id
		WHERE j.payload IS DISTINCT FROM w.payload OR j.type <> w.type`},
	{"what was rolled back or refused does not exist", `
		SELECT j.id, format('%s: %s at the door %s', w.ref, r.outcome, r.door)
		FROM evidence.wanted AS w JOIN evidence.requests AS r ON r.id = w.request AND r.outcome IN ('rolled back', 'refused') AND r.door NOT IN ('cancel', 'stop')
		JOIN evidence.jobs AS j ON j.ref = w.ref`},
	{"a lost answer is all or nothing", `
		SELECT min(j.id::text)::uuid, format('request %s (%s): %s of %s jobs exist', r.id, r.door, count(j.id), count(*))
		FROM evidence.requests AS r JOIN evidence.wanted AS w ON w.request = r.id LEFT JOIN evidence.jobs AS j ON j.ref = w.ref
		WHERE r.outcome = 'unknown' AND r.door NOT IN ('cancel', 'stop') GROUP BY r.id, r.door HAVING count(j.id) NOT IN (0, count(*))`},
	{"nobody but a request makes a job", `
		SELECT j.id, coalesce(j.ref, 'without a name') FROM evidence.jobs AS j
		WHERE NOT EXISTS (SELECT FROM evidence.wanted AS w WHERE w.ref = j.ref)`},
	{"the caller's rows and the jobs live and die together", `
		SELECT j.id, format('%s: %s rows of the business, %s jobs', coalesce(o.ref, j.ref), count(o.ref), count(j.id))
		FROM chaos.orders AS o FULL JOIN (SELECT e.id, e.ref FROM evidence.jobs AS e WHERE e.ref LIKE 'sql%') AS j ON j.ref = o.ref
		GROUP BY j.id, o.ref, j.ref HAVING count(o.ref) <> 1 OR count(j.id) <> 1`},
	{"every job ends as its handler says", `
		SELECT x.id, format('%s of type %s: %s %s', x.ref, x.type, coalesce(x.state, 'nowhere'), x.reason) FROM (
		  SELECT j.*, EXISTS (SELECT FROM evidence.wanted AS w JOIN evidence.requests AS r ON r.id = w.request
		    WHERE r.door IN ('cancel', 'stop') AND r.outcome IN ('acknowledged', 'unknown') AND w.id = j.id) AS recalled FROM evidence.jobs AS j) AS x
		WHERE NOT coalesce(CASE
		  WHEN x.recalled AND x.state = 'cancelled' THEN true
		  -- Ten runs in a row that were lost with their process are quarantined, whosever fault they were; one handed back is none.
		  WHEN x.state = 'dead_letter' AND x.reason = 'poison' AND (SELECT count(*) = 10 AND bool_and(e.outcome = 6) FROM (
		    SELECT e.outcome FROM job_executions AS e WHERE e.job_id = x.id AND e.outcome NOT IN (3, 4) ORDER BY e.fencing_token DESC LIMIT 10) AS e) THEN true
		  WHEN x.type IN ('hopeless', 'pill.loop') THEN x.state = 'dead_letter' AND x.reason = 'exhausted'
		  WHEN x.type = 'doomed' THEN x.state = 'dead_letter' AND x.reason = 'permanent'
		  WHEN x.type = 'brief' THEN x.state = 'dead_letter' AND x.reason = 'expired'
		  WHEN x.type LIKE 'pill.%' THEN x.state = 'dead_letter' AND x.reason = 'poison'
		  ELSE x.state = 'completed' END, false)`},
	{"a cancelled job never completes", `
		SELECT j.id, format('%s: %s, though its cancel was acknowledged', j.ref, j.state)
		FROM evidence.requests AS r JOIN evidence.wanted AS w ON w.request = r.id JOIN evidence.jobs AS j ON j.id = w.id
		WHERE r.door = 'cancel' AND r.outcome = 'acknowledged' AND (j.state IS DISTINCT FROM 'cancelled'
		  OR EXISTS (SELECT FROM job_executions AS e WHERE e.job_id = j.id AND e.outcome = 1))`},
	{"one final end in each life", `
		SELECT e.job_id, format('%s ends: %s', count(*), array_agg(e.outcome ORDER BY e.fencing_token))
		FROM job_executions AS e WHERE e.outcome = 1 OR e.outcome = 5 AND e.worker_id IS NULL GROUP BY e.job_id HAVING count(*) > 1`},
	{"claims of a job never overlap", `
		SELECT x.job_id, format('token %s claimed at %s, token %s ended at %s', x.fencing_token, x.claimed_at, x.before, x.ended)
		FROM (SELECT e.*, lag(e.fencing_token) OVER w AS before, lag(e.finished_at) OVER w AS ended FROM job_executions AS e
		  WINDOW w AS (PARTITION BY e.job_id ORDER BY e.fencing_token)) AS x
		WHERE x.claimed_at < x.ended - interval '50 ms'`},
	{"a run that began is closed", `
		SELECT t.job, format('token %s of worker %s began and has no execution', t.token, t.worker) FROM evidence.traces AS t
		WHERE t.event = 'begin' AND NOT EXISTS (SELECT FROM job_executions AS e WHERE e.job_id = t.job AND e.fencing_token = t.token)`},
	{"a run is executed once", `
		SELECT t.job, format('token %s began %s times', t.token, count(*)) FROM evidence.traces AS t
		WHERE t.event = 'begin' GROUP BY t.job, t.token HAVING count(*) > 1`},
	{"a run is told by the worker that holds it", `
		SELECT t.job, format('token %s ran at worker %s and is told of %s', t.token, t.worker, e.worker_id)
		FROM evidence.traces AS t JOIN job_executions AS e ON e.job_id = t.job AND e.fencing_token = t.token
		WHERE e.worker_id IS DISTINCT FROM t.worker`},
	{"tokens rise in the order in which runs began", `
		SELECT x.job, format('token %s began after token %s', x.token, x.before)
		FROM (SELECT t.*, max(t.token) OVER (PARTITION BY t.job ORDER BY t.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
		  FROM evidence.traces AS t WHERE t.event = 'begin') AS x
		JOIN job_executions AS e ON e.job_id = x.job AND e.fencing_token = x.token
		WHERE x.token < x.before AND e.outcome <> 6`},
	{"an effect in the handler's transaction happens exactly once", `
		SELECT j.id, format('%s of type %s is %s with %s effects', j.ref, j.type, j.state, count(f.job_id))
		FROM evidence.jobs AS j LEFT JOIN chaos.effects AS f ON f.job_id = j.id WHERE j.type IN ('tx', 'once')
		GROUP BY j.id, j.ref, j.type, j.state HAVING count(f.job_id) <> (j.state = 'completed')::int`},
	{"an effect under CompleteTx is that of the completed run", `
		SELECT j.id, format('effect of token %s, completed by %s', f.fencing_token, e.fencing_token)
		FROM evidence.jobs AS j JOIN chaos.effects AS f ON f.job_id = j.id JOIN job_executions AS e ON e.job_id = j.id AND e.outcome = 1
		WHERE j.type = 'tx' AND f.fencing_token <> e.fencing_token`},
	{"a completed run did what it says", `
		SELECT e.job_id, format('token %s is completed, and its handler left no trace of success', e.fencing_token)
		FROM job_executions AS e JOIN evidence.jobs AS j ON j.id = e.job_id
		WHERE e.outcome = 1 AND NOT EXISTS (SELECT FROM evidence.traces AS t WHERE t.job = e.job_id AND t.token = e.fencing_token
		  AND (t.event = 'end' AND t.err = '' OR j.type = 'tx' AND t.event = 'begin'))`},
	{"outside effects have one key per job", `
		SELECT t.job, format('keys %s', array_agg(DISTINCT t.key)) FROM evidence.traces AS t GROUP BY t.job HAVING count(DISTINCT t.key) > 1`},
	{"no run before its time", `
		SELECT x.id, format('%s: claimed at %s, due at %s', x.ref, x.claimed_at, x.due) FROM (
		  SELECT j.id, j.ref, e.claimed_at, j.created_at + make_interval(secs => w.after_ms / 1000.0) AS due
		  FROM evidence.jobs AS j JOIN evidence.wanted AS w ON w.ref = j.ref AND w.after_ms > 0
		  JOIN job_executions AS e ON e.job_id = j.id AND e.claimed_at IS NOT NULL) AS x
		WHERE x.claimed_at < x.due
		UNION ALL
		SELECT j.id, format('%s snoozed until %s completed a run of %s', j.ref, to_timestamp((q.payload->>'until')::bigint / 1000.0), e.started_at)
		FROM evidence.jobs AS j JOIN jobs AS q ON q.id = j.id JOIN job_executions AS e ON e.job_id = j.id AND e.outcome = 1
		WHERE j.type = 'snooze' AND e.finished_at < to_timestamp((q.payload->>'until')::bigint / 1000.0)
		UNION ALL
		SELECT l.job_id, format('due at %s, taken out of the schedule at %s', l.detail, l.at) FROM moves.log AS l
		WHERE l.op = 'delete' AND l.place IN ('scheduled', 'failed') AND l.at < l.detail::timestamptz
		  AND EXISTS (SELECT FROM moves.log AS r WHERE r.txid = l.txid AND r.job_id = l.job_id AND r.place = 'ready' AND r.op = 'insert')`},
	{"a backoff is within its range", `
		SELECT x.job_id, format('delay %s after attempt %s', x.delay, x.attempt) FROM (` + delays + `) AS x
		WHERE x.delay < 0 OR x.delay > x.most + 0.001`},
	{"backoffs are spread over their range", `
		SELECT NULL::uuid, format('%s delays: %s %% in the lower quarter, %s %% in the upper', y.n, y.low, y.high) FROM (
		  SELECT count(*) AS n, round(100.0 * count(*) FILTER (WHERE x.delay < x.most / 4) / count(*)) AS low,
		    round(100.0 * count(*) FILTER (WHERE x.delay > x.most * 3 / 4) / count(*)) AS high FROM (` + delays + `) AS x) AS y
		WHERE y.n > 400 AND (y.low NOT BETWEEN 17 AND 33 OR y.high NOT BETWEEN 17 AND 33)`},
	{"counters equal history", `
		SELECT NULL::uuid, format('%s, outcome %s: %s counted, %s executions', coalesce(c.type, h.type), coalesce(c.outcome, h.outcome), coalesce(c.n, 0), coalesce(h.n, 0))
		FROM (SELECT u.type, u.outcome, sum(u.n) AS n FROM (
		    SELECT m.type, m.outcome, m.n FROM job_stats_minutes AS m UNION ALL SELECT d.type, d.outcome, d.n FROM job_stats_deltas AS d) AS u
		  GROUP BY 1, 2 HAVING sum(u.n) <> 0) AS c
		FULL JOIN (SELECT j.type, e.outcome, count(*) AS n FROM job_executions AS e JOIN evidence.jobs AS j ON j.id = e.job_id
		  WHERE e.worker_id IS NOT NULL GROUP BY 1, 2) AS h ON h.type = c.type AND h.outcome = c.outcome
		WHERE c.n IS DISTINCT FROM h.n AND coalesce(c.outcome, h.outcome) NOT IN (5, 8)`},
	{"nothing is left over", `
		SELECT NULL::uuid, format('%s rows in %s', x.n, x.name) FROM (
		  SELECT count(*) AS n, 'job_claims' AS name FROM job_claims UNION ALL SELECT count(*), 'job_ready' FROM job_ready
		  UNION ALL SELECT count(*), 'job_scheduled' FROM job_scheduled UNION ALL SELECT count(*), 'job_held' FROM job_held
		  UNION ALL SELECT count(*), 'pg_prepared_xacts' FROM pg_prepared_xacts) AS x WHERE x.n > 0`},
	{"connections and transactions are back to none", `
		SELECT NULL::uuid, format('%s of %s since %s: %s', a.state, a.application_name, a.state_change, left(a.query, 80)) FROM pg_stat_activity AS a
		WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
		  AND a.application_name <> 'judge'`},
}

// delays are the waits after failures: run_at less the end of the run, by one
// transaction's clock. The workers' policy is full jitter from 100 ms up to 1 s.
const delays = `
  SELECT f.job_id, e.attempt, extract(epoch FROM f.detail::timestamptz - e.finished_at) AS delay, least(1, 0.1 * power(2, e.attempt)) AS most
  FROM moves.log AS f JOIN moves.log AS x ON x.txid = f.txid AND x.job_id = f.job_id AND x.place = 'execution' AND x.op = 'insert'
  JOIN job_executions AS e ON e.job_id = x.job_id AND e.fencing_token = x.token
  WHERE f.place = 'failed' AND f.op = 'insert'`
