package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

func (c *Client) prepareMany(items []EnqueueItem) ([]request, error) {
	rs := make([]request, len(items))
	var bad []FieldError
	for i, it := range items {
		r, err := c.prepare(it.Args, it.Options)
		if v, ok := err.(*ValidationError); ok {
			bad = append(bad, v.ofItem(i).Fields...)
			continue
		}
		if err != nil {
			return nil, err
		}
		rs[i] = r
	}
	if len(bad) > 0 {
		return nil, &ValidationError{bad}
	}
	return rs, nil
}

// untangleTries bounds how often a batch is begun anew whose keys another batch
// took in a circle with it. The order of keys leaves no circle among unique keys
// and none among idempotency keys, but items with both may make one.
const untangleTries = 3

func untangled(write func() error) func() error {
	return func() (err error) {
		var pg *pgconn.PgError
		for range untangleTries {
			if err = write(); !errors.As(err, &pg) || pg.Code != "40P01" {
				break
			}
		}
		return err
	}
}

// insertMany writes jobs without a key by COPY and the others one by one, all in
// tx. refuse is told of an item's own error and answers what ends the batch, nil
// to go on without the item.
func (c *Client) insertMany(ctx context.Context, tx pgx.Tx, rs []request, refuse func(i int, err error) error) ([]Enqueued, error) {
	now, err := c.q.Now(ctx, tx)
	if err != nil {
		return nil, err
	}
	unfit, err := c.refuseUnfit(ctx, tx, rs, refuse)
	if err != nil {
		return nil, err
	}
	done := make([]Enqueued, len(rs))
	for _, i := range byKey(rs) {
		if unfit[i] {
			continue
		}
		done[i], err = c.insert(ctx, tx, rs[i], false)
		if err != nil && ofItem(err) {
			err = refuse(i, err)
		}
		if err != nil {
			return nil, err
		}
	}
	jobs := make([]dbsqlc.CopyJobsParams, 0, len(rs))
	ready := make([]dbsqlc.CopyReadyParams, 0, len(rs))
	var later []dbsqlc.CopyScheduledParams
	for i, r := range rs {
		if r.keyed() || unfit[i] {
			continue
		}
		d := c.accepted(r)
		d.CreatedAt = now
		var at *time.Time
		switch {
		case r.scheduledAt != nil:
			at = r.scheduledAt
		case r.delay != nil:
			t := now.Add(*r.delay)
			at = &t
		}
		if at != nil {
			d.ScheduledAt = *at
		}
		done[i] = d.settle()
		jobs = append(jobs, dbsqlc.CopyJobsParams{ID: r.id, Type: r.jobType, Queue: r.queue, Priority: int16(r.priority),
			MaxAttempts: int16(d.MaxAttempts), Version: 1, Payload: r.payload, ScheduledAt: at, ExpiresAt: r.expiresAt,
			TimeoutMs: r.timeoutMS, Tags: r.tags, Traceparent: r.traceparent, CopiedFrom: r.copiedFrom, Backoff: r.backoff})
		if done[i].later {
			later = append(later, dbsqlc.CopyScheduledParams{RunAt: *at, JobID: r.id, Priority: int16(r.priority), Queue: r.queue, Type: r.jobType})
		} else {
			ready = append(ready, dbsqlc.CopyReadyParams{JobID: r.id, Priority: int16(r.priority), Queue: r.queue, Type: r.jobType})
		}
	}
	if len(jobs) == 0 {
		return done, nil
	}
	if _, err := c.q.CopyJobs(ctx, tx, jobs); err != nil {
		return nil, err
	}
	if len(ready) > 0 {
		if _, err := c.q.CopyReady(ctx, tx, ready); err != nil {
			return nil, err
		}
	}
	if len(later) > 0 {
		if _, err := c.q.CopyScheduled(ctx, tx, later); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// refuseUnfit refuses the items whose payload does not fit the schema of their type,
// and tells which they are. If that ends the batch, the error lists them all.
func (c *Client) refuseUnfit(ctx context.Context, tx pgx.Tx, rs []request, refuse func(i int, err error) error) (map[int]bool, error) {
	unfit := map[int]bool{}
	var bad []FieldError
	for i := range rs {
		misfit, err := c.misfit(ctx, pgxSchemas{c.q, tx}, &rs[i])
		if err != nil {
			return nil, err
		}
		if misfit == nil {
			continue
		}
		unfit[i] = true
		var all *ValidationError
		switch err := refuse(i, misfit); {
		case errors.As(err, &all):
			bad = append(bad, all.Fields...)
		case err != nil:
			return nil, err
		}
	}
	if len(bad) > 0 {
		return nil, &ValidationError{bad}
	}
	return unfit, nil
}

// ofItem tells errors that concern one item and leave the transaction whole.
func ofItem(err error) bool {
	var conflict *UniqueConflictError
	var reused *KeyReusedError
	var invalid *ValidationError
	return errors.As(err, &conflict) || errors.As(err, &reused) || errors.As(err, &invalid) || errors.Is(err, ErrKeyInFlight) || errors.Is(err, ErrUniqueInFlight)
}

// allOrNone ends a batch at the first item that is refused. Of a conflict with
// another item of the same batch it says so: that item goes with the batch, so
// that nobody will find its id.
func allOrNone(rs []request) func(i int, err error) error {
	return func(i int, err error) error {
		var conflict *UniqueConflictError
		var reused *KeyReusedError
		var misfit *ValidationError
		field, holder := "", ID{}
		switch {
		case errors.As(err, &misfit):
			return misfit.ofItem(i)
		case errors.As(err, &conflict):
			field, holder = "unique.key", conflict.Holder
		case errors.As(err, &reused):
			field, holder = "idempotency_key", reused.Holder
		}
		first := slices.IndexFunc(rs, func(r request) bool { return r.id == holder })
		if first < 0 {
			return &ItemError{i, err}
		}
		return &ValidationError{[]FieldError{{fmt.Sprintf("items.%d.%s", i, field), "conflict", fmt.Sprintf("item %d has the same key", first)}}}
	}
}

// byKey lists the requests that have a key, in the order of their keys: two
// batches with the same keys then wait for each other instead of in a circle.
// Of equal keys the first stays first.
func byKey(rs []request) []int {
	var keyed []int
	for i := range rs {
		if rs[i].keyed() {
			keyed = append(keyed, i)
		}
	}
	slices.SortStableFunc(keyed, func(a, b int) int {
		return cmp.Or(strings.Compare(rs[a].uniqueName(), rs[b].uniqueName()), strings.Compare(rs[a].key, rs[b].key))
	})
	return keyed
}

// keyed tells whether the request goes through the schema's function: for its key,
// or for what else the hot statements know nothing of.
func (r *request) keyed() bool { return r.key != "" || r.unique != nil || r.callbackURL != nil }

// uniqueName is the request's unique key with its scope.
func (r *request) uniqueName() string {
	if r.unique == nil {
		return ""
	}
	among := map[UniqueScope]string{UniqueByType: r.jobType, UniqueByQueue: r.queue}[r.unique.scope]
	return string(r.unique.scope) + "\x00" + among + "\x00" + r.unique.key
}
