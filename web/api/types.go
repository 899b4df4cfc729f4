package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// The wire's JSON stands here and nowhere else. Inside: state, scheduled_at,
// attempt; on the wire: status, run_at, attempts.

// stamp is an instant as RFC 3339 in UTC, to the millisecond where it has one.
// The zero one is left out by omitzero.
type stamp time.Time

// IsZero is for omitzero.
func (s stamp) IsZero() bool { return time.Time(s).IsZero() }

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) {
	t := time.Time(s).UTC().Truncate(time.Millisecond)
	layout := "2006-01-02T15:04:05.000Z"
	if t.Nanosecond() == 0 {
		layout = "2006-01-02T15:04:05Z"
	}
	return []byte(t.Format(`"` + layout + `"`)), nil
}

// token is a fencing token or worker id: a string, since a JSON number may lose its
// last digits.
type token int64

// MarshalJSON implements json.Marshaler.
func (t token) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strconv.FormatInt(int64(t), 10) + `"`), nil
}

// seconds are a duration on the wire, to the microsecond.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Round(time.Microsecond).Seconds(), 'f', -1, 64), nil
}

func secondsOf(d time.Duration) *seconds {
	s := seconds(d)
	return &s
}

// enqueuedJSON is the answer to an enqueue.
type enqueuedJSON struct {
	ID          engine.ID       `json:"id"`
	Status      engine.State    `json:"status"`
	Type        string          `json:"type"`
	Queue       string          `json:"queue"`
	Priority    engine.Priority `json:"priority"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	RunAt       stamp           `json:"run_at"`
	CreatedAt   stamp           `json:"created_at"`
	Version     int             `json:"version"`
	// UniqueOutcome is in the answer to an enqueue that met the holder of its
	// unique key: held or replaced.
	UniqueOutcome engine.UniqueOutcome `json:"unique_outcome,omitempty"`
}

func enqueuedOf(e engine.Enqueued) enqueuedJSON {
	return enqueuedJSON{
		ID: e.ID, Status: e.State, Type: e.Type, Queue: e.Queue, Priority: e.Priority, Attempts: e.Attempt, MaxAttempts: e.MaxAttempts,
		RunAt: stamp(e.ScheduledAt), CreatedAt: stamp(e.CreatedAt), Version: e.Version, UniqueOutcome: e.Unique,
	}
}

// manyJSON is the answer to an enqueue of many, all or none.
type manyJSON struct {
	Jobs []enqueuedJSON `json:"jobs"`
}

// eachJSON is the answer to an enqueue of many, each by itself.
type eachJSON struct {
	Jobs    []eachItemJSON `json:"jobs"`
	Refused int            `json:"refused"`
}

// eachItemJSON is a job, with the status that it would have had alone, or its problem.
type eachItemJSON struct {
	Status   int           `json:"status"`
	Job      *enqueuedJSON `json:"job,omitempty"`
	Replayed bool          `json:"idempotency_replayed,omitempty"`
	Problem  any           `json:"problem,omitempty"`
}

type failureJSON struct {
	Class       string `json:"class"`
	Message     string `json:"message"`
	Fingerprint string `json:"fingerprint"`
}

type leaseJSON struct {
	WorkerID     token  `json:"worker_id"`
	Worker       string `json:"worker,omitempty"`
	FencingToken token  `json:"fencing_token"`
	ClaimedAt    stamp  `json:"claimed_at"`
	ExpiresAt    stamp  `json:"expires_at"`
}

type jobJSON struct {
	enqueuedJSON
	Run          int64           `json:"run"`
	Crashes      int             `json:"crashes"`
	Suspect      bool            `json:"suspect,omitempty"`
	Replays      int             `json:"replays"`
	FencingToken *token          `json:"fencing_token,omitempty"`
	UpdatedAt    stamp           `json:"updated_at"`
	StartedAt    stamp           `json:"started_at,omitzero"`
	FinishedAt   stamp           `json:"finished_at,omitzero"`
	Duration     *seconds        `json:"duration_seconds,omitempty"`
	ExpiresAt    stamp           `json:"expires_at,omitzero"`
	Timeout      *seconds        `json:"timeout_seconds,omitempty"`
	Backoff      *engine.Backoff `json:"backoff,omitempty"`
	Tags         []string        `json:"tags"`
	Progress     *progressJSON   `json:"progress,omitempty"`
	Stop         *stopJSON       `json:"stop_request,omitempty"`
	LastError    *failureJSON    `json:"last_error,omitempty"`
	Lease        *leaseJSON      `json:"lease,omitempty"`
	HeldReason   string          `json:"held_reason,omitempty"`
	DeadReason   engine.Reason   `json:"dead_reason,omitempty"`
	DiscardedAt  stamp           `json:"discarded_at,omitzero"`
	CopiedFrom   *engine.ID      `json:"copied_from,omitempty"`
	Callback     *callbackJSON   `json:"callback,omitempty"`
	CallbackOf   *engine.ID      `json:"callback_of,omitempty"`
	TraceID      string          `json:"trace_id,omitempty"`
	Traceparent  string          `json:"traceparent,omitempty"`
	Payload      json.RawMessage `json:"payload,omitempty"`
	// PayloadOmitted tells a list's job whose payload is too large for a list.
	PayloadOmitted bool `json:"payload_omitted,omitempty"`
	// Executions are the runs, by include=attempts; attempts is their number.
	Executions []attemptJSON   `json:"executions,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	// Logs are the lines of all runs, by include=logs; RefusedWrites the evidence of
	// writes with an old token, by include=refused_writes.
	Logs          *[]lineJSON    `json:"logs,omitempty"`
	RefusedWrites *[]refusedJSON `json:"refused_writes,omitempty"`
}

