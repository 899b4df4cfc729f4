package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

const (
	defaultOperations = 20
	// operationBytes are those of the longest list of ids and what stands beside it.
	operationBytes = engine.MaxSelectedIDs*40 + 64<<10
)

// operationFields are the fields of POST /api/v1/operations.
var operationFields = []string{"action", "ids", "q", "type", "queue", "fingerprint", "dead_reason", "pace", "per_minute", "expected", "reason", "dry_run"}

// operationRequest is an operation as it was asked for.
type operationRequest struct {
	enqueueRequest // for its ways to read a value

	spec   engine.OperationSpec
	reason string
	dryRun bool
}

func (q *operationRequest) field(m member) {
	if fault := brokenText(m.value); fault != "" {
		q.refuse(m.at, "invalid", fault)
		return
	}
	s := &q.spec
	switch m.name {
	case "action":
		s.Action = engine.OperationAction(q.text(m))
	case "ids":
		s.Select.IDs = q.ids(m)
	case "q":
		if s.Select.Query = q.text(m); strings.TrimSpace(s.Select.Query) == "" && len(q.bad) == 0 {
			q.refuse(m.at, "required", "a search, as in state:dead queue:billing")
		}
	case "type":
		s.Select.Type = q.text(m)
	case "queue":
		s.Select.Queue = q.text(m)
	case "fingerprint":
		s.Select.Fingerprint = q.text(m)
	case "dead_reason":
		if s.Select.Reason = engine.Reason(q.text(m)); s.Select.Reason != "" && !slices.Contains(reasons, s.Select.Reason) {
			q.refuse(m.at, "invalid", "exhausted, permanent, poison, expired")
		}
	case "pace":
		s.Pace = engine.Pace(q.text(m))
	case "per_minute":
		s.PerMinute = q.whole(m, 1_000_000)
	case "expected":
		s.Expected = q.whole(m, engine.MaxOperationJobs)
	case "reason":
		if q.reason = q.text(m); len(q.reason) > 1000 {
			q.refuse(m.at, "too-long", "at most 1000 bytes")
		}
	case "dry_run":
		q.dryRun = q.flag(m)
	default:
		q.refuse(m.at, "unknown-field", unknown(m.name, operationFields))
	}
}

