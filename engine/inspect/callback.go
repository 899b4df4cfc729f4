package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// Callback is how a job's end is told.
type Callback struct {
	URL string
	// JobID is the job that told of the last end, or tells of it now; the nil id
	// before there was one, and once it was removed. State is where it stands.
	JobID engine.ID
	State engine.State
	// Error says why the callback of an end could not be made, at FailedAt; the
	// leader tries again.
	Error    string
	FailedAt time.Time
}

// addCallback adds what became of a job's callback.
func (r *Reader) addCallback(ctx context.Context, j *Job) error {
	if j.Callback == nil {
		return nil
	}
	x, err := r.q.GetCallback(ctx, r.pool, j.ID)
	if err != nil {
		return err
	}
	c := j.Callback
	c.JobID, c.State, c.Error, c.FailedAt = x.ID, engine.State(x.State), x.Error, instant(x.FailedAt)
	return nil
}

// Made tells whether the callback has a job.
func (c *Callback) Made() bool { return c.JobID != uuid.Nil }
