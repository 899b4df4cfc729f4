// Package doctor asks a database whether the engine's promises can be kept on it:
// its settings, the rights of the role, what stands between, and what others hold
// open. It reads only, and each finding says what to do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Verdict is what a check found.
type Verdict string

// The verdicts. What could not be asked is unchecked, never ok.
const (
	OK        Verdict = "ok"
	Warning   Verdict = "warning" // it works, but slower or less surely than it could
	Problem   Verdict = "problem" // a promise is broken, or soon will be
	Unchecked Verdict = "unchecked"
)

// Check is one question and its answer.
type Check struct {
	Code     string
	Verdict  Verdict
	Evidence string // what was seen
	Remedy   string // what to do; empty for ok
}

// Config says what to look at. Pool is required: it is the address that the
// engine uses, through the pooler if there is one.
type Config struct {
	Pool *pgxpool.Pool
	// Schema tells what is wrong with the migrations and what to do, or nothing if
	// they are current. nil leaves the check out.
	Schema func(context.Context) (wrong string, err error)
	// Connections is how many one process of the product opens at most: its pool and
	// the engine's own. 0 leaves the comparison out.
	Connections int
	// ReaperInterval and PollInterval are the engine's. Defaults 5s and 1s.
	ReaperInterval, PollInterval time.Duration
	// Timeout bounds each check. Default 5s.
	Timeout time.Duration

	now func() time.Time // this machine's clock
	// From when on something that is held open is worth a warning, and a problem.
	long, tooLong time.Duration
}

func (c *Config) fill() {
	or(&c.ReaperInterval, 5*time.Second)
	or(&c.PollInterval, time.Second)
	or(&c.Timeout, 5*time.Second)
	or(&c.long, longHeld)
	or(&c.tooLong, tooLongHeld)
	if c.now == nil {
		c.now = time.Now
	}
}

func or(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// Report is one visit.
type Report struct {
	At     time.Time // by this machine's clock
	Took   time.Duration
	Checks []Check
}

// Count is how many checks have a verdict.
func (r Report) Count(v Verdict) (n int) {
	for _, c := range r.Checks {
		if c.Verdict == v {
			n++
		}
	}
	return n
}

// Verdict is the worst of the report: a problem, else what could not be checked,
// else a warning.
func (r Report) Verdict() Verdict {
	for _, v := range []Verdict{Problem, Unchecked, Warning} {
		if r.Count(v) > 0 {
			return v
		}
	}
	return OK
}

// visit is one run of every check.
type visit struct {
	Config
	q    *dbsqlc.Queries
	read *inspect.Reader
}

// question is one check; its error is why it could not be answered.
type question struct {
	code string
	ask  func(context.Context) (Check, error)
}

func (v *visit) questions() []question {
	list := []question{
		{"version", v.version}, {"standby", v.standby}, {"fsync", v.fsync}, {"full_page_writes", v.fullPageWrites}, {"synchronous_commit", v.synchronousCommit},
		{"rights", v.rights}, {"clock", v.clock}, {"pooler", v.pooler}, {"notifications", v.notifications},
		{"transactions", v.transactions}, {"prepared_transactions", v.preparedTransactions}, {"replication_slots", v.replicationSlots},
		{"autovacuum", v.autovacuum}, {"connections", v.connections}, {"upkeep", v.upkeep},
	}
	if v.Schema != nil {
		list = append([]question{{"migrations", v.migrations}}, list...)
	}
	return list
}

// Run asks everything, one after the other. A check that fails leaves the others
// theirs; a database that is away leaves all of them unchecked.
func Run(ctx context.Context, c Config) Report {
	c.fill()
	v := &visit{Config: c, q: dbsqlc.New(), read: inspect.New(c.Pool)}
	r := Report{At: c.now()}
	began := time.Now()
	for _, q := range v.questions() {
		r.Checks = append(r.Checks, v.answer(ctx, q))
	}
	r.Took = time.Since(began)
	return r
}

func (v *visit) answer(ctx context.Context, q question) Check {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	c, err := q.ask(ctx)
	if err != nil {
		c = Check{Verdict: Unchecked, Evidence: err.Error(), Remedy: "Mend the cause and ask again."}
		if errors.Is(err, context.DeadlineExceeded) {
			c.Evidence = fmt.Sprintf("no answer within %s", v.Timeout)
		}
	}
	c.Code = q.code
	return c
}

func ok(format string, args ...any) (Check, error) {
	return Check{Verdict: OK, Evidence: fmt.Sprintf(format, args...)}, nil
}

func warning(remedy, format string, args ...any) (Check, error) {
	return Check{Verdict: Warning, Remedy: remedy, Evidence: fmt.Sprintf(format, args...)}, nil
}

func problem(remedy, format string, args ...any) (Check, error) {
	return Check{Verdict: Problem, Remedy: remedy, Evidence: fmt.Sprintf(format, args...)}, nil
}

// quoted is a name as SQL takes it.
func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
