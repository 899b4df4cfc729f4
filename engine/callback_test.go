package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

const (
	hook     = "https://example.com/hook"
	storedAt = "SELECT coalesce(callback_url, 'none') FROM jobs WHERE id = $1"
)

// callbacks are what was made to tell of a job's ends, the oldest first.
func callbacks(t *testing.T, pool *pgxpool.Pool, id engine.ID) []string {
	t.Helper()
	return one[[]string](t, pool, `SELECT coalesce(array_agg(concat_ws(' ', type, queue, priority, payload->>'url', payload->'body'->>'type',
		payload->'body'->'data'->>'replays') ORDER BY id), '{}') FROM jobs WHERE callback_of = $1`, id)
}

func owed(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return one[int](t, pool, "SELECT count(*) FROM owed_callbacks")
}

// ender is an engine whose handlers end in every way that handlers can.
func ender(t *testing.T, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	end := make(chan struct{})
	inTx := func(ctx context.Context, finish func(pgx.Tx) error) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := finish(tx); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
	c := hasty(handlers(map[string]handler{
		"result": func(_ context.Context, j *work) error {
			return j.SetResult(map[string]any{"n": json.Number("12345678901234567890")})
		},
		"huge": func(_ context.Context, j *work) error { return j.SetResult(strings.Repeat("x", 100<<10)) },
		"intx": func(ctx context.Context, _ *work) error {
			return inTx(ctx, func(tx pgx.Tx) error { return engine.CompleteTx(ctx, tx) })
		},
		"sql": func(ctx context.Context, j *work) error {
			return inTx(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT complete_job($1, $2)", j.ID, j.FencingToken)
				return err
			})
		},
		"fails":  func(context.Context, *work) error { return errors.New("it broke") },
		"broken": func(context.Context, *work) error { return engine.Permanent(errors.New("no such customer")) },
		"flaky": func(_ context.Context, j *work) error {
			if j.Attempt == 1 {
				return errors.New("once")
			}
			return nil
		},
		"listens": func(ctx context.Context, _ *work) error { <-ctx.Done(); return ctx.Err() },
		"deaf":    func(context.Context, *work) error { <-end; return nil },
	}))
	c.Queues, c.StopGrace = []string{"default"}, 300*time.Millisecond
	e := start(t, pool, c)
	t.Cleanup(func() { close(end) })
	return e
}

