-- migrate:up

-- What a worker's own process counted by its last heartbeat: jobs completed within a minute, and runs that failed or timed
-- out within a quarter of an hour. Counting them from the executions would read a minute of the whole fleet's work a page.
ALTER TABLE workers ADD COLUMN done_per_minute integer NOT NULL DEFAULT 0, ADD COLUMN failed_lately integer NOT NULL DEFAULT 0;

-- migrate:down
ALTER TABLE workers DROP COLUMN done_per_minute, DROP COLUMN failed_lately;
