package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// The life of a run inside this process.
const (
	runWaiting int32 = iota // claimed, not begun
	runRunning
	runSettled // its verdict is with the finisher
)

// stuckGrace is how long after its deadline a handler may take to return before
// its run is closed over its head.
const stuckGrace = 500 * time.Millisecond

// run is one claimed job in this process.
type run struct {
	row       Row
	lease     *lease
	reg       *registration
	engine    *Engine
	expiresAt *time.Time
	timeout   time.Duration
	backoff   []byte // the job's own, as stored; read only when it is needed
	callsBack bool   // its end is told

	state atomic.Int32
	ctx   context.Context
	began time.Time // this process's clock, for durations
	// suspect tells a job whose last run was lost with its process. behind are
	// those of its lease that follow it, in the same slot.
	suspect    bool
	behind     *suspectLine
	alone      bool // in its lease
	closedInTx atomic.Bool
	isolated   bool           // its handler runs in a child process
	parent     *suspectRunner // set in the child

	handler atomic.Pointer[runContext] // of the handler, once it is called
	stopAt  atomic.Int64               // when this process learned of a stop request, by its clock in Unix ns; 0 without one
	fresh   atomic.Bool                // it has told something that is not flushed yet
	flushed atomic.Bool                // it may have a row in job_live
	deposed atomic.Bool                // a flush was refused

	mu       sync.Mutex
	log      *runLog
	slog     *slog.Logger
	result   json.RawMessage
	progress *progress
}

// Logger returns the logger of the run that ctx belongs to, as [Job.Log] does;
// outside a handler, slog's default.
func Logger(ctx context.Context) *slog.Logger {
	if r := runFrom(ctx); r != nil {
		return r.logger()
	}
	return slog.Default()
}

func (r *run) logger() *slog.Logger {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slog == nil {
		r.log = &runLog{fresh: &r.fresh}
		h := &runHandler{log: r.log, outer: r.engine.log.With(r.attrs()...).Handler()}
		if r.parent != nil {
			h.tell = r.parent.line(r)
		}
		r.slog = slog.New(h)
	}
	return r.slog
}

func (r *run) setResult(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode result of job %s: %w", r.row.ID, err)
	}
	if len(b) > MaxResultBytes {
		return fmt.Errorf("result of job %s has %d bytes, more than %d: %w", r.row.ID, len(b), MaxResultBytes, ErrResultTooLarge)
	}
	l := payloadLimits{bytes: MaxResultBytes, depth: 1000, keys: 1 << 30}
	if bad := l.checkValue(b); bad != nil {
		return fmt.Errorf("result of job %s: %s", r.row.ID, bad.Detail)
	}
	r.mu.Lock()
	r.result = b
	r.mu.Unlock()
	return nil
}

// attrs are the fields of every line inside a job.
func (r *run) attrs() []any {
	return []any{"job_id", r.row.ID.String(), "job_type", r.row.Type, "queue", r.row.Queue, "worker_id", r.row.WorkerID,
		"attempt", r.row.Attempt, "fencing_token", r.row.FencingToken}
}

// settle hands the run's verdict to the finisher, once: who comes first among
// the handler's return, its deadline and the end of the process decides.
func (r *run) settle(v verdict) bool {
	for {
		s := r.state.Load()
		if s == runSettled {
			return false
		}
		if r.state.CompareAndSwap(s, runSettled) {
			if r.parent != nil {
				r.parent.ended(r, v)
				return true
			}
			r.engine.finisher.add(r, v)
			return true
		}
	}
}

// settleOver settles a running run over its handler's head. The slot stays
// taken, and is counted as stuck, until the handler returns.
func (r *run) settleOver(v verdict) bool {
	if !r.state.CompareAndSwap(runRunning, runSettled) {
		return false
	}
	r.engine.stuck.Add(1)
	r.engine.finisher.add(r, v)
	return true
}

