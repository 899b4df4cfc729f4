-- name: CompleteJobs :many
-- The fast path: plain successes. SQLSTATE 23505 says that someone closed one of them first: run CloseJobs instead,
-- which asks and costs an eighth more. What does not come back had lost its lease: its result must be thrown away.
-- whole: all of them or none. Nothing comes back then, and SQLSTATE 22012 (there is no other way to raise one without a
-- function) says that one could not be closed: the transaction, with the statistics that count on it, did not happen.
WITH live AS MATERIALIZED (
  SELECT k.id, k.claimed_at FROM job_claims AS k
  WHERE k.id = ANY(@claims::bigint[]) AND k.worker_id = @worker_id::bigint ORDER BY k.id FOR KEY SHARE),
x AS (
  SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@tokens::bigint[]) AS token, unnest(@attempts::smallint[]) AS attempt,
    unnest(@started_at::timestamptz[]) AS started_at, unnest(@wait_ms::int[]) AS wait_ms),
closed AS (
  INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, started_at, wait_ms, attempt, outcome)
  SELECT x.job_id, x.token, @worker_id::bigint, live.claimed_at, x.started_at, x.wait_ms, x.attempt, 1
  FROM x JOIN live ON live.id = x.token
  RETURNING e.job_id, e.fencing_token)
SELECT c.job_id, c.fencing_token FROM closed AS c WHERE NOT @whole::boolean
UNION ALL
SELECT NULL, NULL WHERE CASE WHEN @whole::boolean THEN
  1 / ((SELECT count(*) FROM closed) = cardinality(@job_ids::uuid[]))::int = 0 ELSE false END;

-- name: CloseJobs :many
-- Everything but a plain success. Only what this statement itself closed moves on, so that a run ends once whoever comes
-- first. next is where the job goes: '' (nowhere: it has ended), ready, scheduled, or a dead letter's reason. attempts
-- are the run's own number; carried is the count the job takes along. An empty text stands for NULL. A job that was asked
-- to stop and did not complete is cancelled, whatever its handler made of it. FOR SHARE, since a stop request must be seen
-- that committed while this waited for the lock: FOR KEY SHARE reads the lease as it was before an update.
-- whole: as in CompleteJobs, and each with the outcome that was told.
WITH live AS MATERIALIZED (
  SELECT k.id, k.claimed_at, k.stops FROM job_claims AS k
  WHERE k.id = ANY(@claims::bigint[]) AND k.worker_id = @worker_id::bigint ORDER BY k.id FOR SHARE),
ends AS (
  SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@tokens::bigint[]) AS token, unnest(@attempts::smallint[]) AS attempt,
    unnest(@carried::smallint[]) AS carried, unnest(@crashes::smallint[]) AS crashes, unnest(@started::boolean[]) AS started,
    unnest(@started_at::timestamptz[]) AS started_at, unnest(@wait_ms::int[]) AS wait_ms, unnest(@outcomes::smallint[]) AS outcome,
    unnest(@next::text[]) AS next, unnest(@delay_seconds::float8[]) AS delay_seconds, unnest(@classes::text[]) AS error_class,
    unnest(@errors::text[]) AS error, unnest(@stacks::text[]) AS stack, unnest(@fingerprints::text[]) AS fingerprint,
    unnest(@logs::text[]) AS logs, unnest(@results::text[]) AS result, unnest(@progress::real[]) AS progress,
    unnest(@progress_texts::text[]) AS progress_text),
x AS (
  SELECT live.claimed_at, y.*, coalesce(y.job_id = ANY(live.stops), false) AS asked,
    (y.outcome <> 1 AND coalesce(y.job_id = ANY(live.stops), false)) AS stopped
  FROM ends AS y JOIN live ON live.id = y.token),
closed AS (
  INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, started_at, wait_ms, attempt, outcome, error_class,
    error, stack, fingerprint, logs, result, progress, progress_text)
  SELECT x.job_id, x.token, @worker_id::bigint, x.claimed_at, CASE WHEN x.started THEN x.started_at END,
    CASE WHEN x.started THEN x.wait_ms END, x.attempt, CASE WHEN x.stopped THEN 5 ELSE x.outcome END, nullif(x.error_class, ''),
    nullif(x.error, ''), nullif(x.stack, ''), CASE WHEN NOT x.stopped THEN nullif(x.fingerprint, '') END, nullif(x.logs, '')::jsonb,
    nullif(x.result, '')::jsonb, CASE WHEN x.progress >= 0 THEN x.progress END, nullif(x.progress_text, '')
  FROM x ORDER BY x.job_id
  ON CONFLICT (job_id, fencing_token) DO NOTHING
  RETURNING e.job_id, e.fencing_token, e.outcome),
asked AS (
  DELETE FROM job_stop_requests AS s WHERE s.job_id = ANY(ARRAY(
    SELECT x.job_id FROM closed JOIN x ON x.job_id = closed.job_id AND x.token = closed.fencing_token WHERE x.asked))),
moved AS (
  SELECT x.*, j.queue, j.type, j.priority
  FROM closed JOIN x ON x.job_id = closed.job_id AND x.token = closed.fencing_token AND NOT x.stopped
  CROSS JOIN LATERAL (SELECT q.queue, q.type, q.priority FROM jobs AS q WHERE q.id = x.job_id OFFSET 0) AS j),
