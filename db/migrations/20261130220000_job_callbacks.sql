-- migrate:up

-- Where a job's end is told, and of which job a callback tells. NULL, as for nearly all, costs nothing.
ALTER TABLE jobs ADD COLUMN callback_url text CHECK (octet_length(callback_url) <= 2048), ADD COLUMN callback_of uuid,
  ADD CONSTRAINT jobs_callback_once CHECK (callback_url IS NULL OR callback_of IS NULL);
CREATE INDEX jobs_callbacks ON jobs (callback_of, id) WHERE callback_of IS NOT NULL;

-- The jobs whose next end is to be told: a row from the enqueue, or the replay, to the end. Whoever takes the row away makes
-- the callback, in the transaction of the end, so that each life calls once. A callback that could not be made leaves its
-- row, with the reason; the leader tries it again.
CREATE TABLE owed_callbacks (
  job_id uuid PRIMARY KEY,
  failed_at timestamptz,
  error text
);
CREATE INDEX owed_callbacks_failed ON owed_callbacks (failed_at) WHERE failed_at IS NOT NULL;
ALTER TABLE owed_callbacks SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0);

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- call_back makes the callbacks of those of the jobs that have ended and are owed one: jobs of type webhook, in the queue and
-- at the priority of the job they tell of. It belongs into the transaction of the end, after the statement that makes it, and
-- raises for no callback: one that cannot be made stays owed, and the end stands. Each look-up is one by key: a plan that was
-- made while owed_callbacks was empty may not read it whole.
CREATE FUNCTION call_back(job_ids uuid[], max_attempts integer DEFAULT 5)
RETURNS TABLE (job_id uuid, callback_id uuid, queue text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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

-- An instant as the API writes it.
CREATE FUNCTION callback_time(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- complete_job makes the callback too, in the caller's transaction.
CREATE OR REPLACE FUNCTION complete_job(id uuid, fencing_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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

-- migrate:down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION complete_job(id uuid, fencing_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  since timestamptz;
  ran_ms float8;
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
END $$;
DROP FUNCTION call_back(uuid[], integer);
DROP FUNCTION callback_time(timestamptz);
DROP TABLE owed_callbacks;
DROP INDEX jobs_callbacks;
ALTER TABLE jobs DROP CONSTRAINT jobs_callback_once, DROP COLUMN callback_url, DROP COLUMN callback_of;
