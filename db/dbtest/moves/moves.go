// Package moves logs every change of a job's place in a test's database, by
// triggers, and judges the log by a table of its own: a second checker that
// takes nothing from the engine, neither its word nor its code.
//
// Call [Install] before the first job. [Check] answers what broke the rules,
// [Story] tells one job's life.
package moves

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed install.sql
var install string

// Install puts the triggers on pool's database. A second time does no harm.
// What stood before is not in the log: a job that was there already is judged
// from its first move on.
func Install(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, install)
		if err != nil {
			return fmt.Errorf("install the log of moves: %w", err)
		}
		return nil
	})
}

// Log installs the triggers and checks the log when t ends, before the database
// goes: every violation fails t, with its job's story.
func Log(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if err := Install(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Judge(t, pool) })
}

// Judge fails t for each violation, of which it tells the first few.
func Judge(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bad, err := Check(ctx, pool)
	if err != nil {
		t.Error(err)
	}
	for i, v := range bad {
		if i == 5 {
			t.Errorf("... %d more violations", len(bad)-i)
			break
		}
		t.Errorf("%s\n%s", v, Story(ctx, pool, v.JobID))
	}
}

// move is one row of the log.
type move struct {
	id                        int64
	at                        time.Time
	txid                      uint64
	place, op                 string
	jobID                     uuid.UUID
	token                     int64
	attempt, crashes, outcome int16
	detail                    string
}

var outcomes = [...]string{"", "completed", "failed", "snoozed", "handed_back", "cancelled", "lease_expired", "crashed", "expired", "timed_out"}

func (m move) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s tx %d: %s %s", m.at.UTC().Format("15:04:05.000000"), m.txid, m.op, m.place)
	if m.token != 0 {
		fmt.Fprintf(&b, " token %d", m.token)
	}
	if m.outcome > 0 && int(m.outcome) < len(outcomes) {
		fmt.Fprintf(&b, " outcome %s", outcomes[m.outcome])
	}
	if m.place != "job" && m.place != "action" {
		fmt.Fprintf(&b, " attempt %d crashes %d", m.attempt, m.crashes)
	}
	if m.detail != "" {
		b.WriteString(" (" + strings.TrimSpace(m.detail) + ")")
	}
	return b.String()
}

const columns = `SELECT l.id, l.at, l.txid::text::bigint, l.place, l.op, l.job_id, l.token, l.attempt, l.crashes, l.outcome, l.detail FROM moves.log AS l `

func read(ctx context.Context, pool *pgxpool.Pool, rest string, args ...any) ([]move, error) {
	rows, err := pool.Query(ctx, columns+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read the log of moves: %w", err)
	}
	var list []move
	var m move
	var txid int64
	_, err = pgx.ForEachRow(rows, []any{&m.id, &m.at, &txid, &m.place, &m.op, &m.jobID, &m.token, &m.attempt, &m.crashes, &m.outcome, &m.detail},
		func() error {
			m.txid = uint64(txid)
			list = append(list, m)
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("read the log of moves: %w", err)
	}
	return list, nil
}

// Story tells the moves of one job, a line each, oldest first. It answers what
// went wrong in place of a story it cannot read.
func Story(ctx context.Context, pool *pgxpool.Pool, jobID uuid.UUID) string {
	list, err := read(ctx, pool, "WHERE l.job_id = $1 ORDER BY l.id", jobID)
	if err != nil {
		return err.Error()
	}
	lines := make([]string, len(list))
	for i, m := range list {
		lines[i] = "  " + m.String()
	}
	return fmt.Sprintf("job %s, %d moves:\n%s", jobID, len(list), strings.Join(lines, "\n"))
}