// TestEveryEndCallsBackOnce, whoever makes it. What is no end calls nobody.
func TestEveryEndCallsBackOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := ender(t, pool)
	c := e.Client()
	stop := func(t *testing.T, id engine.ID) {
		reaches(t, pool, id, "leased")
		if err := c.RequestStop(t.Context(), id, ann); err != nil {
			t.Error(err)
		}
	}
	for name, x := range map[string]struct {
		jobType string
		options engine.EnqueueOptions
		expires time.Duration
		then    func(t *testing.T, id engine.ID)
		state   string
	}{
		"completed":               {jobType: "plain", state: "completed"},
		"completed with a result": {jobType: "result", state: "completed"},
		"completed at last":       {jobType: "flaky", state: "completed"},
		"CompleteTx":              {jobType: "intx", state: "completed"},
		"complete_job":            {jobType: "sql", state: "completed"},
		"exhausted":               {jobType: "fails", options: engine.EnqueueOptions{MaxAttempts: 2}, state: "dead_letter"},
		"permanent":               {jobType: "broken", state: "dead_letter"},
		"expired":                 {jobType: "nobody", expires: 3 * time.Second, state: "dead_letter"},
		"cancelled": {jobType: "nobody", state: "cancelled", then: func(t *testing.T, id engine.ID) {
			for range 2 { // the second finds it cancelled
				if err := c.Cancel(t.Context(), id, ann); err != nil {
					t.Error(err)
				}
			}
		}},
		"cancelled with others": {jobType: "nobody", state: "cancelled", then: func(t *testing.T, id engine.ID) {
			if _, err := c.Operate(t.Context(), engine.OperationSpec{Action: engine.OperateCancel, Select: engine.Selection{IDs: []engine.ID{id}}}, ann); err != nil {
				t.Error(err)
			}
		}},
		"stopped":      {jobType: "listens", state: "cancelled", then: stop},
		"stopped deaf": {jobType: "deaf", state: "cancelled", then: stop},
		"stopped on a worker that does not answer": {jobType: "nobody", state: "cancelled", then: func(t *testing.T, id engine.ID) {
			freeze(t, pool, id)
			stop(t, id)
		}},
		"stopped, and its worker died": {jobType: "nobody", state: "cancelled", then: func(t *testing.T, id engine.ID) {
			run(t, pool, `WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id)
				INSERT INTO job_claims (worker_id, claimed_at, lease_expires_at, job_ids, attempts, crashes, stops)
				SELECT 987655, now() - interval '1 min', now() - interval '1 s', ARRAY[job_id], '{0}', '{0}', ARRAY[job_id] FROM d`, id)
		}},
		"quarantined": {jobType: "nobody", state: "dead_letter", then: func(t *testing.T, id engine.ID) {
			run(t, pool, "UPDATE job_ready SET crashes = 9 WHERE job_id = $1", id)
			lose(t, pool, id)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x.options.CallbackURL, x.options.Priority = hook, engine.PriorityHigh.Ptr()
			if x.expires > 0 {
				x.options.ExpiresAt = time.Now().Add(x.expires)
			}
			id := enqueue(t, e, x.jobType, x.options)
			if x.then != nil {
				x.then(t, id)
			}
			within(t, 30*time.Second, "the job is "+x.state, func() bool { return stateOf(t, pool, id) == x.state })
			if diff := cmp.Diff([]string{"webhook default 3 " + hook + " job." + x.state + " 0"}, callbacks(t, pool, id)); diff != "" {
				t.Errorf("callbacks (-want +got):\n%s", diff)
			}
			if s := one[string](t, pool, "SELECT s.state FROM job_states s JOIN jobs j ON j.id = s.id WHERE j.callback_of = $1", id); s != "pending" {
				t.Errorf("the callback is %s", s)
			}
		})
	}
	enqueue(t, e, "plain", engine.EnqueueOptions{})
	run(t, pool, "DELETE FROM job_claims WHERE worker_id = 987654") // whose lease nobody ends for an hour
	if n := owed(t, pool); n != 0 {
		t.Errorf("%d callbacks are owed", n)
	}
	healthy(t, pool, e)
}

// TestWhatACallbackTells is bounded, and digit for digit.
func TestWhatACallbackTells(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := ender(t, pool)
	data := func(jobType, state string, o engine.EnqueueOptions) map[string]any {
		o.CallbackURL = hook
		id := enqueue(t, e, jobType, o)
		reaches(t, pool, id, state)
		text := one[string](t, pool, "SELECT payload->'body'->>'data' FROM jobs WHERE callback_of = $1", id)
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"created_at", "finished_at"} {
			if at, err := time.Parse(time.RFC3339, fmt.Sprint(m[field])); err != nil || time.Since(at) > time.Minute {
				t.Errorf("%s of %s: %v", field, jobType, m[field])
			}
			delete(m, field)
		}
		if m["id"] != id.String() {
			t.Errorf("id = %v, want %s", m["id"], id)
		}
		delete(m, "id")
		return m
	}
	all := func(jobType, status, attempts, most string, more map[string]any) map[string]any {
		m := map[string]any{"type": jobType, "queue": "default", "priority": json.Number("1"), "status": status, "attempts": json.Number(attempts),
			"max_attempts": json.Number(most), "replays": json.Number("0"), "tags": []any{}}
		for k, v := range more {
			m[k] = v
		}
		return m
	}
	tagged := all("result", "completed", "1", "5", map[string]any{"tags": []any{"a", "b"}, "result": map[string]any{"n": json.Number("12345678901234567890")}})
	for _, x := range []struct {
		got, want map[string]any
	}{
		{data("result", "completed", engine.EnqueueOptions{Tags: []string{"a", "b"}}), tagged},
		{data("plain", "completed", engine.EnqueueOptions{}), all("plain", "completed", "1", "5", nil)},
		{data("huge", "completed", engine.EnqueueOptions{}), all("huge", "completed", "1", "5", map[string]any{"result_omitted": true})},
		{data("flaky", "completed", engine.EnqueueOptions{}), all("flaky", "completed", "2", "5", nil)},
	} {
		if diff := cmp.Diff(x.want, x.got); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}
	}
	dead := data("broken", "dead_letter", engine.EnqueueOptions{MaxAttempts: 3})
	failure, _ := dead["last_error"].(map[string]any)
	if failure["message"] != "no such customer" || failure["fingerprint"] == "" {
		t.Errorf("last_error = %v", failure)
	}
	delete(dead, "last_error")
	if diff := cmp.Diff(all("broken", "dead_letter", "1", "3", map[string]any{"dead_reason": "permanent"}), dead); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

