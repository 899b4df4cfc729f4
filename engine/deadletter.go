package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Actor is who acts on somebody else's job, for the operator_actions row.
type Actor struct {
	// Name of the person, token or program; required.
	Name string
	// Source is console, api, cli or go. Default go.
	Source    string
	Reason    string
	RequestID string
	Address   string
	// Version is that of the job as the actor saw it. If somebody acted on the job
	// since, nothing is done and the error is a *[StateError] with Changed set.
	// 0 acts on the job as it stands.
	Version int
	// Key makes the act happen once: a second call with it does nothing and is a
	// *[RepeatedError], or a *[KeyReusedError] if it says something else, until the
	// client's KeyTTL has passed. 1 to 255 characters; "" is no key.
	Key string
}

// RestoreWindow is how long a discarded dead letter can be restored.
const RestoreWindow = 7 * 24 * time.Hour

// Replay puts a dead letter back to pending under the same id: attempts and
// crashes begin anew, its history stays, tokens go on rising. It takes its unique
// key again, as an enqueue would. Errors: [ErrJobNotFound], *[StateError],
// *[UniqueConflictError], [ErrUniqueInFlight].
func (c *Client) Replay(ctx context.Context, id ID, a Actor) error {
	var row dbsqlc.ReplayDeadRow
	var called []dbsqlc.CallBackRow
	err := c.act(ctx, "replay", id, a, func(tx pgx.Tx) (_ bool, err error) {
		if called, err = c.callBack(ctx, tx, []ID{id}); err != nil { // what is owed for the life that is over
			return false, err
		}
		rows, err := c.q.ReplayDead(ctx, tx, []ID{id})
		if err != nil || len(rows) == 0 {
			return false, err
		}
		row = rows[0]
		return true, c.takeKeyAgain(ctx, tx, id)
	})
	if err != nil {
		return err
	}
	c.obs.JobReplayed(row.Queue, row.Type)
	c.calledBack(called)
	c.wakeFor(row.Queue)
	c.log.InfoContext(ctx, LogJobReplayed, "job_id", id.String(), "job_type", row.Type, "queue", row.Queue, "actor", a.Name)
	return nil
}

// Discard takes a dead letter off the list; it can be restored for
// [RestoreWindow], then it is removed. Errors: [ErrJobNotFound], *[StateError].
func (c *Client) Discard(ctx context.Context, id ID, a Actor) error {
	return c.act(ctx, "discard", id, a, func(tx pgx.Tx) (bool, error) {
		rows, err := c.q.DiscardDead(ctx, tx, []ID{id})
		return len(rows) > 0, err
	})
}

// Restore puts a discarded dead letter back on the list. Errors:
// [ErrJobNotFound], *[StateError].
func (c *Client) Restore(ctx context.Context, id ID, a Actor) error {
	return c.act(ctx, "restore", id, a, func(tx pgx.Tx) (bool, error) {
		rows, err := c.q.RestoreDead(ctx, tx, []ID{id})
		return len(rows) > 0, err
	})
}

// Cancel ends a job that waits. A job cancelled before is no error. Errors:
// [ErrJobNotFound]; *[StateError] for one that runs or has ended.
func (c *Client) Cancel(ctx context.Context, id ID, a Actor) error {
	var called []dbsqlc.CallBackRow
	err := c.act(ctx, "cancel", id, a, func(tx pgx.Tx) (bool, error) {
		rows, err := c.q.CancelWaiting(ctx, tx, []ID{id})
		if err != nil || len(rows) == 0 {
			return false, err
		}
		called, err = c.callBack(ctx, tx, []ID{id})
		return true, err
	})
	var state *StateError
	if errors.As(err, &state) && state.State == StateCancelled {
		return nil
	}
	if err == nil {
		c.calledBack(called)
		c.log.InfoContext(ctx, LogJobCancelled, "job_id", id.String(), "actor", a.Name)
	}
	return err
}

var errDueAlready = errors.New("the job is due already")

// RunNow puts a job that waits for its time, or backs off, into the line at once;
// its attempts stay as they are. One that is due already is no error. Errors:
// [ErrJobNotFound]; *[StateError] for one that runs or has ended.
func (c *Client) RunNow(ctx context.Context, id ID, a Actor) error {
	var queue string
	err := c.act(ctx, "run_now", id, a, func(tx pgx.Tx) (bool, error) {
		rows, err := c.q.RunNow(ctx, tx, []ID{id})
		if err != nil || len(rows) > 0 {
			if len(rows) > 0 {
				queue = rows[0].Queue
			}
			return len(rows) > 0, err
		}
		due, err := c.q.IsDue(ctx, tx, id)
		if err == nil && due {
			err = errDueAlready
		}
		return false, err
	})
	if errors.Is(err, errDueAlready) {
		return nil
	}
	if err != nil {
		return err
	}
	c.wakeFor(queue)
	return nil
}

