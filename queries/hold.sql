-- name: ListHandledTypes :many
-- What the living workers can run. A worker late by three heartbeats may only be slow, so a minute is waited.
SELECT DISTINCT unnest(w.types)::text AS type FROM workers AS w
WHERE w.state = 'running' AND w.slots > 0 AND w.heartbeat_at > now() - make_interval(secs => 60);

-- name: ListUnhandledTypes :many
-- Types in line that no living worker runs, from the head of each lane: what a claim would have to step over.
WITH lane AS (SELECT unnest(@queues::text[]) AS queue, unnest(@priorities::smallint[]) AS priority)
SELECT DISTINCT h.type::text AS type FROM lane CROSS JOIN LATERAL (
  SELECT y.type FROM job_ready AS y WHERE y.queue = lane.queue AND y.priority = lane.priority ORDER BY y.seq LIMIT 200) AS h
WHERE h.type <> ALL(@handled::text[]);

-- name: ParkJobs :many
-- Takes jobs of these types out of line, so that claims need not step over them: 5,000 a pass. Not once another leads:
-- what this one saw may be long ago.
WITH lane AS (SELECT unnest(@queues::text[]) AS queue, unnest(@priorities::smallint[]) AS priority),
d AS (
  DELETE FROM job_ready AS r WHERE r.ctid = ANY(ARRAY(
    SELECT unnest(ARRAY(
      SELECT y.ctid FROM job_ready AS y
      WHERE y.queue = lane.queue AND y.priority = lane.priority AND y.type || '' = ANY(@types::text[])
      ORDER BY y.seq LIMIT @max_jobs::int FOR UPDATE SKIP LOCKED))
    FROM lane
    WHERE NOT EXISTS (SELECT 1 FROM leaders AS l WHERE l.role = 'maintenance' AND l.worker_id <> @leader::bigint AND l.expires_at > now())
    LIMIT @max_jobs::int))
  RETURNING r.job_id, r.priority, r.attempt, r.crashes, r.queue, r.type)
INSERT INTO job_held AS h (job_id, priority, attempt, crashes, queue, type, reason, hold_key)
SELECT d.job_id, d.priority, d.attempt, d.crashes, d.queue, d.type, 'no_worker', d.type FROM d
RETURNING h.job_id;

-- name: UnparkJobs :many
-- Brings held jobs back once a worker for them lives, in the order of their ids.
WITH d AS (
  DELETE FROM job_held AS h WHERE h.ctid = ANY(ARRAY(
    SELECT y.ctid FROM job_held AS y WHERE y.reason = 'no_worker' AND y.hold_key = ANY(@types::text[])
    ORDER BY y.hold_key, y.job_id LIMIT @max_jobs::int FOR UPDATE SKIP LOCKED))
  RETURNING h.job_id, h.held_at, h.priority, h.attempt, h.crashes, h.queue, h.type)
INSERT INTO job_ready AS r (job_id, ready_at, priority, attempt, crashes, queue, type)
SELECT d.job_id, d.held_at, d.priority, d.attempt, d.crashes, d.queue, d.type FROM d ORDER BY d.job_id
RETURNING r.queue;
