package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestExpiryOnEveryPath: a job that still waits at its expires_at is dead, wherever it waits, whether or not a worker would
// ever look at it; its unique key is free, the one that covers dead is not, and a replay begins without the deadline.
func TestExpiryOnEveryPath(t *testing.T) {
	t.Parallel()
	w := newUniqueWorld(t)
	c := w.e.Client()
	at := time.Now().Add(2 * time.Second)
	plain := engine.EnqueueOptions{ExpiresAt: at}
	ids := map[string]engine.ID{
		"no worker":    w.add(t, "nobody", engine.Unique{Key: "no worker"}, plain),
		"backing off":  w.add(t, "flaky", engine.Unique{Key: "backing off"}, plain),
		"covered dead": w.add(t, "nobody", engine.Unique{Key: "covered", States: allStates}, plain),
	}
	reaches(t, w.pool, ids["backing off"], "failed")
	// Scheduled for later than it may run: an edit can do that, an enqueue cannot.
	ids["scheduled"] = w.add(t, "plain", engine.Unique{Key: "scheduled"}, engine.EnqueueOptions{Delay: time.Hour, ExpiresAt: at.Add(2 * time.Hour)})
	if _, err := w.pool.Exec(t.Context(), "UPDATE jobs SET expires_at = $2 WHERE id = $1", ids["scheduled"], at); err != nil {
		t.Fatal(err)
	}
	for what, id := range ids {
		within(t, 30*time.Second, what+" is dead", func() bool { return stateOf(t, w.pool, id) == "dead_letter" })
		if r := one[string](t, w.pool, "SELECT reason FROM dead_letter_jobs WHERE job_id = $1", id); r != "expired" {
			t.Errorf("%s: dead for the reason %s", what, r)
		}
	}
	held(t, c, "nobody", engine.Unique{Key: "covered", States: allStates}, ids["covered dead"], engine.StateDeadLetter)
	free(t, c, "nobody", engine.Unique{Key: "no worker"})
	free(t, c, "flaky", engine.Unique{Key: "backing off"})
	if err := c.Replay(t.Context(), ids["scheduled"], engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	reaches(t, w.pool, ids["scheduled"], "completed")
	close(w.end)
}

// TestAnEnqueueThatHasExpiredIsRefused, through every door.
func TestAnEnqueueThatHasExpiredIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for name, door := range doors(t, pool) {
		for what, o := range map[string]engine.EnqueueOptions{
			"passed":             {ExpiresAt: time.Now().Add(-time.Second)},
			"before it is due":   {ExpiresAt: time.Now().Add(time.Minute), Delay: time.Hour},
			"before its instant": {ExpiresAt: time.Now().Add(time.Minute), ScheduledAt: time.Now().Add(time.Hour)},
			"too far":            {ExpiresAt: time.Now().AddDate(21, 0, 0)},
		} {
			var invalid *engine.ValidationError
			if _, err := door(engine.RawArgs{Type: "plain"}, o); !errors.As(err, &invalid) || len(invalid.Fields) != 1 {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM jobs"); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

// TestExpiryFindsWhatItPassed: a job that ran when its deadline was walked over, and waits again now, and one whose
// transaction committed after that, with no worker to claim either.
func TestExpiryFindsWhatItPassed(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	e := start(t, pool, engine.Config{MaintenanceOnly: true, PollInterval: 50 * time.Millisecond})
	soon := time.Now().Add(3 * time.Second)
	running := enqueueOne(t, c, engine.EnqueueOptions{ExpiresAt: soon})
	lease(t, pool, running)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late, err := c.EnqueueTx(t.Context(), tx, engine.RawArgs{Type: "nobody"}, engine.EnqueueOptions{ExpiresAt: soon})
	if err != nil {
		t.Fatal(err)
	}
	// Whatever expires later is walked over after them.
	mark := enqueueOne(t, c, engine.EnqueueOptions{ExpiresAt: soon.Add(100 * time.Millisecond)})
	within(t, 25*time.Second, "the walk has passed", func() bool { return stateOf(t, pool, mark) == "dead_letter" })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `WITH k AS (DELETE FROM job_claims RETURNING id, job_ids),
		e AS (INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) SELECT job_ids[1], id, 1, 2 FROM k RETURNING job_id)
		INSERT INTO job_scheduled (run_at, job_id, priority, attempt, failed, queue, type) SELECT now() + interval '1 h', job_id, 1, 1, true, 'default', 'nobody' FROM e`); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]engine.ID{"a job that ran": running, "a job committed late": late.ID} {
		within(t, 25*time.Second, what+" is dead", func() bool { return stateOf(t, pool, id) == "dead_letter" })
	}
	if !e.Status().Leader {
		t.Error("the only engine does not lead")
	}
}

func enqueueOne(t *testing.T, c *engine.Client, o engine.EnqueueOptions) engine.ID {
	t.Helper()
	done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "nobody"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return done.ID
}

// lease gives a job to a worker that lives on.
func lease(t *testing.T, pool *pgxpool.Pool, id engine.ID) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) SELECT 1, now() + interval '1 h', ARRAY[job_id], '{0}', '{0}' FROM d`, id); err != nil {
		t.Fatal(err)
	}
}
