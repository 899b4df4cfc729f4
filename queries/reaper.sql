-- name: ReapClaims :many
-- Expired leases: their open jobs go back to ready as suspects, or are buried once they were lost crash_limit + 1 times.
-- It needs columns only: neither the worker's row nor the job's handler. Which jobs are open is asked by the insert, not
-- by a look before it, whose snapshot is older than the lock it got. Nothing is reaped right after the server's start, once
-- another leads (this one stood still meanwhile), nor where the clock is past not_after: it was moved, and the living must
-- renew first. A job that was asked to stop is cancelled. What the lost runs had told of themselves goes along. A worker
-- that has renewed its row since the lease's end lived on: the jobs did not end it, and are no suspects for it. A call takes
-- whole leases, until they hold max_jobs: however large they are, each commits soon, and what it took back stays so.
WITH dead AS (
  DELETE FROM job_claims AS k WHERE k.ctid = ANY(ARRAY(
    SELECT x.ctid FROM (
      SELECT y.ctid, sum(cardinality(y.job_ids)) OVER (ORDER BY y.id) - cardinality(y.job_ids) AS jobs_before FROM (
        SELECT c.ctid, c.id, c.job_ids FROM job_claims AS c WHERE c.lease_expires_at < now()
          AND now() - pg_postmaster_start_time() NOT BETWEEN interval '0' AND make_interval(secs => @quiet_seconds::float8)
          AND now() < coalesce(sqlc.narg('not_after')::timestamptz, 'infinity')
          AND NOT EXISTS (SELECT 1 FROM leaders AS l WHERE l.role = 'maintenance' AND l.worker_id <> @leader::bigint AND l.expires_at > now())
        ORDER BY c.id LIMIT 100 FOR UPDATE SKIP LOCKED) AS y) AS x
    WHERE x.jobs_before < @max_jobs::int))
  RETURNING k.id, k.worker_id, k.claimed_at, k.lease_expires_at, k.job_ids, k.attempts, k.crashes, k.stops,
    (SELECT w.state <> 'stopped' AND w.heartbeat_at > k.lease_expires_at FROM workers AS w WHERE w.id = k.worker_id) IS TRUE AS lived),
told AS (
  DELETE FROM job_live AS l WHERE l.fencing_token = ANY(ARRAY(SELECT d.id FROM dead AS d))
  RETURNING l.fencing_token, l.job_id, l.progress, l.progress_text, l.logs),
gone AS (
  SELECT d.id, d.worker_id, d.claimed_at, d.lease_expires_at, unnest(d.job_ids) AS job_id, unnest(d.attempts) AS attempt,
    unnest(d.crashes) AS crashes, coalesce(d.stops, '{}') AS stops, d.lived FROM dead AS d),
closed AS (
  INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, attempt, outcome, error_class, error, logs,
    progress, progress_text)
  SELECT g.job_id, g.id, g.worker_id, g.claimed_at, g.attempt + 1, CASE WHEN g.job_id = ANY(g.stops) THEN 5 ELSE 6 END, 'lease_expired',
    CASE WHEN g.lived THEN 'the lease expired while its worker lived on' ELSE 'the worker stopped renewing the lease' END, t.logs, t.progress, t.progress_text
  FROM gone AS g LEFT JOIN told AS t ON t.fencing_token = g.id AND t.job_id = g.job_id ORDER BY g.job_id
  ON CONFLICT (job_id, fencing_token) DO NOTHING
  RETURNING e.job_id, e.fencing_token, e.outcome),
asked AS (
  DELETE FROM job_stop_requests AS s WHERE s.job_id = ANY(ARRAY(SELECT g.job_id FROM gone AS g WHERE g.job_id = ANY(g.stops)))),
moved AS (
  SELECT g.id, g.worker_id, g.lease_expires_at, g.job_id, g.attempt, (g.crashes + CASE WHEN g.lived THEN 0 ELSE 1 END)::smallint AS crashes, j.queue, j.type, j.priority,
    closed.outcome
  FROM closed JOIN gone AS g ON g.job_id = closed.job_id AND g.id = closed.fencing_token
  CROSS JOIN LATERAL (SELECT q.queue, q.type, q.priority FROM jobs AS q WHERE q.id = g.job_id OFFSET 0) AS j),
back AS (
  INSERT INTO job_ready (job_id, queue, type, priority, attempt, crashes)
  SELECT m.job_id, m.queue, m.type, m.priority, m.attempt, m.crashes FROM moved AS m WHERE m.outcome = 6 AND m.crashes <= @crash_limit::int),
