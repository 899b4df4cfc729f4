-- The rules of engine/verify. Each question answers who broke which rule, at most @most rows a rule. They read one snapshot,
-- so that what one transaction wrote is seen whole or not at all. Joins over whole tables are left to hashes: no lock, no
-- look-up a row. margin forgives that an instant is when its transaction began, not when it committed.

-- name: VerifyRuns :many
-- One walk over the executions in the order of their key, each beside the run before it of the same job. faults is a set of
-- bits, so that the sentences are made for the few that broke a rule.
WITH run AS (
  SELECT e.job_id, e.fencing_token, e.claimed_at, e.started_at, e.finished_at, e.wait_ms, e.attempt, e.outcome,
    lag(e.fencing_token) OVER w AS prev_token, lag(e.outcome) OVER w AS prev_outcome, lag(e.finished_at) OVER w AS prev_finished,
    -- What the job took along from the run before: see storage.md, section 3.
    lag(CASE WHEN e.outcome IN (2, 9) OR e.claimed_at IS NULL THEN e.attempt ELSE e.attempt - 1 END) OVER w AS carried
  FROM job_executions AS e WINDOW w AS (PARTITION BY e.job_id ORDER BY e.fencing_token)),
judged AS (
  SELECT run.*, j.max_attempts, j.scheduled_at, j.expires_at, coalesce(j.replays, 0) AS replays,
    ( (j.id IS NULL)::int
    + (coalesce(run.prev_token = run.fencing_token, false))::int * 2
    + (coalesce(run.prev_outcome IN (1, 5) OR (run.prev_outcome = 8 AND j.replays IS NULL), false))::int * 4
    + (coalesce(coalesce(run.claimed_at, run.finished_at) < run.prev_finished - make_interval(secs => @margin::float8), false))::int * 8
    + (coalesce(run.started_at - make_interval(secs => run.wait_ms / 1000.0) < run.prev_finished - make_interval(secs => @margin::float8), false))::int * 16
    + (j.id IS NOT NULL AND run.attempt - (run.claimed_at IS NOT NULL)::int <> coalesce(run.carried, 0)
       AND NOT (run.attempt = (run.claimed_at IS NOT NULL)::int AND j.replays > 0 AND coalesce(run.prev_outcome IN (2, 6, 7, 8, 9), false)))::int * 32
    + (coalesce(run.claimed_at IS NOT NULL AND j.version = 1 AND run.attempt > j.max_attempts, false))::int * 64
    + (coalesce(run.prev_token IS NULL AND j.version = 1 AND run.claimed_at < j.scheduled_at - make_interval(secs => @margin::float8), false))::int * 128
    + ((run.finished_at > now() + make_interval(secs => @margin::float8))
       OR coalesce(run.started_at < run.claimed_at - make_interval(secs => @margin::float8), false)
       OR coalesce(run.started_at > run.finished_at + make_interval(secs => @margin::float8), false)
       OR (run.outcome IN (1, 9) AND run.started_at IS NULL))::int * 256
    + (run.fencing_token > @last_token::bigint)::int * 512
    + (run.outcome = 8 AND j.id IS NOT NULL AND j.replays IS NULL
       AND coalesce(j.expires_at > run.finished_at + make_interval(secs => @margin::float8), true))::int * 1024
    ) AS faults
  FROM run LEFT JOIN jobs AS j ON j.id = run.job_id),
