-- name: InsertToken :one
-- No row: a living token has the name.
INSERT INTO api_tokens AS t (id, token_hash, name, scopes, queues, created_by, expires_at)
VALUES (@id, @token_hash, @name, @scopes::text[], sqlc.narg('queues')::text[], @created_by,
  now() + make_interval(secs => sqlc.narg('expires_seconds')::float8))
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING RETURNING t.created_at, t.expires_at;

-- name: GetToken :one
-- A token that is good now. expires_in is -1 for one that does not expire. Whoever remembers the answer counts these
-- seconds by a clock of their own, which may stand elsewhere than the database's.
SELECT t.id, t.name, t.scopes, t.queues, t.created_at, t.created_by, t.expires_at, t.last_used_at,
  coalesce(extract(epoch FROM t.expires_at - now()), -1)::float8 AS expires_in,
  (t.last_used_at IS NULL OR t.last_used_at < now() - make_interval(secs => @stale_seconds::float8))::boolean AS stale
FROM api_tokens AS t
WHERE t.token_hash = @token_hash AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now());

-- name: TouchToken :execrows
-- At most once in stale_seconds, and never waiting for another who does the same.
UPDATE api_tokens AS t SET last_used_at = now() WHERE t.id = ANY(ARRAY(
  SELECT y.id FROM api_tokens AS y
  WHERE y.id = @id AND (y.last_used_at IS NULL OR y.last_used_at < now() - make_interval(secs => @stale_seconds::float8))
  FOR UPDATE SKIP LOCKED));

-- name: ListTokens :many
-- Those that are good first, then by age.
SELECT t.id, t.name, t.scopes, t.queues, t.created_at, t.created_by, t.expires_at, t.last_used_at, t.revoked_at,
  coalesce(t.expires_at <= now(), false)::boolean AS expired
FROM api_tokens AS t
ORDER BY t.revoked_at IS NOT NULL OR coalesce(t.expires_at <= now(), false), t.created_at DESC, t.id LIMIT @max_rows::int;

-- name: RevokeToken :one
-- No row: no token has the id, or it was revoked before.
UPDATE api_tokens AS t SET revoked_at = now() WHERE t.id = @id AND t.revoked_at IS NULL RETURNING t.name, t.scopes, t.queues;

-- name: HasToken :one
SELECT EXISTS (SELECT 1 FROM api_tokens AS t WHERE t.id = @id) AS found;
