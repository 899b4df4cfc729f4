package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// EnqueueItem is one job of many.
type EnqueueItem struct {
	Args    Args
	Options EnqueueOptions
}

// EnqueueMany adds jobs in one transaction, all or none, and answers in their
// order; those without a key or a callback it writes by COPY. Keys hold inside the batch as
// they do against others: of two items with one unique key the second meets the
// first. A *[ValidationError] names the item: items.3.priority; an *[ItemError]
// wraps what else one item met. Errors are those of [Client.Enqueue]; of an unknown
// outcome all jobs exist or none, and it is repeated if every item has an
// idempotency key.
func (c *Client) EnqueueMany(ctx context.Context, items []EnqueueItem) ([]Enqueued, error) {
	done, _, err := c.EnqueueManyOnce(ctx, "", items)
	return done, err
}

// EnqueueManyOnce is [Client.EnqueueMany] under an idempotency key for the call as a
// whole, in the name space of the jobs' own keys. A repeated call gets the first
// answer, with replayed set and every job marked as a duplicate; one with other
// content a *[KeyReusedError] that names the first job. An empty key stands for none.
func (c *Client) EnqueueManyOnce(ctx context.Context, key string, items []EnqueueItem) (done []Enqueued, replayed bool, err error) {
	began := time.Now()
	rs, err := c.prepareMany(items)
	if err != nil || len(rs) == 0 {
		return nil, false, err
	}
	if err := checkBatchKey(key, rs); err != nil {
		return nil, false, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	b := &batch{rs: rs, key: key, refuse: allOrNone(rs)}
	if done, err = c.enqueueMany(ctx, b); err != nil {
		return nil, false, fmt.Errorf("enqueue %d jobs: %w", len(rs), err)
	}
	c.announceMany(ctx, rs, done)
	c.hint(done...)
	c.obs.EnqueueTook(time.Since(began))
	return done, b.replayed, nil
}

// EnqueueResult is what became of one item of [Client.EnqueueEach].
type EnqueueResult struct {
	Enqueued
	// Err is why the item was refused: *[ValidationError], *[KeyReusedError],
	// [ErrKeyInFlight], *[UniqueConflictError], [ErrUniqueInFlight].
	Err error
}

// EnqueueEach adds the jobs that can be added, in one transaction, and answers for
// each item in their order. Keys hold inside the batch as in [Client.EnqueueMany].
// With an error nothing was enqueued; of an unknown outcome all that was acceptable
// exists or nothing, and it is repeated if every item has an idempotency key.
func (c *Client) EnqueueEach(ctx context.Context, items []EnqueueItem) ([]EnqueueResult, error) {
	began := time.Now()
	results := make([]EnqueueResult, len(items))
	b, place := &batch{}, []int{} // place has an accepted request's item
	for i, it := range items {
		r, err := c.prepare(it.Args, it.Options)
		var invalid *ValidationError
		switch {
		case errors.As(err, &invalid):
			results[i].Err = err
		case err != nil:
			return nil, err
		default:
			b.rs, place = append(b.rs, r), append(place, i)
		}
	}
	if len(b.rs) == 0 {
		return results, nil
	}
	refused := make([]error, len(b.rs))
	b.begin = func() { clear(refused) }
	b.refuse = func(i int, err error) error {
		refused[i] = err
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	done, err := c.enqueueMany(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("enqueue %d jobs: %w", len(b.rs), err)
	}
	rs, told := b.rs[:0:0], done[:0:0]
	for i, d := range done {
		if results[place[i]].Err = refused[i]; refused[i] == nil {
			results[place[i]].Enqueued = d
			rs, told = append(rs, b.rs[i]), append(told, d)
		}
	}
	c.announceMany(ctx, rs, told)
	c.hint(told...)
	c.obs.EnqueueTook(time.Since(began))
	return results, nil
}

// EnqueueManyTx is [Client.EnqueueMany] inside tx.
func (c *Client) EnqueueManyTx(ctx context.Context, tx pgx.Tx, items []EnqueueItem) ([]Enqueued, error) {
	rs, err := c.prepareMany(items)
	if err != nil || len(rs) == 0 {
		return nil, err
	}
	done, err := c.insertMany(ctx, tx, rs, allOrNone(rs))
	if err != nil {
		return nil, fmt.Errorf("enqueue %d jobs: %w", len(rs), err)
	}
	told := map[string]bool{}
	for _, r := range rs {
		if !told[r.queue] && c.notify.insideTx(r.queue) {
			if err := c.q.Notify(ctx, tx, channelJobs, r.queue); err != nil {
				return nil, fmt.Errorf("enqueue %d jobs: %w", len(rs), err)
			}
		}
		told[r.queue] = true
	}
	c.announceMany(ctx, rs, done)
	return done, nil
}

// batch is many checked requests on their way into the database.
type batch struct {
	rs []request
	// key names the call as a whole; empty for none.
	key      string
	replayed bool // key found an earlier call
	// begin, if set, is called whenever the batch is begun.
	begin func()
	// refuse is as insertMany has it.
	refuse func(i int, err error) error
}

// checkBatchKey refuses a key that no row could have, and one that an item has too:
// the item would meet its own call.
func checkBatchKey(key string, rs []request) error {
	if key == "" {
		return nil
	}
	if code := textFault(key, 255); code != "" {
		return &ValidationError{[]FieldError{{"idempotency_key", code, "1 to 255 characters, no control characters"}}}
	}
	if i := slices.IndexFunc(rs, func(r request) bool { return r.key == key }); i >= 0 {
		return &ValidationError{[]FieldError{{fmt.Sprintf("items.%d.idempotency_key", i), "conflict", "is the key of the whole call"}}}
	}
	return nil
}

func (c *Client) insertBatch(ctx context.Context, tx pgx.Tx, b *batch) ([]Enqueued, error) {
	if b.begin != nil {
		b.begin()
	}
	if b.key == "" {
		return c.insertMany(ctx, tx, b.rs, b.refuse)
	}
	items, err := json.Marshal(contentOf(b.rs))
	if err != nil {
		return nil, err
	}
	took, err := c.q.TakeBatchKey(ctx, tx, b.key, items, b.rs[0].id, c.keyTTL.Seconds())
	if err != nil {
		return nil, err
	}
	switch took.Outcome {
	case "in_flight":
		return nil, ErrKeyInFlight
	case "conflict":
		return nil, &KeyReusedError{Key: b.key, Holder: took.JobID}
	case "duplicate":
		b.replayed = true
		return answerAgain(took.Response)
	}
	done, err := c.insertMany(ctx, tx, b.rs, b.refuse)
	if err != nil {
		return nil, err
	}
	kept, err := json.Marshal(keptOf(done))
	if err != nil {
		return nil, err
	}
	return done, c.q.KeepBatchAnswer(ctx, tx, done[0].ID, kept, b.key)
}

// batchItem is what makes two items the same: what job_request_hash is made of.
type batchItem struct {
	Type        string          `json:"type"`
	Queue       string          `json:"queue"`
	Priority    Priority        `json:"priority"`
	Payload     json.RawMessage `json:"payload"`
	ScheduledAt *time.Time      `json:"scheduled_at"`
	Delay       *time.Duration  `json:"delay"`
	MaxAttempts int             `json:"max_attempts"`
	TimeoutMS   *int32          `json:"timeout_ms"`
	ExpiresAt   *time.Time      `json:"expires_at"`
	Tags        []string        `json:"tags"`
	Key         string          `json:"idempotency_key"`
	Unique      []any           `json:"unique"`
	CopiedFrom  *ID             `json:"copied_from"`
	Backoff     json.RawMessage `json:"backoff,omitempty"`
	CallbackURL *string         `json:"callback_url,omitempty"`
}

func contentOf(rs []request) []batchItem {
	items := make([]batchItem, len(rs))
	for i, r := range rs {
		items[i] = batchItem{Type: r.jobType, Queue: r.queue, Priority: r.priority, Payload: r.payload, ScheduledAt: r.scheduledAt, Delay: r.delay,
			MaxAttempts: r.maxAttempts, TimeoutMS: r.timeoutMS, ExpiresAt: r.expiresAt, Tags: r.tags, Key: r.key, CopiedFrom: r.copiedFrom, Backoff: r.backoff,
			CallbackURL: r.callbackURL}
		if u := r.unique; u != nil {
			items[i].Unique = []any{u.key, u.scope, u.through, u.window, u.onConflict}
		}
	}
	return items
}

// keptAnswer is one job of an answer, as it is kept with the key.
type keptAnswer struct {
	ID          ID            `json:"id"`
	Unique      UniqueOutcome `json:"unique,omitempty"`
	Type        string        `json:"type"`
	Queue       string        `json:"queue"`
	Priority    Priority      `json:"priority"`
	MaxAttempts int           `json:"max_attempts"`
	State       State         `json:"state"`
	Attempt     int           `json:"attempt"`
	Version     int           `json:"version"`
	ScheduledAt time.Time     `json:"scheduled_at"`
	CreatedAt   time.Time     `json:"created_at"`
}

func keptOf(done []Enqueued) []keptAnswer {
	kept := make([]keptAnswer, len(done))
	for i, d := range done {
		kept[i] = keptAnswer{d.ID, d.Unique, d.Type, d.Queue, d.Priority, d.MaxAttempts, d.State, d.Attempt, d.Version, d.ScheduledAt, d.CreatedAt}
	}
	return kept
}

func answerAgain(response []byte) ([]Enqueued, error) {
	var kept []keptAnswer
	if err := json.Unmarshal(response, &kept); err != nil {
		return nil, fmt.Errorf("read the first answer: %w", err)
	}
	done := make([]Enqueued, len(kept))
	for i, k := range kept {
		done[i] = Enqueued{ID: k.ID, Duplicate: true, Unique: k.Unique, Type: k.Type, Queue: k.Queue, Priority: k.Priority, MaxAttempts: k.MaxAttempts,
			State: k.State, Attempt: k.Attempt, Version: k.Version, ScheduledAt: k.ScheduledAt, CreatedAt: k.CreatedAt}
	}
	return done, nil
}