// TestEachLifeCallsBack: a replayed job's next end is told, and what is done to a dead letter is no end.
func TestEachLifeCallsBack(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := ender(t, pool)
	c := e.Client()
	id := enqueue(t, e, "broken", engine.EnqueueOptions{CallbackURL: hook})
	first := "webhook default 1 " + hook + " job.dead_letter 0"
	reaches(t, pool, id, "dead_letter")
	for _, act := range []func(context.Context, engine.ID, engine.Actor) error{c.Discard, c.Restore} {
		if err := act(t.Context(), id, ann); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{first}, callbacks(t, pool, id)); diff != "" {
		t.Fatalf("callbacks (-want +got):\n%s", diff)
	}
	if err := c.Replay(t.Context(), id, ann); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second life has called", func() bool { return len(callbacks(t, pool, id)) == 2 })
	if _, err := c.Operate(t.Context(), engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{IDs: []engine.ID{id}}}, ann); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the third life has called", func() bool { return len(callbacks(t, pool, id)) == 3 })
	reaches(t, pool, id, "dead_letter")
	second, third := strings.TrimSuffix(first, "0")+"1", strings.TrimSuffix(first, "0")+"2"
	if diff := cmp.Diff([]string{first, second, third}, callbacks(t, pool, id)); diff != "" || owed(t, pool) != 0 {
		t.Errorf("%d owed; callbacks (-want +got):\n%s", owed(t, pool), diff)
	}
}

// TestAnEndAndItsCallbackAreOneTransaction: what rolls the end back takes the callback along.
func TestAnEndAndItsCallbackAreOneTransaction(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	seen := make(chan int, 2)
	e := start(t, pool, hasty(handlers(map[string]handler{"aborts": func(ctx context.Context, j *work) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := engine.CompleteTx(ctx, tx); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM jobs WHERE callback_of = $1", j.ID).Scan(&n); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		seen <- n
		if j.Attempt == 1 {
			return tx.Rollback(ctx)
		}
		return tx.Commit(ctx)
	}})))
	id := enqueue(t, e, "aborts", engine.EnqueueOptions{CallbackURL: hook})
	reaches(t, pool, id, "completed")
	if a, b := <-seen, <-seen; a != 1 || b != 1 {
		t.Errorf("the transactions saw %d and %d callbacks, want 1 each", a, b)
	}
	if got := callbacks(t, pool, id); len(got) != 1 || outcomes(t, pool, id) != "failed completed" {
		t.Errorf("callbacks %v of %s", got, outcomes(t, pool, id))
	}
}

