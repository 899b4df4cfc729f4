package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// Isolation says where suspects run: jobs whose last run was lost with its
// process.
type Isolation int

// The isolations. A child is this program, started again with the same arguments
// and environment: its main must come to [Engine.Start] without doing what can be
// done once only, such as taking a port; [InChild] tells it.
const (
	// IsolateAuto is IsolateAlways, but IsolateNever in the binary of go test, where
	// a child would run the tests, and on systems other than Unix.
	IsolateAuto Isolation = iota
	// IsolateAlways runs suspects in a child process, one after the other, so that
	// the end of a process names the job that caused it and hits no other.
	IsolateAlways
	// IsolateNever runs a suspect in this process, alone in its lease. One that ends
	// its process is found after ten lost runs.
	IsolateNever
)

const (
	childIdle  = 30 * time.Second // a child without work ends
	childTries = 3                // failed starts in a row, before suspects run here
	childRest  = time.Second      // after a failed start
	childAgain = time.Minute      // until a start is tried again
	// childGrace is how long a run whose lease was lost, or whose worker stops, may
	// take to return; for the latter Stop has no more to give.
	childGrace     = 400 * time.Millisecond
	childStopGrace = stopHandlers - 50*time.Millisecond
)

// isolator runs suspects in child processes: one at a time in each, so that the
// end of a child names the run that caused it.
type isolator struct {
	e  *Engine
	on bool

	restUntil         atomic.Int64 // no suspect is claimed before, by the wall clock
	inOwnProcessUntil atomic.Int64 // suspects run in this process, since children do not come up
	warnedAt          atomic.Int64
	failures          atomic.Int32 // failed starts in a row

	mu       sync.Mutex
	children map[*childProcess]bool // true: without work
	closed   bool
}

func newIsolator(e *Engine) *isolator {
	c := &e.cfg
	return &isolator{e: e, children: map[*childProcess]bool{},
		on: !c.MaintenanceOnly && canIsolate && c.Isolation != IsolateNever && (c.Isolation == IsolateAlways || !inTests())}
}

// isolates tells whether suspects run in children, as far as is known.
func (s *isolator) isolates() bool { return s.on && !s.hasGivenUp() }

func (s *isolator) hasGivenUp() bool { return time.Now().UnixNano() < s.inOwnProcessUntil.Load() }

// resting tells whether suspects wait because no child could be started.
func (s *isolator) resting() bool { return time.Now().UnixNano() < s.restUntil.Load() }

// run makes a suspect's run in a child. It answers false if it must be made here,
// since children cannot be started.
func (s *isolator) run(r *run) bool {
	if !s.on {
		return false
	}
	if s.hasGivenUp() {
		s.e.log.With(r.attrs()...).Warn("a suspect runs in the worker's own process: no child process can be started")
		return false
	}
	r.isolated = true
	p, err := s.ready(r)
	if err != nil {
		s.notStarted(r, err)
		return true
	}
	s.follow(p, r)
	s.rest(p)
	return true
}

// ready is a child that waits for an order. A run alone in its lease whose death
// would bury its job gets a child in which no other job has left anything behind.
func (s *isolator) ready(r *run) (*childProcess, error) {
	p := s.idle()
	if p != nil && (!p.alive() || p.ordered > 0 && r.alone && r.row.Crashes+1 >= s.e.cfg.CrashLimit) {
		s.forget(p)
		p.dismiss()
		p = nil
	}
	if p == nil {
		var err error
		if p, err = s.start(); err != nil {
			return nil, err
		}
	}
	wait, cancel := s.untilUnwanted(r)
	defer cancel()
	if err := p.awaitReady(wait); err != nil {
		s.drop(p)
		return nil, err
	}
	return p, nil
}

// idle gives work to a child that has none; nil if there is no such child.
func (s *isolator) idle() *childProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, free := range s.children {
		if free {
			s.children[p] = false
			p.leaving.Stop()
			return p
		}
	}
	return nil
}

func (s *isolator) start() (*childProcess, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrStopping
	}
	p, err := s.e.startChild()
	if err != nil {
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	s.children[p] = false
	return p, nil
}

// untilUnwanted ends when a run that has not started should not start any more:
// its lease is lost, or this worker claims no more.
func (s *isolator) untilUnwanted(r *run) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	stop := context.AfterFunc(s.e.claims, func() { cancel(ErrStopping) })
	return ctx, func() { stop(); cancel(nil) }
}

