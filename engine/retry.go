package engine

import (
	"math/rand/v2"
	"time"
)

// RetryPolicy gives the delay before the next attempt. n is the number of
// attempts used so far: 1 after the first failure. Many goroutines call it at
// once. A negative answer counts as 0, one above [MaxDelay] as MaxDelay.
type RetryPolicy interface {
	Delay(n int) time.Duration
}

// RetryFunc is a function that serves as a [RetryPolicy].
type RetryFunc func(n int) time.Duration

// Delay calls f.
func (f RetryFunc) Delay(n int) time.Duration { return f(n) }

// FullJitter waits a uniformly random time from 0 to min(Max, Base * 2^n), so
// that jobs that failed together do not come back together. Base must be
// positive and Max at least Base: [New] refuses others. Beyond [MaxDelay] Max
// means MaxDelay.
// The formula is the "full jitter" of Marc Brooker, "Exponential Backoff and
// Jitter", AWS Architecture Blog, 2015.
type FullJitter struct{ Base, Max time.Duration }

// Delay implements [RetryPolicy].
func (p FullJitter) Delay(n int) time.Duration {
	ceiling := min(backoffCeiling(p.Base, p.Max, n), MaxDelay)
	return time.Duration(rand.Int64N(int64(ceiling) + 1))
}

// Exponential waits Base * 2^n give or take a fifth, at most Max: the retries
// of one job are further apart than with [FullJitter], those of many jobs
// closer together.
type Exponential struct{ Base, Max time.Duration }

// Delay implements [RetryPolicy].
func (p Exponential) Delay(n int) time.Duration {
	most := min(p.Max, MaxDelay)
	ceiling := backoffCeiling(p.Base, most, n)
	spread := int64(ceiling) / 5
	return min(ceiling-time.Duration(spread)+time.Duration(rand.Int64N(2*spread+1)), most)
}

// backoffCeiling is min(most, base * 2^n) without the overflow that a base of
// 1 s meets at n = 34.
func backoffCeiling(base, most time.Duration, n int) time.Duration {
	if n < 0 {
		n = 0
	}
	if base <= 0 || most <= 0 {
		return 0
	}
	if n >= 62 || base > most>>n {
		return most
	}
	return base << n
}

// DelayBounds tells between which delays p draws after n attempts. ok is false for
// a policy that is not of this package and so may answer anything.
func DelayBounds(p RetryPolicy, n int) (least, most time.Duration, ok bool) {
	switch p := p.(type) {
	case FullJitter:
		return 0, min(backoffCeiling(p.Base, p.Max, n), MaxDelay), true
	case Exponential:
		most := min(p.Max, MaxDelay)
		ceiling := backoffCeiling(p.Base, most, n)
		spread := ceiling / 5
		return ceiling - spread, min(ceiling+spread, most), true
	}
	return 0, 0, false
}
