-- name: PruneStep :one
-- One step of the walk over jobs in id order. A job goes when its last run completed or was cancelled longer ago than the
-- setting; what waits, runs or is dead is passed over, and so is what holds a unique key by its window, and what ended since
-- the oldest living lease was taken: that lease's end is told by the runs of its jobs. Answers where the walk stands and how
-- many went.
WITH page AS (
  SELECT j.id, j.unique_key FROM jobs AS j WHERE j.id > @after::uuid ORDER BY j.id LIMIT @max_jobs::int),
old AS (
  SELECT p.id FROM page AS p CROSS JOIN LATERAL (
    SELECT e.outcome, e.finished_at FROM job_executions AS e WHERE e.job_id = p.id ORDER BY e.fencing_token DESC LIMIT 1) AS e
  WHERE ((e.outcome = 1 AND e.finished_at < now() - make_interval(secs => @completed_seconds::float8))
      OR (e.outcome = 5 AND e.finished_at < now() - make_interval(secs => @cancelled_seconds::float8)))
    AND e.finished_at < coalesce((SELECT min(c.claimed_at) FROM job_claims AS c), 'infinity')
    AND (p.unique_key IS NULL OR coalesce((SELECT k.until FROM job_unique_keys AS k WHERE k.key = p.unique_key AND k.job_id = p.id) < now(), true))
    AND NOT EXISTS (SELECT 1 FROM job_ready AS r WHERE r.job_id = p.id)
    AND NOT EXISTS (SELECT 1 FROM job_scheduled AS s WHERE s.job_id = p.id)
    AND NOT EXISTS (SELECT 1 FROM job_held AS h WHERE h.job_id = p.id)
    AND NOT EXISTS (SELECT 1 FROM dead_letter_jobs AS d WHERE d.job_id = p.id)),
