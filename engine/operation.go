package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/match"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
)

// OperationAction is what an operation does to each of its jobs.
type OperationAction string

// The actions. Replay and discard are for dead letters, cancel for jobs that
// wait, run now for those that wait for their time or back off.
const (
	OperateReplay  OperationAction = "replay"
	OperateDiscard OperationAction = "discard"
	OperateCancel  OperationAction = "cancel"
	OperateRunNow  OperationAction = "run_now"
)

// Pace is how fast an operation goes.
type Pace string

const (
	// PaceAll goes on as fast as the database takes it.
	PaceAll Pace = "all"
	// PaceRate does [OperationSpec.PerMinute] jobs a minute, evenly.
	PaceRate Pace = "rate"
	// PaceCanary does 5 jobs, waits until each has run, then does 10, and so on: it
	// doubles. It is for replays.
	PaceCanary Pace = "canary"
)

// OperationState is where an operation stands.
type OperationState string

// The states. A halted one stopped itself, since more than half of the jobs it
// last replayed failed again; it can be continued, like a paused one. Stopped and
// finished are for good.
const (
	OperationRunning  OperationState = "running"
	OperationPaused   OperationState = "paused"
	OperationHalted   OperationState = "halted"
	OperationStopped  OperationState = "stopped"
	OperationFinished OperationState = "finished"
)

// Selection says which jobs: all conditions hold. The zero value is all.
type Selection struct {
	// IDs are at most [MaxSelectedIDs].
	IDs         []ID   `json:"ids,omitempty"`
	Type        string `json:"type,omitempty"`
	Queue       string `json:"queue,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"` // of dead letters
	Reason      Reason `json:"reason,omitempty"`      // of dead letters
	// Query is in the language of package search, on top of the other conditions.
	Query string `json:"q,omitempty"`
}

// MaxSelectedIDs is how many jobs a selection may name.
const MaxSelectedIDs = 10_000

// MaxOperationJobs is how many jobs one operation may have.
const MaxOperationJobs = 1_000_000

// OperationSpec asks for an operation.
type OperationSpec struct {
	Action OperationAction
	Select Selection
	// Pace is [PaceAll] by default; PerMinute, 1 to 1000000, is for [PaceRate].
	Pace      Pace
	PerMinute int
	// Expected is the number that the preview told. If the set has changed by more
	// than a tenth since, nothing happens and the error is a *[CountMovedError].
	// 0 takes the set as it is.
	Expected int
}

// Operation is one act on many jobs, kept in the database: its set is frozen when
// it is made, and any server's [Operator] goes on with it.
type Operation struct {
	ID     ID
	Action OperationAction
	Select Selection
	Pace   Pace
	// PerMinute is 0 unless Pace is [PaceRate].
	PerMinute int
	State     OperationState
	// HaltedReason says why it halted itself.
	HaltedReason       string
	Actor, Source      string
	Reason             string
	CutOff             time.Time
	CreatedAt, EndedAt time.Time // EndedAt is zero until it is stopped or finished
	Total, Done        int
	PassedOver         int // had changed since the cut-off
	Step               int // of a canary
	Version            int
}

// OperationPreview is what an operation would do.
type OperationPreview struct {
	Total  int
	Groups []OperationGroup // the ten largest
}

// OperationGroup is the part of a set that is of one queue and type.
type OperationGroup struct {
	Queue, Type string
	N           int
	OldestAt    time.Time
	Samples     []ID // up to three
}

var (
	// ErrNothingSelected: no job fits the selection.
	ErrNothingSelected = errors.New("no job fits the selection")
	// ErrOperationNotFound: no operation has this id.
	ErrOperationNotFound = errors.New("operation not found")
)

// CountMovedError says that a set is no longer what its preview told.
type CountMovedError struct{ Expected, Total int }

func (e *CountMovedError) Error() string {
	return fmt.Sprintf("the selection has %d jobs, not the %d of its preview", e.Total, e.Expected)
}

// OperationStateError says that an operation cannot be steered so.
type OperationStateError struct {
	ID    ID
	Act   string // pause, continue, stop
	State OperationState
}

func (e *OperationStateError) Error() string {
	return fmt.Sprintf("%s operation %s: it is %s", e.Act, e.ID, e.State)
}

