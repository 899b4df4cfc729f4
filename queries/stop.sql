-- name: MarkStop :one
-- Marks a run in its lease, where every closer of it looks. It waits for closers that hold the lease FOR SHARE, and they
-- for it; a CompleteTx, which may stay open, is not in the way: what completes in time has completed.
UPDATE job_claims AS k SET stops = array_append(coalesce(k.stops, '{}'), @job_id::uuid)
WHERE k.id = @token::bigint AND @job_id::uuid = ANY(k.job_ids) AND NOT @job_id::uuid = ANY(coalesce(k.stops, '{}'))
RETURNING k.worker_id;

-- name: NoteStopRequest :exec
-- A row of an earlier run of this job is a leftover.
INSERT INTO job_stop_requests AS s (job_id, fencing_token, worker_id, actor, reason)
VALUES (@job_id, @fencing_token, @worker_id, @actor, @reason)
ON CONFLICT (job_id) DO UPDATE SET fencing_token = excluded.fencing_token, worker_id = excluded.worker_id, requested_at = now(),
  actor = excluded.actor, reason = excluded.reason;

-- name: IsStopMarked :one
SELECT EXISTS (SELECT 1 FROM job_claims AS k WHERE k.id = @token::bigint AND @job_id::uuid = ANY(k.stops))::boolean AS marked;

-- name: ListOverdueStops :many
-- Requests that no worker has answered, and those whose run has ended otherwise.
SELECT s.job_id, s.fencing_token FROM job_stop_requests AS s
WHERE s.requested_at < now() - make_interval(secs => @seconds::float8) ORDER BY s.requested_at LIMIT @max_rows::int;

-- name: LockClaim :one
-- Revoke, first step: FOR UPDATE waits for a finish in flight and for flushes, so that the second step, with a snapshot
-- of its own, sees what they wrote. Give it a lock_timeout, since a CompleteTx may stay open.
SELECT k.id FROM job_claims AS k WHERE k.id = @token::bigint FOR UPDATE;

-- name: RevokeJob :many
-- Revoke, second step: one job out of a batch. The rest of the lease lives on.
WITH live AS (
  SELECT k.id, k.worker_id, k.claimed_at, k.attempts[array_position(k.job_ids, @job_id::uuid)] AS attempt FROM job_claims AS k
  WHERE k.id = @token::bigint AND @job_id::uuid = ANY(k.job_ids)),
told AS (
  DELETE FROM job_live AS l WHERE l.fencing_token = @token::bigint AND l.job_id = @job_id::uuid
  RETURNING l.progress, l.progress_text, l.logs),
closed AS (
  INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, attempt, outcome, error_class, error, logs, progress, progress_text)
  SELECT @job_id::uuid, live.id, live.worker_id, live.claimed_at, live.attempt + 1, 5, 'stopped', @error::text, t.logs, t.progress, t.progress_text
  FROM live LEFT JOIN told AS t ON true
  ON CONFLICT (job_id, fencing_token) DO NOTHING
  RETURNING e.job_id, e.fencing_token, e.worker_id, e.attempt)
SELECT closed.job_id, closed.fencing_token, coalesce(closed.worker_id, 0)::bigint AS worker_id, closed.attempt, j.queue::text AS queue, j.type::text AS type
FROM closed CROSS JOIN LATERAL (SELECT q.queue, q.type FROM jobs AS q WHERE q.id = closed.job_id OFFSET 0) AS j;

-- name: DropStopRequest :exec
DELETE FROM job_stop_requests AS s WHERE s.job_id = @job_id AND s.fencing_token = @token;

-- name: LimitLockWait :exec
-- For this transaction alone.
SELECT set_config('lock_timeout', '1s', true);

-- name: GetStopRequest :one
SELECT s.requested_at, s.actor, coalesce(s.reason, '')::text AS reason FROM job_stop_requests AS s
WHERE s.job_id = @job_id AND s.fencing_token = @token;
