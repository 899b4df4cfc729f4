package engine

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

const (
	// liveEvery is how often runs tell what is new: what a lost process takes
	// along is no older.
	liveEvery = time.Second
	// liveAfter is how old a run must be: a shorter one tells with its end.
	liveAfter = time.Second
	// maxLiveBytes bounds one pass; who is left out is first in the next.
	maxLiveBytes = 4 << 20

	maxProgressText = 200
	liveKept        = time.Minute // a leftover of an ended run
)

// progress is how far a run says it has come.
type progress struct {
	percent float32
	text    string
}

// unknown stands for a run that never told.
var unknownProgress = progress{percent: -1}

// SetProgress tells how far this run has come: percent from 0 to 100, beyond
// which it is cut, and a line of text of at most 200 bytes. The last call counts.
// It is seen live a second later and kept with the run; it costs a lock, and one
// statement a second for all runs of the worker together.
func (j *Job[T]) SetProgress(percent float64, text string) { j.run.setProgress(percent, text) }

func (r *run) setProgress(percent float64, text string) {
	if math.IsNaN(percent) {
		percent = 0
	}
	p := &progress{float32(min(max(percent, 0), 100)), clean(text, maxProgressText)}
	r.mu.Lock()
	r.progress = p
	r.mu.Unlock()
	r.fresh.Store(true)
	if r.parent != nil {
		r.parent.tell(report{Token: r.row.FencingToken, Progress: &reportedProgress{p.percent, p.text}})
	}
}

// told is what a run has told so far.
func (r *run) told() (p progress, logs string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p = unknownProgress
	if r.progress != nil {
		p = *r.progress
	}
	if r.log != nil {
		logs = r.log.json()
	}
	return p, logs
}

// flushLive writes what runs that go on have to tell, in one statement; nothing
// if no run has.
func (e *Engine) flushLive(ctx context.Context) error {
	runs, rows := e.collectLive(time.Now())
	if len(runs) == 0 {
		return nil
	}
	kept, err := e.q.FlushLive(ctx, e.hot, rows)
	if err != nil {
		for _, r := range runs {
			r.fresh.Store(true)
		}
		return err
	}
	fault.Point("live.flushed")
	written := make(map[key]bool, len(kept))
	for _, k := range kept {
		written[key{k.JobID, k.FencingToken}] = true
	}
	var refused []ended
	for _, r := range runs {
		if !written[key{r.row.ID, r.row.FencingToken}] && r.state.Load() == runRunning && !r.closedInTx.Load() {
			refused = append(refused, ended{run: r, took: time.Since(r.began)})
		}
	}
	return e.refuseLive(ctx, refused)
}

// collectLive takes what is new of runs that are old enough, beginning where the
// last pass came to its limit.
func (e *Engine) collectLive(now time.Time) (runs []*run, p dbsqlc.FlushLiveParams) {
	size, n := 0, len(e.running)
	for k := range n {
		i := (e.liveFrom + k) % n
		r := e.running[i].Load()
		if r == nil || r.state.Load() != runRunning || now.Sub(r.began) < liveAfter || r.closedInTx.Load() || r.deposed.Load() || !r.fresh.Load() {
			continue
		}
		if size >= maxLiveBytes {
			e.liveFrom = i
			break
		}
		r.fresh.Store(false)
		r.flushed.Store(true) // before the state is asked again: who closes it meanwhile removes the row
		if r.state.Load() != runRunning {
			continue
		}
		told, logs := r.told()
		size += len(logs)
		runs = append(runs, r)
		p.Tokens, p.JobIds = append(p.Tokens, r.row.FencingToken), append(p.JobIds, r.row.ID)
		p.Progress, p.ProgressTexts, p.Logs = append(p.Progress, told.percent), append(p.ProgressTexts, told.text), append(p.Logs, logs)
	}
	p.WorkerID = e.workerID
	p.Claims = slices.Compact(slices.Sorted(slices.Values(p.Tokens)))
	return runs, p
}

// refuseLive is for runs whose token no longer holds their job: the refusal is
// kept, once, and their handlers are told.
func (e *Engine) refuseLive(ctx context.Context, refused []ended) error {
	if len(refused) == 0 {
		return nil
	}
	const operation = "progress"
	if err := e.refuseWrites(ctx, e.hot, refused, func(*ended) string { return operation }); err != nil {
		for i := range refused {
			refused[i].run.fresh.Store(true)
		}
		return err
	}
	for i := range refused {
		r := refused[i].run
		r.deposed.Store(true)
		if ctx := r.handler.Load(); ctx != nil {
			ctx.halt(ErrLeaseLost)
		}
		e.obs.WriteRefused(operation)
		e.log.With(r.attrs()...).Warn(LogStaleWriteRefused, "operation", operation)
	}
	return nil
}

// sweepLive removes what nobody took over.
// queueLive removes the live rows of runs that end, with their end.
func queueLive(b *pgx.Batch, batch []ended) {
	var tokens []int64
	var ids []ID
	for i := range batch {
		if x := &batch[i]; x.flushed {
			tokens, ids = append(tokens, x.run.row.FencingToken), append(ids, x.run.row.ID)
		}
	}
	if len(ids) > 0 {
		b.Queue(dbsqlc.DropLive, tokens, uuidArray(ids))
	}
}
