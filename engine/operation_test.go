package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

var oncall = engine.Actor{Name: "ann", Source: "console", Reason: "gateway fixed"}

// plantDead writes n dead letters of one cause, as the engine leaves them.
func plantDead(t *testing.T, pool *pgxpool.Pool, n int, fingerprint, jobType, queue string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		WITH j AS (
		  INSERT INTO jobs (id, type, queue, version, max_attempts) SELECT uuid_v7(), $3, $4, 1, 1 FROM generate_series(1, $1) RETURNING id),
		e AS (
		  INSERT INTO job_executions (job_id, fencing_token, attempt, outcome, error_class, error, fingerprint)
		  SELECT j.id, nextval('job_claims_id_seq'), 1, 2, 'GatewayTimeout', 'gateway timeout', $2 FROM j RETURNING job_id, fencing_token)
		INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, fingerprint)
		SELECT e.job_id, e.fencing_token, 1, $4, $3, 'exhausted', 'GatewayTimeout', 'gateway timeout', $2 FROM e`, n, fingerprint, jobType, queue)
	if err != nil {
		t.Fatal(err)
	}
}

// upkeep runs an engine that works on operations and on no job.
func upkeep(t *testing.T, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	return start(t, pool, engine.Config{MaintenanceOnly: true})
}

func operationOf(t *testing.T, c *engine.Client, id engine.ID) engine.Operation {
	t.Helper()
	o, err := c.Operation(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func operate(t *testing.T, c *engine.Client, s engine.OperationSpec) engine.Operation {
	t.Helper()
	o, err := c.Operate(t.Context(), s, oncall)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func ends(t *testing.T, c *engine.Client, id engine.ID, as engine.OperationState) engine.Operation {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		o := operationOf(t, c, id)
		if o.State == as {
			return o
		}
		if o.State != engine.OperationRunning || time.Now().After(end) {
			t.Fatalf("the operation is %s (%s) with %d + %d of %d, want %s", o.State, o.HaltedReason, o.Done, o.PassedOver, o.Total, as)
		}
	}
}

// TestF3AnOperationTouchesExactlyItsSet: what fits later, what has changed since, and what never fitted stay alone.
func TestF3AnOperationTouchesExactlyItsSet(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	plantDead(t, pool, 1200, "fp-a", "charge", "billing")
	plantDead(t, pool, 50, "fp-b", "charge", "billing")
	plantDead(t, pool, 7, "fp-a", "charge", "other")
	c := newClient(t, pool)
	spec := engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{Fingerprint: "fp-a", Queue: "billing"}}
	p, err := c.PreviewOperation(t.Context(), spec)
	if err != nil || p.Total != 1200 || len(p.Groups) != 1 || p.Groups[0].N != 1200 || p.Groups[0].Queue != "billing" || len(p.Groups[0].Samples) != 3 {
		t.Fatalf("preview %+v, %v", p, err)
	}
	if n := one[int](t, pool, `SELECT (SELECT count(*) FROM operations) + (SELECT count(*) FROM operation_jobs) + (SELECT count(*) FROM operator_actions)`); n != 0 {
		t.Fatalf("the preview left %d rows", n)
	}
	spec.Expected = p.Total
	o := operate(t, c, spec)
	// After the cut-off: 30 more die, and one of the set is replayed by hand and dies again.
	plantDead(t, pool, 30, "fp-a", "charge", "billing")
	again := one[string](t, pool, `SELECT job_id::text FROM dead_letter_jobs WHERE fingerprint = 'fp-a' AND queue = 'billing' ORDER BY died_at LIMIT 1`)
	if _, err := pool.Exec(t.Context(), `UPDATE dead_letter_jobs SET died_at = now() WHERE job_id = $1`, again); err != nil {
		t.Fatal(err)
	}
	upkeep(t, pool)
	o = ends(t, c, o.ID, engine.OperationFinished)
	if o.Total != 1200 || o.Done != 1199 || o.PassedOver != 1 || o.EndedAt.IsZero() {
		t.Errorf("operation %+v, want 1199 done and 1 passed over of 1200", o)
	}
	for what, sql := range map[string]string{
		"ready":                   `SELECT count(*) = 1199 FROM job_ready AS r JOIN jobs AS j ON j.id = r.job_id WHERE j.replays = 1 AND j.version = 2`,
		"dead: the later":         `SELECT count(*) = 31 FROM dead_letter_jobs WHERE fingerprint = 'fp-a' AND queue = 'billing'`,
		"dead: other cause":       `SELECT count(*) = 50 FROM dead_letter_jobs WHERE fingerprint = 'fp-b'`,
		"dead: other queue":       `SELECT count(*) = 7 FROM dead_letter_jobs WHERE queue = 'other'`,
		"one act of 1200":         `SELECT count(*) = 1 AND min(affected) = 1200 AND min(action) = 'operation replay' AND min(target) = '` + o.ID.String() + `' FROM operator_actions`,
		"the changed one is told": `SELECT passed_over FROM operation_jobs WHERE job_id = '` + again + `'`,
	} {
		if !one[bool](t, pool, sql) {
			t.Errorf("not so: %s", what)
		}
	}
}

// TestF5AReplayAtARateComesBitByBit: a thousand jobs at 600 a minute are ten a second, however often somebody looks.
func TestF5AReplayAtARateComesBitByBit(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	plantDead(t, pool, 1000, "fp-a", "charge", "billing")
	e := upkeep(t, pool)
	o := operate(t, e.Client(), engine.OperationSpec{Action: engine.OperateReplay, Pace: engine.PaceRate, PerMinute: 600})
	began := o.CreatedAt
	for range 6 {
		time.Sleep(500 * time.Millisecond)
		var ready int
		var passed float64
		if err := pool.QueryRow(t.Context(), `SELECT count(*), extract(epoch FROM clock_timestamp() - $1::timestamptz) FROM job_ready`, began).Scan(&ready, &passed); err != nil {
			t.Fatal(err)
		}
		if most := int(10*passed) + 1; ready > most {
			t.Errorf("after %.2f s %d jobs are back in line, want at most %d", passed, ready, most)
		}
	}
	if n := one[int](t, pool, `SELECT count(*) FROM job_ready`); n < 5 {
		t.Errorf("after 3 s only %d jobs are back in line", n)
	}
	if err := e.Client().StopOperation(t.Context(), o.ID, oncall); err != nil {
		t.Fatal(err)
	}
}

// TestF5ContinuingDoesNotHurryARate: whoever pauses and goes on, time and again, gets no job more than the rate.
func TestF5ContinuingDoesNotHurryARate(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	plantDead(t, pool, 100, "fp-a", "charge", "billing")
	e := upkeep(t, pool)
	o := operate(t, e.Client(), engine.OperationSpec{Action: engine.OperateReplay, Pace: engine.PaceRate, PerMinute: 30})
	for range 10 {
		if err := e.Client().PauseOperation(t.Context(), o.ID, oncall); err != nil {
			t.Fatal(err)
		}
		if err := e.Client().ContinueOperation(t.Context(), o.ID, oncall); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond)
		var ready int
		var passed float64
		if err := pool.QueryRow(t.Context(), `SELECT count(*), extract(epoch FROM clock_timestamp() - $1::timestamptz) FROM job_ready`, o.CreatedAt).Scan(&ready, &passed); err != nil {
			t.Fatal(err)
		}
		if most := int(passed/2) + 1; ready > most {
			t.Fatalf("after %.2f s %d jobs are back in line, want at most %d", passed, ready, most)
		}
	}
	eventually(t, "it goes on", func() bool { return one[int](t, pool, `SELECT count(*) FROM job_ready`) >= 2 })
}

// TestACanaryHaltsWhileTheTargetIsBroken, and goes through once it is mended.
func TestACanaryHaltsWhileTheTargetIsBroken(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	plantDead(t, pool, 300, "fp-a", "charge", "billing")
	var mended atomic.Bool
	ws := engine.NewWorkers()
	engine.RegisterType(ws, "charge", engine.WorkerFunc[engine.RawArgs](func(context.Context, *engine.Job[engine.RawArgs]) error {
		if mended.Load() {
			return nil
		}
		return errors.New("gateway timeout")
	}), engine.TypeOptions{})
	e := start(t, pool, engine.Config{Workers: ws})
	o := operate(t, e.Client(), engine.OperationSpec{Action: engine.OperateReplay, Pace: engine.PaceCanary})
	o = ends(t, e.Client(), o.ID, engine.OperationHalted)
	if o.Done != 5 || !strings.Contains(o.HaltedReason, "5 of the last 5") {
		t.Errorf("halted after %d: %q, want after the first 5", o.Done, o.HaltedReason)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM jobs WHERE replays > 0`); n != 5 {
		t.Errorf("%d jobs were replayed, want 5", n)
	}
	mended.Store(true)
	if err := e.Client().ContinueOperation(t.Context(), o.ID, oncall); err != nil {
		t.Fatal(err)
	}
	o = ends(t, e.Client(), o.ID, engine.OperationFinished)
	if o.Done != 300 || o.Step <= 40 {
		t.Errorf("finished with %d done and a last step of %d", o.Done, o.Step)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM job_executions WHERE outcome = 1`); n != 295 {
		t.Errorf("%d jobs completed, want the 295 that were not replayed against the broken target", n)
	}
	if acts := one[string](t, pool, `SELECT string_agg(action || ' by ' || actor, ', ' ORDER BY id) FROM operator_actions`); acts !=
		"operation replay by ann, operation halt by operation, operation continue by ann" {
		t.Errorf("audit trail: %s", acts)
	}
}

func TestTwentyOperationsAtOnceDoubleNothing(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	plantDead(t, pool, 2000, "fp-a", "charge", "billing")
	engines := []*engine.Engine{upkeep(t, pool), upkeep(t, pool)}
	ids := make([]engine.ID, 20)
	var callers sync.WaitGroup
	for i := range ids {
		callers.Go(func() {
			o, err := engines[i%2].Client().Operate(t.Context(), engine.OperationSpec{Action: engine.OperateReplay}, oncall)
			if err != nil && !errors.Is(err, engine.ErrNothingSelected) {
				t.Error(err)
			}
			ids[i] = o.ID
		})
	}
	callers.Wait()
	done := 0
	for _, id := range ids {
		if id != (engine.ID{}) {
			done += ends(t, engines[0].Client(), id, engine.OperationFinished).Done
		}
	}
	if n := one[int](t, pool, `SELECT count(*) FROM job_ready AS r JOIN jobs AS j ON j.id = r.job_id WHERE j.replays = 1`); n != 2000 || done != 2000 {
		t.Errorf("%d jobs were replayed once, the operations say %d; want 2000", n, done)
	}
}

func TestAnOperationOutlivesItsServer(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	plantDead(t, pool, 60, "fp-a", "charge", "billing")
	first, err := engine.New(engine.Config{Pool: pool, MaintenanceOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := operate(t, first.Client(), engine.OperationSpec{Action: engine.OperateReplay, Pace: engine.PaceRate, PerMinute: 1200})
	eventually(t, "it has begun", func() bool { return one[int](t, pool, `SELECT done FROM operations`) > 3 })
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if done := one[int](t, pool, `SELECT done FROM operations`); done >= 60 {
		t.Fatalf("all %d were done before the server ended", done)
	}
	o = ends(t, upkeep(t, pool).Client(), o.ID, engine.OperationFinished)
	if n := one[int](t, pool, `SELECT count(*) FROM job_ready AS r JOIN jobs AS j ON j.id = r.job_id WHERE j.replays = 1`); n != 60 || o.Done != 60 {
		t.Errorf("%d replayed once, %d done, want 60", n, o.Done)
	}
}

func TestOperationsOnWaitingJobs(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	for i := range 40 {
		o := engine.EnqueueOptions{Queue: []string{"mail", "other"}[i%2]}
		if i >= 20 {
			o.Delay = time.Hour
		}
		if _, err := c.Enqueue(t.Context(), engine.RawArgs{Type: "email"}, o); err != nil {
			t.Fatal(err)
		}
	}
	upkeep(t, pool)
	now := ends(t, c, operate(t, c, engine.OperationSpec{Action: engine.OperateRunNow, Select: engine.Selection{Queue: "mail"}}).ID, engine.OperationFinished)
	if n := one[int](t, pool, `SELECT count(*) FROM job_ready WHERE queue = 'mail'`); now.Total != 10 || n != 20 {
		t.Errorf("run now: %d of %d, %d ready in mail, want 10 and 20", now.Done, now.Total, n)
	}
	ids := []engine.ID{one[engine.ID](t, pool, `SELECT job_id FROM job_ready WHERE queue = 'other' ORDER BY seq LIMIT 1`)}
	named := ends(t, c, operate(t, c, engine.OperationSpec{Action: engine.OperateCancel, Select: engine.Selection{IDs: ids}}).ID, engine.OperationFinished)
	rest := ends(t, c, operate(t, c, engine.OperationSpec{Action: engine.OperateCancel, Select: engine.Selection{Queue: "other"}}).ID, engine.OperationFinished)
	if n := one[int](t, pool, `SELECT count(*) FROM job_states WHERE state = 'cancelled' AND queue = 'other'`); named.Done != 1 || rest.Done != 19 || n != 20 {
		t.Errorf("cancel: %d, then %d, %d cancelled; want 1, 19, 20", named.Done, rest.Done, n)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM job_states WHERE state = 'pending' AND queue = 'mail'`); n != 20 {
		t.Errorf("%d jobs of mail wait, want 20", n)
	}
	plantDead(t, pool, 4, "fp-a", "charge", "billing")
	gone := ends(t, c, operate(t, c, engine.OperationSpec{Action: engine.OperateDiscard, Select: engine.Selection{Type: "charge"}}).ID, engine.OperationFinished)
	if n := one[int](t, pool, `SELECT count(*) FROM dead_letter_jobs WHERE discarded_at IS NOT NULL`); gone.Done != 4 || n != 4 {
		t.Errorf("discard: %d, %d rows; want 4", gone.Done, n)
	}
}

