-- name: TakeUniqueKey :one
-- A replay takes its key again, since it means enqueue. No row: the job has none.
SELECT t.outcome::text AS outcome, coalesce(t.holder, '00000000-0000-0000-0000-000000000000')::uuid AS holder
FROM jobs AS j CROSS JOIN LATERAL take_unique_key(j.unique_key, j.id, NULL) AS t
WHERE j.id = @job_id AND j.unique_key IS NOT NULL;

-- name: SweepUniqueKeys :one
-- One step of the walk over the keys: those that no job holds any more go. They were free before; this keeps the table
-- small. A job that runs and holds its key only while it waits may come back to wait. Who is taking a key is not waited for.
WITH page AS (
  SELECT k.key, k.hold, k.job_id, k.until FROM job_unique_keys AS k WHERE k.key > @after::bytea ORDER BY k.key LIMIT @max_rows::int),
gone AS (
  DELETE FROM job_unique_keys AS d WHERE d.ctid = ANY(ARRAY(
    SELECT y.ctid FROM page AS p JOIN job_unique_keys AS y ON y.key = p.key AND y.hold = p.hold
    WHERE NOT holds_unique_key(p.job_id, p.until)
      AND coalesce((SELECT s.state FROM job_states AS s WHERE s.id = p.job_id), '') <> 'leased'
    FOR UPDATE OF y SKIP LOCKED))
  RETURNING 1)
SELECT (SELECT count(*) FROM page)::int AS seen, (SELECT count(*) FROM gone)::int AS swept,
  coalesce((SELECT p.key FROM page AS p ORDER BY p.key DESC LIMIT 1), '')::bytea AS last_key;
