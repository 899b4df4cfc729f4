package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// batchJobs are written in one transaction: a second's work.
const batchJobs = 5_000

// world is what all jobs of a simulation share.
type world struct {
	pool     *pgxpool.Pool
	seed     uint64
	incident bool
	now      time.Time
	start    time.Time // quanta and tokens are counted from here
	base     int64     // token of quantum 0, worker 0
	fleet    fleet
	counts   map[uint8]*Count
	runs     int
	acts     []act
}

// tokenGuard are left between what the sequence gave last and the first token here:
// an engine may take some while these are taken.
const tokenGuard = 1_000

// begin finds the instant, takes tokens and writes the workers.
func begin(ctx context.Context, pool *pgxpool.Pool, o *Options) (*world, error) {
	if o.Now.IsZero() {
		if err := pool.QueryRow(ctx, `SELECT now()`).Scan(&o.Now); err != nil {
			return nil, err
		}
	}
	o.Now = o.Now.UTC().Truncate(time.Millisecond)
	w := &world{pool: pool, seed: o.Seed, incident: o.Scenario == "incident", now: o.Now, counts: map[uint8]*Count{}}
	w.start = w.now.Add(-oldest - hour)
	n := int64((oldest+hour+minute)/quantum) * fleetWidth
	if err := pool.QueryRow(ctx, `SELECT setval('job_claims_id_seq', nextval('job_claims_id_seq') + $1) - $2`, n+tokenGuard, n).Scan(&w.base); err != nil {
		return nil, fmt.Errorf("take tokens: %w", err)
	}
	w.fleet = fleet{list: made(), incident: w.incident}
	return w, nil
}

// token is that of a worker's claims in one quantum: later ones are greater.
func (w *world) token(quantum int64, worker int) int64 {
	return w.base + quantum*fleetWidth + int64(worker)
}

// draw makes the batches. Running jobs come last, all in one: their claims hold jobs
// of many moments.
func (w *world) draw(ctx context.Context, plan []lot, out chan<- *batch) error {
	send := func(b *batch) error {
		select {
		case out <- b:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var open []lot
	b := newBatch()
	for _, l := range plan {
		if l.place == running {
			open = append(open, l)
			continue
		}
		w.add(b, l)
		if len(b.jobs) == batchJobs {
			if err := send(b); err != nil {
				return err
			}
			b = newBatch()
		}
	}
	for _, l := range open {
		w.add(b, l)
	}
	return send(b)
}

// tally counts the plan, for the answer and for the workers' busy slots.
func (w *world) tally(plan []lot) (busy []int) {
	busy = make([]int, len(w.fleet.list))
	for _, l := range plan {
		c := w.counts[l.line]
		if c == nil {
			c = &Count{Queue: lines[l.line].queue, Type: lines[l.line].jobType}
			w.counts[l.line] = c
		}
		c.Jobs++
		*map[place]*int{completed: &c.Completed, cancelled: &c.Cancelled, ready: &c.Ready, scheduled: &c.Scheduled, held: &c.Held, running: &c.Running,
			retrying: &c.Retrying, dead: &c.Dead, discarded: &c.Discarded}[l.place]++
		if l.place == running {
			busy[w.fleet.pick(lines[l.line].crew, l.anchor, l.number)]++
		}
	}
	return busy
}

// ErrThere says that this very simulation stands in the database already: same seed,
// same instant.
var ErrThere = errors.New("the database has this simulation already")

func (w *world) write(ctx context.Context, b *batch) error {
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		for _, t := range []struct {
			table   string
			columns []string
			rows    [][]any
		}{
			{"jobs", jobColumns, b.jobs}, {"job_executions", executionColumns, b.executions}, {"job_ready", readyColumns, b.ready},
			{"job_scheduled", scheduledColumns, b.scheduled}, {"job_held", heldColumns, b.held}, {"dead_letter_jobs", deadColumns, b.dead},
			{"refused_writes", refusedColumns, b.refused}, {"job_claims", claimColumns, w.claimRows(b)},
		} {
			if len(t.rows) == 0 {
				continue
			}
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{t.table}, t.columns, pgx.CopyFromRows(t.rows)); err != nil {
				return fmt.Errorf("write %s: %w", t.table, err)
			}
		}
		return addMinutes(ctx, tx, b.minuteRows())
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ConstraintName == "jobs_pkey" {
		return ErrThere
	}
	w.acts = append(w.acts, b.acts...)
	w.runs += len(b.executions)
	return err
}

func (w *world) claimRows(b *batch) [][]any {
	var rows [][]any
	for _, token := range slices.Sorted(maps.Keys(b.claims)) {
		c := b.claims[token]
		rows = append(rows, []any{token, w.fleet.ids[c.worker], c.at, w.fleet.leaseEnds(w.now, c.worker), c.ids, c.attempts, c.crashes})
	}
	return rows
}

func (b *batch) minuteRows() [][]any {
	keys := slices.SortedFunc(maps.Keys(b.minutes), func(x, y minuteKey) int {
		return cmp.Or(cmp.Compare(x.minute, y.minute), strings.Compare(x.queue, y.queue), strings.Compare(x.jobType, y.jobType), cmp.Compare(x.outcome, y.outcome))
	})
	rows := make([][]any, len(keys))
	for i, k := range keys {
		s := b.minutes[k]
		rows[i] = []any{time.Unix(k.minute, 0), k.queue, k.jobType, int16(k.outcome), s.n, s.ms, s.waits, s.run}
	}
	return rows
}

// addMinutes adds to the rollup, as the leader's fold does.
func addMinutes(ctx context.Context, tx pgx.Tx, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `CREATE TEMPORARY TABLE simulated_minutes (LIKE job_stats_minutes) ON COMMIT DROP`); err != nil {
		return fmt.Errorf("write minutes: %w", err)
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"simulated_minutes"}, minuteColumns, pgx.CopyFromRows(rows)); err != nil {
		return fmt.Errorf("write minutes: %w", err)
	}
	_, err := tx.Exec(ctx, `INSERT INTO job_stats_minutes AS t (minute, queue, type, outcome, n, run_ms, wait_buckets, run_buckets)
		SELECT m.minute, m.queue, m.type, m.outcome, m.n, m.run_ms, m.wait_buckets, m.run_buckets FROM simulated_minutes AS m
		ORDER BY m.minute, m.queue, m.type, m.outcome
		ON CONFLICT (minute, queue, type, outcome) DO UPDATE SET n = t.n + excluded.n, run_ms = t.run_ms + excluded.run_ms,
		  wait_buckets = add_buckets(t.wait_buckets, excluded.wait_buckets), run_buckets = add_buckets(t.run_buckets, excluded.run_buckets)`)
	if err != nil {
		return fmt.Errorf("add minutes: %w", err)
	}
	return nil
}
