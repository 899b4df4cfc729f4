package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// notAsTold tells the answers of sendWhole that say: some run of the batch is
// closed already (23505), had lost its lease, or was asked to stop (22012, see
// CompleteJobs).
func notAsTold(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "23505" || pg.Code == "22012")
}

// sendEach writes what of a batch can still be written, counts that alone, and
// keeps the evidence of what was refused: in one transaction, so that neither a
// crash nor an outage leaves one without the others. It costs three round trips
// more than sendWhole.
func (f *finisher) sendEach(ctx context.Context, batch []ended) (closedRuns, error) {
	var (
		closed closedRuns
		told   []ended
		drop   []int64
		answer *rest
	)
	err := pgx.BeginFunc(ctx, f.e.hot, func(tx pgx.Tx) error {
		var counted, refused []ended
		var err error
		if closed, told, err = f.closeEach(ctx, tx, batch); err != nil {
			return err
		}
		if counted, refused, err = f.sortOut(ctx, tx, told, closed); err != nil {
			return err
		}
		if len(refused) > 0 {
			fault.Point("finish.refused")
			if err := f.e.refuseWrites(ctx, tx, refused, func(x *ended) string { return operation(x.verdict.outcome) }); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		drop, answer = f.queueRest(b, batch, counted)
		if b.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return closedRuns{}, err
	}
	fault.Point("finish.each")
	copy(batch, told)
	f.account(batch, drop, answer.dropped)
	f.called = answer.called
	return closed, nil
}

// closeEach closes the runs that are open, and answers the batch as the database
// made it: runs whose jobs were asked to stop, unknown to this process, were closed
// as cancelled.
func (f *finisher) closeEach(ctx context.Context, tx pgx.Tx, batch []ended) (closedRuns, []ended, error) {
	closed, told := closedRuns{some: map[key]bool{}}, slices.Clone(batch)
	_, open := f.split(batch, true)
	if len(open.JobIds) == 0 {
		return closed, told, nil
	}
	rows, err := f.e.q.CloseJobs(ctx, tx, open)
	if err != nil {
		return closed, nil, err
	}
	cancelled := map[key]bool{}
	for _, r := range rows {
		k := key{r.JobID, r.FencingToken}
		closed.some[k], cancelled[k] = true, Outcome(r.Outcome) == OutcomeCancelled
	}
	for i := range told {
		if x := &told[i]; cancelled[x.key()] && x.verdict.outcome != OutcomeCancelled {
			x.verdict = verdict{outcome: OutcomeCancelled, class: x.verdict.class, message: x.verdict.message}
		}
	}
	return closed, told, nil
}

// sortOut parts a batch: runs closed by this transaction are counted; those that
// CompleteTx or a write whose answer was lost had closed as told were counted
// then, and are marked as closed; the rest is refused.
func (f *finisher) sortOut(ctx context.Context, tx pgx.Tx, told []ended, closed closedRuns) (counted, refused []ended, err error) {
	var ids []ID
	var tokens []int64
	for i := range told {
		if x := &told[i]; !x.closed && !closed.has(x) {
			ids, tokens = append(ids, x.run.row.ID), append(tokens, x.run.row.FencingToken)
		}
	}
	var known []dbsqlc.ListOutcomesRow
	if len(ids) > 0 {
		if known, err = f.e.q.ListOutcomes(ctx, tx, ids, tokens, f.e.workerID); err != nil {
			return nil, nil, err
		}
	}
	outcomes := map[key]Outcome{}
	for _, k := range known {
		outcomes[key{k.JobID, k.FencingToken}] = Outcome(k.Outcome)
	}
	for _, x := range told {
		switch {
		case closed.has(&x):
			counted = append(counted, x)
		case x.closed || outcomes[x.key()] == x.verdict.outcome:
			closed.some[x.key()] = true
		default:
			refused = append(refused, x)
		}
	}
	return counted, refused, nil
}
