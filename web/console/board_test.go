package console

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// slowReader stands for a database in tests of time alone; whole pages are tested
// on a real one in package web.
type slowReader struct {
	Reader
	takes time.Duration
	gone  atomic.Bool
	reads atomic.Int64
}

var errGone = errors.New("gone")

func (r *slowReader) Snapshot(context.Context, time.Duration) (*inspect.Snapshot, error) {
	time.Sleep(r.takes)
	r.reads.Add(1)
	if r.gone.Load() {
		return nil, errGone
	}
	return &inspect.Snapshot{At: time.Now()}, nil
}

func (r *slowReader) Pulse(context.Context, *inspect.Pulse) (*inspect.Pulse, error) {
	return &inspect.Pulse{At: time.Now(), Enqueued: make([]int64, hour)}, nil
}

func TestTheBoardRestsWhenNobodyLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &slowReader{takes: 10 * time.Millisecond}
		b := newBoard(r)
		if f, err := b.look(t.Context()); f == nil || err != nil || r.reads.Load() != 1 {
			t.Fatalf("first look: %v, %v after %d readings", f, err, r.reads.Load())
		}
		time.Sleep(time.Hour)
		if r.reads.Load() > 10 {
			t.Errorf("%d readings in an hour without a look", r.reads.Load())
		}
		before := r.reads.Load()
		f, err := b.look(t.Context())
		if err != nil || time.Since(f.at) > time.Second || r.reads.Load() != before+1 {
			t.Errorf("a look after an hour shows figures of %v, %v", f.at, err)
		}
		time.Sleep(time.Hour) // the goroutine ends by itself
	})
}

func TestTheBoardKeepsItsLastGoodFigures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &slowReader{takes: 10 * time.Millisecond}
		b := newBoard(r)
		first, err := b.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.gone.Store(true)
		time.Sleep(5 * time.Second)
		if f, err := b.look(t.Context()); f == nil || f.at.Before(first.at) || !errors.Is(err, errGone) {
			t.Errorf("with the database gone: %v, %v", f, err)
		}
		r.gone.Store(false)
		time.Sleep(5 * time.Second)
		if f, err := b.look(t.Context()); err != nil || !f.at.After(first.at) {
			t.Errorf("with the database back: %v, %v", f, err)
		}
		time.Sleep(time.Hour)
	})
}

func TestALookAfterAnActWaitsForNewFigures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &slowReader{takes: 100 * time.Millisecond}
		b := newBoard(r)
		if _, err := b.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(770 * time.Millisecond)
			b.expire()
			act := time.Now()
			f, err := b.look(t.Context())
			if err != nil || f.at.Before(act) {
				t.Errorf("figures of %v before the act, %v", act.Sub(f.at), err)
			}
			if waited := time.Since(act); waited > 300*time.Millisecond {
				t.Errorf("the look waited %v", waited)
			}
		}
		time.Sleep(time.Hour)
	})
}

func TestALookDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(&slowReader{takes: time.Minute})
		start := time.Now()
		f, err := b.look(t.Context())
		if f != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
			t.Errorf("look = %v, %v after %v", f, err, time.Since(start))
		}
		time.Sleep(time.Hour)
	})
}