bad AS MATERIALIZED (SELECT judged.* FROM judged WHERE judged.faults <> 0),
named AS (
  SELECT f.rule, bad.job_id, bad.fencing_token, f.detail, row_number() OVER (PARTITION BY f.rule ORDER BY bad.fencing_token DESC) AS n
  FROM bad CROSS JOIN LATERAL (
    SELECT 'no_orphans'::text AS rule, 'an execution of a job that does not exist'::text AS detail WHERE bad.faults & 1 <> 0
    UNION ALL SELECT 'run_closed_once', 'two executions of one token' WHERE bad.faults & 2 <> 0
    UNION ALL SELECT 'nothing_after_the_end', format('run after token %s, which had ended the job (outcome %s)', bad.prev_token, bad.prev_outcome)
      WHERE bad.faults & 4 <> 0
    UNION ALL SELECT 'claims_do_not_overlap', format('claimed at %s, token %s went on until %s', coalesce(bad.claimed_at, bad.finished_at),
      bad.prev_token, bad.prev_finished) WHERE bad.faults & 8 <> 0
    UNION ALL SELECT 'retry_after_the_failure', format('ready at %s, token %s ended at %s',
      bad.started_at - make_interval(secs => bad.wait_ms / 1000.0), bad.prev_token, bad.prev_finished) WHERE bad.faults & 16 <> 0
    UNION ALL SELECT 'attempts_add_up', format('attempt %s, %s were used before (token %s, outcome %s, %s replays)', bad.attempt, coalesce(bad.carried, 0),
      coalesce(bad.prev_token, 0), coalesce(bad.prev_outcome, 0), bad.replays) WHERE bad.faults & 32 <> 0
    UNION ALL SELECT 'attempts_within_limit', format('attempt %s of at most %s', bad.attempt, bad.max_attempts) WHERE bad.faults & 64 <> 0
    UNION ALL SELECT 'never_before_its_time', format('claimed at %s, scheduled for %s', bad.claimed_at, bad.scheduled_at)
      WHERE bad.faults & 128 <> 0 AND NOT EXISTS (
        SELECT 1 FROM operator_actions AS a WHERE a.target_kind = 'job' AND a.target = bad.job_id::text AND a.action NOT IN ('cancel', 'replay', 'discard', 'restore', 'stop', 'revoke', 'reveal'))
        AND NOT EXISTS (SELECT 1 FROM operator_action_head AS h WHERE h.removed_until >= bad.claimed_at)
    UNION ALL SELECT 'run_instants_in_order', format('claimed %s, started %s, finished %s', bad.claimed_at, bad.started_at, bad.finished_at)
      WHERE bad.faults & 256 <> 0
    UNION ALL SELECT 'tokens_rise', format('the newest token given out is %s', @last_token::bigint) WHERE bad.faults & 512 <> 0
    UNION ALL SELECT 'ends_are_explained', format('expired at %s, expires_at is %s', bad.finished_at, coalesce(bad.expires_at::text, 'not set'))
      WHERE bad.faults & 1024 <> 0) AS f)
SELECT named.rule::text AS rule, named.job_id::text AS subject, named.fencing_token::bigint AS token, named.detail::text AS detail
FROM named WHERE named.n <= @most::int ORDER BY named.rule, named.n;

-- name: LastToken :one
-- Asked after the snapshot was taken, since a sequence stands outside of it: no token in it can be higher.
SELECT coalesce(pg_sequence_last_value('job_claims_id_seq'::regclass), 0)::bigint AS token;

-- name: VerifyPlaces :many
-- Every job stands in one place, or is closed by its last execution; and where it stands agrees with how its last run ended.
-- version 1 is a job that nobody gave new content: limits and instants of others are not those that its runs had.
WITH claimed AS (
  SELECT c.id AS token, unnest(c.job_ids) AS job_id, unnest(c.attempts) AS attempt, unnest(c.crashes) AS crashes FROM job_claims AS c),
open_run AS MATERIALIZED (
  SELECT k.token, k.job_id, k.attempt, k.crashes FROM claimed AS k
  WHERE NOT EXISTS (SELECT 1 FROM job_executions AS e WHERE e.job_id = k.job_id AND e.fencing_token = k.token)),
place AS MATERIALIZED (
  SELECT 'ready'::text AS place, r.job_id, r.attempt, r.crashes, NULL::bigint AS token, NULL::text AS reason, r.ready_at AS due FROM job_ready AS r
  UNION ALL SELECT CASE WHEN s.failed THEN 'failed' ELSE 'scheduled' END, s.job_id, s.attempt, s.crashes, NULL, NULL, s.run_at FROM job_scheduled AS s
  UNION ALL SELECT 'held', h.job_id, h.attempt, h.crashes, NULL, h.reason, NULL FROM job_held AS h
  UNION ALL SELECT 'dead_letter', d.job_id, d.attempt, d.crashes, d.fencing_token, d.reason, NULL FROM dead_letter_jobs AS d
  UNION ALL SELECT 'leased', o.job_id, o.attempt, o.crashes, o.token, NULL, NULL FROM open_run AS o),
