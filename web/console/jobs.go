package console

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// Sizes of a page of a list.
const (
	pageSize  = 50
	largePage = 100
)

// jobs is the list. A bare id in the search box leads to the job; a mistake keeps
// the box and says what was expected.
func (k *Console) jobs(c echo.Context) error {
	q, err := query(c, "q", "state", "type", "queue", "priority", "tag", "id", "cursor", "back", "limit")
	if err != nil {
		return err
	}
	v := k.visit(c)
	asked, text, err := parseJobQuery(q, v.clock.now)
	var bad *search.Error
	if errors.As(err, &bad) {
		return v.jobsProblem(text, bad)
	}
	if id, ok := asked.Job(); ok {
		return v.Redirect(http.StatusFound, k.url("/jobs/"+id.String()))
	}
	at, err := readCursor(q)
	if err != nil {
		return err
	}
	page, err := k.Read.Search(c.Request().Context(), inspect.SearchFilter{Query: v.within(asked.Query), Before: at.id, Limit: at.limit})
	if err != nil {
		return err
	}
	m := v.jobsOf(asked, page, at)
	m.Frame.Lacks = v.lacks(auth.ScopeJobsWrite, "enqueuing and acting on jobs")
	return v.page(http.StatusOK, m.Frame, views.JobsPage(m), views.JobsLive(m))
}

// jobsProblem is the list without rows, the box as it was typed and the mistake
// marked.
func (v *visit) jobsProblem(text string, bad *search.Error) error {
	m := views.JobsList{Frame: v.frame("Jobs", "jobs", false), Actions: v.jobsActions(jobQuery{}), Tabs: v.tabs(jobQuery{})}
	m.Problem = &views.Mistake{Before: text[:bad.From], Marked: text[bad.From:bad.To], After: text[bad.To:], Text: bad.Message}
	m.Frame.Query = text
	m.Empty = &views.Empty{
		Title: "The query was not understood.", Text: bad.Message,
		Links: []views.Link{{Text: "All jobs", Href: v.k.url("/jobs")}, {Text: "How to search", Href: v.k.url("/help#search")}},
	}
	return v.render(http.StatusBadRequest, views.JobsPage(m))
}

// jobsActions are the ways on: a new job, and an operation on all that match.
func (v *visit) jobsActions(asked jobQuery) []views.Action {
	var list []views.Action
	on := func(action engine.OperationAction, text string) {
		for _, s := range v.ownSelections(engine.Selection{Query: asked.String()}, v.queuesOf(asked)) {
			list = append(list, views.Action{Kind: string(action), Text: text, Href: v.k.operationURL(action, s)})
		}
	}
	switch place, _ := asked.place(); {
	case place == inspect.PlaceDead && v.may(auth.ScopeDLQWrite):
		on(engine.OperateReplay, "Replay all that match…")
		on(engine.OperateDiscard, "Discard all that match…")
	case (place == inspect.PlaceScheduled || place == inspect.PlaceRetrying) && v.may(auth.ScopeJobsWrite):
		on(engine.OperateRunNow, "Run all now…")
		on(engine.OperateCancel, "Cancel all that match…")
	case (place == inspect.PlaceReady || place == inspect.PlaceHeld) && v.may(auth.ScopeJobsWrite):
		on(engine.OperateCancel, "Cancel all that match…")
	}
	if v.may(auth.ScopeJobsWrite) {
		list = append(list, views.Action{Kind: "new", Text: "New job", Href: v.k.url("/jobs/new"), Main: true})
	}
	return list
}

// queuesOf is the one queue that is left by a query and the caller's limits; none if
// there are several.
func (v *visit) queuesOf(asked jobQuery) []string {
	if q, ok := asked.One("queue"); ok {
		return []string{q}
	}
	if len(v.who.Queues) == 1 {
		return v.who.Queues
	}
	return nil
}

