package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// ErrOutcomeUnknown: the database's answer to a commit was lost, so that the write
// may or may not have happened. Of an enqueue, the job may or may not exist: repeat
// it with the same idempotency key, which gives one job. With a key the client has
// repeated it already, for about a second.
var ErrOutcomeUnknown = errors.New("the database's answer was lost: it may or may not be written; repeat with the same idempotency key")

const (
	// callTimeout bounds a call whose ctx has no deadline of its own: a network
	// that swallows packets ends none.
	callTimeout = 15 * time.Second
	// unknownTries is how often a write under a key is tried whose answer was lost.
	unknownTries = 4
)

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

// lostError is a call that failed on the way: nothing was written.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// answered tells what the error of a commit, a statement's own or COMMIT, is worth.
// A server that refuses says so and goes on: only a connection that is gone after
// something was sent leaves the question open. The driver's word that nothing was sent
// counts only where it is not "conn closed": so it reports a COMMIT, too, whose answer
// did not come.
func answered(conn *pgx.Conn, err error) error {
	switch {
	case err == nil || !conn.IsClosed():
		return err
	case pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed):
		return lostError{err}
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// enqueueOne inserts one job, and again while the answer is lost and a key makes
// that safe.
func (c *Client) enqueueOne(ctx context.Context, r request) (done Enqueued, err error) {
	done, err = c.tryOne(ctx, r)
	if r.key != "" && errors.Is(err, ErrOutcomeUnknown) {
		err = repeat(ctx, err, func() (err error) {
			done, err = c.tryOne(ctx, r)
			return err
		})
		done.own(r)
	}
	return done, err
}

// own takes the mark of a duplicate off a job that this very call has made.
func (d *Enqueued) own(r request) { d.Duplicate = d.Duplicate && d.ID != r.id }

func (c *Client) tryOne(ctx context.Context, r request) (Enqueued, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return Enqueued{}, lostError{err}
	}
	defer conn.Release()
	if err := c.fit(ctx, pgxSchemas{c.q, conn}, &r); err != nil {
		if conn.Conn().IsClosed() && r.key == "" {
			return Enqueued{}, lostError{err}
		}
		return Enqueued{}, answered(conn.Conn(), err)
	}
	done, err := c.insert(ctx, conn, r, false)
	return done, answered(conn.Conn(), err)
}

// enqueueMany writes a batch, and again while the answer is lost and keys make that
// safe.
func (c *Client) enqueueMany(ctx context.Context, b *batch) (done []Enqueued, err error) {
	try := untangled(func() error {
		return c.commit(ctx, func(tx pgx.Tx) (err error) {
			done, err = c.insertBatch(ctx, tx, b)
			fault.Point("enqueue.many")
			return err
		})
	})
	err = try()
	if errors.Is(err, ErrOutcomeUnknown) && (b.key != "" || !slices.ContainsFunc(b.rs, func(r request) bool { return r.key == "" })) {
		err = repeat(ctx, err, try)
		for i := range done {
			done[i].own(b.rs[i])
		}
		b.replayed = b.replayed && !slices.ContainsFunc(done, func(d Enqueued) bool { return !d.Duplicate })
	}
	return done, err
}

// repeat tries a write again whose outcome is unknown, until the server has said
// something of it. What fails on the way there says nothing, nor does a server that
// is on its way down or up, nor a key that the lost call may still hold.
func repeat(ctx context.Context, unknown error, write func() error) error {
	for try := 1; try < unknownTries; try++ {
		select {
		case <-time.After(backoffAfter(try+1, time.Second)):
		case <-ctx.Done():
			return unknown
		}
		err := write()
		var lost lostError
		var pg *pgconn.PgError
		if !errors.Is(err, ErrOutcomeUnknown) && !errors.As(err, &lost) && !errors.Is(err, ErrKeyInFlight) && (!errors.As(err, &pg) || !unreachable(pg)) {
			return err
		}
	}
	return unknown
}

// commit runs do in a transaction. Until COMMIT is sent, its error says that
// nothing was written.
func (c *Client) commit(ctx context.Context, do func(pgx.Tx) error) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return lostError{err}
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err == nil {
		err = do(tx)
	}
	switch {
	case err == nil:
		return answered(conn.Conn(), tx.Commit(ctx))
	case conn.Conn().IsClosed():
		return lostError{err}
	case tx != nil:
		rollback(ctx, tx)
	}
	return err
}

// rollback ends tx within a second; a connection that does not answer is closed.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // the caller is told why it came to this
}
