-- migrate:up

-- What is set for a type of job. A schema that was removed leaves its row, so that versions only rise: whoever has kept
-- one in memory knows by the number whether it still counts.
CREATE TABLE job_types (
  type text PRIMARY KEY CHECK (type ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$'),
  schema jsonb CHECK (jsonb_typeof(schema) = 'object'),
  version integer NOT NULL DEFAULT 0,
  updated_at timestamptz NOT NULL DEFAULT now(),
  updated_by text NOT NULL
);

-- migrate:down
DROP TABLE job_types;
