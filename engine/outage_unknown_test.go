package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/network"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// lossy is a database behind a network that can be cut: the pool goes through it,
// watch does not.
func lossy(t *testing.T) (way *network.Proxy, pool, watch *pgxpool.Pool) {
	t.Helper()
	address := dbtest.NewURL(t)
	way = network.New(t, address)
	return way, dbtest.OpenURL(t, way.URL(address)), dbtest.OpenURL(t, address)
}

func lossyClient(t *testing.T, pool *pgxpool.Pool) *engine.Client {
	t.Helper()
	c, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // hints only
	return c
}

// happened waits for a cut, so that a test cannot pass without it.
func happened(t *testing.T, cut <-chan struct{}) {
	t.Helper()
	select {
	case <-cut:
	case <-time.After(5 * time.Second):
		t.Error("the exchange to be cut never came")
	}
}

var moments = map[network.Moment]string{network.BeforeServer: "the request is lost", network.AfterServer: "the answer is lost"}

// Both look the same from here: the job may or may not exist, and the error says so.
func TestAnEnqueueWhoseAnswerIsLostIsUnknown(t *testing.T) {
	t.Parallel()
	for at, name := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way, pool, watch := lossy(t)
			c := lossyClient(t, pool)
			want := 0
			if at == network.AfterServer {
				want = 1
			}
			for i, o := range []engine.EnqueueOptions{{}, {Delay: time.Hour}} {
				cut := way.Cut(at, "INSERT INTO jobs")
				_, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, o)
				happened(t, cut)
				if !errors.Is(err, engine.ErrOutcomeUnknown) {
					t.Fatalf("enqueue = %v, want ErrOutcomeUnknown", err)
				}
				if n := one[int](t, watch, "SELECT count(*) FROM jobs"); n != want*(i+1) {
					t.Errorf("%d jobs, want %d: without a key nothing is repeated", n, want*(i+1))
				}
			}
		})
	}
}

// A refusal, and what fails before anything is sent, is no unknown outcome.
func TestAKnownFailureIsNotUnknown(t *testing.T) {
	t.Parallel()
	_, pool, watch := lossy(t)
	c := lossyClient(t, pool)
	if _, err := watch.Exec(t.Context(), "ALTER TABLE jobs ADD CHECK (type <> 'refused')"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"refused": func() error {
			_, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "refused"}, engine.EnqueueOptions{})
			return err
		},
		"one of many refused": func() error {
			_, err := c.EnqueueMany(t.Context(), []engine.EnqueueItem{{Args: engine.RawArgs{Type: "plain"}}, {Args: engine.RawArgs{Type: "refused"}}})
			return err
		},
		"given up before": func() error {
			_, err := c.Enqueue(over, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{})
			return err
		},
	} {
		if err := call(); err == nil || errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want an error that is not ErrOutcomeUnknown", name, err)
		}
	}
	if n := one[int](t, watch, "SELECT count(*) FROM jobs"); n != 0 {
		t.Errorf("%d jobs, want none", n)
	}
}

// Under a key the client itself asks again, and the caller never learns of it.
func TestAnUnknownEnqueueIsRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	for at, name := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way, pool, watch := lossy(t)
			c := lossyClient(t, pool)
			o := engine.EnqueueOptions{IdempotencyKey: "once"}
			cut := way.Cut(at, "enqueue_job_keyed")
			done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, o)
			happened(t, cut)
			if err != nil || done.Duplicate {
				t.Fatalf("enqueue = %+v, %v; want a job that this call made", done, err)
			}
			again, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, o)
			if err != nil || again.ID != done.ID || !again.Duplicate {
				t.Errorf("a second call = %+v, %v; want the first job, as a duplicate", again, err)
			}
			if n := one[int](t, watch, "SELECT count(*) FROM jobs"); n != 1 {
				t.Errorf("%d jobs, want 1", n)
			}
		})
	}
}

// All or none, whatever is lost; repeated only if every item has a key.
func TestManyWhoseAnswerIsLostAreAllThereOrNone(t *testing.T) {
	t.Parallel()
	for at, name := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way, pool, watch := lossy(t)
			c := lossyClient(t, pool)
			items := make([]engine.EnqueueItem, 40)
			for i := range items {
				items[i].Args = engine.RawArgs{Type: "plain"}
			}
			cut := way.Cut(at, "commit")
			_, err := c.EnqueueMany(t.Context(), items)
			happened(t, cut)
			if !errors.Is(err, engine.ErrOutcomeUnknown) {
				t.Fatalf("enqueue of many = %v, want ErrOutcomeUnknown", err)
			}
			before := 0
			if at == network.AfterServer {
				before = len(items)
			}
			if n := one[int](t, watch, "SELECT count(*) FROM jobs"); n != before {
				t.Fatalf("%d jobs of %d, want %d", n, len(items), before)
			}
			for i := range items {
				items[i].Options.IdempotencyKey = fmt.Sprint("key-", i)
			}
			cut = way.Cut(at, "commit")
			done, err := c.EnqueueMany(t.Context(), items)
			happened(t, cut)
			if err != nil || len(done) != len(items) || done[0].Duplicate {
				t.Fatalf("enqueue of many under keys = %d, %v", len(done), err)
			}
			if n := one[int](t, watch, "SELECT count(*) FROM jobs"); n != before+len(items) {
				t.Errorf("%d jobs, want %d", n, before+len(items))
			}
		})
	}
}

