package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

func plainItem(payload string, o engine.EnqueueOptions) engine.EnqueueItem {
	return engine.EnqueueItem{Args: engine.RawArgs{Type: "plain", Payload: json.RawMessage(payload)}, Options: o}
}

// TestABatchUnderAKeyIsThereOnce, whoever repeats it, in one name space with the keys of single jobs.
func TestABatchUnderAKeyIsThereOnce(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	batch := func(first string) []engine.EnqueueItem {
		return []engine.EnqueueItem{plainItem(first, engine.EnqueueOptions{}), plainItem(`{"n":2}`, engine.EnqueueOptions{Priority: engine.PriorityHigh.Ptr()}),
			plainItem(`{"n":3}`, engine.EnqueueOptions{Unique: engine.Unique{Key: "u"}}), plainItem(`{"n":4}`, engine.EnqueueOptions{Unique: engine.Unique{Key: "u"}})}
	}
	var wg sync.WaitGroup
	answers, news := make([][]engine.Enqueued, 8), make([]bool, 8)
	for i := range answers {
		wg.Go(func() {
			done, replayed, err := c.EnqueueManyOnce(ctx, "k", batch(`{"a":1,"b":2}`))
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			answers[i], news[i] = done, !replayed
		})
	}
	wg.Wait()
	made := 0
	for i := range answers {
		if news[i] {
			made++
		}
		for n := range answers[i] {
			if answers[i][n].ID != answers[0][n].ID || answers[i][n].Unique != answers[0][n].Unique || answers[i][n].Duplicate == news[i] {
				t.Errorf("call %d, job %d: %+v, another call got %+v", i, n, answers[i][n], answers[0][n])
			}
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM jobs"); made != 1 || n != 3 || answers[0][3].ID != answers[0][2].ID {
		t.Errorf("%d calls made %d jobs, want one call and 3", made, n)
	}
	if again, replayed, err := c.EnqueueManyOnce(ctx, "k", batch(`{"b": 2, "a": 1}`)); err != nil || !replayed || again[1].Priority != engine.PriorityHigh || again[1].CreatedAt.IsZero() {
		t.Errorf("the same content, written otherwise: %+v, %v, %v", again, replayed, err)
	}
	var reused *engine.KeyReusedError
	for name, items := range map[string][]engine.EnqueueItem{"other content": batch(`{"a":2}`), "one job less": batch(`{"a":1,"b":2}`)[:3]} {
		if _, _, err := c.EnqueueManyOnce(ctx, "k", items); !errors.As(err, &reused) || reused.Holder != answers[0][0].ID {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain", Payload: json.RawMessage(`{"a":1,"b":2}`)}, engine.EnqueueOptions{IdempotencyKey: "k"}); !errors.As(err, &reused) {
		t.Errorf("a single job under the key of a batch: %v", err)
	}
	if _, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: "single"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.EnqueueManyOnce(ctx, "single", batch(`{}`)); !errors.As(err, &reused) {
		t.Errorf("a batch under the key of a single job: %v", err)
	}
	var invalid *engine.ValidationError
	if _, _, err := c.EnqueueManyOnce(ctx, "own", []engine.EnqueueItem{plainItem(`{}`, engine.EnqueueOptions{IdempotencyKey: "own"})}); !errors.As(err, &invalid) ||
		!invalid.Has("items.0.idempotency_key", "conflict") {
		t.Errorf("a job under the key of its own batch: %v", err)
	}
	if _, _, err := c.EnqueueManyOnce(ctx, strings.Repeat("k", 256), batch(`{}`)); !errors.As(err, &invalid) || !invalid.Has("idempotency_key", "too-long") {
		t.Errorf("a key too long: %v", err)
	}
}

// TestTheKeyOfABatchIsFreeAgain once it has expired, once its batch was refused, and once its job was removed.
func TestTheKeyOfABatchIsFreeAgain(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	if _, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{Unique: engine.Unique{Key: "there"}}); err != nil {
		t.Fatal(err)
	}
	var conflict *engine.UniqueConflictError
	var item *engine.ItemError
	refused := []engine.EnqueueItem{plainItem(`{}`, engine.EnqueueOptions{}), plainItem(`{}`, engine.EnqueueOptions{Unique: engine.Unique{Key: "there", OnConflict: engine.ConflictReject}})}
	if _, _, err := c.EnqueueManyOnce(ctx, "k", refused); !errors.As(err, &conflict) || !errors.As(err, &item) || item.Index != 1 {
		t.Errorf("a batch with a conflict: %v", err)
	}
	batch := []engine.EnqueueItem{plainItem(`{"n":1}`, engine.EnqueueOptions{})}
	for _, free := range []string{"", "UPDATE idempotency_keys SET expires_at = now()", "DELETE FROM job_ready; DELETE FROM jobs"} {
		if free != "" {
			if _, err := pool.Exec(ctx, free); err != nil {
				t.Fatal(err)
			}
		}
		done, replayed, err := c.EnqueueManyOnce(ctx, "k", batch)
		if err != nil || replayed || one[int](t, pool, "SELECT count(*) FROM jobs WHERE id = $1", done[0].ID) != 1 {
			t.Errorf("after %q: %+v, %v, %v", free, done, replayed, err)
		}
	}
}

// TestEachOfManyIsAnsweredByItself: what is wrong with one job keeps no other out.
func TestEachOfManyIsAnsweredByItself(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	c, ctx := newClient(t, pool), t.Context()
	there, err := c.Enqueue(ctx, engine.RawArgs{Type: "plain"}, engine.EnqueueOptions{IdempotencyKey: "there", Unique: engine.Unique{Key: "there"}})
	if err != nil {
		t.Fatal(err)
	}
	rejects := engine.Unique{Key: "there", OnConflict: engine.ConflictReject}
	results, err := c.EnqueueEach(ctx, []engine.EnqueueItem{
		plainItem(`{"n":0}`, engine.EnqueueOptions{}),
		plainItem(`{"n":1}`, engine.EnqueueOptions{Priority: engine.Priority(6).Ptr()}),
		plainItem(`{"n":2}`, engine.EnqueueOptions{IdempotencyKey: "there"}),
		plainItem(`{"n":3}`, engine.EnqueueOptions{Unique: rejects}),
		plainItem(`{"n":4}`, engine.EnqueueOptions{IdempotencyKey: "twin"}),
		plainItem(`{"n":4}`, engine.EnqueueOptions{IdempotencyKey: "twin"}),
		plainItem(`{"n":6}`, engine.EnqueueOptions{IdempotencyKey: "twin"}),
		plainItem(`{"n":7}`, engine.EnqueueOptions{Unique: engine.Unique{Key: "there"}}),
		plainItem(`{"n":8}`, engine.EnqueueOptions{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	var invalid *engine.ValidationError
	var reused *engine.KeyReusedError
	var conflict *engine.UniqueConflictError
	if !errors.As(results[1].Err, &invalid) || !invalid.Has("priority", "out-of-range") {
		t.Errorf("a bad priority: %v", results[1].Err)
	}
	if !errors.As(results[2].Err, &reused) || reused.Holder != there.ID {
		t.Errorf("a key with other content: %v", results[2].Err)
	}
	if !errors.As(results[3].Err, &conflict) || conflict.Holder != there.ID {
		t.Errorf("a unique key: %v", results[3].Err)
	}
	if results[5].ID != results[4].ID || !results[5].Duplicate || results[4].Duplicate {
		t.Errorf("a key given twice: %+v, %+v", results[4], results[5])
	}
	if !errors.As(results[6].Err, &reused) || reused.Holder != results[4].ID {
		t.Errorf("a key given twice with other content: %v", results[6].Err)
	}
	if results[7].Err != nil || results[7].ID != there.ID || results[7].Unique != engine.UniqueHeld {
		t.Errorf("the holder: %+v", results[7])
	}
	for _, i := range []int{0, 4, 8} {
		if n := one[string](t, pool, "SELECT payload->>'n' FROM jobs WHERE id = $1", results[i].ID); results[i].Err != nil || n != fmt.Sprint(i) {
			t.Errorf("job %d: n = %s, %v", i, n, results[i].Err)
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM jobs"); n != 4 {
		t.Errorf("%d jobs, want 4", n)
	}
	if none, err := c.EnqueueEach(ctx, []engine.EnqueueItem{plainItem(`[]`, engine.EnqueueOptions{})}); err != nil || none[0].Err == nil {
		t.Errorf("nothing acceptable: %+v, %v", none, err)
	}
}

// TestAKeyGivenTwiceInABatchWithOtherContent names the job, since the holder goes with the batch.
func TestAKeyGivenTwiceInABatchWithOtherContent(t *testing.T) {
	t.Parallel()
	c := newClient(t, dbtest.New(t))
	_, err := c.EnqueueMany(t.Context(), []engine.EnqueueItem{plainItem(`{"n":0}`, engine.EnqueueOptions{IdempotencyKey: "twin"}), plainItem(`{"n":1}`, engine.EnqueueOptions{IdempotencyKey: "twin"})})
	var invalid *engine.ValidationError
	if !errors.As(err, &invalid) || !invalid.Has("items.1.idempotency_key", "conflict") {
		t.Errorf("%v, want the field of the second job", err)
	}
}