// progressJSON is how far a run says it has come.
type progressJSON struct {
	Percent float64 `json:"percent"`
	Text    string  `json:"text"`
}

func progressOf(p *inspect.Progress) *progressJSON {
	if p == nil {
		return nil
	}
	return &progressJSON{p.Percent, p.Text}
}

// stopJSON is there while a job runs that was asked to stop.
type stopJSON struct {
	RequestedAt stamp  `json:"requested_at"`
	Actor       string `json:"actor"`
	Reason      string `json:"reason,omitempty"`
}

// lineJSON is a log line; n is its number in the run.
type lineJSON struct {
	Run          int64             `json:"run"`
	FencingToken token             `json:"fencing_token"`
	N            int               `json:"n"`
	Time         stamp             `json:"time,omitzero"`
	Level        string            `json:"level"`
	Text         string            `json:"msg"`
	Fields       map[string]string `json:"fields,omitempty"`
}

func linesOf(list []inspect.LogLine) []lineJSON {
	out := make([]lineJSON, len(list))
	for i, l := range list {
		out[i] = lineJSON{l.Run, token(l.FencingToken), l.N, stamp(l.At), l.Level, l.Text, l.Fields}
	}
	return out
}

// refusedJSON is a write that changed nothing, since its token was no longer
// current or its run had ended.
type refusedJSON struct {
	At           stamp           `json:"at"`
	Operation    string          `json:"operation"`
	TokenHeld    token           `json:"token_held"`
	TokenCurrent *token          `json:"token_current"`
	WorkerID     token           `json:"worker_id"`
	Tried        json.RawMessage `json:"tried,omitempty"`
}

func refusedOf(list []inspect.RefusedWrite) []refusedJSON {
	out := make([]refusedJSON, len(list))
	for i, r := range list {
		out[i] = refusedJSON{At: stamp(r.At), Operation: r.Operation, TokenHeld: token(r.TokenHeld), WorkerID: token(r.WorkerID), Tried: r.Tried}
		if r.TokenCurrent != 0 {
			t := token(r.TokenCurrent)
			out[i].TokenCurrent = &t
		}
	}
	return out
}

