-- name: CallBack :many
-- Makes the callbacks of those of the jobs that have ended and are owed one. It stands in the transaction of the end, after
-- the statement that makes it, and fails for no callback: see the function.
SELECT c.job_id::uuid AS job_id, c.callback_id::uuid AS callback_id, c.queue::text AS queue
FROM call_back(@job_ids::uuid[], @max_attempts::int) AS c;

-- name: ListOwedCallbacks :many
-- One step of the walk over the jobs whose end is to be told; nearly all have not ended.
SELECT o.job_id FROM owed_callbacks AS o WHERE o.job_id > @after::uuid ORDER BY o.job_id LIMIT @max_rows::int;

-- name: ListFailedCallbacks :many
-- Those that could not be made, the one that waits longest first.
SELECT o.job_id FROM owed_callbacks AS o WHERE o.failed_at IS NOT NULL ORDER BY o.failed_at LIMIT @max_rows::int;

-- name: ForgetCallbacks :exec
-- What is owed for a job that is no more.
DELETE FROM owed_callbacks AS o
WHERE o.job_id = ANY(@job_ids::uuid[]) AND (SELECT j.version FROM jobs AS j WHERE j.id = o.job_id) IS NULL;
