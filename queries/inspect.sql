-- name: ScanJobs :one
-- One stretch of jobs, newest first: how many it held, its last id, and which of them match. A rare type or queue makes
-- the caller ask for stretch after stretch until its time is over, so that no page reads the table whole.
WITH w AS MATERIALIZED (
  SELECT j.id, j.type, j.queue, j.priority FROM jobs AS j WHERE j.id < @before::uuid ORDER BY j.id DESC LIMIT @scan::int)
SELECT (SELECT count(*) FROM w)::int AS seen,
  coalesce((SELECT w.id FROM w ORDER BY w.id LIMIT 1), @before::uuid)::uuid AS bottom,
  ARRAY(SELECT m.id FROM w AS m
    WHERE (sqlc.narg('type')::text IS NULL OR m.type = sqlc.narg('type')::text)
      AND (sqlc.narg('queue')::text IS NULL OR m.queue = sqlc.narg('queue')::text)
      AND (sqlc.narg('priority')::smallint IS NULL OR m.priority = sqlc.narg('priority')::smallint)
    ORDER BY m.id DESC)::uuid[] AS ids;

-- name: ScanCompleted :one
-- The same over the trail, for completed jobs. Completion is an end without a way back, so the run with that outcome is
-- the job's last; filtering the view by state reads everything (1,060 ms at a million jobs instead of 6).
WITH w AS MATERIALIZED (
  SELECT e.job_id, e.outcome FROM job_executions AS e WHERE e.job_id < @before::uuid
  ORDER BY e.job_id DESC, e.fencing_token DESC LIMIT @scan::int)
SELECT (SELECT count(*) FROM w)::int AS seen,
  coalesce((SELECT w.job_id FROM w ORDER BY w.job_id LIMIT 1), @before::uuid)::uuid AS bottom,
  ARRAY(SELECT m.job_id FROM w AS m
    CROSS JOIN LATERAL (SELECT j.type, j.queue, j.priority FROM jobs AS j WHERE j.id = m.job_id OFFSET 0) AS j
    WHERE m.outcome = 1
      AND (sqlc.narg('type')::text IS NULL OR j.type = sqlc.narg('type')::text)
      AND (sqlc.narg('queue')::text IS NULL OR j.queue = sqlc.narg('queue')::text)
      AND (sqlc.narg('priority')::smallint IS NULL OR j.priority = sqlc.narg('priority')::smallint)
    ORDER BY m.job_id DESC)::uuid[] AS ids;

-- name: ScanCancelled :one
-- The same for cancelled jobs, which have an index: the outcome stands here as a literal, so that the planner sees it.
WITH w AS MATERIALIZED (
  SELECT e.job_id FROM job_executions AS e WHERE e.outcome = 5 AND e.job_id < @before::uuid ORDER BY e.job_id DESC LIMIT @scan::int)
SELECT (SELECT count(*) FROM w)::int AS seen,
  coalesce((SELECT w.job_id FROM w ORDER BY w.job_id LIMIT 1), @before::uuid)::uuid AS bottom,
  ARRAY(SELECT m.job_id FROM w AS m
    CROSS JOIN LATERAL (SELECT j.type, j.queue, j.priority FROM jobs AS j WHERE j.id = m.job_id OFFSET 0) AS j
    WHERE (sqlc.narg('type')::text IS NULL OR j.type = sqlc.narg('type')::text)
      AND (sqlc.narg('queue')::text IS NULL OR j.queue = sqlc.narg('queue')::text)
      AND (sqlc.narg('priority')::smallint IS NULL OR j.priority = sqlc.narg('priority')::smallint)
    ORDER BY m.job_id DESC)::uuid[] AS ids;

