// Package inspect reads what the engine stores: jobs, their runs, queues, dead
// letters, workers, figures. It changes nothing. API, console and metrics read
// through it and never through tables.
//
// Every read is bounded: in rows by its limit, in time by [ReadTimeout]. Instants
// that do not exist are zero. All methods may be called by several goroutines.
package inspect

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// ReadTimeout bounds one read, whatever the caller's context allows.
const ReadTimeout = 5 * time.Second

// Limits of lists. A limit that is zero or less takes the default, a larger one
// than the maximum takes the maximum.
const (
	DefaultLimit = 20
	MaxLimit     = 200
)

// Reader answers from one database. Make it with [New].
type Reader struct {
	// Pace is what the workers are told, if that is not the engine's defaults. Set it
	// before the first call.
	Pace Pace

	pool    *pgxpool.Pool
	q       *dbsqlc.Queries
	snap    *shared[*Snapshot]
	workers *shared[[]Worker]
}

// New returns a reader on pool, which stays the caller's.
func New(pool *pgxpool.Pool) *Reader {
	return &Reader{pool: pool, q: dbsqlc.New(), snap: newShared[*Snapshot](), workers: newShared[[]Worker]()}
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, ReadTimeout)
}

func clampLimit(n int) int {
	if n <= 0 {
		return DefaultLimit
	}
	return min(n, MaxLimit)
}

// instant maps the queries' word for no instant, the epoch, to the zero Time.
func instant(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}

func optional(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// filter is a text filter: empty asks for everything.
func filter(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func rawJSON(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	return b
}
