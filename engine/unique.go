package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Unique lets one job at a time stand for a key. Which job that is, is decided
// by a unique index and by where the job stands: the key is free by the commit
// that ends the job, and as long as an enqueue's transaction is open nobody
// else gets its key.
type Unique struct {
	// Key, 1 to 255 characters, compared byte by byte. Empty: not unique.
	Key string
	// Scope is among which jobs the key counts. Default [UniqueByType].
	Scope UniqueScope
	// States in which a job holds its key: waiting; waiting and running, the
	// default; or waiting, running and dead. With waiting alone a job enqueued
	// while another runs is added: it sees what changed since that one began. A
	// job that comes back to wait after that holds the key unless another took it.
	States []UniqueState
	// Window holds the key for so long from the enqueue, whatever becomes of the
	// job: 1 s to 365 days. The job is kept as long. Default: none.
	Window time.Duration
	// OnConflict is what happens while another job holds the key. Default
	// [ConflictReturn].
	OnConflict OnConflict
}

// UniqueScope is among which jobs a unique key counts.
type UniqueScope string

// The scopes.
const (
	UniqueByType  UniqueScope = "type"
	UniqueByQueue UniqueScope = "queue"
	UniqueGlobal  UniqueScope = "global"
)

// UniqueState is a part of a job's life.
type UniqueState string

// The states a unique key can cover. A job waits while it is ready, scheduled,
// blocked or backing off; it is dead until it is replayed or discarded.
const (
	UniqueWaiting UniqueState = "waiting"
	UniqueRunning UniqueState = "running"
	UniqueDead    UniqueState = "dead"
)

// OnConflict is what an enqueue does when another job holds its unique key.
type OnConflict string

// The answers to a conflict.
const (
	// ConflictReturn answers the holder; nothing is added.
	ConflictReturn OnConflict = "return"
	// ConflictReplace gives a holder of the same type that still waits all that
	// this call says, under the holder's id. It keeps its attempts, and one that
	// backs off its backoff. Any other holder: *[UniqueConflictError].
	ConflictReplace OnConflict = "replace"
	// ConflictReject is a *[UniqueConflictError].
	ConflictReject OnConflict = "reject"
)

// UniqueOutcome is what a unique key made of an enqueue.
type UniqueOutcome string

// The outcomes besides "", a new job.
const (
	// UniqueHeld: the answer is the job that holds the key.
	UniqueHeld UniqueOutcome = "held"
	// UniqueReplaced: the answer is the job that held the key and waited; it has
	// the new content now.
	UniqueReplaced UniqueOutcome = "replaced"
)

// ErrUniqueInFlight: another call is taking the unique key and has not
// committed within 2 s. Nothing was written; try again.
var ErrUniqueInFlight = errors.New("unique key is being taken by an unfinished call")

// UniqueConflictError says that another job holds the unique key. Nothing was
// written.
type UniqueConflictError struct {
	// Key is empty for a replay.
	Key    string
	Holder ID
	// State of the holder. One that has ended holds the key by its window alone.
	State State
	// Until is the end of the holder's window, if it has one.
	Until time.Time
}

func (e *UniqueConflictError) Error() string {
	return fmt.Sprintf("unique key %q is held by job %s, which is %s", e.Key, e.Holder, e.State)
}

// The last state that a key covers, as jobs.unique_through has it.
const (
	throughWaiting = 1
	throughRunning = 2
	throughDead    = 3
)

// uniqueRequest is a checked [Unique].
type uniqueRequest struct {
	key        string
	scope      UniqueScope
	through    int32
	window     *float64 // seconds
	onConflict OnConflict
}

const (
	minWindow = time.Second
	maxWindow = 365 * 24 * time.Hour
)

