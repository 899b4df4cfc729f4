package web

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// countingReader counts what the figures cost, over a real reader.
type countingReader struct {
	*inspect.Reader
	snapshots, pulses atomic.Int64
}

func (r *countingReader) Snapshot(ctx context.Context, maxAge time.Duration) (*inspect.Snapshot, error) {
	r.snapshots.Add(1)
	return r.Reader.Snapshot(ctx, maxAge)
}

func (r *countingReader) Pulse(ctx context.Context, last *inspect.Pulse) (*inspect.Pulse, error) {
	r.pulses.Add(1)
	return r.Reader.Pulse(ctx, last)
}

// TestThirtyViewersCostOneReadingPerInterval is K1: figures are read every two
// seconds, whoever looks and whatever page it is.
func TestThirtyViewersCostOneReadingPerInterval(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	read := &countingReader{Reader: inspect.New(pool)}
	s := newConsoleOn(t, pool, func(c *Config) { c.Read = read })
	s.enqueue(`{"type":"email","queue":"mail"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var viewers sync.WaitGroup
	var looks atomic.Int64
	began := time.Now()
	for i := range 30 {
		viewers.Go(func() {
			path := []string{"/", "/queues", "/types"}[i%3]
			for ctx.Err() == nil && (read.pulses.Load() < 3 || looks.Load() < 300) {
				if r := s.get(path, fragment("div#live")...); r.status != http.StatusOK {
					t.Errorf("%s = %d", path, r.status)
					return
				}
				looks.Add(1)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	viewers.Wait()
	// The first reading, one for each two seconds, and one that may be under way.
	took := time.Since(began)
	most := int64(took/(2*time.Second)) + 2
	if n := read.pulses.Load(); n > most || n < 3 || read.snapshots.Load() > most {
		t.Errorf("%d looks of 30 viewers in %v cost %d snapshots and %d pulses, want 3 to %d", looks.Load(), took, read.snapshots.Load(), n, most)
	}
	if looks.Load() < 300 {
		t.Errorf("only %d looks", looks.Load())
	}
}

// TestADrainedQueueLeavesNoOldNumbers is J1 for pages.
func TestADrainedQueueLeavesNoOldNumbers(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.enqueue(`{"type":"email","queue":"mail"}`)
	s.get("/jobs?queue=mail").shows("before", http.StatusOK, "Ready 1")
	s.submit("/jobs/"+id+"/cancel", nil)
	s.get("/jobs?queue=mail&state=ready").shows("after", http.StatusOK, "Ready 0", "No job matches")
}