// TestOperationsAreSteered tries each act in each state.
func TestOperationsAreSteered(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	acts := map[string]func(context.Context, engine.ID, engine.Actor) error{"pause": c.PauseOperation, "continue": c.ContinueOperation, "stop": c.StopOperation}
	allowed := map[engine.OperationState]map[string]engine.OperationState{
		engine.OperationRunning:  {"pause": engine.OperationPaused, "stop": engine.OperationStopped},
		engine.OperationPaused:   {"continue": engine.OperationRunning, "stop": engine.OperationStopped},
		engine.OperationHalted:   {"continue": engine.OperationRunning, "stop": engine.OperationStopped},
		engine.OperationStopped:  {},
		engine.OperationFinished: {},
	}
	for state, ways := range allowed {
		for name, act := range acts {
			plantDead(t, pool, 1, "fp-a", "charge", "billing")
			o := operate(t, c, engine.OperationSpec{Action: engine.OperateReplay})
			if _, err := pool.Exec(t.Context(), `UPDATE operations SET state = $2, halted_reason = CASE WHEN $2 = 'halted' THEN 'why' END,
				ended_at = CASE WHEN $2 IN ('stopped', 'finished') THEN now() END WHERE id = $1`, o.ID, string(state)); err != nil {
				t.Fatal(err)
			}
			before := one[int](t, pool, `SELECT count(*) FROM operator_actions`)
			err := act(t.Context(), o.ID, oncall)
			got, acted := operationOf(t, c, o.ID).State, one[int](t, pool, `SELECT count(*) FROM operator_actions`)-before
			want, ok := ways[name]
			var refused *engine.OperationStateError
			switch {
			case ok && (err != nil || got != want || acted != 1):
				t.Errorf("%s a %s one: %v, it is %s, %d acts recorded; want %s and 1", name, state, err, got, acted, want)
			case !ok && (!errors.As(err, &refused) || refused.State != state || got != state || acted != 0):
				t.Errorf("%s a %s one: %v, it is %s, %d acts recorded; want a refusal", name, state, err, got, acted)
			}
		}
	}
	if err := c.PauseOperation(t.Context(), engine.ID{1}, oncall); !errors.Is(err, engine.ErrOperationNotFound) {
		t.Errorf("pause what is not there: %v", err)
	}
}

