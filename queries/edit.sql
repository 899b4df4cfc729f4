-- name: EditWaiting :one
-- absent is no answer: a job in flight between two places is seen in neither, so the caller reads the state and tries again
-- while it says it waits.
SELECT e.outcome::text AS outcome, coalesce(e.before, '{}')::jsonb AS before, coalesce(e.after, '{}')::jsonb AS after,
  coalesce(e.used, 0)::int AS used, coalesce(e.line, '')::text AS line, coalesce(e.later, false)::boolean AS later
FROM edit_waiting_job(@job_id::uuid, sqlc.narg('priority')::int, sqlc.narg('run_at')::timestamptz, sqlc.narg('max_attempts')::int,
  sqlc.narg('queue')::text, sqlc.narg('payload')::jsonb) AS e;
