-- migrate:up

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- take_batch_key gives an idempotency key to one call that enqueues many jobs. It is of the same name space as the keys of
-- single jobs. outcome: taken (the caller writes its jobs, then its answer, in this transaction); duplicate (same content:
-- response is the first answer); conflict (other content: job_id is the first job under the key); in_flight (another call
-- holds the key and has not committed within lock_timeout). It raises for none of these.
CREATE FUNCTION take_batch_key(key text, items jsonb, first_job uuid, key_ttl_seconds double precision)
RETURNS TABLE (outcome text, job_id uuid, response jsonb)
LANGUAGE plpgsql SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
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

-- migrate:down
DROP FUNCTION take_batch_key(text, jsonb, uuid, double precision);
