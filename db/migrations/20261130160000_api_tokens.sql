-- migrate:up

-- Tokens of programs that call the JSON API. A token has some 190 random bits besides its id: one round of SHA-256 is
-- enough, and who reads this table cannot call with what stands here. A revoked token stays: the audit trail names it.
CREATE TABLE api_tokens (
  -- The token's first letters after rje_, so that whoever finds a token knows which to revoke.
  id text PRIMARY KEY CHECK (id ~ '^[0-9A-Za-z]{8}$'),
  token_hash bytea NOT NULL UNIQUE CHECK (octet_length(token_hash) = 32),
  name text NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._@-]{0,63}$'),
  scopes text[] NOT NULL CHECK (cardinality(scopes) > 0
    AND scopes <@ ARRAY['jobs:read', 'jobs:write', 'queues:write', 'dlq:write', 'admin']),
  -- NULL: every queue.
  queues text[] CHECK (cardinality(queues) BETWEEN 1 AND 100),
  created_at timestamptz NOT NULL DEFAULT now(),
  created_by text NOT NULL,
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
);
-- One living token of a name: the name is who acts, in the trail and the log.
CREATE UNIQUE INDEX api_tokens_name ON api_tokens (name) WHERE revoked_at IS NULL;

-- migrate:down
DROP TABLE api_tokens;
