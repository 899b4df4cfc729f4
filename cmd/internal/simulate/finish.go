package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// act is an operator's, at an instant of the story.
type act struct {
	at                                          time.Time
	actor, action, kind, target, reason, before string
	after                                       string
}

const pauseReason = "Receipts would say paid while charges fail (INC-204)"

// finish writes what belongs to no job alone: the pause, the acts in order of time;
// then the planner's statistics.
func (w *world) finish(ctx context.Context) (Result, error) {
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if w.incident {
			at := w.now.Add(-mailPaused)
			tag, err := tx.Exec(ctx, `INSERT INTO queues (name, paused_at, paused_reason) VALUES ('mail', $1, $2) ON CONFLICT (name) DO NOTHING`, at, pauseReason)
			if err != nil {
				return fmt.Errorf("pause mail: %w", err)
			}
			if tag.RowsAffected() > 0 {
				w.acts = append(w.acts, act{at: at, actor: "oncall-eu", action: "pause", kind: "queue", target: "mail", reason: pauseReason,
					before: `{"paused": false}`, after: `{"paused": true}`})
			}
		}
		slices.SortFunc(w.acts, func(a, b act) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.target, b.target)) })
		for some := range slices.Chunk(w.acts, actsAtOnce) {
			if err := recordActs(ctx, tx, some); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO maintenance_tasks (task, last_success_at) VALUES ('reaper', $1) ON CONFLICT (task) DO NOTHING`, w.now.Add(-3*time.Second))
		return err
	})
	if err == nil {
		err = w.fleet.report(ctx, w.pool)
	}
	if err == nil {
		err = w.analyze(ctx)
	}
	if err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	out := Result{Now: w.now, Executions: w.runs}
	for _, c := range w.counts {
		out.Jobs += c.Jobs
		out.Counts = append(out.Counts, *c)
	}
	slices.SortFunc(out.Counts, func(a, b Count) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Type, b.Type))
	})
	return out, nil
}

const actsAtOnce = 500

// recordActs chains acts to the trail as record_operator_action does, but for their
// instants, which it takes from the clock.
func recordActs(ctx context.Context, tx pgx.Tx, acts []act) error {
	var at []time.Time
	columns := make([][]string, 7)
	for _, a := range acts {
		at = append(at, a.at)
		for i, s := range []string{a.actor, a.action, a.kind, a.target, a.reason, a.before, a.after} {
			columns[i] = append(columns[i], s)
		}
	}
	_, err := tx.Exec(ctx, `
		WITH RECURSIVE head AS (SELECT h.id, h.hash FROM operator_action_head AS h FOR UPDATE),
		x AS MATERIALIZED (
		  SELECT u.n, u.at, u.actor, 'console' AS source, u.action, u.kind, u.target, nullif(u.reason, '') AS reason, nullif(u.before, '')::jsonb AS before,
		    nullif(u.after, '')::jsonb AS after
		  FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
		    WITH ORDINALITY AS u(at, actor, action, kind, target, reason, before, after, n)),
		chain AS (
		  SELECT 0::bigint AS n, head.id, head.hash AS previous_hash, head.hash FROM head
		  UNION ALL
		  SELECT x.n, c.id + 1, c.hash, operator_action_hash(c.hash, c.id + 1, x.at, x.actor, x.source, x.action, x.kind, x.target, x.reason, x.before,
		    x.after, 1, NULL, NULL)
		  FROM chain AS c JOIN x ON x.n = c.n + 1),
		written AS (
		  INSERT INTO operator_actions (id, at, actor, source, action, target_kind, target, reason, before, after, affected, previous_hash, hash)
		  SELECT c.id, x.at, x.actor, x.source, x.action, x.kind, x.target, x.reason, x.before, x.after, 1, c.previous_hash, c.hash
		  FROM chain AS c JOIN x ON x.n = c.n ORDER BY c.id)
		UPDATE operator_action_head AS h SET id = c.id, hash = c.hash FROM (SELECT c.id, c.hash FROM chain AS c ORDER BY c.id DESC LIMIT 1) AS c`,
		at, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6])
	if err != nil {
		return fmt.Errorf("record acts: %w", err)
	}
	return nil
}

const analyzeLimit = 2 * time.Minute

// analyze gives the planner what it needs to know of so many rows. It needs longer
// than the statements of the pool may take, so it has a limit of its own.
func (w *world) analyze(ctx context.Context) error {
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(ctx, analyzeLimit)
	defer cancel()
	if _, err := conn.Exec(ctx, fmt.Sprintf(`SET statement_timeout = %d`, analyzeLimit.Milliseconds())); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, _ = conn.Exec(ctx, `RESET statement_timeout`) // a broken connection does not go back to the pool
	}()
	for _, table := range []string{"jobs", "job_executions", "job_ready", "job_scheduled", "job_held", "job_claims", "dead_letter_jobs", "job_stats_minutes",
		"operator_actions", "workers", "refused_writes"} {
		if _, err := conn.Exec(ctx, `VACUUM (ANALYZE) `+pgx.Identifier{table}.Sanitize()); err != nil {
			return fmt.Errorf("analyze %s: %w", table, err)
		}
	}
	return nil
}