func (v *visit) jobsOf(asked jobQuery, page inspect.JobPage, at cursor) views.JobsList {
	m := views.JobsList{Frame: v.frame("Jobs", "jobs", true), Tabs: v.tabs(asked)}
	if len(page.Jobs) > 0 {
		m.Actions = v.jobsActions(asked)
	} else {
		m.Actions = v.jobsActions(jobQuery{})
	}
	m.Frame.Query = asked.String()
	m.Chips, m.Clear = v.jobChips(asked)
	m.Filter = v.jobsFilter(asked)
	for i := range page.Jobs {
		m.Rows = append(m.Rows, v.jobRow(&page.Jobs[i]))
	}
	next := ""
	if page.Next != uuid.Nil {
		next = page.Next.String()
	}
	m.Pager = at.pager(v.k.url("/jobs"), asked.values(), len(m.Rows), "job", next)
	if page.Stopped && page.Next != uuid.Nil {
		m.Pager.Stopped = "searched back to " + v.clock.short(idTime(page.Next)) + " UTC"
	}
	m.Count = plural(int64(len(m.Rows)), "job") + ", newest first"
	if len(m.Rows) == 0 && (page.Next == uuid.Nil || !page.Stopped) {
		m.Empty = v.noJobs(asked)
	}
	return m
}

// jobsFilter fills the form over the list; what it has no field for goes along.
func (v *visit) jobsFilter(asked jobQuery) views.JobsFilter {
	f := views.JobsFilter{}
	fields := map[string]*string{"type": &f.Type, "queue": &f.Queue, "tag": &f.Tag, "priority": &f.Priority}
	rest := jobQuery{}
	for _, t := range asked.asked().Terms {
		field := fields[t.Name]
		_, value, _ := strings.Cut(t.Text, ":")
		if len(t.Values) == 1 {
			value = t.Values[0]
		}
		if p, err := engine.ParsePriority(value); t.Name == "priority" && err == nil {
			value = strconv.Itoa(int(p))
		} else if t.Name == "priority" {
			field = nil
		}
		if field == nil || *field != "" || t.Not || len(t.Values) > 1 || search.Plain(t.Name, value) != t.Text && t.Name != "priority" {
			rest.Terms = append(rest.Terms, t)
			continue
		}
		*field = value
	}
	f.Rest = rest.String()
	if v.figures != nil {
		f.Queues, f.Types = v.figures.queueNames(), v.figures.typeNames()
	}
	return f
}

// noJobs says what is absent, why, and where to go from here.
func (v *visit) noJobs(asked jobQuery) *views.Empty {
	if asked.empty() {
		e := firstSteps()
		e.Links = []views.Link{{Text: "New job", Href: v.k.url("/jobs/new")}}
		return e
	}
	e := &views.Empty{Title: "No job matches " + asked.String() + ".", Links: []views.Link{{Text: "All jobs", Href: v.k.url("/jobs")}}}
	switch place, _ := asked.place(); place {
	case inspect.PlaceDead:
		e.Text = "Jobs land here after " + strconv.Itoa(v.k.MaxAttempts) + " failed attempts, or when their error is permanent."
	case inspect.PlaceRetrying:
		e.Text = "Nothing waits out a backoff."
	case inspect.PlaceCompleted, inspect.PlaceCancelled:
		e.Text = "Jobs that ended long ago are no longer kept."
		if asked.recent {
			e.Text = "Only those that ended in the last 24 hours were looked at."
			e.Links = append([]views.Link{{Text: "Look at all that are kept", Href: v.k.jobsURL(v.ofAnyTime(asked))}}, e.Links...)
		}
	case inspect.PlaceReady, inspect.PlaceScheduled, inspect.PlaceHeld, inspect.PlaceRunning, "":
	}
	if v.figures == nil {
		return e
	}
	for _, t := range asked.Terms {
		for _, what := range []string{"queue", "type"} {
			names := v.figures.queueNames()
			if what == "type" {
				names = v.figures.typeNames()
			}
			if t.Not || len(t.Values) != 1 || t.Name != "" && t.Name != what {
				continue
			}
			if near := closest(t.Values[0], names); near != "" && near != t.Values[0] {
				e.Text = "Closest " + what + ": " + near + "."
				e.Links = append([]views.Link{{Text: "Show " + near, Href: v.k.jobsURL(only(what, near))}}, e.Links...)
				return e
			}
		}
	}
	return e
}

// ofAnyTime is the query over all of the history that is kept.
func (v *visit) ofAnyTime(j jobQuery) jobQuery {
	with, err := j.asked().With("finished:..", v.clock.now)
	if err != nil {
		return j
	}
	return jobQuery{Query: with}
}

