package verify

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// Rule is one invariant of the stored history. Promise names what it shows, as
// docs and FAILURE_MODES.md number the promises; P7 (no dual write) and P9 (cost
// of a claim) leave no trace in stored rows and are shown by tests alone.
type Rule struct {
	Name    string
	Promise string
	Says    string // one sentence
}

// Rules are all that [Run] asks, in the order of its report.
var Rules = []Rule{
	{"acknowledged_exists", "P1", "The job that an enqueue was answered with exists, unless it is old enough to have been removed."},
	{"one_place", "P2", "A job stands in exactly one place, or in none and a run has ended it."},
	{"no_orphans", "P2", "Every place, lease entry, execution and dead letter belongs to a job that exists."},
	{"states_as_designed", "P2", "Where a job stands follows from how its last run ended, by the table of transitions."},
	{"nothing_after_the_end", "P2", "A job that completed, was cancelled or expired neither waits nor runs afterwards, but for a replay."},
	{"attempts_within_limit", "P2", "No run's attempt is above max_attempts, and no job waits that has used them all."},
	{"unique_keys_held_once", "P2", "A unique key is held by one living job, the one that its row names."},
	{"run_closed_once", "P3", "A run has one execution."},
	{"tokens_rise", "P3", "A job's tokens rise, replays included, and none is above what was given out."},
	{"claims_do_not_overlap", "P3", "A job is claimed only after its run before has been closed, by the database's clock."},
	{"leases_end", "P4", "While somebody does the upkeep, no lease stands longer than the grace beyond its end."},
	{"leases_hold_open_jobs", "P4", "A lease goes when its last job is closed, with what its runs told and were asked, and names a job once."},
	{"crashes_add_up", "P5", "A job carries no more crashes than runs it lost since it last ended one by itself, and within the limit."},
	{"retry_after_the_failure", "P6", "A job that failed becomes ready not before its failure, and waits for it no longer than 30 days."},
	{"never_before_its_time", "P6", "A job's first run is claimed not before its scheduled_at, and none stands in line ahead of its time."},
	{"attempts_add_up", "P10", "Attempts rise with failures and timeouts alone; hand-backs, snoozes and lost runs use none."},
	{"acts_are_recorded", "P8", "Replays, cancellations and discards have their act in the audit trail."},
	{trailRule, "P8", "The audit trail's hashes form a chain from its first act to its last."},
	{"ends_are_explained", "P8", "A job that expired had an expires_at, which had passed."},
	{"run_instants_in_order", "P8", "A run was claimed, started and finished in this order, and not in the future."},
	{"counters_equal_history", "P8", "The minutes' counters and the executions of the last day agree."},
}

// offence is what every question answers: a rule and one offender.
type offence struct {
	Rule    string
	Subject string
	Token   int64
	Detail  string
}

// pass is one question, and the rules it answers.
type pass struct {
	name  string
	rules []string
	ask   func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error)
}

// countersWindow is how far back counters are compared with executions: a day,
// unless finished jobs are removed sooner, their executions with them.
const countersWindow = 24 * 60 * 60.0

var passes = []pass{
	{"keys", []string{"acknowledged_exists"},
		func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
			return offences(c.q.VerifyKeys(ctx, tx, c.o.Retention.Seconds(), c.most()))
		}},
	{"places", []string{"one_place", "no_orphans", "nothing_after_the_end", "tokens_rise", "states_as_designed", "attempts_add_up",
		"attempts_within_limit", "crashes_add_up", "never_before_its_time", "retry_after_the_failure"},
		func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
			return offences(c.q.VerifyPlaces(ctx, tx, c.most(), c.o.Margin.Seconds(), (engine.MaxDelay + c.o.Margin).Seconds()))
		}},
	{"runs", []string{"no_orphans", "run_closed_once", "nothing_after_the_end", "claims_do_not_overlap", "retry_after_the_failure",
		"attempts_add_up", "attempts_within_limit", "never_before_its_time", "run_instants_in_order", "tokens_rise", "ends_are_explained"},
		func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
			last, err := c.q.LastToken(ctx, tx)
			if err != nil {
				return nil, err
			}
			return offences(c.q.VerifyRuns(ctx, tx, c.most(), c.o.Margin.Seconds(), last))
		}},
	{"leases", []string{"leases_end", "leases_hold_open_jobs"},
		func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
			return offences(c.q.VerifyLeases(ctx, tx, c.most(), c.o.LeaseGrace.Seconds()))
		}},
	{"acts", []string{"acts_are_recorded"},
		func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
			return offences(c.q.VerifyActs(ctx, tx, c.most()))
		}},
	trailPass,
	{"unique keys", []string{"unique_keys_held_once"},
		func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
			return offences(c.q.VerifyUniqueKeys(ctx, tx, c.most()))
		}},
	{"counters", []string{"counters_equal_history"},
		func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
			return offences(c.q.VerifyCounters(ctx, tx, c.most(), min(countersWindow, c.o.Retention.Seconds()/2)))
		}},
}

// trailPass is what [Trail] asks too.
var trailPass = pass{"trail", []string{trailRule},
	func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error) {
		return offences(c.q.VerifyTrail(ctx, tx, c.most()))
	}}

const trailRule = "trail_is_whole"

// most is one more than is told, to know whether there are more.
func (c *check) most() int32 { return int32(c.o.Rows + 1) }

// offences takes the generated rows, which are alike but for their names.
func offences[R ~struct {
	Rule    string
	Subject string
	Token   int64
	Detail  string
}](rows []R, err error) ([]offence, error) {
	list := make([]offence, len(rows))
	for i, r := range rows {
		list[i] = offence(r)
	}
	return list, err
}
