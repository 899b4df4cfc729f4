package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

var reasons = []engine.Reason{engine.ReasonExhausted, engine.ReasonPermanent, engine.ReasonPoison, engine.ReasonExpired}

func (a *API) listDead(c echo.Context) error {
	if c.QueryParams().Has("group") {
		return a.listDeadGroups(c)
	}
	q := readQuery(c, "type", "queue", "reason", "fingerprint", "discarded", "limit", "cursor")
	cur, err := a.cursors.read(c.Request().Context(), q, "dlq")
	if err != nil {
		return err
	}
	f := inspect.DeadFilter{
		Type: q.text("type"), Queue: q.text("queue"), Fingerprint: q.text("fingerprint"), Reason: engine.Reason(q.text("reason")),
		Discarded: q.flag("discarded"), After: cur.Dead, Limit: q.number("limit", inspect.DefaultLimit, inspect.MaxLimit),
	}
	if c.QueryParams().Has("reason") && !slices.Contains(reasons, f.Reason) {
		q.refuse("reason", "invalid", "exhausted, permanent, poison, expired")
	}
	if err := q.err(); err != nil {
		return err
	}
	page, err := a.Read.DeadLetters(c.Request().Context(), f)
	if err != nil {
		return err
	}
	out := listJSON[deadJSON]{Data: make([]deadJSON, len(page.Letters))}
	for i, d := range page.Letters {
		out.Data[i] = deadOf(d)
	}
	if page.Next != nil {
		if err := next(c, a.cursors, &out, cursor{Of: cur.Of, Dead: page.Next}, q.values); err != nil {
			return err
		}
	}
	return answer(c, http.StatusOK, out)
}

// listDeadGroups answers the dead letters by cause, the last to die first.
func (a *API) listDeadGroups(c echo.Context) error {
	q := readQuery(c, "group", "type", "queue", "fingerprint", "limit")
	if q.text("group") != "fingerprint" {
		q.refuse("group", "invalid", "fingerprint")
	}
	f := inspect.GroupFilter{Type: q.text("type"), Queue: q.text("queue"), Fingerprint: q.text("fingerprint"), Limit: q.number("limit", inspect.MaxGroups, inspect.MaxGroups)}
	if err := q.err(); err != nil {
		return err
	}
	groups, err := a.Read.DeadGroups(c.Request().Context(), f)
	if err != nil {
		return err
	}
	out := listJSON[deadGroupJSON]{Data: make([]deadGroupJSON, len(groups))}
	for i := range groups {
		out.Data[i] = deadGroupOf(&groups[i])
	}
	return answer(c, http.StatusOK, out)
}

func (a *API) getDead(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	d, err := a.Read.DeadLetter(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if !auth.Caller(c).MayTouch(d.Queue) {
		return engine.ErrJobNotFound
	}
	out := deadOf(d.DeadLetter)
	out.Stack, out.Worker, out.Payload, out.Tags = d.Stack, d.Worker, d.Job.Payload, d.Job.Tags
	return answer(c, http.StatusOK, out)
}

func (a *API) replay(c echo.Context) error  { return a.act(c, "replay", a.Engine.Replay) }
func (a *API) discard(c echo.Context) error { return a.act(c, "discard", a.Engine.Discard) }
func (a *API) restore(c echo.Context) error { return a.act(c, "restore", a.Engine.Restore) }
func (a *API) runNow(c echo.Context) error  { return a.act(c, "run_now", a.Engine.RunNow) }

// act does one act on one job and answers with the job as it stands then.
func (a *API) act(c echo.Context, name string, do func(context.Context, engine.ID, engine.Actor) error) error {
	return a.actAnswering(c, http.StatusOK, name, do)
}

func (a *API) actAnswering(c echo.Context, status int, name string, do func(context.Context, engine.ID, engine.Actor) error) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	reason, err := a.reason(c)
	if err != nil {
		return err
	}
	by := a.actor(c, reason)
	if by.Key, err = actKey(c); err != nil {
		return err
	}
	if by.Version, err = a.own(c, id); err != nil {
		return err
	}
	ctx := c.Request().Context()
	err = do(ctx, id, by)
	var state *engine.StateError
	switch {
	case err == nil:
		a.Acts.OperatorAction(name, "done")
	case repeated(c, err) != nil, errors.Is(err, engine.ErrStopPending):
		a.Acts.OperatorAction(name, "repeated")
	case errors.As(err, &state):
		a.Acts.OperatorAction(name, "refused")
		return err
	default:
		return err
	}
	job, err := a.Read.Job(ctx, id)
	if err != nil {
		return err
	}
	return answer(c, status, jobOf(job))
}
