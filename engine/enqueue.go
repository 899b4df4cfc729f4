package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// EnqueueOptions are a new job's settings. The zero value is a job that runs at
// once, in the default queue, at the default priority.
type EnqueueOptions struct {
	// Queue, default "default": 1 to 100 of A-Z a-z 0-9 _ . : -.
	Queue string
	// Priority, 0 to 5, the higher first. nil is [PriorityDefault].
	Priority *Priority
	// ScheduledAt is when the job may run, from 1970 to 10 years ahead; an
	// instant that has passed means now. Zero means now.
	ScheduledAt time.Time
	// Delay counts from the database's now. Give it or ScheduledAt.
	Delay time.Duration
	// MaxAttempts, 1 to 100. Default [ClientConfig.MaxAttempts].
	MaxAttempts int
	// Timeout ends one run's context, 1 ms to 7 days. Default: the type's.
	Timeout time.Duration
	// ExpiresAt makes the job a dead letter if it waits then, for its first run or
	// another; no run begins after it. After the job may run and within 20 years.
	ExpiresAt time.Time
	// Tags, at most 20 of 1 to 100 characters, are for searching.
	Tags []string
	// IdempotencyKey, 1 to 255 characters, makes a repeated call answer the
	// first job. Keys are compared byte by byte, so case and Unicode form
	// count; they are one name space for the installation, kept
	// [ClientConfig.KeyTTL] whatever becomes of the job, and free again once
	// retention removes it.
	IdempotencyKey string
	// Unique lets one job at a time stand for a key. With an IdempotencyKey too,
	// that one comes first, and keeps what Unique answered.
	Unique Unique
	// CopiedFrom is the job whose content this one began with. Whether it exists
	// is not asked.
	CopiedFrom ID
	// Traceparent, as W3C Trace Context gives it, is kept with the job.
	Traceparent string
	// Backoff is how long this job waits between its attempts. Default: as its type.
	Backoff Backoff
	// CallbackURL is told of the job's end, whichever, by a job of type webhook that
	// is made in the transaction of the end; once more after each replay. It stands
	// in the job's queue. http or https, at most 2,048 bytes. Default: none.
	CallbackURL string
}

// Ptr returns p for [EnqueueOptions.Priority].
func (p Priority) Ptr() *Priority { return &p }

// Enqueued is the answer of the doors.
type Enqueued struct {
	ID ID
	// Duplicate tells that an idempotency key found this earlier job; nothing
	// was added. The other fields are what the first answer said.
	Duplicate bool
	// Unique tells that a unique key found a job: ID, State and the rest are that
	// job's. "" for a new job.
	Unique      UniqueOutcome
	Type        string
	Queue       string
	Priority    Priority
	MaxAttempts int
	// State, Attempt and Version are [StatePending], 0 and 1, as when the job was
	// accepted, unless a unique key found another.
	State       State
	Attempt     int
	Version     int
	ScheduledAt time.Time
	CreatedAt   time.Time

	later bool
}

const nameRule = "1 to 100 of A-Z a-z 0-9 _ . : -, starting with a letter, digit or _"