x AS (DELETE FROM job_executions AS e WHERE e.job_id = ANY(ARRAY(SELECT old.id FROM old))),
gone AS (DELETE FROM jobs AS j WHERE j.id = ANY(ARRAY(SELECT old.id FROM old)) RETURNING 1)
SELECT (SELECT count(*) FROM page)::int AS seen, (SELECT count(*) FROM gone)::int AS pruned,
  coalesce((SELECT p.id FROM page AS p ORDER BY p.id DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS last_id;

-- name: PruneDead :many
-- Dead letters past their time: discarded ones after restore_seconds, and, unless dead_seconds is negative, all older. What
-- holds a unique key by its window stays until that closes.
WITH d AS (
  DELETE FROM dead_letter_jobs AS x WHERE x.ctid = ANY(ARRAY(
    SELECT y.ctid FROM dead_letter_jobs AS y
    WHERE (y.discarded_at < now() - make_interval(secs => @restore_seconds::float8)
       OR (@dead_seconds::float8 >= 0 AND y.died_at < now() - make_interval(secs => @dead_seconds::float8)))
      AND y.died_at < coalesce((SELECT min(c.claimed_at) FROM job_claims AS c), 'infinity')
      AND coalesce((SELECT k.until FROM jobs AS j JOIN job_unique_keys AS k ON k.key = j.unique_key AND k.job_id = j.id
        WHERE j.id = y.job_id) < now(), true)
    LIMIT @max_jobs::int FOR UPDATE SKIP LOCKED))
  RETURNING x.job_id),
x AS (DELETE FROM job_executions AS e WHERE e.job_id = ANY(ARRAY(SELECT d.job_id FROM d))),
gone AS (DELETE FROM jobs AS j WHERE j.id = ANY(ARRAY(SELECT d.job_id FROM d)))
SELECT d.job_id FROM d;

-- name: PruneKeys :execrows
DELETE FROM idempotency_keys AS k WHERE k.ctid = ANY(ARRAY(
  SELECT y.ctid FROM idempotency_keys AS y WHERE y.expires_at < now() ORDER BY y.expires_at LIMIT @max_rows::int FOR UPDATE SKIP LOCKED));

-- name: PruneRefusedWrites :execrows
DELETE FROM refused_writes AS w WHERE w.ctid = ANY(ARRAY(
  SELECT y.ctid FROM refused_writes AS y WHERE y.at < now() - make_interval(secs => @keep_seconds::float8)
  ORDER BY y.at LIMIT @max_rows::int FOR UPDATE SKIP LOCKED));

-- name: PruneMinutes :execrows
DELETE FROM job_stats_minutes AS m WHERE m.ctid = ANY(ARRAY(
  SELECT y.ctid FROM job_stats_minutes AS y WHERE y.minute < now() - make_interval(secs => @keep_seconds::float8)
  ORDER BY y.minute LIMIT @max_rows::int FOR UPDATE SKIP LOCKED));

-- name: PruneAudit :one
-- The oldest acts, without a gap; the head keeps where the chain begins now. An act's instant is its transaction's, so that a
-- younger one may stand before an older: the first that is young enough ends the step.
WITH page AS (SELECT a.id, a.at FROM operator_actions AS a ORDER BY a.id LIMIT @max_rows::int),
young AS (SELECT min(p.id) AS id FROM page AS p WHERE p.at >= now() - make_interval(secs => @keep_seconds::float8)),
gone AS (
  DELETE FROM operator_actions AS a USING young
  WHERE a.id = ANY(ARRAY(SELECT p.id FROM page AS p)) AND a.id < coalesce(young.id, a.id + 1)
  RETURNING a.id, a.hash, a.at),
head AS (
  UPDATE operator_action_head AS h SET removed_id = g.id, removed_hash = g.hash, removed_until = greatest(h.removed_until, g.until)
  FROM (SELECT g.id, g.hash, (SELECT max(g.at) FROM gone AS g) AS until FROM gone AS g ORDER BY g.id DESC LIMIT 1) AS g)
SELECT count(*)::int FROM gone;

-- name: GetCursor :one
SELECT t.resume_after FROM maintenance_tasks AS t WHERE t.task = @task;

-- name: SetCursor :exec
INSERT INTO maintenance_tasks AS t (task, last_success_at, resume_after) VALUES (@task, now(), @resume_after)
ON CONFLICT (task) DO UPDATE SET last_success_at = now(), resume_after = excluded.resume_after;

-- name: ListExpired :many
-- One step over the jobs whose expires_at has passed, in that order; most have ended long ago.
SELECT j.id, j.expires_at::timestamptz AS expires_at FROM jobs AS j
WHERE j.expires_at < now() AND (j.expires_at, j.id) > (@after_at::timestamptz, @after_id::uuid)
ORDER BY j.expires_at, j.id LIMIT @max_jobs::int;

-- name: ExpireWaiting :many
-- Those of them that still wait become dead letters. One that runs meanwhile is caught by its next claim. Whether they
-- have expired is asked again: a replay since the list was read takes expires_at away.
WITH late AS (SELECT j.id FROM jobs AS j WHERE j.id = ANY(@job_ids::uuid[]) AND j.expires_at < now()),
r AS (DELETE FROM job_ready AS x WHERE x.job_id = ANY(ARRAY(SELECT late.id FROM late)) RETURNING x.job_id, x.attempt, x.crashes, x.queue, x.type),
s AS (DELETE FROM job_scheduled AS x WHERE x.job_id = ANY(ARRAY(SELECT late.id FROM late)) RETURNING x.job_id, x.attempt, x.crashes, x.queue, x.type),
h AS (DELETE FROM job_held AS x WHERE x.job_id = ANY(ARRAY(SELECT late.id FROM late)) RETURNING x.job_id, x.attempt, x.crashes, x.queue, x.type),
gone AS (SELECT * FROM r UNION ALL SELECT * FROM s UNION ALL SELECT * FROM h),
e AS (
  INSERT INTO job_executions AS e (job_id, fencing_token, attempt, outcome, error_class, error)
  SELECT gone.job_id, nextval('job_claims_id_seq'), gone.attempt, 8, 'expired', 'its expires_at passed before it could run' FROM gone
  RETURNING e.job_id, e.fencing_token)
INSERT INTO dead_letter_jobs AS d (job_id, fencing_token, discarded_at, attempt, crashes, queue, type, reason, error_class, error, fingerprint)
SELECT e.job_id, e.fencing_token, CASE WHEN @discard_dead::boolean THEN now() END, gone.attempt, gone.crashes, gone.queue, gone.type,
  'expired', 'expired', 'its expires_at passed before it could run', 'v1:expired:' || gone.type
FROM e JOIN gone ON gone.job_id = e.job_id
RETURNING d.job_id, d.queue, d.type;
