-- migrate:up

-- Who runs jobs. Recovery never reads this table: a lease says all that the reaper needs.
CREATE TABLE workers (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  hostname text NOT NULL,
  pid integer NOT NULL,
  version text NOT NULL,
  queues text[] NOT NULL,
  types text[] NOT NULL,
  slots integer NOT NULL,
  busy integer NOT NULL DEFAULT 0,
  stuck integer NOT NULL DEFAULT 0,
  lease_ms integer NOT NULL,
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'draining', 'stopped')),
  started_at timestamptz NOT NULL DEFAULT now(),
  heartbeat_at timestamptz NOT NULL DEFAULT now(),
  stopped_at timestamptz
);
CREATE INDEX workers_live ON workers (heartbeat_at) WHERE state <> 'stopped';

-- Leadership is a row with an end, never a session lock: it works through a pooler and a frozen leader is fenced by term.
CREATE TABLE leaders (
  role text PRIMARY KEY,
  worker_id bigint NOT NULL,
  term bigint NOT NULL DEFAULT 1,
  acquired_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL
);

-- What the leader did last, and where a slow task goes on.
CREATE TABLE maintenance_tasks (
  task text PRIMARY KEY,
  last_success_at timestamptz,
  resume_after uuid
);

-- Writes that came with a token no longer current: evidence for the operator.
CREATE TABLE refused_writes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now(),
  job_id uuid NOT NULL,
  token_held bigint NOT NULL,
  token_current bigint,
  worker_id bigint NOT NULL,
  operation text NOT NULL,
  tried jsonb
);
CREATE INDEX refused_writes_job ON refused_writes (job_id, id);
CREATE INDEX refused_writes_at ON refused_writes (at);

-- One row per batch, type and outcome, folded into minutes by the leader: exact figures without an index on time.
-- Buckets count durations up to 5 ms, 10, 25, 50, 100, 250, 500, 1 s, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600 s, and above.
CREATE TABLE job_stats_deltas (
  at timestamptz NOT NULL DEFAULT now(),
  queue text NOT NULL,
  type text NOT NULL,
  outcome smallint NOT NULL,
  n integer NOT NULL,
  run_ms bigint NOT NULL,
  wait_buckets integer[],
  run_buckets integer[]
);
CREATE TABLE job_stats_minutes (
  minute timestamptz NOT NULL,
  queue text NOT NULL,
  type text NOT NULL,
  outcome smallint NOT NULL,
  n bigint NOT NULL,
  run_ms bigint NOT NULL,
  wait_buckets bigint[],
  run_buckets bigint[],
  PRIMARY KEY (minute, queue, type, outcome)
);
-- Buckets are added place by place; the longer of two arrays gives the length.
CREATE FUNCTION add_buckets(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT array_agg(coalesce(u.x, 0) + coalesce(u.y, 0) ORDER BY u.i) FROM unnest(a, b) WITH ORDINALITY AS u(x, y, i)
$$;
CREATE AGGREGATE sum_buckets(bigint[]) (SFUNC = add_buckets, STYPE = bigint[], INITCOND = '{}');
ALTER TABLE job_stats_deltas SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0);

-- migrate:down
DROP AGGREGATE sum_buckets(bigint[]);
DROP FUNCTION add_buckets(bigint[], bigint[]);
DROP TABLE job_stats_minutes, job_stats_deltas, refused_writes, maintenance_tasks, leaders, workers;
