--
-- PostgreSQL database dump
--

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: add_buckets(bigint[], bigint[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.add_buckets(a bigint[], b bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  SELECT array_agg(coalesce(u.x, 0) + coalesce(u.y, 0) ORDER BY u.i) FROM unnest(a, b) WITH ORDINALITY AS u(x, y, i)
$$;

--
-- Name: call_back(uuid[], integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.call_back(job_ids uuid[], max_attempts integer DEFAULT 5) RETURNS TABLE(job_id uuid, callback_id uuid, queue text)
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_variable
DECLARE
  x record;
BEGIN
  FOR x IN
    SELECT j.*, coalesce(d.attempt, e.attempt) AS attempt, coalesce(d.died_at, e.finished_at) AS finished_at, d.reason AS dead_reason,
      CASE WHEN d.job_id IS NOT NULL THEN 'dead_letter' WHEN e.outcome = 1 THEN 'completed' ELSE 'cancelled' END AS state,
      coalesce(d.error_class, e.error_class) AS error_class, coalesce(d.error, e.error) AS error,
      coalesce(d.fingerprint, e.fingerprint) AS fingerprint, CASE WHEN d.job_id IS NULL AND e.outcome = 1 THEN e.result END AS result
    FROM unnest(job_ids) AS u(id)
    CROSS JOIN LATERAL (SELECT o.job_id FROM owed_callbacks AS o WHERE o.job_id = u.id OFFSET 0) AS o
    CROSS JOIN LATERAL (SELECT p.id, p.type, p.queue, p.priority, p.max_attempts, p.created_at, p.replays, p.tags, p.traceparent, p.callback_url
      FROM jobs AS p WHERE p.id = o.job_id OFFSET 0) AS j
    LEFT JOIN LATERAL (SELECT q.job_id, q.attempt, q.died_at, q.reason, q.error_class, q.error, q.fingerprint
      FROM dead_letter_jobs AS q WHERE q.job_id = u.id OFFSET 0) AS d ON true
    LEFT JOIN LATERAL (SELECT r.outcome, r.attempt, r.finished_at, r.error_class, r.error, r.fingerprint, r.result
      FROM job_executions AS r WHERE r.job_id = u.id ORDER BY r.fencing_token DESC LIMIT 1) AS e ON true
    WHERE d.job_id IS NOT NULL OR e.outcome IN (1, 5)
    ORDER BY j.id
  LOOP
    BEGIN
      DELETE FROM owed_callbacks AS o WHERE o.job_id = x.id;
      CONTINUE WHEN NOT FOUND;
      callback_id := uuid_v7();
      INSERT INTO jobs AS j (id, type, queue, priority, max_attempts, version, payload, traceparent, callback_of)
      VALUES (callback_id, 'webhook', x.queue, x.priority, max_attempts, 1, jsonb_build_object('url', x.callback_url,
        'body', jsonb_build_object('type', 'job.' || x.state, 'timestamp', callback_time(now()), 'data', jsonb_strip_nulls(jsonb_build_object(
          'id', x.id, 'type', x.type, 'queue', x.queue, 'priority', x.priority, 'status', x.state, 'attempts', x.attempt,
          'max_attempts', x.max_attempts, 'replays', coalesce(x.replays, 0), 'tags', coalesce(x.tags, '{}'),
          'created_at', callback_time(x.created_at), 'finished_at', callback_time(x.finished_at), 'dead_reason', x.dead_reason,
          'last_error', CASE WHEN x.state <> 'completed' AND coalesce(x.error_class, x.error) IS NOT NULL THEN jsonb_build_object(
            'class', coalesce(x.error_class, ''), 'message', left(coalesce(x.error, ''), 2000), 'fingerprint', coalesce(x.fingerprint, '')) END,
          'result_omitted', CASE WHEN octet_length(x.result::text) > 65536 THEN true END))
        || CASE WHEN octet_length(x.result::text) <= 65536 THEN jsonb_build_object('result', x.result) ELSE '{}' END)), x.traceparent, x.id);
      INSERT INTO job_ready AS r (job_id, priority, queue, type) VALUES (callback_id, x.priority, x.queue, 'webhook');
      job_id := x.id;
      queue := x.queue;
      RETURN NEXT;
    EXCEPTION WHEN OTHERS THEN
      UPDATE owed_callbacks AS o SET failed_at = now(), error = left(SQLERRM, 500) WHERE o.job_id = x.id;
    END;
  END LOOP;
END $$;

--
-- Name: callback_time(timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.callback_time(at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

--
-- Name: complete_job(uuid, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.complete_job(id uuid, fencing_token bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
#variable_conflict use_variable
DECLARE
  since timestamptz;
  ran_ms float8;
  called record;
BEGIN
  INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome)
  SELECT id, k.id, k.worker_id, k.claimed_at, k.claimed_at, k.attempts[array_position(k.job_ids, id)] + 1, 1
  FROM (SELECT c.* FROM job_claims AS c WHERE c.id = fencing_token AND id = ANY (c.job_ids) FOR KEY SHARE) AS k
  ON CONFLICT ON CONSTRAINT job_executions_pkey DO NOTHING
  RETURNING e.claimed_at INTO since;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'lease lost: token % no longer holds job %', fencing_token, id USING
      ERRCODE = 'serialization_failure', HINT = 'Another worker has the job, or it has ended; roll back.';
  END IF;
  ran_ms := greatest(extract(epoch FROM clock_timestamp() - since) * 1000, 0);
  INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms, run_buckets)
  SELECT j.queue, j.type, 1, 1, ran_ms, array_fill(0, ARRAY[width_bucket(ran_ms - 0.001,
    ARRAY[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 900000, 1800000, 3600000]::float8[])]) || 1
  FROM jobs AS j WHERE j.id = complete_job.id;
  SELECT c.queue INTO called FROM call_back(ARRAY[id]) AS c;
  IF FOUND THEN
    PERFORM pg_notify('jobs', called.queue);
  END IF;
END $$;

--
-- Name: edit_waiting_job(uuid, integer, timestamp with time zone, integer, text, jsonb); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.edit_waiting_job(job uuid, new_priority integer, new_run_at timestamp with time zone, new_max_attempts integer, new_queue text, new_payload jsonb) RETURNS TABLE(outcome text, before jsonb, after jsonb, used integer, line text, later boolean)
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
#variable_conflict use_variable
DECLARE
  place record;
  old jobs;
  edited jobs;
  timed boolean;
BEGIN
  WITH r AS (
    DELETE FROM job_ready AS x WHERE x.job_id = job
    RETURNING 'ready' AS name, x.attempt, x.crashes, false AS failed, x.ready_at AS due, x.seq, NULL::text AS reason, NULL::text AS hold_key),
  s AS (
    DELETE FROM job_scheduled AS x WHERE x.job_id = job
    RETURNING 'scheduled' AS name, x.attempt, x.crashes, x.failed, x.run_at AS due, NULL::bigint AS seq, NULL::text AS reason, NULL::text AS hold_key),
  h AS (
    DELETE FROM job_held AS x WHERE x.job_id = job
    RETURNING 'held' AS name, x.attempt, x.crashes, false AS failed, x.held_at AS due, NULL::bigint AS seq, x.reason, x.hold_key)
  SELECT g.* INTO place FROM (SELECT * FROM r UNION ALL SELECT * FROM s UNION ALL SELECT * FROM h) AS g;
  IF NOT FOUND THEN
    outcome := 'absent';
    RETURN NEXT;
    RETURN;
  END IF;
  SELECT j.* INTO old FROM jobs AS j WHERE j.id = job;
  used := place.attempt;
  -- To the millisecond, as people are told it: who sends back what was read changes nothing.
  timed := CASE WHEN new_run_at IS NULL THEN false
    WHEN place.name = 'scheduled' THEN date_trunc('milliseconds', place.due) <> date_trunc('milliseconds', new_run_at)
    ELSE new_run_at > now() END;
  outcome := CASE
    WHEN new_max_attempts <= place.attempt THEN 'attempts_used'
    WHEN timed AND greatest(new_run_at, now()) >= old.expires_at THEN 'expires_first'
    WHEN NOT timed AND coalesce(new_priority, old.priority) = old.priority AND coalesce(new_max_attempts, old.max_attempts) = old.max_attempts
      AND coalesce(new_queue, old.queue) = old.queue AND coalesce(new_payload, old.payload)::text = old.payload::text THEN 'same'
    ELSE 'edited' END;
  IF outcome <> 'edited' THEN
    RETURN NEXT;
    RETURN;
  END IF;

  UPDATE jobs AS j SET priority = coalesce(new_priority, j.priority), max_attempts = coalesce(new_max_attempts, j.max_attempts),
    queue = coalesce(new_queue, j.queue), payload = coalesce(new_payload, j.payload),
    scheduled_at = CASE WHEN timed THEN new_run_at ELSE j.scheduled_at END
  WHERE j.id = job RETURNING j.* INTO edited;
  later := CASE WHEN timed THEN new_run_at > now() ELSE place.name = 'scheduled' END;
  line := edited.queue;
  IF later THEN
    INSERT INTO job_scheduled (run_at, job_id, priority, attempt, crashes, failed, queue, type)
    VALUES (CASE WHEN timed THEN new_run_at ELSE place.due END, job, edited.priority, place.attempt, place.crashes, place.failed,
      edited.queue, edited.type);
  ELSIF place.name = 'held' THEN
    INSERT INTO job_held (job_id, held_at, priority, attempt, crashes, queue, type, reason, hold_key)
    VALUES (job, place.due, edited.priority, place.attempt, place.crashes, edited.queue, edited.type, place.reason, place.hold_key);
  ELSIF place.name = 'ready' AND edited.queue = old.queue AND edited.priority = old.priority THEN
    INSERT INTO job_ready (seq, job_id, ready_at, priority, attempt, crashes, queue, type) OVERRIDING SYSTEM VALUE
    VALUES (place.seq, job, place.due, edited.priority, place.attempt, place.crashes, edited.queue, edited.type);
  ELSE
    INSERT INTO job_ready (job_id, ready_at, priority, attempt, crashes, queue, type)
    VALUES (job, CASE WHEN place.name = 'ready' THEN place.due ELSE now() END, edited.priority, place.attempt, place.crashes,
      edited.queue, edited.type);
  END IF;
  -- The trail is read by more people than payloads are: it has a digest of them.
  SELECT jsonb_object_agg(c.field, c.was), jsonb_object_agg(c.field, c.became) INTO before, after
  FROM (VALUES ('priority', to_jsonb(old.priority), to_jsonb(edited.priority)),
    ('max_attempts', to_jsonb(old.max_attempts), to_jsonb(edited.max_attempts)),
    ('queue', to_jsonb(old.queue), to_jsonb(edited.queue)),
    ('run_at', CASE WHEN timed THEN to_jsonb(place.due) END, CASE WHEN timed THEN to_jsonb(new_run_at) END),
    ('payload_sha256', to_jsonb(encode(sha256(convert_to(old.payload::text, 'UTF8')), 'hex')),
      to_jsonb(encode(sha256(convert_to(edited.payload::text, 'UTF8')), 'hex')))) AS c(field, was, became)
  WHERE c.was <> c.became;
  RETURN NEXT;
END $$;

--
-- Name: enqueue_job(text, jsonb, text, integer, timestamp with time zone, interval, integer, interval, timestamp with time zone, text[], text, text, boolean, uuid, text, text, text[], interval, text, jsonb, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.enqueue_job(type text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'default'::text, priority integer DEFAULT 1, scheduled_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, max_attempts integer DEFAULT NULL::integer, timeout interval DEFAULT NULL::interval, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, tags text[] DEFAULT NULL::text[], idempotency_key text DEFAULT NULL::text, traceparent text DEFAULT NULL::text, notify boolean DEFAULT true, copied_from uuid DEFAULT NULL::uuid, unique_key text DEFAULT NULL::text, unique_scope text DEFAULT 'type'::text, unique_states text[] DEFAULT '{waiting,running}'::text[], unique_window interval DEFAULT NULL::interval, on_conflict text DEFAULT 'return'::text, backoff jsonb DEFAULT NULL::jsonb, callback_url text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $_$
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
END $_$;

--
-- Name: enqueue_job_keyed(uuid, text, jsonb, text, integer, timestamp with time zone, bigint, integer, integer, integer, timestamp with time zone, text[], text, double precision, text, boolean, uuid, text, text, integer, double precision, text, jsonb, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.enqueue_job_keyed(new_id uuid, type text, payload jsonb, queue text, priority integer, scheduled_at timestamp with time zone, delay_ms bigint, max_attempts integer, default_max_attempts integer, timeout_ms integer, expires_at timestamp with time zone, tags text[], idempotency_key text, key_ttl_seconds double precision, traceparent text, notify boolean, copied_from uuid DEFAULT NULL::uuid, unique_key text DEFAULT NULL::text, unique_scope text DEFAULT 'type'::text, unique_through integer DEFAULT 2, unique_window_seconds double precision DEFAULT NULL::double precision, on_conflict text DEFAULT 'return'::text, backoff jsonb DEFAULT NULL::jsonb, callback_url text DEFAULT NULL::text) RETURNS TABLE(job_id uuid, outcome text, run_at timestamp with time zone, created_at timestamp with time zone, holder jsonb)
    LANGUAGE plpgsql
    SET lock_timeout TO '2s'
    SET search_path TO 'public', 'pg_temp'
    AS $$
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

--
-- Name: holds_unique_key(uuid, timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.holds_unique_key(job uuid, until timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
  SELECT coalesce((
    SELECT coalesce(holds_unique_key.until > now(), false) OR CASE s.state
      WHEN 'completed' THEN false
      WHEN 'cancelled' THEN false
      WHEN 'dead_letter' THEN j.unique_through = 3 AND s.discarded_at IS NULL
      WHEN 'leased' THEN j.unique_through >= 2
      ELSE true END
    FROM jobs AS j CROSS JOIN LATERAL (SELECT v.state, v.discarded_at FROM job_states AS v WHERE v.id = j.id OFFSET 0) AS s
    WHERE j.id = holds_unique_key.job), false)
$$;

--
-- Name: job_inbox_insert(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_inbox_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
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

--
-- Name: job_request_hash(text, text, integer, jsonb, integer, timestamp with time zone, bigint, integer, timestamp with time zone, text[], uuid, jsonb, jsonb, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_request_hash(type text, queue text, priority integer, payload jsonb, max_attempts integer, scheduled_at timestamp with time zone, delay_ms bigint, timeout_ms integer, expires_at timestamp with time zone, tags text[], copied_from uuid DEFAULT NULL::uuid, unique_options jsonb DEFAULT NULL::jsonb, backoff jsonb DEFAULT NULL::jsonb, callback_url text DEFAULT NULL::text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
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

--
-- Name: job_summary(uuid); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.job_summary(job uuid) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
  SELECT jsonb_build_object('type', j.type, 'queue', j.queue, 'priority', j.priority, 'max_attempts', j.max_attempts,
    'version', j.version, 'state', s.state, 'attempt', s.attempt, 'run_at', s.scheduled_at, 'created_at', j.created_at)
  FROM jobs AS j CROSS JOIN LATERAL (SELECT v.state, v.attempt, v.scheduled_at FROM job_states AS v WHERE v.id = j.id OFFSET 0) AS s
  WHERE j.id = job_summary.job
$$;

--
-- Name: normal_backoff(jsonb); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.normal_backoff(backoff jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
  base numeric;
  most numeric;
BEGIN
  IF backoff IS NULL THEN
    RETURN NULL;
  END IF;
  IF jsonb_typeof(backoff) <> 'object' THEN
    RAISE EXCEPTION 'backoff: an object with policy, base_seconds, max_seconds' USING ERRCODE = 'check_violation';
  END IF;
  IF backoff - '{policy,base_seconds,max_seconds}'::text[] <> '{}' THEN
    RAISE EXCEPTION 'backoff: an object with policy, base_seconds, max_seconds' USING ERRCODE = 'check_violation';
  END IF;
  IF coalesce(backoff->>'policy', 'full_jitter') NOT IN ('full_jitter', 'exponential') THEN
    RAISE EXCEPTION 'backoff.policy: full_jitter or exponential' USING ERRCODE = 'check_violation';
  END IF;
  IF coalesce(jsonb_typeof(backoff->'base_seconds'), 'number') <> 'number' OR coalesce(jsonb_typeof(backoff->'max_seconds'), 'number') <> 'number' THEN
    RAISE EXCEPTION 'backoff: base_seconds and max_seconds are numbers' USING ERRCODE = 'check_violation';
  END IF;
  base := coalesce((backoff->>'base_seconds')::numeric, 1);
  most := coalesce((backoff->>'max_seconds')::numeric, 300);
  IF base NOT BETWEEN 0.001 AND 86400 THEN
    RAISE EXCEPTION 'backoff.base_seconds: 0.001 to 86400 (1 day)' USING ERRCODE = 'check_violation';
  END IF;
  IF most NOT BETWEEN base AND 2592000 THEN
    RAISE EXCEPTION 'backoff.max_seconds: base_seconds to 2592000 (30 days)' USING ERRCODE = 'check_violation';
  END IF;
  RETURN jsonb_build_object('policy', coalesce(backoff->>'policy', 'full_jitter'), 'base_seconds', trim_scale(base), 'max_seconds', trim_scale(most));
END $$;

--
-- Name: operator_action_hash(bytea, bigint, timestamp with time zone, text, text, text, text, text, text, jsonb, jsonb, integer, text, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.operator_action_hash(previous_hash bytea, id bigint, at timestamp with time zone, actor text, source text, action text, target_kind text, target text, reason text, before jsonb, after jsonb, affected integer, request_id text, address text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  SELECT sha256(previous_hash || convert_to(jsonb_build_array(1, id, extract(epoch FROM at), actor, source, action, target_kind,
    target, reason, before, after, affected, request_id, address)::text, 'UTF8'))
$$;

--
-- Name: record_operator_action(text, text, text, text, text, text, jsonb, jsonb, integer, text, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.record_operator_action(actor text, source text, action text, target_kind text, target text, reason text, before jsonb, after jsonb, affected integer, request_id text, address text) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

--
-- Name: refuse_bare_insert(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.refuse_bare_insert() RETURNS integer
    LANGUAGE plpgsql
    AS $$
BEGIN
  RAISE EXCEPTION 'a job is not enqueued by INSERT INTO jobs' USING
    ERRCODE = 'insufficient_privilege',
    HINT = 'Call SELECT enqueue_job(type => ''email'', payload => ''{}''), or INSERT INTO job_inbox (type, payload), in the same transaction.';
END $$;

--
-- Name: refuse_change(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  RAISE EXCEPTION 'operator_actions is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;

--
-- Name: replace_waiting_job(uuid, jsonb, text, integer, timestamp with time zone, boolean, integer, integer, timestamp with time zone, text[], text, uuid, integer, jsonb, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.replace_waiting_job(job uuid, payload jsonb, queue text, priority integer, run_at timestamp with time zone, timed boolean, max_attempts integer, timeout_ms integer, expires_at timestamp with time zone, tags text[], traceparent text, copied_from uuid, unique_through integer, backoff jsonb DEFAULT NULL::jsonb, callback_url text DEFAULT NULL::text) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
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

--
-- Name: sign_in_wait(integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.sign_in_wait(failures integer) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  SELECT CASE WHEN failures < 5 THEN interval '0' ELSE least(interval '1 second' * power(2, least(failures, 20) - 5), interval '5 minutes') END
$$;

--
-- Name: take_act_key(text, bytea, text, double precision); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.take_act_key(key text, hash bytea, act_subject text, key_ttl_seconds double precision) RETURNS TABLE(outcome text, subject text)
    LANGUAGE plpgsql
    SET lock_timeout TO '2s'
    SET search_path TO 'public', 'pg_temp'
    AS $$
#variable_conflict use_variable
DECLARE
  first idempotency_keys;
BEGIN
  LOOP
    BEGIN
      INSERT INTO idempotency_keys AS k (scope, key, request_hash, response, expires_at)
      VALUES ('act', key, hash, to_jsonb(act_subject), now() + make_interval(secs => key_ttl_seconds))
      ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
        SET request_hash = excluded.request_hash, response = excluded.response, created_at = now(), expires_at = excluded.expires_at
        WHERE k.expires_at <= now();
      IF FOUND THEN
        outcome := 'taken';
        subject := act_subject;
        RETURN NEXT;
        RETURN;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      outcome := 'in_flight';
      RETURN NEXT;
      RETURN;
    END;
    SELECT k.* INTO first FROM idempotency_keys AS k WHERE k.scope = 'act' AND k.key = key;
    CONTINUE WHEN NOT FOUND;
    outcome := CASE WHEN first.request_hash = hash THEN 'duplicate' ELSE 'conflict' END;
    subject := first.response #>> '{}';
    RETURN NEXT;
    RETURN;
  END LOOP;
END $$;

--
-- Name: take_batch_key(text, jsonb, uuid, double precision); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.take_batch_key(key text, items jsonb, first_job uuid, key_ttl_seconds double precision) RETURNS TABLE(outcome text, job_id uuid, response jsonb)
    LANGUAGE plpgsql
    SET lock_timeout TO '2s'
    SET search_path TO 'public', 'pg_temp'
    AS $$
#variable_conflict use_variable
DECLARE
  hash bytea := sha256(convert_to(jsonb_build_array('batch', items)::text, 'UTF8'));
  first idempotency_keys;
BEGIN
  LOOP
    BEGIN
      INSERT INTO idempotency_keys AS k (scope, key, request_hash, job_id, expires_at)
      VALUES ('enqueue', key, hash, first_job, now() + make_interval(secs => key_ttl_seconds))
      ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
        SET request_hash = excluded.request_hash, job_id = excluded.job_id, response = NULL, created_at = now(),
          expires_at = excluded.expires_at
        WHERE k.expires_at <= now();
      IF FOUND THEN
        outcome := 'taken';
        RETURN NEXT;
        RETURN;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      outcome := 'in_flight';
      RETURN NEXT;
      RETURN;
    END;
    SELECT k.* INTO first FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = key;
    CONTINUE WHEN NOT FOUND;
    IF NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = first.job_id) THEN
      -- Removed by retention: a key is never held by nothing.
      DELETE FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = key AND k.job_id = first.job_id;
      CONTINUE;
    END IF;
    outcome := CASE WHEN first.request_hash = hash THEN 'duplicate' ELSE 'conflict' END;
    job_id := first.job_id;
    response := first.response;
    RETURN NEXT;
    RETURN;
  END LOOP;
END $$;

--
-- Name: take_unique_key(bytea, uuid, timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.take_unique_key(wanted bytea, taker uuid, window_end timestamp with time zone) RETURNS TABLE(outcome text, holder uuid)
    LANGUAGE plpgsql
    SET lock_timeout TO '2s'
    SET search_path TO 'public', 'pg_temp'
    AS $$
#variable_conflict use_variable
DECLARE
  seen record;
BEGIN
  FOR try IN 1..10 LOOP
    -- Holder and state from one snapshot: in two, a job that ended between them would be taken for one that holds.
    SELECT k.job_id, k.hold, holds_unique_key(k.job_id, k.until) AS holds INTO seen FROM job_unique_keys AS k WHERE k.key = wanted;
    IF seen.holds AND seen.job_id <> taker THEN
      outcome := 'held';
      holder := seen.job_id;
      RETURN NEXT;
      RETURN;
    END IF;
    BEGIN
      IF seen.hold IS NULL THEN
        INSERT INTO job_unique_keys AS k (key, job_id, until) VALUES (wanted, taker, window_end)
        ON CONFLICT ON CONSTRAINT job_unique_keys_pkey DO NOTHING;
      ELSE
        UPDATE job_unique_keys AS k
        SET job_id = taker, hold = DEFAULT, until = CASE WHEN k.job_id = taker THEN k.until ELSE window_end END
        WHERE k.key = wanted AND k.hold = seen.hold;
      END IF;
      IF FOUND THEN
        outcome := 'taken';
        holder := taker;
        RETURN NEXT;
        RETURN;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      EXIT;
    END;
  END LOOP;
  outcome := 'in_flight';
  RETURN NEXT;
END $$;

--
-- Name: unique_job_key(text, text, text, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.unique_job_key(scope text, type text, queue text, key text) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  SELECT sha256(convert_to(jsonb_build_array(scope, CASE scope WHEN 'type' THEN type WHEN 'queue' THEN queue END, key)::text, 'UTF8'))
$$;

--
-- Name: uuid_v7(timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.uuid_v7(at timestamp with time zone DEFAULT clock_timestamp()) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send(floor(extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

--
-- Name: sum_buckets(bigint[]); Type: AGGREGATE; Schema: public; Owner: -
--

CREATE AGGREGATE public.sum_buckets(bigint[]) (
    SFUNC = public.add_buckets,
    STYPE = bigint[],
    INITCOND = '{}'
);

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: api_tokens; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.api_tokens (
    id text NOT NULL,
    token_hash bytea NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    queues text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    created_by text NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_tokens_id_check CHECK ((id ~ '^[0-9A-Za-z]{8}$'::text)),
    CONSTRAINT api_tokens_name_check CHECK ((name ~ '^[a-z0-9][a-z0-9._@-]{0,63}$'::text)),
    CONSTRAINT api_tokens_queues_check CHECK (((cardinality(queues) >= 1) AND (cardinality(queues) <= 100))),
    CONSTRAINT api_tokens_scopes_check CHECK (((cardinality(scopes) > 0) AND (scopes <@ ARRAY['jobs:read'::text, 'jobs:write'::text, 'queues:write'::text, 'dlq:write'::text, 'admin'::text]))),
    CONSTRAINT api_tokens_token_hash_check CHECK ((octet_length(token_hash) = 32))
);

--
-- Name: console_sessions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.console_sessions (
    id bigint NOT NULL,
    token_hash bytea NOT NULL,
    user_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    user_agent text NOT NULL,
    address text NOT NULL,
    CONSTRAINT console_sessions_address_check CHECK ((char_length(address) <= 64)),
    CONSTRAINT console_sessions_token_hash_check CHECK ((octet_length(token_hash) = 32)),
    CONSTRAINT console_sessions_user_agent_check CHECK ((char_length(user_agent) <= 200))
);

--
-- Name: console_sessions_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.console_sessions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.console_sessions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: console_users; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.console_users (
    id bigint NOT NULL,
    name text NOT NULL,
    password_hash text NOT NULL,
    role text NOT NULL,
    generation integer DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    disabled_at timestamp with time zone,
    signed_in_at timestamp with time zone,
    queues text[],
    CONSTRAINT console_users_name_check CHECK ((name ~ '^[a-z0-9][a-z0-9._@-]{0,63}$'::text)),
    CONSTRAINT console_users_queues_check CHECK (((cardinality(queues) >= 1) AND (cardinality(queues) <= 100))),
    CONSTRAINT console_users_role_check CHECK ((role = ANY (ARRAY['admin'::text, 'operator'::text, 'viewer'::text])))
);

--
-- Name: console_users_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.console_users ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.console_users_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: dead_letter_jobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.dead_letter_jobs (
    job_id uuid NOT NULL,
    fencing_token bigint NOT NULL,
    died_at timestamp with time zone DEFAULT now() NOT NULL,
    discarded_at timestamp with time zone,
    attempt smallint NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    reason text NOT NULL,
    error_class text,
    error text,
    stack text,
    fingerprint text DEFAULT ''::text NOT NULL,
    worker jsonb,
    CONSTRAINT dead_letter_jobs_reason_check CHECK ((reason = ANY (ARRAY['exhausted'::text, 'permanent'::text, 'poison'::text, 'expired'::text])))
);

--
-- Name: idempotency_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_keys (
    scope text NOT NULL,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    job_id uuid,
    response jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT idempotency_keys_key_check CHECK (((char_length(key) >= 1) AND (char_length(key) <= 255)))
);

--
-- Name: integrity_checks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.integrity_checks (
    id bigint NOT NULL,
    checked_at timestamp with time zone DEFAULT now() NOT NULL,
    took_ms integer NOT NULL,
    verdict text NOT NULL,
    rules integer NOT NULL,
    violated text[] NOT NULL,
    unchecked text[] NOT NULL,
    report jsonb DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT integrity_checks_verdict_check CHECK ((verdict = ANY (ARRAY['ok'::text, 'violated'::text, 'unchecked'::text])))
);

--
-- Name: integrity_checks_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.integrity_checks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.integrity_checks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: job_claims; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_claims (
    id bigint NOT NULL,
    worker_id bigint NOT NULL,
    claimed_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    job_ids uuid[] NOT NULL,
    attempts smallint[] NOT NULL,
    crashes smallint[] NOT NULL,
    stops uuid[],
    CONSTRAINT job_claims_check CHECK ((((cardinality(job_ids) >= 1) AND (cardinality(job_ids) <= 1000)) AND (cardinality(attempts) = cardinality(job_ids)) AND (cardinality(crashes) = cardinality(job_ids))))
)
WITH (autovacuum_vacuum_threshold='5000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='5000', autovacuum_analyze_scale_factor='0');
ALTER TABLE ONLY public.job_claims ALTER COLUMN job_ids SET STORAGE EXTERNAL;

--
-- Name: job_claims_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.job_claims ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_claims_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: job_executions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_executions (
    job_id uuid NOT NULL,
    fencing_token bigint NOT NULL,
    worker_id bigint,
    claimed_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    wait_ms integer,
    attempt smallint NOT NULL,
    outcome smallint NOT NULL,
    error_class text,
    error text,
    stack text,
    fingerprint text,
    logs jsonb,
    result jsonb,
    progress real,
    progress_text text,
    CONSTRAINT job_executions_outcome_check CHECK (((outcome >= 1) AND (outcome <= 9)))
);

--
-- Name: job_held; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_held (
    job_id uuid NOT NULL,
    held_at timestamp with time zone DEFAULT now() NOT NULL,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    crashes smallint NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    reason text NOT NULL,
    hold_key text NOT NULL,
    CONSTRAINT job_held_attempt_check CHECK ((attempt >= 0)),
    CONSTRAINT job_held_crashes_check CHECK ((crashes >= 0)),
    CONSTRAINT job_held_priority_check CHECK (((priority >= 0) AND (priority <= 5))),
    CONSTRAINT job_held_reason_check CHECK ((reason = ANY (ARRAY['type_paused'::text, 'no_worker'::text, 'dependency'::text])))
)
WITH (autovacuum_vacuum_threshold='5000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='5000', autovacuum_analyze_scale_factor='0');

--
-- Name: jobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.jobs (
    id uuid NOT NULL,
    type text NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL,
    priority smallint DEFAULT 1 NOT NULL,
    max_attempts smallint DEFAULT 5 NOT NULL,
    version integer DEFAULT public.refuse_bare_insert() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    scheduled_at timestamp with time zone,
    expires_at timestamp with time zone,
    timeout_ms integer,
    unique_key bytea,
    flow_key text,
    tags text[],
    traceparent text,
    copied_from uuid,
    replays smallint,
    unique_through smallint,
    backoff jsonb,
    callback_url text,
    callback_of uuid,
    CONSTRAINT jobs_backoff_check CHECK ((((backoff ->> 'policy'::text) = ANY (ARRAY['full_jitter'::text, 'exponential'::text])) AND (((backoff ->> 'base_seconds'::text))::numeric > (0)::numeric) AND ((((backoff ->> 'max_seconds'::text))::numeric >= ((backoff ->> 'base_seconds'::text))::numeric) AND (((backoff ->> 'max_seconds'::text))::numeric <= (2592000)::numeric)))),
    CONSTRAINT jobs_callback_once CHECK (((callback_url IS NULL) OR (callback_of IS NULL))),
    CONSTRAINT jobs_callback_url_check CHECK ((octet_length(callback_url) <= 2048)),
    CONSTRAINT jobs_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 100))),
    CONSTRAINT jobs_payload_check CHECK ((jsonb_typeof(payload) = 'object'::text)),
    CONSTRAINT jobs_priority_check CHECK (((priority >= 0) AND (priority <= 5))),
    CONSTRAINT jobs_queue_check CHECK (((octet_length(queue) >= 1) AND (octet_length(queue) <= 100))),
    CONSTRAINT jobs_timeout_ms_check CHECK ((timeout_ms > 0)),
    CONSTRAINT jobs_type_check CHECK (((octet_length(type) >= 1) AND (octet_length(type) <= 100))),
    CONSTRAINT jobs_unique_through_check CHECK (((unique_through >= 1) AND (unique_through <= 3)))
);

--
-- Name: job_inbox; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.job_inbox AS
 SELECT j.id,
    j.type,
    j.payload,
    j.queue,
    (j.priority)::integer AS priority,
    j.scheduled_at,
    NULL::interval AS delay,
    (j.max_attempts)::integer AS max_attempts,
    NULL::interval AS timeout,
    j.expires_at,
    j.tags,
    NULL::text AS idempotency_key,
    j.traceparent,
    NULL::boolean AS notify,
    j.copied_from,
    NULL::text AS unique_key,
    NULL::text AS unique_scope,
    NULL::text[] AS unique_states,
    NULL::interval AS unique_window,
    NULL::text AS on_conflict,
    j.backoff,
    j.callback_url
   FROM public.jobs j;

--
-- Name: job_live; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_live (
    fencing_token bigint NOT NULL,
    job_id uuid NOT NULL,
    progress real,
    progress_text text,
    logs jsonb,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT job_live_progress_check CHECK (((progress >= (0)::double precision) AND (progress <= (100)::double precision)))
)
WITH (fillfactor='50', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='1000', autovacuum_analyze_scale_factor='0');

--
-- Name: job_ready; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_ready (
    seq bigint NOT NULL,
    job_id uuid NOT NULL,
    ready_at timestamp with time zone DEFAULT now() NOT NULL,
    priority smallint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    CONSTRAINT job_ready_attempt_check CHECK ((attempt >= 0)),
    CONSTRAINT job_ready_crashes_check CHECK ((crashes >= 0)),
    CONSTRAINT job_ready_priority_check CHECK (((priority >= 0) AND (priority <= 5)))
)
WITH (autovacuum_vacuum_threshold='5000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='5000', autovacuum_analyze_scale_factor='0');

--
-- Name: job_ready_seq_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.job_ready ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_ready_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: job_scheduled; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_scheduled (
    run_at timestamp with time zone NOT NULL,
    job_id uuid NOT NULL,
    priority smallint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    failed boolean DEFAULT false NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    CONSTRAINT job_scheduled_attempt_check CHECK ((attempt >= 0)),
    CONSTRAINT job_scheduled_crashes_check CHECK ((crashes >= 0)),
    CONSTRAINT job_scheduled_priority_check CHECK (((priority >= 0) AND (priority <= 5)))
)
WITH (autovacuum_vacuum_threshold='5000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='5000', autovacuum_analyze_scale_factor='0');

--
-- Name: job_states; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.job_states AS
 SELECT j.id,
    j.type,
    j.queue,
    j.priority,
    j.created_at,
    j.max_attempts,
        CASE
            WHEN (d.job_id IS NOT NULL) THEN 'dead_letter'::text
            WHEN ((r.job_id IS NOT NULL) OR (h.job_id IS NOT NULL)) THEN 'pending'::text
            WHEN (s.job_id IS NOT NULL) THEN
            CASE
                WHEN s.failed THEN 'failed'::text
                ELSE 'pending'::text
            END
            WHEN (c.id IS NOT NULL) THEN 'leased'::text
            WHEN (e.outcome = 1) THEN 'completed'::text
            WHEN (e.outcome = 5) THEN 'cancelled'::text
            ELSE NULL::text
        END AS state,
    COALESCE(s.run_at, r.ready_at, j.scheduled_at, j.created_at) AS scheduled_at,
    (COALESCE((d.attempt)::integer, (r.attempt)::integer, (h.attempt)::integer, (s.attempt)::integer, (c.attempt)::integer, (e.attempt)::integer, 0))::smallint AS attempt,
    (COALESCE((d.crashes)::integer, (r.crashes)::integer, (h.crashes)::integer, (s.crashes)::integer, (c.crashes)::integer, 0))::smallint AS crashes,
    c.lease_expires_at,
    c.worker_id,
    COALESCE(c.id, e.fencing_token, (0)::bigint) AS fencing_token,
    h.reason AS held_reason,
    e.outcome AS last_outcome,
    e.finished_at,
    d.discarded_at
   FROM ((((((public.jobs j
     LEFT JOIN LATERAL ( SELECT x.job_id,
            x.attempt,
            x.crashes,
            x.discarded_at
           FROM public.dead_letter_jobs x
          WHERE (x.job_id = j.id)) d ON (true))
     LEFT JOIN LATERAL ( SELECT x.job_id,
            x.attempt,
            x.crashes,
            x.ready_at
           FROM public.job_ready x
          WHERE (x.job_id = j.id)) r ON (true))
     LEFT JOIN LATERAL ( SELECT x.job_id,
            x.attempt,
            x.crashes,
            x.reason
           FROM public.job_held x
          WHERE (x.job_id = j.id)) h ON (true))
     LEFT JOIN LATERAL ( SELECT x.job_id,
            x.attempt,
            x.crashes,
            x.run_at,
            x.failed
           FROM public.job_scheduled x
          WHERE (x.job_id = j.id)) s ON (true))
     LEFT JOIN LATERAL ( SELECT x.fencing_token,
            x.attempt,
            x.outcome,
            x.finished_at
           FROM public.job_executions x
          WHERE (x.job_id = j.id)
          ORDER BY x.fencing_token DESC
         LIMIT 1) e ON (true))
     LEFT JOIN LATERAL ( SELECT x.id,
            x.lease_expires_at,
            x.worker_id,
            ((x.attempts[array_position(x.job_ids, j.id)] + 1))::smallint AS attempt,
            x.crashes[array_position(x.job_ids, j.id)] AS crashes
           FROM public.job_claims x
          WHERE ((d.job_id IS NULL) AND (r.job_id IS NULL) AND (h.job_id IS NULL) AND (s.job_id IS NULL) AND (x.id > COALESCE(e.fencing_token, (0)::bigint)) AND (j.id = ANY (x.job_ids)))
         LIMIT 1) c ON (true));

--
-- Name: job_stats_deltas; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_stats_deltas (
    at timestamp with time zone DEFAULT now() NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    outcome smallint NOT NULL,
    n integer NOT NULL,
    run_ms bigint NOT NULL,
    wait_buckets integer[],
    run_buckets integer[]
)
WITH (autovacuum_vacuum_threshold='5000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='5000', autovacuum_analyze_scale_factor='0');

--
-- Name: job_stats_minutes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_stats_minutes (
    minute timestamp with time zone NOT NULL,
    queue text NOT NULL,
    type text NOT NULL,
    outcome smallint NOT NULL,
    n bigint NOT NULL,
    run_ms bigint NOT NULL,
    wait_buckets bigint[],
    run_buckets bigint[]
);

--
-- Name: job_stop_requests; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_stop_requests (
    job_id uuid NOT NULL,
    fencing_token bigint NOT NULL,
    worker_id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    reason text
);

--
-- Name: job_types; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_types (
    type text NOT NULL,
    schema jsonb,
    version integer DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_by text NOT NULL,
    CONSTRAINT job_types_schema_check CHECK ((jsonb_typeof(schema) = 'object'::text)),
    CONSTRAINT job_types_type_check CHECK ((type ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'::text))
);

--
-- Name: job_unique_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.job_unique_keys (
    key bytea NOT NULL,
    job_id uuid NOT NULL,
    until timestamp with time zone,
    hold bigint NOT NULL,
    CONSTRAINT job_unique_keys_key_check CHECK ((octet_length(key) = 32))
)
WITH (autovacuum_vacuum_threshold='5000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='5000', autovacuum_analyze_scale_factor='0');

--
-- Name: job_unique_keys_hold_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.job_unique_keys ALTER COLUMN hold ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_unique_keys_hold_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: leaders; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leaders (
    role text NOT NULL,
    worker_id bigint NOT NULL,
    term bigint DEFAULT 1 NOT NULL,
    acquired_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

--
-- Name: maintenance_tasks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.maintenance_tasks (
    task text NOT NULL,
    last_success_at timestamp with time zone,
    resume_after uuid
);

--
-- Name: operation_jobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operation_jobs (
    operation_id uuid NOT NULL,
    n integer NOT NULL,
    job_id uuid NOT NULL,
    token bigint,
    acted_at timestamp with time zone,
    passed_over boolean DEFAULT false NOT NULL
);

--
-- Name: operations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operations (
    id uuid NOT NULL,
    action text NOT NULL,
    selection jsonb NOT NULL,
    cut_off timestamp with time zone NOT NULL,
    pace text NOT NULL,
    per_minute integer,
    state text DEFAULT 'running'::text NOT NULL,
    halted_reason text,
    actor text NOT NULL,
    source text NOT NULL,
    reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    total integer NOT NULL,
    done integer DEFAULT 0 NOT NULL,
    passed_over integer DEFAULT 0 NOT NULL,
    step integer DEFAULT 0 NOT NULL,
    step_from integer DEFAULT 0 NOT NULL,
    step_at timestamp with time zone DEFAULT now() NOT NULL,
    next_at timestamp with time zone DEFAULT now() NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    CONSTRAINT operations_action_check CHECK ((action = ANY (ARRAY['replay'::text, 'discard'::text, 'cancel'::text, 'run_now'::text]))),
    CONSTRAINT operations_check CHECK (((pace = 'rate'::text) = (per_minute IS NOT NULL))),
    CONSTRAINT operations_check1 CHECK (((state = ANY (ARRAY['stopped'::text, 'finished'::text])) = (ended_at IS NOT NULL))),
    CONSTRAINT operations_check2 CHECK (((state = 'halted'::text) <= (halted_reason IS NOT NULL))),
    CONSTRAINT operations_check3 CHECK (((done >= 0) AND (passed_over >= 0) AND ((done + passed_over) <= total))),
    CONSTRAINT operations_pace_check CHECK ((pace = ANY (ARRAY['all'::text, 'rate'::text, 'canary'::text]))),
    CONSTRAINT operations_per_minute_check CHECK (((per_minute >= 1) AND (per_minute <= 1000000))),
    CONSTRAINT operations_state_check CHECK ((state = ANY (ARRAY['running'::text, 'paused'::text, 'halted'::text, 'stopped'::text, 'finished'::text]))),
    CONSTRAINT operations_total_check CHECK ((total > 0))
);

--
-- Name: operator_action_head; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operator_action_head (
    singleton boolean DEFAULT true NOT NULL,
    id bigint NOT NULL,
    hash bytea NOT NULL,
    removed_id bigint DEFAULT 0 NOT NULL,
    removed_hash bytea DEFAULT '\x'::bytea NOT NULL,
    removed_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT operator_action_head_singleton_check CHECK (singleton)
);

--
-- Name: operator_actions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operator_actions (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    source text NOT NULL,
    action text NOT NULL,
    target_kind text NOT NULL,
    target text NOT NULL,
    reason text,
    before jsonb,
    after jsonb,
    affected integer DEFAULT 1 NOT NULL,
    request_id text,
    address text,
    previous_hash bytea NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT operator_actions_source_check CHECK ((source = ANY (ARRAY['console'::text, 'api'::text, 'cli'::text, 'go'::text, 'system'::text])))
);

--
-- Name: owed_callbacks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.owed_callbacks (
    job_id uuid NOT NULL,
    failed_at timestamp with time zone,
    error text
)
WITH (autovacuum_vacuum_threshold='5000', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='5000', autovacuum_analyze_scale_factor='0');

--
-- Name: queues; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.queues (
    name text NOT NULL,
    paused_at timestamp with time zone,
    paused_reason text,
    resume_at timestamp with time zone,
    version integer DEFAULT 1 NOT NULL,
    free boolean GENERATED ALWAYS AS ((paused_at IS NULL)) STORED,
    CONSTRAINT queues_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 100)))
);

--
-- Name: refused_writes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.refused_writes (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    job_id uuid NOT NULL,
    token_held bigint NOT NULL,
    token_current bigint,
    worker_id bigint NOT NULL,
    operation text NOT NULL,
    tried jsonb
);

--
-- Name: refused_writes_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.refused_writes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.refused_writes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: schema_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.schema_migrations (
    version character varying NOT NULL
);

--
-- Name: sign_in_tries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.sign_in_tries (
    kind text NOT NULL,
    subject text NOT NULL,
    failures integer NOT NULL,
    last_at timestamp with time zone NOT NULL,
    blocked_until timestamp with time zone NOT NULL,
    CONSTRAINT sign_in_tries_kind_check CHECK ((kind = ANY (ARRAY['address'::text, 'name'::text]))),
    CONSTRAINT sign_in_tries_subject_check CHECK ((char_length(subject) <= 64))
);

--
-- Name: signing_secrets; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.signing_secrets (
    name text NOT NULL,
    secret bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT signing_secrets_name_check CHECK ((name = 'cursor'::text)),
    CONSTRAINT signing_secrets_secret_check CHECK ((octet_length(secret) >= 32))
);

--
-- Name: workers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.workers (
    id bigint NOT NULL,
    name text NOT NULL,
    hostname text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues text[] NOT NULL,
    types text[] NOT NULL,
    slots integer NOT NULL,
    busy integer DEFAULT 0 NOT NULL,
    stuck integer DEFAULT 0 NOT NULL,
    lease_ms integer NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT now() NOT NULL,
    stopped_at timestamp with time zone,
    done_per_minute integer DEFAULT 0 NOT NULL,
    failed_lately integer DEFAULT 0 NOT NULL,
    CONSTRAINT workers_state_check CHECK ((state = ANY (ARRAY['running'::text, 'draining'::text, 'stopped'::text])))
);

--
-- Name: workers_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.workers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.workers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: api_tokens api_tokens_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_pkey PRIMARY KEY (id);

--
-- Name: api_tokens api_tokens_token_hash_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_token_hash_key UNIQUE (token_hash);

--
-- Name: console_sessions console_sessions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT console_sessions_pkey PRIMARY KEY (id);

--
-- Name: console_sessions console_sessions_token_hash_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT console_sessions_token_hash_key UNIQUE (token_hash);

--
-- Name: console_users console_users_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.console_users
    ADD CONSTRAINT console_users_name_key UNIQUE (name);

--
-- Name: console_users console_users_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.console_users
    ADD CONSTRAINT console_users_pkey PRIMARY KEY (id);

--
-- Name: dead_letter_jobs dead_letter_jobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.dead_letter_jobs
    ADD CONSTRAINT dead_letter_jobs_pkey PRIMARY KEY (job_id);

--
-- Name: idempotency_keys idempotency_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (scope, key);

--
-- Name: integrity_checks integrity_checks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.integrity_checks
    ADD CONSTRAINT integrity_checks_pkey PRIMARY KEY (id);

--
-- Name: job_claims job_claims_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_claims
    ADD CONSTRAINT job_claims_pkey PRIMARY KEY (id);

--
-- Name: job_executions job_executions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_executions
    ADD CONSTRAINT job_executions_pkey PRIMARY KEY (job_id, fencing_token);

--
-- Name: job_held job_held_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_held
    ADD CONSTRAINT job_held_pkey PRIMARY KEY (job_id);

--
-- Name: job_live job_live_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_live
    ADD CONSTRAINT job_live_pkey PRIMARY KEY (fencing_token, job_id);

--
-- Name: job_ready job_ready_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_ready
    ADD CONSTRAINT job_ready_pkey PRIMARY KEY (queue, priority, seq);

--
-- Name: job_scheduled job_scheduled_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_scheduled
    ADD CONSTRAINT job_scheduled_pkey PRIMARY KEY (run_at, job_id);

--
-- Name: job_stats_minutes job_stats_minutes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_stats_minutes
    ADD CONSTRAINT job_stats_minutes_pkey PRIMARY KEY (minute, queue, type, outcome);

--
-- Name: job_stop_requests job_stop_requests_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_stop_requests
    ADD CONSTRAINT job_stop_requests_pkey PRIMARY KEY (job_id);

--
-- Name: job_types job_types_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_types
    ADD CONSTRAINT job_types_pkey PRIMARY KEY (type);

--
-- Name: job_unique_keys job_unique_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.job_unique_keys
    ADD CONSTRAINT job_unique_keys_pkey PRIMARY KEY (key);

--
-- Name: jobs jobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

--
-- Name: leaders leaders_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leaders
    ADD CONSTRAINT leaders_pkey PRIMARY KEY (role);

--
-- Name: maintenance_tasks maintenance_tasks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.maintenance_tasks
    ADD CONSTRAINT maintenance_tasks_pkey PRIMARY KEY (task);

--
-- Name: operation_jobs operation_jobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operation_jobs
    ADD CONSTRAINT operation_jobs_pkey PRIMARY KEY (operation_id, n);

--
-- Name: operations operations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (id);

--
-- Name: operator_action_head operator_action_head_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operator_action_head
    ADD CONSTRAINT operator_action_head_pkey PRIMARY KEY (singleton);

--
-- Name: operator_actions operator_actions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operator_actions
    ADD CONSTRAINT operator_actions_pkey PRIMARY KEY (id);

--
-- Name: owed_callbacks owed_callbacks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.owed_callbacks
    ADD CONSTRAINT owed_callbacks_pkey PRIMARY KEY (job_id);

--
-- Name: queues queues_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);

--
-- Name: refused_writes refused_writes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.refused_writes
    ADD CONSTRAINT refused_writes_pkey PRIMARY KEY (id);

--
-- Name: schema_migrations schema_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

--
-- Name: sign_in_tries sign_in_tries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.sign_in_tries
    ADD CONSTRAINT sign_in_tries_pkey PRIMARY KEY (kind, subject);

--
-- Name: signing_secrets signing_secrets_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.signing_secrets
    ADD CONSTRAINT signing_secrets_pkey PRIMARY KEY (name);

--
-- Name: workers workers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

--
-- Name: api_tokens_name; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX api_tokens_name ON public.api_tokens USING btree (name) WHERE (revoked_at IS NULL);

--
-- Name: console_sessions_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX console_sessions_user ON public.console_sessions USING btree (user_id, id);

--
-- Name: dead_letter_jobs_died; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX dead_letter_jobs_died ON public.dead_letter_jobs USING btree (died_at, job_id);

--
-- Name: dead_letter_jobs_group; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX dead_letter_jobs_group ON public.dead_letter_jobs USING btree (fingerprint, died_at);

--
-- Name: idempotency_keys_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_keys_expiry ON public.idempotency_keys USING btree (expires_at);

--
-- Name: job_executions_error; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_executions_error ON public.job_executions USING btree (fingerprint, finished_at) WHERE (fingerprint IS NOT NULL);

--
-- Name: job_executions_finished; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_executions_finished ON public.job_executions USING brin (finished_at) WITH (pages_per_range='16', autosummarize='on');

--
-- Name: job_executions_other; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_executions_other ON public.job_executions USING btree (finished_at, job_id) WHERE (outcome <> 1);

--
-- Name: job_executions_rare; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_executions_rare ON public.job_executions USING btree (outcome, job_id, finished_at) WHERE (outcome = ANY (ARRAY[5, 6, 7]));

--
-- Name: job_held_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_held_key ON public.job_held USING btree (reason, hold_key, job_id);

--
-- Name: job_ready_job; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX job_ready_job ON public.job_ready USING btree (job_id);

--
-- Name: job_ready_suspects; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_ready_suspects ON public.job_ready USING btree (queue, ((5 - priority)), seq) WHERE (crashes > 0);

--
-- Name: job_scheduled_failed; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_scheduled_failed ON public.job_scheduled USING btree (job_id) WHERE failed;

--
-- Name: job_scheduled_job; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX job_scheduled_job ON public.job_scheduled USING btree (job_id);

--
-- Name: job_stop_requests_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX job_stop_requests_age ON public.job_stop_requests USING btree (requested_at);

--
-- Name: jobs_callbacks; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_callbacks ON public.jobs USING btree (callback_of, id) WHERE (callback_of IS NOT NULL);

--
-- Name: jobs_copies; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_copies ON public.jobs USING btree (copied_from, id) WHERE (copied_from IS NOT NULL);

--
-- Name: jobs_expiring; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX jobs_expiring ON public.jobs USING btree (expires_at, id) WHERE (expires_at IS NOT NULL);

--
-- Name: operations_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operations_due ON public.operations USING btree (next_at) WHERE (state = 'running'::text);

--
-- Name: operations_made; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operations_made ON public.operations USING btree (created_at, id);

--
-- Name: operator_actions_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operator_actions_at ON public.operator_actions USING btree (at);

--
-- Name: operator_actions_target; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operator_actions_target ON public.operator_actions USING btree (target_kind, target, id);

--
-- Name: owed_callbacks_failed; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX owed_callbacks_failed ON public.owed_callbacks USING btree (failed_at) WHERE (failed_at IS NOT NULL);

--
-- Name: refused_writes_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX refused_writes_at ON public.refused_writes USING btree (at);

--
-- Name: refused_writes_job; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX refused_writes_job ON public.refused_writes USING btree (job_id, id);

--
-- Name: sign_in_tries_last; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX sign_in_tries_last ON public.sign_in_tries USING btree (last_at);

--
-- Name: workers_live; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX workers_live ON public.workers USING btree (heartbeat_at) WHERE (state <> 'stopped'::text);

--
-- Name: job_inbox job_inbox_insert; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER job_inbox_insert INSTEAD OF INSERT ON public.job_inbox FOR EACH ROW EXECUTE FUNCTION public.job_inbox_insert();

--
-- Name: operator_actions operator_actions_append_only; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER operator_actions_append_only BEFORE UPDATE ON public.operator_actions FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

--
-- Name: console_sessions console_sessions_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT console_sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.console_users(id) ON DELETE CASCADE;

--
-- PostgreSQL database dump complete
--

--
-- Dbmate schema migrations
--

INSERT INTO public.schema_migrations (version) VALUES
    ('20261130100000'),
    ('20261130100100'),
    ('20261130100200'),
    ('20261130100300'),
    ('20261130100400'),
    ('20261130100500'),
    ('20261130110000'),
    ('20261130120000'),
    ('20261130140000'),
    ('20261130140100'),
    ('20261130150000'),
    ('20261130150100'),
    ('20261130150200'),
    ('20261130160000'),
    ('20261130160100'),
    ('20261130170000'),
    ('20261130180000'),
    ('20261130190000'),
    ('20261130190100'),
    ('20261130190200'),
    ('20261130190300'),
    ('20261130190400'),
    ('20261130190500'),
    ('20261130200000'),
    ('20261130210000'),
    ('20261130210100'),
    ('20261130210200'),
    ('20261130210300'),
    ('20261130220000'),
    ('20261130220100'),
    ('20261201010000');
