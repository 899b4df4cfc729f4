package engine

import (
	"context"
	"sync"
	"time"
)

// runContext is a handler's context: it knows its run, for [Once], [CompleteTx]
// and [Logger], and ends at the job's deadline. The timer behind the deadline is
// made when somebody first waits for it: a tenth of the engine's own work on a
// short job was making and stopping timers that nobody looked at.
type runContext struct {
	run      *run
	deadline time.Time

	mu     sync.Mutex
	wait   context.Context // nil until somebody asks
	stop   context.CancelFunc
	cancel context.CancelCauseFunc
	halted error // why it was ended before its deadline, apart from its lease
	over   bool  // the handler has returned
}

var _ context.Context = (*runContext)(nil)

type runKey struct{}

func runFrom(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

func newRunContext(r *run) *runContext {
	return &runContext{run: r, deadline: r.began.Add(r.timeout)}
}

// armed is the context with the timer.
func (c *runContext) armed() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wait == nil {
		var one context.Context
		one, c.cancel = context.WithCancelCause(c.run.ctx)
		c.wait, c.stop = context.WithDeadlineCause(one, c.deadline, ErrTimeout)
		switch {
		case c.halted != nil:
			c.cancel(c.halted)
		case c.over:
			c.release()
		}
	}
	return c.wait
}

// halt ends this handler's context alone; its lease lives on.
func (c *runContext) halt(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.halted != nil {
		return
	}
	c.halted = cause
	if c.wait != nil {
		c.cancel(cause)
	}
}

func (c *runContext) release() {
	c.stop()
	c.cancel(nil)
}

// Deadline implements context.Context.
func (c *runContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.armed().Done() }

// Err implements context.Context.
func (c *runContext) Err() error { return c.armed().Err() }

// Value implements context.Context. What context itself looks up in a parent, to
// hand down its end and its cause, is found in the armed one.
func (c *runContext) Value(key any) any {
	if _, ok := key.(runKey); ok {
		return c.run
	}
	return c.armed().Value(key)
}

// end is called when the handler has returned: it tells why the context had
// ended, nil if it had not, and ends it.
func (c *runContext) end() (cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.wait != nil {
		cause = context.Cause(c.wait)
		c.release()
	}
	switch {
	case c.halted != nil:
		return c.halted
	case c.wait != nil:
		return cause
	}
	if cause = context.Cause(c.run.ctx); cause == nil && !time.Now().Before(c.deadline) {
		cause = ErrTimeout
	}
	return cause
}
