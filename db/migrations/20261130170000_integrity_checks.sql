-- migrate:up

-- What the hourly check of the stored history found: a row a check. report has the rules that are not ok, with some of the
-- rows that break them, for whoever looks later.
CREATE TABLE integrity_checks (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  checked_at timestamptz NOT NULL DEFAULT now(),
  took_ms integer NOT NULL,
  verdict text NOT NULL CHECK (verdict IN ('ok', 'violated', 'unchecked')),
  rules integer NOT NULL,
  violated text[] NOT NULL,
  unchecked text[] NOT NULL,
  report jsonb NOT NULL DEFAULT '[]'
);

-- migrate:down
DROP TABLE integrity_checks;