func (s *isolator) forget(p *childProcess) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, p)
}

func (s *isolator) drop(p *childProcess) {
	p.kill()
	<-p.died
	s.forget(p)
}

// notStarted hands a run back that its child never began: whatever was wrong, it
// was not the job.
func (s *isolator) notStarted(r *run, err error) {
	r.giveUp(handedBack(r.row))
	if r.ctx.Err() != nil || s.e.claims.Err() != nil {
		return
	}
	failures := s.failures.Add(1)
	s.restUntil.Store(time.Now().Add(childRest).UnixNano())
	if failures >= childTries {
		s.inOwnProcessUntil.Store(time.Now().Add(childAgain).UnixNano())
	}
	if last := s.warnedAt.Load(); time.Since(time.Unix(0, last)) >= time.Second {
		s.warnedAt.Store(time.Now().UnixNano())
		s.e.log.With(r.attrs()...).Error("a suspect was handed back: its child process did not come up", "failures", failures, "error", err.Error())
	}
}

// rest keeps the child for the next suspect, for a while.
func (s *isolator) rest(p *childProcess) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.children[p]; !there {
		return
	}
	s.children[p] = true
	p.leaving = time.AfterFunc(childIdle, func() {
		s.mu.Lock()
		free := s.children[p]
		if free {
			delete(s.children, p)
		}
		s.mu.Unlock()
		if free {
			p.dismiss()
		}
	})
}

// close ends the children, and lets no other begin. While ctx lasts, those without
// work may end by themselves.
func (s *isolator) close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.children))
	s.mu.Unlock()
	var ends sync.WaitGroup
	for _, p := range all {
		ends.Go(func() {
			if p.current.Load() == nil && ctx.Err() == nil {
				p.dismiss()
				return
			}
			p.kill()
			<-p.died
		})
	}
	ends.Wait()
}

// follow gives a run to the child and settles it by what comes of it.
func (s *isolator) follow(p *childProcess, r *run) {
	f := p.follow(r.row.FencingToken)
	// Before a drop: a report that nobody takes any more would keep the child's
	// reader, and with it the child's end, waiting for ever.
	leave := sync.OnceFunc(func() { p.leave(f) })
	defer leave()
	p.ordered++
	now := r.lease.dbTime(time.Now())
	err := p.send(order{Run: &orderedRun{Row: r.row, Timeout: r.timeout, Backoff: r.backoff, Calls: r.callsBack, Now: now}})
	w := watched{s: s, p: p, r: r, reports: f.reports}
	if err == nil {
		err = w.watch()
	}
	switch {
	case err != nil:
		leave()
		s.drop(p)
		s.notStarted(r, err)
		return
	case w.reported != nil:
		r.takeResult(w.reported.Result)
		r.bring(w.reported.verdict())
	case w.ended != nil:
		r.giveUp(r.verdict(w.ended, w.cause))
	default:
		r.giveUp(s.e.crashedIn(p, r))
	}
	if w.started {
		s.e.pace.ran(time.Since(r.began))
	}
	s.failures.Store(0)
	if !p.alive() {
		leave()
		s.drop(p)
	}
}

// bring settles an isolated run as its handler's return does.
func (r *run) bring(v verdict) {
	if !r.settle(v) {
		r.engine.stuck.Add(-1)
		r.engine.finisher.late(r, v)
	}
}

// giveUp settles an isolated run whose handler will not return. Where it was settled over its handler's head
// meanwhile, its slot is no longer stuck.
func (r *run) giveUp(v verdict) {
	if !r.settle(v) {
		r.engine.stuck.Add(-1)
	}
}

// crashedIn is the verdict on a run that its child did not outlive. It buries no
// job in whose child others ran before: it may be they that ended it. The next time
// the job is alone.
func (e *Engine) crashedIn(p *childProcess, r *run) verdict {
	words, stack := p.said.last()
	if words != "" {
		words = ": " + words
	}
	limit := e.cfg.CrashLimit
	if p.ordered > 1 {
		limit = math.MaxInt
	}
	return crashed(r.row, limit, fmt.Sprintf("the child process in which it ran alone ended while it ran: %s%s", p.cmd.ProcessState, words), stack)
}

// childDiedUnasked tells of a child that ended between two runs. No job can be
// blamed: those that ran in it have ended.
func (e *Engine) childDiedUnasked(p *childProcess) {
	e.log.Warn("the child process for suspects ended between two runs", "worker_id", e.workerID, "runs", p.ordered, "how", p.epitaph())
}

