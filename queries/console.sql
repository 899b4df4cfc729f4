-- name: ListReadyIDs :many
-- Ready jobs alone: the console tells them from scheduled and held ones.
SELECT r.job_id FROM job_ready AS r WHERE r.job_id < @before::uuid
  AND (sqlc.narg('type')::text IS NULL OR r.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR r.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('priority')::smallint IS NULL OR r.priority = sqlc.narg('priority')::smallint)
ORDER BY r.job_id DESC LIMIT @max_jobs::int;

-- name: ListScheduledIDs :many
SELECT s.job_id FROM job_scheduled AS s WHERE s.job_id < @before::uuid AND NOT s.failed
  AND (sqlc.narg('type')::text IS NULL OR s.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR s.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('priority')::smallint IS NULL OR s.priority = sqlc.narg('priority')::smallint)
ORDER BY s.job_id DESC LIMIT @max_jobs::int;

-- name: ListHeldIDs :many
SELECT h.job_id FROM job_held AS h WHERE h.job_id < @before::uuid
  AND (sqlc.narg('type')::text IS NULL OR h.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR h.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('priority')::smallint IS NULL OR h.priority = sqlc.narg('priority')::smallint)
ORDER BY h.job_id DESC LIMIT @max_jobs::int;

-- name: ListNextReadyIDs :many
-- The first in line of a queue, in the order in which they will be claimed: lane by lane, since an ORDER BY over both
-- columns sorts the whole first priority.
SELECT h.job_id FROM (SELECT generate_series(5, 0, -1)::smallint AS priority) AS lane CROSS JOIN LATERAL (
  SELECT r.job_id, r.seq FROM job_ready AS r WHERE r.queue = @queue::text AND r.priority = lane.priority ORDER BY r.seq LIMIT @max_jobs::int) AS h
ORDER BY lane.priority DESC, h.seq LIMIT @max_jobs::int;

-- name: CountClosed :many
-- Completed and cancelled jobs, each counted no further than count_cap. A job that completed or was cancelled has one run
-- with that outcome. Cancelled ones stand in the index of rare ends; completed ones are nearly all of the table, so its first
-- pages hold enough of them.
SELECT 1::smallint AS outcome,
  (SELECT count(*) FROM (SELECT 1 FROM job_executions AS e WHERE e.outcome = 1 LIMIT @count_cap::int) AS c)::bigint AS n
UNION ALL
SELECT 5::smallint,
  (SELECT count(*) FROM (SELECT 1 FROM job_executions AS e WHERE e.outcome = 5 LIMIT @count_cap::int) AS c)::bigint;

-- name: CountJobs :one
SELECT count(*) AS n FROM (SELECT 1 FROM jobs AS j LIMIT @count_cap::int) AS c;

-- name: CountEnqueued :one
-- Jobs whose id was made in a span of time. An id begins with its milliseconds, so that this is a range of the key; ids of
-- one span are few, and the cap bounds a flood.
SELECT count(*) AS n FROM (
  SELECT 1 FROM jobs AS j WHERE j.id >= @from_id::uuid AND j.id < @to_id::uuid LIMIT @count_cap::int) AS c;

-- name: ListFailureGroups :many
-- Failed runs since an instant by fingerprint, most first, from the newest scan_max runs that did not complete. The first
-- failure ever of a group is one step into the index of errors.
WITH f AS MATERIALIZED (
  SELECT e.finished_at, e.job_id, e.fingerprint, e.error_class, e.error FROM job_executions AS e
  WHERE e.outcome <> 1 AND e.finished_at > @since::timestamptz ORDER BY e.finished_at DESC LIMIT @scan_max::int),
g AS (
  SELECT f.fingerprint, count(*) AS n, count(*) FILTER (WHERE f.finished_at > @recent::timestamptz) AS recent,
    (array_agg(f.job_id ORDER BY f.finished_at DESC))[1] AS sample
  FROM f WHERE f.fingerprint IS NOT NULL GROUP BY f.fingerprint ORDER BY count(*) DESC, f.fingerprint LIMIT @max_groups::int)
