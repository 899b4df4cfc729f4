package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// editFields are the fields of PATCH /api/v1/jobs/:id.
var editFields = []string{"priority", "run_at", "scheduled_at", "max_attempts", "queue", "payload", "reason"}

// editRequest is an edit as it was asked for.
type editRequest struct {
	enqueueRequest // for its ways to read a value

	edit engine.Edit
	why  string
}

// editJob changes a job that waits and is what the caller read.
func (a *API) editJob(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	body, err := a.body(c)
	if err != nil {
		return err
	}
	q, err := readEdit(body)
	if err != nil {
		return err
	}
	if c.Request().Header.Get("If-Match") == "" {
		return &RequestError{Code: "precondition-required", Detail: "Read the job, and send its ETag as If-Match; or * to edit whatever it is by now."}
	}
	ctx, actor := c.Request().Context(), a.actor(c, q.why)
	job, err := a.Read.Job(ctx, id)
	if err == nil && !auth.Caller(c).MayTouch(job.Queue) {
		err = engine.ErrJobNotFound
	}
	if err == nil && q.edit.Queue != nil {
		err = mayName(c, *q.edit.Queue, "")
	}
	if err != nil {
		return err
	}
	tag := etag(job, "")
	switch {
	case job.State != engine.StatePending && job.State != engine.StateFailed && job.State != engine.StateBlocked:
		a.Acts.OperatorAction("edit", "refused")
		return &engine.StateError{ID: id, Act: "edit", State: job.State, Replays: job.Replays}
	case !named(c, "If-Match", tag):
		a.Acts.OperatorAction("edit", "refused")
		c.Response().Header().Set("ETag", tag)
		return &RequestError{Code: "precondition-failed", Detail: "The job has changed since it was read; the header ETag has its tag of now."}
	case strings.TrimSpace(c.Request().Header.Get("If-Match")) != "*":
		actor.Version = job.Version
	}
	err = q.asGiven("", a.Engine.Edit(ctx, id, q.edit, actor))
	var state *engine.StateError
	if errors.As(err, &state) {
		a.Acts.OperatorAction("edit", "refused")
	}
	if err != nil {
		return err
	}
	a.Acts.OperatorAction("edit", "done")
	if job, err = a.Read.Job(ctx, id); err != nil {
		return err
	}
	c.Response().Header().Set("ETag", etag(job, ""))
	return answer(c, http.StatusOK, jobOf(job))
}

func readEdit(body []byte) (*editRequest, error) {
	members, err := object(body)
	if err != nil {
		return nil, err
	}
	q := &editRequest{}
	q.given = map[string]bool{}
	for _, m := range members {
		q.given[m.name] = true
		q.field(m)
	}
	switch {
	case q.given["run_at"] && q.given["scheduled_at"]:
		q.refuse("/scheduled_at", "conflict", "the same as run_at; give one of them")
	case len(members) == 0 || len(members) == 1 && q.given["reason"]:
		q.refuse("", "required", "one of priority, run_at, max_attempts, queue, payload")
	}
	if len(q.bad) > 0 {
		return nil, flawed(q.bad...)
	}
	return q, nil
}

func (q *editRequest) field(m member) {
	if m.name != "payload" {
		if fault := brokenText(m.value); fault != "" {
			q.refuse(m.at, "invalid", fault)
			return
		}
	}
	switch m.name {
	case "priority":
		q.priority(m)
		q.edit.Priority = q.options.Priority
	case "run_at", "scheduled_at":
		t := q.instant(m)
		q.edit.ScheduledAt = &t
	case "max_attempts":
		n := q.attempts(m)
		q.edit.MaxAttempts = &n
	case "queue":
		s := q.text(m)
		q.edit.Queue = &s
	case "payload":
		q.edit.Payload = m.value
	case "reason":
		q.why = q.reason(m)
	default:
		q.refuse(m.at, "unknown-field", unknown(m.name, editFields))
	}
}

// named tells whether a header of entity tags names tag, or any by *. If-Match
// compares strongly, so that a weak tag names nothing there (RFC 9110).
func named(c echo.Context, header, tag string) bool {
	list := strings.Join(c.Request().Header.Values(header), ",")
	for given := range strings.SplitSeq(list, ",") {
		given = strings.Trim(given, " \t")
		if header == "If-None-Match" {
			given = strings.TrimPrefix(given, "W/")
		}
		if given == tag || given == "*" {
			return true
		}
	}
	return false
}