// slot runs claimed jobs one after another until the buffer is closed.
func (e *Engine) slot(i int) {
	whole := false
	defer func() {
		if !whole {
			// A handler that calls runtime.Goexit takes its goroutine along: the
			// slot goes on in another one.
			go e.slot(i)
			return
		}
		e.slotsDone.Done()
	}()
	for {
		r := e.buffer.take()
		if r == nil {
			whole = true
			return
		}
		e.running[i].Store(r)
		e.busy.Add(1)
		e.execute(i, r)
	}
}

// execute makes a run, or those of a line of suspects one after the other.
func (e *Engine) execute(i int, r *run) {
	defer func() {
		e.busy.Add(-1)
		e.inFlight.Add(-1)
		e.running[i].Store(nil)
		if r.suspect {
			e.suspects.Add(-1)
			e.giveBack(r.behind.take(true)) // where a handler took the slot along
		}
		e.claimer.signal()
	}()
	e.executeOne(r)
	for next := r.behind.next(); next != nil; next = r.behind.next() {
		if e.draining.Load() {
			next.settle(handedBack(next.row))
			continue
		}
		next.behind = r.behind
		e.running[i].Store(next)
		e.executeOne(next)
	}
}

// suspectLine is the rest of a lease of suspects.
type suspectLine struct {
	mu   sync.Mutex
	runs []*run
}

func (l *suspectLine) next() *run {
	if l == nil {
		return nil
	}
	if first := l.take(false); len(first) > 0 {
		return first[0]
	}
	return nil
}

// take takes the first, or all.
func (l *suspectLine) take(all bool) []*run {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.runs), 1)
	if all {
		n = len(l.runs)
	}
	taken := l.runs[:n]
	l.runs = l.runs[n:]
	return taken
}

// executeOne runs one handler: decode, deadline, panic to error with its stack.
func (e *Engine) executeOne(r *run) {
	if r.ctx.Err() != nil {
		// Its lease was lost while it waited for a slot: it runs elsewhere by now.
		r.settle(handedBack(r.row))
		return
	}
	began := time.Now()
	if r.expiresAt != nil && !r.expiresAt.After(r.lease.dbTime(began)) {
		r.settle(expired(r.row))
		return
	}
	if r.lease.asked(r.row.ID) {
		r.settle(stopped(r.row, nil))
		return
	}
	if r.suspect && e.isolator.run(r) {
		return
	}
	if r.suspect && !r.alone {
		r.settle(handedBack(r.row)) // it must not end this process with others in its lease
		return
	}
	if r.begin(began) { // else it was handed back meanwhile
		e.handle(r)
	}
}

// begin marks the run as under way, unless it was settled before.
func (r *run) begin(at time.Time) bool {
	r.began = at // before the state, which tells watch that it may read it
	if !r.state.CompareAndSwap(runWaiting, runRunning) {
		return false
	}
	if r.engine.log.Enabled(r.ctx, slog.LevelInfo) {
		r.engine.log.With(r.attrs()...).Info(LogJobStarted, "wait_ms", r.lease.dbTime(at).Sub(r.row.ReadyAt).Milliseconds())
	}
	return true
}

// handle runs the handler of a run that has begun, and settles it.
func (e *Engine) handle(r *run) {
	ctx := newRunContext(r)
	if r.handler.Store(ctx); r.stopAt.Load() != 0 {
		ctx.halt(ErrStopRequested)
	}
	defer ctx.end() // also where the handler takes the goroutine along
	fault.Point("run.before")
	err := e.call(ctx, r)
	fault.Point("run.after")
	cause := ctx.end()
	e.pace.ran(time.Since(r.began))
	r.finish(err, cause)
}

// finish settles what the handler returned. A handler that came after its
// deadline or the end of its lease finds its run settled: its answer is dropped.
func (r *run) finish(err, cause error) {
	if v := r.verdict(err, cause); !r.settle(v) {
		r.engine.stuck.Add(-1)
		r.engine.finisher.late(r, v)
		r.engine.log.With(r.attrs()...).Warn("result dropped: the run was closed before its handler returned")
	}
}

