-- migrate:up

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- edit_waiting_job changes a job that waits; NULL leaves a field as it is. The job leaves its place and takes one anew, so
-- that a claim that began before, and would read what stood there then, does not get it. It keeps its turn in line unless
-- its queue or priority changes, its attempts in any case, and its unique key as it was taken. A run_at that has passed
-- means now. The caller raises the version.
-- outcome: edited; same (it is so already); absent (it does not wait, or is between two places); attempts_used, expires_first
-- (against a limit that depends on the job). Whatever is not edited must be rolled back.
CREATE FUNCTION edit_waiting_job(job uuid, new_priority integer, new_run_at timestamptz, new_max_attempts integer, new_queue text,
  new_payload jsonb)
RETURNS TABLE (outcome text, before jsonb, after jsonb, used integer, line text, later boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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

-- migrate:down
DROP FUNCTION edit_waiting_job(uuid, integer, timestamptz, integer, text, jsonb);