var errNoStart = errors.New("the child process did not begin the run")

// watched is a run in the child, from the order to its end.
type watched struct {
	s       *isolator
	p       *childProcess
	r       *run
	reports chan report

	started  bool
	reported *reportedVerdict
	ended    error // why the parent ended the child
	cause    error // of the end of the run's context
}

// watch follows a run until it has reported its verdict or its child is gone. An
// error says that the handler was not called.
func (w *watched) watch() error {
	unwanted, cancel := w.s.untilUnwanted(w.r)
	defer cancel()
	late := time.NewTimer(helloWithin)
	defer late.Stop()
	select {
	case <-unwanted.Done():
		return context.Cause(unwanted)
	case <-late.C:
		return errNoStart
	case <-w.p.eof:
		<-w.p.died
		return fmt.Errorf("%w: %s", errNoStart, w.p.epitaph())
	case first := <-w.reports:
		if !first.Started {
			return errNoStart
		}
	}
	w.began()
	fault.Point("child.started")
	w.follow()
	return nil
}

func (w *watched) began() {
	w.started = true
	w.r.begin(time.Now()) // nobody else settles a run that waits in its slot
}

func (w *watched) follow() {
	over := w.r.ctx.Done()
	overdue := time.NewTimer(w.r.timeout + stuckGrace)
	defer overdue.Stop()
	look := time.NewTicker(watchEvery)
	defer look.Stop()
	var grace <-chan time.Time
	for w.reported == nil {
		select {
		case rep := <-w.reports:
			w.take(rep)
		case <-w.p.eof:
			<-w.p.died
			fault.Point("child.died")
			if w.ended == nil && w.p.isEnded() { // by Stop, which waits no longer
				w.ended, w.cause = errSettledOver, ErrStopping
			}
			return
		case <-over:
			over = nil
			w.cause = context.Cause(w.r.ctx)
			grace = w.pass(w.cause)
		case <-overdue.C:
			w.end(timeoutError(w.r.timeout), ErrTimeout)
		case <-grace:
			w.end(fmt.Errorf("it went on after its context had ended: %w", w.cause), w.cause)
		case <-look.C:
			w.look(&over)
		}
	}
}

// look finds out what comes without a signal: a stop request, and that the run
// was closed over its handler's head, by the end of a request's grace for one.
func (w *watched) look(over *<-chan struct{}) {
	if *over != nil && w.r.stopAt.Load() != 0 {
		*over = nil
		w.cause = ErrStopRequested
		w.pass(w.cause)
	}
	if w.r.state.Load() == runSettled {
		w.end(errSettledOver, w.cause)
	}
}

var errSettledOver = errors.New("its run was closed while it ran")

func (w *watched) take(rep report) {
	switch {
	case rep.Line != nil:
		w.r.takeLine(rep.Line)
	case rep.Progress != nil:
		w.r.setProgress(float64(rep.Progress.Percent), rep.Progress.Text)
	case rep.InTx:
		w.r.closedInTx.Store(true)
	case rep.Verdict != nil:
		fault.Point("child.reported")
		w.reported = rep.Verdict
	}
}

// pass tells the child why the run's context has ended, and how long its handler
// may go on: without limit where whoever ended it will settle the run.
func (w *watched) pass(cause error) <-chan time.Time {
	if w.p.send(order{End: cause.Error()}) != nil {
		return time.After(0)
	}
	switch {
	case errors.Is(cause, ErrStopping):
		return time.After(childStopGrace)
	case errors.Is(cause, ErrLeaseLost):
		return time.After(childGrace)
	}
	return nil
}

// end kills the child under the run. What it reported before still counts.
func (w *watched) end(why, cause error) {
	if w.ended == nil && w.p.alive() {
		w.ended, w.cause = why, cause
		w.p.kill()
	}
}

// inTests tells whether this is the binary of go test, which cannot be started
// again to run suspects.
func inTests() bool { return flag.Lookup("test.v") != nil }

// takeResult keeps what the handler set in the child.
func (r *run) takeResult(b []byte) {
	if len(b) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result = b
}

// takeLine keeps a line of the child as if it had been written here.
func (r *run) takeLine(l *logLine) {
	h := r.logger().Handler().(*runHandler)
	h.log.add(*l)
	if rec := l.record(); h.outer.Enabled(r.ctx, rec.Level) {
		_ = h.outer.Handle(r.ctx, rec) // as slog's own loggers do
	}
}
