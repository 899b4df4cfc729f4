package engine

import "slices"

// State is where a job stands. No column holds it on the hot path: the table a
// job's row is in tells it (the view job_states answers it for people and SQL).
type State string

// The states. A pending job with scheduled_at ahead is shown as scheduled;
// failed always means that it waits out its backoff.
const (
	StatePending    State = "pending"
	StateBlocked    State = "blocked"
	StateLeased     State = "leased"
	StateFailed     State = "failed"
	StateCompleted  State = "completed"
	StateDeadLetter State = "dead_letter"
	StateCancelled  State = "cancelled"
)

// States lists every state, in the order of a job's life.
var States = []State{StatePending, StateBlocked, StateLeased, StateFailed, StateCompleted, StateDeadLetter, StateCancelled}

// transitions is the whole machine. Statements take a job from the place it
// leaves, so that a second taker finds nothing; a test tries every pair.
var transitions = map[State][]State{
	StatePending:    {StateLeased, StateCancelled, StateDeadLetter},
	StateBlocked:    {StatePending, StateCancelled, StateDeadLetter},
	StateLeased:     {StateCompleted, StateFailed, StateDeadLetter, StatePending, StateCancelled},
	StateFailed:     {StatePending, StateCancelled, StateDeadLetter},
	StateDeadLetter: {StatePending},
	StateCompleted:  {},
	StateCancelled:  {},
}

// CanBecome tells whether a job may go from s to next in one step.
func (s State) CanBecome(next State) bool { return slices.Contains(transitions[s], next) }

// Finished tells whether a job in s will not run again by itself.
func (s State) Finished() bool {
	return s == StateCompleted || s == StateDeadLetter || s == StateCancelled
}

// Outcome is how one run ended: the same list in Go, SQL, JSON, logs and
// metrics.
type Outcome int16

// The outcomes, with the numbers of job_executions.outcome.
const (
	OutcomeCompleted    Outcome = 1
	OutcomeFailed       Outcome = 2
	OutcomeSnoozed      Outcome = 3
	OutcomeHandedBack   Outcome = 4
	OutcomeCancelled    Outcome = 5
	OutcomeLeaseExpired Outcome = 6
	OutcomeCrashed      Outcome = 7
	OutcomeExpired      Outcome = 8
	OutcomeTimedOut     Outcome = 9
)

var outcomeNames = [...]string{1: "completed", "failed", "snoozed", "handed_back", "cancelled", "lease_expired", "crashed", "expired", "timed_out"}

// String returns the outcome's word.
func (o Outcome) String() string {
	if o < 1 || int(o) >= len(outcomeNames) {
		return "unknown"
	}
	return outcomeNames[o]
}

// Reason is why a job became a dead letter.
type Reason string

// The reasons.
const (
	ReasonExhausted Reason = "exhausted"
	ReasonPermanent Reason = "permanent"
	ReasonPoison    Reason = "poison"
	ReasonExpired   Reason = "expired"
)
