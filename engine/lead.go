package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// The upkeep of all jobs is done by one process at a time: the holder of a row
// with an end. Every pass of it is safe for two at once, so that a leader that
// froze and comes back does no harm: its statements decide by what they find, and
// those that act on what was seen before ask whether another leads.
const leaderRole = "maintenance"

type leader struct {
	e     *Engine
	until atomic.Int64  // this process's clock, in Unix nanoseconds
	taken chan struct{} // wakes the reaper, which the leader before may have left long ago
}

func newLeader(e *Engine) *leader { return &leader{e: e, taken: make(chan struct{}, 1)} }

// term is how long leadership lasts without renewal: never longer than a lease,
// so that a successor is in place before a dead leader's own jobs are due.
func (l *leader) term() time.Duration { return min(5*time.Second, l.e.cfg.LeaseDuration) }

func (l *leader) leading() bool { return time.Now().UnixNano() < l.until.Load() }

func (l *leader) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		wait := l.term() / 4
		if err := l.campaign(); err != nil {
			failures++
			l.e.trouble("leader", err)
			wait = min(wait, backoffAfter(failures, time.Second))
		} else {
			failures = 0
		}
		l.e.sleep(ctx, jitter(wait))
	}
}

// campaign takes or renews leadership. Its end is counted from before the
// question, so that this process stops first.
func (l *leader) campaign() error {
	ctx, cancel := l.e.dbContext()
	defer cancel()
	asked := time.Now()
	got, err := l.e.q.Lead(ctx, l.e.beat, leaderRole, l.e.workerID, l.term().Seconds())
	if err != nil {
		return err
	}
	l.e.watchClock(reading{got.Now, asked, time.Now()})
	if got.Term == 0 {
		l.until.Store(0)
		return nil
	}
	first := !l.leading()
	if first {
		fault.Point("lead.taken")
		l.e.log.Info("leadership taken", "worker_id", l.e.workerID)
	}
	l.until.Store(asked.Add(l.term()).UnixNano())
	if first {
		select {
		case l.taken <- struct{}{}:
		default:
		}
	}
	l.e.promoter.wake()
	return nil
}

// whileLeading makes a pass one of the leader's.
func (e *Engine) whileLeading(pass func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !e.leader.leading() {
			return nil
		}
		return pass(ctx)
	}
}