-- name: ListPendingIDs :many
-- Ready, held and scheduled jobs, each from its own place.
SELECT p.job_id::uuid AS job_id FROM (
  (SELECT r.job_id FROM job_ready AS r WHERE r.job_id < @before::uuid
     AND (sqlc.narg('type')::text IS NULL OR r.type = sqlc.narg('type')::text)
     AND (sqlc.narg('queue')::text IS NULL OR r.queue = sqlc.narg('queue')::text)
     AND (sqlc.narg('priority')::smallint IS NULL OR r.priority = sqlc.narg('priority')::smallint)
   ORDER BY r.job_id DESC LIMIT @max_jobs::int)
  UNION ALL
  (SELECT h.job_id FROM job_held AS h WHERE h.job_id < @before::uuid
     AND (sqlc.narg('type')::text IS NULL OR h.type = sqlc.narg('type')::text)
     AND (sqlc.narg('queue')::text IS NULL OR h.queue = sqlc.narg('queue')::text)
     AND (sqlc.narg('priority')::smallint IS NULL OR h.priority = sqlc.narg('priority')::smallint)
   ORDER BY h.job_id DESC LIMIT @max_jobs::int)
  UNION ALL
  (SELECT s.job_id FROM job_scheduled AS s WHERE s.job_id < @before::uuid AND NOT s.failed
     AND (sqlc.narg('type')::text IS NULL OR s.type = sqlc.narg('type')::text)
     AND (sqlc.narg('queue')::text IS NULL OR s.queue = sqlc.narg('queue')::text)
     AND (sqlc.narg('priority')::smallint IS NULL OR s.priority = sqlc.narg('priority')::smallint)
   ORDER BY s.job_id DESC LIMIT @max_jobs::int)) AS p
ORDER BY p.job_id DESC LIMIT @max_jobs::int;

-- name: ListFailedIDs :many
SELECT s.job_id FROM job_scheduled AS s WHERE s.job_id < @before::uuid AND s.failed
  AND (sqlc.narg('type')::text IS NULL OR s.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR s.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('priority')::smallint IS NULL OR s.priority = sqlc.narg('priority')::smallint)
ORDER BY s.job_id DESC LIMIT @max_jobs::int;

-- name: ListLeasedIDs :many
-- The claims are few; a job of one still runs unless a run of that token is closed. The check is a scalar subquery, since
-- an anti-join planned while job_executions is small reads that table whole.
SELECT u.job_id::uuid AS job_id FROM (
  SELECT k.id AS token, unnest(k.job_ids) AS job_id FROM job_claims AS k) AS u
CROSS JOIN LATERAL (SELECT j.type, j.queue, j.priority FROM jobs AS j WHERE j.id = u.job_id OFFSET 0) AS j
WHERE u.job_id < @before::uuid
  AND (SELECT e.outcome FROM job_executions AS e WHERE e.job_id = u.job_id AND e.fencing_token = u.token) IS NULL
  AND (sqlc.narg('type')::text IS NULL OR j.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR j.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('priority')::smallint IS NULL OR j.priority = sqlc.narg('priority')::smallint)
ORDER BY u.job_id DESC LIMIT @max_jobs::int;

-- name: ListDeadIDs :many
SELECT d.job_id FROM dead_letter_jobs AS d
CROSS JOIN LATERAL (SELECT j.priority FROM jobs AS j WHERE j.id = d.job_id OFFSET 0) AS j
WHERE d.job_id < @before::uuid
  AND (sqlc.narg('type')::text IS NULL OR d.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR d.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('priority')::smallint IS NULL OR j.priority = sqlc.narg('priority')::smallint)
ORDER BY d.job_id DESC LIMIT @max_jobs::int;

-- name: ListCopies :many
-- The jobs that were made as copies of one, the newest first.
SELECT id FROM jobs WHERE copied_from = @original::uuid ORDER BY id DESC LIMIT @max_jobs::int;

-- name: GetCallback :one
-- The newest callback of a job, the nil id if there is none, and whether one is owed that could not be made.
SELECT coalesce(k.id, '00000000-0000-0000-0000-000000000000')::uuid AS id, coalesce(s.state, '')::text AS state,
  coalesce(o.error, '')::text AS error, coalesce(o.failed_at, 'epoch')::timestamptz AS failed_at
