-- migrate:up

-- A key names the one job that may stand for it. The row alone does not hold it: the job's place does, as holds_unique_key
-- reads it, so that a key is free by the very commit that ends its job, whoever ends it, and a claim or a finish writes
-- nothing for it. What is left behind is taken over by the next enqueue, or swept. Rows only for jobs that ask.
CREATE TABLE job_unique_keys (
  key bytea PRIMARY KEY CHECK (octet_length(key) = 32),
  job_id uuid NOT NULL,
  -- Held up to here whatever becomes of the job: the end of the window. NULL: no window.
  until timestamptz,
  -- A new one with each taking, so that whoever saw an older one takes nothing away.
  hold bigint GENERATED ALWAYS AS IDENTITY
);
ALTER TABLE job_unique_keys SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0);

-- The last of the states in which the job holds its key: 1 waiting 2 running 3 dead. NULL with unique_key.
ALTER TABLE jobs ADD COLUMN unique_through smallint CHECK (unique_through BETWEEN 1 AND 3);

-- Scope and key as one name. Every door asks this function, so all agree.
CREATE FUNCTION unique_job_key(scope text, type text, queue text, key text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to(jsonb_build_array(scope, CASE scope WHEN 'type' THEN type WHEN 'queue' THEN queue END, key)::text, 'UTF8'))
$$;

-- Whether the job that a key names holds it: it stands in a state covered, or the window is open. A job that was removed
-- holds nothing.
CREATE FUNCTION holds_unique_key(job uuid, until timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
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

-- The content of an enqueue, with more of it. The release now running calls this with fewer arguments. A content without
-- the new ones keeps its hash, so that keys in use go on meaning the same.
DROP FUNCTION job_request_hash(text, text, integer, jsonb, integer, timestamptz, bigint, integer, timestamptz, text[]);
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

-- The functions below keep this search path: their owner's rights must not reach a caller's temporary table.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- take_unique_key gives a key to taker, unless another job holds it. outcome: taken; held (holder is the job); in_flight
-- (a call that has not committed is taking it, after lock_timeout). It locks nothing that it does not take: an enqueue in a
-- long transaction that met a holder must not keep anybody waiting. A replay takes its own key again.
CREATE FUNCTION take_unique_key(wanted bytea, taker uuid, window_end timestamptz)
RETURNS TABLE (outcome text, holder uuid)
LANGUAGE plpgsql SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
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

-- migrate:down
DROP FUNCTION job_request_hash(text, text, integer, jsonb, integer, timestamptz, bigint, integer, timestamptz, text[], uuid, jsonb);
CREATE FUNCTION job_request_hash(type text, queue text, priority integer, payload jsonb, max_attempts integer,
  scheduled_at timestamptz, delay_ms bigint, timeout_ms integer, expires_at timestamptz, tags text[])
RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to(jsonb_build_array(1, type, queue, priority, payload, max_attempts,
    extract(epoch FROM scheduled_at), delay_ms, timeout_ms, extract(epoch FROM expires_at), tags)::text, 'UTF8'))
$$;
DROP FUNCTION take_unique_key(bytea, uuid, timestamptz);
DROP FUNCTION holds_unique_key(uuid, timestamptz);
DROP FUNCTION unique_job_key(text, text, text, text);
ALTER TABLE jobs DROP COLUMN unique_through;
DROP TABLE job_unique_keys;
