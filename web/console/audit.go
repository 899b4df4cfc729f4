package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

func (k *Console) audit(c echo.Context) error {
	q, err := query(c, "actor", "action", "target", "cursor", "back", "limit")
	if err != nil {
		return err
	}
	at, err := readKey(q)
	if err != nil {
		return err
	}
	f := inspect.AuditFilter{Actor: q.Get("actor"), Action: q.Get("action"), Target: q.Get("target"), Limit: at.limit}
	if at.key != "" {
		if f.Before, err = strconv.ParseInt(at.key, 10, 64); err != nil || f.Before <= 0 {
			return badQuery("The parameter cursor is none that this page has given.")
		}
	}
	list, next, err := k.Read.Audit(c.Request().Context(), f)
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := views.Audit{
		Frame: v.frame("Audit", "audit", true), Filter: views.AuditFilter{Actor: f.Actor, Action: f.Action, Target: f.Target},
		Note: "what people, tokens and programs did" + k.keptFor("RETENTION_AUDIT"),
	}
	for i := range list {
		m.Rows = append(m.Rows, v.auditRow(&list[i]))
	}
	keep := url.Values{}
	for _, name := range []string{"actor", "action", "target"} {
		value := q.Get(name)
		if value == "" {
			continue
		}
		keep.Set(name, value)
		without := url.Values{}
		for _, other := range []string{"actor", "action", "target"} {
			if other != name && q.Get(other) != "" {
				without.Set(other, q.Get(other))
			}
		}
		m.Chips = append(m.Chips, views.Chip{Key: name, Value: value, Remove: withQuery(k.url("/audit"), without)})
	}
	if len(m.Chips) > 0 {
		m.Clear = k.url("/audit")
	}
	key := ""
	if next != 0 {
		key = strconv.FormatInt(next, 10)
	}
	m.Pager = at.pager(k.url("/audit"), keep, len(m.Rows), "entry", key)
	if len(m.Rows) == 0 {
		m.Empty = &views.Empty{Title: "Nobody has done anything yet.", Text: "Acts on jobs, from console, API and command line, are listed here."}
		if len(m.Chips) > 0 {
			m.Empty = &views.Empty{Title: "No entry matches.", Links: []views.Link{{Text: "All entries", Href: k.url("/audit")}}}
		}
	}
	return v.page(http.StatusOK, m.Frame, views.AuditPage(m), views.AuditLive(m))
}

func withQuery(path string, q url.Values) string {
	if e := q.Encode(); e != "" {
		return path + "?" + e
	}
	return path
}

// keptFor is ", kept 8,760 h" if the setting is known.
func (k *Console) keptFor(name string) string {
	for _, s := range k.Retention {
		if s.Name == name {
			return ", kept " + s.Value
		}
	}
	return ""
}

func (v *visit) auditRow(a *inspect.Action) views.AuditRow {
	r := views.AuditRow{
		ID: "e" + strconv.FormatInt(a.ID, 10), At: v.clock.past(a.At), Actor: a.Actor, Source: a.Source, Action: a.Action, Target: v.k.targetOf(a),
		Reason: cut(a.Reason, 500), Before: briefJSON(a.Before), After: briefJSON(a.After), Request: cut(a.RequestID, 40), Address: a.Address,
	}
	if a.Affected != 1 {
		r.Count = count(int64(a.Affected))
	}
	r.Revert = v.revertOf(a)
	if a.TargetKind == "user" && v.mayAccess() {
		r.Target.Href = v.userURL(a.Target)
	}
	return r
}

// targetOf links what an act was done to, where it has a page.
func (k *Console) targetOf(a *inspect.Action) views.Link {
	switch a.TargetKind {
	case "job":
		if id, err := parseID(a.Target); err == nil {
			return views.Link{Text: shortID(id), Href: k.url("/jobs/" + id.String())}
		}
	case "operation":
		if id, err := parseID(a.Target); err == nil {
			return views.Link{Text: "operation " + shortID(id), Href: k.url("/operations/" + id.String())}
		}
	case "type":
		return views.Link{Text: "type " + a.Target, Href: k.url("/types/" + escape(a.Target))}
	case "queue":
		return views.Link{Text: a.Target, Href: k.url("/queues/" + escape(a.Target))}
	}
	return views.Link{Text: strings.TrimSpace(a.TargetKind + " " + cut(a.Target, 100))}
}

// briefJSON is a flat object in a few words: "state: pending".
func briefJSON(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	value, err := decodeJSON(raw)
	if err != nil {
		return cut(string(raw), 100)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return cut(string(raw), 100)
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		b, err := json.Marshal(object[key])
		if err != nil {
			continue
		}
		parts = append(parts, key+": "+strings.Trim(string(b), `"`))
	}
	return cut(strings.Join(parts, ", "), 160)
}

var actionWords = map[string]struct {
	word  string
	state views.State
	icon  string
}{
	"replay": {"Replayed", views.StateReplayed, "rotate-ccw"}, "discard": {"Discarded", views.StateDiscarded, "trash"},
	"restore": {"Restored", views.StateDead, "corner"}, "cancel": {"Cancelled", views.StateCancelled, "ban"},
	"run_now": {"Brought forward", views.StateReady, "zap"}, "edit": {"Edited", views.StateReady, "pencil"},
	"set_schema": {"Schema set", views.StateActive, "pencil"}, "remove_schema": {"Schema removed", views.StateStopped, "trash"},
	"stop":  {"Stop requested", views.StateLate, "octagon-x"},
	"pause": {"Paused", views.StatePaused, "circle-pause"}, "resume": {"Resumed", views.StateActive, "play"},
	"operation replay": {"Replay of many", views.StateReplayed, "list-checks"}, "operation discard": {"Discard of many", views.StateDiscarded, "list-checks"},
	"operation cancel": {"Cancel of many", views.StateCancelled, "list-checks"}, "operation run_now": {"Run now of many", views.StateReady, "list-checks"},
	"operation pause": {"Paused operation", views.StatePaused, "circle-pause"}, "operation continue": {"Continued operation", views.StateActive, "play"},
	"operation stop": {"Stopped operation", views.StateStopped, "circle-stop"}, "operation halt": {"Halted operation", views.StateHalted, "octagon-x"},
	"reveal":  {"Payload revealed", views.StateLate, "eye"},
	"enqueue": {"Enqueued", views.StateReady, "plus"}, "drain": {"Drained", views.StateDraining, "log-out"},
}

// eventOf is an act as a feed shows it.
func (k *Console) eventOf(a *inspect.Action, at views.Time) views.Event {
	e := views.Event{At: at, Icon: "pencil", By: cut(a.Actor, 80) + ", " + a.Source}
	word := a.Action
	if w, ok := actionWords[a.Action]; ok {
		word, e.State, e.Icon = w.word, w.state, w.icon
	}
	target := k.targetOf(a)
	e.Text = []views.Span{{Text: word, Bold: true}, {Text: target.Text, Href: target.Href}}
	if a.Reason != "" {
		e.Text = append(e.Text, views.Span{Text: cut(a.Reason, 200), Quote: true})
	}
	return e
}
