-- migrate:up

-- What servers sign with, so that each knows what another has signed. Whoever may read this table can forge: give it to
-- nobody but the servers. To change one, UPDATE it: what was signed before is refused from then on.
CREATE TABLE signing_secrets (
  name text PRIMARY KEY CHECK (name IN ('cursor')),
  secret bytea NOT NULL CHECK (octet_length(secret) >= 32),
  created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO signing_secrets (name, secret)
VALUES ('cursor', sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));

-- migrate:down
DROP TABLE signing_secrets;
