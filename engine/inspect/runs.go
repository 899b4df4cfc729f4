package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// maxRuns bounds the runs and evidence read of one job. A job that snoozed more
// often shows its latest.
const maxRuns = 1_000

// Attempt is one run of a job: a claim and how it ended.
type Attempt struct {
	// Run is the rank of the token among the job's claims, from 1. A job cancelled
	// or expired while it waited has a closing row that is no run: 0.
	Run          int64
	FencingToken int64
	// WorkerID is 0 where no worker took part. The name and build are empty once
	// the worker's row is gone.
	WorkerID   int64
	WorkerName string
	Build      string
	// Attempt is the number this run has among those that count.
	Attempt int
	// Outcome is 0 while the run goes on.
	Outcome engine.Outcome
	// StartedAt is zero for a run whose handler was never called or never reported.
	ClaimedAt, StartedAt, FinishedAt time.Time
	// LeaseExpiresAt is set while the run goes on.
	LeaseExpiresAt time.Time
	// Wait is from due to started; HasWait tells 0 from unknown.
	Wait    time.Duration
	HasWait bool

	ErrorClass, Error, Stack, Fingerprint string
	// Logs is the run's log lines as stored, a JSON array, or nil.
	Logs      json.RawMessage
	HasResult bool
	// Progress is what the run told; nil if nothing.
	Progress *Progress
}

// Duration is from started to finished; 0 while one of them is missing.
func (a Attempt) Duration() time.Duration {
	if a.StartedAt.IsZero() || a.FinishedAt.IsZero() {
		return 0
	}
	return max(a.FinishedAt.Sub(a.StartedAt), 0)
}

// Attempts reads the runs of a job by rising token, the one still going last;
// of more than 1,000 the latest. Error: [engine.ErrJobNotFound].
func (r *Reader) Attempts(ctx context.Context, id engine.ID) ([]Attempt, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	// Its lease alone is asked for; writing out a payload of 160 KB takes 2 to 3 ms.
	jobs, err := r.jobs(ctx, []engine.ID{id}, 0, 0)
	if err == nil && len(jobs) == 0 {
		err = engine.ErrJobNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read attempts of job %s: %w", id, err)
	}
	job := &jobs[0]
	rows, err := r.q.ListExecutions(ctx, r.pool, id, maxRuns)
	if err != nil {
		return nil, fmt.Errorf("read attempts of job %s: %w", id, err)
	}
	list := make([]Attempt, 0, len(rows)+1)
	for i := range rows {
		x := &rows[i]
		a := Attempt{
			Run: x.Run, FencingToken: x.FencingToken, WorkerName: x.WorkerName, Build: x.Build, Attempt: int(x.Attempt),
			Outcome: engine.Outcome(x.Outcome), ClaimedAt: optional(x.ClaimedAt), StartedAt: optional(x.StartedAt),
			FinishedAt: x.FinishedAt.UTC(), ErrorClass: x.ErrorClass, Error: x.Error, Stack: x.Stack, Fingerprint: x.Fingerprint,
			Logs: rawJSON(x.Logs), HasResult: x.HasResult, Progress: progressOf(x.Progress, x.ProgressText),
		}
		if x.WorkerID != nil {
			a.WorkerID = *x.WorkerID
		}
		if x.WaitMs != nil {
			a.Wait, a.HasWait = time.Duration(*x.WaitMs)*time.Millisecond, true
		}
		list = append(list, a)
	}
	slices.Reverse(list)
	if l := job.Lease; l != nil && !slices.ContainsFunc(list, func(a Attempt) bool { return a.FencingToken == l.FencingToken }) {
		_, logs, progress, err := r.live(ctx, id, l.FencingToken)
		if err != nil {
			return nil, fmt.Errorf("read attempts of job %s: %w", id, err)
		}
		list = append(list, Attempt{
			Logs: logs, Progress: progress, Run: job.Run, FencingToken: l.FencingToken, WorkerID: l.WorkerID, WorkerName: l.WorkerName, Build: l.Build,
			Attempt: job.Attempt, ClaimedAt: l.ClaimedAt, LeaseExpiresAt: l.ExpiresAt,
		})
	}
	return list, nil
}

