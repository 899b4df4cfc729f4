-- migrate:up

-- A claim is made by its own statement, not when its transaction began: that may have waited, or have finished other jobs
-- first, and the job may have come back in between.
ALTER TABLE job_claims ALTER COLUMN claimed_at SET DEFAULT statement_timestamp();

-- migrate:down
ALTER TABLE job_claims ALTER COLUMN claimed_at SET DEFAULT now();
