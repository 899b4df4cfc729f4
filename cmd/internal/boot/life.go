package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// The exit codes of server and worker.
const (
	exitOK       = 0
	exitFailed   = 1
	exitSettings = 2 // a setting is wrong, nothing was opened
)

// overtime is how long a stop may go on after its timeout: the engine's last
// writes take up to 2 s of a database that does not answer. What hangs even then
// is left behind; a job's lease and the local Postgres's lifeline see to the rest.
const overtime = 1900 * time.Millisecond

// startTimeout bounds a start that nothing else bounds, such as one that waits
// for the migrations of another.
const startTimeout = 15 * time.Minute

// errSignal ends a life that was asked to end.
var errSignal = errors.New("signal")

// life is one run of a binary, from its start over the first signal, or the
// failure of a part, to its exit code.
type life struct {
	log     *slog.Logger
	stderr  io.Writer
	timeout time.Duration // of the whole stop
	exit    func(code int)

	ctx context.Context // over once the stop begins; its cause says why
	end context.CancelCauseFunc

	mu      sync.Mutex
	closers []closer
	guard   *time.Timer
	stopBy  time.Time
}

// closer ends one part. ctx is over when the stop's time is.
type closer struct {
	name  string
	close func(ctx context.Context) error
}

// newLife begins to listen for SIGINT and SIGTERM. The first ends ctx, the second
// the process. finish stops listening.
func newLife(log *slog.Logger, stderr io.Writer, timeout time.Duration) (l *life, finish func()) {
	l = &life{log: log, stderr: stderr, timeout: timeout, exit: os.Exit}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var heard sync.WaitGroup
	heard.Go(func() { l.hear(signals, done) })
	return l, func() {
		signal.Stop(signals)
		close(done)
		heard.Wait()
		l.end(errSignal)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.guard != nil {
			l.guard.Stop()
		}
	}
}

func (l *life) hear(signals <-chan os.Signal, done <-chan struct{}) {
	for n := 1; ; n++ {
		select {
		case <-done:
			return
		case s := <-signals:
			if n > 1 {
				l.abandon("a second signal came")
				return
			}
			l.stop(errSignal)
			l.log.Info("stopping", "signal", s.String(), "timeout", l.timeout.String())
		}
	}
}

// stop begins the stop, once. A stop that outlasts its time ends the process.
func (l *life) stop(cause error) {
	l.mu.Lock()
	if l.guard == nil {
		l.stopBy = time.Now().Add(l.timeout)
		l.guard = time.AfterFunc(l.timeout+overtime, func() {
			l.abandon(fmt.Sprintf("the stop took longer than %s", l.timeout))
		})
	}
	l.mu.Unlock()
	l.end(cause)
}

// fail begins the stop because a part has ended for good: a process that lives on
// without it would look well and do nothing.
func (l *life) fail(part string, err error) {
	l.log.Error("a part ended for good, so the process ends", "part", part, "error", err)
	l.stop(fmt.Errorf("%s: %w", part, err))
}

// abandon ends the process where it stands. The line is written beside it, since
// a reader of stderr that has stopped must not hold up the end.
func (l *life) abandon(why string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		fmt.Fprintf(l.stderr, "ended at once: %s; leases of running jobs expire and others take them\n", why)
	}()
	select {
	case <-written:
	case <-time.After(50 * time.Millisecond):
	}
	l.exit(exitFailed)
}

// onClose adds what ends a part; the last added is called first.
func (l *life) onClose(name string, close func(ctx context.Context) error) {
	l.closers = append(l.closers, closer{name, close})
}

// close ends every part in reverse and returns the exit code.
func (l *life) close() int {
	l.stop(errSignal) // does nothing if the stop has begun
	ctx, cancel := context.WithDeadline(context.Background(), l.stopBy)
	defer cancel()
	for len(l.closers) > 0 {
		last := l.closers[len(l.closers)-1]
		l.closers = l.closers[:len(l.closers)-1]
		if err := last.close(ctx); err != nil {
			l.log.Warn("a part did not end in order", "part", last.name, "error", err)
		}
	}
	if context.Cause(l.ctx) != errSignal {
		return exitFailed
	}
	return exitOK
}

// within runs f and waits for it until ctx is over and a grace beyond. What still
// hangs then is left behind.
func within(ctx context.Context, grace time.Duration, f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	case <-time.After(grace):
		return errors.New("it hangs and is left behind")
	}
}