var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$`) })

func validName(s string) bool { return namePattern().MatchString(s) }

// request is a checked enqueue, ready for its insert.
type request struct {
	id          ID
	jobType     string
	queue       string
	priority    Priority
	payload     []byte
	scheduledAt *time.Time
	delay       *time.Duration
	maxAttempts int // 0: not given
	timeoutMS   *int32
	expiresAt   *time.Time
	tags        []string
	key         string
	unique      *uniqueRequest // nil: not unique
	copiedFrom  *ID
	traceparent *string
	backoff     []byte // nil: as the type
	callbackURL *string
}

func (c *Client) prepare(args Args, o EnqueueOptions) (request, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return request{}, fmt.Errorf("make job id: %w", err)
	}
	payload, err := encodeArgs(args)
	if err != nil {
		return request{}, &ValidationError{[]FieldError{{"payload", "malformed", err.Error()}}}
	}
	r := request{id: id, jobType: args.JobType(), queue: o.Queue, priority: PriorityDefault, payload: payload,
		maxAttempts: o.MaxAttempts, tags: o.Tags, key: o.IdempotencyKey}
	if r.queue == "" {
		r.queue = DefaultQueue
	}
	if o.Priority != nil {
		r.priority = *o.Priority
	}
	bad := r.take(o, time.Now())
	bad = append(bad, c.limits.check(payload)...)
	bad = append(bad, c.guardCallback(&r)...)
	if len(bad) > 0 {
		return request{}, &ValidationError{bad}
	}
	return r, nil
}

// take checks the options and moves them over. now is this process's clock,
// good enough for a horizon of ten years.
func (r *request) take(o EnqueueOptions, now time.Time) (bad []FieldError) {
	refuse := func(field, code, detail string) { bad = append(bad, FieldError{field, code, detail}) }
	if !validName(r.jobType) {
		refuse("type", codeFor(r.jobType), nameRule)
	}
	if !validName(r.queue) {
		refuse("queue", codeFor(r.queue), nameRule)
	}
	if r.priority < 0 || r.priority > 5 {
		refuse("priority", "out-of-range", "a whole number from 0 to 5, the higher runs first")
	}
	if o.MaxAttempts < 0 || o.MaxAttempts > 100 {
		refuse("max_attempts", "out-of-range", "1 to 100")
	}
	horizon := now.AddDate(10, 0, 0)
	due := now
	switch {
	case !o.ScheduledAt.IsZero() && o.Delay != 0:
		refuse("run_at", "conflict", "give run_at or a delay, not both")
	case o.Delay < 0:
		refuse("delay_seconds", "out-of-range", "not negative")
	case o.Delay > horizon.Sub(now):
		refuse("delay_seconds", "too-far", "at most 10 years ahead")
	case o.ScheduledAt.After(horizon):
		refuse("run_at", "too-far", "at most 10 years ahead")
	case !o.ScheduledAt.IsZero() && o.ScheduledAt.Year() < 1970:
		refuse("run_at", "out-of-range", "not before 1970")
	case o.Delay > 0:
		r.delay, due = &o.Delay, now.Add(o.Delay)
	case !o.ScheduledAt.IsZero():
		r.scheduledAt, due = &o.ScheduledAt, o.ScheduledAt
	}
	switch {
	case o.Timeout == 0:
	case o.Timeout < time.Millisecond || o.Timeout > 7*24*time.Hour:
		refuse("timeout_seconds", "out-of-range", "0.001 to 604800 (7 days)")
	default:
		ms := int32(o.Timeout.Milliseconds())
		r.timeoutMS = &ms
	}
	switch {
	case o.ExpiresAt.IsZero():
	case !o.ExpiresAt.After(due) || !o.ExpiresAt.After(now):
		refuse("expires_at", "out-of-range", "after the job may run")
	case o.ExpiresAt.After(horizon.AddDate(10, 0, 0)):
		refuse("expires_at", "too-far", "at most 20 years ahead")
	default:
		r.expiresAt = &o.ExpiresAt
	}
	if len(o.Tags) > 20 {
		refuse("tags", "too-many", "at most 20")
	}
	for i, tag := range o.Tags {
		if code := textFault(tag, 100); code != "" {
			refuse(fmt.Sprintf("tags.%d", i), code, "1 to 100 characters, no control characters")
			break
		}
	}
	if o.IdempotencyKey != "" {
		if code := textFault(o.IdempotencyKey, 255); code != "" {
			refuse("idempotency_key", code, "1 to 255 characters, no control characters")
		}
	}
	r.unique = o.Unique.check(refuse)
	if o.CopiedFrom != uuid.Nil {
		r.copiedFrom = &o.CopiedFrom
	}
	if o.Traceparent != "" {
		if !traceparentPattern().MatchString(o.Traceparent) {
			refuse("traceparent", "invalid", "as W3C Trace Context: 00-<32 hex>-<16 hex>-<2 hex>")
		}
		r.traceparent = &o.Traceparent
	}
	r.backoff = o.Backoff.check(refuse)
	r.checkCallbackURL(o.CallbackURL, refuse)
	return bad
}

var traceparentPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
})

func codeFor(name string) string {
	switch {
	case name == "":
		return "required"
	case len(name) > 100:
		return "too-long"
	}
	return "invalid"
}

// textFault names what keeps s from being a text of 1 to most characters.
func textFault(s string, most int) string {
	switch {
	case s == "":
		return "required"
	case !utf8.ValidString(s):
		return "invalid"
	case utf8.RuneCountInString(s) > most:
		return "too-long"
	case strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 }):
		return "invalid"
	}
	return ""
}

func encodeArgs(args Args) ([]byte, error) {
	if raw, ok := args.(RawArgs); ok {
		return raw.MarshalJSON()
	}
	return json.Marshal(args)
}

// conn is what an insert needs: a pool or a transaction.
type conn interface {
	dbsqlc.DBTX
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

func (c *Client) insert(ctx context.Context, db conn, r request, notify bool) (Enqueued, error) {
	if r.keyed() {
		row, err := c.q.EnqueueKeyed(ctx, db, c.keyed(r, notify))
		if err != nil {
			return Enqueued{}, err
		}
		return c.keyedAnswer(r, row)
	}
	done := c.accepted(r)
	b := &pgx.Batch{}
	if r.scheduledAt == nil && r.delay == nil {
		b.Queue(dbsqlc.EnqueueJob, r.id, int16(r.priority), r.queue, r.jobType, int16(done.MaxAttempts), r.payload, r.expiresAt,
			r.timeoutMS, r.tags, r.traceparent, r.copiedFrom, r.backoff).QueryRow(func(row pgx.Row) error { return row.Scan(&done.CreatedAt) })
		if notify {
			b.Queue("SELECT pg_notify($1, $2)", channelJobs, r.queue)
		}
	} else {
		b.Queue(dbsqlc.EnqueueJobAt, r.scheduledAt, seconds(r.delay), r.id, r.jobType, r.queue, int16(r.priority), int16(done.MaxAttempts),
			r.payload, r.expiresAt, r.timeoutMS, r.tags, r.traceparent, r.copiedFrom, r.backoff).QueryRow(func(row pgx.Row) error {
			return row.Scan(&done.ScheduledAt, &done.CreatedAt)
		})
		if notify {
			b.Queue("SELECT pg_notify($1, '')", channelLater)
		}
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return Enqueued{}, err
	}
	return done.settle(), nil
}

// insertSQL goes through the schema's function, since its scalars suit every
// driver of database/sql.
func (c *Client) insertSQL(ctx context.Context, tx *sql.Tx, r request, notify bool) (Enqueued, error) {
	k := c.keyed(r, notify)
	var tags any
	if k.Tags != nil {
		tags = arrayLiteral(k.Tags)
	}
	var row dbsqlc.EnqueueKeyedRow
	var id sql.NullString
	var copied any
	if k.CopiedFrom != nil {
		copied = k.CopiedFrom.String()
	}
	err := tx.QueryRowContext(ctx, dbsqlc.EnqueueKeyed, k.ID.String(), k.Type, string(k.Payload), k.Queue, k.Priority, k.ScheduledAt,
		k.DelayMs, k.MaxAttempts, k.DefaultMaxAttempts, k.TimeoutMs, k.ExpiresAt, tags, k.IdempotencyKey, k.KeyTtlSeconds, k.Traceparent,
		k.Notify, copied, k.UniqueKey, k.UniqueScope, k.UniqueThrough, k.UniqueWindowSeconds, k.OnConflict, optional(string(k.Backoff)), k.CallbackUrl).
		Scan(&id, &row.Outcome, &row.RunAt, &row.CreatedAt, &row.Holder)
	if err != nil {
		return Enqueued{}, err
	}
	if id.Valid {
		if row.JobID, err = uuid.Parse(id.String); err != nil {
			return Enqueued{}, err
		}
	}
	return c.keyedAnswer(r, row)
}

// arrayLiteral writes a text[] as Postgres reads it.
func arrayLiteral(items []string) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = `"` + quote.Replace(s) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func (c *Client) keyed(r request, notify bool) dbsqlc.EnqueueKeyedParams {
	k := dbsqlc.EnqueueKeyedParams{
		ID: r.id, Type: r.jobType, Payload: r.payload, Queue: r.queue, Priority: int32(r.priority), ScheduledAt: r.scheduledAt,
		DefaultMaxAttempts: int32(c.most), TimeoutMs: r.timeoutMS, ExpiresAt: r.expiresAt, Tags: r.tags,
		KeyTtlSeconds: c.keyTTL.Seconds(), Traceparent: r.traceparent, Notify: notify, CopiedFrom: r.copiedFrom, Backoff: r.backoff, CallbackUrl: r.callbackURL,
		UniqueScope: string(UniqueByType), UniqueThrough: throughRunning, OnConflict: string(ConflictReturn),
	}
	if u := r.unique; u != nil {
		k.UniqueKey, k.UniqueScope, k.UniqueThrough = &u.key, string(u.scope), u.through
		k.UniqueWindowSeconds, k.OnConflict = u.window, string(u.onConflict)
	}
	if r.delay != nil {
		ms := r.delay.Milliseconds()
		k.DelayMs = &ms
	}
	if r.maxAttempts != 0 {
		n := int32(r.maxAttempts)
		k.MaxAttempts = &n
	}
	if r.key != "" {
		k.IdempotencyKey = &r.key
	}
	return k
}

