package engine

import (
	"encoding/json"
	"fmt"
	"time"
)

// Backoff is how long one job waits between its attempts, in place of its type's
// policy. The zero value stands for that one. [RetryAfter] goes before both.
type Backoff struct {
	// Policy, default [BackoffFullJitter].
	Policy BackoffPolicy
	// Base, 1 ms to 1 day, default 1 s.
	Base time.Duration
	// Max, from Base to 30 days, default 300 s.
	Max time.Duration
}

// BackoffPolicy names the curve of a [Backoff].
type BackoffPolicy string

// The policies.
const (
	BackoffFullJitter  BackoffPolicy = "full_jitter" // see [FullJitter]
	BackoffExponential BackoffPolicy = "exponential" // see [Exponential]
)

const (
	defaultBase = time.Second
	defaultMost = 300 * time.Second
	maxBase     = 24 * time.Hour
)

// backoffJSON is a backoff as the schema keeps it and as callers send it.
type backoffJSON struct {
	Policy BackoffPolicy `json:"policy"`
	Base   float64       `json:"base_seconds"`
	Max    float64       `json:"max_seconds"`
}

// MarshalJSON writes policy, base_seconds and max_seconds.
func (b Backoff) MarshalJSON() ([]byte, error) {
	return json.Marshal(backoffJSON{b.Policy, b.Base.Seconds(), b.Max.Seconds()})
}

// check fills in the defaults and answers the stored form, nil for none.
func (b Backoff) check(refuse func(field, code, detail string)) []byte {
	if b == (Backoff{}) {
		return nil
	}
	or(&b.Policy, BackoffFullJitter)
	or(&b.Base, defaultBase)
	or(&b.Max, defaultMost)
	if b.Policy != BackoffFullJitter && b.Policy != BackoffExponential {
		refuse("backoff.policy", "invalid", "full_jitter or exponential")
	}
	if b.Base < time.Millisecond || b.Base > maxBase {
		refuse("backoff.base_seconds", "out-of-range", "0.001 to 86400 (1 day)")
	} else if b.Max < b.Base || b.Max > MaxDelay {
		refuse("backoff.max_seconds", "out-of-range", "base_seconds to 2592000 (30 days)")
	}
	stored, err := json.Marshal(b)
	if err != nil {
		refuse("backoff", "invalid", fmt.Sprint(err))
	}
	return stored
}

// StoredBackoff reads the form that the schema keeps. nil: the job has none.
func StoredBackoff(stored []byte) *Backoff {
	var x backoffJSON
	if len(stored) == 0 || json.Unmarshal(stored, &x) != nil || x.Base <= 0 || x.Max < x.Base {
		return nil
	}
	return &Backoff{x.Policy, secondsToDuration(x.Base), secondsToDuration(x.Max)}
}

func secondsToDuration(s float64) time.Duration {
	return time.Duration(min(s, MaxDelay.Seconds()) * float64(time.Second)).Round(time.Microsecond)
}

// retry is the policy that b stands for.
func (b Backoff) retry() RetryPolicy {
	if b.Policy == BackoffExponential {
		return Exponential{Base: b.Base, Max: b.Max}
	}
	return FullJitter{Base: b.Base, Max: b.Max}
}
