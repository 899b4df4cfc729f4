-- name: RenewLeases :many
-- One statement a worker and interval: a row a batch, not a job. What does not come back is lost. A lease ends when it
-- is reaped, so that a late heartbeat still counts. The answer carries the jobs that were asked to stop.
UPDATE job_claims AS k SET lease_expires_at = now() + make_interval(secs => @lease_seconds::float8)
WHERE k.id = ANY(ARRAY(
  SELECT c.id FROM job_claims AS c WHERE c.worker_id = @worker_id::bigint AND c.id = ANY(@claims::bigint[])
  ORDER BY c.id FOR NO KEY UPDATE))
RETURNING k.id, k.stops;

-- name: RegisterWorker :one
INSERT INTO workers (name, hostname, pid, version, queues, types, slots, lease_ms)
VALUES (@name, @hostname, @pid, @version, @queues, @types, @slots, @lease_ms)
RETURNING id;

-- name: BeatWorker :one
-- Answers how many claimers are alive, which the marks' margin needs. The row is put back if somebody removed it.
INSERT INTO workers AS w (id, name, hostname, pid, version, queues, types, slots, busy, stuck, lease_ms, state, done_per_minute, failed_lately) OVERRIDING SYSTEM VALUE
VALUES (@id, @name, @hostname, @pid, @version, @queues, @types, @slots, @busy, @stuck, @lease_ms, @state, @done_per_minute, @failed_lately)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = now(), busy = excluded.busy, stuck = excluded.stuck, state = excluded.state,
  done_per_minute = excluded.done_per_minute, failed_lately = excluded.failed_lately
RETURNING (SELECT count(*) FROM workers AS o WHERE o.state <> 'stopped' AND o.slots > 0
  AND o.heartbeat_at > now() - make_interval(secs => 60))::int AS live_workers;

-- name: StopWorker :exec
UPDATE workers AS w SET state = 'stopped', stopped_at = now(), heartbeat_at = now(), busy = 0 WHERE w.id = @id;

-- name: ForgetWorkers :execrows
-- Workers gone for a day leave the list; the trail keeps their ids.
DELETE FROM workers AS w WHERE w.heartbeat_at < now() - make_interval(secs => @keep_seconds::float8);

-- name: ReleaseUnknownClaims :many
-- After a claim whose answer was lost: the leases of this worker that it does not know go back, their attempts uncounted.
-- Only the claimer asks, between two claims. A job that was asked to stop meanwhile is cancelled.
WITH mine AS (
  DELETE FROM job_claims AS k WHERE k.id = ANY(ARRAY(
    SELECT c.id FROM job_claims AS c WHERE c.worker_id = @worker_id::bigint AND c.id <> ALL(@claims::bigint[])
    ORDER BY c.id FOR UPDATE SKIP LOCKED))
  RETURNING k.id, k.worker_id, k.claimed_at, k.job_ids, k.attempts, k.crashes, k.stops),
gone AS (
  SELECT m.id, m.worker_id, m.claimed_at, unnest(m.job_ids) AS job_id, unnest(m.attempts) AS attempt, unnest(m.crashes) AS crashes,
    coalesce(m.stops, '{}') AS stops
  FROM mine AS m),
closed AS (
  INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, attempt, outcome)
  SELECT g.job_id, g.id, g.worker_id, g.claimed_at, g.attempt + 1, CASE WHEN g.job_id = ANY(g.stops) THEN 5 ELSE 4 END
  FROM gone AS g ORDER BY g.job_id
  ON CONFLICT (job_id, fencing_token) DO NOTHING
  RETURNING e.job_id, e.fencing_token, e.outcome),
asked AS (
  DELETE FROM job_stop_requests AS s WHERE s.job_id = ANY(ARRAY(SELECT g.job_id FROM gone AS g WHERE g.job_id = ANY(g.stops)))),
moved AS (
  SELECT g.job_id, g.attempt, g.crashes, closed.outcome, j.queue, j.type, j.priority
  FROM closed JOIN gone AS g ON g.job_id = closed.job_id AND g.id = closed.fencing_token
  CROSS JOIN LATERAL (SELECT q.queue, q.type, q.priority FROM jobs AS q WHERE q.id = g.job_id OFFSET 0) AS j),
back AS (
  INSERT INTO job_ready (job_id, priority, attempt, crashes, queue, type)
  SELECT m.job_id, m.priority, m.attempt, m.crashes, m.queue, m.type FROM moved AS m WHERE m.outcome = 4)
SELECT m.job_id::uuid AS job_id, m.outcome::smallint AS outcome, m.queue::text AS queue, m.type::text AS type FROM moved AS m;