FROM (SELECT @job_id::uuid AS job_id) AS x
LEFT JOIN LATERAL (SELECT j.id FROM jobs AS j WHERE j.callback_of = x.job_id ORDER BY j.id DESC LIMIT 1) AS k ON true
LEFT JOIN LATERAL (SELECT v.state FROM job_states AS v WHERE v.id = k.id OFFSET 0) AS s ON true
LEFT JOIN LATERAL (SELECT c.error, c.failed_at FROM owed_callbacks AS c WHERE c.job_id = x.job_id) AS o ON true;

-- name: GetJobs :many
-- One job or a page of them. A payload larger than payload_max is left out, so that a page of large jobs stays small: the
-- stored size is asked first, since writing a payload out to measure it is what costs. 'epoch' and 0 stand for none.
SELECT j.id, j.type, j.queue, j.priority, j.max_attempts, j.version, j.created_at, j.expires_at,
  coalesce(j.timeout_ms, 0)::int AS timeout_ms, j.tags, coalesce(j.traceparent, '')::text AS traceparent, j.copied_from, j.backoff,
  coalesce(j.callback_url, '')::text AS callback_url, j.callback_of,
  coalesce(j.replays, 0)::int AS replays,
  coalesce(CASE WHEN pg_column_size(j.payload) <= @payload_max::int THEN
    CASE WHEN octet_length(j.payload::text) <= @payload_max::int THEN j.payload::text END END, '')::text AS payload,
  coalesce(s.state, '')::text AS state, s.scheduled_at::timestamptz AS scheduled_at, s.attempt::smallint AS attempt,
  s.crashes::smallint AS crashes, s.fencing_token::bigint AS fencing_token, coalesce(s.held_reason, '')::text AS held_reason,
  coalesce(s.last_outcome, 0)::smallint AS last_outcome, coalesce(s.discarded_at, 'epoch')::timestamptz AS discarded_at,
  coalesce(c.lease_expires_at, 'epoch')::timestamptz AS lease_expires_at, coalesce(c.worker_id, 0)::bigint AS worker_id,
  coalesce(c.claimed_at, 'epoch')::timestamptz AS claimed_at, coalesce(w.name, '')::text AS worker_name,
  coalesce(w.version, '')::text AS worker_build,
  coalesce(d.died_at, 'epoch')::timestamptz AS died_at, coalesce(d.reason, '')::text AS dead_reason,
  coalesce(e.started_at, 'epoch')::timestamptz AS last_started_at, coalesce(e.finished_at, 'epoch')::timestamptz AS last_finished_at,
  coalesce(e.runs, 0)::bigint AS closed_runs, coalesce(f.error_class, d.error_class, '')::text AS error_class,
  left(coalesce(f.error, d.error, ''), @error_max::int)::text AS error, coalesce(f.fingerprint, d.fingerprint, '')::text AS fingerprint
FROM jobs AS j
CROSS JOIN LATERAL (
  SELECT v.state, v.scheduled_at, v.attempt, v.crashes, v.fencing_token, v.held_reason, v.last_outcome, v.discarded_at
  FROM job_states AS v WHERE v.id = j.id OFFSET 0) AS s
LEFT JOIN LATERAL (SELECT k.claimed_at, k.lease_expires_at, k.worker_id FROM job_claims AS k
  WHERE s.state = 'leased' AND k.id = s.fencing_token) AS c ON true
LEFT JOIN LATERAL (SELECT x.name, x.version FROM workers AS x WHERE x.id = c.worker_id) AS w ON true
LEFT JOIN LATERAL (SELECT x.died_at, x.reason, x.error_class, x.error, x.fingerprint FROM dead_letter_jobs AS x WHERE x.job_id = j.id) AS d ON true
LEFT JOIN LATERAL (
  SELECT (array_agg(x.started_at ORDER BY x.fencing_token DESC))[1] AS started_at, max(x.finished_at) AS finished_at,
    count(x.claimed_at) AS runs FROM job_executions AS x WHERE x.job_id = j.id) AS e ON true
