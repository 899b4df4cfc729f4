package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

const strict = `{"required":["to"],"properties":{"to":{"type":"string"},"a.b":{"properties":{"c\\d":{"type":"integer"}}}}}`

var admin = engine.Actor{Name: "ann", Reason: "since 2.4"}

func setSchema(t *testing.T, c *engine.Client, typ, text string) engine.TypeSchema {
	t.Helper()
	s, err := c.SetTypeSchema(t.Context(), typ, json.RawMessage(text), admin)
	if err != nil {
		t.Fatalf("set %s: %v", text, err)
	}
	return s
}

func plain(payload string) engine.RawArgs {
	return engine.RawArgs{Type: "plain", Payload: json.RawMessage(payload)}
}

// misfit fails the test unless err says that a payload does not fit at these fields, and only there.
func misfit(t *testing.T, what string, err error, fields ...string) {
	t.Helper()
	var invalid *engine.ValidationError
	if !errors.As(err, &invalid) {
		t.Errorf("%s: %v, want a misfit at %v", what, err, fields)
		return
	}
	var got []string
	for _, f := range invalid.Fields {
		if got = append(got, f.Field); f.Code != "schema" || f.Detail == "" {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(fields) {
		t.Errorf("%s: misfit at %v, want %v", what, got, fields)
	}
}

func TestEveryDoorHoldsAPayloadAgainstTheSchemaOfItsType(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	setSchema(t, newClient(t, pool), "plain", strict)
	for door, enqueue := range doors(t, pool) {
		prefix := "payload"
		if strings.HasPrefix(door, "EnqueueMany") {
			prefix = "items.0.payload"
		}
		_, err := enqueue(plain(`{"to":7}`), engine.EnqueueOptions{})
		misfit(t, door, err, prefix+".to")
		_, err = enqueue(plain(`{"to":"x","a.b":{"c\\d":"y"}}`), engine.EnqueueOptions{IdempotencyKey: "key-of-" + door, Unique: engine.Unique{Key: "u"}})
		misfit(t, door+" with keys", err, prefix+`.a\.b.c\\d`)
		if n := one[int](t, pool, "SELECT count(*)::int FROM jobs"); n != 0 {
			t.Fatalf("%s left %d jobs", door, n)
		}
		if _, err := enqueue(plain(`{"to":"x"}`), engine.EnqueueOptions{}); err != nil {
			t.Errorf("%s of what fits: %v", door, err)
		}
		if _, err := enqueue(engine.RawArgs{Type: "other", Payload: json.RawMessage(`{"to":7}`)}, engine.EnqueueOptions{}); err != nil {
			t.Errorf("%s of another type: %v", door, err)
		}
		emptied(t, pool)
	}
	path := engine.FieldError{Field: `payload.a\.b.c\\d`}.Path()
	if fmt.Sprintf("%q", path) != `["payload" "a.b" "c\\d"]` {
		t.Errorf("path %q", path)
	}
}

func emptied(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "DELETE FROM job_ready; DELETE FROM jobs"); err != nil {
		t.Fatal(err)
	}
}

func TestOfManyOneMisfitEndsAllOrIsLeftOut(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	setSchema(t, c, "plain", strict)
	items := []engine.EnqueueItem{{Args: plain(`{"to":"x"}`)}, {Args: plain(`{}`)}, {Args: plain(`{"to":"x"}`), Options: engine.EnqueueOptions{IdempotencyKey: "k"}},
		{Args: plain(`{"to":1}`), Options: engine.EnqueueOptions{IdempotencyKey: "l"}}}
	_, err := c.EnqueueMany(t.Context(), items)
	misfit(t, "EnqueueMany", err, "items.1.payload.to", "items.3.payload.to")
	if n := one[int](t, pool, "SELECT count(*)::int FROM jobs"); n != 0 {
		t.Errorf("EnqueueMany left %d jobs", n)
	}
	results, err := c.EnqueueEach(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if i%2 == 1 {
			misfit(t, fmt.Sprint("item ", i), r.Err, "payload.to")
		} else if r.Err != nil {
			t.Errorf("item %d: %v", i, r.Err)
		}
	}
	if got := one[string](t, pool, "SELECT concat(count(*), ' ', (SELECT count(*) FROM job_ready), ' ', (SELECT count(*) FROM idempotency_keys)) FROM jobs"); got != "2 2 1" {
		t.Errorf("EnqueueEach left %s jobs, places and keys", got)
	}
}

func TestARepeatedCallGetsItsFirstAnswerWhateverTheSchemaBecame(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	first, err := c.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	many := []engine.EnqueueItem{{Args: plain(`{}`)}}
	all, _, err := c.EnqueueManyOnce(t.Context(), "batch", many)
	if err != nil {
		t.Fatal(err)
	}
	setSchema(t, c, "plain", strict)
	again, err := c.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{IdempotencyKey: "k"})
	if err != nil || !again.Duplicate || again.ID != first.ID {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	allAgain, replayed, err := c.EnqueueManyOnce(t.Context(), "batch", many)
	if err != nil || !replayed || allAgain[0].ID != all[0].ID {
		t.Errorf("batch repeated: %+v, %v", allAgain, err)
	}
	_, err = c.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{IdempotencyKey: "another"})
	misfit(t, "a new key", err, "payload.to")
}

func TestASchemaHoldsForOthersWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	here, there := newClient(t, pool), newClient(t, pool)
	for _, step := range []struct {
		change  func()
		refused bool
	}{
		{func() { setSchema(t, here, "plain", strict) }, true},
		{func() { setSchema(t, here, "plain", `{}`) }, false},
		{func() { setSchema(t, here, "plain", strict) }, true},
		{func() {
			if err := here.RemoveTypeSchema(t.Context(), "plain", admin); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		_, _ = there.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{}) // so that it knows the schema of before
		step.change()
		changed := time.Now()
		for {
			_, err := there.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{})
			if (err != nil) == step.refused {
				break
			}
			if time.Since(changed) > 5*time.Second {
				t.Fatalf("5 s after the change: %v, want refused: %t", err, step.refused)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// A transaction that reads by an old snapshot goes by the schema of then; nobody else does for its sake.
func TestAnOldSnapshotDoesNotHoldASchemaBack(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, other := newClient(t, pool), newClient(t, pool)
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(context.Background()) }() // it has done nothing to keep
	if _, err := old.Exec(t.Context(), "SELECT count(*) FROM job_types"); err != nil {
		t.Fatal(err)
	}
	setSchema(t, other, "plain", strict)
	time.Sleep(2500 * time.Millisecond)
	if _, err := c.EnqueueTx(t.Context(), old, plain(`{}`), engine.EnqueueOptions{}); err != nil {
		t.Errorf("by the snapshot of before: %v", err)
	}
	_, err = c.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{})
	misfit(t, "right after it", err, "payload.to")
}

// The check reads over the connection it is given: whoever holds the pool's last one would wait for ever.
func TestACheckNeedsNoSecondConnection(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	setSchema(t, newClient(t, pool), "plain", strict)
	config := pool.Config()
	config.MaxConns = 1
	single, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	c := newClient(t, single)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tx, err := single.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.EnqueueTx(ctx, tx, plain(`{}`), engine.EnqueueOptions{})
	misfit(t, "EnqueueTx", err, "payload.to")
	// A refusal leaves the caller's transaction whole.
	if _, err := c.EnqueueTx(ctx, tx, plain(`{"to":"x"}`), engine.EnqueueOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAnEditedPayloadMustFitTheSchema(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	job, err := c.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{Delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	setSchema(t, c, "plain", strict)
	high := engine.PriorityHigh
	misfit(t, "a payload", c.Edit(t.Context(), job.ID, engine.Edit{Payload: json.RawMessage(`{"to":7}`), Priority: &high}, admin), "payload.to")
	if got := one[string](t, pool, "SELECT concat(j.payload, j.priority, (SELECT count(*) FROM operator_actions WHERE action = 'edit')) FROM jobs AS j"); got != "{}10" {
		t.Errorf("the refused edit left %s", got)
	}
	if err := c.Edit(t.Context(), job.ID, engine.Edit{Priority: &high}, admin); err != nil {
		t.Errorf("an edit of something else: %v", err)
	}
	if err := c.Edit(t.Context(), job.ID, engine.Edit{Payload: json.RawMessage(`{"to":"x"}`)}, admin); err != nil {
		t.Errorf("a payload that fits: %v", err)
	}
	if err := c.Edit(t.Context(), engine.ID{1}, engine.Edit{Payload: json.RawMessage(`{}`)}, admin); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("a job that is not there: %v", err)
	}
}

// SQL cannot run a schema: its door takes what does not fit, and a worker runs it as ever.
func TestWhatComesBySQLIsNotCheckedAndRuns(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	setSchema(t, newClient(t, pool), "plain", strict)
	if _, err := pool.Exec(t.Context(), `SELECT enqueue_job(type => 'plain', payload => '{"to":7}')`); err != nil {
		t.Fatal(err)
	}
	ran := make(chan string, 1)
	workers := engine.NewWorkers()
	engine.RegisterType(workers, "plain", engine.WorkerFunc[engine.RawArgs](func(_ context.Context, job *engine.Job[engine.RawArgs]) error {
		ran <- string(job.Args.Payload)
		return nil
	}), engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: pool, Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	select {
	case payload := <-ran:
		if payload != `{"to": 7}` {
			t.Errorf("ran with %s", payload)
		}
	case <-time.After(20 * time.Second):
		t.Error("it did not run")
	}
}

func TestASchemaIsSetWithItsTraceAndOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	if _, err := c.TypeSchema(t.Context(), "plain"); !errors.Is(err, engine.ErrNoTypeSchema) {
		t.Errorf("before: %v", err)
	}
	if err := c.RemoveTypeSchema(t.Context(), "plain", admin); !errors.Is(err, engine.ErrNoTypeSchema) {
		t.Errorf("removal of none: %v", err)
	}
	first := setSchema(t, c, "plain", `{"minimum":9007199254740993, "type":"object"}`)
	if first.Version != 1 || first.UpdatedBy != "ann" || first.UpdatedAt.IsZero() || !strings.Contains(string(first.Schema), "9007199254740993") {
		t.Errorf("set: %+v", first)
	}
	if same := setSchema(t, c, "plain", `{"type":"object","minimum":9007199254740993}`); same.Version != 1 || !same.UpdatedAt.Equal(first.UpdatedAt) {
		t.Errorf("set again: %+v", same)
	}
	if next := setSchema(t, c, "plain", `{}`); next.Version != 2 {
		t.Errorf("changed: %+v", next)
	}
	if err := c.RemoveTypeSchema(t.Context(), "plain", admin); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveTypeSchema(t.Context(), "plain", admin); !errors.Is(err, engine.ErrNoTypeSchema) {
		t.Errorf("removed twice: %v", err)
	}
	if anew := setSchema(t, c, "plain", `{}`); anew.Version != 4 {
		t.Errorf("set anew: %+v", anew)
	}
	const trail = `SELECT string_agg(concat_ws(' ', actor, source, action, target_kind, target, reason, before->>'version', after->>'version', after->>'schema'), '; ' ORDER BY id) FROM operator_actions`
	want := `ann go set_schema type plain since 2.4 0 1 {"type": "object", "minimum": 9007199254740993}; ann go set_schema type plain since 2.4 1 2 {}; ` +
		`ann go remove_schema type plain since 2.4 2 3; ann go set_schema type plain since 2.4 3 4 {}`
	if got := one[string](t, pool, trail); got != want {
		t.Errorf("trail\n%s, want\n%s", got, want)
	}
}

func TestSchemasThatCannotBeSet(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	for text, want := range map[string]string{
		``: "schema required", `[]`: "schema invalid", `{`: "schema malformed", `{"type":"strin"}`: "schema invalid", `{"a":"\u0000"}`: "schema.a invalid",
		`{"$ref":"http://127.0.0.1/x"}`: "schema invalid", `{"description":"` + strings.Repeat("x", engine.MaxSchemaBytes) + `"}`: "schema too-large",
		strings.Repeat(`{"items":`, 65) + `{}` + strings.Repeat(`}`, 65): "schema too-deep", `{"minimum":1e1000000}`: "schema.minimum out-of-range",
	} {
		_, err := c.SetTypeSchema(t.Context(), "plain", json.RawMessage(text), admin)
		var invalid *engine.ValidationError
		if !errors.As(err, &invalid) {
			t.Errorf("%.40s: %v", text, err)
		} else if got := invalid.Fields[0].Field + " " + invalid.Fields[0].Code; got != want {
			t.Errorf("%.40s: %s, want %s", text, got, want)
		}
	}
	if _, err := c.SetTypeSchema(t.Context(), "no type", json.RawMessage(`{}`), admin); err == nil {
		t.Error("a type that is none has a schema")
	}
	if got := one[int](t, pool, "SELECT (SELECT count(*) FROM job_types)::int + (SELECT count(*) FROM operator_actions)::int"); got != 0 {
		t.Errorf("%d rows are left", got)
	}
}

// What somebody wrote past the engine refuses payloads with a reason; it ends nothing.
func TestABrokenSchemaOfTheTableRefusesWithItsReason(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO job_types (type, schema, version, updated_by) VALUES ('plain', '{"pattern":"("}', 1, 'psql')`); err != nil {
		t.Fatal(err)
	}
	_, err := newClient(t, pool).Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{})
	misfit(t, "a broken schema", err, "payload")
	if !strings.Contains(fmt.Sprint(err), "cannot be checked") {
		t.Error(err)
	}
}

func TestOfManyWhoSetASchemaEachSeesTheOneBefore(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := c.SetTypeSchema(context.Background(), "plain", json.RawMessage(fmt.Sprintf(`{"minProperties":%d}`, i)), admin); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := one[int](t, pool, `SELECT count(*)::int FROM (SELECT before, lag(after) OVER (ORDER BY id) AS last FROM operator_actions) AS x WHERE before <> last`); n != 0 {
		t.Errorf("%d rows of the trail do not begin where the last ended", n)
	}
	if got := one[string](t, pool, "SELECT concat(count(*), ' ', (SELECT version FROM job_types)) FROM operator_actions"); got != "8 8" {
		t.Errorf("acts and version %s, want 8 8", got)
	}
}

// A type without a schema costs no query while the versions are fresh, in any door.
func TestATypeWithoutASchemaCostsNoQuery(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	if _, err := c.Enqueue(t.Context(), plain(`{}`), engine.EnqueueOptions{}); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "ALTER TABLE job_types RENAME TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.EnqueueTx(t.Context(), tx, plain(`{}`), engine.EnqueueOptions{}); err != nil {
		t.Errorf("it asked for schemas: %v", err)
	}
}
