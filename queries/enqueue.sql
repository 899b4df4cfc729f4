-- name: EnqueueJob :one
-- The hot door: the job and its place in line, in one statement.
WITH j AS (
  INSERT INTO jobs (id, type, queue, priority, max_attempts, version, payload, expires_at, timeout_ms, tags, traceparent, copied_from,
    backoff)
  VALUES (@id, @type, @queue, @priority, @max_attempts, 1, @payload, @expires_at, @timeout_ms, @tags, @traceparent, @copied_from, @backoff))
INSERT INTO job_ready AS r (job_id, priority, queue, type) VALUES (@id, @priority, @queue, @type)
RETURNING r.ready_at;

-- name: EnqueueJobAt :one
-- The same with an instant or a delay, by the database's clock. One that has passed means now.
WITH t AS (
  SELECT coalesce(sqlc.narg('scheduled_at')::timestamptz, now() + make_interval(secs => @delay_seconds::float8)) AS run_at),
j AS (
  INSERT INTO jobs (id, type, queue, priority, max_attempts, version, payload, scheduled_at, expires_at, timeout_ms, tags, traceparent, copied_from,
    backoff)
  SELECT @id, @type, @queue, @priority, @max_attempts, 1, @payload, t.run_at, @expires_at, @timeout_ms, @tags, @traceparent, @copied_from,
    @backoff FROM t),
r AS (
  INSERT INTO job_ready (job_id, priority, queue, type)
  SELECT @id, @priority, @queue, @type FROM t WHERE t.run_at <= now()),
s AS (
  INSERT INTO job_scheduled (run_at, job_id, priority, queue, type)
  SELECT t.run_at, @id, @priority, @queue, @type FROM t WHERE t.run_at > now())
SELECT t.run_at::timestamptz AS run_at, now()::timestamptz AS created_at FROM t;

-- name: EnqueueKeyed :one
-- Every keyed enqueue, whichever door, goes through the function of the schema, so that all agree on what a repetition is.
SELECT e.job_id::uuid AS job_id, e.outcome::text AS outcome, e.run_at::timestamptz AS run_at, e.created_at::timestamptz AS created_at,
  coalesce(e.holder::text, '')::text AS holder
FROM enqueue_job_keyed(@id::uuid, @type::text, @payload::jsonb, @queue::text, @priority::int, sqlc.narg('scheduled_at')::timestamptz,
  sqlc.narg('delay_ms')::bigint, sqlc.narg('max_attempts')::int, @default_max_attempts::int, sqlc.narg('timeout_ms')::int,
  sqlc.narg('expires_at')::timestamptz, sqlc.narg('tags')::text[], sqlc.narg('idempotency_key')::text, @key_ttl_seconds::float8,
  sqlc.narg('traceparent')::text, @notify::boolean, sqlc.narg('copied_from')::uuid, sqlc.narg('unique_key')::text, @unique_scope::text,
  @unique_through::int, sqlc.narg('unique_window_seconds')::float8, @on_conflict::text,
  sqlc.narg('backoff')::jsonb, sqlc.narg('callback_url')::text) AS e;

-- name: CopyJobs :copyfrom
INSERT INTO jobs (id, type, queue, priority, max_attempts, version, payload, scheduled_at, expires_at, timeout_ms, tags, traceparent, copied_from,
  backoff)
VALUES (@id, @type, @queue, @priority, @max_attempts, @version, @payload, @scheduled_at, @expires_at, @timeout_ms, @tags, @traceparent, @copied_from,
  @backoff);

-- name: CopyReady :copyfrom
INSERT INTO job_ready (job_id, priority, queue, type) VALUES (@job_id, @priority, @queue, @type);

-- name: CopyScheduled :copyfrom
INSERT INTO job_scheduled (run_at, job_id, priority, queue, type) VALUES (@run_at, @job_id, @priority, @queue, @type);

-- name: Now :one
SELECT now()::timestamptz AS now;

-- name: Notify :exec
-- A hint, outside the enqueuing transaction. It loses nothing if it is lost, so its commit does not wait for the disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(@channel::text, @payload::text);

-- name: NotifyQueues :exec
SELECT set_config('synchronous_commit', 'off', true), pg_notify('jobs', q.queue) FROM unnest(@queues::text[]) AS q(queue);
