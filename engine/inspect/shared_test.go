package inspect

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyWhoAskAtOnceCostOneRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared[int]()
		reads := 0
		read := func(context.Context) (int, error) {
			reads++
			time.Sleep(100 * time.Millisecond)
			return reads, nil
		}
		ask := func(want int) {
			t.Helper()
			if got, err := s.get(t.Context(), time.Second, read); err != nil || got != want {
				t.Errorf("got %d, %v, want %d", got, err, want)
			}
		}
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() { ask(1) })
		}
		callers.Wait()
		time.Sleep(899 * time.Millisecond)
		ask(1)
		time.Sleep(time.Millisecond)
		ask(2)
	})
}

func TestAFailedReadIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared[int]()
		boom := errors.New("boom")
		if _, err := s.get(t.Context(), time.Second, func(context.Context) (int, error) { return 7, boom }); !errors.Is(err, boom) {
			t.Errorf("error %v, want boom", err)
		}
		if got, err := s.get(t.Context(), time.Second, func(context.Context) (int, error) { return 8, nil }); err != nil || got != 8 {
			t.Errorf("got %d, %v, want 8", got, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-s.turn // somebody reads and does not come back
		if _, err := s.get(ctx, 0, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the end of the caller's time", err)
		}
		s.turn <- struct{}{}
	})
}