LEFT JOIN LATERAL (SELECT x.error_class, x.error, x.fingerprint FROM job_executions AS x
  WHERE x.job_id = j.id AND x.error IS NOT NULL ORDER BY x.fencing_token DESC LIMIT 1) AS f ON true
WHERE j.id = ANY(@ids::uuid[]) ORDER BY j.id DESC;

-- name: ListExecutions :many
-- The closed runs of one job, newest first. run is the rank of the token among the job's claims; a job that was
-- cancelled or that expired while it waited has a closing row which is no run: 0.
SELECT x.fencing_token, (CASE WHEN x.claimed_at IS NULL THEN 0 ELSE x.run END)::bigint AS run, x.worker_id,
  coalesce(w.name, '')::text AS worker_name, coalesce(w.version, '')::text AS build, x.attempt, x.outcome, x.claimed_at, x.started_at,
  x.finished_at, x.wait_ms, coalesce(x.error_class, '')::text AS error_class, coalesce(x.error, '')::text AS error,
  coalesce(x.stack, '')::text AS stack, coalesce(x.fingerprint, '')::text AS fingerprint, x.logs, (x.result IS NOT NULL)::boolean AS has_result,
  coalesce(x.progress, -1)::real AS progress, coalesce(x.progress_text, '')::text AS progress_text
FROM (
  SELECT e.fencing_token, e.worker_id, e.attempt, e.outcome, e.claimed_at, e.started_at, e.finished_at, e.wait_ms, e.error_class, e.error,
    e.stack, e.fingerprint, e.logs, e.result, e.progress, e.progress_text,
    count(e.claimed_at) OVER (ORDER BY e.fencing_token) AS run
  FROM job_executions AS e WHERE e.job_id = @job_id::uuid) AS x
LEFT JOIN workers AS w ON w.id = x.worker_id
ORDER BY x.fencing_token DESC LIMIT @max_rows::int;

-- name: GetResult :one
SELECT e.fencing_token, e.finished_at, e.result FROM job_executions AS e
WHERE e.job_id = @job_id::uuid AND e.outcome = 1 AND e.result IS NOT NULL ORDER BY e.fencing_token DESC LIMIT 1;

-- name: JobExists :one
SELECT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = @id::uuid)::boolean AS found;

-- name: ListRefusedWrites :many
SELECT r.id, r.at, r.job_id, r.token_held, coalesce(r.token_current, 0)::bigint AS token_current, r.worker_id, r.operation, r.tried
FROM refused_writes AS r WHERE r.job_id = @job_id::uuid ORDER BY r.id DESC LIMIT @max_rows::int;

-- name: ListActions :many
SELECT a.id, a.at, a.actor, a.source, a.action, a.target_kind, a.target, coalesce(a.reason, '')::text AS reason, a.before, a.after,
  a.affected, coalesce(a.request_id, '')::text AS request_id, coalesce(a.address, '')::text AS address
FROM operator_actions AS a WHERE a.target_kind = @target_kind::text AND a.target = @target::text ORDER BY a.id DESC LIMIT @max_rows::int;

-- name: CountReady :many
-- Ready jobs by queue. The queues are found by jumping from one to the next in the key, and each is counted no further
-- than count_cap, so that the cost has a bound whatever stands in line.
WITH RECURSIVE q AS (
  (SELECT r.queue FROM job_ready AS r ORDER BY r.queue LIMIT 1)
  UNION ALL
  SELECT (SELECT r.queue FROM job_ready AS r WHERE r.queue > q.queue ORDER BY r.queue LIMIT 1) FROM q WHERE q.queue IS NOT NULL)
SELECT q.queue::text AS queue,
  (SELECT count(*) FROM (SELECT 1 FROM job_ready AS r WHERE r.queue = q.queue LIMIT @count_cap::int) AS c)::bigint AS n