// ErrNoResult says that a job exists and has kept no result.
var ErrNoResult = errors.New("job has no result")

// Result is what the completed run of a job kept.
type Result struct {
	FencingToken int64
	FinishedAt   time.Time
	// JSON is the result as stored, numbers digit for digit.
	JSON json.RawMessage
}

// Result reads a job's result. Errors: [engine.ErrJobNotFound], [ErrNoResult].
func (r *Reader) Result(ctx context.Context, id engine.ID) (Result, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	x, err := r.q.GetResult(ctx, r.pool, id)
	if errors.Is(err, pgx.ErrNoRows) {
		if err = r.exists(ctx, id); err == nil {
			err = ErrNoResult
		}
	}
	if err != nil {
		return Result{}, fmt.Errorf("read result of job %s: %w", id, err)
	}
	return Result{FencingToken: x.FencingToken, FinishedAt: x.FinishedAt.UTC(), JSON: x.Result}, nil
}

func (r *Reader) exists(ctx context.Context, id engine.ID) error {
	found, err := r.q.JobExists(ctx, r.pool, id)
	if err == nil && !found {
		err = engine.ErrJobNotFound
	}
	return err
}

// RefusedWrite is evidence of a write that came with a token no longer current.
type RefusedWrite struct {
	ID    int64
	At    time.Time
	JobID engine.ID
	// TokenCurrent is 0 if the job was gone.
	TokenHeld, TokenCurrent int64
	WorkerID                int64
	Operation               string
	// Tried is what the write wanted to store, as JSON, or nil.
	Tried json.RawMessage
}

// RefusedWrites reads the refused writes of a job, newest first, at most 1,000.
// A job without any, or none of this id, gives an empty list.
func (r *Reader) RefusedWrites(ctx context.Context, id engine.ID) ([]RefusedWrite, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := r.q.ListRefusedWrites(ctx, r.pool, id, maxRuns)
	if err != nil {
		return nil, fmt.Errorf("read refused writes of job %s: %w", id, err)
	}
	list := make([]RefusedWrite, len(rows))
	for i, x := range rows {
		list[i] = RefusedWrite{
			ID: x.ID, At: x.At.UTC(), JobID: x.JobID, TokenHeld: x.TokenHeld, TokenCurrent: x.TokenCurrent,
			WorkerID: x.WorkerID, Operation: x.Operation, Tried: rawJSON(x.Tried),
		}
	}
	return list, nil
}

// Action is one audited act.
type Action struct {
	ID                         int64
	At                         time.Time
	Actor, Source, Action      string
	TargetKind, Target         string
	Reason, RequestID, Address string
	Before, After              json.RawMessage
	Affected                   int
}

// maxCopies is how many copies of a job are listed.
const maxCopies = 5

// Copies are the newest five jobs that were enqueued as copies of a job, the
// newest first.
func (r *Reader) Copies(ctx context.Context, id engine.ID) ([]engine.ID, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ids, err := r.q.ListCopies(ctx, r.pool, id, maxCopies)
	if err != nil {
		return nil, fmt.Errorf("read copies of job %s: %w", id, err)
	}
	return ids, nil
}

// Actions reads the acts on a job, newest first, at most 1,000.
func (r *Reader) Actions(ctx context.Context, id engine.ID) ([]Action, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := r.q.ListActions(ctx, r.pool, "job", id.String(), maxRuns)
	if err != nil {
		return nil, fmt.Errorf("read actions on job %s: %w", id, err)
	}
	list := make([]Action, len(rows))
	for i, x := range rows {
		list[i] = Action{
			ID: x.ID, At: x.At.UTC(), Actor: x.Actor, Source: x.Source, Action: x.Action, TargetKind: x.TargetKind, Target: x.Target,
			Reason: x.Reason, RequestID: x.RequestID, Address: x.Address, Before: rawJSON(x.Before), After: rawJSON(x.After),
			Affected: int(x.Affected),
		}
	}
	return list, nil
}
