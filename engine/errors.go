package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What the engine refuses, by name. Test with errors.Is.
var (
	// ErrLeaseLost: the token no longer holds the job. The work may be running
	// elsewhere; what this run did is not accepted.
	ErrLeaseLost = errors.New("lease lost")
	// ErrTimeout is the cause of a context that met its job's deadline.
	ErrTimeout = errors.New("job timed out")
	// ErrStopping is the cause of a context that ended because the process
	// stops. The job is handed back with its attempt uncounted.
	ErrStopping = errors.New("worker is stopping")
	// ErrStopRequested is the cause of a context that ended because somebody asked
	// the job to stop. Unless the handler returns nil, the job is cancelled.
	ErrStopRequested = errors.New("stop requested")
	// ErrStopPending: the running job was asked to stop before.
	ErrStopPending = errors.New("a stop was requested before")
	// ErrJobNotFound: no job has this id, or retention removed it.
	ErrJobNotFound = errors.New("job not found")
	// ErrKeyInFlight: another call holds the idempotency key and has not
	// committed within 2 s. Nothing was enqueued; try again.
	ErrKeyInFlight = errors.New("idempotency key is in use by an unfinished call")
	// ErrResultTooLarge: the result is larger than [MaxResultBytes].
	ErrResultTooLarge = errors.New("result too large")
	// ErrStopped: the engine or client was stopped.
	ErrStopped = errors.New("stopped")
)

// KeyReusedError says that an idempotency key was used before, with other
// content. Nothing was enqueued.
type KeyReusedError struct {
	Key    string
	Holder ID
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("idempotency key %q was used before with other content, by job %s", e.Key, e.Holder)
}

// ItemError is the error of one item of many, which ended the call. Nothing was
// enqueued.
type ItemError struct {
	Index int
	Err   error
}

func (e *ItemError) Error() string { return fmt.Sprintf("item %d: %v", e.Index, e.Err) }
func (e *ItemError) Unwrap() error { return e.Err }

// StateError says that a job is in a state the act does not apply to.
type StateError struct {
	ID    ID
	Act   string // cancel, run_now, edit, stop, replay, discard, restore
	State State
	// Replays is how often the job was replayed before.
	Replays int
	// Discarded tells a dead letter that was discarded.
	Discarded bool
	// Changed tells that the job's version is not [Actor.Version]: somebody acted
	// on it meanwhile.
	Changed bool
}

func (e *StateError) Error() string {
	state := string(e.State)
	if e.Discarded {
		state = "discarded"
	}
	if e.Changed {
		state += " and has changed since it was read"
	}
	return fmt.Sprintf("%s job %s: it is %s", e.Act, e.ID, state)
}

// FieldError is one field of an enqueue or an edit that breaks a limit.
type FieldError struct {
	// Field is the name on the wire, or a path into the payload: payload.a.b. In a name
	// a dot is written \. and a backslash \\; [FieldError.Path] takes it apart.
	Field string
	// Code is one of required, invalid, too-long, too-large, too-deep, too-many,
	// too-far, out-of-range, conflict; and schema, for what the schema of the job's
	// type does not allow.
	Code   string
	Detail string
}

// Path is the steps of Field.
func (f FieldError) Path() []string {
	var steps []string
	var step []byte
	for i := 0; i < len(f.Field); i++ {
		switch c := f.Field[i]; {
		case c == '\\' && i+1 < len(f.Field):
			i++
			step = append(step, f.Field[i])
		case c == '.':
			steps, step = append(steps, string(step)), nil
		default:
			step = append(step, c)
		}
	}
	return append(steps, string(step))
}

// ValidationError lists every field that was refused. Nothing was written.
type ValidationError struct{ Fields []FieldError }

func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + ": " + f.Detail
	}
	return strings.Join(parts, "; ")
}

// Has tells whether a field was refused with this code.
func (e *ValidationError) Has(field, code string) bool {
	for _, f := range e.Fields {
		if f.Field == field && f.Code == code {
			return true
		}
	}
	return false
}

// ofItem is the error as one of many items has it.
func (e *ValidationError) ofItem(i int) *ValidationError {
	all := &ValidationError{make([]FieldError, len(e.Fields))}
	for n, f := range e.Fields {
		f.Field = fmt.Sprintf("items.%d.%s", i, f.Field)
		all.Fields[n] = f
	}
	return all
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error that no retry can mend: the job becomes a dead
// letter at once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type retryAfterError struct {
	err   error
	delay time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter fails this attempt and sets the delay before the next, as a target
// asked for with Retry-After. d is used as given, from 0 to [MaxDelay].
// RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, min(max(d, 0), MaxDelay)}
}

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("snoozed for %s", e.delay) }

// Snooze puts the job off by d, from 0 to [MaxDelay], without using an attempt.
func Snooze(d time.Duration) error { return &snoozeError{min(max(d, 0), MaxDelay)} }

// MaxDelay bounds what [RetryAfter] and [Snooze] may ask for: 30 days.
const MaxDelay = 30 * 24 * time.Hour

// MaxResultBytes bounds a run's result, as JSON: 4 MiB.
const MaxResultBytes = 4 << 20