later AS (
  INSERT INTO job_scheduled (run_at, job_id, priority, attempt, crashes, failed, queue, type)
  SELECT now() + make_interval(secs => m.delay_seconds), m.job_id, m.priority, m.carried, m.crashes, m.outcome IN (2, 9), m.queue, m.type
  FROM moved AS m WHERE m.next = 'scheduled'),
again AS (
  INSERT INTO job_ready (job_id, priority, attempt, crashes, queue, type)
  SELECT m.job_id, m.priority, m.carried, m.crashes, m.queue, m.type FROM moved AS m WHERE m.next = 'ready'),
dead AS (
  INSERT INTO dead_letter_jobs (job_id, fencing_token, discarded_at, attempt, crashes, queue, type, reason, error_class, error, stack,
    fingerprint, worker)
  SELECT m.job_id, m.token, CASE WHEN @discard_dead::boolean THEN now() END, m.carried, m.crashes, m.queue, m.type, m.next,
    nullif(m.error_class, ''), nullif(m.error, ''), nullif(m.stack, ''), m.fingerprint, @worker::jsonb
  FROM moved AS m WHERE m.next IN ('exhausted', 'permanent', 'poison', 'expired'))
SELECT c.job_id, c.fencing_token, c.outcome FROM closed AS c WHERE NOT @whole::boolean
UNION ALL
SELECT NULL, NULL, NULL WHERE CASE WHEN @whole::boolean THEN
  1 / ((SELECT count(*) FROM closed AS c JOIN ends AS y ON y.job_id = c.job_id AND y.token = c.fencing_token AND y.outcome = c.outcome)
    = cardinality(@job_ids::uuid[]))::int = 0 ELSE false END;

-- name: DropClosedClaims :many
-- Never waits, never drops a claim with an open job; what it skips is tried again with the next finish. The check is a
-- scalar subquery on purpose: as an anti-join, planned while job_executions is empty, it reads that table whole a batch.
DELETE FROM job_claims AS k WHERE k.id = ANY(ARRAY(
    SELECT c.id FROM job_claims AS c WHERE c.id = ANY(@claims::bigint[]) AND c.worker_id = @worker_id::bigint
    ORDER BY c.id FOR UPDATE SKIP LOCKED))
  AND NOT EXISTS (
    SELECT 1 FROM unnest(k.job_ids) AS u(job_id) WHERE (
      SELECT e.outcome FROM job_executions AS e WHERE e.job_id = u.job_id AND e.fencing_token = k.id) IS NULL)
RETURNING k.id;

-- name: AddStats :exec
-- One row per batch, type and outcome; the leader folds them into minutes.
INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms, wait_buckets, run_buckets)
VALUES (@queue, @type, @outcome, @n, @run_ms, @wait_buckets, @run_buckets);

-- name: RefuseWrites :exec
-- Evidence of writes that came too late: what token they held and which one is current.
INSERT INTO refused_writes (job_id, token_held, token_current, worker_id, operation, tried)
SELECT x.job_id, x.token, (SELECT s.fencing_token FROM job_states AS s WHERE s.id = x.job_id), @worker_id::bigint, x.operation,
  nullif(x.tried, '')::jsonb
FROM (SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@tokens::bigint[]) AS token, unnest(@operations::text[]) AS operation,
        unnest(@tried::text[]) AS tried) AS x;

-- name: CompleteJobInTx :one
-- CompleteTx: closes one run inside the handler's transaction, and counts it there: the worker may die before it could.
-- KEY SHARE leaves heartbeats and the other finishes of the batch alone; 0 is the answer that the lease is lost.
WITH closed AS (
INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, started_at, wait_ms, attempt, outcome, logs, result,
  progress, progress_text)
SELECT @job_id::uuid, k.id, k.worker_id, k.claimed_at, @started_at::timestamptz, @wait_ms::int, @attempt::smallint, 1,
  nullif(@logs::text, '')::jsonb, nullif(@result::text, '')::jsonb, CASE WHEN @progress::real >= 0 THEN @progress::real END,
  nullif(@progress_text::text, '')
FROM (SELECT c.id, c.worker_id, c.claimed_at FROM job_claims AS c
      WHERE c.id = @token::bigint AND @job_id::uuid = ANY(c.job_ids) FOR KEY SHARE) AS k
ON CONFLICT (job_id, fencing_token) DO NOTHING
RETURNING e.job_id),
counted AS (
  INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms, wait_buckets, run_buckets)
  SELECT @queue::text, @type::text, 1, 1, @run_ms::bigint, @wait_buckets::int[], @run_buckets::int[] FROM closed)
SELECT count(*) FROM closed;

-- name: GetExecutionOutcome :one
SELECT e.outcome FROM job_executions AS e WHERE e.job_id = @job_id AND e.fencing_token = @token;

-- name: ListOutcomes :many
-- How runs of this worker were closed: tells a write that was repeated after a lost answer from one that was refused.
SELECT e.job_id, e.fencing_token, e.outcome FROM (
  SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@tokens::bigint[]) AS token) AS x
CROSS JOIN LATERAL (
  SELECT o.job_id, o.fencing_token, o.outcome FROM job_executions AS o
  WHERE o.job_id = x.job_id AND o.fencing_token = x.token AND o.worker_id = @worker_id::bigint OFFSET 0) AS e;