func TestOperationsAreCheckedBeforeAnythingHappens(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	plantDead(t, pool, 150, "fp-a", "charge", "billing")
	for _, bad := range []struct {
		field string
		spec  engine.OperationSpec
	}{
		{"action", engine.OperationSpec{}}, {"action", engine.OperationSpec{Action: "delete"}},
		{"pace", engine.OperationSpec{Action: engine.OperateReplay, Pace: "fast"}}, {"pace", engine.OperationSpec{Action: engine.OperateCancel, Pace: engine.PaceCanary}},
		{"per_minute", engine.OperationSpec{Action: engine.OperateReplay, Pace: engine.PaceRate}},
		{"per_minute", engine.OperationSpec{Action: engine.OperateReplay, Pace: engine.PaceRate, PerMinute: 1_000_001}},
		{"per_minute", engine.OperationSpec{Action: engine.OperateReplay, PerMinute: 5}},
		{"fingerprint", engine.OperationSpec{Action: engine.OperateCancel, Select: engine.Selection{Fingerprint: "fp-a"}}},
		{"dead_reason", engine.OperationSpec{Action: engine.OperateRunNow, Select: engine.Selection{Reason: engine.ReasonPoison}}},
		{"ids", engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{IDs: make([]engine.ID, engine.MaxSelectedIDs+1)}}},
		{"expected", engine.OperationSpec{Action: engine.OperateReplay, Expected: -1}},
	} {
		var v *engine.ValidationError
		if _, err := c.Operate(t.Context(), bad.spec, oncall); !errors.As(err, &v) || v.Fields[0].Field != bad.field {
			t.Errorf("%+v: %v, want a refusal of %s", bad.spec, err, bad.field)
		}
	}
	if _, err := c.Operate(t.Context(), engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{Queue: "nowhere"}}, oncall); !errors.Is(err, engine.ErrNothingSelected) {
		t.Errorf("an empty set: %v", err)
	}
	for expected, moved := range map[int]bool{150: false, 137: false, 136: true, 166: false, 167: true, 1: true} {
		var m *engine.CountMovedError
		_, err := c.Operate(t.Context(), engine.OperationSpec{Action: engine.OperateReplay, Expected: expected}, oncall)
		if moved != errors.As(err, &m) || m != nil && (m.Total != 150 || m.Expected != expected) {
			t.Errorf("expected %d of 150: %v", expected, err)
		}
	}
	if n := one[int](t, pool, `SELECT count(*) FROM operations`); n != 3 {
		t.Errorf("%d operations were made, want 3", n)
	}
}