FROM q WHERE q.queue IS NOT NULL;

-- name: OldestReady :many
-- The first row of each lane, found by jumping: 30 lanes take 2 ms.
WITH RECURSIVE lane AS (
  (SELECT r.queue, r.priority, r.ready_at FROM job_ready AS r ORDER BY r.queue, r.priority, r.seq LIMIT 1)
  UNION ALL
  SELECT n.queue, n.priority, n.ready_at FROM lane CROSS JOIN LATERAL (
    SELECT r.queue, r.priority, r.ready_at FROM job_ready AS r
    WHERE (r.queue, r.priority) > (lane.queue, lane.priority) ORDER BY r.queue, r.priority, r.seq LIMIT 1) AS n)
SELECT lane.queue::text AS queue, extract(epoch FROM now() - min(lane.ready_at))::float8 AS seconds FROM lane GROUP BY lane.queue;

-- name: CountScheduled :many
SELECT s.queue::text AS queue, s.failed::boolean AS failed, count(*) AS n
FROM (SELECT x.queue, x.failed FROM job_scheduled AS x LIMIT @count_cap::int) AS s GROUP BY s.queue, s.failed;

-- name: CountHeld :many
SELECT h.queue::text AS queue, count(*) AS n
FROM (SELECT x.queue FROM job_held AS x LIMIT @count_cap::int) AS h GROUP BY h.queue;

-- name: CountRunning :many
-- What live claims hold, less what of them is closed.
SELECT j.queue::text AS queue, count(*) AS n FROM (
  SELECT k.id AS token, unnest(k.job_ids) AS job_id FROM job_claims AS k) AS u
CROSS JOIN LATERAL (SELECT x.queue FROM jobs AS x WHERE x.id = u.job_id OFFSET 0) AS j
WHERE (SELECT e.outcome FROM job_executions AS e WHERE e.job_id = u.job_id AND e.fencing_token = u.token) IS NULL
GROUP BY j.queue;

-- name: CountDead :many
SELECT d.queue::text AS queue, d.type::text AS type, count(*) AS n
FROM (SELECT x.queue, x.type FROM dead_letter_jobs AS x WHERE x.discarded_at IS NULL LIMIT @count_cap::int) AS d GROUP BY d.queue, d.type;

-- name: ListQueueSettings :many
SELECT q.name, q.paused_at, coalesce(q.paused_reason, '')::text AS paused_reason, q.resume_at, q.version
FROM queues AS q ORDER BY q.name LIMIT @max_rows::int;

-- name: RecentEnqueues :many
-- Enqueues by queue among the newest jobs, over the span those jobs cover. Ids carry their time, so this walks the end
-- of the key and no index on time is needed.
WITH w AS MATERIALIZED (
  SELECT j.queue, j.created_at FROM jobs AS j ORDER BY j.id DESC LIMIT @scan::int),
span AS (
  SELECT greatest(least(extract(epoch FROM now() - min(w.created_at)), @seconds::float8), 1)::float8 AS seconds,
    (count(*) >= @scan::int) AS full_window FROM w)
SELECT w.queue::text AS queue, count(*) AS n,
  (CASE WHEN span.full_window THEN span.seconds ELSE @seconds::float8 END)::float8 AS seconds
FROM w CROSS JOIN span WHERE w.created_at > now() - make_interval(secs => @seconds::float8)
GROUP BY w.queue, span.full_window, span.seconds;

-- name: RecentOutcomes :many
-- Ends by queue and outcome: how many in the last minutes, with the span in seconds that these are, for every queue that
-- had any within known_minutes. From the rollup and what is not folded into it yet.
SELECT t.queue::text AS queue, t.outcome::smallint AS outcome,
  sum(CASE WHEN t.at >= date_trunc('minute', now() - make_interval(mins => @minutes::int)) THEN t.n ELSE 0 END)::bigint AS n,
  extract(epoch FROM now() - date_trunc('minute', now() - make_interval(mins => @minutes::int)))::float8 AS seconds
