-- migrate:up

-- How long this one job waits between its attempts, in place of its type's policy. NULL, as for nearly all, costs nothing.
ALTER TABLE jobs ADD COLUMN backoff jsonb CHECK (backoff->>'policy' IN ('full_jitter', 'exponential')
  AND (backoff->>'base_seconds')::numeric > 0 AND (backoff->>'max_seconds')::numeric BETWEEN (backoff->>'base_seconds')::numeric AND 2592000);

-- The release now running calls these functions with fewer arguments: the new ones have defaults and stand last.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The one form of a backoff, so that the doors agree on what is the same, with its defaults filled in.
CREATE FUNCTION normal_backoff(backoff jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
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

-- A content without a backoff keeps its hash, so that keys in use go on meaning the same.
DROP FUNCTION job_request_hash(text, text, integer, jsonb, integer, timestamptz, bigint, integer, timestamptz, text[], uuid, jsonb);
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

DROP FUNCTION replace_waiting_job(uuid, jsonb, text, integer, timestamptz, boolean, integer, integer, timestamptz, text[], text, uuid, integer);
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

DROP FUNCTION enqueue_job_keyed(uuid, text, jsonb, text, integer, timestamptz, bigint, integer, integer, integer, timestamptz, text[], text,
  double precision, text, boolean, uuid, text, text, integer, double precision, text);
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

-- migrate:down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP FUNCTION enqueue_job_keyed(uuid, text, jsonb, text, integer, timestamptz, bigint, integer, integer, integer, timestamptz, text[], text,
  double precision, text, boolean, uuid, text, text, integer, double precision, text, jsonb);
DROP FUNCTION replace_waiting_job(uuid, jsonb, text, integer, timestamptz, boolean, integer, integer, timestamptz, text[], text, uuid, integer, jsonb);
DROP FUNCTION job_request_hash(text, text, integer, jsonb, integer, timestamptz, bigint, integer, timestamptz, text[], uuid, jsonb, jsonb);
CREATE FUNCTION job_request_hash(type text, queue text, priority integer, payload jsonb, max_attempts integer,
  scheduled_at timestamptz, delay_ms bigint, timeout_ms integer, expires_at timestamptz, tags text[],
  copied_from uuid DEFAULT NULL, unique_options jsonb DEFAULT NULL)
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to((CASE WHEN copied_from IS NULL AND unique_options IS NULL
    THEN jsonb_build_array(1, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags)
    ELSE jsonb_build_array(2, type, queue, priority, payload, max_attempts, extract(epoch FROM scheduled_at), delay_ms, timeout_ms,
      extract(epoch FROM expires_at), tags, copied_from, unique_options) END)::text, 'UTF8'))
$$;
CREATE FUNCTION replace_waiting_job(job uuid, payload jsonb, queue text, priority integer, run_at timestamptz, timed boolean,
  max_attempts integer, timeout_ms integer, expires_at timestamptz, tags text[], traceparent text, copied_from uuid, unique_through integer)
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
    traceparent = traceparent, copied_from = copied_from, unique_through = unique_through
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
CREATE FUNCTION enqueue_job_keyed(
  new_id uuid, type text, payload jsonb, queue text, priority integer, scheduled_at timestamptz, delay_ms bigint,
  max_attempts integer, default_max_attempts integer, timeout_ms integer, expires_at timestamptz, tags text[],
  idempotency_key text, key_ttl_seconds double precision, traceparent text, notify boolean,
  copied_from uuid DEFAULT NULL, unique_key text DEFAULT NULL, unique_scope text DEFAULT 'type', unique_through integer DEFAULT 2,
  unique_window_seconds double precision DEFAULT NULL, on_conflict text DEFAULT 'return')
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
        jsonb_build_array(unique_key, unique_scope, unique_through, unique_window_seconds, on_conflict) END);
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
          coalesce(max_attempts, default_max_attempts), timeout_ms, expires_at, tags, traceparent, copied_from, unique_through);
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
    copied_from, unique_key, unique_through)
  VALUES (new_id, type, queue, priority, coalesce(max_attempts, default_max_attempts), 1, payload,
    CASE WHEN scheduled_at IS NOT NULL OR delay_ms IS NOT NULL THEN run_at END, expires_at, timeout_ms, tags, traceparent,
    copied_from, wanted, CASE WHEN wanted IS NOT NULL THEN unique_through END);
  IF run_at > now() THEN
    INSERT INTO job_scheduled AS s (run_at, job_id, priority, queue, type) VALUES (run_at, new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs_later', ''); END IF;
  ELSE
    INSERT INTO job_ready AS r (job_id, priority, queue, type) VALUES (new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs', queue); END IF;
  END IF;
  RETURN NEXT;
END $$;
DROP FUNCTION normal_backoff(jsonb);
ALTER TABLE jobs DROP COLUMN backoff;
