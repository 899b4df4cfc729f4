// Package verify checks the promises of the engine on what it has stored: rules
// over jobs, their places, leases and history, asked of one snapshot. It reads
// only, locks nothing that work waits for, and is right while jobs run.
package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Verdict is what a check found.
type Verdict string

// The verdicts. A rule that could not be asked is unchecked, never ok.
const (
	OK        Verdict = "ok"
	Violated  Verdict = "violated"
	Unchecked Verdict = "unchecked"
)

// Options bound a check. The zero value of each is its default.
type Options struct {
	// Margin is how far the instants of two transactions may stand in the wrong
	// order: each stores when it began, not when it committed. Smaller finds
	// shorter overlaps; larger forgives a database that stood still. Default 1s.
	Margin time.Duration
	// LeaseGrace is how long a lease may stand, beyond its end or beyond that of
	// its last job, while somebody does the upkeep. It must cover the reaper's
	// interval and a heartbeat after an outage. Default 1m.
	LeaseGrace time.Duration
	// Retention is the shortest time that a finished job is kept. What is older
	// may be gone, and is not missed. Default 168h.
	Retention time.Duration
	// Rows is how many offenders are told per rule. Default 20, at most 1000.
	Rows int
	// StatementTimeout bounds each question. Default 30s.
	StatementTimeout time.Duration
}

func (o *Options) fill() {
	or(&o.Margin, time.Second)
	or(&o.LeaseGrace, time.Minute)
	or(&o.Retention, 168*time.Hour)
	or(&o.StatementTimeout, 30*time.Second)
	if o.Rows <= 0 {
		o.Rows = 20
	}
	o.Rows = min(o.Rows, 1000)
}

func or(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// Offender is one row that broke a rule.
type Offender struct {
	Subject string `json:"subject"`                        // a job's id, or what else the rule is about: "lease 12"
	Token   int64  `json:"fencing_token,string,omitempty"` // of the run or lease it shows at, 0 without
	Detail  string `json:"detail"`
}

// Result is one rule's verdict.
type Result struct {
	Rule      Rule
	Verdict   Verdict
	Offenders []Offender // at most Options.Rows
	More      bool       // there are more than those
	Problem   string     // why it could not be checked
}

// Report is one check of every rule.
type Report struct {
	At      time.Time // of the snapshot, by the database's clock
	Took    time.Duration
	Results []Result // in the order of [Rules]
}

// Verdict is the whole report's: violated if one rule is, else unchecked if one
// is.
func (r Report) Verdict() Verdict {
	v := OK
	for _, res := range r.Results {
		switch res.Verdict {
		case Violated:
			return Violated
		case Unchecked:
			v = Unchecked
		case OK:
		}
	}
	return v
}

// Count is how many rules have a verdict.
func (r Report) Count(v Verdict) (n int) {
	for _, res := range r.Results {
		if res.Verdict == v {
			n++
		}
	}
	return n
}

// Run asks every rule in one REPEATABLE READ snapshot. The report has a result
// for each rule in any case; the error says why some are unchecked: the
// connection was lost, a right is missing, ctx or StatementTimeout ended.
func Run(ctx context.Context, pool *pgxpool.Pool, o Options) (Report, error) {
	o.fill()
	began := time.Now()
	c := newCheck(o)
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := c.begin(ctx, tx); err != nil {
			return err
		}
		for _, p := range passes {
			if err := c.pass(ctx, tx, p); err != nil {
				return err
			}
		}
		return errors.Join(c.failed...)
	})
	r := c.report(err)
	r.Took = time.Since(began)
	if err != nil {
		return r, fmt.Errorf("verify: %w", err)
	}
	return r, nil
}

// check gathers what the passes answer.
type check struct {
	o         Options
	q         *dbsqlc.Queries
	at        time.Time
	missing   map[string]int // questions a rule still needs
	problems  map[string]string
	offenders map[string][]Offender
	failed    []error
}

func newCheck(o Options) *check {
	c := &check{o: o, q: dbsqlc.New(), missing: map[string]int{}, problems: map[string]string{}, offenders: map[string][]Offender{}}
	for _, p := range passes {
		for _, name := range p.rules {
			c.missing[name]++
		}
	}
	return c
}

// begin sets what only this transaction has: its own time limit, memory for the
// hashes of a million ids, and no compiled plans, which take longer than they save.
func (c *check) begin(ctx context.Context, tx pgx.Tx) error {
	settings := fmt.Sprintf("SET LOCAL statement_timeout = %d; SET LOCAL work_mem = '64MB'; SET LOCAL jit = off; "+
		"SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL plan_cache_mode = force_custom_plan",
		max(1, c.o.StatementTimeout.Milliseconds()))
	if _, err := tx.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	var err error
	c.at, err = c.q.Now(ctx, tx)
	return err
}

// pass asks one question in a savepoint, so that a table that may not be read
// leaves the other rules theirs. Only a broken transaction ends the check.
func (c *check) pass(ctx context.Context, tx pgx.Tx, p pass) error {
	var rows []offence
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) (err error) {
		rows, err = p.ask(ctx, c, inner)
		return err
	})
	if err != nil {
		err = fmt.Errorf("ask for %s: %w", p.name, err)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || ctx.Err() != nil {
			return err
		}
		c.failed = append(c.failed, err)
	}
	for _, name := range p.rules {
		if err != nil {
			c.problems[name] = err.Error()
		} else {
			c.missing[name]--
		}
	}
	for _, o := range rows {
		c.offenders[o.Rule] = append(c.offenders[o.Rule], Offender{o.Subject, o.Token, o.Detail})
	}
	return nil
}

// report gives every rule its verdict. What was not asked, or was asked in a
// transaction that did not end well, is unchecked.
func (c *check) report(err error) Report {
	r := Report{At: c.at}
	for _, rule := range Rules {
		res := Result{Rule: rule, Verdict: OK, Offenders: c.offenders[rule.Name]}
		switch {
		case len(res.Offenders) > 0:
			res.Verdict = Violated
			if len(res.Offenders) > c.o.Rows {
				res.Offenders, res.More = res.Offenders[:c.o.Rows], true
			}
		case c.missing[rule.Name] > 0:
			res.Verdict, res.Problem = Unchecked, c.problems[rule.Name]
			if res.Problem == "" && err != nil {
				res.Problem = err.Error()
			}
		}
		r.Results = append(r.Results, res)
	}
	return r
}