FROM (
  SELECT m.minute AS at, m.queue, m.outcome, m.n FROM job_stats_minutes AS m
  WHERE m.minute >= now() - make_interval(mins => @known_minutes::int)
  UNION ALL
  SELECT d.at, d.queue, d.outcome, d.n::bigint FROM job_stats_deltas AS d
  WHERE d.at >= now() - make_interval(mins => @known_minutes::int)) AS t
GROUP BY t.queue, t.outcome;

-- name: ListMinutes :many
-- The rollup and what is not folded into it yet, from an instant up to but without another. A minute that is in both comes
-- as two rows, one after the other, which the caller adds: adding buckets of all rows here took 31 ms of an hour's 2,000.
SELECT t.minute::timestamptz AS minute, t.queue::text AS queue, t.type::text AS type, t.outcome::smallint AS outcome,
  t.n::bigint AS n, t.run_ms::bigint AS run_ms, t.wait_buckets::bigint[] AS wait_buckets, t.run_buckets::bigint[] AS run_buckets
FROM (
  SELECT m.minute, m.queue, m.type, m.outcome, m.n, m.run_ms, m.wait_buckets, m.run_buckets FROM job_stats_minutes AS m
  WHERE m.minute >= @from_minute::timestamptz AND m.minute < @to_minute::timestamptz
    AND (sqlc.narg('queue')::text IS NULL OR m.queue = sqlc.narg('queue')::text)
    AND (sqlc.narg('type')::text IS NULL OR m.type = sqlc.narg('type')::text)
  UNION ALL
  SELECT date_trunc('minute', d.at), d.queue, d.type, d.outcome, sum(d.n)::bigint, sum(d.run_ms)::bigint,
    sum_buckets(d.wait_buckets::bigint[]), sum_buckets(d.run_buckets::bigint[])
  FROM job_stats_deltas AS d
  WHERE d.at >= @from_minute::timestamptz AND d.at < @to_minute::timestamptz
    AND (sqlc.narg('queue')::text IS NULL OR d.queue = sqlc.narg('queue')::text)
    AND (sqlc.narg('type')::text IS NULL OR d.type = sqlc.narg('type')::text)
  GROUP BY 1, 2, 3, 4) AS t
ORDER BY t.minute, t.queue, t.type, t.outcome LIMIT @max_rows::int;

-- name: ListDead :many
-- Dead letters, latest death first.
SELECT d.job_id, d.fencing_token, d.died_at, d.discarded_at, d.attempt, d.crashes, d.queue, d.type, d.reason,
  coalesce(d.error_class, '')::text AS error_class, left(coalesce(d.error, ''), @error_max::int)::text AS error, d.fingerprint,
  coalesce(j.max_attempts, 0)::smallint AS max_attempts, coalesce(j.replays, 0)::int AS replays, j.version, j.created_at, coalesce(j.priority, 0)::smallint AS priority
FROM dead_letter_jobs AS d
CROSS JOIN LATERAL (SELECT x.max_attempts, x.replays, x.version, x.created_at, x.priority FROM jobs AS x WHERE x.id = d.job_id OFFSET 0) AS j
WHERE (d.died_at, d.job_id) < (@before_died_at::timestamptz, @before_id::uuid)
  AND (d.discarded_at IS NOT NULL) = @discarded::boolean
  AND (sqlc.narg('type')::text IS NULL OR d.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR d.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('queues')::text[] IS NULL OR d.queue = ANY(sqlc.narg('queues')::text[]))
  AND (sqlc.narg('reason')::text IS NULL OR d.reason = sqlc.narg('reason')::text)
ORDER BY d.died_at DESC, d.job_id DESC LIMIT @max_rows::int;

