-- migrate:up

-- NULL: every queue, as for a token. The queues need not exist yet.
ALTER TABLE console_users ADD COLUMN queues text[] CHECK (cardinality(queues) BETWEEN 1 AND 100);

-- migrate:down
ALTER TABLE console_users DROP COLUMN queues;
