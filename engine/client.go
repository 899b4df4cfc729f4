package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// The defaults of [ClientConfig].
const (
	DefaultPayloadMaxBytes = 256 << 10
	DefaultMaxAttempts     = 5
	DefaultKeyTTL          = 24 * time.Hour
	DefaultQueue           = "default"
)

// ClientConfig is what a [Client] needs. Only Pool is required.
type ClientConfig struct {
	// Pool reaches the database. The caller owns it and closes it after the
	// client.
	Pool *pgxpool.Pool
	// Log gets one line per accepted job, at info. Default: none.
	Log *slog.Logger
	// Observer is told what happens, for metrics. Default: none.
	Observer Observer
	// PayloadMaxBytes bounds a payload, as sent and as stored. Default 262144.
	PayloadMaxBytes int
	// MaxAttempts is what a job gets that does not say. 1 to 100, default 5.
	MaxAttempts int
	// KeyTTL is how long an idempotency key is kept. Default 24 h.
	KeyTTL time.Duration
	// CheckCallback refuses an [EnqueueOptions.CallbackURL] that could not be called;
	// its error is shown to the caller. Default: none is refused.
	CheckCallback func(url string) error
}

// Client enqueues jobs and acts on them. It is safe for many goroutines.
type Client struct {
	pool   *pgxpool.Pool
	log    *slog.Logger
	obs    Observer
	limits payloadLimits
	most   int
	keyTTL time.Duration
	q      *dbsqlc.Queries
	notify *notifier
	// checkCallback may be nil.
	checkCallback func(string) error
	// schemas are what payloads must fit, by type.
	schemas schemas
	// wake tells an engine of the same process; nil without one.
	wake func(queue string)
}

// Enqueuer is what most code that makes jobs needs of a [Client]. Take it instead, and
// a test of that code gives it the recorder of package enginetest.
type Enqueuer interface {
	Enqueue(ctx context.Context, args Args, o EnqueueOptions) (Enqueued, error)
	EnqueueTx(ctx context.Context, tx pgx.Tx, args Args, o EnqueueOptions) (Enqueued, error)
	EnqueueSQLTx(ctx context.Context, tx *sql.Tx, args Args, o EnqueueOptions) (Enqueued, error)
	EnqueueMany(ctx context.Context, items []EnqueueItem) ([]Enqueued, error)
}

var _ Enqueuer = (*Client)(nil)

// NewClient checks c and returns a client. It starts nothing and opens nothing;
// end it with [Client.Close].
func NewClient(c ClientConfig) (*Client, error) {
	if c.Pool == nil {
		return nil, errors.New("new client: Pool is nil")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	if c.PayloadMaxBytes == 0 {
		c.PayloadMaxBytes = DefaultPayloadMaxBytes
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = DefaultMaxAttempts
	}
	if c.KeyTTL == 0 {
		c.KeyTTL = DefaultKeyTTL
	}
	switch {
	case c.PayloadMaxBytes < 2 || c.PayloadMaxBytes > 64<<20:
		return nil, fmt.Errorf("new client: PayloadMaxBytes %d: use 2 to 67108864", c.PayloadMaxBytes)
	case c.MaxAttempts < 1 || c.MaxAttempts > 100:
		return nil, fmt.Errorf("new client: MaxAttempts %d: use 1 to 100", c.MaxAttempts)
	case c.KeyTTL < time.Second:
		return nil, fmt.Errorf("new client: KeyTTL %s: use 1s or more", c.KeyTTL)
	}
	q := dbsqlc.New()
	return &Client{
		pool: c.Pool, log: c.Log, obs: c.Observer, limits: payloadLimits{bytes: c.PayloadMaxBytes, depth: 64, keys: 10_000},
		most: c.MaxAttempts, keyTTL: c.KeyTTL, q: q, notify: newNotifier(c.Pool, q), checkCallback: c.CheckCallback,
	}, nil
}

// Close sends the notifications still held back and waits for them, until ctx
// ends. Nothing is lost without it: polling finds the jobs.
func (c *Client) Close(ctx context.Context) error { return c.notify.close(ctx) }

// Enqueue adds a job and returns once it is committed. A repeated
// IdempotencyKey is no error: the first job comes back with Duplicate set. Nor is
// a Unique key that another job holds, unless it says so: that job comes back,
// with Unique set. A ctx without a deadline gets one of 15 s. Errors:
// *[ValidationError], *[KeyReusedError], [ErrKeyInFlight], *[UniqueConflictError],
// [ErrUniqueInFlight], [ErrOutcomeUnknown], or the database's, after which nothing
// was enqueued.
func (c *Client) Enqueue(ctx context.Context, args Args, o EnqueueOptions) (Enqueued, error) {
	began := time.Now()
	r, err := c.prepare(args, o)
	if err != nil {
		return Enqueued{}, err
	}
	fault.Point("enqueue.before")
	ctx, cancel := bounded(ctx)
	defer cancel()
	done, err := c.enqueueOne(ctx, r)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", r.jobType, err)
	}
	fault.Point("enqueue.after")
	c.announce(ctx, r, done)
	c.hint(done)
	c.obs.EnqueueTook(time.Since(began))
	return done, nil
}