// TestACallbackThatCannotBeMadeStaysOwed: the end stands, for its neighbours too, and the leader tries again.
func TestACallbackThatCannotBeMadeStaysOwed(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	run(t, pool, `CREATE FUNCTION no_callbacks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of order'; END $$`)
	run(t, pool, `CREATE TRIGGER no_callbacks BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.callback_of IS NOT NULL) EXECUTE FUNCTION no_callbacks()`)
	e := ender(t, pool)
	ids := map[string]engine.ID{"plain": {}, "result": {}, "intx": {}, "sql": {}}
	for jobType := range ids {
		ids[jobType] = enqueue(t, e, jobType, engine.EnqueueOptions{CallbackURL: hook})
	}
	ids["broken"] = enqueue(t, e, "broken", engine.EnqueueOptions{CallbackURL: hook})
	for jobType, id := range ids {
		state := "completed"
		if jobType == "broken" {
			state = "dead_letter"
		}
		reaches(t, pool, id, state)
		if why := one[string](t, pool, "SELECT error FROM owed_callbacks WHERE job_id = $1 AND failed_at IS NOT NULL", id); why != "out of order" {
			t.Errorf("%s: the callback failed with %q", jobType, why)
		}
	}
	healthy(t, pool, e)
	run(t, pool, "DROP TRIGGER no_callbacks ON jobs")
	within(t, 30*time.Second, "all are made", func() bool { return owed(t, pool) == 0 })
	for jobType, id := range ids {
		if got := callbacks(t, pool, id); len(got) != 1 {
			t.Errorf("%s: callbacks %v", jobType, got)
		}
	}
}

// TestACallbackIsKeptByEveryDoor, and counts as content of a repeated call.
func TestACallbackIsKeptByEveryDoor(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for _, key := range []string{"", "k"} {
		for name, door := range doors(t, pool) {
			done, err := door(engine.RawArgs{Type: "nobody"}, engine.EnqueueOptions{CallbackURL: hook, IdempotencyKey: key})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if got := one[string](t, pool, storedAt, done.ID); got != hook {
				t.Errorf("%s stored %s", name, got)
			}
		}
		for name, sql := range map[string]string{
			"enqueue_job": "SELECT enqueue_job(type => 'nobody', callback_url => $1, idempotency_key => nullif($2, ''))",
			"job_inbox":   "INSERT INTO job_inbox (type, callback_url, idempotency_key) VALUES ('nobody', $1, nullif($2, '')) RETURNING id",
		} {
			if got := one[string](t, pool, storedAt, one[engine.ID](t, pool, sql, hook, key)); got != hook {
				t.Errorf("%s stored %s", name, got)
			}
		}
	}
	if n, all := owed(t, pool), one[int](t, pool, "SELECT count(*) FROM jobs WHERE callback_url IS NOT NULL"); n != all || all < 6 {
		t.Errorf("%d callbacks are owed for %d jobs", n, all)
	}
	c := newClient(t, pool)
	var reused *engine.KeyReusedError
	if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "nobody"}, engine.EnqueueOptions{CallbackURL: hook + "2", IdempotencyKey: "k"}); !errors.As(err, &reused) {
		t.Errorf("the same key with another callback: %v", err)
	}
	o := engine.EnqueueOptions{Unique: engine.Unique{Key: "u", OnConflict: engine.ConflictReplace}}
	var id engine.ID
	for _, u := range []string{hook, "", hook + "3"} {
		o.CallbackURL = u
		done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "nobody"}, o)
		if err != nil {
			t.Fatal(err)
		}
		id = done.ID
		if got, n := one[string](t, pool, storedAt, id), one[int](t, pool, "SELECT count(*) FROM owed_callbacks WHERE job_id = $1", id); got != u && u+got != "none" || n == 1 != (u != "") {
			t.Errorf("replaced with %q: stored %s, %d owed", u, got, n)
		}
	}
}

