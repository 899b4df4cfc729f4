-- name: SelectDead :execrows
-- The set of an operation on dead letters, in the order of their deaths. NULL leaves a condition out.
WITH d AS (
  SELECT x.job_id, x.died_at FROM dead_letter_jobs AS x
  WHERE x.discarded_at IS NULL AND x.died_at <= @cut_off::timestamptz
    AND (cardinality(@ids::uuid[]) = 0 OR x.job_id = ANY(@ids::uuid[]))
    AND (sqlc.narg('fingerprint')::text IS NULL OR x.fingerprint = sqlc.narg('fingerprint')::text)
    AND (sqlc.narg('type')::text IS NULL OR x.type = sqlc.narg('type')::text)
    AND (sqlc.narg('queue')::text IS NULL OR x.queue = sqlc.narg('queue')::text)
    AND (sqlc.narg('reason')::text IS NULL OR x.reason = sqlc.narg('reason')::text))
INSERT INTO operation_jobs (operation_id, n, job_id)
SELECT @operation_id::uuid, row_number() OVER (ORDER BY d.died_at, d.job_id), d.job_id FROM d;

-- name: SelectWaiting :execrows
-- The set of an operation on jobs that wait: all of them for a cancel, those that wait for their time for a run now. Jobs
-- made after the cut-off have higher ids.
WITH w AS (
  SELECT s.job_id, s.queue, s.type FROM job_scheduled AS s
  UNION ALL SELECT r.job_id, r.queue, r.type FROM job_ready AS r WHERE NOT @later_only::boolean
  UNION ALL SELECT h.job_id, h.queue, h.type FROM job_held AS h WHERE NOT @later_only::boolean),
x AS (
  SELECT w.job_id FROM w
  WHERE w.job_id < uuid_v7((@cut_off::timestamptz) + interval '1 millisecond')
    AND (cardinality(@ids::uuid[]) = 0 OR w.job_id = ANY(@ids::uuid[]))
    AND (sqlc.narg('type')::text IS NULL OR w.type = sqlc.narg('type')::text)
    AND (sqlc.narg('queue')::text IS NULL OR w.queue = sqlc.narg('queue')::text))
INSERT INTO operation_jobs (operation_id, n, job_id)
SELECT @operation_id::uuid, row_number() OVER (ORDER BY x.job_id), x.job_id FROM x;

-- name: ClearSelected :exec
DELETE FROM operation_jobs AS o WHERE o.operation_id = @operation_id;

-- name: CountSelected :many
-- What a set consists of, for the preview.
SELECT j.queue, j.type, count(*) AS n, min(j.created_at)::timestamptz AS oldest_at, (array_agg(o.job_id ORDER BY o.n))[1:3]::uuid[] AS samples
FROM operation_jobs AS o JOIN jobs AS j ON j.id = o.job_id WHERE o.operation_id = @operation_id
GROUP BY j.queue, j.type ORDER BY count(*) DESC, j.queue, j.type LIMIT @max_rows::int;

-- name: InsertOperation :exec
INSERT INTO operations (id, action, selection, cut_off, pace, per_minute, actor, source, reason, total, step)
VALUES (@id, @action, @selection, @cut_off, @pace, @per_minute, @actor, @source, @reason, @total, @step);

-- name: TakeOperation :one
-- The operation that is due the longest. Its row stays locked for the step, so that each step is made once, by any number
-- of servers.
SELECT o.*, now()::timestamptz AS now FROM operations AS o WHERE o.state = 'running' AND o.next_at <= now()
ORDER BY o.next_at LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: NextOperation :one
SELECT extract(epoch FROM min(o.next_at) - now())::float8 AS seconds FROM operations AS o WHERE o.state = 'running' HAVING count(*) > 0;

-- name: ListOperationJobs :many
SELECT o.n, o.job_id FROM operation_jobs AS o
WHERE o.operation_id = @operation_id AND o.n > @after_n::int AND o.n <= @up_to::int ORDER BY o.n;

-- name: NoteOperationJobs :exec
-- What was acted on, with its highest token before; the rest of the step had changed since the cut-off.
WITH acted AS (SELECT unnest(@job_ids::uuid[]) AS job_id)
UPDATE operation_jobs AS o SET
  acted_at = CASE WHEN a.job_id IS NOT NULL THEN now() END,
  token = CASE WHEN a.job_id IS NOT NULL THEN coalesce((
    SELECT e.fencing_token FROM job_executions AS e WHERE e.job_id = o.job_id ORDER BY e.fencing_token DESC LIMIT 1), 0) END,
  passed_over = a.job_id IS NULL
FROM operation_jobs AS x LEFT JOIN acted AS a ON a.job_id = x.job_id
WHERE x.operation_id = @operation_id AND x.n > @after_n::int AND x.n <= @up_to::int AND o.operation_id = x.operation_id AND o.n = x.n;

-- name: JudgeOperation :one
-- What came of the jobs of a step: the first run after the act that its handler or its process ended. A job that is dead
-- again has failed, however it died.
SELECT count(*)::int AS acted, count(*) FILTER (WHERE r.outcome IS NOT NULL OR d.job_id IS NOT NULL)::int AS judged,
  count(*) FILTER (WHERE r.outcome IN (2, 6, 7, 8, 9) OR r.outcome IS NULL AND d.job_id IS NOT NULL)::int AS failed
