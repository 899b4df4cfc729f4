package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// queuesMaxAge is how old the figures of [Reader.Queues] may be, so that many
// viewers cost a few reads a second at most.
const queuesMaxAge = 250 * time.Millisecond

// ErrQueueNotFound says that nothing is known of a queue: no job, no setting, no
// worker told to serve it and no end in the last hour.
var ErrQueueNotFound = errors.New("queue not found")

// Queues reads every queue, in order of name, from a snapshot at most 250 ms old.
func (r *Reader) Queues(ctx context.Context) ([]Queue, error) {
	s, err := r.Snapshot(ctx, queuesMaxAge)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return s.Queues, nil
}

// Queue reads one queue. Error: [ErrQueueNotFound].
func (r *Reader) Queue(ctx context.Context, name string) (Queue, error) {
	all, err := r.Queues(ctx)
	if err != nil {
		return Queue{}, fmt.Errorf("read queue %s: %w", name, err)
	}
	i := slices.IndexFunc(all, func(q Queue) bool { return q.Name == name })
	if i < 0 {
		return Queue{}, fmt.Errorf("read queue %s: %w", name, ErrQueueNotFound)
	}
	return all[i], nil
}