last_run AS (
  SELECT DISTINCT ON (e.job_id) e.job_id, e.fencing_token, e.outcome, e.finished_at,
    CASE WHEN e.outcome IN (2, 9) OR e.claimed_at IS NULL THEN e.attempt ELSE e.attempt - 1 END AS carried
  FROM job_executions AS e WHERE e.job_id IN (SELECT p.job_id FROM place AS p) ORDER BY e.job_id, e.fencing_token DESC),
standing AS MATERIALIZED (
  SELECT p.*, j.id AS known, j.max_attempts, j.version, coalesce(j.replays, 0) AS replays, l.fencing_token AS last_token, l.outcome,
    l.finished_at, l.carried
  FROM place AS p LEFT JOIN jobs AS j ON j.id = p.job_id LEFT JOIN last_run AS l ON l.job_id = p.job_id),
bad AS (
  SELECT 'one_place'::text AS rule, p.job_id, max(p.token) AS token, 'stands in ' || string_agg(p.place, ' and ' ORDER BY p.place) AS detail
  FROM place AS p GROUP BY p.job_id HAVING count(*) > 1
  UNION ALL
  SELECT 'one_place', j.id, NULL, 'stands nowhere, and no run has ended it' FROM jobs AS j
  WHERE NOT EXISTS (SELECT 1 FROM place AS p WHERE p.job_id = j.id)
    AND NOT EXISTS (SELECT 1 FROM job_executions AS e WHERE e.job_id = j.id AND e.outcome IN (1, 5))
  UNION ALL
  SELECT 'no_orphans', s.job_id, s.token, s.place || ' holds a job that does not exist' FROM standing AS s WHERE s.known IS NULL
  UNION ALL
  SELECT 'nothing_after_the_end', s.job_id, s.last_token, format('stands in %s, its last run ended it (outcome %s)', s.place, s.outcome)
  FROM standing AS s WHERE s.outcome IN (1, 5)
  UNION ALL
  SELECT 'tokens_rise', s.job_id, s.token, format('leased under this token, closed under %s', s.last_token)
  FROM standing AS s WHERE s.place = 'leased' AND s.last_token >= s.token
  UNION ALL
  SELECT 'states_as_designed', s.job_id, coalesce(s.token, s.last_token), format('stands in %s%s after outcome %s under token %s, %s replays',
    s.place, coalesce(' for ' || s.reason, ''), coalesce(s.outcome, 0), coalesce(s.last_token, 0), s.replays)
  FROM standing AS s WHERE s.known IS NOT NULL AND NOT coalesce(s.outcome IN (1, 5), false) AND NOT CASE s.place
    WHEN 'dead_letter' THEN coalesce(s.token = s.last_token AND (
      (s.reason = 'exhausted' AND s.outcome IN (2, 9)) OR (s.reason = 'permanent' AND s.outcome IN (2, 9))
      OR (s.reason = 'poison' AND s.outcome IN (6, 7)) OR (s.reason = 'expired' AND s.outcome = 8)), false)
    WHEN 'failed' THEN coalesce(s.outcome IN (2, 9), false)
    WHEN 'scheduled' THEN s.outcome IS NULL OR s.outcome NOT IN (2, 8, 9) OR s.replays > 0 OR s.version > 1
    ELSE s.outcome IS NULL OR s.outcome <> 8 OR s.replays > 0 END
  UNION ALL
  SELECT 'attempts_add_up', s.job_id, coalesce(s.token, s.last_token), format('%s carries attempt %s, its runs leave %s', s.place, s.attempt, coalesce(s.carried, 0))
  FROM standing AS s WHERE s.known IS NOT NULL AND NOT coalesce(s.outcome IN (1, 5), false) AND s.attempt <> coalesce(s.carried, 0)
    AND NOT (s.attempt = 0 AND s.replays > 0 AND s.place <> 'dead_letter' AND s.outcome IN (2, 6, 7, 8, 9))
  UNION ALL
  SELECT 'attempts_within_limit', s.job_id, s.token, format('%s with %s of %s attempts used', s.place, s.attempt, s.max_attempts)
  FROM standing AS s WHERE s.version = 1 AND (s.attempt > s.max_attempts OR (s.place <> 'dead_letter' AND s.attempt = s.max_attempts))
  UNION ALL
  SELECT 'crashes_add_up', s.job_id, coalesce(s.token, s.last_token), format('%s carries %s crashes after %s lost runs', s.place, s.crashes, x.lost)
  FROM standing AS s CROSS JOIN LATERAL (
    -- Since the job last ended a run by itself; hand-backs change nothing.
    SELECT count(*) FILTER (WHERE e.outcome IN (6, 7)) AS lost FROM job_executions AS e
    WHERE e.job_id = s.job_id AND e.fencing_token > coalesce((
      SELECT max(o.fencing_token) FROM job_executions AS o WHERE o.job_id = s.job_id AND o.outcome IN (2, 3, 9)), 0)) AS x
  WHERE s.crashes > 0 AND (s.crashes > x.lost OR s.crashes > 10 OR (s.crashes > 9 AND s.place <> 'dead_letter'))
  UNION ALL
  SELECT 'never_before_its_time', s.job_id, s.token, format('stands in line since %s, which is ahead', s.due)
  FROM standing AS s WHERE s.place = 'ready' AND s.due > now() + make_interval(secs => @margin::float8)
  UNION ALL
  SELECT 'retry_after_the_failure', s.job_id, s.last_token, format('due at %s, its run failed at %s', s.due, s.finished_at)
  FROM standing AS s WHERE s.place = 'failed' AND s.outcome IN (2, 9) AND s.version = 1
    AND (s.due < s.finished_at - make_interval(secs => @margin::float8) OR s.due > s.finished_at + make_interval(secs => @max_delay::float8))),
