package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/enginetest"
)

func job(jobType, payload string) engine.RawArgs {
	return engine.RawArgs{Type: jobType, Payload: []byte(payload)}
}

func unique(key string, on engine.OnConflict) engine.Unique {
	return engine.Unique{Key: key, OnConflict: on}
}

var tomorrow = time.Now().Add(24 * time.Hour).Truncate(time.Second)

// calls are made one after the other, against a client and a recorder.
var calls = [][]engine.EnqueueItem{
	{{Args: job("mail", `{"a":1}`)}},
	{{Args: job("mail", `{"a":1}`), Options: engine.EnqueueOptions{Queue: "q", Priority: engine.PriorityHigh.Ptr(), MaxAttempts: 7, Delay: time.Hour, Tags: []string{"x"}}}},
	{{Args: job("mail", `{"a":1}`), Options: engine.EnqueueOptions{ScheduledAt: tomorrow}}},
	{{Args: job("mail", `{"a":1}`), Options: engine.EnqueueOptions{ScheduledAt: time.Unix(1, 0)}}},
	// What is refused.
	{{Args: job("no type!", `[]`), Options: engine.EnqueueOptions{Queue: "-", MaxAttempts: 101, Timeout: time.Nanosecond, Tags: []string{""}, Delay: -1}}},
	{{Args: job("mail", `{"a":"\u0000"}`)}},
	{{Args: job("mail", `{"a":"`+strings.Repeat("x", engine.DefaultPayloadMaxBytes)+`"}`)}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{Unique: engine.Unique{Scope: "planet"}}}},
	{{Args: job("unknown_to_all", `{}`)}},
	// Idempotency keys.
	{{Args: job("mail", `{"a":1,"b":[1.50,2e2]}`), Options: engine.EnqueueOptions{IdempotencyKey: "k"}}},
	{{Args: job("mail", ` {"b":[15.0e-1,200], "a":0, "a":1}`), Options: engine.EnqueueOptions{IdempotencyKey: "k"}}},
	{{Args: job("mail", `{"a":1,"b":[1.5,200]}`), Options: engine.EnqueueOptions{IdempotencyKey: "k"}}},
	{{Args: job("mail", `{"a":1,"b":[1.50,200]}`), Options: engine.EnqueueOptions{IdempotencyKey: "k", Queue: "other"}}},
	{{Args: job("mail", `{"a":1,"b":[1.50,200]}`), Options: engine.EnqueueOptions{IdempotencyKey: "k", MaxAttempts: 5}}},
	{{Args: job("mail", `{"a":1,"b":[1.50,200]}`), Options: engine.EnqueueOptions{IdempotencyKey: "K"}}},
	{{Args: job("mail", `{"n":-0.0,"m":1e-3}`), Options: engine.EnqueueOptions{IdempotencyKey: "zero"}}},
	{{Args: job("mail", `{"n":0.0,"m":0.001}`), Options: engine.EnqueueOptions{IdempotencyKey: "zero"}}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "later", Delay: time.Hour}}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "later", Delay: time.Hour}}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "later", Delay: 2 * time.Hour}}},
	// Unique keys.
	{{Args: job("mail", `{"v":1}`), Options: engine.EnqueueOptions{Unique: unique("u", ""), Delay: time.Hour}}},
	{{Args: job("mail", `{"v":2}`), Options: engine.EnqueueOptions{Unique: unique("u", "return"), Queue: "other"}}},
	{{Args: job("mail", `{"v":2}`), Options: engine.EnqueueOptions{Unique: unique("u", "reject")}}},
	{{Args: job("sms", `{"v":2}`), Options: engine.EnqueueOptions{Unique: unique("u", "reject")}}},
	{{Args: job("mail", `{"v":3}`), Options: engine.EnqueueOptions{Unique: unique("u", "replace"), Queue: "new", MaxAttempts: 9}}},
	{{Args: job("mail", `{"v":3}`), Options: engine.EnqueueOptions{Unique: unique("u", "replace"), IdempotencyKey: "both"}}},
	{{Args: job("mail", `{"v":3}`), Options: engine.EnqueueOptions{Unique: unique("u", "replace"), IdempotencyKey: "both"}}},
	{{Args: job("mail", `{"v":4}`), Options: engine.EnqueueOptions{Unique: unique("u", "reject"), IdempotencyKey: "not kept"}}},
	{{Args: job("mail", `{"v":5}`), Options: engine.EnqueueOptions{IdempotencyKey: "not kept"}}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{Unique: engine.Unique{Key: "u", Scope: engine.UniqueGlobal, Window: 60 * 24 * time.Hour}}}},
	{{Args: job("sms", `{}`), Options: engine.EnqueueOptions{Unique: engine.Unique{Key: "u", Scope: engine.UniqueGlobal, OnConflict: "replace"}}}},
	// Many: all or none, keys inside the batch too.
	{{Args: job("mail", `{}`)}, {Args: job("sms", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "k2"}}},
	{{Args: job("mail", `{}`)}, {Args: job("mail", `{}`), Options: engine.EnqueueOptions{Queue: "!"}}, {Args: job("", `{}`)}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "k3"}}, {Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "k3"}}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "k4"}}, {Args: job("sms", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "k4"}}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "k5"}}, {Args: job("mail", `{"x":1}`), Options: engine.EnqueueOptions{IdempotencyKey: "k2"}}},
	{{Args: job("mail", `{}`), Options: engine.EnqueueOptions{IdempotencyKey: "k5"}}, {Args: job("sms", `{}`), Options: engine.EnqueueOptions{Unique: unique("b", "")}},
		{Args: job("sms", `{}`), Options: engine.EnqueueOptions{Unique: unique("b", "")}}},
	{{Args: job("sms", `{}`), Options: engine.EnqueueOptions{Unique: unique("c", "")}}, {Args: job("sms", `{}`), Options: engine.EnqueueOptions{Unique: unique("c", "reject")}}},
}

