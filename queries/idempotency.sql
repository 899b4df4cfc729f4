-- name: HoldOnce :execrows
-- Once: a row in the handler's own transaction. No row inserted says that the effect has happened.
INSERT INTO idempotency_keys (scope, key, request_hash, job_id, expires_at)
VALUES (@scope, @key, '', @job_id, now() + make_interval(secs => @keep_seconds::float8))
ON CONFLICT (scope, key) DO NOTHING;

-- name: TakeBatchKey :one
SELECT t.outcome::text AS outcome, coalesce(t.job_id, '00000000-0000-0000-0000-000000000000')::uuid AS job_id,
  coalesce(t.response, 'null')::jsonb AS response
FROM take_batch_key(@key::text, @items::jsonb, @first_job::uuid, @key_ttl_seconds::float8) AS t;

-- name: KeepBatchAnswer :exec
-- In the transaction that took the key.
UPDATE idempotency_keys AS k SET job_id = @job_id::uuid, response = @response::jsonb WHERE k.scope = 'enqueue' AND k.key = @key::text;

-- name: TakeActKey :one
SELECT t.outcome::text AS outcome, coalesce(t.subject, '')::text AS subject
FROM take_act_key(@key::text, @hash::bytea, @act_subject::text, @key_ttl_seconds::float8) AS t;
