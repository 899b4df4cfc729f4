package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Job is a job as it stands.
type Job struct {
	ID       engine.ID
	Type     string
	Queue    string
	Priority engine.Priority
	// State is empty when the job stands nowhere, which is a fault that
	// verification reports.
	State engine.State
	// Attempt counts the runs that ended in the handler; while the job runs, this
	// run too. Run counts claims, this one included, over replays too.
	Attempt, MaxAttempts int
	Run                  int64
	// FencingToken names the current run, or the last one; 0 before the first.
	FencingToken int64
	Crashes      int
	Replays      int
	// Version rises with each edit.
	Version int

	CreatedAt, UpdatedAt time.Time
	// ScheduledAt is when the job became or becomes due.
	ScheduledAt time.Time
	// StartedAt is when the current or last run began, FinishedAt when the job
	// ended. DiscardedAt marks a dead letter that was discarded.
	StartedAt, FinishedAt, ExpiresAt, DiscardedAt time.Time
	// Timeout is the job's own; 0 takes the type's.
	Timeout     time.Duration
	Backoff     *engine.Backoff // nil: as its type
	Tags        []string
	Traceparent string
	CopiedFrom  *engine.ID
	// Callback is set for a job whose end is told; of a list's jobs it has the URL
	// alone. CallbackOf is the job whose end this one tells of.
	Callback   *Callback
	CallbackOf *engine.ID
	// HeldReason says what a pending job waits for besides a worker: type_paused,
	// no_worker, dependency. DeadReason is set for dead letters.
	HeldReason string
	DeadReason engine.Reason
	// Lease is set while the job runs.
	Lease *Lease
	// Stop is set while the job runs and was asked to stop.
	Stop *StopRequest
	// Progress is what the current or last run told; nil if nothing. [Reader.Jobs]
	// leaves both out.
	Progress *Progress
	// LastError is the newest error of any run, also of a job that completed later.
	LastError *Failure
	// Payload is as stored, numbers digit for digit. [Reader.Jobs] leaves it out,
	// nil, above [ListPayloadMax].
	Payload json.RawMessage
}

// Suspect tells a job whose last runs were lost with their process: it runs apart
// from the others until a run ends by itself.
func (j *Job) Suspect() bool { return j.Crashes > 0 && !j.State.Finished() }

// Lease is who runs a job now.
type Lease struct {
	WorkerID     int64
	WorkerName   string // empty if the worker's row is gone
	Build        string
	FencingToken int64
	ClaimedAt    time.Time
	ExpiresAt    time.Time
}

// StopRequest is who asked a running job to stop, and when.
type StopRequest struct {
	At            time.Time
	Actor, Reason string
}

// Progress is how far a run says it has come. While it goes on it is a second old
// at most.
type Progress struct {
	Percent float64
	Text    string
}

// Failure is what a run ended with.
type Failure struct {
	Class       string
	Message     string
	Fingerprint string
}

// ListPayloadMax is the size in bytes up to which a list carries payloads, so
// that a page of 200 jobs stays below a megabyte.
const ListPayloadMax = 2048

const (
	listErrorMax = 500
	jobErrorMax  = 64 << 10
	jobPayload   = 64 << 20 // above every limit a door sets
)

// Job reads one job with its whole payload. Error: [engine.ErrJobNotFound].
func (r *Reader) Job(ctx context.Context, id engine.ID) (Job, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	jobs, err := r.jobs(ctx, []engine.ID{id}, jobPayload, jobErrorMax)
	if err != nil {
		return Job{}, fmt.Errorf("read job %s: %w", id, err)
	}
	if len(jobs) == 0 {
		return Job{}, fmt.Errorf("read job %s: %w", id, engine.ErrJobNotFound)
	}
	if err := errors.Join(r.addLive(ctx, &jobs[0]), r.addCallback(ctx, &jobs[0])); err != nil {
		return Job{}, fmt.Errorf("read job %s: %w", id, err)
	}
	return jobs[0], nil
}

func (r *Reader) jobs(ctx context.Context, ids []engine.ID, payloadMax, errorMax int32) ([]Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := r.q.GetJobs(ctx, r.pool, payloadMax, errorMax, ids)
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, len(rows))
	for i := range rows {
		jobs[i] = jobOf(&rows[i])
	}
	return jobs, nil
}

func jobOf(x *dbsqlc.GetJobsRow) Job {
	j := Job{
		ID: x.ID, Type: x.Type, Queue: x.Queue, Priority: engine.Priority(x.Priority), State: engine.State(x.State),
		Attempt: int(x.Attempt), MaxAttempts: int(x.MaxAttempts), Run: x.ClosedRuns, FencingToken: x.FencingToken,
		Crashes: int(x.Crashes), Replays: int(x.Replays), Version: int(x.Version),
		CreatedAt: x.CreatedAt.UTC(), ScheduledAt: x.ScheduledAt.UTC(), ExpiresAt: optional(x.ExpiresAt),
		StartedAt: instant(x.LastStartedAt), DiscardedAt: instant(x.DiscardedAt),
		Timeout: time.Duration(x.TimeoutMs) * time.Millisecond, Tags: x.Tags, Traceparent: x.Traceparent, CopiedFrom: x.CopiedFrom, Backoff: engine.StoredBackoff(x.Backoff),
		CallbackOf: x.CallbackOf,
		HeldReason: x.HeldReason, DeadReason: engine.Reason(x.DeadReason), Payload: rawJSON([]byte(x.Payload)),
	}
	if x.CallbackUrl != "" {
		j.Callback = &Callback{URL: x.CallbackUrl}
	}
	if j.State == engine.StateLeased {
		j.Run++
		j.StartedAt = instant(x.ClaimedAt)
		j.Lease = &Lease{
			WorkerID: x.WorkerID, WorkerName: x.WorkerName, Build: x.WorkerBuild, FencingToken: x.FencingToken,
			ClaimedAt: instant(x.ClaimedAt), ExpiresAt: instant(x.LeaseExpiresAt),
		}
	}
	if x.ErrorClass != "" || x.Error != "" {
		j.LastError = &Failure{Class: x.ErrorClass, Message: x.Error, Fingerprint: x.Fingerprint}
	}
	closed, died := instant(x.LastFinishedAt), instant(x.DiedAt)
	switch j.State {
	case engine.StateCompleted, engine.StateCancelled:
		j.FinishedAt = closed
	case engine.StateDeadLetter:
		j.FinishedAt = died
	case engine.StatePending, engine.StateBlocked, engine.StateLeased, engine.StateFailed:
	}
	j.UpdatedAt = latest(j.CreatedAt, closed, died, j.StartedAt, j.DiscardedAt)
	if j.newLife(engine.Outcome(x.LastOutcome)) {
		j.StartedAt = time.Time{}
	}
	return j
}

// newLife tells whether a replay came after the last run: a run of this life that
// was lost or failed would have counted.
func (j *Job) newLife(last engine.Outcome) bool {
	if j.Replays == 0 || j.State != engine.StatePending || j.Attempt > 0 || j.Crashes > 0 {
		return false
	}
	return last != engine.OutcomeHandedBack && last != engine.OutcomeSnoozed
}

func latest(ts ...time.Time) time.Time {
	var last time.Time
	for _, t := range ts {
		if t.After(last) {
			last = t
		}
	}
	return last
}
