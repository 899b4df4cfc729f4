package engine

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

const (
	maxFinishJobs  = 2000
	maxFinishBytes = 8 << 20
)

// ended is a run with its verdict, on its way to the database.
type ended struct {
	run     *run
	verdict verdict
	took    time.Duration
	logs    string
	result  []byte
	progress
	// settled tells a run that has more to clean up than its place.
	flushed, asked bool
	// closed tells a run that CompleteTx closed and counted.
	closed bool
}

func (x *ended) plain() bool {
	return x.verdict.outcome == OutcomeCompleted && x.logs == "" && len(x.result) == 0 && x.percent < 0 && !x.flushed && !x.asked
}

// finisher writes what has ended, in batches: whatever came while the last one
// was written. Alone, a run is written at once.
type finisher struct {
	e      *Engine
	signal chan struct{}

	mu      sync.Mutex
	waiting []ended
	writing int
	refused int // in later
	tooLate []ended

	later []postponed // ends that the database refused by themselves

	drop   map[int64]struct{}   // leases without an open job, to be dropped
	called []dbsqlc.CallBackRow // callbacks of the batch just written
}

func newFinisher(e *Engine) *finisher {
	return &finisher{e: e, signal: make(chan struct{}, 1), drop: map[int64]struct{}{}}
}

// ended is what the finisher writes of a run.
func (r *run) ended(v verdict) ended {
	x := ended{run: r, verdict: v, flushed: r.flushed.Load(), asked: r.stopAt.Load() != 0}
	x.progress, x.logs = r.told()
	if !r.began.IsZero() {
		x.took = time.Since(r.began)
	}
	if v.outcome == OutcomeCompleted {
		r.mu.Lock()
		x.result = r.result
		r.mu.Unlock()
	}
	return x
}

func (f *finisher) add(r *run, v verdict) {
	x := r.ended(v)
	f.mu.Lock()
	f.waiting = append(f.waiting, x)
	first := len(f.waiting) == 1
	f.mu.Unlock()
	if first {
		select {
		case f.signal <- struct{}{}:
		default:
		}
	}
}

// idle tells whether everything that ended is written.
func (f *finisher) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting) == 0 && f.writing == 0 && f.refused == 0 && len(f.tooLate) == 0
}

func (f *finisher) next() []ended {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, size := 0, 0
	for n < len(f.waiting) && n < maxFinishJobs && size < maxFinishBytes {
		size += len(f.waiting[n].result) + len(f.waiting[n].logs) + len(f.waiting[n].verdict.stack)
		n++
	}
	batch := slices.Clone(f.waiting[:n])
	rest := copy(f.waiting, f.waiting[n:])
	clear(f.waiting[rest:])
	f.waiting = f.waiting[:rest]
	f.writing = n
	return batch
}

// run writes until ctx ends. A batch that the database does not take is tried
// again until it does: its tokens hold until the reaper takes them, and then
// the write is refused. It gives up only with the process.
func (f *finisher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.signal:
		case <-f.nextTry():
		}
		if len(f.drop) > 0 {
			f.dropLeft()
		}
		for batch := f.next(); len(batch) > 0; batch = f.next() {
			f.writeAll(ctx, batch)
			f.count()
		}
		f.retryLater(ctx)
		f.refuseLate()
	}
}

// poke lets an idle finisher drop leases that were skipped before.
func (f *finisher) poke(context.Context) error {
	select {
	case f.signal <- struct{}{}:
	default:
	}
	return nil
}

// dropLeft tries again to drop leases whose row somebody held.
func (f *finisher) dropLeft() {
	ctx, cancel := f.e.dbContext()
	defer cancel()
	asked := f.droppable(nil)
	fault.Point("finish.drop")
	dropped, err := f.e.q.DropClosedClaims(ctx, f.e.hot, asked, f.e.workerID)
	if err != nil {
		f.e.trouble("finish", err)
		return
	}
	f.account(nil, asked, dropped)
}

// key names a run.
type key struct {
	id    ID
	token int64
}

