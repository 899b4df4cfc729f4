package api

import (
	"math"
	"strconv"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// backoffFields are the members of an enqueue's backoff, in the order of the
// documentation.
var backoffFields = []string{"policy", "base_seconds", "max_seconds"}

// backoff reads the object of that name. An empty one asks for the defaults.
func (q *enqueueRequest) backoff(m member) {
	if m.value[0] != '{' {
		q.refuse(m.at, "invalid", "an object with, if wanted, policy, base_seconds, max_seconds")
		return
	}
	members, err := object(m.value)
	if err != nil {
		q.refuse(m.at, "invalid", "an object, each member once")
		return
	}
	b := &q.options.Backoff
	b.Policy = engine.BackoffFullJitter
	for _, x := range members {
		x.at = m.at + x.at
		switch x.name {
		case "policy":
			b.Policy = engine.BackoffPolicy(q.text(x))
		case "base_seconds":
			b.Base = q.seconds(x, "0.001 to 86400 (1 day)")
		case "max_seconds":
			b.Max = q.seconds(x, "base_seconds to 2592000 (30 days)")
		default:
			q.refuse(x.at, "unknown-field", unknown(x.name, backoffFields))
		}
	}
}

// seconds reads a length of time that is not zero; its limits are the engine's.
func (q *enqueueRequest) seconds(m member, rule string) time.Duration {
	s, err := strconv.ParseFloat(string(m.value), 64)
	switch {
	case m.value[0] != '-' && (m.value[0] < '0' || m.value[0] > '9'):
		q.refuse(m.at, "invalid", "a number of seconds")
	case err != nil || s < 0.001 || s > maxSeconds:
		q.refuse(m.at, "out-of-range", rule)
	default:
		return time.Duration(math.Round(s*1e6)) * time.Microsecond
	}
	return 0
}
