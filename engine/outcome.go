package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What a run's row keeps of an error: beyond these it is cut, with a mark.
const (
	maxErrorBytes = 8 << 10
	maxStackBytes = 16 << 10
)

// next is where a job goes once a run of it is closed: the words CloseJobs
// reads.
type next string

const (
	nextNone      next = ""
	nextReady     next = "ready"
	nextScheduled next = "scheduled"
)

// verdict is what becomes of a run and its job.
type verdict struct {
	outcome Outcome
	next    next // or a dead letter's reason
	delay   time.Duration
	// carried is the number of used attempts the job takes along, crashes that
	// of runs lost with their process.
	carried, crashes int
	class, message   string
	stack            string
	fingerprint      string
}

func (v verdict) dead() (Reason, bool) {
	switch r := Reason(v.next); r {
	case ReasonExhausted, ReasonPermanent, ReasonPoison, ReasonExpired:
		return r, true
	}
	return "", false
}

// panicError is a handler's panic, with its stack.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// judge turns what a handler returned into what becomes of its job. cause is
// why its context ended, nil if it had not.
func judge(row Row, err, cause error, o TypeOptions) verdict {
	before := row.Attempt - 1
	if err == nil {
		return verdict{outcome: OutcomeCompleted, carried: before}
	}
	if errors.Is(cause, ErrStopRequested) {
		return stopped(row, err)
	}
	var snooze *snoozeError
	if errors.As(err, &snooze) {
		return verdict{outcome: OutcomeSnoozed, next: nextScheduled, delay: snooze.delay, carried: before}
	}
	var permanent *permanentError
	if errors.Is(cause, ErrStopping) && !errors.As(err, &permanent) {
		return handedBack(row) // what fails while the process stops runs elsewhere
	}
	v := verdict{outcome: OutcomeFailed, next: nextScheduled, carried: row.Attempt, class: classOf(err), message: clean(err.Error(), maxErrorBytes)}
	if errors.Is(cause, ErrTimeout) && interrupted(err) {
		v.outcome, v.class = OutcomeTimedOut, "timeout"
	}
	var p *panicError
	if errors.As(err, &p) {
		v.stack = clean(p.stack, maxStackBytes)
	}
	if o.Fingerprint != nil {
		v.fingerprint = clean(o.Fingerprint(err), 200)
	}
	if v.fingerprint == "" {
		v.fingerprint = fingerprint(row.Type, v.class, v.message, v.stack)
	}
	var after *retryAfterError
	switch {
	case errors.As(err, &permanent):
		v.next = next(ReasonPermanent)
	case row.Attempt >= row.MaxAttempts:
		v.next = next(ReasonExhausted)
	case errors.As(err, &after):
		v.delay = after.delay
	default:
		v.delay = min(max(o.Retry.Delay(row.Attempt), 0), MaxDelay)
	}
	return v
}

// interrupted tells whether an error comes from the end of the context.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrStopping) ||
		errors.Is(err, ErrStopRequested)
}

// handedBack leaves the job as it was before the claim.
func handedBack(row Row) verdict {
	return verdict{outcome: OutcomeHandedBack, next: nextReady, carried: row.Attempt - 1, crashes: row.Crashes}
}

// expired is for a job whose expires_at passed before its run began.
func expired(row Row) verdict {
	v := verdict{outcome: OutcomeExpired, next: next(ReasonExpired), carried: row.Attempt - 1, crashes: row.Crashes,
		class: "expired", message: "its expires_at passed before it could run"}
	v.fingerprint = "v1:expired:" + row.Type
	return v
}

// crashed is for a run whose process was seen to die by a parent that lives
// on. limit is CRASH_LIMIT; a crash uses no attempt. stack may be empty.
func crashed(row Row, limit int, message, stack string) verdict {
	v := verdict{outcome: OutcomeCrashed, next: nextReady, carried: row.Attempt - 1, crashes: row.Crashes + 1,
		class: "crash", message: clean(message, maxErrorBytes), stack: clean(stack, maxStackBytes)}
	v.fingerprint = fingerprint(row.Type, v.class, v.message, v.stack)
	if v.crashes >= limit {
		v.next = next(ReasonPoison)
		v.message = clean(fmt.Sprintf("quarantined: %d runs in a row were lost with their process. The last: %s", v.crashes, v.message), maxErrorBytes)
	}
	return v
}

// timeoutError is for a handler that did not return at its deadline.
func timeoutError(timeout time.Duration) error {
	return fmt.Errorf("the handler went on after its timeout of %s: %w", timeout, ErrTimeout)
}

// classOf names an error's kind: what it says of itself, or the outermost type
// that is more than a wrapping. Deeper ones tell of mechanics: every refused
// connection ends in a syscall.Errno.
func classOf(err error) string {
	var own interface{ ErrorClass() string }
	if errors.As(err, &own) {
		return clean(own.ErrorClass(), 100)
	}
	var p *panicError
	if errors.As(err, &p) {
		return "panic"
	}
	for err != nil {
		name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
		switch name {
		case "fmt.wrapError", "fmt.wrapErrors", "errors.errorString", "errors.joinError", "engine.permanentError", "engine.retryAfterError":
			err = unwrapFirst(err)
		default:
			return name
		}
	}
	return "error"
}

// unwrapFirst is the error inside, the first of several.
func unwrapFirst(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok && len(several.Unwrap()) > 0 {
		return several.Unwrap()[0]
	}
	return errors.Unwrap(err)
}

// clean makes s fit a text column: Postgres takes neither NUL nor bad UTF-8.
func clean(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= most {
		return s
	}
	const mark = "… (cut)"
	return strings.ToValidUTF8(s[:most-len(mark)], "") + mark
}
