package moves

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Violation is a rule that a committed transaction broke.
type Violation struct {
	JobID uuid.UUID
	TxID  uint64 // 0: the job as it was left at the end
	Rule  string
	Found string
}

func (v Violation) String() string {
	return fmt.Sprintf("job %s, transaction %d: %s: %s", v.JobID, v.TxID, v.Rule, v.Found)
}

// The rules, by the names a [Violation] bears.
const (
	RuleOnePlace   = "a job stands in one place at each commit, or is closed by its last run"
	RuleTransition = "a job moves only as the table of states allows"
	RuleExplained  = "a change of place has its execution or action in the same transaction"
	RuleToken      = "a claim's token is higher than all before it"
	RuleCarried    = "attempt and crashes are carried from place to place by what the run was"
	RuleClosedOnce = "a run is closed once, by a token that was open"
	RuleNeverSeen  = "a place holds jobs that exist"
)

// The states of design.md, and two around them.
const (
	absent    = "absent"
	pending   = "pending"
	failed    = "failed"
	leased    = "leased"
	dead      = "dead_letter"
	completed = "completed"
	cancelled = "cancelled"
	homeless  = "homeless"
)

const anAct = -1 // in place of an outcome: an operator's replay

// allowed says by which outcomes a job may go from one state to another. No
// outcome at all (0) is a move by time or by the upkeep.
var allowed = map[[2]string][]int16{
	{absent, pending}:    {0},
	{pending, pending}:   {0},
	{pending, leased}:    {0},
	{pending, cancelled}: {5},
	{pending, dead}:      {8},
	{failed, pending}:    {0},
	{failed, failed}:     {0},
	{failed, cancelled}:  {5},
	{failed, dead}:       {8},
	{leased, completed}:  {1},
	{leased, failed}:     {2, 9},
	{leased, pending}:    {3, 4, 6, 7},
	{leased, cancelled}:  {5},
	{leased, dead}:       {2, 6, 7, 8, 9},
	{dead, pending}:      {anAct},
	{dead, dead}:         {0},
	{completed, absent}:  {0},
	{cancelled, absent}:  {0},
	{dead, absent}:       {0},
}

// Check reads the log and judges every transaction of every job. It is for a
// moment at which nothing writes, or the last transactions may be missing.
func Check(ctx context.Context, pool *pgxpool.Pool) ([]Violation, error) {
	list, err := read(ctx, pool, "ORDER BY l.job_id, l.id")
	if err != nil {
		return nil, err
	}
	var all []Violation
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].jobID == list[0].jobID {
			n++
		}
		all = append(all, judge(list[:n])...)
		list = list[n:]
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].TxID < all[j].TxID })
	return all, nil
}

// transactions parts one job's moves, in the order of their last moves, since
// the last move of a job is made while its row is locked.
func transactions(list []move) [][]move {
	index := map[uint64]int{}
	var parts [][]move
	for _, m := range list {
		i, known := index[m.txid]
		if !known {
			i = len(parts)
			index[m.txid] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], m)
	}
	sort.SliceStable(parts, func(i, j int) bool { return parts[i][len(parts[i])-1].id < parts[j][len(parts[j])-1].id })
	return parts
}

// life is what is known of a job after the transactions seen so far.
type life struct {
	exists           bool
	rows             []place
	open             []claim // not closed by an execution
	highest          int64
	attempt, crashes int16
	last             int16 // outcome of the last execution, 0 without
	state            string
}

type place struct {
	name             string
	attempt, crashes int16
}

type claim struct {
	token            int64
	attempt, crashes int16
}

func judge(list []move) []Violation {
	parts := transactions(list)
	l := life{state: absent}
	if !slices.ContainsFunc(parts[0], func(m move) bool { return m.place == "job" && m.op == "insert" }) {
		// It was there before the log: begin with where its first move finds it.
		l = before(parts[0])
		if l.state == "" {
			return nil
		}
	}
	var bad []Violation
	for _, part := range parts {
		from := l
		bad = append(bad, l.apply(part)...)
		bad = append(bad, l.compare(from, part)...)
	}
	return bad
}

// before guesses the life that the first logged transaction found, from what
// it took away.
func before(part []move) life {
	l := life{exists: true}
	for _, m := range part {
		if m.op != "delete" {
			continue
		}
		switch m.place {
		case "ready", "scheduled", "held", "failed", "dead":
			l.rows = []place{{m.place, m.attempt, m.crashes}}
			l.attempt, l.crashes = m.attempt, m.crashes
		}
	}
	if len(l.rows) == 0 {
		return life{}
	}
	l.state = l.stands()
	return l
}

