package engine

import (
	"testing"
	"time"
)

func TestRatesForgetWhatIsOld(t *testing.T) {
	var r rates
	began := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	for s := range 600 { // a job completed each second, a failure each ten, for ten minutes
		r.add(at(time.Duration(s)*time.Second), 1, (s+1)%10/9)
	}
	for _, c := range []struct {
		after        time.Duration
		done, failed int32
	}{{10 * time.Minute, 60, 60}, {10*time.Minute + 30*time.Second, 30, 60}, {11 * time.Minute, 0, 60}, {11*time.Minute + 10*time.Second, 0, 60},
		{20 * time.Minute, 0, 30}, {25 * time.Minute, 0, 0}, {24 * time.Hour, 0, 0}} {
		if done, failed := r.read(at(c.after)); done != c.done || failed != c.failed {
			t.Errorf("after %s: %d done, %d failed, want %d and %d", c.after, done, failed, c.done, c.failed)
		}
	}
}
