package boot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// aLife is one without signals, whose process cannot end.
func aLife(timeout time.Duration, exit func(int)) *life {
	l := &life{log: slog.New(slog.DiscardHandler), stderr: io.Discard, timeout: timeout, exit: exit}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

func noExit(t *testing.T) func(int) {
	return func(code int) { t.Errorf("the process was ended with code %d", code) }
}

func TestPartsEndInReverse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := aLife(time.Second, noExit(t))
		var order []string
		for _, name := range []string{"postgres", "pool", "engine", "api"} {
			l.onClose(name, func(ctx context.Context) error {
				order = append(order, name)
				if by, ok := ctx.Deadline(); !ok || time.Until(by) > time.Second {
					t.Errorf("%s has until %v", name, by)
				}
				return errors.New("an error does not hold up the others")
			})
		}
		l.stop(errSignal)
		if code := l.close(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		l.guard.Stop()
		if d := cmp.Diff([]string{"api", "engine", "pool", "postgres"}, order); d != "" {
			t.Error(d)
		}
	})
}

func TestFailedPartEndsTheProcessWithAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := aLife(time.Second, noExit(t))
		l.fail("API", errors.New("accept: too many open files"))
		l.stop(errSignal) // too late to make it a stop that was asked for
		if code := l.close(); code != exitFailed {
			t.Errorf("exit code %d, want %d", code, exitFailed)
		}
		l.guard.Stop()
	})
}

// A part that hangs for ever does not keep the process: timeout and 2 s, no more.
func TestHangingPartIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ended := make(chan time.Duration, 1)
		l := aLife(5*time.Second, func(int) { ended <- time.Since(began) })
		release := make(chan struct{})
		l.onClose("pool", func(context.Context) error { <-release; return nil })
		l.stop(errSignal)
		closed := make(chan struct{})
		go func() { defer close(closed); l.close() }()
		if took := <-ended; took < 5*time.Second || took > 7*time.Second {
			t.Errorf("ended after %s", took)
		}
		close(release)
		<-closed
	})
}

// Nobody reads stderr any more, as when a terminal is held by Ctrl-S.
type stuckWriter struct{ release chan struct{} }

func (w stuckWriter) Write(p []byte) (int, error) { <-w.release; return len(p), nil }

func TestSilentTerminalDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := stuckWriter{make(chan struct{})}
		defer close(w.release)
		exited := false
		l := aLife(time.Second, func(int) { exited = true })
		l.stderr = w
		began := time.Now()
		l.abandon("a second signal came")
		if !exited || time.Since(began) > 100*time.Millisecond {
			t.Errorf("exited %v after %s", exited, time.Since(began))
		}
	})
}

func TestWithinWaitsForItsTimeAndAGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := within(ctx, time.Second, func() { time.Sleep(1500 * time.Millisecond) }); err != nil {
			t.Errorf("in the grace: %v", err)
		}
		release := make(chan struct{})
		if err := within(ctx, time.Second, func() { <-release }); err == nil {
			t.Error("what hangs is called well")
		}
		close(release)
	})
}

func TestAbandonSaysWhy(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	var code int
	l := aLife(time.Second, func(c int) { code = c })
	l.stderr = &stderr
	l.abandon("a second signal came")
	if want := "ended at once: a second signal came; leases of running jobs expire and others take them\n"; stderr.String() != want || code != exitFailed {
		t.Errorf("code %d, stderr %q", code, stderr.String())
	}
}
