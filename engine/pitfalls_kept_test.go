package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestCompleteTxKeepsResultAndLog: they belong to the run, whichever way it is ended.
func TestCompleteTxKeepsResultAndLog(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"tx": func(ctx context.Context, j *work) error {
		j.Log().Info("halfway")
		if err := j.SetResult(map[string]int{"rows": 7}); err != nil {
			return err
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := engine.CompleteTx(ctx, tx); err != nil {
			return fmt.Errorf("%w; %w", err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}})
	e := start(t, pool, hasty(ws))
	id := enqueue(t, e, "tx", engine.EnqueueOptions{})
	reaches(t, pool, id, "completed")
	if got := one[string](t, pool, "SELECT coalesce(result::text, '') || coalesce(logs->0->>'msg', '') FROM job_executions WHERE job_id = $1", id); got != `{"rows": 7}halfway` {
		t.Errorf("kept with the run: %s", got)
	}
	healthy(t, pool, e)
}
