-- migrate:up

-- Repeated calls and side effects done once. scope is 'enqueue' for an enqueue through any door, 'once:' and the job's
-- type for Once. Rows exist only for what asked for a key.
CREATE TABLE idempotency_keys (
  scope text NOT NULL,
  key text NOT NULL CHECK (char_length(key) BETWEEN 1 AND 255),
  request_hash bytea NOT NULL,
  job_id uuid,
  response jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

-- The content of an enqueue, for telling a repeated call from another one under the same key. Every door asks this
-- function, so all agree: jsonb makes key order and spacing equal, and what the caller left out stays NULL.
CREATE FUNCTION job_request_hash(type text, queue text, priority integer, payload jsonb, max_attempts integer,
  scheduled_at timestamptz, delay_ms bigint, timeout_ms integer, expires_at timestamptz, tags text[])
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to(jsonb_build_array(1, type, queue, priority, payload, max_attempts,
    extract(epoch FROM scheduled_at), delay_ms, timeout_ms, extract(epoch FROM expires_at), tags)::text, 'UTF8'))
$$;

-- migrate:down
DROP FUNCTION job_request_hash(text, text, integer, jsonb, integer, timestamptz, bigint, integer, timestamptz, text[]);
DROP TABLE idempotency_keys;
