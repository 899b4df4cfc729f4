-- migrate:up

-- One act on many jobs: replay, discard, cancel, run now. The set is frozen when the operation is made, in the order in
-- which it is worked off; done + passed_over is how far it got.
CREATE TABLE operations (
  id uuid PRIMARY KEY,
  action text NOT NULL CHECK (action IN ('replay', 'discard', 'cancel', 'run_now')),
  selection jsonb NOT NULL,
  cut_off timestamptz NOT NULL,
  pace text NOT NULL CHECK (pace IN ('all', 'rate', 'canary')),
  per_minute integer CHECK (per_minute BETWEEN 1 AND 1000000),
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'halted', 'stopped', 'finished')),
  halted_reason text,
  actor text NOT NULL,
  source text NOT NULL,
  reason text,
  created_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  total integer NOT NULL CHECK (total > 0),
  done integer NOT NULL DEFAULT 0,
  passed_over integer NOT NULL DEFAULT 0,
  -- A canary's step, or what a rate counts from: its first job is the one after step_from.
  step integer NOT NULL DEFAULT 0,
  step_from integer NOT NULL DEFAULT 0,
  step_at timestamptz NOT NULL DEFAULT now(),
  next_at timestamptz NOT NULL DEFAULT now(),
  version integer NOT NULL DEFAULT 1,
  CHECK ((pace = 'rate') = (per_minute IS NOT NULL)),
  CHECK ((state IN ('stopped', 'finished')) = (ended_at IS NOT NULL)),
  CHECK ((state = 'halted') <= (halted_reason IS NOT NULL)),
  CHECK (done >= 0 AND passed_over >= 0 AND done + passed_over <= total)
);
CREATE INDEX operations_due ON operations (next_at) WHERE state = 'running';
CREATE INDEX operations_made ON operations (created_at, id);

-- token is the job's highest before the act: runs with a higher one are what came of it.
CREATE TABLE operation_jobs (
  operation_id uuid NOT NULL,
  n integer NOT NULL,
  job_id uuid NOT NULL,
  token bigint,
  acted_at timestamptz,
  passed_over boolean NOT NULL DEFAULT false,
  PRIMARY KEY (operation_id, n)
);

-- migrate:down
DROP TABLE operation_jobs;
DROP TABLE operations;
