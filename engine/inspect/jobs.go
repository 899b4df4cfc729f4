package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// MaxOffset is how deep [JobFilter.Offset] and Limit may reach together.
const MaxOffset = 10_000

// scanBudget is how long a list may look for jobs of a rare type, queue or
// priority before it answers what it found and where it stopped.
const scanBudget = 2 * time.Second

const (
	firstScan = 1_000
	maxScan   = 20_000
)

// JobFilter chooses jobs. The zero value is the newest of all.
type JobFilter struct {
	// States: none asks for all.
	States   []engine.State
	Type     string
	Queue    string
	Priority *engine.Priority
	// Before continues after the job of this id; zero starts at the newest.
	Before engine.ID
	// Offset skips so many, at most [MaxOffset] less Limit. Before is the better
	// way: it stays put while jobs arrive.
	Offset int
	// Limit is 1 to [MaxLimit], default [DefaultLimit].
	Limit int
}

// JobPage is one page of jobs, newest first.
type JobPage struct {
	Jobs []Job
	// Next is the Before of the next page; zero when there is none.
	Next engine.ID
	// Stopped says that the time for looking was over: the page may be short, and
	// Next goes on from where the search stood.
	Stopped bool
}

// Jobs lists jobs by descending id, which is the order of creation.
func (r *Reader) Jobs(ctx context.Context, f JobFilter) (JobPage, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	limit := clampLimit(f.Limit)
	offset := min(max(f.Offset, 0), MaxOffset-limit)
	found, err := r.find(ctx, f, offset+limit)
	if err != nil {
		return JobPage{}, fmt.Errorf("list jobs: %w", err)
	}
	page := JobPage{Stopped: found.stopped}
	ids := found.ids
	switch {
	case len(ids) > offset+limit:
		ids = ids[:offset+limit]
		page.Next = ids[len(ids)-1]
	case !found.done:
		page.Next = found.bottom
	}
	page.Jobs, err = r.jobs(ctx, ids[min(offset, len(ids)):], ListPayloadMax, listErrorMax)
	if err != nil {
		return JobPage{}, fmt.Errorf("list jobs: %w", err)
	}
	if len(f.States) > 0 {
		// A job that moved on between the two reads is no longer what was asked for.
		page.Jobs = slices.DeleteFunc(page.Jobs, func(j Job) bool { return !slices.Contains(f.States, j.State) })
	}
	return page, nil
}

// found is what a look brought: ids in descending order, complete down to and
// including bottom, or, when done, to the end.
type found struct {
	ids     []engine.ID
	bottom  engine.ID
	done    bool
	stopped bool
}

// find looks for n ids and one more, which tells that there is a next page.
func (r *Reader) find(ctx context.Context, f JobFilter, n int) (found, error) {
	if f.Before == uuid.Nil {
		f.Before = uuid.Max
	}
	states := slices.Compact(slices.Sorted(slices.Values(f.States)))
	if len(states) == 0 {
		return r.scan(ctx, f, n, "")
	}
	all := found{done: true}
	for _, s := range states {
		one, err := r.findState(ctx, f, s, n)
		if err != nil {
			return found{}, err
		}
		all.add(one)
	}
	all.settle()
	return all, nil
}

// add joins another look; settle comes after the last.
func (f *found) add(one found) {
	f.ids = append(f.ids, one.ids...)
	f.stopped = f.stopped || one.stopped
	if !one.done && (f.done || descending(one.bottom, f.bottom) < 0) {
		f.done, f.bottom = false, one.bottom
	}
}

func (f *found) settle() {
	slices.SortFunc(f.ids, descending)
	f.ids = slices.Compact(f.ids)
	if !f.done {
		// Below the bottom of the shortest look the others' ids have gaps between them.
		f.ids = slices.DeleteFunc(f.ids, func(id engine.ID) bool { return descending(id, f.bottom) > 0 })
	}
}

func descending(a, b engine.ID) int { return strings.Compare(string(b[:]), string(a[:])) }

func (r *Reader) findState(ctx context.Context, f JobFilter, s engine.State, n int) (found, error) {
	var ids []engine.ID
	var err error
	kind, queue, priority, most := filter(f.Type), filter(f.Queue), priorityFilter(f.Priority), int32(n+1)
	switch s {
	case engine.StatePending:
		ids, err = r.q.ListPendingIDs(ctx, r.pool, f.Before, kind, queue, priority, most)
	case engine.StateFailed:
		ids, err = r.q.ListFailedIDs(ctx, r.pool, f.Before, kind, queue, priority, most)
	case engine.StateLeased:
		ids, err = r.q.ListLeasedIDs(ctx, r.pool, f.Before, kind, queue, priority, most)
	case engine.StateDeadLetter:
		ids, err = r.q.ListDeadIDs(ctx, r.pool, f.Before, kind, queue, priority, most)
	case engine.StateCompleted, engine.StateCancelled:
		return r.scan(ctx, f, n, s)
	case engine.StateBlocked: // nothing waits for other jobs yet
	}
	if err != nil {
		return found{}, err
	}
	if len(ids) > n {
		return found{ids: ids, bottom: ids[len(ids)-1]}, nil
	}
	return found{ids: ids, done: true}, nil
}

// scan walks jobs, or for a final state their runs, in stretches that grow while
// little is found.
func (r *Reader) scan(ctx context.Context, f JobFilter, n int, s engine.State) (found, error) {
	start, size := time.Now(), int32(max(firstScan, n+1))
	if s == "" && f.Type == "" && f.Queue == "" && f.Priority == nil {
		size = int32(n + 1)
	}
	out := found{bottom: f.Before}
	for {
		ids, seen, bottom, err := r.stretch(ctx, f, s, out.bottom, size)
		if err != nil {
			return found{}, err
		}
		out.ids = append(out.ids, ids...)
		out.bottom = bottom
		switch {
		case seen < size && len(out.ids) <= n:
			out.done = true
			return out, nil
		case len(out.ids) > n:
			return out, nil
		case time.Since(start) > scanBudget:
			out.stopped = true
			return out, nil
		}
		size = min(size*4, maxScan)
	}
}

func (r *Reader) stretch(ctx context.Context, f JobFilter, s engine.State, before engine.ID, size int32) ([]engine.ID, int32, engine.ID, error) {
	kind, queue, priority := filter(f.Type), filter(f.Queue), priorityFilter(f.Priority)
	if s == engine.StateCompleted {
		x, err := r.q.ScanCompleted(ctx, r.pool, before, kind, queue, priority, size)
		return x.Ids, x.Seen, x.Bottom, err
	}
	if s == engine.StateCancelled {
		x, err := r.q.ScanCancelled(ctx, r.pool, before, kind, queue, priority, size)
		return x.Ids, x.Seen, x.Bottom, err
	}
	x, err := r.q.ScanJobs(ctx, r.pool, before, kind, queue, priority, size)
	return x.Ids, x.Seen, x.Bottom, err
}

func priorityFilter(p *engine.Priority) *int16 {
	if p == nil {
		return nil
	}
	n := int16(*p)
	return &n
}
