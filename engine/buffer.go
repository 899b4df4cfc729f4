package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// buffer holds claimed jobs until a slot takes them, in the order of the claim.
type buffer struct {
	mu       sync.Mutex
	ready    sync.Cond
	runs     []*run
	head     int
	closed   bool
	lastTake time.Time
}

func newBuffer() *buffer {
	b := &buffer{}
	b.ready.L = &b.mu
	return b
}

func (b *buffer) put(runs []*run) {
	b.mu.Lock()
	if b.head == len(b.runs) {
		b.runs, b.head = b.runs[:0], 0
		b.lastTake = time.Now()
	}
	b.runs = append(b.runs, runs...)
	b.mu.Unlock()
	if len(runs) == 1 {
		b.ready.Signal()
	} else {
		b.ready.Broadcast()
	}
}

// take waits for a job; nil says that the buffer is closed and empty.
func (b *buffer) take() *run {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.head == len(b.runs) {
		if b.closed {
			return nil
		}
		b.ready.Wait()
	}
	r := b.runs[b.head]
	b.runs[b.head] = nil
	if b.head++; b.head&63 == 0 || b.head == len(b.runs) {
		b.lastTake = time.Now()
	}
	return r
}

// drain empties the buffer and returns what stood in it.
func (b *buffer) drain() []*run {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := append([]*run(nil), b.runs[b.head:]...)
	clear(b.runs)
	b.runs, b.head = b.runs[:0], 0
	return rest
}

func (b *buffer) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.runs) - b.head
}

// waitedLongerThan tells whether jobs stand here of which none was taken for d.
func (b *buffer) waitedLongerThan(d time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.head < len(b.runs) && time.Since(b.lastTake) > d
}

func (b *buffer) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.ready.Broadcast()
}

// pace keeps a moving average of how long handlers run, for the prefetch.
type pace struct{ average atomic.Int64 }

func (p *pace) ran(d time.Duration) {
	old := p.average.Load()
	if old == 0 {
		p.average.Store(max(int64(d), 1))
		return
	}
	p.average.Store(max(old+(int64(d)-old)/16, 1))
}

const (
	prefetchTime = 100 * time.Millisecond
	maxBatch     = 1000
)

// prefetch is how many jobs to claim beyond the free slots: about 100 ms of
// work, none before the first job has run.
func (p *pace) prefetch(slots int) int {
	average := p.average.Load()
	if average == 0 {
		return 0
	}
	return int(min(int64(prefetchTime)*int64(slots)/average, maxBatch))
}