func jobOf(j inspect.Job) jobJSON {
	out := jobJSON{
		enqueuedJSON: enqueuedJSON{
			ID: j.ID, Status: j.State, Type: j.Type, Queue: j.Queue, Priority: j.Priority, Attempts: j.Attempt,
			MaxAttempts: j.MaxAttempts, RunAt: stamp(j.ScheduledAt), CreatedAt: stamp(j.CreatedAt), Version: j.Version,
		},
		Run: j.Run, Crashes: j.Crashes, Suspect: j.Suspect(), Replays: j.Replays, UpdatedAt: stamp(j.UpdatedAt), StartedAt: stamp(j.StartedAt),
		FinishedAt: stamp(j.FinishedAt), ExpiresAt: stamp(j.ExpiresAt), Backoff: j.Backoff, Tags: j.Tags, HeldReason: j.HeldReason, DeadReason: j.DeadReason,
		DiscardedAt: stamp(j.DiscardedAt), CopiedFrom: j.CopiedFrom, Traceparent: j.Traceparent, Payload: j.Payload,
		PayloadOmitted: j.Payload == nil, Callback: callbackOf(j.Callback), CallbackOf: j.CallbackOf,
	}
	if j.FencingToken != 0 {
		t := token(j.FencingToken)
		out.FencingToken = &t
	}
	if out.Tags == nil {
		out.Tags = []string{}
	}
	if j.Timeout > 0 {
		out.Timeout = secondsOf(j.Timeout)
	}
	if !j.StartedAt.IsZero() && !j.FinishedAt.IsZero() {
		out.Duration = secondsOf(max(j.FinishedAt.Sub(j.StartedAt), 0))
	}
	out.Progress = progressOf(j.Progress)
	if s := j.Stop; s != nil {
		out.Stop = &stopJSON{stamp(s.At), s.Actor, s.Reason}
	}
	if f := j.LastError; f != nil {
		out.LastError = &failureJSON{f.Class, f.Message, f.Fingerprint}
	}
	if l := j.Lease; l != nil {
		out.Lease = &leaseJSON{token(l.WorkerID), l.WorkerName, token(l.FencingToken), stamp(l.ClaimedAt), stamp(l.ExpiresAt)}
	}
	if parts := strings.Split(j.Traceparent, "-"); len(parts) == 4 {
		out.TraceID = parts[1]
	}
	return out
}

// etag changes with every move, run and edit of a job, and every move of its callback.
func etag(j inspect.Job, extras string) string {
	return fmt.Sprintf(`"%d-%d-%d-%s-%d%s%s"`, j.Version, j.FencingToken, j.Replays, j.State, j.UpdatedAt.UnixMicro(), callbackTag(j.Callback), extras)
}

type attemptJSON struct {
	Run            int64           `json:"run,omitempty"`
	Attempt        int             `json:"attempt"`
	FencingToken   token           `json:"fencing_token"`
	Outcome        string          `json:"outcome,omitempty"` // absent while the run goes on
	WorkerID       *token          `json:"worker_id,omitempty"`
	Worker         string          `json:"worker,omitempty"`
	Build          string          `json:"build,omitempty"`
	ClaimedAt      stamp           `json:"claimed_at,omitzero"`
	StartedAt      stamp           `json:"started_at,omitzero"`
	FinishedAt     stamp           `json:"finished_at,omitzero"`
	LeaseExpiresAt stamp           `json:"lease_expires_at,omitzero"`
	Wait           *seconds        `json:"wait_seconds,omitempty"`
	Duration       *seconds        `json:"duration_seconds,omitempty"`
	Error          *failureJSON    `json:"error,omitempty"`
	Stack          string          `json:"stack,omitempty"`
	Logs           json.RawMessage `json:"logs,omitempty"`
	Progress       *progressJSON   `json:"progress,omitempty"`
	HasResult      bool            `json:"has_result"`
}

