-- migrate:up

-- uuid_v7 makes a job id for callers of the SQL door: 48 bits of milliseconds, the version, the rest random (RFC 9562).
CREATE FUNCTION uuid_v7(at timestamptz DEFAULT clock_timestamp()) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send(floor(extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- A job without a place would wait for ever, so a bare INSERT INTO jobs must not look like an enqueue. It meets this
-- default, since only the engine's own statements list jobs.version; they pay nothing for it.
CREATE FUNCTION refuse_bare_insert() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a job is not enqueued by INSERT INTO jobs' USING
    ERRCODE = 'insufficient_privilege',
    HINT = 'Call SELECT enqueue_job(type => ''email'', payload => ''{}''), or INSERT INTO job_inbox (type, payload), in the same transaction.';
END $$;

-- What was asked for. Written once; only edits and replays change a row, so that the hot path leaves no dead rows here.
CREATE TABLE jobs (
  id uuid PRIMARY KEY,
  type text NOT NULL CHECK (octet_length(type) BETWEEN 1 AND 100),
  queue text NOT NULL DEFAULT 'default' CHECK (octet_length(queue) BETWEEN 1 AND 100),
  priority smallint NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 5),
  max_attempts smallint NOT NULL DEFAULT 5 CHECK (max_attempts BETWEEN 1 AND 100),
  version integer NOT NULL DEFAULT refuse_bare_insert(),
  created_at timestamptz NOT NULL DEFAULT now(),
  payload jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(payload) = 'object'),
  -- NULL costs nothing: all below is optional
  scheduled_at timestamptz,
  expires_at timestamptz,
  timeout_ms integer CHECK (timeout_ms > 0),
  unique_key bytea,
  flow_key text,
  tags text[],
  traceparent text,
  copied_from uuid,
  replays smallint
);
CREATE INDEX jobs_expiring ON jobs (expires_at, id) WHERE expires_at IS NOT NULL;

-- Runnable now. Narrow, so that a claim touches little.
CREATE TABLE job_ready (
  seq bigint GENERATED ALWAYS AS IDENTITY,
  job_id uuid NOT NULL,
  ready_at timestamptz NOT NULL DEFAULT now(),
  priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 5),
  attempt smallint NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  crashes smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
  queue text NOT NULL,
  type text NOT NULL,
  PRIMARY KEY (queue, priority, seq)
);
CREATE UNIQUE INDEX job_ready_job ON job_ready (job_id);
CREATE INDEX job_ready_suspects ON job_ready (queue, (5 - priority), seq) WHERE crashes > 0;

-- Not due yet, backing off, or snoozed. Kept out of the ready line: a million future rows before the due ones made a
-- claim 350 times slower.
CREATE TABLE job_scheduled (
  run_at timestamptz NOT NULL,
  job_id uuid NOT NULL,
  priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 5),
  attempt smallint NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  crashes smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
  failed boolean NOT NULL DEFAULT false,
  queue text NOT NULL,
  type text NOT NULL,
  PRIMARY KEY (run_at, job_id)
);
CREATE UNIQUE INDEX job_scheduled_job ON job_scheduled (job_id);
CREATE INDEX job_scheduled_failed ON job_scheduled (job_id) WHERE failed;

-- Waiting for something other than time.
CREATE TABLE job_held (
  job_id uuid PRIMARY KEY,
  held_at timestamptz NOT NULL DEFAULT now(),
  priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 5),
  attempt smallint NOT NULL CHECK (attempt >= 0),
  crashes smallint NOT NULL CHECK (crashes >= 0),
  queue text NOT NULL,
  type text NOT NULL,
  reason text NOT NULL CHECK (reason IN ('type_paused', 'no_worker', 'dependency')),
  hold_key text NOT NULL
);
CREATE INDEX job_held_key ON job_held (reason, hold_key, job_id);

-- A lease: one row for a claimed batch. Its id is the fencing token of every job in it.
CREATE TABLE job_claims (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  worker_id bigint NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT now(),
  lease_expires_at timestamptz NOT NULL,
  job_ids uuid[] NOT NULL,
  attempts smallint[] NOT NULL,
  crashes smallint[] NOT NULL,
  CHECK (cardinality(job_ids) BETWEEN 1 AND 1000 AND cardinality(attempts) = cardinality(job_ids)
     AND cardinality(crashes) = cardinality(job_ids))
);
-- Ids do not compress; trying costs 0.9 us a job.
ALTER TABLE job_claims ALTER job_ids SET STORAGE EXTERNAL;

-- The audit trail: one row for each closed run, whose key is the guard that a run is closed once.
CREATE TABLE job_executions (
  job_id uuid NOT NULL,
  fencing_token bigint NOT NULL,
  worker_id bigint,
  claimed_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz NOT NULL DEFAULT now(),
  wait_ms integer,
  attempt smallint NOT NULL,
  -- 1 completed 2 failed 3 snoozed 4 handed_back 5 cancelled 6 lease_expired 7 crashed 8 expired 9 timed_out
  outcome smallint NOT NULL CHECK (outcome BETWEEN 1 AND 9),
  error_class text,
  error text,
  stack text,
  fingerprint text,
  logs jsonb,
  result jsonb,
  PRIMARY KEY (job_id, fencing_token)
);
CREATE INDEX job_executions_other ON job_executions (finished_at, job_id) WHERE outcome <> 1;
CREATE INDEX job_executions_error ON job_executions (fingerprint, finished_at) WHERE fingerprint IS NOT NULL;
CREATE INDEX job_executions_finished ON job_executions USING brin (finished_at) WITH (pages_per_range = 16, autosummarize = on);

CREATE TABLE dead_letter_jobs (
  job_id uuid PRIMARY KEY,
  fencing_token bigint NOT NULL,
  died_at timestamptz NOT NULL DEFAULT now(),
  discarded_at timestamptz,
  attempt smallint NOT NULL,
  crashes smallint NOT NULL DEFAULT 0,
  queue text NOT NULL,
  type text NOT NULL,
  reason text NOT NULL CHECK (reason IN ('exhausted', 'permanent', 'poison', 'expired')),
  error_class text,
  error text,
  stack text,
  fingerprint text NOT NULL DEFAULT '',
  worker jsonb
);
CREATE INDEX dead_letter_jobs_group ON dead_letter_jobs (fingerprint, died_at);
CREATE INDEX dead_letter_jobs_died ON dead_letter_jobs (died_at, job_id);

-- Settings of a queue; a queue without a row is plain. free is what the claim reads: nothing to check.
CREATE TABLE queues (
  name text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 100),
  paused_at timestamptz,
  paused_reason text,
  resume_at timestamptz,
  version integer NOT NULL DEFAULT 1,
  free boolean GENERATED ALWAYS AS (paused_at IS NULL) STORED
);

-- The places are small and change all the time: clean them by count, at once and without pauses.
ALTER TABLE job_ready SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0);
ALTER TABLE job_scheduled SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0);
ALTER TABLE job_held SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0);
ALTER TABLE job_claims SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0);

-- migrate:down
DROP TABLE queues, dead_letter_jobs, job_executions, job_claims, job_held, job_scheduled, job_ready, jobs;
DROP FUNCTION refuse_bare_insert();
DROP FUNCTION uuid_v7(timestamptz);