counted AS (SELECT bad.*, row_number() OVER (PARTITION BY bad.rule ORDER BY bad.job_id DESC) AS n FROM bad)
SELECT counted.rule::text AS rule, counted.job_id::text AS subject, coalesce(counted.token, 0)::bigint AS token, counted.detail::text AS detail
FROM counted WHERE counted.n <= @most::int ORDER BY counted.rule, counted.n;

-- name: VerifyLeases :many
-- A lease ends when it is reaped, and while somebody leads that is soon. A new leader, or a server that has just started, is
-- given as much time as an old one: from then on.
WITH upkeep AS (
  SELECT greatest(max(l.acquired_at), pg_postmaster_start_time()) + make_interval(secs => @grace::float8) AS since
  FROM leaders AS l WHERE l.role = 'maintenance' AND l.expires_at > now()),
lease AS (
  SELECT c.id, c.worker_id, c.claimed_at, c.lease_expires_at, x.runs, x.closed, x.last_closed, cardinality(c.job_ids) AS jobs
  FROM job_claims AS c CROSS JOIN LATERAL (
    SELECT count(DISTINCT u.job_id) AS runs, count(e.job_id) AS closed, max(e.finished_at) AS last_closed
    FROM (SELECT unnest(c.job_ids) AS job_id) AS u LEFT JOIN job_executions AS e ON e.job_id = u.job_id AND e.fencing_token = c.id) AS x),
bad AS (
  SELECT 'leases_end' AS rule, l.id, format('%s of %s jobs open, lease of worker %s ended at %s and was not reaped', l.runs - l.closed, l.runs,
    l.worker_id, l.lease_expires_at) AS detail
  FROM lease AS l CROSS JOIN upkeep AS u
  WHERE l.lease_expires_at < now() - make_interval(secs => @grace::float8) AND u.since < now()
  UNION ALL
  SELECT 'leases_hold_open_jobs', l.id, format('its last job was closed at %s', l.last_closed)
  FROM lease AS l CROSS JOIN upkeep AS u
  WHERE l.closed >= l.runs AND l.last_closed < now() - make_interval(secs => @grace::float8) AND u.since < now()
    AND l.lease_expires_at < now() - make_interval(secs => @grace::float8)
  UNION ALL
  SELECT 'leases_hold_open_jobs', l.id, format('it names %s jobs, some of them twice', l.jobs) FROM lease AS l WHERE l.runs <> l.jobs
  UNION ALL
  SELECT 'leases_hold_open_jobs', v.fencing_token, format('progress of job %s, last told at %s, has no run', v.job_id, v.updated_at)
  FROM job_live AS v CROSS JOIN upkeep AS u
  WHERE v.updated_at < now() - make_interval(secs => 60 + @grace::float8) AND u.since < now() - interval '1 min'
    AND (NOT EXISTS (SELECT 1 FROM job_claims AS c WHERE c.id = v.fencing_token)
      OR EXISTS (SELECT 1 FROM job_executions AS e WHERE e.job_id = v.job_id AND e.fencing_token = v.fencing_token))
  UNION ALL
  SELECT 'leases_hold_open_jobs', q.fencing_token, format('%s asked job %s to stop at %s; its run ended at %s', q.actor, q.job_id, q.requested_at, e.finished_at)
  FROM job_stop_requests AS q CROSS JOIN upkeep AS u JOIN job_executions AS e ON e.job_id = q.job_id AND e.fencing_token = q.fencing_token
  WHERE e.finished_at < now() - make_interval(secs => 60 + @grace::float8) AND q.requested_at < now() - make_interval(secs => 60 + @grace::float8)
    AND u.since < now() - interval '1 min')
