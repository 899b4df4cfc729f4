package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// lease is one claimed batch: a token, its end, and its jobs.
type lease struct {
	token     int64
	claimedAt time.Time // the database's clock
	seenAt    time.Time // this process's clock, when the claim's answer came
	open      atomic.Int32
	stops     atomic.Pointer[[]ID] // its jobs that were asked to stop
	cancel    context.CancelCauseFunc
}

// dbTime tells an instant of this process by the database's clock. It is early by
// the claim and its way back, so that no run begins before its claim, and none
// begins after its end: counted from the question, a claim that waited for a
// connection made its runs begin too late.
func (l *lease) dbTime(t time.Time) time.Time { return l.claimedAt.Add(t.Sub(l.seenAt)) }

// leases are those this process holds.
type leases struct {
	mu   sync.Mutex
	held map[int64]*lease
}

func (ls *leases) add(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.held[l.token] = l
}

func (ls *leases) remove(tokens []int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, t := range tokens {
		if l := ls.held[t]; l != nil {
			l.cancel(nil)
			delete(ls.held, t)
		}
	}
}

// tokens are never nil, which would be NULL in a statement: nothing differs from all
// of that.
func (ls *leases) tokens() []int64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	tokens := slices.AppendSeq([]int64{}, maps.Keys(ls.held))
	slices.Sort(tokens)
	return tokens
}

// lose ends the contexts of the runs of leases the database no longer has.
func (ls *leases) lose(asked, kept []int64) (lost int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, t := range asked {
		if _, found := slices.BinarySearch(kept, t); found {
			continue
		}
		if l := ls.held[t]; l != nil {
			delete(ls.held, t)
			if l.open.Load() > 0 {
				l.cancel(ErrLeaseLost)
				lost++
			}
		}
	}
	return lost
}

// admit makes runs of claimed rows and hands them to the slots.
func (e *Engine) admit(rows []dbsqlc.ClaimJobsRow, seen time.Time, suspect bool) {
	if len(rows) == 0 {
		return
	}
	l := &lease{token: rows[0].Token, claimedAt: rows[0].ClaimedAt, seenAt: seen}
	l.open.Store(int32(len(rows)))
	ctx, cancel := context.WithCancelCause(e.runs)
	l.cancel = cancel
	slices.SortFunc(rows, func(a, b dbsqlc.ClaimJobsRow) int {
		if a.Priority != b.Priority {
			return int(b.Priority) - int(a.Priority)
		}
		return int(a.Seq - b.Seq)
	})
	block := make([]run, len(rows))
	runs := make([]*run, len(rows))
	perQueue := map[string]int{}
	for i := range rows {
		e.fill(&block[i], &rows[i], l, ctx, suspect)
		runs[i] = &block[i]
		perQueue[rows[i].Queue]++
	}
	for q, n := range perQueue {
		e.obs.JobsClaimed(q, n)
	}
	e.logClaimed(runs, rows[0].LeaseExpiresAt)
	e.leases.add(l)
	fault.Point("lease.held")
	if suspect {
		e.suspects.Add(1)
		runs[0].behind = &suspectLine{runs: runs[1:]}
		runs = runs[:1]
	}
	e.inFlight.Add(int64(len(runs)))
	e.buffer.put(runs)
	if e.draining.Load() {
		e.handBack(e.buffer.drain())
	}
}

func (e *Engine) fill(r *run, row *dbsqlc.ClaimJobsRow, l *lease, ctx context.Context, suspect bool) {
	r.row = Row{ID: row.JobID, Type: row.Type, Queue: row.Queue, Priority: Priority(row.Priority), Attempt: int(row.Attempt) + 1,
		MaxAttempts: int(row.MaxAttempts), Crashes: int(row.Crashes), FencingToken: row.Token, WorkerID: e.workerID, ReadyAt: row.ReadyAt,
		Payload: row.Payload}
	r.lease, r.engine, r.ctx, r.expiresAt, r.suspect, r.backoff = l, e, ctx, row.ExpiresAt, suspect, row.Backoff
	r.callsBack = row.CallsBack
	r.alone = l.open.Load() == 1
	r.reg = e.cfg.Workers.byType[row.Type]
	r.timeout = e.cfg.JobTimeout
	if r.reg.options.Timeout > 0 {
		r.timeout = r.reg.options.Timeout
	}
	if row.TimeoutMs != nil {
		r.timeout = time.Duration(*row.TimeoutMs) * time.Millisecond
	}
}