// answers are what each call got, with every id told by the call and item that made it.
func answers(t *testing.T, q engine.Enqueuer) (list []string) {
	t.Helper()
	var names []string
	for i, items := range calls {
		var done []engine.Enqueued
		var err error
		if len(items) == 1 {
			done = make([]engine.Enqueued, 1)
			if done[0], err = q.Enqueue(t.Context(), items[0].Args, items[0].Options); err != nil {
				done = nil
			}
		} else {
			done, err = q.EnqueueMany(t.Context(), items)
		}
		for j, d := range done {
			if !strings.Contains(strings.Join(names, " "), d.ID.String()) {
				names = append(names, d.ID.String(), fmt.Sprintf("job %d.%d", i, j))
			}
		}
		said := fmt.Sprintf("%d: error: %v", i, err)
		for _, d := range done {
			wait := d.ScheduledAt.Sub(d.CreatedAt).Round(time.Hour)
			if d.ScheduledAt.Before(d.CreatedAt) {
				wait = 0 // a moment passed
			}
			said += fmt.Sprintf("\n  %s duplicate=%t unique=%q %s %s priority=%d most=%d %s attempt=%d version=%d in %s", d.ID, d.Duplicate, d.Unique, d.Type,
				d.Queue, d.Priority, d.MaxAttempts, d.State, d.Attempt, d.Version, wait)
		}
		list = append(list, strings.NewReplacer(names...).Replace(said))
	}
	return list
}

// TestARecorderAnswersAsAClientDoes holds both side by side, so that no rule of the
// schema's door may stand there and not here.
func TestARecorderAnswersAsAClientDoes(t *testing.T) {
	t.Parallel()
	client, err := engine.NewClient(engine.ClientConfig{Pool: dbtest.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	want, got := answers(t, client), answers(t, &enginetest.Recorder{})
	for i := range calls {
		if d := cmp.Diff(want[i], got[i]); d != "" {
			t.Errorf("call %d (-client +recorder):\n%s", i, d)
		}
	}
}

func TestARecorderKeepsWhatWasAccepted(t *testing.T) {
	t.Parallel()
	var rec enginetest.Recorder
	ctx := t.Context()
	for _, enqueue := range []func() (engine.Enqueued, error){
		func() (engine.Enqueued, error) {
			return rec.EnqueueTx(ctx, pgx.Tx(nil), task{Name: "a"}, engine.EnqueueOptions{IdempotencyKey: "a"})
		},
		func() (engine.Enqueued, error) {
			return rec.EnqueueSQLTx(ctx, nil, task{Name: "a"}, engine.EnqueueOptions{IdempotencyKey: "a"})
		},
		func() (engine.Enqueued, error) { return rec.Enqueue(ctx, job("mail", `{}`), engine.EnqueueOptions{}) },
		func() (engine.Enqueued, error) {
			return rec.Enqueue(ctx, task{Name: "b", Size: 1 << 62}, engine.EnqueueOptions{})
		},
	} {
		if _, err := enqueue(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(rec.Jobs()); n != 3 {
		t.Errorf("%d jobs, want 3: the duplicate adds none", n)
	}
	tasks, err := enginetest.ArgsOf[task](&rec)
	if d := cmp.Diff([]task{{Name: "a"}, {Name: "b", Size: 1 << 62}}, tasks); err != nil || d != "" {
		t.Errorf("ArgsOf: %v\n%s", err, d)
	}
}

func TestARecorderRefusesWhatAClientRefuses(t *testing.T) {
	t.Parallel()
	broken := enginetest.Recorder{Config: engine.ClientConfig{MaxAttempts: 1000}}
	if _, err := broken.Enqueue(t.Context(), task{}, engine.EnqueueOptions{}); err == nil || !strings.Contains(err.Error(), "MaxAttempts 1000") {
		t.Errorf("with a broken config: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var rec enginetest.Recorder
	if _, err := rec.EnqueueMany(ended, []engine.EnqueueItem{{Args: task{}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if n := len(rec.Jobs()); n != 0 {
		t.Errorf("%d jobs, want none", n)
	}
}