// canaryFirst is a canary's first step.
const canaryFirst = 5

func (s *OperationSpec) check() error {
	v := &ValidationError{}
	bad := func(field, code, format string, args ...any) {
		v.Fields = append(v.Fields, FieldError{Field: field, Code: code, Detail: fmt.Sprintf(format, args...)})
	}
	or(&s.Pace, PaceAll)
	dead := s.Action == OperateReplay || s.Action == OperateDiscard
	switch s.Action {
	case OperateReplay, OperateDiscard, OperateCancel, OperateRunNow:
	default:
		bad("action", "invalid", "use replay, discard, cancel or run_now")
	}
	switch s.Pace {
	case PaceAll, PaceRate:
	case PaceCanary:
		if s.Action != OperateReplay {
			bad("pace", "invalid", "a canary watches what comes of a replay; use all or rate")
		}
	default:
		bad("pace", "invalid", "use all, rate or canary")
	}
	if s.Pace == PaceRate && (s.PerMinute < 1 || s.PerMinute > 1_000_000) {
		bad("per_minute", "out-of-range", "use 1 to 1000000 with the pace rate")
	}
	if s.Pace != PaceRate && s.PerMinute != 0 {
		bad("per_minute", "conflict", "it goes with the pace rate")
	}
	if len(s.Select.IDs) > MaxSelectedIDs {
		bad("ids", "too-many", "at most %d; select by type, queue or fingerprint instead", MaxSelectedIDs)
	}
	if !dead && s.Select.Fingerprint != "" {
		bad("fingerprint", "conflict", "it selects dead letters")
	}
	if !dead && s.Select.Reason != "" {
		bad("dead_reason", "conflict", "it selects dead letters")
	}
	if _, err := search.Parse(s.Select.Query, time.Now()); err != nil {
		bad("q", "invalid", "%s", err.Error())
	}
	if s.Expected < 0 {
		bad("expected", "out-of-range", "use the number of the preview")
	}
	if len(v.Fields) > 0 {
		return v
	}
	return nil
}

