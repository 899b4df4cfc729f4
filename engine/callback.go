package engine

import (
	"context"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

// callbackType is the type of the jobs that tell of another's end. This package
// makes them and does not run them: whoever serves their queue needs a worker for
// it.
const callbackType = "webhook"

const (
	callbackURLMax = 2048
	callbackRule   = "an http or https address of at most 2048 bytes, without user and password"
)

// checkCallbackURL moves the option over. What an address means, and whether it may
// be reached, is for [ClientConfig.CheckCallback] to say.
func (r *request) checkCallbackURL(s string, refuse func(field, code, detail string)) {
	if s == "" {
		return
	}
	u, err := url.Parse(s)
	switch {
	case len(s) > callbackURLMax:
		refuse("callback_url", "too-long", callbackRule)
	case err != nil || textFault(s, callbackURLMax) != "" || strings.ContainsAny(s, " \\"),
		u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.User != nil:
		refuse("callback_url", "invalid", callbackRule)
	default:
		r.callbackURL = &s
	}
}

// callBack makes the callbacks of those of the jobs that have just ended in db, a
// transaction. Tell of them with [Client.calledBack] once it has committed.
func (c *Client) callBack(ctx context.Context, db dbsqlc.DBTX, ids []ID) ([]dbsqlc.CallBackRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return c.q.CallBack(ctx, db, ids, int32(c.most))
}

// calledBack tells of callbacks that are durable now.
func (c *Client) calledBack(rows []dbsqlc.CallBackRow) {
	for _, r := range rows {
		c.obs.JobsEnqueued(r.Queue, callbackType, 1)
		c.log.Info(LogJobCreated, "job_id", r.CallbackID.String(), "job_type", callbackType, "queue", r.Queue, "callback_of", r.JobID.String())
		c.wakeFor(r.Queue)
	}
}

// wakeFor tells workers that a queue has a ready job.
func (c *Client) wakeFor(queue string) {
	c.notify.queue(queue)
	if c.wake != nil {
		c.wake(queue)
	}
}

const (
	owedBatch   = 500
	failedBatch = 100
)

// callOwed makes the callbacks that could not be made with their end, and those of
// ends that a worker of an earlier release wrote. It takes the ones that have
// failed, and one step of the walk over all that are owed.
func (e *Engine) callOwed() error {
	_, err := e.sweepCall(&e.batches.owed, func(ctx context.Context, most int32) (int64, error) {
		failed, err := e.q.ListFailedCallbacks(ctx, e.hot, min(most, failedBatch))
		if err != nil {
			return 0, err
		}
		owed, err := e.q.ListOwedCallbacks(ctx, e.hot, e.owedAfter, most)
		if err != nil {
			return 0, err
		}
		ids := append(failed, owed...)
		rows, err := e.client.callBack(ctx, e.hot, ids)
		if err != nil {
			return 0, err
		}
		e.owedAfter = uuid.Nil
		if len(owed) == int(most) {
			e.owedAfter = owed[most-1]
		}
		if len(ids) == 0 {
			return 0, nil
		}
		fault.Point("callback.owed")
		e.client.calledBack(rows)
		return int64(len(ids)), e.q.ForgetCallbacks(ctx, e.hot, ids)
	})
	return err
}

var errNestedCallback = &ValidationError{[]FieldError{{"callback_url", "conflict", "a callback has none of its own"}}}

// guardCallback asks the program whether an address may be called.
func (c *Client) guardCallback(r *request) []FieldError {
	if r.callbackURL == nil || c.checkCallback == nil {
		return nil
	}
	if err := c.checkCallback(*r.callbackURL); err != nil {
		return []FieldError{{"callback_url", "refused", err.Error()}}
	}
	return nil
}
