package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Integrity is what the last check of the stored history found.
type Integrity struct {
	At      time.Time
	Age     time.Duration // by the database's clock
	Took    time.Duration
	Verdict string // ok, violated or unchecked
	Rules   int
	// Violated and Unchecked name rules of engine/verify.
	Violated, Unchecked []string
	// CompleteAt is when a check could last look at every rule; zero for never.
	CompleteAt time.Time
}

// Integrity reads the last check; nil before the first.
func (r *Reader) Integrity(ctx context.Context) (*Integrity, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return r.integrity(ctx, r.pool)
}

func (r *Reader) integrity(ctx context.Context, db dbsqlc.DBTX) (*Integrity, error) {
	rows, err := r.q.LastIntegrityChecks(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("read the last integrity check: %w", err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	x := rows[0]
	i := &Integrity{At: x.CheckedAt.UTC(), Age: seconds(max(x.AgeSeconds, 0)), Took: time.Duration(x.TookMs) * time.Millisecond, Verdict: x.Verdict,
		Rules: int(x.Rules), Violated: x.Violated, Unchecked: x.Unchecked}
	for _, c := range rows {
		if c.Complete && c.CheckedAt.After(i.CompleteAt) {
			i.CompleteAt = c.CheckedAt.UTC()
		}
	}
	return i, nil
}
