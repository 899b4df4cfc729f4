package engine

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// batchSize is how much of a backlog one call takes. A call that was not done in
// its time is tried with a quarter, down to one, so that a database that is slow,
// or rows that are large, cannot hold up the upkeep for ever; each that was done
// doubles it again, up to most, where it begins.
type batchSize struct {
	most int32
	now  atomic.Int32 // 0: most
	late atomic.Int32 // calls in a row that were not done in their time
}

// mostPatience is how many times its time a call may take, at most.
const mostPatience = 8

// patience is how many times its time the next call may take. What cannot be made
// smaller, such as a lease of a thousand jobs, needs more time instead: it doubles
// with each call that was late.
func (b *batchSize) patience() time.Duration {
	return time.Duration(min(1<<min(b.late.Load(), 10), mostPatience))
}

func (b *batchSize) size() int32 {
	if n := b.now.Load(); n > 0 {
		return n
	}
	return b.most
}

// after learns from a call.
func (b *batchSize) after(err error) {
	switch n := b.size(); {
	case err == nil:
		b.now.Store(min(2*n, b.most))
		b.late.Store(0)
	case overdue(err):
		b.now.Store(max(n/4, 1))
		b.late.Add(1)
	}
}

// overdue tells whether a call was given up for its time.
func overdue(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "57014" // query_canceled
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}
