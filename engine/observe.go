package engine

import "time"

// Observer is told what the engine does, for metrics. Its methods are called
// from many goroutines, on the hot path: they must be quick and must not block.
// Embed [NopObserver], so that the interface may grow.
type Observer interface {
	// JobsEnqueued: n jobs were committed, or stand in a caller's transaction.
	JobsEnqueued(queue, jobType string, n int)
	// EnqueueTook: how long one call of a door lasted.
	EnqueueTook(d time.Duration)
	// JobsClaimed: n jobs of a queue were claimed.
	JobsClaimed(queue string, n int)
	// ClaimTook: one claim statement and its batch.
	ClaimTook(d time.Duration, batch int)
	// RunEnded: a run was closed, durably.
	RunEnded(queue, jobType string, outcome Outcome, wait, run time.Duration)
	// JobDied: a job became a dead letter.
	JobDied(queue, jobType string, reason Reason)
	// LeasesRenewed: one heartbeat's answer.
	LeasesRenewed(renewed, lost int)
	// LeaseReaped: a lost run's job was taken back.
	LeaseReaped(queue string)
	// WriteRefused: a stale token's write changed nothing.
	WriteRefused(operation string)
	// KeyRepeated: an idempotency key found its first answer (scope enqueue or
	// once), or a unique key its holder (scope unique).
	KeyRepeated(scope string)
	// JobReplayed: a dead letter went back to pending.
	JobReplayed(queue, jobType string)
	// ListenerConnected: the notification listener came or went.
	ListenerConnected(up bool)
	// TaskDone: a maintenance pass ended, with its error.
	TaskDone(task string, err error)
}

// NopObserver does nothing.
type NopObserver struct{}

var _ Observer = NopObserver{}

// JobsEnqueued implements [Observer].
func (NopObserver) JobsEnqueued(string, string, int) {}

// EnqueueTook implements [Observer].
func (NopObserver) EnqueueTook(time.Duration) {}

// JobsClaimed implements [Observer].
func (NopObserver) JobsClaimed(string, int) {}

// ClaimTook implements [Observer].
func (NopObserver) ClaimTook(time.Duration, int) {}

// RunEnded implements [Observer].
func (NopObserver) RunEnded(string, string, Outcome, time.Duration, time.Duration) {}

// JobDied implements [Observer].
func (NopObserver) JobDied(string, string, Reason) {}

// LeasesRenewed implements [Observer].
func (NopObserver) LeasesRenewed(int, int) {}

// LeaseReaped implements [Observer].
func (NopObserver) LeaseReaped(string) {}

// WriteRefused implements [Observer].
func (NopObserver) WriteRefused(string) {}

// KeyRepeated implements [Observer].
func (NopObserver) KeyRepeated(string) {}

// JobReplayed implements [Observer].
func (NopObserver) JobReplayed(string, string) {}

// ListenerConnected implements [Observer].
func (NopObserver) ListenerConnected(bool) {}

// TaskDone implements [Observer].
func (NopObserver) TaskDone(string, error) {}