// apply makes the transaction's moves and tells those that were impossible.
func (l *life) apply(part []move) (bad []Violation) {
	l.rows, l.open = slices.Clone(l.rows), slices.Clone(l.open)
	say := func(m move, rule, format string, args ...any) {
		bad = append(bad, Violation{m.jobID, m.txid, rule, fmt.Sprintf(format, args...)})
	}
	for _, m := range part {
		switch {
		case m.place == "job":
			l.exists = m.op == "insert"
		case m.place == "action", m.place == "execution" && m.op == "delete":
		case m.place == "claim" && m.op == "insert":
			if m.token <= l.highest {
				say(m, RuleToken, "token %d after %d", m.token, l.highest)
			}
			l.highest = max(l.highest, m.token)
			l.open = append(l.open, claim{m.token, m.attempt, m.crashes})
		case m.place == "claim":
			// Closed runs have left the list: a lease that goes with an open run leaves it nowhere.
			if !closes(part, m.token) {
				l.close(m.token)
			}
		case m.place == "execution":
			waited := m.outcome == 5 || m.outcome == 8
			if !l.close(m.token) && !(waited && m.token > l.highest) {
				say(m, RuleClosedOnce, "an execution with outcome %s for token %d, which was not open", outcomes[m.outcome], m.token)
			}
			l.highest, l.last = max(l.highest, m.token), m.outcome
		case m.op == "insert":
			l.rows = append(l.rows, place{m.place, m.attempt, m.crashes})
		default:
			if i := slices.IndexFunc(l.rows, func(p place) bool { return p.name == m.place }); i >= 0 {
				l.rows = slices.Delete(l.rows, i, i+1)
			}
		}
	}
	return bad
}

func closes(part []move, token int64) bool {
	return slices.ContainsFunc(part, func(m move) bool { return m.place == "execution" && m.op == "insert" && m.token == token })
}

func (l *life) close(token int64) bool {
	i := slices.IndexFunc(l.open, func(c claim) bool { return c.token == token })
	if i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	return i >= 0
}

// stands tells the state of a job whose places are counted.
func (l *life) stands() string {
	switch n := len(l.rows) + len(l.open); {
	case !l.exists:
		return absent
	case n > 1:
		return "in several places"
	case n == 0 && l.last == 1:
		return completed
	case n == 0 && l.last == 5:
		return cancelled
	case n == 0:
		return homeless
	case len(l.open) == 1:
		return leased
	}
	switch l.rows[0].name {
	case "failed":
		return failed
	case "dead":
		return dead
	}
	return pending
}

// compare judges the step from what stood before the transaction.
func (l *life) compare(from life, part []move) (bad []Violation) {
	last := part[len(part)-1]
	say := func(rule, format string, args ...any) {
		bad = append(bad, Violation{last.jobID, last.txid, rule, fmt.Sprintf(format, args...)})
	}
	l.state = l.stands()
	outcome, acted := cause(part)
	switch {
	case !l.exists && len(l.rows)+len(l.open) > 0:
		say(RuleNeverSeen, "%d places hold a job that is gone", len(l.rows)+len(l.open))
		return bad
	case l.state == homeless || l.state == "in several places":
		say(RuleOnePlace, "%s: places %v, open claims %v, last outcome %d", l.state, l.rows, l.open, l.last)
		return bad
	case from.state == homeless || from.state == "in several places":
		return bad // told before
	}
	causes, known := allowed[[2]string{from.state, l.state}]
	same := from.state == l.state && outcome == 0
	switch {
	case !known && !same:
		say(RuleTransition, "from %s to %s", from.state, l.state)
	case same:
	case slices.Contains(causes, anAct) && acted:
	case !slices.Contains(causes, outcome):
		say(RuleExplained, "from %s to %s by %s", from.state, l.state, named(outcome))
	}
	l.carry(from, outcome, say)
	return bad
}

func named(outcome int16) string {
	if outcome == 0 {
		return "nothing that was written down"
	}
	return outcomes[outcome]
}

// cause is the outcome written in a transaction, and whether an operator acted.
func cause(part []move) (outcome int16, acted bool) {
	for _, m := range part {
		if m.place == "execution" && m.op == "insert" {
			outcome = m.outcome
		}
		acted = acted || m.place == "action"
	}
	return outcome, acted
}

// carry checks the two counters that a job takes along.
func (l *life) carry(from life, outcome int16, say func(rule, format string, args ...any)) {
	var attempt, crashes int16
	switch {
	case len(l.open) == 1:
		attempt, crashes = l.open[0].attempt, l.open[0].crashes
	case len(l.rows) == 1:
		attempt, crashes = l.rows[0].attempt, l.rows[0].crashes
	default:
		return
	}
	l.attempt, l.crashes = attempt, crashes
	wantAttempt, wantCrashes := []int16{from.attempt}, []int16{from.crashes}
	switch {
	case from.state == absent, from.state == dead && l.state == pending:
		wantAttempt, wantCrashes = []int16{0}, []int16{0}
	case outcome == 2, outcome == 9:
		wantAttempt, wantCrashes = []int16{from.attempt + 1}, []int16{0}
	case outcome == 3:
		wantCrashes = []int16{0}
	case outcome == 6:
		// A lease that ran out while its worker lived on is no crash.
		wantCrashes = []int16{from.crashes, from.crashes + 1}
	case outcome == 7:
		wantCrashes = []int16{from.crashes + 1}
	}
	if !slices.Contains(wantAttempt, attempt) {
		say(RuleCarried, "attempt %d, want %v", attempt, wantAttempt)
	}
	if !slices.Contains(wantCrashes, crashes) {
		say(RuleCarried, "crashes %d, want %v", crashes, wantCrashes)
	}
}
