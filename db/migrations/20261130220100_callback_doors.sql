-- migrate:up

-- The release now running calls these functions with fewer arguments: the new ones have defaults and stand last.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- A content without a callback keeps its hash, so that keys in use go on meaning the same.
DROP FUNCTION job_request_hash(text, text, integer, jsonb, integer, timestamptz, bigint, integer, timestamptz, text[], uuid, jsonb, jsonb);
CREATE FUNCTION job_request_hash(type text, queue text, priority integer, payload jsonb, max_attempts integer,
  scheduled_at timestamptz, delay_ms bigint, timeout_ms integer, expires_at timestamptz, tags text[],
  copied_from uuid DEFAULT NULL, unique_options jsonb DEFAULT NULL, backoff jsonb DEFAULT NULL, callback_url text DEFAULT NULL)
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to((CASE WHEN callback_url IS NOT NULL
    THEN jsonb_build_array(4, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags, copied_from, unique_options, backoff, callback_url)
    WHEN backoff IS NOT NULL
    THEN jsonb_build_array(3, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags, copied_from, unique_options, backoff)
    WHEN copied_from IS NULL AND unique_options IS NULL
    THEN jsonb_build_array(1, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags)
    ELSE jsonb_build_array(2, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags, copied_from, unique_options) END)::text, 'UTF8'))
$$;

DROP FUNCTION replace_waiting_job(uuid, jsonb, text, integer, timestamptz, boolean, integer, integer, timestamptz, text[], text, uuid, integer, jsonb);
CREATE FUNCTION replace_waiting_job(job uuid, payload jsonb, queue text, priority integer, run_at timestamptz, timed boolean,
  max_attempts integer, timeout_ms integer, expires_at timestamptz, tags text[], traceparent text, copied_from uuid, unique_through integer,
  backoff jsonb DEFAULT NULL, callback_url text DEFAULT NULL)
RETURNS timestamptz LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  place record;
  job_type text;
BEGIN
  WITH r AS (DELETE FROM job_ready AS x WHERE x.job_id = job RETURNING x.attempt, x.crashes, false AS failed, x.ready_at AS due),
  s AS (DELETE FROM job_scheduled AS x WHERE x.job_id = job RETURNING x.attempt, x.crashes, x.failed, x.run_at AS due),
  h AS (DELETE FROM job_held AS x WHERE x.job_id = job RETURNING x.attempt, x.crashes, false AS failed, x.held_at AS due)
  SELECT g.attempt, g.crashes, g.failed, g.due INTO place
  FROM (SELECT * FROM r UNION ALL SELECT * FROM s UNION ALL SELECT * FROM h) AS g;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF place.failed THEN
    run_at := greatest(run_at, place.due);
  END IF;
  UPDATE jobs AS j SET version = j.version + 1, payload = payload, queue = queue, priority = priority, max_attempts = max_attempts,
    scheduled_at = CASE WHEN timed THEN run_at END, expires_at = expires_at, timeout_ms = timeout_ms, tags = tags,
    traceparent = traceparent, copied_from = copied_from, unique_through = unique_through, backoff = backoff,
    callback_url = callback_url
  WHERE j.id = job RETURNING j.type INTO job_type;
  IF run_at > now() THEN
    INSERT INTO job_scheduled AS s (run_at, job_id, priority, attempt, crashes, failed, queue, type)
    VALUES (run_at, job, priority, place.attempt, place.crashes, place.failed, queue, job_type);
  ELSE
    INSERT INTO job_ready AS r (job_id, priority, attempt, crashes, queue, type)
    VALUES (job, priority, place.attempt, place.crashes, queue, job_type);
  END IF;
  IF callback_url IS NULL THEN
    DELETE FROM owed_callbacks AS o WHERE o.job_id = job;
  ELSE
    INSERT INTO owed_callbacks AS o (job_id) VALUES (job) ON CONFLICT ON CONSTRAINT owed_callbacks_pkey DO NOTHING;
  END IF;
  RETURN run_at;
END $$;

-- One more outcome, nested_callback: copied_from is a callback, which may not be told of in turn; nothing was written.
DROP FUNCTION enqueue_job_keyed(uuid, text, jsonb, text, integer, timestamptz, bigint, integer, integer, integer, timestamptz, text[], text,
  double precision, text, boolean, uuid, text, text, integer, double precision, text, jsonb);