// tabs are the states with their counts: of all jobs, or of one queue as far as
// that is known. Other filters have no counts.
func (v *visit) tabs(asked jobQuery) []views.Tab {
	current, any := asked.place()
	tab := func(text string, place inspect.Place, n int64, known bool) views.Tab {
		t := views.Tab{Text: text, Href: v.k.jobsURL(asked.in(place)), State: placeStates[place], Current: current == place && (place != "" || any)}
		if known {
			t.Count = tally(n)
		}
		return t
	}
	queue, ofQueue := asked.One("queue")
	counted := v.figures != nil && !asked.beyond("state", "queue", "finished") && (!asked.Has("queue") || ofQueue && !strings.HasSuffix(queue, "*"))
	whole := counted && queue == "" && !v.figures.limited
	var d inspect.Depth
	var p inspect.Pulse
	if v.figures != nil {
		d, p = v.figures.depth(queue), *v.figures.pulse
	}
	tabs := []views.Tab{
		tab("All", "", p.Jobs, whole), tab("Ready", inspect.PlaceReady, d.Ready, counted), tab("Scheduled", inspect.PlaceScheduled, d.Scheduled, counted),
		tab("Running", inspect.PlaceRunning, d.Running, counted), tab("Retrying", inspect.PlaceRetrying, d.Retrying, counted),
		tab("Dead", inspect.PlaceDead, d.Dead, counted), tab("Completed", inspect.PlaceCompleted, p.Completed, whole),
		tab("Cancelled", inspect.PlaceCancelled, p.Cancelled, whole),
	}
	if d.Held > 0 || current == inspect.PlaceHeld {
		tabs = append(tabs[:3], append([]views.Tab{tab("Blocked", inspect.PlaceHeld, d.Held, counted)}, tabs[3:]...)...)
	}
	return tabs
}

func (k *Console) jobsURL(j jobQuery) string {
	if q := j.values().Encode(); q != "" {
		return k.url("/jobs?" + q)
	}
	return k.url("/jobs")
}

func (v *visit) jobChips(asked jobQuery) (chips []views.Chip, clear string) {
	place, _ := asked.place()
	for i, t := range asked.Terms {
		if t.Name == "state" && place != "" {
			continue // the tab says it
		}
		c := views.Chip{Key: t.Name, Value: t.Text}
		if t.Name != "" {
			c.Value = t.Text[strings.Index(t.Text, ":")+1:]
		}
		if t.Name == "payload" {
			c.Key = "payload." + strings.Join(t.Path, ".")
		}
		if t.Not {
			c.Key = "not " + c.Key
			c.Value = strings.TrimPrefix(c.Value, "-")
		}
		if c.Remove = v.k.jobsURL(asked.asked().less(i)); asked.recent && i == len(asked.Terms)-1 {
			c.Remove = v.k.jobsURL(v.ofAnyTime(asked))
		}
		chips = append(chips, c)
	}
	if len(chips) > 0 {
		clear = v.k.jobsURL(jobQuery{}.in(place))
	}
	return chips, clear
}

func (v *visit) jobRow(j *inspect.Job) views.JobRow {
	r := views.JobRow{
		ID: j.ID.String(), Short: shortID(j.ID), Href: v.k.url("/jobs/" + j.ID.String()), State: stateOf(j, v.clock.now),
		Type: j.Type, Queue: j.Queue, TypeHref: v.k.url("/types/" + escape(j.Type)), QueueHref: v.k.url("/queues/" + escape(j.Queue)),
		Priority: priorityText(j.Priority), Attempt: strconv.Itoa(j.Attempt), Max: strconv.Itoa(j.MaxAttempts), Created: v.clock.past(j.CreatedAt),
	}
	switch j.State {
	case engine.StatePending, engine.StateFailed, engine.StateBlocked:
		if j.HeldReason == "" {
			r.Due = v.clock.due(j.ScheduledAt)
		}
	case engine.StateLeased:
		r.Duration = span(max(v.clock.now.Sub(j.StartedAt), 0))
	case engine.StateCompleted, engine.StateDeadLetter, engine.StateCancelled:
		if !j.StartedAt.IsZero() && !j.FinishedAt.IsZero() {
			r.Duration = span(max(j.FinishedAt.Sub(j.StartedAt), 0))
		}
	}
	switch {
	case j.Suspect():
		r.Error = suspectText(j)
	case j.LastError != nil:
		r.Error = errorLine(j.LastError)
	}
	return r
}

// errorLine is an error in one line: its class and how its message begins.
func errorLine(f *inspect.Failure) string {
	line := firstLine(f.Message, 160)
	switch {
	case f.Class == "" || plainClasses[f.Class] && line != "" || strings.HasPrefix(line, f.Class):
		return line
	case line == "":
		return f.Class
	}
	return cut(f.Class, 60) + ": " + line
}
