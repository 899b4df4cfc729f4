//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// span is a time in which nobody could have taken a lost job back.
type span struct{ from, to time.Time }

// overlap is how much of [from, to] the spans cover, counted once.
func overlap(spans []span, from, to time.Time) (sum time.Duration) {
	at := from
	for _, s := range spans { // sorted by from
		begin, end := later(s.from, at), earlier(s.to, to)
		if begin.Before(end) {
			sum += end.Sub(begin)
			at = end
		}
	}
	return sum
}

// longestClear is the longest stretch of [from, to] that no span covers.
func longestClear(spans []span, from, to time.Time) (longest time.Duration) {
	at := from
	for _, s := range spans { // sorted by from
		if begin := earlier(s.from, to); begin.After(at) {
			longest = max(longest, begin.Sub(at))
		}
		at = later(at, s.to)
	}
	return max(longest, to.Sub(at))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// troubled are the spans without a database that answers, without a leader, or
// with a leader that has to wait because it could not reach the database: each
// with the quiet time that follows it by design.
func (e *evidence) troubled() []span {
	var spans []span
	var down time.Time
	begun := map[string]time.Time{}
	for _, h := range e.events {
		switch h.What {
		case "down":
			down = h.At
		case "up":
			// What was asked before may fail until its time is over, and a heartbeat's calm follows that.
			spans = append(spans, span{down, h.At.Add(heartbeat + dbTimeout)})
		case "reset", "slow":
			begun[h.What+h.Who] = h.At
		case "healed":
			for _, what := range []string{"reset", "slow"} {
				if at, ok := begun[what+h.Who]; ok && h.Who == "workers" {
					spans = append(spans, span{at, h.At.Add(heartbeat + time.Second)})
					delete(begun, what+h.Who)
				}
			}
		case "cut":
			if h.Who != "workers" {
				continue
			}
			spans = append(spans, span{h.At, h.At.Add(heartbeat + time.Second)})
		}
	}
	spans = append(append(spans, e.leaderless()...), e.stalled()...)
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	return spans
}

// stalled are the spans in which the machine or the database stood: somebody who
// looks at the leader twenty times a second did not get to it.
func (e *evidence) stalled() []span {
	var spans []span
	for i := 1; i < len(e.leaders); i++ {
		if from, to := e.leaders[i-1].At, e.leaders[i].At; to.Sub(from) > 200*time.Millisecond {
			spans = append(spans, span{from, to})
		}
	}
	return spans
}

// leaderless is all the time but that of leaders who were seen: from their
// beginning, and a pass's wait, to their own kill or freeze, or the next leader.
// One who lived for less than a look was none.
func (e *evidence) leaderless() []span {
	var led []span
	for i, l := range e.leaders {
		if i > 0 && l.Acquired.Equal(e.leaders[i-1].Acquired) && l.PID == e.leaders[i-1].PID {
			continue
		}
		if n := len(led); n > 0 {
			led[n-1].to = earlier(led[n-1].to, l.Acquired)
		}
		led = append(led, span{l.Acquired.Add(reaper + heartbeat), e.endOf(l)})
	}
	var without []span
	var last time.Time
	for _, s := range led {
		if s.from.Before(s.to) {
			without, last = append(without, span{last, s.from}), s.to
		}
	}
	return append(without, span{last, last.Add(time.Hour)})
}

// endOf is when something first hit a leader's process.
func (e *evidence) endOf(l leader) time.Time {
	for _, h := range e.events {
		if h.PID == l.PID && h.At.After(l.Acquired) && (h.What == "kill" || h.What == "freeze" || h.What == "term" || h.What == "exit") {
			return h.At
		}
	}
	return l.Acquired.Add(time.Hour)
}

// step is one transaction of the reaper: when it began, and the lowest lease that it
// took back. Leases are taken back in their order.
type step struct {
	at    time.Time
	lease int64
}

// dbTimeout is DB_TIMEOUT of a storm: how long the reaper's statement may take, too.
const dbTimeout = 3 * time.Second

// busy are the spans between an instant and the step that took a lease back in which
// the reaper was at work on leases that came before it. A reaper that passed it over
// for later ones is not pardoned.
func busy(steps []step, lease int64, from, to time.Time) []span {
	var spans []span
	for i := 1; i < len(steps); i++ {
		if a, b := steps[i-1], steps[i]; !a.at.Before(from) && !b.at.After(to) && a.lease < lease && b.at.Sub(a.at) <= dbTimeout {
			spans = append(spans, span{a.at, b.at})
		}
	}
	return spans
}

// steps are the reaper's, in order.
func (e *evidence) steps(ctx context.Context) ([]step, error) {
	rows, err := e.pool.Query(ctx, "SELECT finished_at, min(fencing_token) FROM job_executions WHERE outcome = 6 GROUP BY finished_at ORDER BY finished_at")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s step, err error) {
		return s, row.Scan(&s.at, &s.lease)
	})
}

// inTime is how long a leader may take until what has run out is taken back.
const inTime = reaper + time.Second

