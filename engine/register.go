package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Args are a job's arguments: what json.Marshal makes of them, a JSON object,
// is the payload. JobType names the type and must not depend on the value.
type Args interface{ JobType() string }

// Worker runs the jobs of one type. Work may be called by many goroutines at
// once. What it returns decides what becomes of the job: nil completes it; an
// error retries it by the type's [RetryPolicy] until its attempts are used up;
// [Permanent], [RetryAfter] and [Snooze] say otherwise. A panic is an error
// with its stack.
//
// ctx ends at the job's deadline (its cause is [ErrTimeout]), when the lease
// was lost ([ErrLeaseLost]), when somebody asked the job to stop
// ([ErrStopRequested]), or when the process must stop ([ErrStopping]). A
// handler that goes on after its context has ended keeps its slot, and its
// result is refused.
//
// A job runs at least once: after a crash it runs again, so make what Work does
// outside safe to repeat, with [Once], [CompleteTx], or a key made of the job's
// id.
type Worker[T Args] interface {
	Work(ctx context.Context, job *Job[T]) error
}

// WorkerFunc is a function that serves as a [Worker].
type WorkerFunc[T Args] func(ctx context.Context, job *Job[T]) error

// Work calls f.
func (f WorkerFunc[T]) Work(ctx context.Context, job *Job[T]) error { return f(ctx, job) }

// TypeOptions are the settings of one job type. The zero value takes the
// engine's.
type TypeOptions struct {
	// Timeout ends one run's context. Default [Config.JobTimeout]; a job's own
	// timeout wins over both.
	Timeout time.Duration
	// Retry is the delay after a failure. Default [Config.Retry].
	Retry RetryPolicy
	// Fingerprint groups failures of one cause. Default is made of the error's
	// class, its message without numbers and names, and the top own frame. An
	// empty answer takes the default.
	Fingerprint func(error) string
}

// Workers maps job types to what runs them. Fill it before [New]; it is not
// safe to change afterwards.
type Workers struct {
	byType     map[string]*registration
	middleware []Middleware
}

type registration struct {
	options TypeOptions
	work    func(ctx context.Context, r *run) error
}

// NewWorkers returns an empty set.
func NewWorkers() *Workers { return &Workers{byType: map[string]*registration{}} }

// Types returns the registered job types in order.
func (ws *Workers) Types() []string {
	types := slices.AppendSeq(make([]string, 0, len(ws.byType)), maps.Keys(ws.byType))
	slices.Sort(types)
	return types
}

// Register says that w runs the jobs of T's type. It panics on a second worker
// for one type and on a name no job can have, since both are mistakes in the
// program.
func Register[T Args](ws *Workers, w Worker[T], o TypeOptions) {
	var zero T
	RegisterType(ws, zero.JobType(), w, o)
}

// RegisterType is [Register] for arguments that do not know their type, such as
// [RawArgs].
func RegisterType[T Args](ws *Workers, jobType string, w Worker[T], o TypeOptions) {
	if !validName(jobType) {
		panic(fmt.Sprintf("engine: register %T: job type %q: %s", w, jobType, nameRule))
	}
	if _, ok := ws.byType[jobType]; ok {
		panic(fmt.Sprintf("engine: register %T: job type %q has a worker already", w, jobType))
	}
	decode := decoderFor[T]()
	ws.byType[jobType] = &registration{options: o, work: func(ctx context.Context, r *run) error {
		job := &Job[T]{Row: r.row, run: r}
		if err := decode(r.row.Payload, &job.Args); err != nil {
			return Permanent(fmt.Errorf("decode payload of %s: %w", jobType, err))
		}
		return w.Work(ctx, job)
	}}
}

// decoderFor chooses how to decode payloads into T. Only a target that can
// receive a number as an interface needs UseNumber, which keeps it digit for
// digit and costs twice the time.
func decoderFor[T any]() func(payload []byte, into *T) error {
	t := reflect.TypeFor[T]()
	switch {
	case t == reflect.TypeFor[RawArgs]():
		return func(payload []byte, into *T) error { return any(into).(*RawArgs).UnmarshalJSON(payload) }
	case !holdsInterface(t, map[reflect.Type]bool{}):
		return func(payload []byte, into *T) error { return json.Unmarshal(payload, into) }
	}
	return func(payload []byte, into *T) error {
		d := json.NewDecoder(bytes.NewReader(payload))
		d.UseNumber()
		return d.Decode(into)
	}
}

func holdsInterface(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	kind := t.Kind()
	if kind == reflect.Struct {
		for i := range t.NumField() {
			if holdsInterface(t.Field(i).Type, seen) {
				return true
			}
		}
		return false
	}
	inside := kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Array || kind == reflect.Map
	return kind == reflect.Interface || inside && holdsInterface(t.Elem(), seen)
}
