package engine

import (
	"sync"
	"time"
)

// clock watches the database's clock by this process's own: what the one gains
// on the other, beyond the time an answer takes, is a clock that was moved, or a
// machine that stood still. Leases then say nothing of who lives until the living
// have renewed theirs.
type clock struct {
	mu   sync.Mutex
	seen reading
}

// reading is one answer of the database's clock.
type reading struct {
	now             time.Time // by the database
	asked, answered time.Time // by this process
}

// saw takes a reading and tells by how much the clock was moved since the last
// one, 0 for less than slack. first tells that there was none before.
func (c *clock) saw(r reading, slack time.Duration) (moved time.Duration, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.seen
	c.seen = r
	if last.now.IsZero() {
		return 0, true
	}
	gained := r.now.Sub(last.now)
	least, most := r.asked.Sub(last.answered), r.answered.Sub(last.asked)
	switch {
	case gained > most+slack:
		return gained - most, false
	case gained < least-slack:
		return gained - least, false
	}
	return 0, false
}

// latest is the latest instant that the database's clock may show by now; nil
// while nothing is known of it.
func (c *clock) latest(slack time.Duration) *time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.now.IsZero() {
		return nil
	}
	t := c.seen.now.Add(time.Since(c.seen.asked) + slack)
	return &t
}

// watchClock gives the living one heartbeat's time to renew their leases before
// anything is reaped: at the start, when nobody here knows what went before, and
// after the clock was moved.
func (e *Engine) watchClock(r reading) {
	moved, first := e.clock.saw(r, e.cfg.HeartbeatInterval)
	if moved == 0 && !first {
		return
	}
	e.troubled.note()
	if moved != 0 {
		e.promoter.moved.Store(true)
		e.log.Warn(LogClockMoved, "worker_id", e.workerID, "by", moved.Round(time.Millisecond).String())
	}
}
