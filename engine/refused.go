package engine

import (
	"context"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// late keeps what a handler brought after its run had been closed over its
// head, for the evidence.
func (f *finisher) late(r *run, v verdict) {
	x := r.ended(v)
	f.mu.Lock()
	f.tooLate = append(f.tooLate, x)
	f.mu.Unlock()
	select {
	case f.signal <- struct{}{}:
	default:
	}
}

// refuseLate writes the evidence. What the database does not take is kept for
// the next time, up to maxTooLate.
func (f *finisher) refuseLate() {
	f.mu.Lock()
	late := f.tooLate
	f.tooLate = nil
	f.mu.Unlock()
	if len(late) == 0 {
		return
	}
	ctx, cancel := f.e.dbContext()
	defer cancel()
	if err := f.e.refuseWrites(ctx, f.e.hot, late, func(x *ended) string { return operation(x.verdict.outcome) }); err != nil {
		f.e.trouble("finish", err)
		f.mu.Lock()
		f.tooLate = append(late, f.tooLate...)[:min(len(late)+len(f.tooLate), maxTooLate)]
		f.mu.Unlock()
		return
	}
	for i := range late {
		f.e.obs.WriteRefused(operation(late[i].verdict.outcome))
	}
}

const maxTooLate = 1000

// refuseWrites keeps writes whose run had ended.
func (e *Engine) refuseWrites(ctx context.Context, db dbsqlc.DBTX, runs []ended, name func(*ended) string) error {
	ids, tokens := make([]ID, len(runs)), make([]int64, len(runs))
	operations, tried := make([]string, len(runs)), make([]string, len(runs))
	for i := range runs {
		x := &runs[i]
		ids[i], tokens[i], operations[i], tried[i] = x.run.row.ID, x.run.row.FencingToken, name(x), x.tried()
	}
	return e.q.RefuseWrites(ctx, db, e.workerID, ids, tokens, operations, tried)
}