SELECT bad.rule::text AS rule, ('lease ' || bad.id)::text AS subject, bad.id::bigint AS token, bad.detail::text AS detail
FROM bad ORDER BY bad.id DESC LIMIT @most::int;

-- name: VerifyActs :many
-- What only an operator does has its row in the trail, or that of the operation which acted on it. Another act on many is
-- one row, whose target is not a job: with one of them in the trail a job's own row is not asked for. What was done before
-- retention's last removed act may have lost its row by right.
WITH head AS MATERIALIZED (SELECT coalesce(max(h.removed_until), '-infinity') AS until FROM operator_action_head AS h),
bulk AS (
  SELECT DISTINCT a.action FROM operator_actions AS a WHERE a.target_kind <> 'job' AND a.action IN ('replay', 'cancel', 'stop', 'discard')),
act AS MATERIALIZED (
  SELECT x.target, x.action, count(*) AS n FROM (
    SELECT a.target, a.action FROM operator_actions AS a
    WHERE a.target_kind = 'job' AND a.action IN ('replay', 'cancel', 'stop', 'revoke', 'discard')
    UNION ALL
    SELECT o.job_id::text, p.action FROM operations AS p JOIN operation_jobs AS o ON o.operation_id = p.id AND o.acted_at IS NOT NULL
    WHERE EXISTS (SELECT 1 FROM operator_actions AS a WHERE a.target_kind = 'operation' AND a.target = p.id::text AND a.action = 'operation ' || p.action)) AS x
  GROUP BY x.target, x.action),
bad AS (
  SELECT j.id::text AS subject, NULL::bigint AS token,
    format('replayed %s times, %s of them are in the trail', j.replays, coalesce(act.n, 0)) AS detail
  FROM jobs AS j CROSS JOIN head LEFT JOIN act ON act.target = j.id::text AND act.action = 'replay'
  WHERE j.replays > coalesce(act.n, 0) AND j.created_at > head.until AND NOT EXISTS (SELECT 1 FROM bulk WHERE bulk.action = 'replay')
  UNION ALL
  SELECT e.job_id::text, e.fencing_token, format('cancelled at %s, by nobody in the trail', e.finished_at)
  FROM job_executions AS e CROSS JOIN head
  WHERE e.outcome = 5 AND e.finished_at > head.until AND NOT EXISTS (SELECT 1 FROM act WHERE act.target = e.job_id::text AND act.action IN ('cancel', 'stop', 'revoke'))
    AND NOT EXISTS (SELECT 1 FROM bulk WHERE bulk.action IN ('cancel', 'stop'))
  UNION ALL
  SELECT d.job_id::text, d.fencing_token, format('discarded at %s, by nobody in the trail', d.discarded_at)
  FROM dead_letter_jobs AS d CROSS JOIN head
  WHERE d.discarded_at <> d.died_at AND d.discarded_at > head.until AND NOT EXISTS (SELECT 1 FROM act WHERE act.target = d.job_id::text AND act.action = 'discard')
    AND NOT EXISTS (SELECT 1 FROM bulk WHERE bulk.action = 'discard'))
SELECT 'acts_are_recorded'::text AS rule, bad.subject::text AS subject, coalesce(bad.token, 0)::bigint AS token, bad.detail::text AS detail
FROM bad ORDER BY bad.subject DESC LIMIT @most::int;