// PreviewOperation tells what an operation would do, and does nothing. Errors:
// *[ValidationError], [ErrNothingSelected].
func (c *Client) PreviewOperation(ctx context.Context, s OperationSpec) (OperationPreview, error) {
	if err := s.check(); err != nil {
		return OperationPreview{}, err
	}
	var p OperationPreview
	id, err := uuid.NewV7()
	if err != nil {
		return p, err
	}
	tx, err := c.pool.Begin(ctx)
	if err != nil {
		return p, fmt.Errorf("preview %s: %w", s.Action, err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // the set is only looked at
	_, total, err := c.freeze(ctx, tx, id, s)
	if err != nil {
		return p, fmt.Errorf("preview %s: %w", s.Action, err)
	}
	rows, err := c.q.CountSelected(ctx, tx, id, 10)
	if err != nil {
		return p, fmt.Errorf("preview %s: %w", s.Action, err)
	}
	p.Total = total
	for _, r := range rows {
		p.Groups = append(p.Groups, OperationGroup{Queue: r.Queue, Type: r.Type, N: int(r.N), OldestAt: r.OldestAt, Samples: r.Samples})
	}
	return p, nil
}

// Operate makes an operation: exactly the jobs that fit now, those that come later
// are not touched. It is one act with one row in the audit trail. A job that is no
// longer as it was when its turn comes is passed over. Errors: *[ValidationError],
// [ErrNothingSelected], *[CountMovedError].
func (c *Client) Operate(ctx context.Context, s OperationSpec, a Actor) (Operation, error) {
	if err := s.check(); err != nil {
		return Operation{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Operation{}, err
	}
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.once(ctx, tx, a, "operate", id, s); err != nil {
			return err
		}
		cutOff, total, err := c.freeze(ctx, tx, id, s)
		if err != nil {
			return err
		}
		if moved := total - s.Expected; s.Expected > 0 && max(moved, -moved)*10 > s.Expected {
			return &CountMovedError{Expected: s.Expected, Total: total}
		}
		return c.insertOperation(ctx, tx, id, cutOff, total, s, a)
	})
	if err != nil {
		return Operation{}, fmt.Errorf("operate %s: %w", s.Action, err)
	}
	c.logOperation(ctx, string(s.Action), id, a)
	return c.Operation(ctx, id)
}

// freeze writes the set of a new operation, id.
func (c *Client) freeze(ctx context.Context, tx pgx.Tx, id ID, s OperationSpec) (cutOff time.Time, total int, err error) {
	// A large set takes longer than a statement on the hot path may.
	if _, err = tx.Exec(ctx, "SET LOCAL statement_timeout = '60s'"); err != nil {
		return cutOff, 0, err
	}
	if cutOff, err = c.q.Now(ctx, tx); err != nil {
		return cutOff, 0, err
	}
	n, err := c.selectJobs(ctx, tx, s, id, cutOff, s.Select.IDs)
	if err == nil && n > 0 && s.Select.Query != "" {
		n, err = c.sift(ctx, tx, s, id, cutOff, int(n))
	}
	switch {
	case err != nil:
		return cutOff, 0, err
	case n == 0:
		return cutOff, 0, ErrNothingSelected
	case n > MaxOperationJobs:
		return cutOff, 0, &ValidationError{Fields: []FieldError{{Field: "select", Code: "too-many",
			Detail: fmt.Sprintf("%d jobs fit, at most %d go into one operation", n, MaxOperationJobs)}}}
	}
	return cutOff, int(n), nil
}

// selectJobs writes what fits the plain conditions. No ids ask for any.
func (c *Client) selectJobs(ctx context.Context, tx pgx.Tx, s OperationSpec, operation ID, cutOff time.Time, ids []ID) (int64, error) {
	ids = append([]ID{}, ids...) // NULL has no cardinality
	if s.Action == OperateCancel || s.Action == OperateRunNow {
		return c.q.SelectWaiting(ctx, tx, operation, s.Action == OperateRunNow, cutOff, ids, optional(s.Select.Type), optional(s.Select.Queue))
	}
	return c.q.SelectDead(ctx, tx, dbsqlc.SelectDeadParams{OperationID: operation, CutOff: cutOff, Ids: ids, Fingerprint: optional(s.Select.Fingerprint),
		Type: optional(s.Select.Type), Queue: optional(s.Select.Queue), Reason: optional(string(s.Select.Reason))})
}

// siftBatch is how many jobs are held against a query at a time.
const siftBatch = 2_000

// sift leaves of a set of n those that match the query. The set is written anew,
// so that its numbers have no gaps.
func (c *Client) sift(ctx context.Context, tx pgx.Tx, s OperationSpec, operation ID, cutOff time.Time, n int) (int64, error) {
	query, err := search.Parse(s.Select.Query, cutOff)
	if err != nil {
		return 0, err
	}
	m := search.NewMatcher(query, cutOff)
	var kept []ID
	for after := 0; after < n; after += siftBatch {
		rows, err := c.q.ListOperationJobs(ctx, tx, operation, int32(after), int32(after+siftBatch))
		if err != nil {
			return 0, err
		}
		ids := make([]ID, len(rows))
		for i, r := range rows {
			ids[i] = r.JobID
		}
		if ids, err = match.Keep(ctx, c.q, tx, ids, m); err != nil {
			return 0, err
		}
		kept = append(kept, ids...)
	}
	if len(kept) == n {
		return int64(n), nil
	}
	if err := c.q.ClearSelected(ctx, tx, operation); err != nil || len(kept) == 0 {
		return 0, err
	}
	return c.selectJobs(ctx, tx, s, operation, cutOff, kept)
}

func (c *Client) insertOperation(ctx context.Context, tx pgx.Tx, id ID, cutOff time.Time, total int, s OperationSpec, a Actor) error {
	or(&a.Source, "go")
	selection, err := json.Marshal(s.Select)
	if err != nil {
		return err
	}
	p := dbsqlc.InsertOperationParams{ID: id, Action: string(s.Action), Selection: selection, CutOff: cutOff, Pace: string(s.Pace),
		Actor: a.Name, Source: a.Source, Reason: optional(a.Reason), Total: int32(total)}
	switch s.Pace {
	case PaceRate:
		rate := int32(s.PerMinute)
		p.PerMinute = &rate
	case PaceCanary:
		p.Step = canaryFirst
	case PaceAll:
	}
	if err := c.q.InsertOperation(ctx, tx, p); err != nil {
		return err
	}
	after := map[string]any{"action": s.Action, "pace": s.Pace, "selection": s.Select, "cut_off": cutOff.UTC()}
	return c.recordOperation(ctx, tx, "operation "+string(s.Action), id, total, after, a)
}

func (c *Client) recordOperation(ctx context.Context, tx pgx.Tx, action string, id ID, affected int, after map[string]any, a Actor) error {
	or(&a.Source, "go")
	b, err := json.Marshal(after)
	if err != nil {
		return err
	}
	_, err = c.q.RecordAction(ctx, tx, dbsqlc.RecordActionParams{Actor: a.Name, Source: a.Source, Action: action, TargetKind: "operation",
		Target: id.String(), Reason: optional(a.Reason), After: b, Affected: int32(affected), RequestID: optional(a.RequestID), Address: optional(a.Address)})
	return err
}

// steering is what may be done with an operation, and when.
var steering = map[string]struct {
	to   OperationState
	from []string
}{
	"pause":    {OperationPaused, []string{string(OperationRunning)}},
	"continue": {OperationRunning, []string{string(OperationPaused), string(OperationHalted)}},
	"stop":     {OperationStopped, []string{string(OperationRunning), string(OperationPaused), string(OperationHalted)}},
}

// PauseOperation holds an operation before its next step. Errors:
// [ErrOperationNotFound], *[OperationStateError].
func (c *Client) PauseOperation(ctx context.Context, id ID, a Actor) error {
	return c.steer(ctx, "pause", id, a)
}

// ContinueOperation goes on with one that is paused or halted; a canary begins
// again with 5. Errors: [ErrOperationNotFound], *[OperationStateError].
func (c *Client) ContinueOperation(ctx context.Context, id ID, a Actor) error {
	return c.steer(ctx, "continue", id, a)
}

// StopOperation ends an operation; what it has done stays. Errors:
// [ErrOperationNotFound], *[OperationStateError].
func (c *Client) StopOperation(ctx context.Context, id ID, a Actor) error {
	return c.steer(ctx, "stop", id, a)
}

func (c *Client) steer(ctx context.Context, act string, id ID, a Actor) error {
	way := steering[act]
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if err := c.once(ctx, tx, a, "operation "+act, id, id); err != nil {
			return err
		}
		changed, err := c.q.SteerOperation(ctx, tx, string(way.to), canaryFirst, id, way.from)
		if err != nil {
			return err
		}
		if changed == 0 {
			return errNotMoved
		}
		return c.recordOperation(ctx, tx, "operation "+act, id, 1, map[string]any{"state": way.to}, a)
	})
	if errors.Is(err, errNotMoved) {
		o, err := c.Operation(ctx, id)
		if err != nil {
			return err
		}
		return &OperationStateError{ID: id, Act: act, State: o.State}
	}
	if err != nil {
		return fmt.Errorf("%s operation %s: %w", act, id, err)
	}
	c.logOperation(ctx, act, id, a)
	return nil
}

