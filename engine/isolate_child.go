package engine

import (
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// childVar tells a process that it is the child of an engine, and which one's: it
// is set by the parent, read once, and removed, so that no process started from
// here takes itself for one. It is the one variable that this package reads.
const childVar = "RJE_SUSPECTS_OF"

// The child's ends of the pipes.
const (
	childOrders  = 3
	childReports = 4
)

// inheritance is what the parent left a child.
type inheritance struct {
	identity        string
	orders, reports *os.File
	err             error
	taken           sync.Once
}

var inherited = sync.OnceValue(func() *inheritance {
	identity, ok := os.LookupEnv(childVar)
	if !ok {
		return nil
	}
	in := &inheritance{identity: identity}
	if in.err = os.Unsetenv(childVar); in.err == nil {
		in.orders, in.reports, in.err = childPipes()
	}
	return in
})

// InChild tells whether this process was started by an engine, to run its
// suspects: see [Config.Isolation]. A program asks only if it does something
// before [Engine.Start] that must not be done twice, such as taking a port.
func InChild() bool { return inherited() != nil }

// identity tells the engines of one program apart, in any process of it.
func (e *Engine) identity() string {
	sum := sha256.Sum256([]byte(strings.Join(e.types, "\x00") + "\x01" + strings.Join(e.cfg.Queues, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// suspectRunner is the engine in a child: it has no worker's row and no loops, it
// makes the runs it is told to, one after the other.
type suspectRunner struct {
	e      *Engine
	orders *gob.Decoder

	mu      sync.Mutex
	reports *gob.Encoder

	running func(error)   // ends the context of the run under way
	busy    chan struct{} // holds one while a run is under way
}

// serveParent runs suspects until the parent lets go of the pipe, and then ends
// the process. It returns if this is not the engine whose child the process is,
// which then does nothing here, or if it cannot begin.
func (e *Engine) serveParent(ctx context.Context, in *inheritance) error {
	if in.err != nil {
		return fmt.Errorf("start engine: %s is set, but this is no child of an engine: %w", childVar, in.err)
	}
	mine := false
	if !e.cfg.MaintenanceOnly && in.identity == e.identity() {
		in.taken.Do(func() { mine = true })
	}
	if !mine {
		return nil
	}
	// What is meant for the parent, from a terminal or an init system, it passes on
	// in its own way. Ignore first: it takes the signals from who has asked for them.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	if err := limitMemory(e.cfg.SuspectMemoryBytes); err != nil {
		return fmt.Errorf("start engine: limit memory of suspects: %w", err)
	}
	if err := e.onStart(ctx); err != nil {
		return err
	}
	s := &suspectRunner{e: e, orders: gob.NewDecoder(in.orders), reports: gob.NewEncoder(in.reports), busy: make(chan struct{}, 1)}
	e.obs = repeats{e.obs, s}
	s.tell(report{})
	s.serve()
	os.Exit(0)
	return nil
}

// serve takes orders until there is nobody to give them. Without a parent the
// run under way has no lease that anybody renews: it ends with the process.
func (s *suspectRunner) serve() {
	for {
		var o order
		if s.orders.Decode(&o) != nil {
			break
		}
		switch {
		case o.Run != nil:
			s.begin(o.Run)
		case s.running != nil:
			s.running(endingOf(o.End))
		}
	}
	select {
	case s.busy <- struct{}{}:
	default:
		os.Exit(1)
	}
	bye, cancel := context.WithTimeout(context.Background(), stopGoodbye)
	defer cancel()
	s.e.onStop(bye)
	_ = s.e.client.Close(bye) // hints only
}

func (s *suspectRunner) begin(o *orderedRun) {
	s.busy <- struct{}{} // at once: the parent gives the next order after the last report
	ctx, cancel := context.WithCancelCause(context.Background())
	s.running = cancel
	r := &run{row: o.Row, engine: s.e, ctx: ctx, timeout: o.Timeout, backoff: o.Backoff, callsBack: o.Calls, suspect: true, reg: s.e.cfg.Workers.byType[o.Row.Type], parent: s,
		lease: &lease{token: o.Row.FencingToken, claimedAt: o.Now, seenAt: time.Now()}}
	go func() {
		s.tell(report{Token: r.row.FencingToken, Started: true})
		r.began = time.Now()
		r.state.Store(runRunning)
		s.e.handle(r)
	}()
}

// ended tells the parent what became of a run.
func (s *suspectRunner) ended(r *run, v verdict) {
	x := r.ended(v)
	<-s.busy
	s.tell(report{Token: r.row.FencingToken, Verdict: reported(v, x.result)})
}

// tell ends the process if there is nobody to tell.
func (s *suspectRunner) tell(r report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reports.Encode(r) != nil {
		os.Exit(1)
	}
}

// line keeps a line of a run at the parent, which outlives the run.
func (s *suspectRunner) line(r *run) func(logLine) {
	return func(l logLine) { s.tell(report{Token: r.row.FencingToken, Line: &l}) }
}

// repeats tells the parent, whose metrics are read, of keys found again.
type repeats struct {
	Observer
	s *suspectRunner
}

func (o repeats) KeyRepeated(scope string) { o.s.tell(report{Repeated: scope}) }

var errNotAPipe = errors.New("its descriptors are no pipes")

// childPipes are the ends that the parent left. No process started from here
// gets them, so that they close with this one.
func childPipes() (orders, reports *os.File, err error) {
	for _, fd := range []int{childOrders, childReports} {
		f := os.NewFile(uintptr(fd), "suspects")
		info, err := f.Stat()
		if err != nil {
			return nil, nil, err
		}
		if info.Mode()&os.ModeNamedPipe == 0 {
			return nil, nil, errNotAPipe
		}
		closeOnExec(fd)
		orders, reports = reports, f
	}
	return orders, reports, nil
}
