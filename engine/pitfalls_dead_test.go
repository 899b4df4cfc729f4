package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

func TestD1DelaysStayInBounds(t *testing.T) {
	t.Parallel()
	for _, most := range []time.Duration{time.Second, 300 * time.Second, engine.MaxDelay, math.MaxInt64 - 1, math.MaxInt64} {
		for _, p := range []engine.RetryPolicy{engine.FullJitter{Base: time.Second, Max: most}, engine.Exponential{Base: time.Second, Max: most}} {
			for _, n := range []int{math.MinInt, -1, 0, 1, 33, 34, 62, 63, 64, 1000, 1 << 31, math.MaxInt} {
				least, upTo, ok := engine.DelayBounds(p, n)
				if !ok || least < 0 || least > upTo || upTo > min(most, engine.MaxDelay) {
					t.Fatalf("DelayBounds(%+v, %d) = %v to %v, %t", p, n, least, upTo, ok)
				}
				for range 20 {
					if d := p.Delay(n); d < 0 || d > most {
						t.Fatalf("%+v.Delay(%d) = %v, want 0 to %v", p, n, d, most)
					} else if d < least || d > upTo {
						t.Fatalf("%+v.Delay(%d) = %v, but DelayBounds says %v to %v", p, n, d, least, upTo)
					}
				}
			}
		}
	}
	pool := dbtest.New(t)
	for _, p := range []engine.RetryPolicy{engine.FullJitter{Base: 0, Max: time.Second}, engine.FullJitter{Base: -1, Max: time.Second},
		engine.FullJitter{Base: 2 * time.Second, Max: time.Second}, engine.Exponential{Base: 0, Max: time.Second}} {
		if _, err := engine.New(engine.Config{Pool: pool, Workers: handlers(nil), Retry: p}); err == nil || !strings.Contains(err.Error(), "Retry") {
			t.Errorf("New with %+v: %v, want a refusal", p, err)
		}
	}
}

// TestD2FullJitterIsUniform sorts 40,000 samples into 20 boxes; chi-squared with 19 degrees of freedom is above 50 once
// in ten thousand runs.
func TestD2FullJitterIsUniform(t *testing.T) {
	t.Parallel()
	p := engine.FullJitter{Base: time.Second, Max: 5 * time.Minute}
	for n, ceiling := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 3: 8 * time.Second, 9: 5 * time.Minute, 40: 5 * time.Minute} {
		const samples, boxes = 40_000, 20
		var counts [boxes]float64
		for range samples {
			d := p.Delay(n)
			if d < 0 || d > ceiling {
				t.Fatalf("Delay(%d) = %v, above %v", n, d, ceiling)
			}
			counts[min(int(d*boxes/ceiling), boxes-1)]++
		}
		chi := 0.0
		for _, c := range counts {
			chi += (c - samples/boxes) * (c - samples/boxes) / (samples / boxes)
		}
		if chi > 50 {
			t.Errorf("Delay(%d): chi-squared %.1f over %v", n, chi, counts)
		}
	}
}

func TestD2ProcessesDoNotShareASeed(t *testing.T) {
	t.Parallel()
	first, second := runChild(t, "delays", nil), runChild(t, "delays", nil)
	if len(strings.Fields(first)) != 5 || first == second {
		t.Errorf("two processes wait %q and %q", first, second)
	}
}