SELECT g.fingerprint::text AS fingerprint, g.n::bigint AS n, g.recent::bigint AS recent, g.sample::uuid AS sample,
  coalesce(e.error_class, '')::text AS error_class, left(coalesce(e.error, ''), 300)::text AS error,
  coalesce(j.type, '')::text AS type, coalesce(j.queue, '')::text AS queue,
  coalesce((SELECT x.finished_at FROM job_executions AS x WHERE x.fingerprint = g.fingerprint ORDER BY x.finished_at LIMIT 1), now())::timestamptz
    AS first_at
FROM g
LEFT JOIN LATERAL (SELECT x.error_class, x.error FROM job_executions AS x WHERE x.fingerprint = g.fingerprint
  ORDER BY x.finished_at DESC LIMIT 1) AS e ON true
LEFT JOIN jobs AS j ON j.id = g.sample
ORDER BY g.n DESC, g.fingerprint;

-- name: CountRecentDeaths :one
-- Deaths since an instant and since a later one, and what the commonest of them was.
WITH d AS MATERIALIZED (
  SELECT x.died_at, x.fingerprint, x.error_class, x.type, x.queue FROM dead_letter_jobs AS x
  WHERE x.died_at > @since::timestamptz ORDER BY x.died_at DESC LIMIT @scan_max::int),
top AS (
  SELECT d.fingerprint, count(*) AS n, min(d.died_at) AS first_at, max(d.error_class) AS error_class, max(d.type) AS type, max(d.queue) AS queue
  FROM d GROUP BY d.fingerprint ORDER BY count(*) DESC, d.fingerprint LIMIT 1)
SELECT (SELECT count(*) FROM d)::bigint AS n, (SELECT count(*) FROM d WHERE d.died_at > @recent::timestamptz)::bigint AS recent,
  coalesce((SELECT top.n FROM top), 0)::bigint AS top_n, coalesce((SELECT top.fingerprint FROM top), '')::text AS fingerprint,
  coalesce((SELECT top.error_class FROM top), '')::text AS error_class, coalesce((SELECT top.type FROM top), '')::text AS type,
  coalesce((SELECT top.queue FROM top), '')::text AS queue,
  coalesce((SELECT top.first_at FROM top), 'epoch')::timestamptz AS first_at;

-- name: ListDeadGroups :many
-- Dead letters by fingerprint, from the newest scan_max of them.
WITH d AS MATERIALIZED (
  SELECT x.job_id, x.died_at, x.fingerprint, x.type, x.queue, x.reason FROM dead_letter_jobs AS x
  WHERE x.discarded_at IS NULL
    AND (sqlc.narg('type')::text IS NULL OR x.type = sqlc.narg('type')::text)
    AND (sqlc.narg('queue')::text IS NULL OR x.queue = sqlc.narg('queue')::text)
    AND (sqlc.narg('queues')::text[] IS NULL OR x.queue = ANY(sqlc.narg('queues')::text[]))
    AND (sqlc.narg('fingerprint')::text IS NULL OR x.fingerprint = sqlc.narg('fingerprint')::text)
  ORDER BY x.died_at DESC LIMIT @scan_max::int),
g AS (
  SELECT d.fingerprint, count(*) AS n, min(d.died_at) AS first_at, max(d.died_at) AS last_at,
    array_agg(DISTINCT d.type) AS types, array_agg(DISTINCT d.queue) AS queues, array_agg(DISTINCT d.reason) AS reasons,
    (array_agg(d.job_id ORDER BY d.died_at DESC))[1] AS sample
  FROM d GROUP BY d.fingerprint)
SELECT g.fingerprint::text AS fingerprint, g.n::bigint AS n, g.first_at::timestamptz AS first_at, g.last_at::timestamptz AS last_at,
  g.types::text[] AS types, g.queues::text[] AS queues, g.reasons::text[] AS reasons, g.sample::uuid AS sample,
  coalesce(s.error_class, '')::text AS error_class, left(coalesce(s.error, ''), @error_max::int)::text AS error,
  coalesce((SELECT e.finished_at FROM job_executions AS e WHERE e.fingerprint = g.fingerprint ORDER BY e.finished_at LIMIT 1),
    g.first_at)::timestamptz AS first_failed_at,
  coalesce(s.worker ->> 'version', '')::text AS build
