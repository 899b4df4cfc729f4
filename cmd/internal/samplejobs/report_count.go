package samplejobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// group is what one row of a report counts: a queue's type, for throughput also
// within a period, which is zero otherwise.
type group struct {
	period         time.Time
	queue, jobType string
}

type tally struct {
	group
	outcomes  [16]int64 // by engine.Outcome
	runs      int64
	runMS     int64
	wait, run []int64 // by inspect.BucketBounds
}

// count adds up the span, a day at a time and a group at a time, so that a
// quarter of minutes is never held at once.
func (r *reports) count(ctx context.Context, a Report) ([]*tally, error) {
	groups := map[group]*tally{}
	for from := a.From; from.Before(a.To); from = from.Add(reportSpan) {
		to := from.Add(reportSpan)
		if to.After(a.To) {
			to = a.To
		}
		f := inspect.MinutesFilter{From: from, To: to, Queue: a.Queue, Type: a.Type}
		err := r.each(ctx, f, func(m inspect.Minute) { add(groups, m, a) })
		if err != nil {
			return nil, fmt.Errorf("count runs: %w", err)
		}
		if len(groups) > groupsMax {
			return nil, engine.Permanent(fmt.Errorf("from: over %d rows; ask for one queue, one type, or a shorter span", groupsMax))
		}
	}
	return slices.SortedFunc(maps.Values(groups), byPlace), nil
}

// each reads f, in halves where it holds more than one read may.
func (r *reports) each(ctx context.Context, f inspect.MinutesFilter, use func(inspect.Minute)) error {
	minutes, err := r.source.Minutes(ctx, f)
	if span := f.To.Sub(f.From); errors.Is(err, inspect.ErrTooMany) && span > time.Minute {
		first, second := f, f
		first.To = f.From.Add(max(time.Minute, (span / 2).Truncate(time.Minute)))
		second.From = first.To
		if err := r.each(ctx, first, use); err != nil {
			return err
		}
		return r.each(ctx, second, use)
	}
	if err != nil {
		return err
	}
	for _, m := range minutes {
		use(m)
	}
	return nil
}

func add(groups map[group]*tally, m inspect.Minute, a Report) {
	key := group{queue: m.Queue, jobType: m.Type}
	if a.Kind == "throughput" {
		key.period = m.Minute.UTC().Truncate(a.period())
	}
	t := groups[key]
	if t == nil {
		size := len(inspect.BucketBounds) + 1
		t = &tally{group: key, wait: make([]int64, size), run: make([]int64, size)}
		groups[key] = t
	}
	t.runs += m.N
	t.runMS += m.RunMS
	if i := int(m.Outcome); i >= 0 && i < len(t.outcomes) {
		t.outcomes[i] += m.N
	}
	addBuckets(t.wait, m.WaitBuckets)
	addBuckets(t.run, m.RunBuckets)
}

func addBuckets(sum, more []int64) {
	for i := range min(len(sum), len(more)) {
		sum[i] += more[i]
	}
}

// period is the step of a throughput report: some 200 steps at most.
func (a *Report) period() time.Duration {
	switch span := a.To.Sub(a.From); {
	case span <= 3*time.Hour:
		return time.Minute
	case span <= 8*24*time.Hour:
		return time.Hour
	}
	return 24 * time.Hour
}

func byPlace(a, b *tally) int {
	return cmp.Or(a.period.Compare(b.period), cmp.Compare(a.queue, b.queue), cmp.Compare(a.jobType, b.jobType))
}

// failures are the runs that ended badly by themselves: a snooze, a hand-back or
// a cancel is somebody's wish.
func (t *tally) failures() int64 {
	return t.outcomes[engine.OutcomeFailed] + t.outcomes[engine.OutcomeTimedOut] + t.outcomes[engine.OutcomeCrashed] +
		t.outcomes[engine.OutcomeLeaseExpired] + t.outcomes[engine.OutcomeExpired]
}

// quantile is about where the q-th part of the counted durations lies, in
// seconds: the place within its bucket is taken as even. Beyond the last bound
// it can only say "over". Empty without counts.
func quantile(counts []int64, q float64) string {
	var total int64
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return ""
	}
	rank, before, low := q*float64(total), int64(0), time.Duration(0)
	for i, high := range inspect.BucketBounds {
		if n := counts[i]; n > 0 && float64(before+n) >= rank {
			part := (rank - float64(before)) / float64(n)
			return seconds(low + time.Duration(part*float64(high-low)))
		}
		before += counts[i]
		low = high
	}
	return "over " + seconds(low)
}

// seconds has three digits that mean something.
func seconds(d time.Duration) string {
	f, err := strconv.ParseFloat(strconv.FormatFloat(d.Seconds(), 'g', 3, 64), 64)
	if err != nil {
		return "" // not reached: FormatFloat wrote it
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
