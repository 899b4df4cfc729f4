-- name: PinPlans :exec
-- For the rest of the transaction, the plans that the tests hold: with the values in view the planner sorts a whole lane
-- rather than walk 10,000 rows of it (390 ms instead of 15 at 600,000 jobs).
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true);

-- name: ExplainPlace :one
-- What a claim asks about one job, and what stands around it. free is the claim's own condition on a queue. 'epoch' stands
-- for none. The last act on the queue tells who paused it, if it is as young as the pause.
SELECT now()::timestamptz AS now,
  coalesce((SELECT q.free FROM queues AS q WHERE q.name = @queue::text), true)::boolean AS free,
  coalesce(p.paused_at, 'epoch')::timestamptz AS paused_at, coalesce(p.paused_reason, '')::text AS paused_reason,
  coalesce(p.resume_at, 'epoch')::timestamptz AS resume_at,
  coalesce(a.action, '')::text AS last_act, coalesce(a.actor, '')::text AS last_actor, coalesce(a.at, 'epoch')::timestamptz AS last_act_at,
  (r.job_id IS NOT NULL)::boolean AS in_line, coalesce(r.seq, 0)::bigint AS seq, coalesce(r.ready_at, 'epoch')::timestamptz AS ready_at,
  (s.job_id IS NOT NULL)::boolean AS scheduled, coalesce(s.run_at, 'epoch')::timestamptz AS run_at,
  coalesce(h.held_at, 'epoch')::timestamptz AS held_at,
  coalesce((SELECT w.heartbeat_at FROM workers AS w WHERE w.id = @worker_id::bigint), 'epoch')::timestamptz AS heartbeat_at,
  EXISTS (SELECT 1 FROM leaders AS l WHERE l.role = 'maintenance' AND l.expires_at >= now()) AS led,
  coalesce((SELECT t.last_success_at FROM maintenance_tasks AS t WHERE t.task = 'reaper'), 'epoch')::timestamptz AS reaped_at
FROM (SELECT @job_id::uuid AS id) AS j
LEFT JOIN LATERAL (SELECT x.job_id, x.seq, x.ready_at FROM job_ready AS x WHERE x.job_id = j.id) AS r ON true
LEFT JOIN LATERAL (SELECT x.job_id, x.run_at FROM job_scheduled AS x WHERE x.job_id = j.id) AS s ON true
LEFT JOIN LATERAL (SELECT x.held_at FROM job_held AS x WHERE x.job_id = j.id) AS h ON true
LEFT JOIN LATERAL (SELECT x.paused_at, x.paused_reason, x.resume_at FROM queues AS x WHERE x.name = @queue::text) AS p ON true
LEFT JOIN LATERAL (SELECT x.action, x.actor, x.at FROM operator_actions AS x
  WHERE x.target_kind = 'queue' AND x.target = @queue::text AND x.action IN ('pause', 'resume') ORDER BY x.id DESC LIMIT 1) AS a ON true;

-- name: ListClaimers :many
-- Who may claim: workers that live by their own lease, whether they serve a queue and know a type, and, of those that do
-- both, what their leases hold: suspects of one lease share a slot. A run of a lease goes on unless it is closed; the check is a scalar subquery, since an
-- anti-join planned while job_executions is small reads that table whole.
WITH w AS MATERIALIZED (
  SELECT x.id, x.name, x.queues, x.types, x.slots, x.stuck, x.state, x.started_at,
    (cardinality(x.queues) = 0 OR '*' = ANY(x.queues) OR @queue::text = ANY(x.queues)) AS serves, @type::text = ANY(x.types) AS knows
  FROM workers AS x
  WHERE x.state <> 'stopped' AND x.slots > 0 AND x.heartbeat_at >= now() - make_interval(secs => x.lease_ms / 1000.0)
  ORDER BY x.id LIMIT @max_rows::int),