// collectRenewed reads which leases live, and those of them with jobs that were
// asked to stop.
func collectRenewed(rows pgx.Rows) (kept []int64, stops []dbsqlc.RenewLeasesRow, err error) {
	var r dbsqlc.RenewLeasesRow
	_, err = pgx.ForEachRow(rows, []any{&r.ID, &r.Stops}, func() error {
		if kept = append(kept, r.ID); len(r.Stops) > 0 {
			stops = append(stops, r)
			r.Stops = nil // the next row must not write over it
		}
		return nil
	})
	return kept, stops, err
}

// beatOnce renews every lease of this process in one statement, tells that the
// worker lives, ends the runs of leases that were lost, and passes on what was
// asked to stop.
func (e *Engine) beatOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(e.cfg.HeartbeatInterval, time.Second))
	defer cancel()
	asked := e.leases.tokens()
	var kept []int64
	var stops []dbsqlc.RenewLeasesRow
	var claimers int32
	b := &pgx.Batch{}
	if len(asked) > 0 {
		b.Queue(dbsqlc.RenewLeases, e.cfg.LeaseDuration.Seconds(), e.workerID, asked).Query(func(rows pgx.Rows) (err error) {
			kept, stops, err = collectRenewed(rows)
			return err
		})
	}
	w := e.workerRow()
	b.Queue(dbsqlc.BeatWorker, w.ID, w.Name, w.Hostname, w.Pid, w.Version, w.Queues, w.Types, w.Slots, w.Busy, w.Stuck, w.LeaseMs, w.State, w.DonePerMinute, w.FailedLately).
		QueryRow(func(row pgx.Row) error { return row.Scan(&claimers) })
	fault.Point("heartbeat.before")
	if err := e.beat.SendBatch(ctx, b).Close(); err != nil {
		e.obs.LeasesRenewed(0, 0)
		return err
	}
	fault.Point("heartbeat.after")
	e.claimers.Store(claimers)
	e.deliverStops(stops)
	slices.Sort(kept)
	lost := e.leases.lose(asked, kept)
	e.obs.LeasesRenewed(len(kept), lost)
	if lost > 0 {
		e.log.Warn("leases lost: their handlers are stopped", "worker_id", e.workerID, "leases", lost)
	}
	return nil
}

// releaseUnknown hands back claims whose answer never arrived here.
func (e *Engine) releaseUnknown(ctx context.Context) error {
	var back []dbsqlc.ReleaseUnknownClaimsRow
	var called []dbsqlc.CallBackRow
	err := pgx.BeginFunc(ctx, e.hot, func(tx pgx.Tx) (err error) {
		if back, err = e.q.ReleaseUnknownClaims(ctx, tx, e.workerID, e.leases.tokens()); err != nil {
			return err
		}
		batch, over := make([]ended, len(back)), []ID(nil)
		for i, r := range back {
			if Outcome(r.Outcome) == OutcomeCancelled {
				over = append(over, r.JobID)
			}
			batch[i] = ended{run: &run{row: Row{Queue: r.Queue, Type: r.Type}, lease: &lease{}}, verdict: verdict{outcome: Outcome(r.Outcome)}}
		}
		for _, s := range tally(batch) {
			if err := e.q.AddStats(ctx, tx, s); err != nil {
				return err
			}
		}
		called, err = e.client.callBack(ctx, tx, over)
		return err
	})
	if err == nil && len(back) > 0 {
		fault.Point("claim.released")
		e.client.calledBack(called)
		e.log.Info("claims with a lost answer were handed back", "worker_id", e.workerID, "jobs", len(back))
	}
	return err
}
