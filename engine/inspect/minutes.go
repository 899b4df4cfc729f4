package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// BucketBounds are the upper bounds of the duration buckets in [Minute]. A last
// bucket counts what is longer, so that there is one more of them than bounds.
var BucketBounds = []time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}

// MaxMinutes bounds the rows of [Reader.Minutes].
const MaxMinutes = 100_000

// ErrTooMany says that a span holds more than [MaxMinutes] rows: ask for a
// shorter one, or for one queue or type.
var ErrTooMany = errors.New("more than 100000 rows")

// MinutesFilter chooses minutes from From up to but without To. An empty queue or
// type asks for all of them.
type MinutesFilter struct {
	From, To    time.Time
	Queue, Type string
}

// Minute is how the runs of one type in one queue ended within a minute with one
// outcome.
type Minute struct {
	Minute      time.Time
	Queue, Type string
	Outcome     engine.Outcome
	// N counts runs, RunMS sums their durations in milliseconds.
	N, RunMS int64
	// WaitBuckets and RunBuckets count waits and durations by [BucketBounds].
	WaitBuckets, RunBuckets []int64
}

// Minutes reads the rollup, exact up to the last finished batch, by minute, queue,
// type and outcome. Error: [ErrTooMany].
func (r *Reader) Minutes(ctx context.Context, f MinutesFilter) ([]Minute, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := r.q.ListMinutes(ctx, r.pool, f.From, f.To, filter(f.Queue), filter(f.Type), MaxMinutes+1)
	if err == nil && len(rows) > MaxMinutes {
		err = ErrTooMany
	}
	if err != nil {
		return nil, fmt.Errorf("read minutes from %s to %s: %w", f.From.Format(time.RFC3339), f.To.Format(time.RFC3339), err)
	}
	return minutesOf(rows), nil
}

// minutesOf adds rows of the same minute, queue, type and outcome, which follow each
// other: one from the rollup and one of what is not folded into it yet.
func minutesOf(rows []dbsqlc.ListMinutesRow) []Minute {
	list := make([]Minute, 0, len(rows))
	for _, x := range rows {
		m := Minute{
			Minute: x.Minute.UTC(), Queue: x.Queue, Type: x.Type, Outcome: engine.Outcome(x.Outcome), N: x.N, RunMS: x.RunMs,
			WaitBuckets: buckets(x.WaitBuckets), RunBuckets: buckets(x.RunBuckets),
		}
		if n := len(list); n == 0 || !list[n-1].add(&m) {
			list = append(list, m)
		}
	}
	return list
}

// add adds another row of the same figures, and tells whether it was one.
func (m *Minute) add(o *Minute) bool {
	if !m.Minute.Equal(o.Minute) || m.Queue != o.Queue || m.Type != o.Type || m.Outcome != o.Outcome {
		return false
	}
	m.N += o.N
	m.RunMS += o.RunMS
	for i := range m.WaitBuckets {
		m.WaitBuckets[i] += o.WaitBuckets[i]
		m.RunBuckets[i] += o.RunBuckets[i]
	}
	return true
}

// buckets gives every row the same number of them.
func buckets(b []int64) []int64 {
	out := make([]int64, len(BucketBounds)+1)
	copy(out, b)
	return out
}