held AS (
  SELECT u.worker_id, count(*) FILTER (WHERE u.crashes = 0) + count(DISTINCT u.token) FILTER (WHERE u.crashes > 0) AS n, count(*) FILTER (WHERE u.crashes > 0) AS suspects, max(u.claimed_at) AS last_at,
    min(u.claimed_at) AS first_at, (array_agg(u.job_id ORDER BY u.claimed_at, u.job_id))[1] AS first_job
  FROM (SELECT k.id AS token, k.worker_id, k.claimed_at, unnest(k.job_ids) AS job_id, unnest(k.crashes) AS crashes FROM job_claims AS k
    WHERE k.worker_id = ANY(ARRAY(SELECT w.id FROM w WHERE w.serves AND w.knows AND w.state = 'running'))) AS u
  WHERE (SELECT e.outcome FROM job_executions AS e WHERE e.job_id = u.job_id AND e.fencing_token = u.token) IS NULL
  GROUP BY u.worker_id)
SELECT w.id, w.name, w.queues, w.types, w.slots, w.stuck, w.state, w.started_at, w.serves::boolean AS serves, w.knows::boolean AS knows,
  coalesce(held.n, 0)::bigint AS running, coalesce(held.suspects, 0)::bigint AS suspects,
  coalesce(held.last_at, 'epoch')::timestamptz AS last_claim_at, coalesce(held.first_at, 'epoch')::timestamptz AS longest_at,
  coalesce(held.first_job, '00000000-0000-0000-0000-000000000000')::uuid AS longest_job
FROM w LEFT JOIN held ON held.worker_id = w.id ORDER BY w.id;

-- name: CountAhead :one
-- Who stands before a job of its queue, lane by lane as ClaimJobs walks them: of the first scan_max rows, those that a claim
-- would take first. The lanes are an array, whose length the planner knows: of a series it expects 1,000 and compiles the plan.
SELECT count(*) FILTER (WHERE a.crashes = 0 AND a.type || '' = ANY(@types::text[]))::bigint AS n, count(*)::bigint AS seen
FROM (
  SELECT y.crashes, y.type FROM (SELECT unnest('{5,4,3,2,1,0}'::smallint[]) AS priority) AS lane CROSS JOIN LATERAL (
    SELECT r.crashes, r.type FROM job_ready AS r WHERE r.queue = @queue::text AND r.priority = lane.priority
      AND lane.priority >= @priority::smallint AND r.seq < CASE WHEN lane.priority = @priority::smallint THEN @seq::bigint ELSE 9223372036854775807 END
    ORDER BY r.seq LIMIT @scan_max::int) AS y
  LIMIT @scan_max::int) AS a;

-- name: CountSuspectsAhead :one
-- Suspects before one, as ClaimSuspects finds them: a few a claim, from the first of the worker's queues that has any. queues are
-- those, in that order, up to the job's own.
SELECT count(*)::bigint AS n FROM (
  SELECT y.seq FROM (SELECT unnest(@queues::text[]) AS queue) AS lane CROSS JOIN LATERAL (
    SELECT r.seq FROM job_ready AS r WHERE r.queue = lane.queue AND r.crashes > 0 AND r.type || '' = ANY(@types::text[])
      AND (r.queue <> @queue::text OR (5 - r.priority, r.seq) < (5 - @priority::smallint, @seq::bigint))
    LIMIT @count_cap::int) AS y
  WHERE coalesce((SELECT q.free FROM queues AS q WHERE q.name = lane.queue), true)
  LIMIT @count_cap::int) AS c;

-- name: CountRecentRuns :one
-- Runs of a queue that ended within some minutes, and how many seconds those are. From the rollup and what is not folded into
-- it yet. Hand-backs, cancellations and expiries took no slot.
SELECT coalesce(sum(t.n), 0)::bigint AS n, extract(epoch FROM now() - date_trunc('minute', now() - make_interval(mins => @minutes::int)))::float8 AS seconds
FROM (
  SELECT m.minute AS at, m.n FROM job_stats_minutes AS m
  WHERE m.minute >= date_trunc('minute', now() - make_interval(mins => @minutes::int)) AND m.queue = @queue::text AND m.outcome NOT IN (4, 5, 8)
  UNION ALL
  SELECT d.at, d.n::bigint FROM (SELECT x.at, x.n, x.queue, x.outcome FROM job_stats_deltas AS x LIMIT @scan_max::int) AS d
  WHERE d.at >= date_trunc('minute', now() - make_interval(mins => @minutes::int)) AND d.queue = @queue::text AND d.outcome NOT IN (4, 5, 8)) AS t;
