-- name: ClaimJobs :many
-- Takes ready jobs out of line and writes one lease for the batch; the lease's id is their token. A lane is a queue and
-- a priority, given in the order to serve them: with equality on both, the primary key's order is the line's order and
-- nothing is sorted. mark is the lane's seq below which only dead index entries are expected. Unnest of an ARRAY per
-- lane is evaluated lazily, so that LIMIT ends the walk. type is hidden from the planner by || '': it would take its
-- estimate as a reason to sort the whole lane.
WITH lane AS (
  SELECT unnest(@queues::text[]) AS queue, unnest(@priorities::smallint[]) AS priority, unnest(@marks::bigint[]) AS mark,
    unnest(@wants::int[]) AS want),
d AS (
  DELETE FROM job_ready AS r WHERE r.ctid = ANY(ARRAY(
    SELECT unnest(ARRAY(
      SELECT y.ctid FROM job_ready AS y
      WHERE y.queue = lane.queue AND y.priority = lane.priority AND y.seq > lane.mark
        AND y.crashes = 0 AND y.type || '' = ANY(@types::text[])
      ORDER BY y.seq LIMIT lane.want FOR UPDATE SKIP LOCKED))
    FROM lane
    WHERE coalesce((SELECT q.free FROM queues AS q WHERE q.name = lane.queue), true)
    LIMIT @max_jobs::int))
  RETURNING r.seq, r.job_id, r.attempt, r.crashes, r.queue, r.priority, r.type, r.ready_at),
c AS (
  INSERT INTO job_claims AS k (worker_id, lease_expires_at, job_ids, attempts, crashes)
  SELECT @worker_id::bigint, statement_timestamp() + make_interval(secs => @lease_seconds::float8), array_agg(d.job_id ORDER BY d.job_id),
    array_agg(d.attempt ORDER BY d.job_id), array_agg(d.crashes ORDER BY d.job_id)
  FROM d HAVING count(*) > 0
  RETURNING k.id, k.claimed_at, k.lease_expires_at)
SELECT c.id AS token, c.claimed_at, c.lease_expires_at, d.seq, d.job_id, d.attempt, d.crashes, d.queue, d.priority, d.type,
  d.ready_at, j.payload, j.max_attempts, j.timeout_ms, j.expires_at, j.backoff,
  (j.callback_url IS NOT NULL)::boolean AS calls_back
FROM c CROSS JOIN d CROSS JOIN LATERAL (SELECT p.* FROM jobs AS p WHERE p.id = d.job_id OFFSET 0) AS j;

-- name: ClaimSuspects :many
-- Jobs whose last run was lost with its process, in a lease of their own. They run one after the other, so a few can share
-- it: but not a grave one, which a parent has seen crash and whose next crash would bury it. That is taken alone, once it is
-- the first in line, and what stands behind it waits.
WITH lane AS (SELECT unnest(@queues::text[]) AS queue),
near AS MATERIALIZED (
  SELECT x.place, row_number() OVER () AS n FROM (
    SELECT unnest(ARRAY(
      SELECT y.ctid FROM job_ready AS y
      WHERE y.queue = lane.queue AND y.crashes > 0 AND y.type || '' = ANY(@types::text[])
      ORDER BY 5 - y.priority, y.seq LIMIT @max_jobs::int FOR UPDATE SKIP LOCKED)) AS place
    FROM lane
    WHERE coalesce((SELECT q.free FROM queues AS q WHERE q.name = lane.queue), true)
    LIMIT @max_jobs::int) AS x),
grave AS (
  SELECT min(near.n) AS n FROM near CROSS JOIN LATERAL (
    SELECT s.job_id FROM job_ready AS s WHERE s.ctid = near.place AND s.crashes + 1 >= @crash_limit::int OFFSET 0) AS s
  WHERE (SELECT e.outcome FROM job_executions AS e WHERE e.job_id = s.job_id ORDER BY e.fencing_token DESC LIMIT 1) = 7),
d AS (
  DELETE FROM job_ready AS r WHERE r.ctid = ANY(ARRAY(
    SELECT near.place FROM near WHERE near.n < (SELECT CASE WHEN grave.n IS NULL THEN 1000000 ELSE greatest(grave.n, 2) END FROM grave)))
  RETURNING r.seq, r.job_id, r.attempt, r.crashes, r.queue, r.priority, r.type, r.ready_at),
c AS (
  INSERT INTO job_claims AS k (worker_id, lease_expires_at, job_ids, attempts, crashes)
  SELECT @worker_id::bigint, statement_timestamp() + make_interval(secs => @lease_seconds::float8), array_agg(d.job_id ORDER BY d.job_id),
    array_agg(d.attempt ORDER BY d.job_id), array_agg(d.crashes ORDER BY d.job_id)
  FROM d HAVING count(*) > 0
  RETURNING k.id, k.claimed_at, k.lease_expires_at)
SELECT c.id AS token, c.claimed_at, c.lease_expires_at, d.seq, d.job_id, d.attempt, d.crashes, d.queue, d.priority, d.type,
  d.ready_at, j.payload, j.max_attempts, j.timeout_ms, j.expires_at, j.backoff,
  (j.callback_url IS NOT NULL)::boolean AS calls_back
FROM c CROSS JOIN d CROSS JOIN LATERAL (SELECT p.* FROM jobs AS p WHERE p.id = d.job_id OFFSET 0) AS j;

-- name: ListReadyQueues :many
-- The queues that have a row in line, by jumps over the primary key: one look-up a queue, however long the lines are.
WITH RECURSIVE q AS (
  (SELECT r.queue FROM job_ready AS r ORDER BY r.queue LIMIT 1)
  UNION ALL
  SELECT (SELECT r.queue FROM job_ready AS r WHERE r.queue > q.queue ORDER BY r.queue LIMIT 1) FROM q WHERE q.queue IS NOT NULL)
SELECT q.queue::text AS queue FROM q WHERE q.queue IS NOT NULL;