-- name: ListDeadGroup :many
-- The dead letters of one fingerprint, by the group's own index.
SELECT d.job_id, d.fencing_token, d.died_at, d.discarded_at, d.attempt, d.crashes, d.queue, d.type, d.reason,
  coalesce(d.error_class, '')::text AS error_class, left(coalesce(d.error, ''), @error_max::int)::text AS error, d.fingerprint,
  coalesce(j.max_attempts, 0)::smallint AS max_attempts, coalesce(j.replays, 0)::int AS replays, j.version, j.created_at, coalesce(j.priority, 0)::smallint AS priority
FROM dead_letter_jobs AS d
CROSS JOIN LATERAL (SELECT x.max_attempts, x.replays, x.version, x.created_at, x.priority FROM jobs AS x WHERE x.id = d.job_id OFFSET 0) AS j
WHERE d.fingerprint = @fingerprint::text AND (d.died_at, d.job_id) < (@before_died_at::timestamptz, @before_id::uuid)
  AND (d.discarded_at IS NOT NULL) = @discarded::boolean
  AND (sqlc.narg('type')::text IS NULL OR d.type = sqlc.narg('type')::text)
  AND (sqlc.narg('queue')::text IS NULL OR d.queue = sqlc.narg('queue')::text)
  AND (sqlc.narg('queues')::text[] IS NULL OR d.queue = ANY(sqlc.narg('queues')::text[]))
  AND (sqlc.narg('reason')::text IS NULL OR d.reason = sqlc.narg('reason')::text)
ORDER BY d.died_at DESC, d.job_id DESC LIMIT @max_rows::int;

-- name: GetDead :one
SELECT d.job_id, d.fencing_token, d.died_at, d.discarded_at, d.attempt, d.crashes, d.queue, d.type, d.reason,
  coalesce(d.error_class, '')::text AS error_class, coalesce(d.error, '')::text AS error, coalesce(d.stack, '')::text AS stack,
  d.fingerprint, d.worker
FROM dead_letter_jobs AS d WHERE d.job_id = @job_id::uuid;

-- name: ListWorkers :many
-- Heartbeats are compared by the database's clock. running counts the jobs a worker's leases still hold.
SELECT w.id, w.name, w.hostname, w.pid, w.version, w.queues, w.types, w.slots, w.busy, w.stuck, w.lease_ms, w.state, w.started_at,
  w.done_per_minute, w.failed_lately, w.heartbeat_at, w.stopped_at, extract(epoch FROM now() - w.heartbeat_at)::float8 AS heartbeat_age_seconds,
  coalesce((SELECT sum((SELECT count(*) FROM unnest(k.job_ids) AS u(job_id) WHERE (
      SELECT e.outcome FROM job_executions AS e WHERE e.job_id = u.job_id AND e.fencing_token = k.id) IS NULL))
    FROM job_claims AS k WHERE k.worker_id = w.id), 0)::bigint AS running
FROM workers AS w ORDER BY (w.state = 'stopped'), w.heartbeat_at DESC, w.id DESC LIMIT @max_rows::int;

-- name: ListWorkerSlots :many
-- The fleet for figures: who is alive by its own lease, what it serves and how many slots it has.
SELECT w.id, w.queues, w.slots, w.busy, w.stuck, w.state, w.lease_ms, extract(epoch FROM now() - w.heartbeat_at)::float8 AS heartbeat_age_seconds
FROM workers AS w WHERE w.state <> 'stopped' ORDER BY w.heartbeat_at DESC LIMIT @max_rows::int;

-- name: GetLeader :one
SELECT l.role, l.worker_id, l.term, l.acquired_at, l.expires_at, (l.expires_at >= now())::boolean AS live, coalesce(w.name, '')::text AS worker_name
FROM leaders AS l LEFT JOIN workers AS w ON w.id = l.worker_id ORDER BY l.expires_at DESC LIMIT 1;

-- name: ListTasks :many
SELECT t.task, t.last_success_at, coalesce(extract(epoch FROM now() - t.last_success_at), 0)::float8 AS age_seconds
FROM maintenance_tasks AS t ORDER BY t.task LIMIT @max_rows::int;
