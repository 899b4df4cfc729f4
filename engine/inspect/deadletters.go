package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// DeadLetter is a dead job as a list shows it.
type DeadLetter struct {
	JobID                engine.ID
	Type, Queue          string
	Priority             engine.Priority
	Reason               engine.Reason
	FencingToken         int64
	DiedAt, CreatedAt    time.Time
	DiscardedAt          time.Time // zero unless discarded
	Attempt, MaxAttempts int
	Crashes, Replays     int
	Version              int
	Error                Failure // its message cut to 500 characters in a list
}

// DeadLetterDetail is a dead job with all that is known of its death.
type DeadLetterDetail struct {
	DeadLetter
	Stack string
	// Worker is the worker's context at the death, a JSON object, or nil.
	Worker json.RawMessage
	// Job is the job with its payload.
	Job Job
}

// DeadCursor is a place in the list of dead letters: after this death.
type DeadCursor struct {
	DiedAt time.Time
	ID     engine.ID
}

// DeadFilter chooses dead letters. Empty fields ask for everything, except that
// discarded ones are listed by themselves.
type DeadFilter struct {
	Type, Queue, Fingerprint string
	Queues                   []string // any of them; nil is every queue
	Reason                   engine.Reason
	Discarded                bool
	After                    *DeadCursor // nil starts at the latest death
	Limit                    int         // 1 to [MaxLimit], default [DefaultLimit]
}

// DeadPage is one page of dead letters, latest death first. Next is nil at the end.
type DeadPage struct {
	Letters []DeadLetter
	Next    *DeadCursor
}

// farFuture is after every death, and a date both Go and Postgres have.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// DeadLetters lists dead letters by descending death.
func (r *Reader) DeadLetters(ctx context.Context, f DeadFilter) (DeadPage, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	limit := clampLimit(f.Limit)
	list, err := r.deadLetters(ctx, f, int32(limit+1))
	if err != nil {
		return DeadPage{}, fmt.Errorf("list dead letters: %w", err)
	}
	page := DeadPage{Letters: list}
	if len(list) > limit {
		page.Letters = list[:limit]
		last := page.Letters[limit-1]
		page.Next = &DeadCursor{DiedAt: last.DiedAt, ID: last.JobID}
	}
	return page, nil
}

func (r *Reader) deadLetters(ctx context.Context, f DeadFilter, rows int32) ([]DeadLetter, error) {
	after := DeadCursor{DiedAt: farFuture, ID: uuid.Max}
	if f.After != nil {
		after = *f.After
	}
	if f.Fingerprint != "" {
		group, err := r.q.ListDeadGroup(ctx, r.pool, dbsqlc.ListDeadGroupParams{
			Fingerprint: f.Fingerprint, BeforeDiedAt: after.DiedAt, BeforeID: after.ID, Discarded: f.Discarded,
			Type: filter(f.Type), Queue: filter(f.Queue), Queues: f.Queues, Reason: filter(string(f.Reason)), ErrorMax: listErrorMax, MaxRows: rows,
		})
		list := make([]DeadLetter, len(group))
		for i, x := range group {
			list[i] = deadLetterOf(dbsqlc.ListDeadRow(x))
		}
		return list, err
	}
	all, err := r.q.ListDead(ctx, r.pool, dbsqlc.ListDeadParams{
		BeforeDiedAt: after.DiedAt, BeforeID: after.ID, Discarded: f.Discarded, Type: filter(f.Type), Queue: filter(f.Queue), Queues: f.Queues,
		Reason: filter(string(f.Reason)), ErrorMax: listErrorMax, MaxRows: rows,
	})
	list := make([]DeadLetter, len(all))
	for i, x := range all {
		list[i] = deadLetterOf(x)
	}
	return list, err
}

func deadLetterOf(x dbsqlc.ListDeadRow) DeadLetter {
	return DeadLetter{
		JobID: x.JobID, Type: x.Type, Queue: x.Queue, Priority: engine.Priority(x.Priority), Reason: engine.Reason(x.Reason),
		FencingToken: x.FencingToken, DiedAt: x.DiedAt.UTC(), CreatedAt: x.CreatedAt.UTC(), DiscardedAt: optional(x.DiscardedAt),
		Attempt: int(x.Attempt), MaxAttempts: int(x.MaxAttempts), Crashes: int(x.Crashes), Replays: int(x.Replays), Version: int(x.Version),
		Error: Failure{Class: x.ErrorClass, Message: x.Error, Fingerprint: x.Fingerprint},
	}
}

// DeadLetter reads one dead letter, discarded or not. Error:
// [engine.ErrJobNotFound] if the job is not dead or not there.
func (r *Reader) DeadLetter(ctx context.Context, id engine.ID) (DeadLetterDetail, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	x, err := r.q.GetDead(ctx, r.pool, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = engine.ErrJobNotFound
	}
	if err != nil {
		return DeadLetterDetail{}, fmt.Errorf("read dead letter %s: %w", id, err)
	}
	job, err := r.Job(ctx, id)
	if err != nil {
		return DeadLetterDetail{}, fmt.Errorf("read dead letter: %w", err)
	}
	return DeadLetterDetail{
		DeadLetter: DeadLetter{
			JobID: x.JobID, Type: x.Type, Queue: x.Queue, Priority: job.Priority, Reason: engine.Reason(x.Reason),
			FencingToken: x.FencingToken, DiedAt: x.DiedAt.UTC(), CreatedAt: job.CreatedAt, DiscardedAt: optional(x.DiscardedAt),
			Attempt: int(x.Attempt), MaxAttempts: job.MaxAttempts, Crashes: int(x.Crashes), Replays: job.Replays, Version: job.Version,
			Error: Failure{Class: x.ErrorClass, Message: x.Error, Fingerprint: x.Fingerprint},
		},
		Stack: x.Stack, Worker: rawJSON(x.Worker), Job: job,
	}, nil
}