FROM g JOIN dead_letter_jobs AS s ON s.job_id = g.sample
ORDER BY CASE @sort::text WHEN 'count' THEN g.n END DESC, CASE @sort::text WHEN 'first' THEN g.first_at END DESC, g.last_at DESC, g.fingerprint
LIMIT @max_groups::int;

-- name: CountDeathsByHour :many
-- Deaths of some groups by hours ago, for their drawings.
SELECT d.fingerprint, floor(date_part('epoch', u.at - d.died_at) / 3600)::int AS hours_ago, count(*) AS n
FROM dead_letter_jobs AS d CROSS JOIN (SELECT @until::timestamptz AS at) AS u
WHERE d.discarded_at IS NULL AND d.fingerprint = ANY(@fingerprints::text[]) AND d.died_at > u.at - interval '24 hours' AND d.died_at <= u.at
  AND (sqlc.narg('queues')::text[] IS NULL OR d.queue = ANY(sqlc.narg('queues')::text[]))
GROUP BY 1, 2;

-- name: CountFailuresOf :one
-- Runs of one fingerprint since an instant: how often it failed, dead or not.
SELECT count(*) AS n FROM (
  SELECT 1 FROM job_executions AS e WHERE e.fingerprint = @fingerprint::text AND e.finished_at > @since::timestamptz LIMIT @count_cap::int) AS c;

-- name: CountDiscarded :one
SELECT count(*) AS n FROM (SELECT 1 FROM dead_letter_jobs AS d WHERE d.discarded_at IS NOT NULL LIMIT @count_cap::int) AS c;

-- name: ListAudit :many
-- One stretch of the trail, newest first: acts of ids from floor_id up to before. Ids have no gaps, so that the stretch
-- bounds what is read however rare the filter. actor and target match from their beginning.
SELECT a.id, a.at, a.actor, a.source, a.action, a.target_kind, a.target, left(coalesce(a.reason, ''), 1000)::text AS reason, a.before, a.after,
  a.affected, coalesce(a.request_id, '')::text AS request_id, coalesce(a.address, '')::text AS address
FROM operator_actions AS a
WHERE a.id < @before_id::bigint AND a.id >= @floor_id::bigint
  AND (sqlc.narg('source')::text IS NULL OR a.source = sqlc.narg('source')::text)
  AND (sqlc.narg('since')::timestamptz IS NULL OR a.at >= sqlc.narg('since')::timestamptz)
  AND (sqlc.narg('until')::timestamptz IS NULL OR a.at < sqlc.narg('until')::timestamptz)
  AND (sqlc.narg('actor')::text IS NULL OR starts_with(a.actor, sqlc.narg('actor')::text))
  AND (sqlc.narg('action')::text IS NULL OR a.action = sqlc.narg('action')::text)
  AND (sqlc.narg('target')::text IS NULL OR starts_with(a.target, sqlc.narg('target')::text))
ORDER BY a.id DESC LIMIT @max_rows::int;

-- name: AuditBounds :one
-- Between which ids the acts of a time are, 0 without any act. at is when an act's transaction began, and ids follow the
-- commits: what stands before an act that began an hour before since was committed before since, and what stands behind
-- one that began an hour after until began after until, unless its transaction took more than an hour.
SELECT coalesce((SELECT a.id + 1 FROM operator_actions AS a WHERE a.at < sqlc.narg('since')::timestamptz - interval '1 h' ORDER BY a.at DESC LIMIT 1),
    (SELECT min(a.id) FROM operator_actions AS a), 0)::bigint AS first_id,
  coalesce((SELECT a.id FROM operator_actions AS a WHERE a.at >= sqlc.narg('until')::timestamptz + interval '1 h' ORDER BY a.at LIMIT 1),
    (SELECT max(a.id) FROM operator_actions AS a), 0)::bigint AS last_id;

-- name: ListBuilds :many
-- When each build was first seen, newest first, and on how many workers.
SELECT w.version, min(w.started_at)::timestamptz AS first_at, count(*) AS workers, (array_agg(DISTINCT w.name))[1:3]::text[] AS names
FROM workers AS w GROUP BY w.version ORDER BY min(w.started_at) DESC LIMIT @max_rows::int;

-- name: GetWorker :one
SELECT w.id, w.name, w.hostname, w.pid, w.version, w.queues, w.types, w.slots, w.busy, w.stuck, w.lease_ms, w.state, w.started_at,
  w.done_per_minute, w.failed_lately, w.heartbeat_at, w.stopped_at, extract(epoch FROM now() - w.heartbeat_at)::float8 AS heartbeat_age_seconds
