-- migrate:up

-- complete_job counts the run it closes, in the same transaction, as CompleteTx does: a worker that finds its run closed
-- counts nothing. How long the job waited is not known any more. The limits are those of job_stats_deltas.
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

-- migrate:down
CREATE OR REPLACE FUNCTION complete_job(id uuid, fencing_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
