package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/rehearse"
)

var rehearseRun = rehearse.Run.(func(context.Context, engine.Config, engine.Args, engine.EnqueueOptions, int) (rehearse.Ended, error))

// Options are how a run is made. The zero value is the first attempt of a job with
// the default options.
type Options struct {
	// Job is what the job was enqueued with: its timeout, backoff, most attempts.
	Job engine.EnqueueOptions
	// Attempt is which one this is, from 1 to the job's most. Default 1.
	Attempt int
	// Engine is the worker's settings: JobTimeout, Retry, MaxAttempts, StopGrace, Log.
	// Pool and Workers are not looked at.
	Engine engine.Config
}

// Result is how a run ended, and what became of its job.
type Result struct {
	// Outcome is what the run's row in job_executions would say.
	Outcome engine.Outcome
	// State is the job's after the run. One that is snoozed or handed back is pending.
	State engine.State
	// Reason is why the job is a dead letter; "" if it is none.
	Reason engine.Reason
	// Delay is until the job may run again. With jitter it is one draw of many: see
	// [engine.DelayBounds].
	Delay time.Duration
	// Used is how many of the job's attempts are used up.
	Used int
	// Refused tells that the lease was lost meanwhile: another worker has the job, and
	// what this run says is thrown away. State is leased then.
	Refused bool
	// Class, Message, Stack and Fingerprint are the error's, as they are kept.
	Class, Message, Stack, Fingerprint string
	// Output is what SetResult kept, if the run completed.
	Output json.RawMessage
	// Percent and ProgressText are what SetProgress told last; Percent is negative if
	// it told nothing.
	Percent      float64
	ProgressText string
	// Logs are the lines that are kept with the run.
	Logs []Line
}

// Line is one log line of a run.
type Line struct {
	Time    time.Time
	Level   string
	Message string            `json:"msg"`
	Fields  map[string]string // each value as text
}

// Run makes one run of a job with these arguments by the worker that is registered for
// their type, and waits for its end: the handler's return, or, as in a worker, a moment
// after its deadline. Ctx ends the handler's context before: with the cause
// [engine.ErrStopRequested] as when somebody asked the job to stop, with
// [engine.ErrLeaseLost] as when the worker lost it, and otherwise as when the process
// stops. The handler gets none of ctx's values.
//
// The payload is the arguments' JSON as it stands; a database may hand its keys back in
// another order. Errors are those of [engine.Client.Enqueue] for a job that would be
// refused, those of [engine.New], and one for a type without a worker.
func Run(ctx context.Context, workers *engine.Workers, args engine.Args, o Options) (Result, error) {
	if o.Attempt == 0 {
		o.Attempt = 1
	}
	o.Engine.Workers = workers
	x, err := rehearseRun(ctx, o.Engine, args, o.Job, o.Attempt)
	if err != nil {
		return Result{}, err
	}
	r := Result{Outcome: engine.Outcome(x.Outcome), Delay: x.Delay, Used: x.Used, Refused: x.Refused, Class: x.Class, Message: x.Message, Stack: x.Stack,
		Fingerprint: x.Fingerprint, Output: x.Result, Percent: float64(x.Percent), ProgressText: x.ProgressText}
	r.State, r.Reason = after(x)
	if x.Logs != "" {
		if err := json.Unmarshal([]byte(x.Logs), &r.Logs); err != nil {
			return Result{}, fmt.Errorf("read the log of the run: %w", err)
		}
	}
	return r, nil
}

// after is where the job stands once the run's row is written.
func after(x rehearse.Ended) (engine.State, engine.Reason) {
	switch o := engine.Outcome(x.Outcome); {
	case x.Refused:
		return engine.StateLeased, ""
	case o == engine.OutcomeCompleted:
		return engine.StateCompleted, ""
	case o == engine.OutcomeCancelled:
		return engine.StateCancelled, ""
	case x.Next == "ready", o == engine.OutcomeSnoozed:
		return engine.StatePending, ""
	case x.Next == "scheduled":
		return engine.StateFailed, ""
	}
	return engine.StateDeadLetter, engine.Reason(x.Next)
}
