-- migrate:up

-- Asks that a running job stop: who, when and why. What the engine goes by is the mark in the lease, which every closer
-- of a run has in its hand: a run that does not complete is cancelled once its job is marked. This row ends with the run.
CREATE TABLE job_stop_requests (
  job_id uuid PRIMARY KEY,
  fencing_token bigint NOT NULL,
  worker_id bigint NOT NULL,
  requested_at timestamptz NOT NULL DEFAULT now(),
  actor text NOT NULL,
  reason text
);
CREATE INDEX job_stop_requests_age ON job_stop_requests (requested_at);

-- The jobs of this lease that were asked to stop. The heartbeat brings it to the worker; NULL, as nearly always, costs
-- nothing.
ALTER TABLE job_claims ADD COLUMN stops uuid[];

-- migrate:down
ALTER TABLE job_claims DROP COLUMN stops;
DROP TABLE job_stop_requests;