func attemptsOf(list []inspect.Attempt) []attemptJSON {
	out := make([]attemptJSON, len(list))
	for i, a := range list {
		x := attemptJSON{
			Run: a.Run, Attempt: a.Attempt, FencingToken: token(a.FencingToken), Worker: a.WorkerName, Build: a.Build,
			ClaimedAt: stamp(a.ClaimedAt), StartedAt: stamp(a.StartedAt), FinishedAt: stamp(a.FinishedAt),
			LeaseExpiresAt: stamp(a.LeaseExpiresAt), Stack: a.Stack, Logs: a.Logs, HasResult: a.HasResult, Progress: progressOf(a.Progress),
		}
		if a.Outcome != 0 {
			x.Outcome = a.Outcome.String()
		}
		if a.WorkerID != 0 {
			w := token(a.WorkerID)
			x.WorkerID = &w
		}
		if a.HasWait {
			x.Wait = secondsOf(a.Wait)
		}
		if !a.StartedAt.IsZero() && !a.FinishedAt.IsZero() {
			x.Duration = secondsOf(a.Duration())
		}
		if a.Error != "" || a.ErrorClass != "" {
			x.Error = &failureJSON{a.ErrorClass, a.Error, a.Fingerprint}
		}
		out[i] = x
	}
	return out
}

// listJSON is every list. NextCursor is null at the end.
type listJSON[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"`
	HasMore    bool    `json:"has_more"`
	// Partial tells that the time for looking was over: the next page goes on from
	// where the search stood.
	Partial bool `json:"partial,omitempty"`
	// Query is what was looked for: what was asked, and what was added to it.
	Query string `json:"query,omitempty"`
	// SearchedBackTo is how far the look came, if it is partial.
	SearchedBackTo stamp `json:"searched_back_to,omitzero"`
}

