package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Anchor is an act's hash as it was kept outside the database. The chain alone shows
// what was changed in it, but not that it was made anew from some act on, by one who
// may write everything: an anchor does.
type Anchor struct {
	ID   int64
	Hash []byte
}

// TrailReport is a check of the audit trail alone.
type TrailReport struct {
	At   time.Time // of the snapshot, by the database's clock
	Took time.Duration
	// Result is that of the rule trail_is_whole; its first offender is the first
	// broken act.
	Result Result
	Acts   int64
	// Last is the act to keep as an anchor; its ID is 0 while there is none.
	Last Anchor
}

// Trail checks that the audit trail is whole, in one snapshot, and that it still
// has each anchor. The report has a result in any case; the error says why it is
// unchecked.
func Trail(ctx context.Context, pool *pgxpool.Pool, o Options, anchors ...Anchor) (TrailReport, error) {
	o.fill()
	began := time.Now()
	c, r := newCheck(o), TrailReport{}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := c.begin(ctx, tx); err != nil {
			return err
		}
		if err := c.pass(ctx, tx, trailPass); err != nil {
			return err
		}
		if len(c.failed) > 0 {
			return errors.Join(c.failed...)
		}
		return r.follow(ctx, c, tx, anchors)
	})
	all := c.report(err).Results
	r.Result = all[slices.IndexFunc(all, func(x Result) bool { return x.Rule.Name == trailRule })]
	if err != nil && r.Result.Verdict == OK {
		r.Result.Verdict, r.Result.Problem = Unchecked, err.Error()
	}
	r.At, r.Took = c.at, time.Since(began)
	if err != nil {
		return r, fmt.Errorf("verify the trail: %w", err)
	}
	return r, nil
}

// follow reads where the trail ends and looks for the anchors.
func (r *TrailReport) follow(ctx context.Context, c *check, tx pgx.Tx, anchors []Anchor) error {
	end, err := c.q.TrailEnd(ctx, tx)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // the rule has said so
	}
	if err != nil {
		return fmt.Errorf("read the end of the trail: %w", err)
	}
	r.Acts, r.Last = end.Acts, Anchor{end.ID, end.Hash}
	for _, a := range anchors {
		if a.ID <= end.RemovedID {
			return fmt.Errorf("act %d was removed when its time was over; take a later anchor", a.ID)
		}
		hash, err := c.q.TrailHash(ctx, tx, a.ID)
		gone := errors.Is(err, pgx.ErrNoRows)
		switch {
		case err != nil && !gone:
			return fmt.Errorf("read act %d: %w", a.ID, err)
		case gone:
			c.offenders[trailRule] = append(c.offenders[trailRule], Offender{Subject: fmt.Sprintf("act %d", a.ID), Detail: "it is missing, and was there when its hash was kept"})
		case !bytes.Equal(hash, a.Hash):
			c.offenders[trailRule] = append(c.offenders[trailRule], Offender{Subject: fmt.Sprintf("act %d", a.ID), Detail: "its hash is not the one that was kept: the trail was made anew"})
		}
	}
	return nil
}
