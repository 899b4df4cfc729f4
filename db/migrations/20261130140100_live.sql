-- migrate:up

-- Progress and log lines of runs that go on: flushed each second, only for runs that are older and have something new.
-- Whoever closes the run takes them over into its execution. Ids first by token: a reaped lease takes all of its rows.
CREATE TABLE job_live (
  fencing_token bigint NOT NULL,
  job_id uuid NOT NULL,
  progress real CHECK (progress BETWEEN 0 AND 100),
  progress_text text,
  logs jsonb,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (fencing_token, job_id)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0);

-- How far a run had come, in percent, and what it said of it.
ALTER TABLE job_executions ADD COLUMN progress real, ADD COLUMN progress_text text;

-- migrate:down
ALTER TABLE job_executions DROP COLUMN progress, DROP COLUMN progress_text;
DROP TABLE job_live;
