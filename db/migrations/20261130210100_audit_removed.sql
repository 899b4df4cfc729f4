-- migrate:up

-- Until when retention has removed acts: what they did since then has its row, what they did before may not.
ALTER TABLE operator_action_head ADD COLUMN removed_until timestamptz NOT NULL DEFAULT '-infinity';

-- migrate:down
ALTER TABLE operator_action_head DROP COLUMN removed_until;
