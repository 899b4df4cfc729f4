-- name: PromoteDue :many
-- mark steps over the dead index entries of promoted rows; a pass with mark '-infinity' finds what was committed late.
WITH due AS (
  DELETE FROM job_scheduled AS s WHERE s.ctid = ANY(ARRAY(
    SELECT x.ctid FROM job_scheduled AS x WHERE x.run_at <= now() AND x.run_at > @mark::timestamptz
    ORDER BY x.run_at, x.job_id LIMIT @max_jobs::int FOR UPDATE SKIP LOCKED))
  RETURNING s.run_at, s.job_id, s.queue, s.type, s.priority, s.attempt, s.crashes)
INSERT INTO job_ready AS r (job_id, queue, type, priority, attempt, crashes, ready_at)
SELECT due.job_id, due.queue, due.type, due.priority, due.attempt, due.crashes, due.run_at FROM due ORDER BY due.run_at, due.job_id
RETURNING r.queue, r.ready_at;

-- name: NextDue :one
SELECT coalesce(extract(epoch FROM min(s.run_at) - clock_timestamp()), 1e9)::float8 AS seconds
FROM job_scheduled AS s WHERE s.run_at > @mark::timestamptz;
