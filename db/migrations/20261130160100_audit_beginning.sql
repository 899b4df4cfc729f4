-- migrate:up

-- Where the trail begins: after the last act that retention has removed. Without it an act taken out at the beginning
-- would look like one that was removed by right.
ALTER TABLE operator_action_head
  ADD COLUMN removed_id bigint NOT NULL DEFAULT 0,
  ADD COLUMN removed_hash bytea NOT NULL DEFAULT '\x';

-- migrate:down
ALTER TABLE operator_action_head DROP COLUMN removed_id, DROP COLUMN removed_hash;
