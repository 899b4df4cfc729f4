package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

const (
	promoteBatch = 1000
	// promoteMargin keeps the mark behind the last promoted instant, for what
	// other transactions commit late.
	promoteMargin = 2 * time.Second
)

// promoter moves scheduled and failed jobs whose time has come to ready. It
// sleeps until the next is due, woken earlier when an earlier one arrives.
type promoter struct {
	e        *Engine
	woken    chan struct{}
	mark     time.Time   // run_at below which only dead index entries are expected
	moved    atomic.Bool // the clock was: mark says nothing
	rescanAt time.Time
}

func newPromoter(e *Engine) *promoter { return &promoter{e: e, woken: make(chan struct{}, 1)} }

func (p *promoter) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *promoter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.woken:
		}
		wait := p.e.cfg.PollInterval
		if p.e.leader.leading() {
			next, err := p.promoteOnce()
			if err != nil {
				failures++
				p.e.trouble("promote", err)
				next = backoffAfter(failures, time.Second)
			} else {
				failures = 0
			}
			wait = min(wait, next)
		}
		timer.Reset(wait)
	}
}

// promoteOnce promotes all that is due and answers how long until the next.
func (p *promoter) promoteOnce() (time.Duration, error) {
	for {
		ctx, cancel := p.e.dbContext()
		began := time.Now()
		if p.moved.Swap(false) {
			p.mark = time.Time{}
		}
		mark := p.mark
		full := began.After(p.rescanAt)
		if full {
			mark = time.Unix(0, 0)
		}
		fault.Point("promote.before")
		most := p.e.batches.promote.size()
		rows, err := p.e.q.PromoteDue(ctx, p.e.hot, mark, most)
		p.e.batches.promote.after(err)
		if err != nil {
			cancel()
			return 0, err
		}
		if len(rows) > 0 {
			fault.Point("promote.after")
		}
		if full {
			p.rescanAt = time.Now().Add(max(rescanEvery, rescanShare*time.Since(began)))
		}
		fed := map[string]bool{}
		for _, r := range rows {
			if at := r.ReadyAt.Add(-promoteMargin); at.After(p.mark) {
				p.mark = at
			}
			fed[r.Queue] = true
		}
		for q := range fed {
			p.e.client.notify.queue(q)
			p.e.claimer.wake(q)
		}
		if len(rows) == int(most) {
			cancel()
			continue
		}
		next, err := p.e.q.NextDue(ctx, p.e.hot, p.mark)
		cancel()
		if err != nil {
			return 0, err
		}
		return max(time.Duration(min(next, 3600)*float64(time.Second)), time.Millisecond), nil
	}
}