CREATE FUNCTION enqueue_job_keyed(
  new_id uuid, type text, payload jsonb, queue text, priority integer, scheduled_at timestamptz, delay_ms bigint,
  max_attempts integer, default_max_attempts integer, timeout_ms integer, expires_at timestamptz, tags text[],
  idempotency_key text, key_ttl_seconds double precision, traceparent text, notify boolean,
  copied_from uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'type', unique_through integer DEFAULT 2,
  unique_window_seconds double precision DEFAULT NULL, on_conflict text DEFAULT 'return', backoff jsonb DEFAULT NULL,
  callback_url text DEFAULT NULL)
RETURNS TABLE (job_id uuid, outcome text, run_at timestamptz, created_at timestamptz, holder jsonb)
LANGUAGE plpgsql SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  hash bytea;
  first idempotency_keys;
  wanted bytea;
  window_end timestamptz;
  taken record;
  moved_to timestamptz;
BEGIN
  job_id := new_id;
  outcome := 'created';
  run_at := coalesce(scheduled_at, now() + make_interval(secs => delay_ms / 1000.0), now());
  created_at := now();
  IF callback_url IS NOT NULL AND EXISTS (SELECT FROM jobs AS j WHERE j.id = copied_from AND j.callback_of IS NOT NULL) THEN
    job_id := NULL;
    outcome := 'nested_callback';
    RETURN NEXT;
    RETURN;
  END IF;
  IF idempotency_key IS NOT NULL THEN
    hash := job_request_hash(type, queue, priority, payload, max_attempts, scheduled_at, delay_ms, timeout_ms, expires_at, tags,
      copied_from, CASE WHEN unique_key IS NOT NULL THEN
        jsonb_build_array(unique_key, unique_scope, unique_through, unique_window_seconds, on_conflict) END, backoff, callback_url);
    LOOP
      BEGIN
        INSERT INTO idempotency_keys AS k (scope, key, request_hash, job_id, expires_at)
        VALUES ('enqueue', idempotency_key, hash, new_id, now() + make_interval(secs => key_ttl_seconds))
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
          SET request_hash = excluded.request_hash, job_id = excluded.job_id, created_at = now(), expires_at = excluded.expires_at
          WHERE k.expires_at <= now();
        EXIT WHEN FOUND;
      EXCEPTION WHEN lock_not_available THEN
        job_id := NULL;
        outcome := 'in_flight';
        RETURN NEXT;
        RETURN;
      END;
      SELECT k.* INTO first FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key;
      CONTINUE WHEN NOT FOUND;
      SELECT j.id, coalesce(j.scheduled_at, j.created_at), j.created_at INTO job_id, run_at, created_at
      FROM jobs AS j WHERE j.id = first.job_id;
      IF NOT FOUND THEN
        -- Its job was removed by retention: a key is never held by nothing.
        DELETE FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.job_id = first.job_id;
        job_id := new_id;
        run_at := coalesce(scheduled_at, now() + make_interval(secs => delay_ms / 1000.0), now());
        created_at := now();
        CONTINUE;
      END IF;
      outcome := CASE WHEN first.request_hash = hash THEN 'duplicate' ELSE 'conflict' END;
      IF unique_key IS NOT NULL THEN
        holder := job_summary(job_id);
      END IF;
      RETURN NEXT;
      RETURN;
    END LOOP;
  END IF;

  IF unique_key IS NOT NULL THEN
    wanted := unique_job_key(unique_scope, type, queue, unique_key);
    window_end := now() + make_interval(secs => unique_window_seconds);
    outcome := 'unique_in_flight';
    FOR try IN 1..20 LOOP
      SELECT t.* INTO taken FROM take_unique_key(wanted, new_id, window_end) AS t;
      IF taken.outcome = 'taken' THEN
        outcome := 'created';
        holder := NULL;
      END IF;
      EXIT WHEN taken.outcome <> 'held';
      SELECT job_summary(k.job_id) || jsonb_build_object('until', k.until) INTO holder
      FROM job_unique_keys AS k WHERE k.key = wanted AND k.job_id = taken.holder AND holds_unique_key(k.job_id, k.until);
      CONTINUE WHEN NOT FOUND; -- it has ended meanwhile
      IF on_conflict = 'return' THEN
        outcome := 'unique_held';
        EXIT;
      ELSIF on_conflict <> 'replace' OR holder->>'type' <> type OR holder->>'state' NOT IN ('pending', 'failed') THEN
        outcome := 'unique_conflict';
        EXIT;
      END IF;
      BEGIN
        moved_to := replace_waiting_job(taken.holder, payload, queue, priority, run_at, scheduled_at IS NOT NULL OR delay_ms IS NOT NULL,
          coalesce(max_attempts, default_max_attempts), timeout_ms, expires_at, tags, traceparent, copied_from, unique_through,
          backoff, callback_url);
      EXCEPTION WHEN lock_not_available THEN
        EXIT;
      END;
      IF moved_to IS NOT NULL THEN
        outcome := 'unique_replaced';
        UPDATE job_unique_keys AS k SET until = greatest(k.until, window_end) WHERE k.key = wanted AND window_end IS NOT NULL;
        holder := job_summary(taken.holder);
        EXIT;
      END IF;
      PERFORM pg_sleep(0.001 * try); -- claimed, cancelled, or between two places: see anew
    END LOOP;
    IF outcome IN ('unique_held', 'unique_replaced') THEN
      UPDATE idempotency_keys AS k SET job_id = taken.holder
      WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.job_id = new_id;
    ELSIF outcome <> 'created' THEN
      DELETE FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.job_id = new_id;
    END IF;
    IF outcome <> 'created' THEN
      job_id := CASE WHEN outcome <> 'unique_in_flight' THEN taken.holder END;
      run_at := coalesce(moved_to, (holder->>'run_at')::timestamptz, run_at);
      created_at := coalesce((holder->>'created_at')::timestamptz, created_at);
      IF outcome = 'unique_replaced' AND notify THEN
        IF run_at > now() THEN PERFORM pg_notify('jobs_later', ''); ELSE PERFORM pg_notify('jobs', queue); END IF;
      END IF;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;

  INSERT INTO jobs AS j (id, type, queue, priority, max_attempts, version, payload, scheduled_at, expires_at, timeout_ms, tags, traceparent,
    copied_from, unique_key, unique_through, backoff, callback_url)
  VALUES (new_id, type, queue, priority, coalesce(max_attempts, default_max_attempts), 1, payload,
    CASE WHEN scheduled_at IS NOT NULL OR delay_ms IS NOT NULL THEN run_at END, expires_at, timeout_ms, tags, traceparent,
    copied_from, wanted, CASE WHEN wanted IS NOT NULL THEN unique_through END, backoff, callback_url);
  IF callback_url IS NOT NULL THEN
    INSERT INTO owed_callbacks AS o (job_id) VALUES (new_id);
  END IF;
  IF run_at > now() THEN
    INSERT INTO job_scheduled AS s (run_at, job_id, priority, queue, type) VALUES (run_at, new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs_later', ''); END IF;
  ELSE
    INSERT INTO job_ready AS r (job_id, priority, queue, type) VALUES (new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs', queue); END IF;
  END IF;
  RETURN NEXT;
END $$;

-- enqueue_job with callback_url => 'https://example.com/hook'.
DROP FUNCTION enqueue_job(text, jsonb, text, integer, timestamptz, interval, integer, interval, timestamptz, text[], text, text, boolean,
  uuid, text, text, text[], interval, text, jsonb);
CREATE FUNCTION enqueue_job(
  type text, payload jsonb DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 1,
  scheduled_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, expires_at timestamptz DEFAULT NULL, tags text[] DEFAULT NULL,
  idempotency_key text DEFAULT NULL, traceparent text DEFAULT NULL, notify boolean DEFAULT true,
  copied_from uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'type',
  unique_states text[] DEFAULT '{waiting,running}', unique_window interval DEFAULT NULL, on_conflict text DEFAULT 'return',
  backoff jsonb DEFAULT NULL, callback_url text DEFAULT NULL)
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
  IF callback_url !~* '^https?://[^][/?#@[:space:][:cntrl:]]+([/?#][^[:space:][:cntrl:]]*)?$' AND callback_url !~* '^https?://\[[0-9a-f:.]+](:[0-9]+)?([/?#][^[:space:][:cntrl:]]*)?$'
     OR octet_length(callback_url) > 2048 THEN
    RAISE EXCEPTION 'callback_url: an http or https address of at most 2048 bytes, without user and password' USING ERRCODE = 'check_violation';
  END IF;

  SELECT e.job_id, e.outcome, e.holder INTO answer FROM enqueue_job_keyed(uuid_v7(), type, payload, queue, priority, scheduled_at,
    (extract(epoch FROM delay) * 1000)::bigint, max_attempts, 5, timeout_ms::integer, expires_at, tags, idempotency_key, 86400,
    traceparent, coalesce(notify, true), copied_from, unique_key, unique_scope, through, window_seconds, on_conflict,
    normal_backoff(backoff), callback_url) AS e;
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
  IF answer.outcome = 'nested_callback' THEN
    RAISE EXCEPTION 'callback_url: a callback has none of its own' USING ERRCODE = 'check_violation';
  END IF;
  RETURN answer.job_id;
END $$;

CREATE OR REPLACE VIEW job_inbox AS
SELECT j.id, j.type, j.payload, j.queue, j.priority::integer AS priority, j.scheduled_at, NULL::interval AS delay,
  j.max_attempts::integer AS max_attempts, NULL::interval AS timeout, j.expires_at, j.tags, NULL::text AS idempotency_key,
  j.traceparent, NULL::boolean AS notify,
  j.copied_from, NULL::text AS unique_key, NULL::text AS unique_scope, NULL::text[] AS unique_states,
  NULL::interval AS unique_window, NULL::text AS on_conflict, j.backoff, j.callback_url
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
    on_conflict => coalesce(NEW.on_conflict, 'return'), backoff => NEW.backoff, callback_url => NEW.callback_url);
  RETURN NEW;
END $$;

-- migrate:down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP VIEW job_inbox;
DROP FUNCTION enqueue_job(text, jsonb, text, integer, timestamptz, interval, integer, interval, timestamptz, text[], text, text, boolean,
  uuid, text, text, text[], interval, text, jsonb, text);
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
CREATE VIEW job_inbox AS
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
CREATE TRIGGER job_inbox_insert INSTEAD OF INSERT ON job_inbox FOR EACH ROW EXECUTE FUNCTION job_inbox_insert();
DROP FUNCTION enqueue_job_keyed(uuid, text, jsonb, text, integer, timestamptz, bigint, integer, integer, integer, timestamptz, text[], text,
  double precision, text, boolean, uuid, text, text, integer, double precision, text, jsonb, text);
CREATE FUNCTION enqueue_job_keyed(
  new_id uuid, type text, payload jsonb, queue text, priority integer, scheduled_at timestamptz, delay_ms bigint,
  max_attempts integer, default_max_attempts integer, timeout_ms integer, expires_at timestamptz, tags text[],
  idempotency_key text, key_ttl_seconds double precision, traceparent text, notify boolean,
  copied_from uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'type', unique_through integer DEFAULT 2,
  unique_window_seconds double precision DEFAULT NULL, on_conflict text DEFAULT 'return', backoff jsonb DEFAULT NULL)
RETURNS TABLE (job_id uuid, outcome text, run_at timestamptz, created_at timestamptz, holder jsonb)
LANGUAGE plpgsql SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  hash bytea;
  first idempotency_keys;
  wanted bytea;
  window_end timestamptz;
  taken record;
  moved_to timestamptz;
BEGIN
  job_id := new_id;
  outcome := 'created';
  run_at := coalesce(scheduled_at, now() + make_interval(secs => delay_ms / 1000.0), now());
  created_at := now();
  IF idempotency_key IS NOT NULL THEN
    hash := job_request_hash(type, queue, priority, payload, max_attempts, scheduled_at, delay_ms, timeout_ms, expires_at, tags,
      copied_from, CASE WHEN unique_key IS NOT NULL THEN
        jsonb_build_array(unique_key, unique_scope, unique_through, unique_window_seconds, on_conflict) END, backoff);
    LOOP
      BEGIN
        INSERT INTO idempotency_keys AS k (scope, key, request_hash, job_id, expires_at)
        VALUES ('enqueue', idempotency_key, hash, new_id, now() + make_interval(secs => key_ttl_seconds))
        ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
          SET request_hash = excluded.request_hash, job_id = excluded.job_id, created_at = now(), expires_at = excluded.expires_at
          WHERE k.expires_at <= now();
        EXIT WHEN FOUND;
      EXCEPTION WHEN lock_not_available THEN
        job_id := NULL;
        outcome := 'in_flight';
        RETURN NEXT;
        RETURN;
      END;
      SELECT k.* INTO first FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key;
      CONTINUE WHEN NOT FOUND;
      SELECT j.id, coalesce(j.scheduled_at, j.created_at), j.created_at INTO job_id, run_at, created_at
      FROM jobs AS j WHERE j.id = first.job_id;
      IF NOT FOUND THEN
        -- Its job was removed by retention: a key is never held by nothing.
        DELETE FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.job_id = first.job_id;
        job_id := new_id;
        run_at := coalesce(scheduled_at, now() + make_interval(secs => delay_ms / 1000.0), now());
        created_at := now();
        CONTINUE;
      END IF;
      outcome := CASE WHEN first.request_hash = hash THEN 'duplicate' ELSE 'conflict' END;
      IF unique_key IS NOT NULL THEN
        holder := job_summary(job_id);
      END IF;
      RETURN NEXT;
      RETURN;
    END LOOP;
  END IF;

  IF unique_key IS NOT NULL THEN
    wanted := unique_job_key(unique_scope, type, queue, unique_key);
    window_end := now() + make_interval(secs => unique_window_seconds);
    outcome := 'unique_in_flight';
    FOR try IN 1..20 LOOP
      SELECT t.* INTO taken FROM take_unique_key(wanted, new_id, window_end) AS t;
      IF taken.outcome = 'taken' THEN
        outcome := 'created';
        holder := NULL;
      END IF;
      EXIT WHEN taken.outcome <> 'held';
      SELECT job_summary(k.job_id) || jsonb_build_object('until', k.until) INTO holder
      FROM job_unique_keys AS k WHERE k.key = wanted AND k.job_id = taken.holder AND holds_unique_key(k.job_id, k.until);
      CONTINUE WHEN NOT FOUND; -- it has ended meanwhile
      IF on_conflict = 'return' THEN
        outcome := 'unique_held';
        EXIT;
      ELSIF on_conflict <> 'replace' OR holder->>'type' <> type OR holder->>'state' NOT IN ('pending', 'failed') THEN
        outcome := 'unique_conflict';
        EXIT;
      END IF;
      BEGIN
        moved_to := replace_waiting_job(taken.holder, payload, queue, priority, run_at, scheduled_at IS NOT NULL OR delay_ms IS NOT NULL,
          coalesce(max_attempts, default_max_attempts), timeout_ms, expires_at, tags, traceparent, copied_from, unique_through,
          backoff);
      EXCEPTION WHEN lock_not_available THEN
        EXIT;
      END;
      IF moved_to IS NOT NULL THEN
        outcome := 'unique_replaced';
        UPDATE job_unique_keys AS k SET until = greatest(k.until, window_end) WHERE k.key = wanted AND window_end IS NOT NULL;
        holder := job_summary(taken.holder);
        EXIT;
      END IF;
      PERFORM pg_sleep(0.001 * try); -- claimed, cancelled, or between two places: see anew
    END LOOP;
    IF outcome IN ('unique_held', 'unique_replaced') THEN
      UPDATE idempotency_keys AS k SET job_id = taken.holder
      WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.job_id = new_id;
    ELSIF outcome <> 'created' THEN
      DELETE FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.job_id = new_id;
    END IF;
    IF outcome <> 'created' THEN
      job_id := CASE WHEN outcome <> 'unique_in_flight' THEN taken.holder END;
      run_at := coalesce(moved_to, (holder->>'run_at')::timestamptz, run_at);
      created_at := coalesce((holder->>'created_at')::timestamptz, created_at);
      IF outcome = 'unique_replaced' AND notify THEN
        IF run_at > now() THEN PERFORM pg_notify('jobs_later', ''); ELSE PERFORM pg_notify('jobs', queue); END IF;
      END IF;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;

  INSERT INTO jobs AS j (id, type, queue, priority, max_attempts, version, payload, scheduled_at, expires_at, timeout_ms, tags, traceparent,
    copied_from, unique_key, unique_through, backoff)
  VALUES (new_id, type, queue, priority, coalesce(max_attempts, default_max_attempts), 1, payload,
    CASE WHEN scheduled_at IS NOT NULL OR delay_ms IS NOT NULL THEN run_at END, expires_at, timeout_ms, tags, traceparent,
    copied_from, wanted, CASE WHEN wanted IS NOT NULL THEN unique_through END, backoff);
  IF run_at > now() THEN
    INSERT INTO job_scheduled AS s (run_at, job_id, priority, queue, type) VALUES (run_at, new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs_later', ''); END IF;
  ELSE
    INSERT INTO job_ready AS r (job_id, priority, queue, type) VALUES (new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs', queue); END IF;
  END IF;
  RETURN NEXT;
END $$;
DROP FUNCTION replace_waiting_job(uuid, jsonb, text, integer, timestamptz, boolean, integer, integer, timestamptz, text[], text, uuid, integer, jsonb, text);
CREATE FUNCTION replace_waiting_job(job uuid, payload jsonb, queue text, priority integer, run_at timestamptz, timed boolean,
  max_attempts integer, timeout_ms integer, expires_at timestamptz, tags text[], traceparent text, copied_from uuid, unique_through integer,
  backoff jsonb DEFAULT NULL)
RETURNS timestamptz LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  place record;
  job_type text;
BEGIN
  WITH r AS (DELETE FROM job_ready AS x WHERE x.job_id = job RETURNING x.attempt, x.crashes, false AS failed, x.ready_at AS due),
  s AS (DELETE FROM job_scheduled AS x WHERE x.job_id = job RETURNING x.attempt, x.crashes, x.failed, x.run_at AS due),
  h AS (DELETE FROM job_held AS x WHERE x.job_id = job RETURNING x.attempt, x.crashes, false AS failed, x.held_at AS due)
  SELECT g.attempt, g.crashes, g.failed, g.due INTO place
  FROM (SELECT * FROM r UNION ALL SELECT * FROM s UNION ALL SELECT * FROM h) AS g;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF place.failed THEN
    run_at := greatest(run_at, place.due);
  END IF;
  UPDATE jobs AS j SET version = j.version + 1, payload = payload, queue = queue, priority = priority, max_attempts = max_attempts,
    scheduled_at = CASE WHEN timed THEN run_at END, expires_at = expires_at, timeout_ms = timeout_ms, tags = tags,
    traceparent = traceparent, copied_from = copied_from, unique_through = unique_through, backoff = backoff
  WHERE j.id = job RETURNING j.type INTO job_type;
  IF run_at > now() THEN
    INSERT INTO job_scheduled AS s (run_at, job_id, priority, attempt, crashes, failed, queue, type)
    VALUES (run_at, job, priority, place.attempt, place.crashes, place.failed, queue, job_type);
  ELSE
    INSERT INTO job_ready AS r (job_id, priority, attempt, crashes, queue, type)
    VALUES (job, priority, place.attempt, place.crashes, queue, job_type);
  END IF;
  RETURN run_at;
END $$;
DROP FUNCTION job_request_hash(text, text, integer, jsonb, integer, timestamptz, bigint, integer, timestamptz, text[], uuid, jsonb, jsonb, text);
CREATE FUNCTION job_request_hash(type text, queue text, priority integer, payload jsonb, max_attempts integer,
  scheduled_at timestamptz, delay_ms bigint, timeout_ms integer, expires_at timestamptz, tags text[],
  copied_from uuid DEFAULT NULL, unique_options jsonb DEFAULT NULL, backoff jsonb DEFAULT NULL)
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to((CASE WHEN backoff IS NOT NULL
    THEN jsonb_build_array(3, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags, copied_from, unique_options, backoff)
    WHEN copied_from IS NULL AND unique_options IS NULL
    THEN jsonb_build_array(1, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags)
    ELSE jsonb_build_array(2, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags, copied_from, unique_options) END)::text, 'UTF8'))
$$;
