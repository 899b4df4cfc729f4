-- migrate:up

-- People who sign in to the console. The names begin with console_ because a product team's own tables may stand in this
-- database, and users is what they would call theirs. A person is never deleted: the audit trail names them.
CREATE TABLE console_users (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Folded to lower case, so that Ann and ann are one.
  name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._@-]{0,63}$'),
  -- argon2id as a PHC string: its parameters and salt are in it.
  password_hash text NOT NULL,
  role text NOT NULL CHECK (role IN ('admin', 'operator', 'viewer')),
  -- Raised by whatever ends sessions. A sign-in that began before may not begin a session after.
  generation integer NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT now(),
  disabled_at timestamptz,
  signed_in_at timestamptz
);

-- The cookie holds 256 random bits, this table their SHA-256: who reads it cannot sign in with what stands here.
CREATE TABLE console_sessions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  token_hash bytea NOT NULL UNIQUE CHECK (octet_length(token_hash) = 32),
  user_id bigint NOT NULL REFERENCES console_users ON DELETE CASCADE,
  created_at timestamptz NOT NULL DEFAULT now(),
  used_at timestamptz NOT NULL DEFAULT now(),
  user_agent text NOT NULL CHECK (char_length(user_agent) <= 200),
  address text NOT NULL CHECK (char_length(address) <= 64)
);
CREATE INDEX console_sessions_user ON console_sessions (user_id, id);

-- Tries at signing in, per name and per address, for all servers together. A name is kept as its SHA-256: people type
-- passwords into the name's field. A name's try is counted before its password is looked at: many at once gain nothing.
CREATE TABLE sign_in_tries (
  kind text NOT NULL CHECK (kind IN ('address', 'name')),
  subject text NOT NULL CHECK (char_length(subject) <= 64),
  failures integer NOT NULL,
  last_at timestamptz NOT NULL,
  blocked_until timestamptz NOT NULL,
  PRIMARY KEY (kind, subject)
);
CREATE INDEX sign_in_tries_last ON sign_in_tries (last_at);

-- The wait after a try that makes so many failures: none up to the fourth, then 1 s, doubling up to 5 minutes. Longer
-- would let a stranger keep a person out; at 5 minutes a day has 288 guesses.
CREATE FUNCTION sign_in_wait(failures integer) RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN failures < 5 THEN interval '0' ELSE least(interval '1 second' * power(2, least(failures, 20) - 5), interval '5 minutes') END
$$;

-- migrate:down
DROP FUNCTION sign_in_wait(integer);
DROP TABLE sign_in_tries, console_sessions, console_users;