func (c *Client) logOperation(ctx context.Context, act string, id ID, a Actor) {
	c.log.InfoContext(ctx, LogOperatorAction, "actor", a.Name, "reason", a.Reason, "action", "operation "+act, "target", id.String())
}

func operationOf(o *dbsqlc.Operation) (Operation, error) {
	out := Operation{ID: o.ID, Action: OperationAction(o.Action), Pace: Pace(o.Pace), State: OperationState(o.State), Actor: o.Actor, Source: o.Source,
		CutOff: o.CutOff.UTC(), CreatedAt: o.CreatedAt.UTC(), Total: int(o.Total), Done: int(o.Done), PassedOver: int(o.PassedOver), Step: int(o.Step),
		Version: int(o.Version)}
	if err := json.Unmarshal(o.Selection, &out.Select); err != nil {
		return Operation{}, fmt.Errorf("read operation %s: %w", o.ID, err)
	}
	if o.PerMinute != nil {
		out.PerMinute = int(*o.PerMinute)
	}
	if o.HaltedReason != nil {
		out.HaltedReason = *o.HaltedReason
	}
	if o.Reason != nil {
		out.Reason = *o.Reason
	}
	if o.EndedAt != nil {
		out.EndedAt = o.EndedAt.UTC()
	}
	return out, nil
}