// ids reads a list of job ids. An empty list is refused: it would select all.
func (q *operationRequest) ids(m member) []engine.ID {
	texts := q.texts(m)
	if len(texts) == 0 && len(q.bad) == 0 {
		q.refuse(m.at, "required", "at least one id")
	}
	ids := make([]engine.ID, 0, len(texts))
	for i, s := range texts {
		id, err := uuid.Parse(s)
		if s == "" {
			continue // said by texts
		}
		if err != nil || len(s) != 36 {
			q.refuse(at(m.name, strconv.Itoa(i)), "invalid", "the id of a job")
			if len(q.bad) > 100 {
				return nil
			}
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

func (q *operationRequest) whole(m member, most int) int {
	s := string(m.value)
	if !wholeNumber.MatchString(s) {
		q.refuse(m.at, "invalid", "a whole number from 1 to "+strconv.Itoa(most))
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		q.refuse(m.at, "out-of-range", "1 to "+strconv.Itoa(most))
		return 0
	}
	return n
}

func (q *enqueueRequest) flag(m member) bool {
	switch string(m.value) {
	case "true":
		return true
	case "false":
		return false
	}
	q.refuse(m.at, "invalid", "true or false")
	return false
}

// readOperation reads the body; what is wrong with it is told all at once.
func (a *API) readOperation(c echo.Context, spec engine.OperationSpec) (*operationRequest, error) {
	q := &operationRequest{spec: spec}
	if c.Request().ContentLength == 0 {
		return nil, flawed(flaw("", "required", "a JSON object: "+strings.Join(operationFields, ", ")))
	}
	body, err := readBody(c, operationBytes, fmt.Sprintf("A body may have %d bytes, which is room for %d ids.", operationBytes, engine.MaxSelectedIDs))
	if err != nil {
		return nil, err
	}
	members, err := object(body)
	if err != nil {
		return nil, err
	}
	selected := false
	for _, m := range members {
		if m.name == "action" && spec.Action != "" {
			q.refuse(m.at, "conflict", "this path says it: "+string(spec.Action))
			continue
		}
		switch m.name {
		case "ids", "q", "type", "queue", "fingerprint", "dead_reason":
			selected = true
		}
		q.field(m)
	}
	if q.spec.Action == "" && len(q.bad) == 0 {
		q.refuse(at("action"), "required", "replay, discard, cancel or run_now")
	}
	if !selected && len(q.bad) == 0 {
		q.refuse("", "required", "say which jobs: ids, or one or more of q, type, queue, fingerprint, dead_reason")
	}
	if len(q.bad) > 0 {
		return nil, flawed(q.bad...)
	}
	return q, nil
}

// scopeOf is the right that an action needs.
func scopeOf(action engine.OperationAction) auth.Scope {
	if action == engine.OperateReplay || action == engine.OperateDiscard {
		return auth.ScopeDLQWrite
	}
	return auth.ScopeJobsWrite
}

func (a *API) createOperation(c echo.Context) error {
	return a.operate(c, engine.OperationSpec{})
}

func (a *API) replayMany(c echo.Context) error {
	return a.operate(c, engine.OperationSpec{Action: engine.OperateReplay})
}

func (a *API) discardMany(c echo.Context) error {
	return a.operate(c, engine.OperationSpec{Action: engine.OperateDiscard})
}

// operate makes an operation, or tells what it would touch.
func (a *API) operate(c echo.Context, spec engine.OperationSpec) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	q, err := a.readOperation(c, spec)
	if err != nil {
		return err
	}
	if err := auth.Need(c, scopeOf(q.spec.Action)); err != nil {
		return err
	}
	if err := mayName(c, q.spec.Select.Queue, "Select by queue, beside whatever else."); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if q.dryRun {
		p, err := a.Engine.PreviewOperation(ctx, q.spec)
		if err != nil {
			return err
		}
		return answer(c, http.StatusOK, previewOf(q.spec, p))
	}
	by := a.actor(c, q.reason)
	if by.Key, err = actKey(c); err != nil {
		return err
	}
	o, err := a.Engine.Operate(ctx, q.spec, by)
	result := "done"
	if first := repeated(c, err); first != nil {
		result = "repeated"
		o, err = a.Engine.Operation(ctx, first.Subject)
	}
	if err != nil {
		return err
	}
	a.Acts.OperatorAction("operation "+string(o.Action), result)
	c.Response().Header().Set(echo.HeaderLocation, "/api/v1/operations/"+o.ID.String())
	return answer(c, http.StatusAccepted, operationOf(o))
}

func (a *API) listOperations(c echo.Context) error {
	q := readQuery(c, "limit", "cursor")
	cur, err := a.cursors.read(c.Request().Context(), q, "operations")
	if err != nil {
		return err
	}
	limit := q.number("limit", defaultOperations, 200)
	if err := q.err(); err != nil {
		return err
	}
	list, err := a.Engine.Operations(c.Request().Context(), engine.Operation{ID: cur.Before, CreatedAt: cur.At}, limit+1)
	if err != nil {
		return err
	}
	more := len(list) > limit
	list = list[:min(len(list), limit)]
	out := listJSON[operationJSON]{Data: make([]operationJSON, 0, len(list))}
	for _, o := range list {
		if mayTouchOperation(c, o) {
			out.Data = append(out.Data, operationOf(o))
		}
	}
	if more {
		last := list[len(list)-1]
		if err := next(c, a.cursors, &out, cursor{Of: cur.Of, Before: last.ID, At: last.CreatedAt}, q.values); err != nil {
			return err
		}
	}
	return answer(c, http.StatusOK, out)
}

func (a *API) getOperation(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	id, err := operationID(c)
	if err != nil {
		return err
	}
	return a.answerOperation(c, id)
}

// answerOperation tells what came of its jobs too.
func (a *API) answerOperation(c echo.Context, id engine.ID) error {
	ctx := c.Request().Context()
	o, err := a.ownOperation(c, id)
	if err != nil {
		return err
	}
	came, err := a.Engine.OperationOutcomes(ctx, o)
	if err != nil {
		return err
	}
	failures, err := a.Engine.OperationFailures(ctx, id, 0, 100)
	if err != nil {
		return err
	}
	out := operationOf(o)
	out.Outcomes = &outcomesJSON{Looked: came.Acted, Ran: came.Ran, Failed: came.Failed}
	for _, f := range failures {
		x := operationFailureJSON{JobID: f.JobID, PassedOver: f.PassedOver, At: stamp(f.At)}
		if !f.PassedOver {
			x.Outcome, x.Class, x.Message = f.Outcome.String(), f.Class, f.Error
		}
		out.Failures = append(out.Failures, x)
	}
	return answer(c, http.StatusOK, out)
}

func (a *API) steerOperation(act string, do func(context.Context, engine.ID, engine.Actor) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := readQuery(c).err(); err != nil {
			return err
		}
		id, err := operationID(c)
		if err != nil {
			return err
		}
		reason, err := a.reason(c)
		if err != nil {
			return err
		}
		ctx := c.Request().Context()
		o, err := a.ownOperation(c, id)
		if err != nil {
			return err
		}
		if err := auth.Need(c, scopeOf(o.Action)); err != nil {
			return err
		}
		by := a.actor(c, reason)
		if by.Key, err = actKey(c); err != nil {
			return err
		}
		result := "done"
		if err := do(ctx, id, by); repeated(c, err) != nil {
			result = "repeated"
		} else if err != nil {
			a.Acts.OperatorAction("operation "+act, "refused")
			return err
		}
		a.Acts.OperatorAction("operation "+act, result)
		return a.answerOperation(c, id)
	}
}

func operationID(c echo.Context) (engine.ID, error) {
	s := c.Param("id")
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return engine.ID{}, engine.ErrOperationNotFound
	}
	return id, nil
}

