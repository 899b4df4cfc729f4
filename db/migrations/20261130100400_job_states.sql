-- migrate:up

-- Where a job stands tells its state. For one job or a page of ids; a list is driven from the place's own table, since
-- filtering this view by state reads everything. A NULL state means in no place: a fault, reported by verify.
CREATE VIEW job_states AS
SELECT j.id, j.type, j.queue, j.priority, j.created_at, j.max_attempts,
  (CASE WHEN d.job_id IS NOT NULL THEN 'dead_letter'
        WHEN r.job_id IS NOT NULL OR h.job_id IS NOT NULL THEN 'pending'
        WHEN s.job_id IS NOT NULL THEN CASE WHEN s.failed THEN 'failed' ELSE 'pending' END
        WHEN c.id IS NOT NULL THEN 'leased'
        WHEN e.outcome = 1 THEN 'completed'
        WHEN e.outcome = 5 THEN 'cancelled' END)::text AS state,
  coalesce(s.run_at, r.ready_at, j.scheduled_at, j.created_at)::timestamptz AS scheduled_at,
  coalesce(d.attempt, r.attempt, h.attempt, s.attempt, c.attempt, e.attempt, 0)::smallint AS attempt,
  coalesce(d.crashes, r.crashes, h.crashes, s.crashes, c.crashes, 0)::smallint AS crashes,
  c.lease_expires_at, c.worker_id, coalesce(c.id, e.fencing_token, 0)::bigint AS fencing_token, h.reason AS held_reason,
  e.outcome AS last_outcome, e.finished_at, d.discarded_at
FROM jobs j
LEFT JOIN LATERAL (SELECT x.job_id, x.attempt, x.crashes, x.discarded_at FROM dead_letter_jobs x WHERE x.job_id = j.id) d ON true
LEFT JOIN LATERAL (SELECT x.job_id, x.attempt, x.crashes, x.ready_at FROM job_ready x WHERE x.job_id = j.id) r ON true
LEFT JOIN LATERAL (SELECT x.job_id, x.attempt, x.crashes, x.reason FROM job_held x WHERE x.job_id = j.id) h ON true
LEFT JOIN LATERAL (SELECT x.job_id, x.attempt, x.crashes, x.run_at, x.failed FROM job_scheduled x WHERE x.job_id = j.id) s ON true
LEFT JOIN LATERAL (SELECT x.fencing_token, x.attempt, x.outcome, x.finished_at FROM job_executions x
  WHERE x.job_id = j.id ORDER BY x.fencing_token DESC LIMIT 1) e ON true
LEFT JOIN LATERAL (SELECT x.id, x.lease_expires_at, x.worker_id, (x.attempts[array_position(x.job_ids, j.id)] + 1)::smallint AS attempt,
  x.crashes[array_position(x.job_ids, j.id)] AS crashes
  FROM job_claims x WHERE d.job_id IS NULL AND r.job_id IS NULL AND h.job_id IS NULL AND s.job_id IS NULL
    AND x.id > coalesce(e.fencing_token, 0) AND j.id = ANY (x.job_ids) LIMIT 1) c ON true;

-- migrate:down
DROP VIEW job_states;
