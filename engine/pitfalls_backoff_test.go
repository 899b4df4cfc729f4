package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

const storedBackoff = "SELECT coalesce(backoff::text, 'none') FROM jobs WHERE id = $1"

// TestABackoffIsKeptByEveryDoor in one form, so that all agree on what a repetition is.
func TestABackoffIsKeptByEveryDoor(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	const full = `{"policy": "exponential", "max_seconds": 90.5, "base_seconds": 0.25}`
	const defaults = `{"policy": "full_jitter", "max_seconds": 300, "base_seconds": 1}`
	for _, c := range []struct {
		backoff engine.Backoff
		sql     string
		want    string
	}{
		{engine.Backoff{Policy: engine.BackoffExponential, Base: 250 * time.Millisecond, Max: 90500 * time.Millisecond}, `{"policy":"exponential","base_seconds":0.250,"max_seconds":90.5}`, full},
		{engine.Backoff{Policy: engine.BackoffFullJitter}, `{}`, defaults},
		{engine.Backoff{Base: time.Second}, `{"base_seconds":1.0}`, defaults},
		{engine.Backoff{}, "", "none"},
	} {
		for _, key := range []string{"", c.want + c.sql} {
			for name, door := range doors(t, pool) {
				done, err := door(engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Backoff: c.backoff, IdempotencyKey: key})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if got := one[string](t, pool, storedBackoff, done.ID); got != c.want {
					t.Errorf("%s of %+v stored %s, want %s", name, c.backoff, got, c.want)
				}
			}
			for name, sql := range map[string]string{
				"enqueue_job": "SELECT enqueue_job(type => 'plain', backoff => nullif($1, '')::jsonb, idempotency_key => nullif($2, ''))",
				"job_inbox":   "INSERT INTO job_inbox (type, backoff, idempotency_key) VALUES ('plain', nullif($1, '')::jsonb, nullif($2, '')) RETURNING id",
			} {
				if got := one[string](t, pool, storedBackoff, one[engine.ID](t, pool, sql, c.sql, key)); got != c.want {
					t.Errorf("%s of %s stored %s, want %s", name, c.sql, got, c.want)
				}
			}
			if n := one[int](t, pool, "SELECT count(DISTINCT job_id) FROM idempotency_keys WHERE key = $1", key); key != "" && n != 1 {
				t.Errorf("%d jobs under one key, want 1", n)
			}
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM idempotency_keys k JOIN jobs j ON j.id = k.job_id"); n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
	c := newClient(t, pool)
	var reused *engine.KeyReusedError
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Backoff: engine.Backoff{Base: 2 * time.Second}, IdempotencyKey: full + `{"policy":"exponential","base_seconds":0.250,"max_seconds":90.5}`}); !errors.As(err, &reused) {
		t.Errorf("the same key with another backoff: %v", err)
	}
	unique := engine.EnqueueOptions{Unique: engine.Unique{Key: "u", OnConflict: engine.ConflictReplace}}
	first, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, unique)
	if err != nil {
		t.Fatal(err)
	}
	unique.Backoff.Base = time.Second
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, unique); err != nil || one[string](t, pool, storedBackoff, first.ID) != defaults {
		t.Errorf("a replaced job has the backoff %s, %v", one[string](t, pool, storedBackoff, first.ID), err)
	}
}

func TestABackoffOutOfBoundsIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	for _, x := range []struct {
		backoff     engine.Backoff
		sql         string
		field, code string
	}{
		{engine.Backoff{Policy: "linear"}, `{"policy":"linear"}`, "backoff.policy", "invalid"},
		{engine.Backoff{Base: -time.Second}, `{"base_seconds":-1}`, "backoff.base_seconds", "out-of-range"},
		{engine.Backoff{Base: time.Microsecond}, `{"base_seconds":0.000001}`, "backoff.base_seconds", "out-of-range"},
		{engine.Backoff{Base: 25 * time.Hour}, `{"base_seconds":90000}`, "backoff.base_seconds", "out-of-range"},
		{engine.Backoff{Base: 10 * time.Minute}, `{"base_seconds":600}`, "backoff.max_seconds", "out-of-range"},
		{engine.Backoff{Max: 31 * 24 * time.Hour}, `{"max_seconds":2678400}`, "backoff.max_seconds", "out-of-range"},
		{engine.Backoff{Base: time.Minute, Max: time.Second}, `{"base_seconds":60,"max_seconds":1}`, "backoff.max_seconds", "out-of-range"},
	} {
		var invalid *engine.ValidationError
		if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Backoff: x.backoff}); !errors.As(err, &invalid) || !invalid.Has(x.field, x.code) {
			t.Errorf("%+v: %v, want %s %s", x.backoff, err, x.field, x.code)
		}
		if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 'plain', backoff => $1::jsonb)", x.sql); !refusedByCheck(err) {
			t.Errorf("%s by SQL: %v", x.sql, err)
		}
	}
	for _, sql := range []string{`null`, `[]`, `"full_jitter"`, `1`, `{"base":1}`, `{"base_seconds":"1"}`, `{"base_seconds":null}`, `{"max_seconds":"infinity"}`} {
		if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 'plain', backoff => $1::jsonb)", sql); !refusedByCheck(err) {
			t.Errorf("%s by SQL: %v", sql, err)
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM jobs"); n != 0 {
		t.Errorf("%d jobs stored, want none", n)
	}
}

func refusedByCheck(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514"
}

// TestABackoffHoldsInAChildToo, where a suspect runs.
func TestABackoffHoldsInAChildToo(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	done, err := newClient(t, pool).Enqueue(t.Context(), engine.RawArgs{Type: "fails", Payload: json.RawMessage(`{}`)},
		engine.EnqueueOptions{Backoff: engine.Backoff{Policy: engine.BackoffExponential, Base: time.Hour, Max: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	lose(t, pool, done.ID)
	startHost(t, pool, hostOptions{})
	comes(t, pool, done.ID, "failed")
	if s := one[float64](t, pool, "SELECT extract(epoch FROM run_at - now())::float8 FROM job_scheduled WHERE job_id = $1", done.ID); s < 0.7*3600 {
		t.Errorf("the job waits %.1f s, want an hour less a fifth", s)
	}
}

// TestAJobBacksOffAsItAsks, its neighbours as their type does, and RetryAfter goes before.
func TestAJobBacksOffAsItAsks(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{
		"fails": func(context.Context, *work) error { return errors.New("it broke") },
		"told":  func(context.Context, *work) error { return engine.RetryAfter(errors.New("busy"), 10*time.Second) },
	})
	e := start(t, pool, hasty(ws))
	slow := engine.Backoff{Policy: engine.BackoffExponential, Base: time.Hour, Max: time.Hour}
	own := enqueue(t, e, "fails", engine.EnqueueOptions{Backoff: slow})
	jitter := enqueue(t, e, "fails", engine.EnqueueOptions{Backoff: engine.Backoff{Base: 24 * time.Hour, Max: 48 * time.Hour}})
	plain := enqueue(t, e, "fails", engine.EnqueueOptions{MaxAttempts: 3})
	told := enqueue(t, e, "told", engine.EnqueueOptions{Backoff: slow})
	reaches(t, pool, plain, "dead_letter")
	const wait = "SELECT extract(epoch FROM s.run_at - e.finished_at)::float8 FROM job_scheduled s JOIN job_executions e ON e.job_id = s.job_id WHERE s.job_id = $1"
	for id, bounds := range map[engine.ID][2]float64{own: {0.8 * 3600, 3600}, jitter: {0, 2 * 86400}, told: {10, 10}} {
		reaches(t, pool, id, "failed")
		if s := one[float64](t, pool, wait, id); s < bounds[0]-0.1 || s > bounds[1]+0.1 {
			t.Errorf("a job waits %.1f s, want %v", s, bounds)
		}
	}
	if b, err := json.Marshal(slow); err != nil || string(b) != `{"policy":"exponential","base_seconds":3600,"max_seconds":3600}` {
		t.Errorf("backoff = %s, %v", b, err)
	}
	healthy(t, pool, e)
}
