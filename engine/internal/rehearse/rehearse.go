// Package rehearse is how enginetest reaches the engine's own code: package engine
// fills in what stands here, and no product team can import it. The values are of
// type any, since their types name engine's, which imports this package.
package rehearse

import "time"

var (
	// Run makes one run of a job without a database. It is a
	// func(context.Context, engine.Config, engine.Args, engine.EnqueueOptions, int) (Ended, error).
	Run any
	// NewLedger makes the book of a recorder: a func(engine.ClientConfig) (any, error)
	// whose answer has the methods of enginetest's ledger.
	NewLedger any
)

// Ended is a run with its verdict, as the engine would write it.
type Ended struct {
	Outcome int16
	// Next is where the job goes: "" nowhere, ready, scheduled, or a dead letter's reason.
	Next  string
	Delay time.Duration
	// Used is how many attempts are used up.
	Used                               int
	Class, Message, Stack, Fingerprint string
	// Logs is the JSON that the run's row would keep; empty without a line.
	Logs         string
	Result       []byte
	Percent      float32 // negative: the run never told
	ProgressText string
	// Refused: the lease was lost, so that nothing of this is written.
	Refused bool
}