buried AS (
  INSERT INTO dead_letter_jobs (job_id, fencing_token, discarded_at, queue, type, attempt, crashes, reason, error_class, error, fingerprint, worker)
  SELECT m.job_id, m.id, CASE WHEN @discard_dead::boolean THEN now() END, m.queue, m.type, m.attempt, m.crashes, 'poison', 'lease_expired',
    format('quarantined: %s runs in a row were lost with their process', m.crashes), 'v1:lost:' || m.type,
    (SELECT jsonb_build_object('id', w.id::text, 'name', w.name, 'hostname', w.hostname, 'pid', w.pid, 'version', w.version)
     FROM workers AS w WHERE w.id = m.worker_id)
  FROM moved AS m WHERE m.outcome = 6 AND m.crashes > @crash_limit::int)
SELECT m.job_id::uuid AS job_id, m.id AS token, m.worker_id, m.lease_expires_at, m.queue::text AS queue, m.type::text AS type,
  m.attempt::smallint AS attempt, m.crashes::smallint AS crashes, m.outcome FROM moved AS m;

-- name: StatementTimeout :exec
-- How long each statement of this transaction may take, in milliseconds.
SELECT set_config('statement_timeout', @ms::text, true);

-- name: Lead :one
-- Takes or renews leadership; term 0 says that another leads. term rises with each change of hands. An end further ahead
-- than any term is one that was written before the clock was set back. now is for the watch on that clock.
WITH up AS (
  INSERT INTO leaders AS l (role, worker_id, expires_at) VALUES (@role, @worker_id, now() + make_interval(secs => @lease_seconds::float8))
  ON CONFLICT (role) DO UPDATE SET
    worker_id = excluded.worker_id, expires_at = excluded.expires_at,
    term = CASE WHEN l.worker_id = excluded.worker_id THEN l.term ELSE l.term + 1 END,
    acquired_at = CASE WHEN l.worker_id = excluded.worker_id THEN l.acquired_at ELSE now() END
  WHERE l.worker_id = excluded.worker_id OR l.expires_at < now() OR l.expires_at > now() + interval '1 min'
  RETURNING l.term)
SELECT coalesce((SELECT up.term FROM up), 0)::bigint AS term, now()::timestamptz AS now;

-- name: ShortenLeases :execrows
-- Leases that end later than two of their worker's would: they were written before the clock was set back. The living
-- renew theirs at the next heartbeat; those of the dead would else be waited for as long as the clock was set back.
UPDATE job_claims AS k SET lease_expires_at = now() + make_interval(secs => x.lease_seconds)
FROM (SELECT c.id, t.lease_seconds FROM job_claims AS c
      CROSS JOIN LATERAL (SELECT coalesce((SELECT w.lease_ms FROM workers AS w WHERE w.id = c.worker_id) / 1000.0,
        @lease_seconds::float8)::float8 AS lease_seconds OFFSET 0) AS t
      WHERE c.lease_expires_at > now() + make_interval(secs => 2 * t.lease_seconds)
      ORDER BY c.id FOR UPDATE OF c SKIP LOCKED) AS x
WHERE k.id = x.id;

-- name: Resign :exec
-- Hands leadership over at once, instead of after its end.
UPDATE leaders AS l SET expires_at = now() WHERE l.role = @role AND l.worker_id = @worker_id;

-- name: NoteTask :exec
INSERT INTO maintenance_tasks AS t (task, last_success_at) VALUES (@task, now())
ON CONFLICT (task) DO UPDATE SET last_success_at = now();

-- name: FoldStats :execrows
-- Deltas of finished batches into minutes. Buckets are summed place by place.
WITH d AS (
  DELETE FROM job_stats_deltas AS x WHERE x.ctid = ANY(ARRAY(
    SELECT y.ctid FROM job_stats_deltas AS y LIMIT @max_rows::int FOR UPDATE SKIP LOCKED))
  RETURNING x.*),
m AS (
  SELECT date_trunc('minute', d.at) AS minute, d.queue, d.type, d.outcome, sum(d.n)::bigint AS n, sum(d.run_ms)::bigint AS run_ms,
    sum_buckets(d.wait_buckets::bigint[]) AS wait_buckets, sum_buckets(d.run_buckets::bigint[]) AS run_buckets
  FROM d GROUP BY 1, 2, 3, 4)
INSERT INTO job_stats_minutes AS t (minute, queue, type, outcome, n, run_ms, wait_buckets, run_buckets)
SELECT m.minute, m.queue, m.type, m.outcome, m.n, m.run_ms, m.wait_buckets::bigint[], m.run_buckets::bigint[] FROM m
ORDER BY m.minute, m.queue, m.type, m.outcome
ON CONFLICT (minute, queue, type, outcome) DO UPDATE SET
  n = t.n + excluded.n, run_ms = t.run_ms + excluded.run_ms,
  wait_buckets = add_buckets(t.wait_buckets, excluded.wait_buckets),
  run_buckets = add_buckets(t.run_buckets, excluded.run_buckets);