type operationJSON struct {
	ID           engine.ID              `json:"id"`
	Action       engine.OperationAction `json:"action"`
	Status       engine.OperationState  `json:"status"`
	Select       selectionJSON          `json:"select"`
	Pace         engine.Pace            `json:"pace"`
	PerMinute    int                    `json:"per_minute,omitzero"`
	Total        int                    `json:"total"`
	Done         int                    `json:"done"`
	PassedOver   int                    `json:"passed_over"`
	HaltedReason string                 `json:"halted_reason,omitzero"`
	Actor        string                 `json:"actor"`
	Source       string                 `json:"source"`
	Reason       string                 `json:"reason,omitzero"`
	CutOff       stamp                  `json:"cut_off"`
	CreatedAt    stamp                  `json:"created_at"`
	EndedAt      stamp                  `json:"ended_at,omitzero"`
	Version      int                    `json:"version"`
	// Of one operation alone:
	Outcomes *outcomesJSON          `json:"outcomes,omitzero"`
	Failures []operationFailureJSON `json:"failures,omitzero"` // the first 100
}

type selectionJSON struct {
	IDs         []engine.ID   `json:"ids,omitzero"`
	Query       string        `json:"q,omitzero"`
	Type        string        `json:"type,omitzero"`
	Queue       string        `json:"queue,omitzero"`
	Fingerprint string        `json:"fingerprint,omitzero"`
	DeadReason  engine.Reason `json:"dead_reason,omitzero"`
}

// outcomesJSON is about the jobs last acted on, at most 1,000.
type outcomesJSON struct {
	Looked int `json:"looked_at"`
	Ran    int `json:"ran"`
	Failed int `json:"failed"`
}

type operationFailureJSON struct {
	JobID      engine.ID `json:"job_id"`
	PassedOver bool      `json:"passed_over"`
	Outcome    string    `json:"outcome,omitzero"`
	Class      string    `json:"class,omitzero"`
	Message    string    `json:"message,omitzero"`
	At         stamp     `json:"at,omitzero"`
}

func selectionOf(s engine.Selection) selectionJSON {
	return selectionJSON{IDs: s.IDs, Query: s.Query, Type: s.Type, Queue: s.Queue, Fingerprint: s.Fingerprint, DeadReason: s.Reason}
}

func operationOf(o engine.Operation) operationJSON {
	return operationJSON{
		ID: o.ID, Action: o.Action, Status: o.State, Select: selectionOf(o.Select), Pace: o.Pace, PerMinute: o.PerMinute, Total: o.Total, Done: o.Done,
		PassedOver: o.PassedOver, HaltedReason: o.HaltedReason, Actor: o.Actor, Source: o.Source, Reason: o.Reason, CutOff: stamp(o.CutOff),
		CreatedAt: stamp(o.CreatedAt), EndedAt: stamp(o.EndedAt), Version: o.Version,
	}
}

// previewJSON is what an operation would do, of which nothing has happened.
type previewJSON struct {
	DryRun bool                   `json:"dry_run"`
	Action engine.OperationAction `json:"action"`
	Select selectionJSON          `json:"select"`
	Total  int                    `json:"total"`
	Groups []previewGroupJSON     `json:"groups"` // the ten largest
}

type previewGroupJSON struct {
	Queue    string      `json:"queue"`
	Type     string      `json:"type"`
	Jobs     int         `json:"jobs"`
	OldestAt stamp       `json:"oldest_at"`
	Samples  []engine.ID `json:"samples"`
}

func previewOf(s engine.OperationSpec, p engine.OperationPreview) previewJSON {
	out := previewJSON{DryRun: true, Action: s.Action, Select: selectionOf(s.Select), Total: p.Total, Groups: make([]previewGroupJSON, len(p.Groups))}
	for i, g := range p.Groups {
		out.Groups[i] = previewGroupJSON{Queue: g.Queue, Type: g.Type, Jobs: g.N, OldestAt: stamp(g.OldestAt), Samples: g.Samples}
	}
	return out
}
