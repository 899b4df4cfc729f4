package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

func init() { engine.LifeOver = historyIsClean }

// historyIsClean fails the script whose history breaks a rule of jobctl verify,
// or one of whose moves was none of the engine's to make.
func historyIsClean(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	moves.Judge(t, pool)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// A script moves time by hours and may end before the reaper's next pass.
	r, err := verify.Run(ctx, pool, verify.Options{LeaseGrace: 1000 * time.Hour})
	if err != nil {
		t.Error(err)
	}
	for _, res := range r.Results {
		if res.Verdict != verify.OK {
			t.Errorf("%s is %s: %v", res.Rule.Name, res.Verdict, res.Offenders)
		}
	}
}
