package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// How long Stop goes on after its ctx has ended: for handlers to notice, for
// what ended to be written, and for good-byes.
const (
	stopHandlers = 250 * time.Millisecond
	stopWrites   = 600 * time.Millisecond
	stopGoodbye  = 200 * time.Millisecond
)

// Stop drains: it claims no more, hands back at once what has not started, and
// lets handlers run, with heartbeats, until ctx ends. Then it cancels the rest
// and hands their jobs back with the attempt uncounted. It returns within 2 s of
// the end of ctx, also without a database; the error counts handlers that still
// ran. Stop again, or before Start, does no harm.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	if e.stopped != nil {
		e.mu.Unlock()
		<-e.stopped
		return e.stopErr
	}
	e.stopped = make(chan struct{})
	started := e.started
	e.mu.Unlock()
	defer close(e.stopped)
	if started {
		e.stopErr = e.drain(ctx)
	}
	bye, cancel := context.WithTimeout(context.Background(), stopGoodbye)
	defer cancel()
	_ = e.client.Close(bye) // hints only
	e.endClaim()
	e.endRuns(ErrStopping)
	e.endLoops()
	e.endDB()
	e.buffer.close()
	return e.stopErr
}

func (e *Engine) drain(ctx context.Context) error {
	e.draining.Store(true)
	e.log.Info(LogWorkerShuttingDown, "worker_id", e.workerID, "running", e.busy.Load())
	e.endClaim()
	e.handBack(e.buffer.drain())
	fault.Point("stop.draining")
	e.settled(ctx)
	fault.Point("stop.settled")
	e.endRuns(ErrStopping)
	grace, cancel := context.WithTimeout(context.Background(), stopHandlers)
	e.settled(grace)
	cancel()
	unfinished := 0
	for i := range e.running {
		if r := e.running[i].Load(); r != nil {
			if r.settleOver(handedBack(r.row)) && r.isolated {
				continue // its process is ended below
			}
			unfinished++
		}
	}
	writes, cancel := context.WithTimeout(context.Background(), stopWrites)
	e.until(writes, e.finisher.idle)
	cancel()
	e.isolator.close(ctx)
	fault.Point("stop.written")
	e.sayGoodbye()
	fault.Point("stop.resigned")
	e.endLoops()
	e.endDB()
	e.buffer.close()
	e.joinLoops()
	e.closePools()
	e.stopHook(ctx)
	e.log.Info(LogWorkerStopped, "worker_id", e.workerID, "unfinished", unfinished)
	if unfinished > 0 {
		return fmt.Errorf("stop engine: %d handlers went on after their context had ended; their jobs were handed back", unfinished)
	}
	return nil
}

// settled waits until no job of this process is under way, or ctx ends. The
// claimer is waited for as well: what its last claim brought is handed back.
func (e *Engine) settled(ctx context.Context) {
	claimed := make(chan struct{})
	go func() { e.claimerDone.Wait(); close(claimed) }()
	select {
	case <-claimed:
	case <-ctx.Done():
		return
	}
	e.until(ctx, func() bool { return e.inFlight.Load() <= e.stuck.Load() && e.finisher.idle() })
}

func (e *Engine) until(ctx context.Context, done func() bool) {
	for !done() && ctx.Err() == nil {
		e.sleep(ctx, 5*time.Millisecond)
	}
}

// sayGoodbye hands leadership over and marks the worker as stopped. Both are
// only sooner than what others find out by themselves.
func (e *Engine) sayGoodbye() {
	ctx, cancel := context.WithTimeout(e.db, stopGoodbye)
	defer cancel()
	if e.leader.leading() {
		e.leader.until.Store(0)
		_ = e.q.Resign(ctx, e.beat, leaderRole, e.workerID)
	}
	_ = e.q.StopWorker(ctx, e.beat, e.workerID)
}

// joinLoops waits for every goroutine but those held by a handler that ignores
// its context.
func (e *Engine) joinLoops() {
	joined := make(chan struct{})
	go func() { e.loopsDone.Wait(); close(joined) }()
	select {
	case <-joined:
	case <-time.After(stopGoodbye):
	}
}