// TestACallbackThatIsNoneIsRefused, and one of a callback.
func TestACallbackThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	e := ender(t, pool)
	c := e.Client()
	for _, u := range []string{"example.com", "ftp://example.com", "https://", "https:///x", "https://ann:secret@example.com/", "https://exa mple.com/", "https://a.b/ c",
		"https://a.b/\x01", "javascript:alert(1)", "https://a.b/" + strings.Repeat("x", 2048)} {
		var invalid *engine.ValidationError
		if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{CallbackURL: u}); !errors.As(err, &invalid) || !invalid.Has("callback_url", "invalid") && !invalid.Has("callback_url", "too-long") {
			t.Errorf("%.50q: %v", u, err)
		}
		if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 'plain', callback_url => $1)", u); !refusedByCheck(err) {
			t.Errorf("%.50q by SQL: %v", u, err)
		}
	}
	for _, u := range []string{"http://example.com", "HTTPS://example.com:8443/a?b=c#d", "https://[2001:db8::1]:80/", "https://xn--bcher-kva.example/ä"} {
		if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "nobody"}, engine.EnqueueOptions{CallbackURL: u}); err != nil {
			t.Errorf("%s: %v", u, err)
		}
		if _, err := pool.Exec(t.Context(), "SELECT enqueue_job(type => 'nobody', callback_url => $1)", u); err != nil {
			t.Errorf("%s by SQL: %v", u, err)
		}
	}
	id := enqueue(t, e, "plain", engine.EnqueueOptions{CallbackURL: hook})
	reaches(t, pool, id, "completed")
	callback := one[engine.ID](t, pool, "SELECT id FROM jobs WHERE callback_of = $1", id)
	for name, door := range doors(t, pool) {
		var invalid *engine.ValidationError
		if _, err := door(engine.RawArgs{Type: "webhook"}, engine.EnqueueOptions{CallbackURL: hook, CopiedFrom: callback}); !errors.As(err, &invalid) || len(invalid.Fields) != 1 {
			t.Errorf("a callback of a callback, by %s: %v", name, err)
		}
	}
	for name, sql := range map[string]string{
		"enqueue_job": "SELECT enqueue_job(type => 'webhook', callback_url => 'http://a.b', copied_from => $1)",
		"by hand":     "UPDATE jobs SET callback_url = 'http://a.b' WHERE id = $1",
	} {
		if _, err := pool.Exec(t.Context(), sql, callback); !refusedByCheck(err) {
			t.Errorf("a callback of a callback, %s: %v", name, err)
		}
	}
}

// TestTheProgramMayRefuseACallback by its own rule.
func TestTheProgramMayRefuseACallback(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, err := engine.NewClient(engine.ClientConfig{Pool: pool, CheckCallback: func(u string) error {
		if u == hook {
			return errors.New("not there")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{CallbackURL: hook})
	var invalid *engine.ValidationError
	if !errors.As(err, &invalid) || !invalid.Has("callback_url", "refused") || invalid.Fields[0].Detail != "not there" {
		t.Errorf("error = %v", err)
	}
	if _, err = c.Enqueue(t.Context(), engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{CallbackURL: hook + "2"}); err != nil {
		t.Error(err)
	}
}

// TestASuspectCallsBackToo from the child process it runs in, also by CompleteTx.
func TestASuspectCallsBackToo(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	ids := map[string]engine.ID{}
	for jobType, payload := range map[string]string{"neighbour": `{}`, "tx": `{"how":"well"}`, "kill": `{"how":"exit"}`} {
		done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: jobType, Payload: json.RawMessage(payload)}, engine.EnqueueOptions{CallbackURL: hook})
		if err != nil {
			t.Fatal(err)
		}
		ids[jobType] = done.ID
	}
	for _, id := range ids {
		lose(t, pool, id)
	}
	startHost(t, pool, hostOptions{})
	for jobType, state := range map[string]string{"neighbour": "completed", "tx": "completed", "kill": "dead_letter"} {
		comes(t, pool, ids[jobType], state)
		if got := callbacks(t, pool, ids[jobType]); len(got) != 1 {
			t.Errorf("%s: callbacks %v", jobType, got)
		}
	}
}
