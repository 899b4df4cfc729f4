-- migrate:up

-- Acts on somebody else's job, queue, schedule or access. Append-only, written in the act's own transaction; each row
-- carries the hash of the one before it, so that a row changed or taken out later shows.
CREATE TABLE operator_actions (
  id bigint PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now(),
  actor text NOT NULL,
  source text NOT NULL CHECK (source IN ('console', 'api', 'cli', 'go', 'system')),
  action text NOT NULL,
  target_kind text NOT NULL,
  target text NOT NULL,
  reason text,
  before jsonb,
  after jsonb,
  affected integer NOT NULL DEFAULT 1,
  request_id text,
  address text,
  previous_hash bytea NOT NULL,
  hash bytea NOT NULL
);
CREATE INDEX operator_actions_target ON operator_actions (target_kind, target, id);
CREATE INDEX operator_actions_at ON operator_actions (at);

-- The end of the chain. Its row lock puts acts in one order; acts are few.
CREATE TABLE operator_action_head (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  id bigint NOT NULL,
  hash bytea NOT NULL
);
INSERT INTO operator_action_head (id, hash) VALUES (0, '\x');

CREATE FUNCTION operator_action_hash(previous_hash bytea, id bigint, at timestamptz, actor text, source text, action text,
  target_kind text, target text, reason text, before jsonb, after jsonb, affected integer, request_id text, address text)
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(previous_hash || convert_to(jsonb_build_array(1, id, extract(epoch FROM at), actor, source, action, target_kind,
    target, reason, before, after, affected, request_id, address)::text, 'UTF8'))
$$;

CREATE FUNCTION record_operator_action(actor text, source text, action text, target_kind text, target text, reason text,
  before jsonb, after jsonb, affected integer, request_id text, address text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  head operator_action_head;
  next_id bigint;
  next_hash bytea;
BEGIN
  SELECT * INTO head FROM operator_action_head AS h FOR UPDATE;
  next_id := head.id + 1;
  next_hash := operator_action_hash(head.hash, next_id, now(), actor, source, action, target_kind, target, reason, before, after,
    affected, request_id, address);
  INSERT INTO operator_actions VALUES (next_id, now(), actor, source, action, target_kind, target, reason, before, after, affected,
    request_id, address, head.hash, next_hash);
  UPDATE operator_action_head AS h SET id = next_id, hash = next_hash;
  RETURN next_id;
END $$;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'operator_actions is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER operator_actions_append_only BEFORE UPDATE ON operator_actions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- migrate:down
DROP TABLE operator_action_head, operator_actions;
DROP FUNCTION record_operator_action(text, text, text, text, text, text, jsonb, jsonb, integer, text, text);
DROP FUNCTION operator_action_hash(bytea, bigint, timestamptz, text, text, text, text, text, text, jsonb, jsonb, integer, text, text);
DROP FUNCTION refuse_change();
