package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// ledger keeps what a client enqueues, without a database: its checks, defaults and
// answers are the client's own, and [book] stands for the tables.
type ledger struct {
	c *Client

	mu   sync.Mutex
	book book
}

func newLedger(c ClientConfig) (*ledger, error) {
	c.Pool = new(pgxpool.Pool) // nobody asks it
	client, err := NewClient(c)
	if err != nil {
		return nil, err
	}
	return &ledger{c: client, book: book{keys: map[string]keptKey{}}}, nil
}

// Enqueue is [Client.Enqueue] without its way to the database.
func (l *ledger) Enqueue(args Args, o EnqueueOptions) (Enqueued, error) {
	r, err := l.c.prepare(args, o)
	if err != nil {
		return Enqueued{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	done, err := l.book.insert(l.c, r)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", r.jobType, err)
	}
	return done, nil
}

// EnqueueMany is [Client.EnqueueMany] without its way to the database: those with a
// key first, in the order of their keys, then the others, all or none.
func (l *ledger) EnqueueMany(items []EnqueueItem) ([]Enqueued, error) {
	rs, err := l.c.prepareMany(items)
	if err != nil || len(rs) == 0 {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.book.clone()
	done := make([]Enqueued, len(rs))
	order := byKey(rs)
	for i := range rs {
		if !rs[i].keyed() {
			order = append(order, i)
		}
	}
	for _, i := range order {
		if done[i], err = next.insert(l.c, rs[i]); err != nil {
			return nil, fmt.Errorf("enqueue %d jobs: %w", len(rs), allOrNone(rs)(i, err))
		}
	}
	l.book = next
	return done, nil
}

// Each calls yield with every job of the ledger, in the order of their making.
func (l *ledger) Each(yield func(job Enqueued, payload []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.book.jobs {
		yield(j.job, j.request.payload)
	}
}

// book stands for the tables of jobs and keys, and for enqueue_job_keyed, whose rules
// it repeats as far as no job ever runs and no time passes: a test of enginetest holds
// both side by side.
type book struct {
	jobs []entry
	keys map[string]keptKey
}

type entry struct {
	job     Enqueued
	request request
}

type keptKey struct {
	content string
	job     ID
}

func (b *book) clone() book { return book{jobs: slices.Clone(b.jobs), keys: maps.Clone(b.keys)} }

func (b *book) insert(c *Client, r request) (Enqueued, error) {
	now := time.Now().Truncate(time.Microsecond)
	row := dbsqlc.EnqueueKeyedRow{JobID: r.id, Outcome: "created", RunAt: r.due(now), CreatedAt: now}
	if r.key != "" {
		if first, known := b.keys[r.key]; known {
			row.Outcome = "conflict"
			if first.content == r.content() {
				row.Outcome = "duplicate"
			}
			b.tellOf(b.find(first.job), r.unique != nil, &row)
			return c.keyedAnswer(r, row)
		}
	}
	if i := b.holder(r); i >= 0 {
		switch {
		case r.unique.onConflict == ConflictReturn:
			row.Outcome = "unique_held"
		case r.unique.onConflict == ConflictReplace && b.jobs[i].job.Type == r.jobType:
			row.Outcome = "unique_replaced"
			b.replace(c, i, r, now)
		default:
			row.Outcome = "unique_conflict"
		}
		b.tellOf(i, true, &row)
	}
	done, err := c.keyedAnswer(r, row)
	if err != nil {
		return Enqueued{}, err
	}
	if row.Outcome == "created" {
		b.jobs = append(b.jobs, entry{done, r})
	}
	if r.key != "" {
		b.keys[r.key] = keptKey{r.content(), done.ID}
	}
	return done, nil
}

// due is when the job may run.
func (r *request) due(now time.Time) time.Time {
	switch {
	case r.scheduledAt != nil:
		return r.scheduledAt.Truncate(time.Microsecond)
	case r.delay != nil:
		return now.Add(r.delay.Truncate(time.Millisecond))
	}
	return now
}

func (b *book) find(id ID) int {
	return slices.IndexFunc(b.jobs, func(j entry) bool { return j.job.ID == id })
}

// holder is the job that holds the request's unique key: every job of a ledger waits.
func (b *book) holder(r request) int {
	if r.unique == nil {
		return -1
	}
	return slices.IndexFunc(b.jobs, func(j entry) bool { return j.request.unique != nil && j.request.uniqueName() == r.uniqueName() })
}

// tellOf answers with a job that was there before.
func (b *book) tellOf(i int, summary bool, row *dbsqlc.EnqueueKeyedRow) {
	j := b.jobs[i].job
	row.JobID, row.RunAt, row.CreatedAt = j.ID, j.ScheduledAt, j.CreatedAt
	if !summary {
		return
	}
	h := holderJSON{Type: j.Type, Queue: j.Queue, Priority: j.Priority, MaxAttempts: j.MaxAttempts, Version: j.Version, State: j.State}
	if w := b.jobs[i].request.unique; w != nil && w.window != nil {
		until := j.CreatedAt.Add(time.Duration(*w.window * float64(time.Second)))
		h.Until = &until
	}
	if text, err := json.Marshal(h); err == nil { // plain values: there is no other case
		row.Holder = string(text)
	}
}

// replace gives a waiting job all that the request says, under its id and key.
func (b *book) replace(c *Client, i int, r request, now time.Time) {
	old := b.jobs[i].job
	next := c.accepted(r)
	next.ID, next.CreatedAt, next.Version, next.ScheduledAt = old.ID, old.CreatedAt, old.Version+1, r.due(now)
	b.jobs[i] = entry{next, r}
}

// content is what makes two requests under one key the same, as job_request_hash
// sees it: the payload by its value.
func (r *request) content() string {
	item := contentOf([]request{*r})[0]
	item.Payload = normalised(r.payload)
	item.Key = ""
	for _, at := range []**time.Time{&item.ScheduledAt, &item.ExpiresAt} {
		if *at != nil {
			whole := (*at).UTC().Truncate(time.Microsecond)
			*at = &whole
		}
	}
	text, err := json.Marshal(item)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// normalised writes JSON as jsonb compares it: keys in order, the last of equal ones,
// numbers written out.
func normalised(payload []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return payload
	}
	text, err := json.Marshal(writtenOut(v))
	if err != nil {
		return payload
	}
	return text
}

func writtenOut(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = writtenOut(v[k])
		}
	case []any:
		for i := range v {
			v[i] = writtenOut(v[i])
		}
	case json.Number:
		return json.Number(plainNumber(string(v)))
	}
	return v
}

// plainNumber is a number without exponent, with the digits that numeric keeps: 1.50e1
// is 15.0, and stays another text than 15.
func plainNumber(s string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	shift, err := strconv.Atoi(exponent)
	if exponent == "" {
		shift, err = 0, nil
	}
	value, ok := new(big.Rat).SetString(s)
	if err != nil || !ok {
		return s
	}
	return value.FloatString(max(len(fraction)-shift, 0))
}
