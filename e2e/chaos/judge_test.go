//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// violation is one thing that must not be.
type violation struct {
	rule, detail string
	job          uuid.UUID // zero without one
}

func (v violation) String() string {
	if v.job == uuid.Nil {
		return v.rule + ": " + v.detail
	}
	return v.rule + ": job " + v.job.String() + ": " + v.detail
}

// mostTold bounds what one rule says.
const mostTold = 5

// verdict is what all checkers found. unchecked names what could not be asked:
// that is no pass.
type verdict struct {
	violations []violation
	unchecked  []error
	asked      int
}

func (v *verdict) add(name string, found []violation, err error) {
	v.asked++
	if err != nil {
		v.unchecked = append(v.unchecked, fmt.Errorf("could not check that %s: %w", name, err))
		return
	}
	v.violations = append(v.violations, found...)
}

// check asks every checker.
func check(ctx context.Context, dir string, pool *pgxpool.Pool) (v verdict, e *evidence) {
	e, err := gather(dir, pool)
	if err == nil {
		err = e.store(ctx)
	}
	if err != nil {
		v.add("anything holds", nil, err)
		return v, e
	}
	for _, r := range rules {
		found, err := e.ask(ctx, r)
		v.add(r.name, found, err)
	}
	found, err := askMoves(ctx, pool)
	v.add("every move is allowed", found, err)
	found, err = askVerify(ctx, pool, verify.Options{})
	v.add("the engine's own rules hold", found, err)
	return v, e
}

func (e *evidence) ask(ctx context.Context, r rule) ([]violation, error) {
	var found []violation
	err := pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '60s'; SET LOCAL jit = off; SET LOCAL work_mem = '128MB'", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT * FROM ("+r.sql+") AS offenders LIMIT 1000")
		if err != nil {
			return err
		}
		var job *uuid.UUID
		var detail string
		_, err = pgx.ForEachRow(rows, []any{&job, &detail}, func() error {
			w := violation{rule: r.name, detail: detail}
			if job != nil {
				w.job = *job
			}
			found = append(found, w)
			return nil
		})
		return err
	})
	return found, err
}

func askMoves(ctx context.Context, pool *pgxpool.Pool) ([]violation, error) {
	list, err := moves.Check(ctx, pool)
	var found []violation
	for _, m := range list {
		found = append(found, violation{m.Rule, m.Found, m.JobID})
	}
	return found, err
}

func askVerify(ctx context.Context, pool *pgxpool.Pool, o verify.Options) ([]violation, error) {
	o.StatementTimeout = time.Minute
	report, err := verify.Run(ctx, pool, o)
	var found []violation
	for _, r := range report.Results {
		switch r.Verdict {
		case verify.Violated:
			for _, o := range r.Offenders {
				id, _ := uuid.Parse(o.Subject) // what is no job has no story
				found = append(found, violation{r.Rule.Name, fmt.Sprintf("%s token %d: %s", o.Subject, o.Token, o.Detail), id})
			}
		case verify.Unchecked:
			err = errors.Join(err, fmt.Errorf("%s: %s", r.Rule.Name, r.Problem))
		case verify.OK:
		}
	}
	return found, err
}

// tell fails t with what was found, and the first offending job's whole story.
func (v verdict) tell(ctx context.Context, t testing.TB, e *evidence) {
	t.Helper()
	for _, err := range v.unchecked {
		t.Error(err)
	}
	told := map[string]int{}
	storied := false
	for _, w := range v.violations {
		if told[w.rule]++; told[w.rule] <= mostTold {
			t.Errorf("VIOLATION %s", w)
		}
		if w.job != uuid.Nil && !storied {
			storied = true
			t.Logf("the story of job %s:\n%s", w.job, e.story(ctx, w.job))
		}
	}
	for name, n := range told {
		if n > mostTold {
			t.Errorf("%s: %d violations in all", name, n)
		}
	}
}

// story is all that is known of one job, from every side.
func (e *evidence) story(ctx context.Context, id uuid.UUID) string {
	var b strings.Builder
	for _, part := range []struct{ title, sql string }{
		{"asked for", `SELECT format('%s at %s: %s until %s, %s', r.door, r.sent, r.outcome, r.done, w.payload) FROM evidence.wanted AS w
			JOIN evidence.requests AS r ON r.id = w.request WHERE w.id = $1 OR w.ref = (SELECT j.ref FROM evidence.jobs AS j WHERE j.id = $1) ORDER BY r.sent`},
		{"stands", `SELECT s::text FROM job_states AS s WHERE s.id = $1`},
		{"runs", `SELECT format('token %s worker %s claimed %s started %s finished %s attempt %s outcome %s %s', e.fencing_token, e.worker_id, e.claimed_at, e.started_at,
			e.finished_at, e.attempt, e.outcome, e.error) FROM job_executions AS e WHERE e.job_id = $1 ORDER BY e.fencing_token`},
		{"handlers", `SELECT format('%s token %s worker %s process %s %s %s', t.at, t.token, t.worker, t.pid, t.event, t.err) FROM evidence.traces AS t WHERE t.job = $1 ORDER BY t.n`},
		{"effects", `SELECT format('token %s', f.fencing_token) FROM chaos.effects AS f WHERE f.job_id = $1`},
		{"refused", `SELECT w::text FROM refused_writes AS w WHERE w.job_id = $1 ORDER BY w.id`},
		{"dead", `SELECT format('%s %s %s', d.reason, d.died_at, d.error) FROM dead_letter_jobs AS d WHERE d.job_id = $1`},
	} {
		rows, err := e.pool.Query(ctx, part.sql, id)
		var lines []string
		if err == nil {
			lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			lines = []string{err.Error()}
		}
		fmt.Fprintf(&b, "%s:\n  %s\n", part.title, strings.Join(lines, "\n  "))
	}
	b.WriteString(moves.Story(ctx, e.pool, id))
	pids := map[int]bool{}
	for _, t := range e.traces {
		if t.Job == id.String() {
			pids[t.PID] = true
		}
	}
	b.WriteString("\nfaults of its processes:\n")
	for _, h := range e.events {
		if pids[h.PID] || h.Who == "postgres" {
			fmt.Fprintf(&b, "  %s %s %s %d %s\n", h.At.UTC().Format("15:04:05.000000"), h.What, h.Who, h.PID, h.How)
		}
	}
	return b.String()
}

// judge asks everything about a storm.
func (s *storm) judge() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	v, e := check(ctx, s.dir, s.pool)
	if len(v.unchecked) == 0 {
		found, err := e.recoveries(ctx, s.t)
		v.add("a lost job is back in time", found, err)
	}
	v.tell(ctx, s.t, e)
	s.t.Logf("%d checks, %d violations, %d could not be asked", v.asked, len(v.violations), len(v.unchecked))
}
