package engine

import (
	"context"
	"slices"
	"time"
)

const (
	holdEvery = 5 * time.Second
	holdBatch = 5000
	// holdAfter is how long a type must have been without a worker before its
	// jobs are taken out of line: a deployment is shorter.
	holdAfter = time.Minute
	holdShare = 20 // a pass may take a twentieth of the time
)

// holder keeps jobs that no living worker can run out of the ready line, where
// every claim would have to step over them. Only the leader's loop uses it.
type holder struct {
	since map[string]time.Time // type -> first seen without a worker
	next  time.Time
}

// holdOnce brings back the held jobs whose type has a worker again, and parks
// those whose type had none for holdAfter. It holds nothing while no worker
// lives at all: then nothing claims either.
func (e *Engine) holdOnce(ctx context.Context) error {
	if time.Now().Before(e.holder.next) {
		return nil
	}
	began := time.Now()
	defer func() { e.holder.next = time.Now().Add(holdShare * time.Since(began)) }()
	handled, err := e.q.ListHandledTypes(ctx, e.hot)
	if err != nil || len(handled) == 0 {
		return err
	}
	if err := e.unpark(ctx, handled); err != nil {
		return err
	}
	queues, priorities, err := e.allLanes(ctx)
	if err != nil || len(queues) == 0 {
		return err
	}
	unhandled, err := e.q.ListUnhandledTypes(ctx, e.hot, handled, queues, priorities)
	if err != nil {
		return err
	}
	ripe := e.holder.ripe(unhandled, began)
	if len(ripe) == 0 {
		return nil
	}
	held, err := e.q.ParkJobs(ctx, e.hot, queues, priorities, ripe, e.batches.hold.size(), e.workerID)
	e.batches.hold.after(err)
	if err == nil && len(held) > 0 {
		e.log.Warn("jobs held: no worker for their type", "worker_id", e.workerID, "types", ripe, "jobs", len(held))
	}
	return err
}

// ripe are the types seen without a worker for long enough.
func (h *holder) ripe(unhandled []string, now time.Time) (ripe []string) {
	for t := range h.since {
		if !slices.Contains(unhandled, t) {
			delete(h.since, t)
		}
	}
	for _, t := range unhandled {
		first, seen := h.since[t]
		switch {
		case !seen:
			h.since[t] = now
		case now.Sub(first) >= holdAfter:
			ripe = append(ripe, t)
		}
	}
	return ripe
}

func (e *Engine) unpark(ctx context.Context, handled []string) error {
	for {
		most := e.batches.hold.size()
		queues, err := e.q.UnparkJobs(ctx, e.hot, handled, most)
		e.batches.hold.after(err)
		if err != nil {
			return err
		}
		fed := map[string]bool{}
		for _, q := range queues {
			fed[q] = true
		}
		for q := range fed {
			e.client.notify.queue(q)
			e.claimer.wake(q)
		}
		if len(queues) < int(most) {
			return nil
		}
	}
}

func (e *Engine) allLanes(ctx context.Context) (queues []string, ps []int16, err error) {
	names, err := e.q.ListReadyQueues(ctx, e.hot)
	for _, q := range names {
		for p := int16(priorities - 1); p >= 0; p-- {
			queues, ps = append(queues, q), append(ps, p)
		}
	}
	return queues, ps, err
}
