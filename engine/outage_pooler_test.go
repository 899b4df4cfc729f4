package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// I3: through a transaction pooler, with the mode for it in the address, everything works but notifications; those are
// found dead by a proof, once.
func TestI3ATransactionPoolerNeedsNoNotificationsAndNoPreparedStatements(t *testing.T) {
	t.Parallel()
	direct := dbtest.NewURL(t)
	watch := dbtest.OpenURL(t, direct)
	pool, err := db.Open(t.Context(), db.PoolConfig{URL: dbtest.Pooler(t, direct) + "&default_query_exec_mode=cache_describe", MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var failed atomic.Int64
	ws := handlers(map[string]handler{
		"in_tx": func(ctx context.Context, _ *work) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it has nothing to do
			if err := engine.CompleteTx(ctx, tx); err != nil {
				return err
			}
			return tx.Commit(ctx)
		},
		"fails_once": func(context.Context, *work) error {
			if failed.Add(1) == 1 {
				return errors.New("once")
			}
			return nil
		},
		"dies": func(context.Context, *work) error { return engine.Permanent(errors.New("for good")) },
	})
	log := &lines{}
	engines := make([]*engine.Engine, 2)
	for i := range engines {
		c := hasty(ws)
		c.LeaseDuration, c.HeartbeatInterval, c.DBTimeout, c.Log = 9*time.Second, time.Second, 3*time.Second, log.logger()
		engines[i] = start(t, pool, c)
	}
	c := engines[0].Client()
	items := make([]engine.EnqueueItem, 150)
	for i := range items {
		items[i] = engine.EnqueueItem{Args: engine.RawArgs{Type: []string{"plain", "in_tx", "fails_once"}[i%3], Payload: []byte(`{"n": 12345678901234567890}`)}}
	}
	if _, err := c.EnqueueMany(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	for _, o := range []engine.EnqueueOptions{{Delay: 300 * time.Millisecond}, {IdempotencyKey: "k"}, {IdempotencyKey: "k"}, {Tags: []string{"a", `b"c`}, Timeout: time.Second}} {
		if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, o); err != nil {
			t.Errorf("enqueue %+v: %v", o, err)
		}
	}
	dead := enqueue(t, engines[0], "dies", engine.EnqueueOptions{})
	reaches(t, watch, dead, "dead_letter")
	if err := c.Discard(t.Context(), dead, engine.Actor{Name: "op"}); err != nil {
		t.Error(err)
	}
	within(t, 20*time.Second, "all but the dead one complete", func() bool {
		return one[int](t, watch, "SELECT count(*) FROM job_executions WHERE outcome = 1") == len(items)+3
	})
	if got := one[string](t, watch, "SELECT payload->>'n' FROM jobs WHERE type = 'in_tx' LIMIT 1"); got != "12345678901234567890" {
		t.Errorf("payload read back: %s", got)
	}
	within(t, 20*time.Second, "both say once that notifications are dead", func() bool {
		return len(log.with(map[string]any{"msg": engine.LogNotificationsDead})) == 2
	})
	for _, e := range engines {
		if e.Status().Listening {
			t.Error("Status says that it listens")
		}
	}
	for _, line := range log.with(map[string]any{"msg": "database call failed"}) {
		if text, _ := line["error"].(string); strings.Contains(text, "SQLSTATE") { // the machine may be slow, the pooler may not refuse
			t.Errorf("log: %v", line)
		}
	}
	healthy(t, watch, engines[1])
}

// Without that mode the start is refused, and the refusal says what to add.
func TestI3APoolerWithoutItsModeIsRefused(t *testing.T) {
	t.Parallel()
	address := dbtest.Pooler(t, dbtest.NewURL(t))
	_, err := db.Open(t.Context(), db.PoolConfig{URL: address})
	if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=cache_describe") {
		t.Errorf("open = %v, want the setting named", err)
	}
}