// verdict judges with the product team's hooks in it: an error's own methods,
// its class, the retry policy, the fingerprint. One that panics fails this run,
// not the process.
func (r *run) verdict(err, cause error) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			fallback := TypeOptions{Retry: FullJitter{Base: time.Second, Max: 300 * time.Second}}
			v = judge(r.row, &panicError{p, string(debug.Stack())}, nil, fallback)
		}
	}()
	return judge(r.row, err, cause, r.options())
}

// options are the type's, with the engine's where it says nothing, and the job's own
// backoff.
func (r *run) options() TypeOptions {
	o := TypeOptions{}
	if r.reg != nil {
		o = r.reg.options
	}
	if o.Retry == nil {
		o.Retry = r.engine.cfg.Retry
	}
	if b := StoredBackoff(r.backoff); b != nil {
		o.Retry = b.retry()
	}
	return o
}

// call turns a panic, and a Goexit, into an error.
func (e *Engine) call(ctx context.Context, r *run) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &panicError{v, string(debug.Stack())}
			return
		}
		r.finish(errors.New("the handler called runtime.Goexit"), nil)
	}()
	if e.chain != nil {
		err = e.chain(ctx, r.row)
	} else {
		err = r.reg.work(ctx, r)
	}
	returned = true
	return err
}

// watch closes the runs whose handlers went on after their deadline. Their
// slots stay taken, visibly, until they return.
func (e *Engine) watch(ctx context.Context) error {
	now := time.Now()
	for i := range e.running {
		r := e.running[i].Load()
		if r == nil || r.state.Load() != runRunning || r.isolated || now.Before(r.began.Add(r.timeout+stuckGrace)) {
			continue
		}
		if !r.settleOver(r.verdict(timeoutError(r.timeout), ErrTimeout)) {
			continue
		}
		fault.Point("run.overdue")
		e.log.With(r.attrs()...).Warn("handler ignores its deadline; its slot stays taken until it returns", "timeout", r.timeout.String())
	}
	e.revokeDeaf(now)
	e.letSuspectsGo(now)
	if e.suspects.Load() > 0 && !e.suspectsSuffice() {
		e.claimer.signal()
	}
	if longest := e.longestRun(now); e.buffer.waitedLongerThan(unstartedPatience) {
		// Every slot is busy with something slow: what was claimed ahead may run
		// elsewhere.
		e.pace.ran(longest)
		e.handBack(e.buffer.drain())
	}
	return nil
}

// unstartedPatience is how long jobs claimed ahead wait for a slot before they
// are handed back.
const unstartedPatience = time.Second

func (e *Engine) longestRun(now time.Time) (longest time.Duration) {
	for i := range e.running {
		if r := e.running[i].Load(); r != nil && r.state.Load() == runRunning {
			longest = max(longest, now.Sub(r.began))
		}
	}
	return longest
}

// letSuspectsGo hands back what waits behind a suspect that takes long.
func (e *Engine) letSuspectsGo(now time.Time) {
	for i := range e.running {
		r := e.running[i].Load()
		if r != nil && r.behind != nil && r.state.Load() == runRunning && now.Sub(r.began) > unstartedPatience {
			e.giveBack(r.behind.take(true))
		}
	}
}

// handBack settles runs that never started; their attempts are not counted.
func (e *Engine) handBack(runs []*run) {
	for _, r := range runs {
		if !r.settle(handedBack(r.row)) {
			continue
		}
		e.inFlight.Add(-1)
		if r.suspect {
			e.suspects.Add(-1)
			e.giveBack(r.behind.take(true))
		}
	}
	e.claimer.signal()
}

// giveBack settles runs of a line that was taken.
func (e *Engine) giveBack(runs []*run) {
	for _, r := range runs {
		r.settle(handedBack(r.row))
	}
}
