-- name: FlushLive :many
-- What runs that go on have to tell, a statement a worker and second. Guarded as every write of a run: by its lease and by
-- its not having ended. What does not come back was refused.
WITH held AS MATERIALIZED (
  SELECT k.id FROM job_claims AS k
  WHERE k.id = ANY(@claims::bigint[]) AND k.worker_id = @worker_id::bigint ORDER BY k.id FOR KEY SHARE),
x AS (
  SELECT unnest(@tokens::bigint[]) AS token, unnest(@job_ids::uuid[]) AS job_id, unnest(@progress::real[]) AS progress,
    unnest(@progress_texts::text[]) AS progress_text, unnest(@logs::text[]) AS logs)
INSERT INTO job_live AS l (fencing_token, job_id, progress, progress_text, logs)
SELECT x.token, x.job_id, CASE WHEN x.progress >= 0 THEN x.progress END, nullif(x.progress_text, ''), nullif(x.logs, '')::jsonb
FROM x JOIN held ON held.id = x.token
WHERE (SELECT e.outcome FROM job_executions AS e WHERE e.job_id = x.job_id AND e.fencing_token = x.token) IS NULL
ORDER BY x.token, x.job_id
ON CONFLICT (fencing_token, job_id) DO UPDATE SET progress = excluded.progress, progress_text = excluded.progress_text,
  logs = excluded.logs, updated_at = now()
RETURNING l.job_id, l.fencing_token;

-- name: DropLive :exec
-- With the end of runs that had flushed something, in its transaction.
DELETE FROM job_live AS l WHERE (l.fencing_token, l.job_id) IN (SELECT unnest(@tokens::bigint[]), unnest(@job_ids::uuid[]));

-- name: SweepLive :execrows
-- Leftovers: flushed by a worker that was revoked, or whose run CompleteTx or complete_job ended. A minute is waited, so
-- that nobody's end is in flight.
DELETE FROM job_live AS l WHERE l.ctid = ANY(ARRAY(
  SELECT y.ctid FROM job_live AS y WHERE y.updated_at < now() - make_interval(secs => @seconds::float8)
    AND ((SELECT e.outcome FROM job_executions AS e WHERE e.job_id = y.job_id AND e.fencing_token = y.fencing_token) IS NOT NULL
      OR (SELECT c.id FROM job_claims AS c WHERE c.id = y.fencing_token) IS NULL)
  LIMIT @max_rows::int FOR UPDATE SKIP LOCKED));

-- name: GetLive :one
SELECT coalesce(l.progress, -1)::real AS progress, coalesce(l.progress_text, '')::text AS progress_text, l.logs, l.updated_at FROM job_live AS l
WHERE l.fencing_token = @token AND l.job_id = @job_id;

-- name: GetRunProgress :one
SELECT coalesce(e.progress, -1)::real AS progress, coalesce(e.progress_text, '')::text AS progress_text FROM job_executions AS e
WHERE e.job_id = @job_id AND e.fencing_token = @token;
