package engine

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// ID names a job for ever: a UUIDv7, made by whoever enqueues, so that it
// carries the instant of its making and sorts by it.
type ID = uuid.UUID

// Priority orders ready jobs inside a queue: the higher runs first, strictly.
// Within a priority the order is that of becoming ready.
type Priority int16

// The named priorities. The numbers between them are as good.
const (
	PriorityLow      Priority = 0
	PriorityDefault  Priority = 1
	PriorityHigh     Priority = 3
	PriorityCritical Priority = 5
)

var priorityNames = map[string]Priority{
	"low": PriorityLow, "default": PriorityDefault, "high": PriorityHigh, "critical": PriorityCritical,
}

// ParsePriority reads a name (low, default, high, critical) or a whole number
// from 0 to 5. Anything else is an error that lists both.
func ParsePriority(s string) (Priority, error) {
	if p, ok := priorityNames[s]; ok {
		return p, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 5 || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("priority %q: use low, default, high, critical, or a whole number from 0 to 5", s)
	}
	return Priority(n), nil
}

// Row is what a handler is told of its job and of this run of it.
type Row struct {
	ID       ID
	Type     string
	Queue    string
	Priority Priority
	// Attempt counts this run from 1 among those that ended in the handler.
	// Runs lost with their process, snoozed or handed back are not counted.
	Attempt     int
	MaxAttempts int
	// Crashes counts the runs of this job that were lost with their process
	// since it last ended by itself.
	Crashes int
	// FencingToken names this run. A later run of the same job always has a
	// higher one: hand it to stores that can refuse older writers.
	FencingToken int64
	// WorkerID is the row of this process in the workers table.
	WorkerID int64
	// ReadyAt is when the job became due, by the database's clock.
	ReadyAt time.Time
	// Payload is the job's JSON object as stored: numbers digit for digit.
	// It is shared; do not change it.
	Payload json.RawMessage
}

// Job is one run of a job, given to [Worker.Work]. It is valid until Work
// returns. Its methods may be called by several goroutines.
type Job[T Args] struct {
	Row
	// Args is the decoded payload, owned by the handler.
	Args T

	run *run
}

// Log returns a logger whose lines are kept with this run and also go to the
// engine's logger, which adds the job's fields. A run keeps its last 200 lines
// and 16 KiB; what came before is counted in the first line kept.
func (j *Job[T]) Log() *slog.Logger { return j.run.logger() }

// SetResult keeps v, as JSON, with this run if it completes; the last call
// wins. Errors: [ErrResultTooLarge] beyond [MaxResultBytes], or what
// json.Marshal says.
func (j *Job[T]) SetResult(v any) error { return j.run.setResult(v) }

// RawArgs are arguments whose Go type this process does not know, as those of
// the HTTP door: the payload is passed on as it came.
type RawArgs struct {
	Type    string
	Payload json.RawMessage
}

var _ Args = RawArgs{}

// JobType implements [Args].
func (a RawArgs) JobType() string { return a.Type }

// MarshalJSON returns the payload; an empty one is an empty object.
func (a RawArgs) MarshalJSON() ([]byte, error) {
	if len(a.Payload) == 0 {
		return []byte("{}"), nil
	}
	return a.Payload, nil
}

// UnmarshalJSON keeps the payload as it stands.
func (a *RawArgs) UnmarshalJSON(b []byte) error {
	a.Payload = append(a.Payload[:0], b...)
	return nil
}
