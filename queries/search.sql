-- name: SearchFacts :many
-- What a query of the search language is held against, for a stretch of jobs. What is costly is read only if it is wanted.
-- A finished job's place is its last run's; a discarded dead letter has none.
SELECT j.id, j.type, j.queue, j.priority, j.created_at, coalesce(j.tags, '{}')::text[] AS tags,
  coalesce(s.place, '')::text AS place, coalesce(s.attempt, 0)::smallint AS attempt,
  coalesce(e.finished_at, 'epoch')::timestamptz AS finished_at, coalesce(e.run_seconds, c.run_seconds, -1)::float8 AS run_seconds,
  coalesce(s.wait_seconds, e.wait_seconds, -1)::float8 AS wait_seconds,
  coalesce(w.names, '{}')::text[] AS workers, coalesce(w.builds, '{}')::text[] AS builds, coalesce(k.keys, '{}')::text[] AS keys,
  coalesce(f.error, d.error, '')::text AS error, coalesce(f.fingerprint, d.fingerprint, '')::text AS fingerprint,
  coalesce(p.found, '{}')::text[] AS payload, coalesce(p.absent, '{}')::boolean[] AS absent
FROM unnest(@ids::uuid[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.id, x.type, x.queue, x.priority, x.created_at, x.tags, x.payload FROM jobs AS x WHERE x.id = u.id OFFSET 0) AS j
LEFT JOIN LATERAL (
  SELECT v.attempt, CASE
      WHEN v.state = 'pending' THEN CASE WHEN v.held_reason IS NOT NULL THEN 'held' WHEN v.scheduled_at > now() THEN 'scheduled' ELSE 'ready' END
      WHEN v.state = 'leased' THEN 'running' WHEN v.state = 'failed' THEN 'retrying'
      WHEN v.state = 'dead_letter' THEN CASE WHEN v.discarded_at IS NULL THEN 'dead' ELSE 'discarded' END
      ELSE v.state END AS place,
    CASE WHEN v.state = 'pending' AND v.held_reason IS NULL AND v.scheduled_at <= now() THEN extract(epoch FROM now() - v.scheduled_at) END AS wait_seconds
  FROM job_states AS v WHERE v.id = j.id OFFSET 0) AS s ON @want_place::boolean
LEFT JOIN LATERAL (
  SELECT x.finished_at, extract(epoch FROM x.finished_at - x.started_at) AS run_seconds, x.wait_ms / 1000.0 AS wait_seconds
  FROM job_executions AS x WHERE x.job_id = j.id ORDER BY x.fencing_token DESC LIMIT 1) AS e ON @want_runs::boolean
LEFT JOIN LATERAL (
  SELECT extract(epoch FROM now() - x.claimed_at) AS run_seconds FROM job_claims AS x
  WHERE e.finished_at IS NULL AND j.id = ANY(x.job_ids) LIMIT 1) AS c ON @want_runs::boolean
LEFT JOIN LATERAL (
  SELECT array_agg(DISTINCT n.name) AS names, array_agg(DISTINCT n.version) FILTER (WHERE n.version <> '') AS builds FROM (
    SELECT r.worker_id FROM job_executions AS r WHERE r.job_id = j.id AND r.worker_id IS NOT NULL
    UNION SELECT y.worker_id FROM job_claims AS y WHERE j.id = ANY(y.job_ids)) AS r
  CROSS JOIN LATERAL (
    SELECT x.name, x.version FROM workers AS x WHERE x.id = r.worker_id UNION ALL SELECT r.worker_id::text, NULL) AS n) AS w ON @want_workers::boolean
LEFT JOIN LATERAL (
  SELECT concat_ws(': ', x.error_class, left(x.error, 4000)) AS error, x.fingerprint FROM job_executions AS x
  WHERE x.job_id = j.id AND x.error IS NOT NULL ORDER BY x.fencing_token DESC LIMIT 1) AS f ON @want_error::boolean
LEFT JOIN LATERAL (
  SELECT concat_ws(': ', x.error_class, left(x.error, 4000)) AS error, x.fingerprint FROM dead_letter_jobs AS x WHERE x.job_id = j.id) AS d ON @want_error::boolean
LEFT JOIN LATERAL (
  SELECT array_agg(x.key) AS keys FROM idempotency_keys AS x
  WHERE x.scope = 'enqueue' AND x.key = ANY(@keys::text[]) AND x.job_id = j.id) AS k ON cardinality(@keys::text[]) > 0
LEFT JOIN LATERAL (
  SELECT array_agg(coalesce(left(x.found, 1000), '') ORDER BY x.n) AS found, array_agg(x.found IS NULL ORDER BY x.n) AS absent
  FROM (SELECT t.n, j.payload #>> string_to_array(t.path, E'\x1f') AS found
        FROM unnest(@paths::text[]) WITH ORDINALITY AS t(path, n)) AS x) AS p ON cardinality(@paths::text[]) > 0;

-- name: JobsOfKeys :many
SELECT x.job_id FROM idempotency_keys AS x WHERE x.scope = 'enqueue' AND x.key = ANY(@keys::text[]) AND x.job_id IS NOT NULL;

-- name: ListFingerprints :many
-- The fingerprints there are, each once, by jumps over the groups of dead letters and of failed runs.
WITH RECURSIVE d AS (
  (SELECT x.fingerprint FROM dead_letter_jobs AS x ORDER BY x.fingerprint LIMIT 1)
  UNION ALL
  SELECT (SELECT x.fingerprint FROM dead_letter_jobs AS x WHERE x.fingerprint > d.fingerprint ORDER BY x.fingerprint LIMIT 1)
  FROM d WHERE d.fingerprint IS NOT NULL),
f AS (
  (SELECT x.fingerprint FROM job_executions AS x WHERE x.fingerprint IS NOT NULL ORDER BY x.fingerprint LIMIT 1)
  UNION ALL
  SELECT (SELECT x.fingerprint FROM job_executions AS x WHERE x.fingerprint > f.fingerprint ORDER BY x.fingerprint LIMIT 1)
  FROM f WHERE f.fingerprint IS NOT NULL)
SELECT y.fingerprint::text AS fingerprint FROM (
  (SELECT d.fingerprint FROM d WHERE d.fingerprint IS NOT NULL LIMIT @max_rows::int)
  UNION (SELECT f.fingerprint FROM f WHERE f.fingerprint IS NOT NULL LIMIT @max_rows::int)) AS y;

-- name: JobsOfFingerprints :many
-- Jobs of some causes, the newest deaths and failed runs of each, at most max_jobs of a cause and kind.
SELECT DISTINCT u.job_id::uuid AS job_id FROM unnest(@fingerprints::text[]) AS fp(fingerprint)
CROSS JOIN LATERAL (
  (SELECT x.job_id FROM dead_letter_jobs AS x WHERE x.fingerprint = fp.fingerprint ORDER BY x.died_at DESC LIMIT @max_jobs::int)
  UNION ALL
  (SELECT x.job_id FROM job_executions AS x WHERE x.fingerprint = fp.fingerprint ORDER BY x.finished_at DESC LIMIT @max_jobs::int)) AS u;
