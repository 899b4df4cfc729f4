-- Every change of a place, in the order it was made, with the transaction that made it. Statement triggers: a batch is
-- one insert. A rolled-back move leaves nothing, so that what stands here was committed.
CREATE SCHEMA IF NOT EXISTS moves;
CREATE TABLE IF NOT EXISTS moves.log (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  txid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  place text NOT NULL,      -- job, ready, scheduled, failed, held, dead, claim, execution, action
  op text NOT NULL,         -- insert, delete
  job_id uuid NOT NULL,
  token bigint NOT NULL DEFAULT 0,
  attempt smallint NOT NULL DEFAULT 0,
  crashes smallint NOT NULL DEFAULT 0,
  outcome smallint NOT NULL DEFAULT 0,
  detail text NOT NULL DEFAULT ''
);

CREATE OR REPLACE FUNCTION moves.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = moves, public, pg_temp AS $$
BEGIN
  EXECUTE format('INSERT INTO moves.log (place, op, job_id, token, attempt, crashes, outcome, detail) %s', replace(TG_ARGV[0], 'OP', lower(TG_OP)));
  RETURN NULL;
END $$;

-- An edit is a delete and an insert of one row. Heartbeats change no place and are left out.
CREATE OR REPLACE FUNCTION moves.watch(tab regclass, columns text, source text DEFAULT 'changed AS c') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  trg text := 'moves_' || split_part(tab::text, '.', -1);
BEGIN
  EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', trg || '_in', tab);
  EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', trg || '_out', tab);
  EXECUTE format('CREATE TRIGGER %I AFTER INSERT ON %s REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION moves.note(%L)',
    trg || '_in', tab, 'SELECT ' || columns || ' FROM ' || source);
  EXECUTE format('CREATE TRIGGER %I AFTER DELETE ON %s REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION moves.note(%L)',
    trg || '_out', tab, 'SELECT ' || columns || ' FROM ' || source);
END $$;

SELECT moves.watch('jobs', $q$'job', 'OP', c.id, 0, 0::smallint, 0::smallint, 0::smallint, c.type$q$);
SELECT moves.watch('job_ready', $q$'ready', 'OP', c.job_id, 0, c.attempt, c.crashes, 0::smallint, ''$q$);
SELECT moves.watch('job_scheduled', $q$CASE WHEN c.failed THEN 'failed' ELSE 'scheduled' END, 'OP', c.job_id, 0, c.attempt, c.crashes, 0::smallint, c.run_at::text$q$);
SELECT moves.watch('job_held', $q$'held', 'OP', c.job_id, 0, c.attempt, c.crashes, 0::smallint, c.reason$q$);
SELECT moves.watch('dead_letter_jobs', $q$'dead', 'OP', c.job_id, c.fencing_token, c.attempt, c.crashes, 0::smallint, c.reason$q$);
SELECT moves.watch('job_claims', $q$'claim', 'OP', u.job_id, c.id, u.attempt, u.crashes, 0::smallint, 'worker ' || c.worker_id$q$,
  'changed AS c CROSS JOIN LATERAL unnest(c.job_ids, c.attempts, c.crashes) AS u(job_id, attempt, crashes)');
SELECT moves.watch('job_executions', $q$'execution', 'OP', c.job_id, c.fencing_token, c.attempt, 0::smallint, c.outcome,
  coalesce('worker ' || c.worker_id, '') || coalesce(' ' || c.error_class, '')$q$);
SELECT moves.watch('operator_actions', $q$'action', 'OP', c.target::uuid, 0, 0::smallint, 0::smallint, 0::smallint, c.action || ' by ' || c.actor$q$,
  $s$changed AS c WHERE c.target_kind = 'job' AND c.target ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'$s$);