-- name: VerifyTrail :many
-- The trail is a chain from the act after the last removed one, by default the first, to the act that its head names. The
-- first broken act comes first.
WITH head AS (SELECT h.id, h.hash, h.removed_id, h.removed_hash FROM operator_action_head AS h),
chain AS (
  SELECT a.id, a.previous_hash, lag(a.id) OVER w AS prev_id, lag(a.hash) OVER w AS prev_hash, a.hash,
    operator_action_hash(a.previous_hash, a.id, a.at, a.actor, a.source, a.action, a.target_kind, a.target, a.reason, a.before, a.after,
      a.affected, a.request_id, a.address) AS computed
  FROM operator_actions AS a WINDOW w AS (ORDER BY a.id)),
bad AS (
  SELECT c.id, CASE
    WHEN c.hash <> c.computed THEN 'its content is not what was hashed'
    WHEN c.id > head.id THEN format('the trail ends with act %s by its head: this one was added beside it', head.id)
    WHEN c.id <> coalesce(c.prev_id, head.removed_id) + 1 THEN CASE
      WHEN c.id = coalesce(c.prev_id, head.removed_id) + 2 THEN format('act %s before it is missing', c.id - 1)
      ELSE format('acts %s to %s before it are missing', coalesce(c.prev_id, head.removed_id) + 1, c.id - 1) END
    WHEN c.previous_hash <> coalesce(c.prev_hash, head.removed_hash) THEN format('it was not made after act %s as that stands now', c.id - 1)
    WHEN c.id = head.id AND c.hash <> head.hash THEN 'it is the last, and not the one that the head names' END AS detail
  FROM chain AS c CROSS JOIN head
  UNION ALL
  SELECT coalesce((SELECT max(a.id) FROM operator_actions AS a), head.removed_id) + 1, format('the trail ends before act %s, which its head names', head.id)
  FROM head WHERE head.id > coalesce((SELECT max(a.id) FROM operator_actions AS a), head.removed_id)
  UNION ALL
  SELECT 0, 'the trail has no head' WHERE NOT EXISTS (SELECT 1 FROM head))
SELECT 'trail_is_whole'::text AS rule, ('act ' || bad.id)::text AS subject, 0::bigint AS token, bad.detail::text AS detail
FROM bad WHERE bad.detail IS NOT NULL ORDER BY bad.id LIMIT @most::int;

-- name: TrailEnd :one
-- The last act by the head, for whoever keeps its hash elsewhere.
SELECT h.id, h.hash, h.removed_id, (SELECT count(*) FROM operator_actions AS a)::bigint AS acts FROM operator_action_head AS h;

-- name: TrailHash :one
SELECT a.hash FROM operator_actions AS a WHERE a.id = @id;

-- name: VerifyKeys :many
-- The answer to an acknowledged enqueue names a job. What is older than the retention may have been removed.
SELECT 'acknowledged_exists'::text AS rule, k.job_id::text AS subject, 0::bigint AS token,
  format('the enqueue under key %s was answered with this job at %s; it is not there', quote_literal(k.key), k.created_at)::text AS detail
FROM idempotency_keys AS k
WHERE k.scope = 'enqueue' AND k.job_id IS NOT NULL
  -- When it was made stands in its id. A job that held a unique key may have been old when it was the answer.
  AND ('x' || left(replace(k.job_id::text, '-', ''), 12))::bit(48)::bigint > extract(epoch FROM now() - make_interval(secs => @retention::float8)) * 1000
  AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = k.job_id)
ORDER BY k.created_at DESC LIMIT @most::int;

-- name: VerifyUniqueKeys :many
-- A unique key is held by one living job, which its row names. A job that holds it only while it waits has left it with its
-- first run, and may come back to wait beside another's; the dead are not looked at, since a discarded one has let go.
WITH holder AS MATERIALIZED (
  SELECT j.id, j.unique_key FROM jobs AS j CROSS JOIN LATERAL (
    SELECT v.state, v.last_outcome FROM job_states AS v WHERE v.id = j.id OFFSET 0) AS s
  WHERE j.unique_key IS NOT NULL AND ((j.unique_through >= 2 AND s.state IN ('pending', 'failed', 'leased'))
    OR (s.state = 'pending' AND s.last_outcome IS NULL))),