FROM workers AS w WHERE w.id = @id::bigint;

-- name: ListWorkerRunning :many
-- What the leases of one worker still hold.
SELECT u.job_id::uuid AS job_id, u.token::bigint AS token, u.claimed_at::timestamptz AS claimed_at, u.lease_expires_at::timestamptz AS lease_expires_at,
  j.type, j.queue, u.attempt::smallint AS attempt, j.max_attempts
FROM (SELECT k.id AS token, k.claimed_at, k.lease_expires_at, unnest(k.job_ids) AS job_id, unnest(k.attempts) + 1 AS attempt
  FROM job_claims AS k WHERE k.worker_id = @worker_id::bigint) AS u
CROSS JOIN LATERAL (SELECT x.type, x.queue, x.max_attempts FROM jobs AS x WHERE x.id = u.job_id OFFSET 0) AS j
WHERE (SELECT e.outcome FROM job_executions AS e WHERE e.job_id = u.job_id AND e.fencing_token = u.token) IS NULL
ORDER BY u.claimed_at, u.job_id LIMIT @max_rows::int;

-- name: ListWorkerRecent :many
-- The last runs of one worker among the newest scan_max runs by job: runs have no index by worker, and a worker that is
-- looked at has usually run something lately.
SELECT w.job_id, w.fencing_token, w.claimed_at, w.started_at, w.finished_at, w.attempt, w.outcome, coalesce(w.error_class, '')::text AS error_class,
  left(coalesce(w.error, ''), 300)::text AS error, coalesce(j.type, '')::text AS type, coalesce(j.queue, '')::text AS queue,
  coalesce(j.max_attempts, 0)::smallint AS max_attempts
FROM (
  SELECT x.job_id, x.fencing_token, x.claimed_at, x.started_at, x.finished_at, x.attempt, x.outcome, x.error_class, x.error FROM (
    SELECT e.job_id, e.fencing_token, e.worker_id, e.claimed_at, e.started_at, e.finished_at, e.attempt, e.outcome, e.error_class, e.error
    FROM job_executions AS e ORDER BY e.job_id DESC, e.fencing_token DESC LIMIT @scan_max::int) AS x
  WHERE x.worker_id = @worker_id::bigint ORDER BY x.finished_at DESC LIMIT @max_rows::int) AS w
LEFT JOIN LATERAL (SELECT q.type, q.queue, q.max_attempts FROM jobs AS q WHERE q.id = w.job_id OFFSET 0) AS j ON true
ORDER BY w.finished_at DESC;

-- name: CountLostRuns :many
-- Runs that were taken back from workers since an instant, from the index of rare ends.
SELECT e.worker_id::bigint AS worker_id, count(*) AS n FROM job_executions AS e
WHERE e.outcome IN (6, 7) AND e.worker_id IS NOT NULL AND e.finished_at > @since::timestamptz
GROUP BY e.worker_id ORDER BY count(*) DESC LIMIT @max_rows::int;

-- name: GetDatabase :one
SELECT current_setting('server_version')::text AS version, pg_database_size(current_database())::bigint AS size_bytes, clock_timestamp()::timestamptz AS at,
  coalesce((SELECT extract(epoch FROM clock_timestamp() - min(a.xact_start)) FROM pg_catalog.pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'), 0)::float8 AS oldest_transaction_seconds,
  (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database())::bigint AS connections,
  current_setting('max_connections')::int AS max_connections,
  pg_postmaster_start_time()::timestamptz AS started_at;

-- name: ListTables :many
-- Rows as the statistics have them: counting would read everything.
SELECT s.relname::text AS name, s.n_live_tup::bigint AS live, s.n_dead_tup::bigint AS dead, pg_total_relation_size(s.relid)::bigint AS size_bytes,
  coalesce(greatest(s.last_vacuum, s.last_autovacuum), 'epoch')::timestamptz AS vacuumed_at
FROM pg_catalog.pg_stat_user_tables AS s WHERE s.schemaname = current_schema() ORDER BY pg_total_relation_size(s.relid) DESC LIMIT @max_rows::int;