// TestF1ReplayRunsWhateverTheReason kills a job in each way, and replays it.
func TestF1ReplayRunsWhateverTheReason(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var healed atomic.Bool
	ws := handlers(map[string]handler{"ill": func(_ context.Context, j *work) error {
		switch {
		case healed.Load() && (j.Attempt != 1 || j.Crashes != 0):
			return engine.Permanent(fmt.Errorf("attempt %d, crashes %d after the replay", j.Attempt, j.Crashes))
		case healed.Load():
			return nil
		}
		var args struct{ How string }
		if err := json.Unmarshal(j.Payload, &args); err != nil {
			return err
		}
		if args.How == "permanent" {
			return engine.Permanent(errors.New("ill"))
		}
		return errors.New("ill")
	}})
	e := start(t, pool, hasty(ws))
	eventually(t, "it leads", func() bool { return e.Status().Leader })
	ids := map[engine.Reason]engine.ID{}
	for _, reason := range []engine.Reason{engine.ReasonExhausted, engine.ReasonPermanent, engine.ReasonPoison, engine.ReasonExpired} {
		o := engine.EnqueueOptions{MaxAttempts: 2, Queue: string(reason)}
		if reason == engine.ReasonExpired || reason == engine.ReasonPoison {
			if _, err := pool.Exec(t.Context(), "INSERT INTO queues (name, paused_at) VALUES ($1, now())", o.Queue); err != nil {
				t.Fatal(err)
			}
		}
		if reason == engine.ReasonExpired {
			o.ExpiresAt = time.Now().Add(100 * time.Millisecond)
		}
		done, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: "ill", Payload: json.RawMessage(`{"How":"` + string(reason) + `"}`)}, o)
		if err != nil {
			t.Fatal(err)
		}
		ids[reason] = done.ID
	}
	if _, err := pool.Exec(t.Context(), "UPDATE job_ready SET crashes = 9 WHERE queue = 'poison'"); err != nil {
		t.Fatal(err)
	}
	lose(t, pool, ids[engine.ReasonPoison])
	time.Sleep(150 * time.Millisecond)
	if _, err := pool.Exec(t.Context(), "DELETE FROM queues WHERE name = 'expired'"); err != nil {
		t.Fatal(err)
	}
	tokens := map[engine.Reason]int64{}
	for reason, id := range ids {
		reaches(t, pool, id, "dead_letter")
		if got := one[string](t, pool, "SELECT reason FROM dead_letter_jobs WHERE job_id = $1", id); got != string(reason) {
			t.Errorf("reason = %s, want %s", got, reason)
		}
		tokens[reason] = one[int64](t, pool, "SELECT fencing_token FROM job_states WHERE id = $1", id)
	}
	healed.Store(true)
	if _, err := pool.Exec(t.Context(), "DELETE FROM queues"); err != nil {
		t.Fatal(err)
	}
	for reason, id := range ids {
		history := outcomes(t, pool, id)
		if err := e.Client().Replay(t.Context(), id, engine.Actor{Name: "test", Reason: "healed"}); err != nil {
			t.Fatal(err)
		}
		reaches(t, pool, id, "completed")
		if got := outcomes(t, pool, id); got != history+" completed" {
			t.Errorf("%s: outcomes = %s, want %s completed", reason, got, history)
		}
		if token := one[int64](t, pool, "SELECT fencing_token FROM job_states WHERE id = $1", id); token <= tokens[reason] {
			t.Errorf("%s: token %d after %d", reason, token, tokens[reason])
		}
		if n := one[int](t, pool, "SELECT replays FROM jobs WHERE id = $1", id); n != 1 {
			t.Errorf("%s: replays = %d", reason, n)
		}
		if n := one[int](t, pool, "SELECT count(*) FROM operator_actions WHERE target = $1 AND action = 'replay' AND actor = 'test' AND reason = 'healed'", id.String()); n != 1 {
			t.Errorf("%s: %d audit rows", reason, n)
		}
	}
	healthy(t, pool, e)
}