// closedRuns are the runs of a batch that a write closed: nearly always all.
type closedRuns struct {
	all  bool
	some map[key]bool
}

func (c closedRuns) has(x *ended) bool { return c.all || c.some[x.key()] }

func (x *ended) key() key { return key{x.run.row.ID, x.run.row.FencingToken} }

// write closes a batch in one transaction and tells of it afterwards.
func (f *finisher) write(batch []ended) error {
	ctx, cancel := f.e.dbContext()
	defer cancel()
	slices.SortFunc(batch, func(a, b ended) int { return bytes.Compare(a.run.row.ID[:], b.run.row.ID[:]) })
	if err := f.settleInTx(ctx, batch); err != nil {
		return err
	}
	fault.Point("finish.before")
	closed := closedRuns{all: true}
	err := f.sendWhole(ctx, batch)
	if notAsTold(err) {
		closed, err = f.sendEach(ctx, batch)
	}
	if err == nil {
		f.tell(batch, closed)
	}
	return err
}

// settleInTx learns how runs that called CompleteTx went: their transaction may
// have rolled back after Work returned nil.
func (f *finisher) settleInTx(ctx context.Context, batch []ended) error {
	for i := range batch {
		x := &batch[i]
		if !x.run.closedInTx.Load() || x.verdict.outcome == OutcomeHandedBack {
			continue
		}
		fault.Point("finish.intx")
		_, err := f.e.q.GetExecutionOutcome(ctx, f.e.hot, x.run.row.ID, x.run.row.FencingToken)
		switch {
		case err == nil:
			x.verdict, x.closed = verdict{outcome: OutcomeCompleted}, true
		case errors.Is(err, pgx.ErrNoRows) && x.verdict.outcome == OutcomeCompleted:
			x.verdict = x.run.verdict(errRolledBack, nil)
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
	}
	return nil
}

var errRolledBack = errors.New("CompleteTx was called, but its transaction did not commit")

// sendWhole writes the batch, its statistics and the end of its leases in one
// pipeline, which is one transaction: every run ends as told, or nothing is
// written, see notAsTold.
func (f *finisher) sendWhole(ctx context.Context, batch []ended) error {
	b := &pgx.Batch{}
	fast, slow := f.split(batch, false)
	if p := fast; len(p.JobIds) > 0 {
		b.Queue(dbsqlc.CompleteJobs, p.Claims, p.WorkerID, uuidArray(p.JobIds), p.Tokens, p.Attempts, p.StartedAt, p.WaitMs, true)
	}
	if p := slow; len(p.JobIds) > 0 {
		b.Queue(dbsqlc.CloseJobs, p.Claims, p.WorkerID, uuidArray(p.JobIds), p.Tokens, p.Attempts, p.Carried, p.Crashes, p.Started, p.StartedAt, p.WaitMs,
			p.Outcomes, p.Next, p.DelaySeconds, p.Classes, p.Errors, p.Stacks, p.Fingerprints, p.Logs, p.Results, p.Progress, p.ProgressTexts, p.DiscardDead,
			p.Worker, true)
	}
	drop, rest := f.queueRest(b, batch, batch)
	if err := f.e.hot.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	fault.Point("finish.after")
	f.account(batch, drop, rest.dropped)
	f.called = rest.called
	return nil
}

// rest is what the database answers to queueRest, once it is sent.
type rest struct {
	dropped []int64 // leases
	called  []dbsqlc.CallBackRow
}

// queueRest queues what belongs to a batch's transaction beside the ends
// themselves: live rows, callbacks, leases without an open job, and the statistics
// of those counted. drop are the leases asked for.
func (f *finisher) queueRest(b *pgx.Batch, batch, counted []ended) (drop []int64, answer *rest) {
	queueLive(b, batch)
	drop, answer = f.droppable(batch), &rest{}
	if ids := toCall(batch); len(ids) > 0 {
		b.Queue(dbsqlc.CallBack, uuidArray(ids), int32(f.e.client.most)).Query(func(rows pgx.Rows) (err error) {
			answer.called, err = pgx.CollectRows(rows, pgx.RowToStructByPos[dbsqlc.CallBackRow])
			return err
		})
	}
	if len(drop) > 0 {
		b.Queue(dbsqlc.DropClosedClaims, drop, f.e.workerID).Query(func(rows pgx.Rows) (err error) {
			answer.dropped, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	}
	for _, s := range tally(counted) {
		b.Queue(dbsqlc.AddStats, s.Queue, s.Type, s.Outcome, s.N, s.RunMs, s.WaitBuckets, s.RunBuckets)
	}
	return drop, answer
}

// toCall are the runs whose job's end is told, if this was one: the database knows,
// and a run that CompleteTx closed has told of it.
func toCall(batch []ended) (ids []ID) {
	for i := range batch {
		if x := &batch[i]; x.run.callsBack && !x.closed {
			ids = append(ids, x.run.row.ID)
		}
	}
	return ids
}

// droppable are the leases that have no open job once batch is written, and
// those that were skipped before.
func (f *finisher) droppable(batch []ended) []int64 {
	left := map[*lease]int32{}
	for i := range batch {
		left[batch[i].run.lease]++
	}
	tokens := slices.Collect(maps.Keys(f.drop))
	for l, n := range left {
		if l.open.Load() == n {
			tokens = append(tokens, l.token)
		}
	}
	slices.Sort(tokens)
	return tokens
}

// account counts down the leases, and keeps in mind what was not dropped
// because somebody held its row.
func (f *finisher) account(batch []ended, asked, dropped []int64) {
	for i := range batch {
		batch[i].run.lease.open.Add(-1)
	}
	for _, t := range asked {
		f.drop[t] = struct{}{}
	}
	for _, t := range dropped {
		delete(f.drop, t)
	}
	f.e.leases.remove(dropped)
	if len(f.drop) > 0 {
		held := f.e.leases.tokens()
		for t := range f.drop {
			if _, found := slices.BinarySearch(held, t); !found {
				delete(f.drop, t) // the reaper had it
			}
		}
	}
}

// tell logs and counts what is durable now.
func (f *finisher) tell(batch []ended, closed closedRuns) {
	e := f.e
	later, done, failed := false, 0, 0
	for i := range batch {
		x := &batch[i]
		if !closed.has(x) {
			e.obs.WriteRefused(operation(x.verdict.outcome))
			e.log.With(x.run.attrs()...).Warn(LogStaleWriteRefused, "operation", operation(x.verdict.outcome))
			continue
		}
		e.obs.RunEnded(x.run.row.Queue, x.run.row.Type, x.verdict.outcome, x.wait(), x.took)
		if x.verdict.outcome == OutcomeCompleted {
			done++
		} else if x.verdict.outcome == OutcomeFailed || x.verdict.outcome == OutcomeTimedOut {
			failed++
		}
		if x.closed && x.run.callsBack {
			e.client.wakeFor(x.run.row.Queue)
		}
		if reason, dead := x.verdict.dead(); dead {
			e.obs.JobDied(x.run.row.Queue, x.run.row.Type, reason)
		}
		e.logEnded(x)
		later = later || x.verdict.next == nextScheduled
		if x.verdict.next == nextReady && !e.draining.Load() {
			e.claimer.wake(x.run.row.Queue)
		}
		if x.verdict.next == nextReady {
			e.client.notify.queue(x.run.row.Queue)
		}
	}
	e.client.calledBack(f.called)
	f.called = nil
	e.rates.add(time.Now(), done, failed)
	if later {
		e.client.notify.later()
		e.promoter.wake()
	}
}

// operation is what a refused write wanted, as metrics and the console name it.
func operation(o Outcome) string {
	switch o {
	case OutcomeCompleted:
		return "complete"
	case OutcomeSnoozed:
		return "snooze"
	case OutcomeHandedBack:
		return "hand_back"
	case OutcomeCancelled:
		return "stop"
	case OutcomeFailed, OutcomeTimedOut, OutcomeExpired, OutcomeCrashed, OutcomeLeaseExpired:
		return "fail"
	}
	return "unknown"
}
