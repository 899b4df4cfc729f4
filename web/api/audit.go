package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// sources are the doors that acts come through.
var sources = []string{"console", "api", "cli", "go", "system"}

// listAudit lists what people, tokens and programs did. Whoever reads may read it,
// as in the console: it holds no payload and no secret.
func (a *API) listAudit(c echo.Context) error {
	q := readQuery(c, "actor", "action", "source", "target", "since", "until", "limit", "cursor")
	cur, err := a.cursors.read(c.Request().Context(), q, "audit")
	if err != nil {
		return err
	}
	f := inspect.AuditFilter{
		Actor: q.text("actor"), Action: q.text("action"), Source: q.text("source"), Target: q.text("target"), Since: q.instant("since"), Until: q.instant("until"),
		Before: cur.N, Limit: q.number("limit", inspect.DefaultLimit, inspect.MaxLimit),
	}
	if q.values.Has("source") && !slices.Contains(sources, f.Source) {
		q.refuse("source", "invalid", strings.Join(sources, ", "))
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		q.refuse("until", "out-of-range", "later than since")
	}
	if err := q.err(); err != nil {
		return err
	}
	if p := auth.Caller(c); p.Limited() {
		return p.LimitedTo("The audit trail tells of every queue.")
	}
	list, more, err := a.Read.Audit(c.Request().Context(), f)
	if err != nil {
		return err
	}
	out := listJSON[actionJSON]{Data: make([]actionJSON, len(list)), Partial: more != 0 && len(list) < f.Limit}
	for i, x := range list {
		out.Data[i] = actionOf(x)
	}
	if more != 0 {
		if err := next(c, a.cursors, &out, cursor{Of: cur.Of, N: more}, q.values); err != nil {
			return err
		}
	}
	return answer(c, http.StatusOK, out)
}

// actionJSON is one act. Its id is its place in the trail.
type actionJSON struct {
	ID         int64           `json:"id"`
	At         stamp           `json:"at"`
	Actor      string          `json:"actor"`
	Source     string          `json:"source"`
	Action     string          `json:"action"`
	TargetKind string          `json:"target_kind"`
	Target     string          `json:"target"`
	Reason     string          `json:"reason,omitempty"`
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
	Affected   int             `json:"affected"`
	RequestID  string          `json:"request_id,omitempty"`
	Address    string          `json:"address,omitempty"`
}

func actionOf(a inspect.Action) actionJSON {
	return actionJSON{ID: a.ID, At: stamp(a.At), Actor: a.Actor, Source: a.Source, Action: a.Action, TargetKind: a.TargetKind, Target: a.Target,
		Reason: a.Reason, Before: a.Before, After: a.After, Affected: a.Affected, RequestID: a.RequestID, Address: a.Address}
}
