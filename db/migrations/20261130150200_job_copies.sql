-- migrate:up

-- From a job to its copies. Only copies are in it.
CREATE INDEX jobs_copies ON jobs (copied_from, id) WHERE copied_from IS NOT NULL;

-- migrate:down
DROP INDEX jobs_copies;