// TestAnOperationPassesOverWhoseKeyIsHeld: a replay means enqueue, and of two dead jobs with one key one can come back.
func TestAnOperationPassesOverWhoseKeyIsHeld(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := engine.NewWorkers()
	engine.RegisterType(ws, "charge", engine.WorkerFunc[engine.RawArgs](func(context.Context, *engine.Job[engine.RawArgs]) error {
		return engine.Permanent(errors.New("no"))
	}), engine.TypeOptions{})
	e := start(t, pool, engine.Config{Workers: ws})
	for i := range 3 {
		o := engine.EnqueueOptions{Unique: engine.Unique{Key: "order-1"}}
		if i == 2 {
			o.Unique.Key = "order-2"
		}
		if _, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: "charge"}, o); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it dies and frees its key", func() bool { return one[int](t, pool, `SELECT count(*) FROM dead_letter_jobs`) == i+1 })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	c := upkeep(t, pool).Client()
	o := ends(t, c, operate(t, c, engine.OperationSpec{Action: engine.OperateReplay}).ID, engine.OperationFinished)
	if n := one[int](t, pool, `SELECT count(*) FROM job_ready`); o.Done != 2 || o.PassedOver != 1 || n != 2 {
		t.Errorf("%d done, %d passed over, %d ready; want 2, 1 and 2", o.Done, o.PassedOver, n)
	}
}

