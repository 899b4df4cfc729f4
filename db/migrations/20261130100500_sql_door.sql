-- migrate:up

-- The functions below keep this search path: their owner's rights must not reach a caller's temporary table.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- enqueue_job_keyed is the body of the SQL door and of every keyed enqueue through the others, so that all agree on what
-- a repetition is. outcome: created; duplicate (same key, same content: job_id is the first job's); conflict (same key,
-- other content: job_id holds the key, nothing was written); in_flight (another call holds the key and has not committed
-- within lock_timeout: nothing was written). It raises for none of these, so that the caller's transaction lives on.
CREATE FUNCTION enqueue_job_keyed(
  new_id uuid, type text, payload jsonb, queue text, priority integer, scheduled_at timestamptz, delay_ms bigint,
  max_attempts integer, default_max_attempts integer, timeout_ms integer, expires_at timestamptz, tags text[],
  idempotency_key text, key_ttl_seconds double precision, traceparent text, notify boolean)
RETURNS TABLE (job_id uuid, outcome text, run_at timestamptz, created_at timestamptz)
LANGUAGE plpgsql SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  hash bytea;
  holder idempotency_keys;
BEGIN
  job_id := new_id;
  outcome := 'created';
  run_at := coalesce(scheduled_at, now() + make_interval(secs => delay_ms / 1000.0), now());
  created_at := now();
  IF idempotency_key IS NOT NULL THEN
    hash := job_request_hash(type, queue, priority, payload, max_attempts, scheduled_at, delay_ms, timeout_ms, expires_at, tags);
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
      SELECT k.* INTO holder FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key;
      CONTINUE WHEN NOT FOUND;
      SELECT j.id, coalesce(j.scheduled_at, j.created_at), j.created_at INTO job_id, run_at, created_at
      FROM jobs AS j WHERE j.id = holder.job_id;
      IF NOT FOUND THEN
        -- Its job was removed by retention: a key is never held by nothing.
        DELETE FROM idempotency_keys AS k WHERE k.scope = 'enqueue' AND k.key = idempotency_key AND k.job_id = holder.job_id;
        job_id := new_id;
        run_at := coalesce(scheduled_at, now() + make_interval(secs => delay_ms / 1000.0), now());
        created_at := now();
        CONTINUE;
      END IF;
      outcome := CASE WHEN holder.request_hash = hash THEN 'duplicate' ELSE 'conflict' END;
      RETURN NEXT;
      RETURN;
    END LOOP;
  END IF;

  INSERT INTO jobs AS j (id, type, queue, priority, max_attempts, version, payload, scheduled_at, expires_at, timeout_ms, tags, traceparent)
  VALUES (new_id, type, queue, priority, coalesce(max_attempts, default_max_attempts), 1, payload,
    CASE WHEN scheduled_at IS NOT NULL OR delay_ms IS NOT NULL THEN run_at END, expires_at, timeout_ms, tags, traceparent);
  IF run_at > now() THEN
    INSERT INTO job_scheduled AS s (run_at, job_id, priority, queue, type) VALUES (run_at, new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs_later', ''); END IF;
  ELSE
    INSERT INTO job_ready AS r (job_id, priority, queue, type) VALUES (new_id, priority, queue, type);
    IF notify THEN PERFORM pg_notify('jobs', queue); END IF;
  END IF;
  RETURN NEXT;
END $$;

-- enqueue_job is the SQL door: any language, inside the caller's own transaction. The job exists once that commits, and
-- never did if it rolls back. It answers the job's id; a repeated idempotency_key answers the first job's. It runs with
-- its owner's rights, so a producer needs EXECUTE on it and nothing on the tables.
-- notify => false spares bulk writers the notification, which takes a database-wide lock at commit; polling finds the job.
CREATE FUNCTION enqueue_job(
  type text, payload jsonb DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 1,
  scheduled_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, expires_at timestamptz DEFAULT NULL, tags text[] DEFAULT NULL,
  idempotency_key text DEFAULT NULL, traceparent text DEFAULT NULL, notify boolean DEFAULT true)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  run_at timestamptz := coalesce(enqueue_job.scheduled_at, now() + enqueue_job.delay);
  timeout_ms bigint := round(extract(epoch FROM timeout) * 1000);
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

  SELECT e.job_id, e.outcome INTO answer FROM enqueue_job_keyed(uuid_v7(), type, payload, queue, priority, scheduled_at,
    (extract(epoch FROM delay) * 1000)::bigint, max_attempts, 5, timeout_ms::integer, expires_at, tags, idempotency_key, 86400,
    traceparent, coalesce(notify, true)) AS e;
  IF answer.outcome = 'conflict' THEN
    RAISE EXCEPTION 'idempotency_key: used before with other content, by job %', answer.job_id USING
      ERRCODE = 'unique_violation', DETAIL = answer.job_id::text, HINT = 'Send the same content, or a new key.';
  ELSIF answer.outcome = 'in_flight' THEN
    RAISE EXCEPTION 'idempotency_key: another call holds it and has not committed' USING
      ERRCODE = 'lock_not_available', HINT = 'Try again.';
  END IF;
  RETURN answer.job_id;
END $$;

-- job_inbox is the same door for an ORM: INSERT INTO job_inbox (type, payload) ... RETURNING id.
CREATE VIEW job_inbox AS
SELECT j.id, j.type, j.payload, j.queue, j.priority::integer AS priority, j.scheduled_at, NULL::interval AS delay,
  j.max_attempts::integer AS max_attempts, NULL::interval AS timeout, j.expires_at, j.tags, NULL::text AS idempotency_key,
  j.traceparent, NULL::boolean AS notify
FROM jobs AS j;

CREATE FUNCTION job_inbox_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.id IS NOT NULL THEN
    RAISE EXCEPTION 'id: the engine makes it; read it with RETURNING id' USING ERRCODE = 'check_violation';
  END IF;
  NEW.id := enqueue_job(type => NEW.type, payload => coalesce(NEW.payload, '{}'), queue => coalesce(NEW.queue, 'default'),
    priority => coalesce(NEW.priority, 1), scheduled_at => NEW.scheduled_at, delay => NEW.delay, max_attempts => NEW.max_attempts,
    timeout => NEW.timeout, expires_at => NEW.expires_at, tags => NEW.tags, idempotency_key => NEW.idempotency_key,
    traceparent => NEW.traceparent, notify => coalesce(NEW.notify, true));
  RETURN NEW;
END $$;
CREATE TRIGGER job_inbox_insert INSTEAD OF INSERT ON job_inbox FOR EACH ROW EXECUTE FUNCTION job_inbox_insert();

-- complete_job closes the caller's own run inside its own transaction, from any language: what the handler wrote and the
-- job's end commit together. It refuses a token that no longer holds the lease, so that the transaction fails.
CREATE FUNCTION complete_job(id uuid, fencing_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
BEGIN
  INSERT INTO job_executions AS e (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome)
  SELECT id, k.id, k.worker_id, k.claimed_at, k.claimed_at, k.attempts[array_position(k.job_ids, id)] + 1, 1
  FROM (SELECT c.* FROM job_claims AS c WHERE c.id = fencing_token AND id = ANY (c.job_ids) FOR KEY SHARE) AS k
  ON CONFLICT ON CONSTRAINT job_executions_pkey DO NOTHING;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'lease lost: token % no longer holds job %', fencing_token, id USING
      ERRCODE = 'serialization_failure', HINT = 'Another worker has the job, or it has ended; roll back.';
  END IF;
END $$;

-- migrate:down
DROP FUNCTION complete_job(uuid, bigint);
DROP VIEW job_inbox;
DROP FUNCTION job_inbox_insert();
DROP FUNCTION enqueue_job(text, jsonb, text, integer, timestamptz, interval, integer, interval, timestamptz, text[], text, text, boolean);
DROP FUNCTION enqueue_job_keyed(uuid, text, jsonb, text, integer, timestamptz, bigint, integer, integer, integer, timestamptz, text[], text,
  double precision, text, boolean);
