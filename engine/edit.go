package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// Edit is what [Client.Edit] makes of a job; nil leaves a field as it is.
type Edit struct {
	Priority *Priority
	// ScheduledAt is when the job may run, from 1970 to 10 years ahead; an instant
	// that has passed means now. A backoff ends then too.
	ScheduledAt *time.Time
	// MaxAttempts, more than the job has used, up to 100.
	MaxAttempts *int
	Queue       *string
	// Payload takes the place of the whole payload.
	Payload json.RawMessage
}

var errSame = errors.New("the job is so already")

// Edit changes a job that waits. It keeps its id, its attempts, its unique key as it
// was taken, and its turn in line unless queue or priority change. A change to what
// the job is already is no error, and leaves no trace. Errors: *[ValidationError],
// [ErrJobNotFound]; *[StateError] for a job that runs or has ended, and for one that
// somebody acted on since [Actor.Version].
func (c *Client) Edit(ctx context.Context, id ID, e Edit, a Actor) error {
	if bad := c.checkEdit(e, time.Now()); len(bad) > 0 {
		return &ValidationError{bad}
	}
	var row dbsqlc.EditWaitingRow
	err := c.actRecording(ctx, "edit", id, a, func(tx pgx.Tx) (moved bool, ch change, err error) {
		if err := c.fitEdit(ctx, tx, id, e); err != nil {
			return false, change{}, err
		}
		row, err = c.q.EditWaiting(ctx, tx, id, number(e.Priority), e.ScheduledAt, number(e.MaxAttempts), e.Queue, e.Payload)
		if err == nil && row.Outcome != "absent" {
			err = editRefusal(row)
		}
		return row.Outcome == "edited", change{row.Before, row.After}, err
	})
	if errors.Is(err, errSame) {
		return nil
	}
	if err != nil {
		return err
	}
	if row.Later {
		c.notify.later()
		return nil
	}
	c.notify.queue(row.Line)
	if c.wake != nil {
		c.wake(row.Line)
	}
	return nil
}

// fitEdit holds a new payload against the schema of the job's type.
func (c *Client) fitEdit(ctx context.Context, tx pgx.Tx, id ID, e Edit) error {
	if e.Payload == nil {
		return nil
	}
	typ, err := c.q.GetJobType(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // that it is not there is found out next
	}
	if err != nil {
		return err
	}
	return c.fit(ctx, pgxSchemas{c.q, tx}, &request{jobType: typ, payload: e.Payload})
}

// editRefusal is why a job that waits was not edited.
func editRefusal(row dbsqlc.EditWaitingRow) error {
	switch row.Outcome {
	case "same":
		return errSame
	case "attempts_used":
		return &ValidationError{[]FieldError{{"max_attempts", "out-of-range", fmt.Sprintf("more than the %d attempts used", row.Used)}}}
	case "expires_first":
		return &ValidationError{[]FieldError{{"run_at", "out-of-range", "before the job expires"}}}
	}
	return nil
}

func (c *Client) checkEdit(e Edit, now time.Time) (bad []FieldError) {
	refuse := func(field, code, detail string) { bad = append(bad, FieldError{field, code, detail}) }
	if e.Priority != nil && (*e.Priority < 0 || *e.Priority > 5) {
		refuse("priority", "out-of-range", "a whole number from 0 to 5, the higher runs first")
	}
	switch {
	case e.ScheduledAt == nil:
	case e.ScheduledAt.After(now.AddDate(10, 0, 0)):
		refuse("run_at", "too-far", "at most 10 years ahead")
	case e.ScheduledAt.Year() < 1970:
		refuse("run_at", "out-of-range", "not before 1970")
	}
	if e.MaxAttempts != nil && (*e.MaxAttempts < 1 || *e.MaxAttempts > 100) {
		refuse("max_attempts", "out-of-range", "1 to 100")
	}
	if e.Queue != nil && !validName(*e.Queue) {
		refuse("queue", codeFor(*e.Queue), nameRule)
	}
	if e.Payload != nil {
		bad = append(bad, c.limits.check(e.Payload)...)
	}
	return bad
}

// number is a small number as the database takes it.
func number[T ~int | ~int16](n *T) *int32 {
	if n == nil {
		return nil
	}
	x := int32(*n)
	return &x
}