// refuseDeaths makes moves to the dead letters fail half-way, after the execution row is written.
func refuseDeaths(t *testing.T, pool *pgxpool.Pool, condition string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
		CREATE TRIGGER disk_full BEFORE INSERT ON dead_letter_jobs FOR EACH ROW WHEN (`+condition+`) EXECUTE FUNCTION disk_full()`)
	if err != nil {
		t.Fatal(err)
	}
}

func TestF4AFailingMoveIsTriedAgain(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"doomed": func(context.Context, *work) error { return engine.Permanent(errors.New("no")) }})
	e := start(t, pool, hasty(ws))
	refuseDeaths(t, pool, "true")
	id := enqueue(t, e, "doomed", engine.EnqueueOptions{})
	eventually(t, "it runs", func() bool { return stateOf(t, pool, id) == "leased" })
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s := stateOf(t, pool, id); s != "leased" {
			t.Fatalf("while the move fails: %s", s)
		}
	}
	if got := outcomes(t, pool, id); got != "" {
		t.Fatalf("while the move fails: %s", got)
	}
	if _, err := pool.Exec(t.Context(), "DROP TRIGGER disk_full ON dead_letter_jobs"); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, id, "dead_letter")
	if got := outcomes(t, pool, id); got != "failed" {
		t.Errorf("outcomes = %s, want one failure", got)
	}
	healthy(t, pool, e)
}

// TestF4ALockTimeoutOnTheWayIsTriedAgain holds the table of the dead against everybody.
func TestF4ALockTimeoutOnTheWayIsTriedAgain(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"doomed": func(context.Context, *work) error { return engine.Permanent(errors.New("no")) }})
	c := hasty(ws)
	c.DBTimeout = 300 * time.Millisecond
	e := start(t, pool, c)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK dead_letter_jobs IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	id := enqueue(t, e, "doomed", engine.EnqueueOptions{})
	time.Sleep(time.Second)
	if s := stateOf(t, pool, id); s != "leased" {
		t.Errorf("while the table is locked: %s", s)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, id, "dead_letter")
	if got := outcomes(t, pool, id); got != "failed" {
		t.Errorf("outcomes = %s, want one failure", got)
	}
	healthy(t, pool, e)
}

// TestF4OneMoveThatFailsForLongHoldsUpNobodyElse: the others that ended meanwhile are written, and lost jobs are taken back.
func TestF4OneMoveThatFailsForLongHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ws := handlers(map[string]handler{"doomed": func(context.Context, *work) error { return engine.Permanent(errors.New("no")) }})
	e := start(t, pool, hasty(ws))
	refuseDeaths(t, pool, "NEW.queue = 'broken'")
	broken := enqueue(t, e, "doomed", engine.EnqueueOptions{Queue: "broken"})
	eventually(t, "it runs", func() bool { return stateOf(t, pool, broken) == "leased" })
	time.Sleep(200 * time.Millisecond)
	var ids []engine.ID
	for range 10 {
		ids = append(ids, enqueue(t, e, "plain", engine.EnqueueOptions{}), enqueue(t, e, "doomed", engine.EnqueueOptions{}))
	}
	lost := enqueue(t, e, "elsewhere", engine.EnqueueOptions{})
	lose(t, pool, lost)
	eventually(t, "20 others end", func() bool {
		return one[int](t, pool, "SELECT count(DISTINCT job_id) FROM job_executions WHERE job_id = ANY($1::uuid[])", ids) == 20
	})
	reaches(t, pool, lost, "pending")
	if _, err := pool.Exec(t.Context(), "DROP TRIGGER disk_full ON dead_letter_jobs"); err != nil {
		t.Fatal(err)
	}
	reaches(t, pool, broken, "dead_letter")
	healthy(t, pool, e)
}

// TestF6EveryDeathIsAnnouncedOnce counts observer calls and log lines for each way to die.
func TestF6EveryDeathIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	log, watch := &lines{}, newWatcher()
	ws := handlers(map[string]handler{
		"exhausted": func(context.Context, *work) error { return errors.New("again") },
		"permanent": func(context.Context, *work) error { return engine.Permanent(errors.New("no")) },
	})
	c := hasty(ws)
	c.Log, c.Observer = log.logger(), watch
	e := start(t, pool, c)
	eventually(t, "it leads", func() bool { return e.Status().Leader })
	if _, err := pool.Exec(t.Context(), "INSERT INTO queues (name, paused_at) VALUES ('held', now())"); err != nil {
		t.Fatal(err)
	}
	ids := map[string]engine.ID{
		"exhausted": enqueue(t, e, "exhausted", engine.EnqueueOptions{MaxAttempts: 2}),
		"permanent": enqueue(t, e, "permanent", engine.EnqueueOptions{}),
		"poison":    enqueue(t, e, "plain", engine.EnqueueOptions{Queue: "held"}),
		"expired":   enqueue(t, e, "plain", engine.EnqueueOptions{Queue: "late", ExpiresAt: time.Now().Add(time.Second), Delay: 950 * time.Millisecond}),
	}
	if _, err := pool.Exec(t.Context(), "UPDATE job_scheduled SET run_at = run_at + interval '500 ms'; UPDATE job_ready SET crashes = 9 WHERE queue = 'held'"); err != nil {
		t.Fatal(err)
	}
	lose(t, pool, ids["poison"])
	for reason, id := range ids {
		reaches(t, pool, id, "dead_letter")
		eventually(t, "the log line of "+reason, func() bool {
			return len(log.with(map[string]any{"msg": engine.LogJobFailedPermanently, "level": "ERROR", "job_id": id.String(), "reason": reason})) == 1
		})
	}
	want := map[string]int{"default exhausted exhausted": 1, "default permanent permanent": 1, "held plain poison": 1, "late plain expired": 1}
	if got := watch.deaths(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("deaths = %v, want %v", got, want)
	}
	if n := len(log.with(map[string]any{"msg": engine.LogJobFailedPermanently})); n != 4 {
		t.Errorf("%d lines of death, want 4", n)
	}
}

func TestDiscardedAtOnceIsStillCountedAndRestorable(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	watch := newWatcher()
	ws := handlers(map[string]handler{"doomed": func(context.Context, *work) error { return engine.Permanent(errors.New("no")) }})
	c := hasty(ws)
	c.DiscardDead, c.Observer = true, watch
	e := start(t, pool, c)
	id := enqueue(t, e, "doomed", engine.EnqueueOptions{})
	reaches(t, pool, id, "dead_letter")
	var state *engine.StateError
	if err := e.Client().Replay(t.Context(), id, engine.Actor{Name: "test"}); !errors.As(err, &state) || !state.Discarded {
		t.Errorf("Replay = %v, want a StateError of a discarded one", err)
	}
	if err := e.Client().Restore(t.Context(), id, engine.Actor{Name: "test"}); err != nil {
		t.Error(err)
	}
	if err := e.Client().Replay(t.Context(), id, engine.Actor{Name: "test"}); err != nil {
		t.Error(err)
	}
	eventually(t, "it died twice", func() bool { return watch.deaths()["default doomed permanent"] == 2 })
}

// TestManyReplaysOfOneJobRunItOnce: only one of many replays gets a job, and each caller is told the truth.
func TestManyReplaysOfOneJobRunItOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	var ran atomic.Int64
	ws := handlers(map[string]handler{"doomed": func(context.Context, *work) error {
		if ran.Add(1) == 1 {
			return engine.Permanent(errors.New("no"))
		}
		return nil
	}})
	e := start(t, pool, hasty(ws))
	id := enqueue(t, e, "doomed", engine.EnqueueOptions{})
	reaches(t, pool, id, "dead_letter")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var answers []string
	for range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := e.Client().Replay(t.Context(), id, engine.Actor{Name: "test"})
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, fmt.Sprintf("%T", err))
		}()
	}
	wg.Wait()
	reaches(t, pool, id, "completed")
	slices.Sort(answers)
	if want := append(slices.Repeat([]string{"*engine.StateError"}, 15), "<nil>"); slices.Compare(slices.Sorted(slices.Values(answers)), slices.Sorted(slices.Values(want))) != 0 {
		t.Errorf("answers = %v", answers)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM operator_actions"); n != 1 || ran.Load() != 2 {
		t.Errorf("%d audit rows and %d runs, want 1 and 2", n, ran.Load())
	}
}
