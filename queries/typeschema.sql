-- name: ListSchemaVersions :one
-- What every door asks, once in a while: the types that have a schema, as {"type": version}, and how old this answer may
-- be. It is as old as its transaction where that reads by one snapshot.
SELECT coalesce(jsonb_object_agg(t.type, t.version) FILTER (WHERE t.schema IS NOT NULL), '{}')::jsonb AS versions,
  (CASE WHEN current_setting('transaction_isolation') = 'read committed' THEN 0
    ELSE extract(epoch FROM clock_timestamp() - now()) END)::float8 AS age_seconds
FROM job_types AS t;

-- name: GetTypeSchema :one
SELECT t.schema, t.version, t.updated_at, t.updated_by FROM job_types AS t WHERE t.type = @type::text AND t.schema IS NOT NULL;

-- name: KeyIsHeld :one
-- Whether an enqueue under this key would find an earlier job.
SELECT EXISTS (SELECT FROM idempotency_keys AS k JOIN jobs AS j ON j.id = k.job_id
  WHERE k.scope = 'enqueue' AND k.key = @key::text AND k.expires_at > now())::boolean AS held;

-- name: GetJobType :one
SELECT j.type FROM jobs AS j WHERE j.id = @id::uuid;

-- name: MakeJobType :exec
-- Before it is locked, so that of two who set the first schema of a type the second sees the first's.
INSERT INTO job_types AS t (type, updated_by) VALUES (@type::text, @actor::text) ON CONFLICT (type) DO NOTHING;

-- name: LockJobType :one
SELECT t.schema, t.version FROM job_types AS t WHERE t.type = @type::text FOR UPDATE;

-- name: SetTypeSchema :one
UPDATE job_types AS t SET schema = sqlc.narg('schema')::jsonb, version = t.version + 1, updated_at = now(), updated_by = @actor::text
WHERE t.type = @type::text AND t.schema IS DISTINCT FROM sqlc.narg('schema')::jsonb
RETURNING t.version, t.updated_at;
