package engine

import (
	"context"
	"fmt"
	"time"
)

// HandlerFunc runs a job whose arguments' type it need not know: row has its
// payload, queue and type. ctx is the handler's, or made from it: [Logger],
// [Once] and [CompleteTx] take it.
type HandlerFunc func(ctx context.Context, row Row) error

// Middleware wraps every handler of a set of [Workers]. What it returns is
// called by many goroutines at once, in a child process for suspects too.
type Middleware func(next HandlerFunc) HandlerFunc

// Use puts middleware around all handlers, registered before or after: the first
// is the outermost. It may prepare ctx (a tracing id, a tenant), act before and
// after each run, wrap or replace the error, or not call next at all: what it
// returns is what the run ends with. A panic in it is the run's error. A changed
// row changes nothing for the handler. Use it before [New].
func (ws *Workers) Use(m ...Middleware) { ws.middleware = append(ws.middleware, m...) }

// around is the middleware around last; nil without any.
func (ws *Workers) around(last HandlerFunc) HandlerFunc {
	if len(ws.middleware) == 0 {
		return nil
	}
	h := last
	for i := len(ws.middleware) - 1; i >= 0; i-- {
		h = ws.middleware[i](h)
	}
	return h
}

// callHandler is what the innermost middleware calls.
func callHandler(ctx context.Context, row Row) error {
	r := runFrom(ctx)
	if r == nil {
		return fmt.Errorf("run job %s: middleware must pass on a context made from the one it got: %w", row.ID, errOutsideHandler)
	}
	return r.reg.work(ctx, r)
}

// onStart calls the hook that Config names.
func (e *Engine) onStart(ctx context.Context) error {
	if e.cfg.OnStart == nil {
		return nil
	}
	if err := e.cfg.OnStart(ctx); err != nil {
		return fmt.Errorf("start engine: OnStart: %w", err)
	}
	return nil
}

// onStop calls the hook that Config names, and waits for it until ctx ends and a
// moment beyond.
func (e *Engine) onStop(ctx context.Context) {
	if e.cfg.OnStop == nil {
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); e.cfg.OnStop(ctx) }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(stopGoodbye / 4):
	}
}

// stopHook calls onStop at the end of Stop: for as long as ctx lasts, and if it has
// ended for a moment.
func (e *Engine) stopHook(ctx context.Context) {
	if ctx.Err() != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGoodbye/2)
		defer cancel()
		ctx = late
	}
	e.onStop(ctx)
}

// open does what must be done before the first claim, all or nothing of it.
func (e *Engine) open(ctx context.Context) error {
	if err := e.onStart(ctx); err != nil {
		return err
	}
	err := e.openPools(ctx)
	if err == nil {
		if err = e.register(ctx); err == nil {
			return nil
		}
		e.closePools()
	}
	bye, cancel := context.WithTimeout(context.Background(), stopGoodbye)
	defer cancel()
	e.onStop(bye)
	return err
}