FROM operation_jobs AS o
LEFT JOIN LATERAL (
  SELECT e.outcome FROM job_executions AS e WHERE e.job_id = o.job_id AND e.fencing_token > o.token AND e.outcome NOT IN (3, 4)
  ORDER BY e.fencing_token LIMIT 1) AS r ON true
LEFT JOIN LATERAL (
  SELECT x.job_id FROM dead_letter_jobs AS x WHERE x.job_id = o.job_id AND x.fencing_token > o.token) AS d ON true
WHERE o.operation_id = @operation_id AND o.n > @after_n::int AND o.n <= @up_to::int AND o.acted_at IS NOT NULL;

-- name: AdvanceOperation :exec
UPDATE operations AS o SET done = o.done + (@done::int), passed_over = o.passed_over + (@passed_over::int), step = @step,
  step_from = @step_from, step_at = @step_at, next_at = now() + make_interval(secs => @wait_seconds::float8),
  state = CASE WHEN @finished::boolean THEN 'finished' ELSE o.state END, ended_at = CASE WHEN @finished::boolean THEN now() END
WHERE o.id = @id;

-- name: HaltOperation :exec
UPDATE operations AS o SET state = 'halted', halted_reason = @reason::text, version = o.version + 1 WHERE o.id = @id;

-- name: SteerOperation :execrows
-- Pause, continue or stop, by a person. No row says that it is in none of the states given. A
-- rate's next job stays as far from the last one as it was: else each continue would be one more.
UPDATE operations AS o SET state = @state, version = o.version + 1, ended_at = CASE WHEN @state::text = 'stopped' THEN now() END,
  halted_reason = NULL, next_at = now(), step_from = o.done + o.passed_over, step_at = CASE WHEN o.pace = 'rate'
    THEN greatest(now(), o.step_at + (o.done + o.passed_over - o.step_from) * interval '1 minute' / o.per_minute) ELSE now() END,
  step = CASE WHEN o.pace = 'canary' THEN @first_step::int ELSE o.step END
WHERE o.id = @id AND o.state = ANY(@from_states::text[]);

-- name: GetOperation :one
SELECT o.* FROM operations AS o WHERE o.id = @id;

-- name: ListOperations :many
SELECT o.* FROM operations AS o WHERE (o.created_at, o.id) < (@before_at::timestamptz, @before_id::uuid)
ORDER BY o.created_at DESC, o.id DESC LIMIT @max_rows::int;

-- name: ListOperationResults :many
-- The jobs of an operation that failed again, or were passed over, in its order.
SELECT o.n, o.job_id, o.passed_over, coalesce(r.outcome, 0)::smallint AS outcome, coalesce(r.error_class, '')::text AS error_class,
  left(coalesce(r.error, ''), 300)::text AS error, coalesce(r.finished_at, 'epoch')::timestamptz AS finished_at
FROM operation_jobs AS o
LEFT JOIN LATERAL (
  SELECT e.outcome, e.error_class, e.error, e.finished_at FROM job_executions AS e
  WHERE e.job_id = o.job_id AND e.fencing_token > o.token AND e.outcome NOT IN (3, 4) ORDER BY e.fencing_token LIMIT 1) AS r ON true
WHERE o.operation_id = @operation_id AND o.n > @after_n::int AND (o.passed_over OR r.outcome IN (2, 6, 7, 8, 9))
ORDER BY o.n LIMIT @max_rows::int;

-- name: RunNow :many
-- Jobs that wait for their time, or back off, enter the line now.
WITH due AS (DELETE FROM job_scheduled AS s WHERE s.job_id = ANY(@job_ids::uuid[])
  RETURNING s.job_id, s.queue, s.type, s.priority, s.attempt, s.crashes)
INSERT INTO job_ready AS r (job_id, queue, type, priority, attempt, crashes)
SELECT d.job_id, d.queue, d.type, d.priority, d.attempt, d.crashes FROM due AS d ORDER BY d.job_id
RETURNING r.job_id, r.queue, r.type;

-- name: IsDue :one
-- Whether a job waits for nothing but a worker.
SELECT (EXISTS (SELECT FROM job_ready AS r WHERE r.job_id = @job_id::uuid) OR EXISTS (SELECT FROM job_held AS h WHERE h.job_id = @job_id::uuid))::boolean AS due;

-- name: TouchJobs :exec
UPDATE jobs AS j SET version = j.version + 1 WHERE j.id = ANY(@ids::uuid[]);

-- name: ListStillDead :many
-- Those of a step that are dead as they were at the cut-off, locked in order of id.
SELECT d.job_id FROM dead_letter_jobs AS d
WHERE d.job_id = ANY(@job_ids::uuid[]) AND d.discarded_at IS NULL AND d.died_at <= @cut_off::timestamptz
ORDER BY d.job_id FOR UPDATE;

-- name: ListKeyed :many
-- Those of a step that have a unique key.
SELECT j.id FROM jobs AS j WHERE j.id = ANY(@ids::uuid[]) AND j.unique_key IS NOT NULL ORDER BY j.id;