// actTries bounds how often a job is looked for that is between two places. A
// promotion or an edit holds it for some milliseconds.
const actTries = 20

// change is what an act makes of its target, for the audit trail.
type change struct{ before, after []byte }

// act does one operator's act that changes where a job stands.
func (c *Client) act(ctx context.Context, name string, id ID, a Actor, move func(pgx.Tx) (bool, error)) error {
	return c.actRecording(ctx, name, id, a, func(tx pgx.Tx) (bool, change, error) {
		moved, err := move(tx)
		return moved, change{after: []byte(`{"state": "` + stateAfter[name] + `"}`)}, err
	})
}

// stateAfter is what an act makes of a job, in the words of the trail.
var stateAfter = map[string]string{"cancel": "cancelled", "stop": "stop_requested", "replay": "pending", "run_now": "pending",
	"discard": "discarded", "restore": "dead_letter"}

// actRecording does one operator's act and its audit row in one transaction. When
// move finds nothing, the state decides: one that the act applies to was in flight
// between two places, and is looked for again.
func (c *Client) actRecording(ctx context.Context, name string, id ID, a Actor, move func(pgx.Tx) (bool, change, error)) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		err := c.commit(ctx, func(tx pgx.Tx) error {
			if err := c.once(ctx, tx, a, name, id, id); err != nil {
				return err
			}
			moved, ch, err := move(tx)
			if err != nil {
				return err
			}
			if !moved {
				return errNotMoved // and its key is given back
			}
			if n, err := c.q.TouchJob(ctx, tx, id, int32(a.Version)); err != nil || n == 0 {
				return cmp.Or(err, errStale)
			}
			return c.record(ctx, tx, name, id, ch, a)
		})
		switch {
		case errors.Is(err, errStale):
			return c.stale(ctx, name, id)
		case errors.Is(err, errNotMoved):
		case err != nil:
			return fmt.Errorf("%s job %s: %w", name, id, err)
		default:
			c.log.LogAttrs(ctx, slog.LevelInfo, LogOperatorAction, slog.String("actor", a.Name), slog.String("reason", a.Reason),
				slog.String("action", name), slog.String("target", id.String()))
			return nil
		}
		s, err := c.q.GetJobState(ctx, c.pool, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrJobNotFound
		}
		if err != nil {
			return fmt.Errorf("%s job %s: %w", name, id, err)
		}
		state := &StateError{ID: id, Act: name, State: State(s.State), Replays: int(s.Replays), Discarded: s.Discarded}
		if !state.mayApply() || try == actTries {
			return state
		}
		select {
		case <-time.After(time.Duration(try+1) * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s job %s: %w", name, id, ctx.Err())
		}
	}
}

var (
	errStale    = errors.New("the job has changed")
	errNotMoved = errors.New("the job is not where the act looks for it")
)

// stale is the answer to an act on a job that is no longer what the actor saw.
func (c *Client) stale(ctx context.Context, name string, id ID) error {
	s, err := c.q.GetJobState(ctx, c.pool, id)
	if err != nil {
		return fmt.Errorf("%s job %s: %w", name, id, err)
	}
	return &StateError{ID: id, Act: name, State: State(s.State), Replays: int(s.Replays), Discarded: s.Discarded, Changed: true}
}

// mayApply tells whether the act should have found a job in this state.
func (e *StateError) mayApply() bool {
	switch e.Act {
	case "cancel", "run_now", "edit":
		return e.State == StatePending || e.State == StateFailed || e.State == StateBlocked || e.State == ""
	case "stop":
		return e.State == StateLeased || e.State == ""
	case "restore":
		return e.State == StateDeadLetter && e.Discarded
	default:
		return e.State == StateDeadLetter && !e.Discarded
	}
}

func (c *Client) record(ctx context.Context, tx pgx.Tx, action string, id ID, ch change, a Actor) error {
	if a.Source == "" {
		a.Source = "go"
	}
	_, err := c.q.RecordAction(ctx, tx, dbsqlc.RecordActionParams{Actor: a.Name, Source: a.Source, Action: action, TargetKind: "job",
		Target: id.String(), Reason: optional(a.Reason), Before: ch.before, After: ch.after, Affected: 1, RequestID: optional(a.RequestID),
		Address: optional(a.Address)})
	return err
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