// EnqueueTx adds a job inside tx: it exists once tx commits, and never did if
// tx rolls back. Errors are those of [Client.Enqueue]; none but the database's
// own aborts tx.
func (c *Client) EnqueueTx(ctx context.Context, tx pgx.Tx, args Args, o EnqueueOptions) (Enqueued, error) {
	r, err := c.prepare(args, o)
	if err != nil {
		return Enqueued{}, err
	}
	if err := c.fit(ctx, pgxSchemas{c.q, tx}, &r); err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", r.jobType, err)
	}
	done, err := c.insert(ctx, tx, r, c.notify.insideTx(r.queue))
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", r.jobType, err)
	}
	c.announce(ctx, r, done)
	return done, nil
}

// EnqueueSQLTx is [Client.EnqueueTx] for database/sql, with any Postgres driver.
func (c *Client) EnqueueSQLTx(ctx context.Context, tx *sql.Tx, args Args, o EnqueueOptions) (Enqueued, error) {
	r, err := c.prepare(args, o)
	if err != nil {
		return Enqueued{}, err
	}
	if err := c.fit(ctx, sqlSchemas{tx}, &r); err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", r.jobType, err)
	}
	done, err := c.insertSQL(ctx, tx, r, c.notify.insideTx(r.queue))
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", r.jobType, err)
	}
	c.announce(ctx, r, done)
	return done, nil
}

// hint tells workers of new jobs, after their commit and outside it.
func (c *Client) hint(done ...Enqueued) {
	for _, d := range done {
		switch {
		case d.Duplicate, d.Unique == UniqueHeld:
		case d.later && d.Unique == "":
			c.notify.later()
		default:
			if d.Unique == UniqueReplaced {
				c.notify.later() // its instant may be another one now
			}
			c.notify.queue(d.Queue)
			if c.wake != nil {
				c.wake(d.Queue)
			}
		}
	}
}

func (c *Client) announce(ctx context.Context, r request, d Enqueued) {
	switch {
	case d.Duplicate:
		c.obs.KeyRepeated("enqueue")
		return
	case d.Unique != "":
		c.obs.KeyRepeated("unique")
		if d.Unique == UniqueReplaced {
			c.log.InfoContext(ctx, LogJobReplaced, "job_id", d.ID.String(), "job_type", d.Type, "queue", d.Queue, "version", d.Version)
		}
		return
	}
	c.obs.JobsEnqueued(d.Queue, d.Type, 1)
	if c.log.Enabled(ctx, slog.LevelInfo) {
		c.log.LogAttrs(ctx, slog.LevelInfo, LogJobCreated, slog.String("job_id", d.ID.String()), slog.String("job_type", d.Type),
			slog.String("queue", d.Queue), slog.Int("priority", int(d.Priority)), slog.Time("run_at", d.ScheduledAt),
			slog.String("idempotency_key", r.key))
	}
}

func (c *Client) announceMany(ctx context.Context, rs []request, done []Enqueued) {
	type line struct{ queue, jobType string }
	counts := map[line]int{}
	for i, d := range done {
		switch {
		case d.Duplicate, d.Unique != "":
			c.announce(ctx, rs[i], d)
		case c.log.Enabled(ctx, slog.LevelDebug):
			c.announce(ctx, rs[i], d)
		default:
			counts[line{d.Queue, d.Type}]++
		}
	}
	for l, n := range counts {
		c.obs.JobsEnqueued(l.queue, l.jobType, n)
		c.log.InfoContext(ctx, LogJobsCreated, "job_type", l.jobType, "queue", l.queue, "count", n)
	}
}