func (c *Client) keyedAnswer(r request, row dbsqlc.EnqueueKeyedRow) (Enqueued, error) {
	switch row.Outcome {
	case "conflict":
		return Enqueued{}, &KeyReusedError{Key: r.key, Holder: row.JobID}
	case "in_flight":
		return Enqueued{}, ErrKeyInFlight
	case "nested_callback":
		return Enqueued{}, errNestedCallback
	}
	done := c.accepted(r)
	done.ID, done.ScheduledAt, done.CreatedAt = row.JobID, row.RunAt, row.CreatedAt
	done.Duplicate = row.Outcome == "duplicate"
	if err := done.uniqueAnswer(r, row); err != nil {
		return Enqueued{}, err
	}
	return done.settle(), nil
}

func (c *Client) accepted(r request) Enqueued {
	most := r.maxAttempts
	if most == 0 {
		most = c.most
	}
	return Enqueued{ID: r.id, Type: r.jobType, Queue: r.queue, Priority: r.priority, MaxAttempts: most, State: StatePending, Version: 1}
}

func (d Enqueued) settle() Enqueued {
	if d.ScheduledAt.IsZero() {
		d.ScheduledAt = d.CreatedAt
	}
	d.later = d.ScheduledAt.After(d.CreatedAt)
	return d
}

func seconds(d *time.Duration) float64 {
	if d == nil {
		return 0
	}
	return d.Seconds()
}

var _ interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
} = conn(nil)
