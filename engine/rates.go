package engine

import (
	"sync"
	"time"
)

const (
	rateStep  = 5 * time.Second
	rateSteps = 180 // a quarter of an hour
)

// rates counts what this worker ended within the last quarter of an hour, for its
// heartbeat: the console tells a worker whose jobs all fail from one that works,
// and reads no execution for it.
type rates struct {
	mu    sync.Mutex
	steps [rateSteps]struct {
		at           int64 // which step of time this is
		done, failed int32
	}
}

// add counts runs that ended at an instant.
func (r *rates) add(now time.Time, done, failed int) {
	if done == 0 && failed == 0 {
		return
	}
	at := now.UnixNano() / int64(rateStep)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.steps[at%rateSteps]
	if s.at != at {
		s.at, s.done, s.failed = at, 0, 0
	}
	s.done += int32(done)
	s.failed += int32(failed)
}

// read returns the jobs completed in the last full minute, and the runs that
// failed or timed out in the last quarter of an hour.
func (r *rates) read(now time.Time) (doneLastMinute, failedLately int32) {
	at := now.UnixNano() / int64(rateStep)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.steps {
		s := &r.steps[i]
		if s.at <= at-rateSteps || s.at > at {
			continue
		}
		failedLately += s.failed
		if age := at - s.at; age >= 1 && age <= int64(time.Minute/rateStep) {
			doneLastMinute += s.done
		}
	}
	return doneLastMinute, failedLately
}