// TestAnOperationOnASearch: of what its action is for, exactly what matches, as of the cut-off, in dense numbers.
func TestAnOperationOnASearch(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c := newClient(t, pool)
	plantDead(t, pool, 2500, "fp1", "charge", "billing")
	plantDead(t, pool, 10, "fp2", "charge", "billing")
	plantDead(t, pool, 7, "fp1", "charge", "other")
	if _, err := pool.Exec(t.Context(), "UPDATE jobs SET payload = jsonb_build_object('customer', jsonb_build_object('id', 5)) WHERE id IN (SELECT job_id FROM dead_letter_jobs WHERE fingerprint = 'fp2' LIMIT 4)"); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{
		"fp:fp1 queue:billing": 2500, "fp:fp1": 2507, "-fp:fp1": 10, "payload.customer.id:5": 4, `error:"GATEWAY timeout" queue:other`: 7, "state:dead": 2517, "attempt:>1": 0, "state:ready": 0,
	} {
		spec := engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{Query: query}}
		p, err := c.PreviewOperation(t.Context(), spec)
		if want == 0 {
			if !errors.Is(err, engine.ErrNothingSelected) {
				t.Errorf("%s: %d jobs, %v, want none", query, p.Total, err)
			}
			continue
		}
		if err != nil || p.Total != want {
			t.Errorf("%s: %d jobs, %v, want %d", query, p.Total, err, want)
		}
	}
	o := operate(t, c, engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{Query: "-fp:fp1", Type: "charge"}})
	if o.Total != 10 || o.Select.Query != "-fp:fp1" {
		t.Errorf("the operation has %d jobs, query %q", o.Total, o.Select.Query)
	}
	if got := one[string](t, pool, "SELECT concat_ws(' ', count(*), min(n), max(n)) FROM operation_jobs WHERE operation_id = $1", o.ID); got != "10 1 10" {
		t.Errorf("its set: %s, want 10 jobs from 1 to 10", got)
	}
	upkeep(t, pool)
	ends(t, c, o.ID, engine.OperationFinished)
	if n := one[int](t, pool, "SELECT count(*) FROM dead_letter_jobs WHERE fingerprint = 'fp2'"); n != 0 {
		t.Errorf("%d of its jobs are dead still", n)
	}
	var bad *engine.ValidationError
	if _, err := c.PreviewOperation(t.Context(), engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{Query: "queu:a"}}); !errors.As(err, &bad) || !bad.Has("q", "invalid") {
		t.Errorf("a mistake: %v", err)
	}
}
