package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Operation reads one. Error: [ErrOperationNotFound].
func (c *Client) Operation(ctx context.Context, id ID) (Operation, error) {
	o, err := c.q.GetOperation(ctx, c.pool, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Operation{}, ErrOperationNotFound
	}
	if err != nil {
		return Operation{}, fmt.Errorf("read operation %s: %w", id, err)
	}
	return operationOf(&o)
}

// Operations reads up to limit operations, 1 to 200, the newest first; before is
// the last of the page before, the zero value begins.
func (c *Client) Operations(ctx context.Context, before Operation, limit int) ([]Operation, error) {
	at, id := before.CreatedAt, before.ID
	if id == (ID{}) {
		at, id = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), uuid.Max
	}
	rows, err := c.q.ListOperations(ctx, c.pool, at, id, int32(min(max(limit, 1), 200)))
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	list := make([]Operation, len(rows))
	for i := range rows {
		if list[i], err = operationOf(&rows[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// OperationOutcomes is what came of the jobs an operation last acted on, at most
// 1,000 of them.
type OperationOutcomes struct {
	Acted int // looked at
	Ran   int // have run since, or are dead again
	// Failed is how many of those that ran failed in their first run.
	Failed int
}

const outcomesWindow = 1000

// OperationOutcomes reads what came of an operation.
func (c *Client) OperationOutcomes(ctx context.Context, o Operation) (OperationOutcomes, error) {
	at := o.Done + o.PassedOver
	j, err := c.q.JudgeOperation(ctx, c.pool, o.ID, int32(max(at-outcomesWindow, 0)), int32(at))
	if err != nil {
		return OperationOutcomes{}, fmt.Errorf("judge operation %s: %w", o.ID, err)
	}
	return OperationOutcomes{Acted: int(j.Acted), Ran: int(j.Judged), Failed: int(j.Failed)}, nil
}

// OperationFailure is a job of an operation that was passed over, or whose first
// run since failed.
type OperationFailure struct {
	N          int // its place in the set, from 1
	JobID      ID
	PassedOver bool
	Outcome    Outcome // 0 if it was passed over
	Class      string
	Error      string // its first 300 characters
	At         time.Time
}

// OperationFailures reads up to limit of them, 1 to 200, after place n of the set.
func (c *Client) OperationFailures(ctx context.Context, id ID, n, limit int) ([]OperationFailure, error) {
	rows, err := c.q.ListOperationResults(ctx, c.pool, id, int32(n), int32(min(max(limit, 1), 200)))
	if err != nil {
		return nil, fmt.Errorf("list failures of operation %s: %w", id, err)
	}
	list := make([]OperationFailure, len(rows))
	for i, r := range rows {
		list[i] = OperationFailure{N: int(r.N), JobID: r.JobID, PassedOver: r.PassedOver, Outcome: Outcome(r.Outcome), Class: r.ErrorClass, Error: r.Error}
		if !r.PassedOver {
			list[i].At = r.FinishedAt.UTC()
		}
	}
	return list, nil
}