// recoveries measures how long lost runs took to come back: a lease after the kill or
// the freeze of their process they are due, and no stretch of an undisturbed leader
// may be longer than inTime before they are back. Each disturbance begins it anew.
func (e *evidence) recoveries(ctx context.Context, t testing.TB) ([]violation, error) {
	steps, err := e.steps(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := e.pool.Query(ctx, `SELECT e.job_id, e.fencing_token, e.claimed_at, e.finished_at, w.pid FROM job_executions AS e
		JOIN workers AS w ON w.id = e.worker_id WHERE e.outcome = 6 ORDER BY e.finished_at`)
	if err != nil {
		return nil, err
	}
	hit := map[int][]happened{}
	for _, h := range e.events {
		if h.What == "kill" || h.What == "freeze" {
			hit[h.PID] = append(hit[h.PID], h)
		}
	}
	troubled := e.troubled()
	pardons := map[int64][]span{} // by lease
	var found []violation
	var waits []time.Duration
	var id uuid.UUID
	var token int64
	var claimed, finished time.Time
	var pid int
	lost := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &token, &claimed, &finished, &pid}, func() error {
		lost++
		at, ok := lastBefore(hit[pid], finished)
		if !ok {
			return nil // the lease ran out by an outage
		}
		at = later(at, claimed) // a claim whose answer came to nobody
		if _, done := pardons[token]; !done {
			spans := append(busy(steps, token, at, finished), troubled...)
			slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
			pardons[token] = spans
		}
		due := at.Add(lease)
		clear := longestClear(pardons[token], due, finished)
		waits = append(waits, finished.Sub(at)-overlap(pardons[token], due, finished))
		if clear > inTime {
			found = append(found, violation{"a lost job is back within lease, reaper interval and 1s, outages and those before it", fmt.Sprintf(
				"token %d lost at %s, due at %s, back %s later, though a leader had %s for it with a database and nothing before it; want %s",
				token, at.UTC().Format("15:04:05.000"), due.UTC().Format("15:04:05.000"), finished.Sub(due), clear, inTime), id})
		}
		return nil
	})
	if len(waits) > 0 {
		slices.Sort(waits)
		t.Logf("%d runs lost, %d of them with their process or its freeze: back after %s in the middle, %s at the 99th, %s at most (outages, leaders' ends and earlier leases taken off)",
			lost, len(waits), waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)*99/100].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond))
	}
	return found, err
}

// lastBefore is the last time something hit a process before an instant.
func lastBefore(list []happened, t time.Time) (at time.Time, ok bool) {
	for _, h := range list {
		if h.At.Before(t) && h.At.After(at) {
			at, ok = h.At, true
		}
	}
	return at, ok
}

func TestTheReaperIsPardonedForEarlierLeasesOnly(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	steps := []step{{at(0), 1}, {at(1000), 5}, {at(2000), 6}, {at(2500), 20}, {at(3000), 7}, {at(9000), 8}, {at(9500), 10}}
	for _, c := range []struct {
		from, to int
		want     time.Duration
	}{
		{0, 9500, 3 * time.Second},            // not while 20 went first, nor in the gap of 6 s
		{1000, 3000, 1500 * time.Millisecond}, // 5 and 6 came before it
		{1500, 2500, 500 * time.Millisecond},  // what began before it was lost is no reason
		{2500, 3000, 0}, {9500, 9500, 0}, {0, 500, 0},
	} {
		if got := overlap(busy(steps, 10, at(c.from), at(c.to)), at(c.from), at(c.to)); got != c.want {
			t.Errorf("busy from %d to %d: %s, want %s", c.from, c.to, got, c.want)
		}
	}
}

func TestOverlapCountsEveryInstantOnce(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	spans := []span{{at(0), at(5)}, {at(3), at(4)}, {at(4), at(8)}, {at(20), at(30)}}
	for _, c := range []struct {
		from, to int
		want     time.Duration
	}{{0, 10, 8 * time.Second}, {6, 25, 7 * time.Second}, {9, 19, 0}, {21, 22, time.Second}} {
		if got := overlap(spans, at(c.from), at(c.to)); got != c.want {
			t.Errorf("overlap from %d to %d = %s, want %s", c.from, c.to, got, c.want)
		}
	}
}

func TestTheLongestClearStretch(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	spans := []span{{at(0), at(5)}, {at(3), at(4)}, {at(4), at(8)}, {at(20), at(30)}}
	for _, c := range []struct {
		from, to int
		want     time.Duration
	}{{0, 10, 2 * time.Second}, {6, 25, 12 * time.Second}, {9, 19, 10 * time.Second}, {21, 22, 0}, {6, 37, 12 * time.Second}, {6, 45, 15 * time.Second}, {40, 39, 0}} {
		if got := longestClear(spans, at(c.from), at(c.to)); got != c.want {
			t.Errorf("clear from %d to %d: %s, want %s", c.from, c.to, got, c.want)
		}
	}
	if got := longestClear(nil, at(1), at(4)); got != 3*time.Second {
		t.Errorf("without trouble: %s", got)
	}
}
