package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// openPools makes the engine's own connections from the caller's settings. A
// queue's statistics are always wrong, so claims and finishes may not choose a
// sequential or bitmap scan; and their shapes leave one sensible plan, so that
// planning them anew for each batch (a tenth of the server's time in a drain)
// finds nothing better. Forbidding scans raises the estimates so far that
// Postgres would compile the plans of upkeep: 187 ms for folding no statistics.
const (
	hotConns  = 4
	beatConns = 1
	// OwnConnections is how many an Engine opens beside those of its pool: for
	// claiming and finishing, for heartbeats, and one to listen on.
	OwnConnections = hotConns + beatConns + 1
)

func (e *Engine) openPools(ctx context.Context) error {
	var err error
	if e.hot, err = e.openPool(ctx, hotConns, map[string]string{"enable_seqscan": "off", "enable_bitmapscan": "off", "plan_cache_mode": "force_generic_plan", "jit": "off",
		// A leader that freezes inside a pass holds its rows no longer than its term.
		"idle_in_transaction_session_timeout": strconv.FormatInt(e.leader.term().Milliseconds(), 10)}); err != nil {
		return err
	}
	if e.beat, err = e.openPool(ctx, beatConns, nil); err != nil {
		e.hot.Close()
		return err
	}
	return nil
}

func (e *Engine) openPool(ctx context.Context, conns int32, params map[string]string) (*pgxpool.Pool, error) {
	c := e.cfg.Pool.Config()
	c.MaxConns, c.MinConns, c.MinIdleConns = conns, 0, 0
	if pooled(c.ConnConfig) {
		params = nil
	}
	for k, v := range params {
		c.ConnConfig.RuntimeParams[k] = v
	}
	after := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		scanUUIDs(conn.TypeMap())
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open the engine's connections: %w", err)
	}
	return pool, nil
}

// closePools waits a moment for connections to close. With a database that does
// not answer they end with the process.
func (e *Engine) closePools() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.hot.Close()
		e.beat.Close()
	}()
	select {
	case <-done:
	case <-time.After(stopGoodbye):
	}
}

// dbContext bounds one pass over the database. It does not end with the loop
// that asks: a claim whose answer nobody takes would stand until its lease ends.
func (e *Engine) dbContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.db, e.cfg.DBTimeout)
}

// spawn runs a loop that ends with the engine.
func (e *Engine) spawn(loop func(context.Context)) {
	e.loopsDone.Add(1)
	go func() {
		defer e.loopsDone.Done()
		loop(e.loops)
	}()
}

// every runs a pass at once, then one each interval until the engine ends. A
// pass keeps nothing from the one before. After an error it comes back sooner.
func (e *Engine) every(interval time.Duration, name string, pass func(context.Context) error) {
	e.everyOr(nil, interval, name, pass)
}

// everyOr makes a pass at once when now says so, too.
func (e *Engine) everyOr(now <-chan struct{}, interval time.Duration, name string, pass func(context.Context) error) {
	e.spawn(func(ctx context.Context) {
		failures := 0
		for ctx.Err() == nil {
			call, cancel := e.dbContext()
			err := pass(call)
			cancel()
			wait := interval
			if err != nil {
				failures++
				e.trouble(name, err)
				wait = min(interval, backoffAfter(failures, time.Second))
			} else {
				failures = 0
			}
			e.sleepOr(ctx, now, wait)
		}
	})
}

func (e *Engine) sleep(ctx context.Context, d time.Duration) { e.sleepOr(ctx, nil, d) }

func (e *Engine) sleepOr(ctx context.Context, woken <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-woken:
	case <-t.C:
	}
}

// jitter spreads d by a tenth, so that processes do not poll in step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// backoffAfter is the wait after the n-th failure in a row: from 50 ms up to
// most, with full jitter in its upper half.
func backoffAfter(n int, most time.Duration) time.Duration {
	d := backoffCeiling(25*time.Millisecond, max(most, 50*time.Millisecond), n)
	return d/2 + rand.N(d/2+1)
}

// troubles keeps a broken database from filling the log: one line a second and
// component.
type troubles struct {
	mu   sync.Mutex
	at   map[string]time.Time
	last time.Time
}

func (e *Engine) trouble(component string, err error) {
	if e.db.Err() != nil {
		return // the engine itself ended the call
	}
	t := &e.troubled
	t.mu.Lock()
	now := time.Now()
	if showsOutage(component) && unreachable(err) {
		t.last = now
	}
	t.mu.Unlock()
	switch {
	case !t.tell(component):
	case component == "heartbeat":
		e.log.Warn(LogLeaseRenewalFailed, "worker_id", e.workerID, "error", err.Error())
	default:
		e.log.Error("database call failed", "component", component, "worker_id", e.workerID, "error", err.Error())
	}
}

// tell says whether a line of this component may be logged: one a second.
func (t *troubles) tell(component string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.at[component]) < time.Second {
		return false
	}
	if t.at == nil {
		t.at = map[string]time.Time{}
	}
	t.at[component] = now
	return true
}

// showsOutage tells whether a component's failing says that leases could not be
// renewed either. A listener that is cut off again and again, or a slow pass of
// retention, says nothing of that and must not keep the reaper waiting.
func showsOutage(component string) bool {
	return component == "heartbeat" || component == "leader" || component == "reaper"
}

// note begins a quiet time for the reaper.
func (t *troubles) note() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
}

// unreachable tells an outage from a statement that was refused: anything but
// an answer of the server, and its answers about itself (class 08 connection,
// 25 read-only, 53 resources, 57 shutdown, 58 system).
func unreachable(err error) bool {
	var pg *pgconn.PgError
	return !errors.As(err, &pg) || slices.Contains([]string{"08", "25", "53", "57", "58"}, pg.Code[:min(2, len(pg.Code))])
}

// calmFor is how long nothing has failed that shows an outage.
func (t *troubles) calmFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.IsZero() {
		return time.Hour
	}
	return time.Since(t.last)
}
