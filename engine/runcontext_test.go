package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type otherKey struct{}

func contextOf(timeout time.Duration) (*runContext, context.CancelCauseFunc) {
	parent, cancel := context.WithCancelCause(context.Background())
	return newRunContext(&run{ctx: parent, began: time.Now(), timeout: timeout}), cancel
}

func TestRunContextEndsAsAnyContextDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Nobody looks: no timer, and the cause is told by the clock.
		c, cancel := contextOf(time.Second)
		if cause := c.end(); cause != nil || c.stop != nil {
			t.Errorf("in time and unwatched: cause %v, armed %v", cause, c.stop != nil)
		}
		cancel(nil)
		c, cancel = contextOf(time.Second)
		time.Sleep(2 * time.Second)
		if cause := c.end(); !errors.Is(cause, ErrTimeout) {
			t.Errorf("late and unwatched: cause %v, want ErrTimeout", cause)
		}
		cancel(nil)

		// A child ends with it, and knows why.
		c, cancel = contextOf(time.Second)
		child, stop := context.WithCancel(c)
		began := time.Now()
		<-child.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(context.Cause(child), ErrTimeout) || !errors.Is(c.Err(), context.DeadlineExceeded) {
			t.Errorf("child ended after %s, cause %v, parent %v; want 1s, ErrTimeout, deadline exceeded", took, context.Cause(child), c.Err())
		}
		stop()
		if cause := c.end(); !errors.Is(cause, ErrTimeout) {
			t.Errorf("watched: cause %v, want ErrTimeout", cause)
		}
		cancel(nil)

		// A lost lease ends it at once, also when somebody looks only then.
		c, cancel = contextOf(time.Hour)
		cancel(ErrLeaseLost)
		if !errors.Is(context.Cause(c), ErrLeaseLost) || !errors.Is(c.end(), ErrLeaseLost) {
			t.Error("a lost lease is not the cause")
		}

		// After the handler's return it has ended, for goroutines it left behind.
		c, cancel = contextOf(time.Hour)
		c.end()
		if c.Err() == nil {
			t.Error("it lives on after the handler's return")
		}
		if at, ok := c.Deadline(); !ok || time.Until(at) != time.Hour {
			t.Errorf("deadline %v %v", at, ok)
		}
		if runFrom(context.WithValue(c, otherKey{}, 1)) != c.run {
			t.Error("a derived context does not know its run")
		}
		cancel(nil)
	})
}