// check answers nil for a job that is not unique.
func (u *Unique) check(refuse func(field, code, detail string)) *uniqueRequest {
	if u.Key == "" {
		if u.Scope != "" || len(u.States) > 0 || u.Window != 0 || u.OnConflict != "" {
			refuse("unique.key", "required", "1 to 255 characters")
		}
		return nil
	}
	r := &uniqueRequest{key: u.Key, scope: u.Scope, through: coverage(u.States), onConflict: u.OnConflict}
	or(&r.scope, UniqueByType)
	or(&r.onConflict, ConflictReturn)
	if code := textFault(u.Key, 255); code != "" {
		refuse("unique.key", code, "1 to 255 characters, no control characters")
	}
	if !slices.Contains([]UniqueScope{UniqueByType, UniqueByQueue, UniqueGlobal}, r.scope) {
		refuse("unique.scope", "invalid", "type, queue or global")
	}
	if r.through == 0 {
		refuse("unique.states", "invalid", "waiting; waiting, running; or waiting, running, dead")
	}
	if u.Window != 0 {
		if u.Window < minWindow || u.Window > maxWindow {
			refuse("unique.window_seconds", "out-of-range", "1 to 31536000 (365 days)")
		}
		s := u.Window.Seconds()
		r.window = &s
	}
	if !slices.Contains([]OnConflict{ConflictReturn, ConflictReplace, ConflictReject}, r.onConflict) {
		refuse("unique.on_conflict", "invalid", "return, replace or reject")
	}
	return r
}

// coverage is the last of the states, 0 if one before it is missing.
func coverage(states []UniqueState) int32 {
	if len(states) == 0 {
		return throughRunning
	}
	var given [throughDead + 1]bool
	last := int32(0)
	for _, s := range states {
		at := int32(1 + slices.Index([]UniqueState{UniqueWaiting, UniqueRunning, UniqueDead}, s))
		if at == 0 {
			return 0
		}
		given[at], last = true, max(last, at)
	}
	for at := int32(throughWaiting); at <= last; at++ {
		if !given[at] {
			return 0
		}
	}
	return last
}

// holderJSON is what the schema tells of a job that was there before.
type holderJSON struct {
	Type        string     `json:"type"`
	Queue       string     `json:"queue"`
	Priority    Priority   `json:"priority"`
	MaxAttempts int        `json:"max_attempts"`
	Version     int        `json:"version"`
	State       State      `json:"state"`
	Attempt     int        `json:"attempt"`
	Until       *time.Time `json:"until"`
}

// uniqueAnswer puts the job that is the answer instead of the one asked for.
func (d *Enqueued) uniqueAnswer(r request, row dbsqlc.EnqueueKeyedRow) error {
	if row.Outcome == "unique_in_flight" {
		return ErrUniqueInFlight
	}
	if row.Holder == "" {
		return nil
	}
	var h holderJSON
	if err := json.Unmarshal([]byte(row.Holder), &h); err != nil {
		return fmt.Errorf("read the holder of a unique key: %w", err)
	}
	switch row.Outcome {
	case "unique_conflict":
		e := &UniqueConflictError{Key: r.unique.key, Holder: row.JobID, State: h.State}
		if h.Until != nil {
			e.Until = *h.Until
		}
		return e
	case "unique_held":
		d.Unique = UniqueHeld
	case "unique_replaced":
		d.Unique = UniqueReplaced
	}
	d.Type, d.Queue, d.Priority, d.MaxAttempts = h.Type, h.Queue, h.Priority, h.MaxAttempts
	d.State, d.Attempt, d.Version = h.State, h.Attempt, h.Version
	return nil
}

// takeKeyAgain gives a replayed job its unique key back, in the replay's
// transaction, or tells who holds it.
func (c *Client) takeKeyAgain(ctx context.Context, tx pgx.Tx, id ID) error {
	took, err := c.q.TakeUniqueKey(ctx, tx, id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // it has none
	case err != nil:
		return err
	case took.Outcome == "in_flight":
		return ErrUniqueInFlight
	case took.Outcome == "taken":
		return nil
	}
	holder, err := c.q.GetJobState(ctx, tx, took.Holder)
	if err != nil {
		return err
	}
	return &UniqueConflictError{Holder: took.Holder, State: State(holder.State)}
}

const sweepBatch = 1000

// sweepUniqueKeys removes keys that no job holds any more, in a walk that goes
// on where the last pass ended.
func (e *Engine) sweepUniqueKeys() error {
	return e.sweep(&e.batches.unique, func(ctx context.Context, most int32) (int64, error) {
		step, err := e.q.SweepUniqueKeys(ctx, e.hot, append([]byte{}, e.sweptKey...), most)
		if err != nil {
			return 0, err
		}
		if e.sweptKey = step.LastKey; step.Seen < most {
			e.sweptKey = nil
		}
		return int64(step.Seen), nil
	})
}
