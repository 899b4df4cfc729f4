-- migrate:up

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- enqueue_job with backoff => '{"policy": "exponential", "base_seconds": 5, "max_seconds": 600}'.
DROP FUNCTION enqueue_job(text, jsonb, text, integer, timestamptz, interval, integer, interval, timestamptz, text[], text, text, boolean,
  uuid, text, text, text[], interval, text);
CREATE FUNCTION enqueue_job(
  type text, payload jsonb DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 1,
  scheduled_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, expires_at timestamptz DEFAULT NULL, tags text[] DEFAULT NULL,
  idempotency_key text DEFAULT NULL, traceparent text DEFAULT NULL, notify boolean DEFAULT true,
  copied_from uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'type',
  unique_states text[] DEFAULT '{waiting,running}', unique_window interval DEFAULT NULL, on_conflict text DEFAULT 'return',
  backoff jsonb DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  run_at timestamptz := coalesce(enqueue_job.scheduled_at, now() + enqueue_job.delay);
  timeout_ms bigint := round(extract(epoch FROM timeout) * 1000);
  window_seconds double precision := extract(epoch FROM unique_window);
  through integer := CASE WHEN unique_states @> '{waiting}' AND unique_states <@ '{waiting}' THEN 1
    WHEN unique_states @> '{waiting,running}' AND unique_states <@ '{waiting,running}' THEN 2
    WHEN unique_states @> '{waiting,running,dead}' AND unique_states <@ '{waiting,running,dead}' THEN 3 END;
  answer record;
BEGIN
  IF type IS NULL OR type !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'type: 1 to 100 of A-Z a-z 0-9 _ . : -, starting with a letter, digit or _' USING ERRCODE = 'check_violation';
  END IF;
  IF queue IS NULL OR queue !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'queue: 1 to 100 of A-Z a-z 0-9 _ . : -, starting with a letter, digit or _' USING ERRCODE = 'check_violation';
  END IF;
  IF priority IS NULL OR priority NOT BETWEEN 0 AND 5 THEN
    RAISE EXCEPTION 'priority: 0 to 5, the higher runs first' USING ERRCODE = 'check_violation';
  END IF;
  IF max_attempts NOT BETWEEN 1 AND 100 THEN
    RAISE EXCEPTION 'max_attempts: 1 to 100' USING ERRCODE = 'check_violation';
  END IF;
  IF timeout_ms NOT BETWEEN 1 AND 604800000 THEN
    RAISE EXCEPTION 'timeout: 1 ms to 7 days' USING ERRCODE = 'check_violation';
  END IF;
  IF scheduled_at IS NOT NULL AND delay IS NOT NULL THEN
    RAISE EXCEPTION 'scheduled_at, delay: give one of them' USING ERRCODE = 'check_violation';
  END IF;
  IF delay < interval '0' THEN
    RAISE EXCEPTION 'delay: not negative' USING ERRCODE = 'check_violation';
  END IF;
  IF run_at NOT BETWEEN timestamptz '1970-01-01 00:00:00+00' AND now() + interval '10 years' THEN
    RAISE EXCEPTION 'scheduled_at: from 1970 to 10 years ahead' USING ERRCODE = 'check_violation';
  END IF;
  IF NOT isfinite(expires_at) OR expires_at <= coalesce(run_at, now()) THEN
    RAISE EXCEPTION 'expires_at: after the job may run' USING ERRCODE = 'check_violation';
  END IF;
  IF payload IS NULL OR jsonb_typeof(payload) <> 'object' THEN
    RAISE EXCEPTION 'payload: a JSON object' USING ERRCODE = 'check_violation';
  END IF;
  IF octet_length(payload::text) > 262144 THEN
    RAISE EXCEPTION 'payload: at most 262144 bytes' USING ERRCODE = 'check_violation';
  END IF;
  IF payload @? 'strict $.**{65}' THEN
    RAISE EXCEPTION 'payload: nested at most 64 deep' USING ERRCODE = 'check_violation';
  END IF;
  -- 10,000 keys need at least 60,000 bytes, so that a small payload is not walked.
  IF octet_length(payload::text) > 60000
     AND (SELECT count(*) FROM jsonb_path_query(payload, 'strict $.** ? (@.type() == "object").keyvalue()')) > 10000 THEN
    RAISE EXCEPTION 'payload: at most 10000 keys' USING ERRCODE = 'check_violation';
  END IF;
  IF cardinality(tags) > 20 OR EXISTS (SELECT 1 FROM unnest(tags) AS t(tag) WHERE tag IS NULL OR tag !~ '^[^[:cntrl:]]{1,100}$') THEN
    RAISE EXCEPTION 'tags: at most 20, each 1 to 100 characters' USING ERRCODE = 'check_violation';
  END IF;
  IF idempotency_key !~ '^[^[:cntrl:]]{1,255}$' THEN
    RAISE EXCEPTION 'idempotency_key: 1 to 255 characters' USING ERRCODE = 'check_violation';
  END IF;
  IF octet_length(traceparent) > 55 THEN
    RAISE EXCEPTION 'traceparent: at most 55 characters' USING ERRCODE = 'check_violation';
  END IF;

  IF unique_key !~ '^[^[:cntrl:]]{1,255}$' THEN
    RAISE EXCEPTION 'unique_key: 1 to 255 characters' USING ERRCODE = 'check_violation';
  END IF;
  IF unique_scope IS NULL OR unique_scope NOT IN ('type', 'queue', 'global') THEN
    RAISE EXCEPTION 'unique_scope: type, queue or global' USING ERRCODE = 'check_violation';
  END IF;
  IF through IS NULL THEN
    RAISE EXCEPTION 'unique_states: waiting; waiting, running; or waiting, running, dead' USING ERRCODE = 'check_violation';
  END IF;
  IF window_seconds NOT BETWEEN 1 AND 31536000 THEN
    RAISE EXCEPTION 'unique_window: 1 second to 365 days' USING ERRCODE = 'check_violation';
  END IF;
  IF on_conflict IS NULL OR on_conflict NOT IN ('return', 'replace', 'reject') THEN
    RAISE EXCEPTION 'on_conflict: return, replace or reject' USING ERRCODE = 'check_violation';
  END IF;
  IF unique_key IS NULL AND (unique_scope <> 'type' OR through <> 2 OR unique_window IS NOT NULL OR on_conflict <> 'return') THEN
    RAISE EXCEPTION 'unique_key: needed by the other unique options' USING ERRCODE = 'check_violation';
  END IF;

  SELECT e.job_id, e.outcome, e.holder INTO answer FROM enqueue_job_keyed(uuid_v7(), type, payload, queue, priority, scheduled_at,
    (extract(epoch FROM delay) * 1000)::bigint, max_attempts, 5, timeout_ms::integer, expires_at, tags, idempotency_key, 86400,
    traceparent, coalesce(notify, true), copied_from, unique_key, unique_scope, through, window_seconds, on_conflict,
    normal_backoff(backoff)) AS e;
  IF answer.outcome = 'conflict' THEN
    RAISE EXCEPTION 'idempotency_key: used before with other content, by job %', answer.job_id USING
      ERRCODE = 'unique_violation', DETAIL = answer.job_id::text, HINT = 'Send the same content, or a new key.';
  ELSIF answer.outcome = 'in_flight' THEN
    RAISE EXCEPTION 'idempotency_key: another call holds it and has not committed' USING
      ERRCODE = 'lock_not_available', HINT = 'Try again.';
  ELSIF answer.outcome = 'unique_conflict' THEN
    RAISE EXCEPTION 'unique_key: held by job %, which is %', answer.job_id, answer.holder->>'state' USING
      ERRCODE = 'unique_violation', DETAIL = answer.job_id::text, HINT = 'on_conflict => ''return'' answers that job instead.';
  ELSIF answer.outcome = 'unique_in_flight' THEN
    RAISE EXCEPTION 'unique_key: another call is taking it and has not committed' USING
      ERRCODE = 'lock_not_available', HINT = 'Try again.';
  END IF;
  RETURN answer.job_id;
END $$;

CREATE OR REPLACE VIEW job_inbox AS
SELECT j.id, j.type, j.payload, j.queue, j.priority::integer AS priority, j.scheduled_at, NULL::interval AS delay,
  j.max_attempts::integer AS max_attempts, NULL::interval AS timeout, j.expires_at, j.tags, NULL::text AS idempotency_key,
  j.traceparent, NULL::boolean AS notify,
  j.copied_from, NULL::text AS unique_key, NULL::text AS unique_scope, NULL::text[] AS unique_states,
  NULL::interval AS unique_window, NULL::text AS on_conflict, j.backoff
FROM jobs AS j;
CREATE OR REPLACE FUNCTION job_inbox_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.id IS NOT NULL THEN
    RAISE EXCEPTION 'id: the engine makes it; read it with RETURNING id' USING ERRCODE = 'check_violation';
  END IF;
  NEW.id := enqueue_job(type => NEW.type, payload => coalesce(NEW.payload, '{}'), queue => coalesce(NEW.queue, 'default'),
    priority => coalesce(NEW.priority, 1), scheduled_at => NEW.scheduled_at, delay => NEW.delay, max_attempts => NEW.max_attempts,
    timeout => NEW.timeout, expires_at => NEW.expires_at, tags => NEW.tags, idempotency_key => NEW.idempotency_key,
    traceparent => NEW.traceparent, notify => coalesce(NEW.notify, true),
    copied_from => NEW.copied_from, unique_key => NEW.unique_key, unique_scope => coalesce(NEW.unique_scope, 'type'),
    unique_states => coalesce(NEW.unique_states, '{waiting,running}'), unique_window => NEW.unique_window,
    on_conflict => coalesce(NEW.on_conflict, 'return'), backoff => NEW.backoff);
  RETURN NEW;
END $$;

-- migrate:down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP VIEW job_inbox;
DROP FUNCTION enqueue_job(text, jsonb, text, integer, timestamptz, interval, integer, interval, timestamptz, text[], text, text, boolean,
  uuid, text, text, text[], interval, text, jsonb);
CREATE FUNCTION enqueue_job(
  type text, payload jsonb DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 1,
  scheduled_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, expires_at timestamptz DEFAULT NULL, tags text[] DEFAULT NULL,
  idempotency_key text DEFAULT NULL, traceparent text DEFAULT NULL, notify boolean DEFAULT true,
  copied_from uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'type',
  unique_states text[] DEFAULT '{waiting,running}', unique_window interval DEFAULT NULL, on_conflict text DEFAULT 'return')
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  run_at timestamptz := coalesce(enqueue_job.scheduled_at, now() + enqueue_job.delay);
  timeout_ms bigint := round(extract(epoch FROM timeout) * 1000);
  window_seconds double precision := extract(epoch FROM unique_window);
  through integer := CASE WHEN unique_states @> '{waiting}' AND unique_states <@ '{waiting}' THEN 1
    WHEN unique_states @> '{waiting,running}' AND unique_states <@ '{waiting,running}' THEN 2
    WHEN unique_states @> '{waiting,running,dead}' AND unique_states <@ '{waiting,running,dead}' THEN 3 END;
  answer record;
BEGIN
  IF type IS NULL OR type !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'type: 1 to 100 of A-Z a-z 0-9 _ . : -, starting with a letter, digit or _' USING ERRCODE = 'check_violation';
  END IF;
  IF queue IS NULL OR queue !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'queue: 1 to 100 of A-Z a-z 0-9 _ . : -, starting with a letter, digit or _' USING ERRCODE = 'check_violation';
  END IF;
  IF priority IS NULL OR priority NOT BETWEEN 0 AND 5 THEN
    RAISE EXCEPTION 'priority: 0 to 5, the higher runs first' USING ERRCODE = 'check_violation';
  END IF;
  IF max_attempts NOT BETWEEN 1 AND 100 THEN
    RAISE EXCEPTION 'max_attempts: 1 to 100' USING ERRCODE = 'check_violation';
  END IF;
  IF timeout_ms NOT BETWEEN 1 AND 604800000 THEN
    RAISE EXCEPTION 'timeout: 1 ms to 7 days' USING ERRCODE = 'check_violation';
  END IF;
  IF scheduled_at IS NOT NULL AND delay IS NOT NULL THEN
    RAISE EXCEPTION 'scheduled_at, delay: give one of them' USING ERRCODE = 'check_violation';
  END IF;
  IF delay < interval '0' THEN
    RAISE EXCEPTION 'delay: not negative' USING ERRCODE = 'check_violation';
  END IF;
  IF run_at NOT BETWEEN timestamptz '1970-01-01 00:00:00+00' AND now() + interval '10 years' THEN
    RAISE EXCEPTION 'scheduled_at: from 1970 to 10 years ahead' USING ERRCODE = 'check_violation';
  END IF;
  IF NOT isfinite(expires_at) OR expires_at <= coalesce(run_at, now()) THEN
    RAISE EXCEPTION 'expires_at: after the job may run' USING ERRCODE = 'check_violation';
  END IF;
  IF payload IS NULL OR jsonb_typeof(payload) <> 'object' THEN
    RAISE EXCEPTION 'payload: a JSON object' USING ERRCODE = 'check_violation';
  END IF;
  IF octet_length(payload::text) > 262144 THEN
    RAISE EXCEPTION 'payload: at most 262144 bytes' USING ERRCODE = 'check_violation';
  END IF;
  IF payload @? 'strict $.**{65}' THEN
    RAISE EXCEPTION 'payload: nested at most 64 deep' USING ERRCODE = 'check_violation';
  END IF;
  -- 10,000 keys need at least 60,000 bytes, so that a small payload is not walked.
  IF octet_length(payload::text) > 60000
     AND (SELECT count(*) FROM jsonb_path_query(payload, 'strict $.** ? (@.type() == "object").keyvalue()')) > 10000 THEN
    RAISE EXCEPTION 'payload: at most 10000 keys' USING ERRCODE = 'check_violation';
  END IF;
  IF cardinality(tags) > 20 OR EXISTS (SELECT 1 FROM unnest(tags) AS t(tag) WHERE tag IS NULL OR tag !~ '^[^[:cntrl:]]{1,100}$') THEN
    RAISE EXCEPTION 'tags: at most 20, each 1 to 100 characters' USING ERRCODE = 'check_violation';
  END IF;
  IF idempotency_key !~ '^[^[:cntrl:]]{1,255}$' THEN
    RAISE EXCEPTION 'idempotency_key: 1 to 255 characters' USING ERRCODE = 'check_violation';
  END IF;
  IF octet_length(traceparent) > 55 THEN
    RAISE EXCEPTION 'traceparent: at most 55 characters' USING ERRCODE = 'check_violation';
  END IF;

  IF unique_key !~ '^[^[:cntrl:]]{1,255}$' THEN
    RAISE EXCEPTION 'unique_key: 1 to 255 characters' USING ERRCODE = 'check_violation';
  END IF;
  IF unique_scope IS NULL OR unique_scope NOT IN ('type', 'queue', 'global') THEN
    RAISE EXCEPTION 'unique_scope: type, queue or global' USING ERRCODE = 'check_violation';
  END IF;
  IF through IS NULL THEN
    RAISE EXCEPTION 'unique_states: waiting; waiting, running; or waiting, running, dead' USING ERRCODE = 'check_violation';
  END IF;
  IF window_seconds NOT BETWEEN 1 AND 31536000 THEN
    RAISE EXCEPTION 'unique_window: 1 second to 365 days' USING ERRCODE = 'check_violation';
  END IF;
  IF on_conflict IS NULL OR on_conflict NOT IN ('return', 'replace', 'reject') THEN
    RAISE EXCEPTION 'on_conflict: return, replace or reject' USING ERRCODE = 'check_violation';
  END IF;
  IF unique_key IS NULL AND (unique_scope <> 'type' OR through <> 2 OR unique_window IS NOT NULL OR on_conflict <> 'return') THEN
    RAISE EXCEPTION 'unique_key: needed by the other unique options' USING ERRCODE = 'check_violation';
  END IF;

  SELECT e.job_id, e.outcome, e.holder INTO answer FROM enqueue_job_keyed(uuid_v7(), type, payload, queue, priority, scheduled_at,
    (extract(epoch FROM delay) * 1000)::bigint, max_attempts, 5, timeout_ms::integer, expires_at, tags, idempotency_key, 86400,
    traceparent, coalesce(notify, true), copied_from, unique_key, unique_scope, through, window_seconds, on_conflict) AS e;
  IF answer.outcome = 'conflict' THEN
    RAISE EXCEPTION 'idempotency_key: used before with other content, by job %', answer.job_id USING
      ERRCODE = 'unique_violation', DETAIL = answer.job_id::text, HINT = 'Send the same content, or a new key.';
  ELSIF answer.outcome = 'in_flight' THEN
    RAISE EXCEPTION 'idempotency_key: another call holds it and has not committed' USING
      ERRCODE = 'lock_not_available', HINT = 'Try again.';
  ELSIF answer.outcome = 'unique_conflict' THEN
    RAISE EXCEPTION 'unique_key: held by job %, which is %', answer.job_id, answer.holder->>'state' USING
      ERRCODE = 'unique_violation', DETAIL = answer.job_id::text, HINT = 'on_conflict => ''return'' answers that job instead.';
  ELSIF answer.outcome = 'unique_in_flight' THEN
    RAISE EXCEPTION 'unique_key: another call is taking it and has not committed' USING
      ERRCODE = 'lock_not_available', HINT = 'Try again.';
  END IF;
  RETURN answer.job_id;
END $$;
CREATE VIEW job_inbox AS
SELECT j.id, j.type, j.payload, j.queue, j.priority::integer AS priority, j.scheduled_at, NULL::interval AS delay,
  j.max_attempts::integer AS max_attempts, NULL::interval AS timeout, j.expires_at, j.tags, NULL::text AS idempotency_key,
  j.traceparent, NULL::boolean AS notify,
  j.copied_from, NULL::text AS unique_key, NULL::text AS unique_scope, NULL::text[] AS unique_states,
  NULL::interval AS unique_window, NULL::text AS on_conflict
FROM jobs AS j;
CREATE OR REPLACE FUNCTION job_inbox_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.id IS NOT NULL THEN
    RAISE EXCEPTION 'id: the engine makes it; read it with RETURNING id' USING ERRCODE = 'check_violation';
  END IF;
  NEW.id := enqueue_job(type => NEW.type, payload => coalesce(NEW.payload, '{}'), queue => coalesce(NEW.queue, 'default'),
    priority => coalesce(NEW.priority, 1), scheduled_at => NEW.scheduled_at, delay => NEW.delay, max_attempts => NEW.max_attempts,
    timeout => NEW.timeout, expires_at => NEW.expires_at, tags => NEW.tags, idempotency_key => NEW.idempotency_key,
    traceparent => NEW.traceparent, notify => coalesce(NEW.notify, true),
    copied_from => NEW.copied_from, unique_key => NEW.unique_key, unique_scope => coalesce(NEW.unique_scope, 'type'),
    unique_states => coalesce(NEW.unique_states, '{waiting,running}'), unique_window => NEW.unique_window,
    on_conflict => coalesce(NEW.on_conflict, 'return'));
  RETURN NEW;
END $$;
CREATE TRIGGER job_inbox_insert INSTEAD OF INSERT ON job_inbox FOR EACH ROW EXECUTE FUNCTION job_inbox_insert();
