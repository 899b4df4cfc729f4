package engine

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// batchSize is how much of a backlog one call takes. A call that was not done in
// its time is tried with a quarter, down to one, so that a database that is slow,
// or rows that are large, cannot hold up the upkeep for ever; each that was done
// doubles it again, up to most, where it begins.
type batchSize struct {
	most int32
	now  atomic.Int32 // 0: most
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
	case overdue(err):
		b.now.Store(max(n/4, 1))
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
