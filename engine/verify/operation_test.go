package verify_test

import (
	"context"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// TestWhatAnOperationDidIsInTheTrail by the operation's one row, and is not without it.
func TestWhatAnOperationDidIsInTheTrail(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e, err := engine.New(engine.Config{Pool: pool, MaintenanceOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) }) // the pool goes next
	c := e.Client()
	for range 5 {
		if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "email"}, engine.EnqueueOptions{Queue: "mail"}); err != nil {
			t.Fatal(err)
		}
	}
	o, err := c.Operate(t.Context(), engine.OperationSpec{Action: engine.OperateCancel, Select: engine.Selection{Queue: "mail"}}, engine.Actor{Name: "ann", Source: "api"})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); o.State == engine.OperationRunning && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if o, err = c.Operation(t.Context(), o.ID); err != nil {
			t.Fatal(err)
		}
	}
	if o.Done != 5 {
		t.Fatalf("operation %+v, want 5 done", o)
	}
	offenders := func() int {
		r, err := verify.Run(t.Context(), pool, verify.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range r.Results {
			if res.Rule.Name == "acts_are_recorded" {
				return len(res.Offenders)
			}
		}
		return -1
	}
	if n := offenders(); n != 0 {
		t.Errorf("%d jobs of an operation are said to have no act", n)
	}
	if _, err := pool.Exec(t.Context(), `ALTER TABLE operator_actions DISABLE TRIGGER USER; UPDATE operator_actions SET target = gen_random_uuid()::text`); err != nil {
		t.Fatal(err)
	}
	if n := offenders(); n != 5 {
		t.Errorf("without the operation's act %d jobs are told, want 5", n)
	}
}