type deadJSON struct {
	ID           engine.ID       `json:"id"`
	Status       engine.State    `json:"status"`
	Type         string          `json:"type"`
	Queue        string          `json:"queue"`
	Priority     engine.Priority `json:"priority"`
	Reason       engine.Reason   `json:"reason"`
	Attempts     int             `json:"attempts"`
	MaxAttempts  int             `json:"max_attempts"`
	Crashes      int             `json:"crashes"`
	Replays      int             `json:"replays"`
	FencingToken token           `json:"fencing_token"`
	CreatedAt    stamp           `json:"created_at"`
	DiedAt       stamp           `json:"died_at"`
	DiscardedAt  stamp           `json:"discarded_at,omitzero"`
	Error        failureJSON     `json:"error"`
	Stack        string          `json:"stack,omitempty"`
	Worker       json.RawMessage `json:"worker,omitempty"`
	Payload      json.RawMessage `json:"payload,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
}

// deadGroupJSON is the dead letters with one cause, discarded ones left out.
type deadGroupJSON struct {
	Fingerprint   string          `json:"fingerprint"`
	Count         int64           `json:"count"`
	Error         failureJSON     `json:"error"` // of the newest
	Types         []string        `json:"types"`
	Queues        []string        `json:"queues"`
	Reasons       []engine.Reason `json:"reasons"`
	FirstFailedAt stamp           `json:"first_failed_at"`
	FirstDiedAt   stamp           `json:"first_died_at"`
	LastDiedAt    stamp           `json:"last_died_at"`
	PerHour       [24]int64       `json:"per_hour"` // deaths, the running hour last
	Build         string          `json:"build,omitempty"`
	Sample        engine.ID       `json:"sample_id"`
}

func deadGroupOf(g *inspect.DeadGroup) deadGroupJSON {
	return deadGroupJSON{
		Fingerprint: g.Fingerprint, Count: g.N, Error: failureJSON{g.Class, g.Message, g.Fingerprint}, Types: g.Types, Queues: g.Queues, Reasons: g.Reasons,
		FirstFailedAt: stamp(g.FirstFailedAt), FirstDiedAt: stamp(g.FirstAt), LastDiedAt: stamp(g.LastAt), PerHour: g.Hours, Build: g.Build, Sample: g.Sample,
	}
}

func deadOf(d inspect.DeadLetter) deadJSON {
	return deadJSON{
		ID: d.JobID, Status: engine.StateDeadLetter, Type: d.Type, Queue: d.Queue, Priority: d.Priority, Reason: d.Reason,
		Attempts: d.Attempt, MaxAttempts: d.MaxAttempts, Crashes: d.Crashes, Replays: d.Replays, FencingToken: token(d.FencingToken),
		CreatedAt: stamp(d.CreatedAt), DiedAt: stamp(d.DiedAt), DiscardedAt: stamp(d.DiscardedAt),
		Error: failureJSON{d.Error.Class, d.Error.Message, d.Error.Fingerprint},
	}
}

type queueJSON struct {
	Name         string `json:"name"`
	Paused       bool   `json:"paused"`
	PausedAt     stamp  `json:"paused_at,omitzero"`
	PausedReason string `json:"paused_reason,omitempty"`
	ResumeAt     stamp  `json:"resume_at,omitzero"`
	Depth        struct {
		Ready     int64 `json:"ready"`
		Scheduled int64 `json:"scheduled"`
		Running   int64 `json:"running"`
		Retrying  int64 `json:"retrying"`
		Held      int64 `json:"held"`
		Dead      int64 `json:"dead"`
	} `json:"depth"`
	OldestReady seconds   `json:"oldest_ready_seconds"`
	Workers     int       `json:"workers"`
	Slots       slotsJSON `json:"slots"`
	PerMinute   struct {
		Enqueued  float64 `json:"enqueued"`
		Completed float64 `json:"completed"`
		Failed    float64 `json:"failed"`
	} `json:"per_minute"`
}

type slotsJSON struct {
	Busy  int64 `json:"busy"`
	Total int   `json:"total"`
	Stuck *int  `json:"stuck,omitempty"`
}

func queueOf(q inspect.Queue) queueJSON {
	out := queueJSON{
		Name: q.Name, Paused: q.Paused, PausedAt: stamp(q.PausedAt), PausedReason: q.PausedReason, ResumeAt: stamp(q.ResumeAt),
		OldestReady: seconds(q.OldestReady.Round(time.Millisecond)), Workers: q.Workers, Slots: slotsJSON{Busy: q.Busy, Total: q.Slots},
	}
	out.Depth.Ready, out.Depth.Scheduled, out.Depth.Running = q.Depth.Ready, q.Depth.Scheduled, q.Depth.Running
	out.Depth.Retrying, out.Depth.Held, out.Depth.Dead = q.Depth.Retrying, q.Depth.Held, q.Depth.Dead
	out.PerMinute.Enqueued, out.PerMinute.Completed = tenth(q.PerMinute.Enqueued), tenth(q.PerMinute.Completed)
	out.PerMinute.Failed = tenth(q.PerMinute.Failed)
	return out
}

// tenth rounds a rate to one decimal.
func tenth(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }

type workerJSON struct {
	ID           token                `json:"id"`
	Name         string               `json:"name"`
	Hostname     string               `json:"hostname"`
	PID          int                  `json:"pid"`
	Build        string               `json:"build"`
	Queues       []string             `json:"queues"` // empty: all
	Types        []string             `json:"types"`
	Status       inspect.WorkerStatus `json:"status"`
	Leader       bool                 `json:"leader"`
	Slots        slotsJSON            `json:"slots"`
	Running      int64                `json:"running"`
	Lease        seconds              `json:"lease_seconds"`
	StartedAt    stamp                `json:"started_at"`
	HeartbeatAt  stamp                `json:"heartbeat_at"`
	HeartbeatAge seconds              `json:"heartbeat_age_seconds"`
	DoneMinute   int                  `json:"completed_per_minute"` // as of the heartbeat
	Failed       int                  `json:"failed_15_minutes"`
	StoppedAt    stamp                `json:"stopped_at,omitzero"`
}

func workerOf(w inspect.Worker, leader *inspect.Leader) workerJSON {
	stuck := w.Stuck
	return workerJSON{
		ID: token(w.ID), Name: w.Name, Hostname: w.Hostname, PID: w.PID, Build: w.Build, Queues: w.Queues, Types: w.Types,
		Status: w.Status, Leader: leader != nil && leader.Live && leader.WorkerID == w.ID,
		Slots: slotsJSON{Busy: int64(w.Busy), Total: w.Slots, Stuck: &stuck}, Running: w.Running, Lease: seconds(w.Lease),
		StartedAt: stamp(w.StartedAt), HeartbeatAt: stamp(w.HeartbeatAt), HeartbeatAge: seconds(w.HeartbeatAge.Round(time.Millisecond)),
		StoppedAt: stamp(w.StoppedAt), DoneMinute: w.DonePerMinute, Failed: w.FailedLately,
	}
}
