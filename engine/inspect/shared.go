package inspect

import (
	"context"
	"time"
)

// shared keeps what was read last, so that many who ask at once cost one read.
type shared[T any] struct {
	turn  chan struct{} // holds one token; its taker reads or writes the rest
	at    time.Time     // when the read of last began; zero without one
	value T
}

func newShared[T any]() *shared[T] {
	s := &shared[T]{turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// get returns the last value if its read began within maxAge, or after the call,
// and reads a new one otherwise; callers that arrive meanwhile wait for it. A read
// that fails leaves the last value as it was.
func (s *shared[T]) get(ctx context.Context, maxAge time.Duration, read func(context.Context) (T, error)) (T, error) {
	var none T
	asked := time.Now()
	select {
	case <-s.turn:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	defer func() { s.turn <- struct{}{} }()
	if !s.at.IsZero() && (s.at.After(asked) || time.Since(s.at) < maxAge) {
		return s.value, nil
	}
	began := time.Now()
	v, err := read(ctx)
	if err != nil {
		return none, err
	}
	s.at, s.value = began, v
	return v, nil
}
