package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// onceKept is how long the rows of [Once] stay: longer than a job lives with
// its attempts, replays and retention.
const onceKept = 365 * 24 * time.Hour

// errOutsideHandler is a mistake in the program.
var errOutsideHandler = errors.New("ctx belongs to no handler of this engine")

// Once runs fn inside tx unless a run of this job type did so before under key
// and committed: the row that says so commits with what fn did. It tells
// whether fn ran. Another transaction that holds the key is waited for. Errors
// are fn's and the database's; roll tx back after one.
func Once(ctx context.Context, tx pgx.Tx, key string, fn func(context.Context) error) (ran bool, err error) {
	r := runFrom(ctx)
	if r == nil {
		return false, fmt.Errorf("once %q: %w", key, errOutsideHandler)
	}
	if textFault(key, 255) != "" {
		return false, fmt.Errorf("once %q: the key must have 1 to 255 characters, no control characters", key)
	}
	n, err := r.engine.q.HoldOnce(ctx, tx, "once:"+r.row.Type, key, &r.row.ID, onceKept.Seconds())
	if err != nil {
		return false, fmt.Errorf("once %q: %w", key, err)
	}
	if n == 0 {
		r.engine.obs.KeyRepeated("once")
		return false, nil
	}
	fault.Point("once.held")
	return true, fn(ctx)
}

// CompleteTx ends the job inside the handler's own transaction: what the
// handler wrote and the job's end commit together or not at all. Return nil
// after committing. The result and the log lines kept are those set before the
// call. Errors: [ErrLeaseLost], when the token no longer holds the
// job; roll back. If tx does not commit, the attempt counts as failed.
func CompleteTx(ctx context.Context, tx pgx.Tx) error {
	r := runFrom(ctx)
	if r == nil {
		return fmt.Errorf("complete: %w", errOutsideHandler)
	}
	fault.Point("completetx.before")
	x := r.ended(verdict{outcome: OutcomeCompleted})
	stats := tally([]ended{x})[0]
	n, err := r.engine.q.CompleteJobInTx(ctx, tx, dbsqlc.CompleteJobInTxParams{JobID: r.row.ID, Token: r.row.FencingToken, StartedAt: x.started(),
		WaitMs: int32(min(x.wait().Milliseconds(), 1<<31-1)), Attempt: int16(r.row.Attempt), Logs: x.logs, Result: string(x.result),
		Progress: x.percent, ProgressText: x.text, Queue: stats.Queue, Type: stats.Type, RunMs: stats.RunMs, WaitBuckets: stats.WaitBuckets,
		RunBuckets: stats.RunBuckets})
	if err != nil {
		return fmt.Errorf("complete job %s: %w", r.row.ID, err)
	}
	if n == 0 {
		return fmt.Errorf("complete job %s: %w", r.row.ID, ErrLeaseLost)
	}
	if r.callsBack {
		if _, err := r.engine.client.callBack(ctx, tx, []ID{r.row.ID}); err != nil {
			return fmt.Errorf("complete job %s: call back: %w", r.row.ID, err)
		}
	}
	r.closedInTx.Store(true)
	if r.parent != nil {
		r.parent.tell(report{Token: r.row.FencingToken, InTx: true})
	}
	fault.Point("completetx.after")
	return nil
}
