package verify_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// fate is a job whose payload says how its runs end.
type fate struct {
	End string `json:"end"`
}

func (fate) JobType() string { return "fate" }

// worker ends runs as their jobs ask.
type worker struct{ seen sync.Map }

func (w *worker) Work(_ context.Context, job *engine.Job[fate]) error {
	switch job.Args.End {
	case "retry":
		return engine.RetryAfter(errors.New("busy"), time.Hour)
	case "exhaust":
		return engine.RetryAfter(errors.New("busy"), 0)
	case "permanent":
		return engine.Permanent(errors.New("no such address"))
	case "mended": // fails for good, until an operator replays it
		if _, again := w.seen.LoadOrStore(job.ID, true); !again {
			return engine.Permanent(errors.New("no such address"))
		}
	case "snooze":
		if _, again := w.seen.LoadOrStore(job.ID, true); !again {
			return engine.Snooze(time.Hour)
		}
	}
	return nil
}

// world is a database with a job of each fate, left by an engine that ran them
// and was stopped. What one test breaks is mended for the next.
type world struct {
	pool *pgxpool.Pool
	kept []string // its tables
}

// fates are the jobs by name, and how they were asked for.
var fates = []struct {
	name, end string
	o         engine.EnqueueOptions
}{
	{"completed", "ok", engine.EnqueueOptions{IdempotencyKey: "completed"}}, {"retrying", "retry", engine.EnqueueOptions{}},
	{"exhausted", "exhaust", engine.EnqueueOptions{MaxAttempts: 2}}, {"permanent", "permanent", engine.EnqueueOptions{}},
	{"discarded", "permanent", engine.EnqueueOptions{}}, {"replayed", "mended", engine.EnqueueOptions{}},
	{"snoozed", "snooze", engine.EnqueueOptions{}}, {"due", "ok", engine.EnqueueOptions{Delay: 20 * time.Millisecond}},
	{"scheduled", "ok", engine.EnqueueOptions{Delay: time.Hour}}, {"cancelled", "ok", engine.EnqueueOptions{Delay: time.Hour}},
	{"expired", "ok", engine.EnqueueOptions{Queue: "served"}},
	{"unique", "ok", engine.EnqueueOptions{Delay: time.Hour, Unique: engine.Unique{Key: "k"}}},
	{"ready", "ok", engine.EnqueueOptions{Queue: "elsewhere"}}, {"leased", "ok", engine.EnqueueOptions{Queue: "elsewhere"}},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, pool := t.Context(), dbtest.New(t)
	moves.Log(t, pool)
	ws := engine.NewWorkers()
	engine.Register(ws, &worker{}, engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: pool, Workers: ws, Queues: []string{"default", "served"}, Concurrency: 4, PollInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{pool: pool}
	w.exec(t, `CREATE SCHEMA kept; CREATE TABLE kept.named (name text PRIMARY KEY, id uuid NOT NULL);
		CREATE FUNCTION job(of text) RETURNS uuid LANGUAGE sql STABLE AS 'SELECT n.id FROM kept.named AS n WHERE n.name = of'`)
	for _, f := range fates {
		if f.name == "expired" {
			f.o.ExpiresAt = time.Now().Add(50 * time.Millisecond)
		}
		job, err := e.Client().Enqueue(ctx, fate{f.end}, f.o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, `INSERT INTO kept.named VALUES ($1, $2)`, f.name, job.ID); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(60 * time.Millisecond) // past the instant at which one of them expires
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	w.await(t, `SELECT count(*) = 5 FROM dead_letter_jobs`)
	operator := engine.Actor{Name: "ann", Source: "go"}
	for name, act := range map[string]func(context.Context, engine.ID, engine.Actor) error{
		"replayed": e.Client().Replay, "discarded": e.Client().Discard, "cancelled": e.Client().Cancel} {
		if err := act(ctx, w.id(t, name), operator); err != nil {
			t.Fatal(err)
		}
	}
	w.await(t, `SELECT count(*) = 3 FROM job_executions WHERE outcome = 1`)
	if err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// A worker took one and is away with it; nobody does the upkeep.
	w.exec(t, `WITH d AS (DELETE FROM job_ready WHERE job_id = job('leased') RETURNING *)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) SELECT 1, now() + interval '30 s', ARRAY[d.job_id], ARRAY[d.attempt], ARRAY[d.crashes] FROM d`)
	w.keep(t)
	return w
}

func (w *world) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := w.pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) id(t *testing.T, name string) (id engine.ID) {
	t.Helper()
	if err := w.pool.QueryRow(t.Context(), `SELECT job($1)`, name).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

func (w *world) await(t *testing.T, holds string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var ok bool
		if err := w.pool.QueryRow(t.Context(), holds).Scan(&ok); err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", holds)
		}
	}
}

// keep copies every table.
func (w *world) keep(t *testing.T) {
	t.Helper()
	rows, err := w.pool.Query(t.Context(), `SELECT c.relname::text FROM pg_class AS c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'schema_migrations'`)
	if err != nil {
		t.Fatal(err)
	}
	if w.kept, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	for _, table := range w.kept {
		w.exec(t, `CREATE TABLE kept.`+table+` AS TABLE `+table)
	}
}

// mend puts every table back as it was kept, unseen by triggers.
func (w *world) mend(t *testing.T) {
	t.Helper()
	sql := `BEGIN; SET LOCAL session_replication_role = replica;`
	for _, table := range w.kept {
		var columns string // but for generated ones
		if err := w.pool.QueryRow(t.Context(), `SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute AS a
			WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''`, table).Scan(&columns); err != nil {
			t.Fatal(err)
		}
		sql += `DELETE FROM ` + table + `; INSERT INTO ` + table + ` (` + columns + `) OVERRIDING SYSTEM VALUE SELECT ` + columns + ` FROM kept.` + table + `;`
	}
	w.exec(t, sql+`COMMIT`)
}

// check asks all rules and answers those that are violated.
func (w *world) check(t *testing.T, o verify.Options) map[string]verify.Result {
	t.Helper()
	r, err := verify.Run(t.Context(), w.pool, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != len(verify.Rules) {
		t.Errorf("%d results for %d rules", len(r.Results), len(verify.Rules))
	}
	bad := map[string]verify.Result{}
	for _, res := range r.Results {
		switch res.Verdict {
		case verify.Violated:
			bad[res.Rule.Name] = res
		case verify.Unchecked:
			t.Errorf("%s: %s", res.Rule.Name, res.Problem)
		case verify.OK:
		}
	}
	return bad
}
