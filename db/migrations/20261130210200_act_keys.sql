-- migrate:up

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- take_act_key gives an idempotency key to one act of an operator, in the act's own transaction. outcome: taken; duplicate
-- (the same act: subject is what the first one acted on or made); conflict (another act); in_flight (another call holds the
-- key and has not committed within lock_timeout). It raises for none of these. These keys are apart from those of enqueues.
CREATE FUNCTION take_act_key(key text, hash bytea, act_subject text, key_ttl_seconds double precision)
RETURNS TABLE (outcome text, subject text)
LANGUAGE plpgsql SET lock_timeout = '2s' SET search_path FROM CURRENT AS $$
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

-- migrate:down
DROP FUNCTION take_act_key(text, bytea, text, double precision);