// Under a key of its own a batch is repeated whatever its jobs have.
func TestABatchWhoseAnswerIsLostIsRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	for at, name := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way, pool, watch := lossy(t)
			c := lossyClient(t, pool)
			items := []engine.EnqueueItem{{Args: engine.RawArgs{Type: "plain"}}, {Args: engine.RawArgs{Type: "plain"}}}
			cut := way.Cut(at, "commit")
			done, replayed, err := c.EnqueueManyOnce(t.Context(), "once", items)
			happened(t, cut)
			if err != nil || replayed || len(done) != 2 || done[0].Duplicate {
				t.Fatalf("enqueue = %+v, %v, %v; want jobs that this call made", done, replayed, err)
			}
			if n := one[int](t, watch, "SELECT count(*) FROM jobs WHERE id = ANY($1)", []engine.ID{done[0].ID, done[1].ID}); n != 2 {
				t.Errorf("%d of the jobs answered exist, want 2", n)
			}
			if n := one[int](t, watch, "SELECT count(*) FROM jobs"); n != 2 {
				t.Errorf("%d jobs, want 2", n)
			}
		})
	}
}

// An act whose answer is lost is unknown too, and may be done again.
func TestAnActWhoseAnswerIsLostIsUnknown(t *testing.T) {
	t.Parallel()
	for at, name := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			way, pool, watch := lossy(t)
			c := lossyClient(t, pool)
			done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{})
			if err != nil {
				t.Fatal(err)
			}
			cut := way.Cut(at, "commit")
			err = c.Cancel(t.Context(), done.ID, engine.Actor{Name: "op"})
			happened(t, cut)
			if !errors.Is(err, engine.ErrOutcomeUnknown) {
				t.Errorf("cancel = %v, want ErrOutcomeUnknown", err)
			}
			if err := c.Cancel(t.Context(), done.ID, engine.Actor{Name: "op"}); err != nil {
				t.Errorf("cancel again = %v", err)
			}
			if n := one[int](t, watch, "SELECT count(*) FROM operator_actions WHERE action = 'cancel'"); n != 1 || stateOf(t, watch, done.ID) != "cancelled" {
				t.Errorf("%d audit rows, job %s; want one and cancelled", n, stateOf(t, watch, done.ID))
			}
		})
	}
}

// A finish or a claim that is lost is asked again: each job completes once, is
// counted once, and nothing is held against it.
func TestALostFinishOrClaimIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	for at, name := range moments {
		for _, text := range []string{"INSERT INTO job_executions", "INSERT INTO job_claims"} {
			t.Run(name+" of "+text, func(t *testing.T) {
				t.Parallel()
				way, pool, watch := lossy(t)
				seen := newWatcher()
				c := hasty(handlers(nil))
				c.Observer = seen
				e := start(t, pool, c)
				cut := way.Cut(at, text)
				id := one[engine.ID](t, watch, "SELECT enqueue_job(type => 'plain')")
				reaches(t, watch, id, "completed")
				happened(t, cut)
				if n := one[int](t, watch, "SELECT count(*) FROM job_executions WHERE outcome = 1 AND job_id = $1", id); n != 1 {
					t.Errorf("completed %d times", n)
				}
				healthy(t, watch, e)
				eventually(t, "each completion is counted once", func() bool {
					return one[int](t, watch, `SELECT coalesce((SELECT sum(n) FROM job_stats_deltas WHERE outcome = 1), 0)
						+ coalesce((SELECT sum(n) FROM job_stats_minutes WHERE outcome = 1), 0)`) ==
						one[int](t, watch, "SELECT count(*) FROM job_executions WHERE outcome = 1")
				})
				if refused := seen.refusals(); len(refused) > 0 {
					t.Errorf("refused: %v", refused)
				}
				if n := one[int](t, watch, "SELECT coalesce(max(crashes), 0) FROM job_states"); n != 0 {
					t.Errorf("crashes = %d", n)
				}
			})
		}
	}
}
