-- name: CancelWaiting :many
-- Takes a token of its own, so that "closed by its last execution" stays true. No row is no answer: a job in flight
-- between two places is seen in neither, so the caller reads the state and tries again while it says it waits.
WITH r AS (DELETE FROM job_ready AS x WHERE x.job_id = ANY(@job_ids::uuid[]) RETURNING x.job_id, x.attempt),
s AS (DELETE FROM job_scheduled AS x WHERE x.job_id = ANY(@job_ids::uuid[]) RETURNING x.job_id, x.attempt),
h AS (DELETE FROM job_held AS x WHERE x.job_id = ANY(@job_ids::uuid[]) RETURNING x.job_id, x.attempt),
gone AS (SELECT * FROM r UNION ALL SELECT * FROM s UNION ALL SELECT * FROM h)
INSERT INTO job_executions AS e (job_id, fencing_token, attempt, outcome)
SELECT gone.job_id, nextval('job_claims_id_seq'), gone.attempt, 5 FROM gone
RETURNING e.job_id, e.fencing_token;

-- name: ReplayDead :many
-- Only one of many replays gets the row back. Attempts and crashes begin anew; history and tokens go on. The next end is told
-- like the last.
WITH d AS (
  DELETE FROM dead_letter_jobs AS x WHERE x.job_id = ANY(@job_ids::uuid[]) AND x.discarded_at IS NULL RETURNING x.job_id),
u AS (
  UPDATE jobs AS j SET replays = coalesce(j.replays, 0) + 1, expires_at = NULL FROM d WHERE j.id = d.job_id
  RETURNING j.id, j.queue, j.type, j.priority, j.replays, j.callback_url),
o AS (
  INSERT INTO owed_callbacks (job_id) SELECT u.id FROM u WHERE u.callback_url IS NOT NULL ON CONFLICT (job_id) DO NOTHING)
INSERT INTO job_ready AS r (job_id, queue, type, priority) SELECT u.id, u.queue, u.type, u.priority FROM u
RETURNING r.job_id, r.queue, r.type;

-- name: DiscardDead :many
UPDATE dead_letter_jobs AS d SET discarded_at = now() WHERE d.job_id = ANY(@job_ids::uuid[]) AND d.discarded_at IS NULL
RETURNING d.job_id, d.queue, d.type;

-- name: RestoreDead :many
UPDATE dead_letter_jobs AS d SET discarded_at = NULL WHERE d.job_id = ANY(@job_ids::uuid[]) AND d.discarded_at IS NOT NULL
RETURNING d.job_id, d.queue, d.type;

-- name: TouchJob :execrows
-- The last statement of an act: the row's version rises, and no row says that somebody acted on the job since the caller
-- looked. 0 stands for a caller who did not look.
UPDATE jobs AS j SET version = j.version + 1 WHERE j.id = @id AND @seen::int IN (0, j.version);

-- name: RecordAction :one
SELECT record_operator_action(@actor::text, @source::text, @action::text, @target_kind::text, @target::text, sqlc.narg('reason')::text,
  sqlc.narg('before')::jsonb, sqlc.narg('after')::jsonb, @affected::int, sqlc.narg('request_id')::text, sqlc.narg('address')::text)::bigint AS id;

-- name: GetJobState :one
SELECT s.id, coalesce(s.state, '')::text AS state, s.attempt, s.fencing_token, coalesce(j.replays, 0)::int AS replays,
  (s.discarded_at IS NOT NULL)::boolean AS discarded
FROM job_states AS s JOIN jobs AS j ON j.id = s.id WHERE s.id = @id;
