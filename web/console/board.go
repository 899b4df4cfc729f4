package console

import (
	"context"
	"sync"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

const (
	// boardInterval is how old the figures get while somebody looks.
	boardInterval = 2 * time.Second
	// boardLinger is how long after the last look the figures are still renewed.
	// The slowest region asks every 5 s.
	boardLinger = 15 * time.Second
	// boardCost keeps reading below this share of the time: a renewal that took
	// 200 ms is followed by 2 s of rest.
	boardCost = 10
	// boardPatience is how long a look waits for the first figures, or for new ones
	// after an act.
	boardPatience = 2 * time.Second
	boardTimeout  = 3 * time.Second
)

// figures are what one reading brought. They are shared: nobody changes them.
type figures struct {
	at    time.Time
	snap  *inspect.Snapshot
	pulse *inspect.Pulse
	stats *stats
	// limited says that they are those of some queues, as [figures.of] makes them.
	limited bool
	parts   parts
}

// board reads the figures once for all viewers of this process, every two seconds
// while somebody looks and not at all otherwise. When reading fails it keeps the
// last good figures and says so.
type board struct {
	read Reader

	mu      sync.Mutex
	last    *figures
	err     error         // of the newest reading; nil if it was good
	asked   time.Time     // of the last look
	floor   time.Time     // figures read before are too old for a look
	running bool          // a goroutine renews
	next    chan struct{} // closed by the end of the next reading
	wake    chan struct{} // asks for a reading now
}

func newBoard(read Reader) *board {
	return &board{read: read, next: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// look returns the last good figures, nil if there never were any, and what went
// wrong with the newest reading. It waits only where what is there is too old: for
// the first figures, after nobody has looked for a while, and after an act.
func (b *board) look(ctx context.Context) (*figures, error) {
	timer := time.NewTimer(boardPatience)
	defer timer.Stop()
	b.mu.Lock()
	b.asked = time.Now()
	need, old := b.floor, !b.running
	if old {
		if b.last == nil || time.Since(b.last.at) > boardInterval {
			need = b.asked
		}
		b.running = true
		go b.renew()
	}
	for {
		last, err, next := b.last, b.err, b.next
		b.mu.Unlock()
		if last != nil && !last.at.Before(need) || err != nil && !old {
			return last, err
		}
		select {
		case <-next:
		case <-timer.C:
			return last, context.DeadlineExceeded
		case <-ctx.Done():
			return last, ctx.Err()
		}
		old = false // an error that is there now is of a reading after the call
		b.mu.Lock()
	}
}

// expire says that an act has just changed what the figures show: the next look
// waits for figures that were read after it.
func (b *board) expire() {
	b.mu.Lock()
	b.floor = time.Now()
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// glance is the last good figures without asking for new ones.
func (b *board) glance() (*figures, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.err
}

// renew reads until nobody has looked for a while. Each reading is bounded, so
// that it ends by itself soon after the last look.
func (b *board) renew() {
	for {
		took := b.readOnce()
		rest := time.NewTimer(max(boardInterval, boardCost*took))
		select {
		case <-rest.C:
		case <-b.wake:
			rest.Stop()
		}
		b.mu.Lock()
		if time.Since(b.asked) > boardLinger {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

func (b *board) readOnce() time.Duration {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), boardTimeout)
	defer cancel()
	b.mu.Lock()
	var before *inspect.Pulse
	maxAge := boardInterval / 2 // a snapshot that the metrics have just read will do
	if b.floor.After(start.Add(-maxAge)) {
		maxAge = 0
	}
	if b.last != nil {
		before = b.last.pulse
	}
	b.mu.Unlock()
	f := &figures{at: start}
	var err error
	if f.snap, err = b.read.Snapshot(ctx, maxAge); err == nil {
		f.pulse, err = b.read.Pulse(ctx, before)
	}
	if err == nil {
		f.stats = newStats(f.pulse)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if err == nil {
		b.last = f
	}
	close(b.next)
	b.next = make(chan struct{})
	return time.Since(start)
}