bad AS (
  SELECT min(h.id::text) AS subject, format('jobs %s hold one unique key', string_agg(h.id::text, ' and ' ORDER BY h.id)) AS detail
  FROM holder AS h GROUP BY h.unique_key HAVING count(*) > 1
  UNION ALL
  SELECT h.id::text, coalesce('its unique key is held by job ' || k.job_id, 'its unique key is held by nobody')
  FROM holder AS h LEFT JOIN job_unique_keys AS k ON k.key = h.unique_key WHERE k.job_id IS DISTINCT FROM h.id)
SELECT 'unique_keys_held_once'::text AS rule, bad.subject::text AS subject, 0::bigint AS token, bad.detail::text AS detail
FROM bad ORDER BY bad.subject DESC LIMIT @most::int;

-- name: VerifyCounters :many
-- A run and its count are written in one transaction, by complete_job and CompleteTx too, so they agree in any snapshot. Fewer
-- counts than runs are looked for where every end is counted: not among hand-backs, cancellations and expiries. More counts than runs stay behind when a worker dies between a write that was refused and the correction: each refused
-- write, lost run and lost worker is allowed for.
WITH bounds AS (
  SELECT date_trunc('minute', now() - make_interval(secs => @seconds::float8)) AS since),
counted AS (
  SELECT c.type, c.outcome, sum(c.n) AS n FROM (
    SELECT m.type, m.outcome, m.n FROM job_stats_minutes AS m CROSS JOIN bounds AS b WHERE m.minute >= b.since
    UNION ALL SELECT d.type, d.outcome, d.n FROM job_stats_deltas AS d CROSS JOIN bounds AS b WHERE d.at >= b.since) AS c
  GROUP BY c.type, c.outcome),
ran AS (
  SELECT j.type, e.outcome, count(*) FILTER (WHERE e.finished_at >= b.since AND e.claimed_at IS NOT NULL) AS n, count(*) AS within
  FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id CROSS JOIN bounds AS b
  WHERE e.finished_at >= b.since - interval '1 hour' GROUP BY j.type, e.outcome),
slack AS (
  SELECT (SELECT count(*) FROM refused_writes AS r, bounds AS b WHERE r.at >= b.since)
    + (SELECT coalesce(sum(ran.within), 0) FROM ran WHERE ran.outcome IN (4, 5, 6))
    + (SELECT 2000 * count(*) FROM workers AS w WHERE w.state <> 'stopped' AND w.heartbeat_at < now() - make_interval(secs => 2 * w.lease_ms / 1000.0)) AS n)
SELECT 'counters_equal_history'::text AS rule, ('type ' || coalesce(c.type, r.type))::text AS subject, 0::bigint AS token,
  format('outcome %s: counted %s, ran %s since %s', coalesce(c.outcome, r.outcome), coalesce(c.n, 0), coalesce(r.n, 0), b.since)::text AS detail
FROM counted AS c FULL JOIN ran AS r ON r.type = c.type AND r.outcome = c.outcome CROSS JOIN bounds AS b CROSS JOIN slack AS s
WHERE (coalesce(c.outcome, r.outcome) IN (1, 2, 3, 6, 7, 9) AND coalesce(c.n, 0) < coalesce(r.n, 0))
  OR coalesce(c.n, 0) > coalesce(r.within, 0) + s.n
ORDER BY 2 LIMIT @most::int;

-- name: IntegrityCheckDue :one
SELECT coalesce((SELECT max(c.checked_at) FROM integrity_checks AS c) <= now() - make_interval(secs => @every_seconds::float8), true)::boolean AS due;

-- name: StoreIntegrityCheck :exec
-- Those of the last month are kept.
WITH old AS (DELETE FROM integrity_checks AS c WHERE c.checked_at < now() - interval '30 days')
INSERT INTO integrity_checks (took_ms, verdict, rules, violated, unchecked, report)
VALUES (@took_ms, @verdict, @rules, @violated, @unchecked, @report);

-- name: LastIntegrityChecks :many
-- The newest check, and the newest that could look at every rule.
SELECT c.checked_at, c.took_ms, c.verdict, c.rules, c.violated, c.unchecked, extract(epoch FROM now() - c.checked_at)::float8 AS age_seconds,
  (c.verdict <> 'unchecked')::boolean AS complete
FROM integrity_checks AS c WHERE c.id IN ((SELECT max(l.id) FROM integrity_checks AS l),
  (SELECT max(w.id) FROM integrity_checks AS w WHERE w.verdict <> 'unchecked')) ORDER BY c.id DESC;
