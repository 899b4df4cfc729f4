-- name: HoldOnce :execrows
-- Once: a row in the handler's own transaction. No row inserted says that the effect has happened.
INSERT INTO idempotency_keys (scope, key, request_hash, job_id, expires_at)
VALUES (@scope, @key, '', @job_id, now() + make_interval(secs => @keep_seconds::float8))
ON CONFLICT (scope, key) DO NOTHING;
