package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
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
	asked, problem := parseJobQuery(q)
	if problem != "" {
		return v.jobsProblem(q, problem)
	}
	if asked.id != uuid.Nil {
		return v.Redirect(http.StatusFound, k.url("/jobs/"+asked.id.String()))
	}
	at, err := readCursor(q)
	if err != nil {
		return err
	}
	known := true
	if v.figures != nil {
		known = asked.resolve(v.figures.queueNames(), v.figures.typeNames())
	}
	f := asked.filter()
	f.Limit, f.Before = at.limit, at.id
	var page inspect.JobPage
	if known {
		if page, err = k.Read.JobList(c.Request().Context(), f); err != nil {
			return err
		}
	}
	m := v.jobsOf(asked, page, at)
	return v.page(http.StatusOK, m.Frame, views.JobsPage(m), views.JobsLive(m))
}

// jobsProblem is the list without rows, the box as it was typed.
func (v *visit) jobsProblem(q url.Values, problem string) error {
	m := views.JobsList{Frame: v.frame("Jobs", "jobs", false), Problem: problem, Actions: v.jobsActions(), Tabs: v.tabs(jobQuery{})}
	m.Frame.Query = q.Get("q")
	m.Filter.Open = q.Get("q") == ""
	m.Filter.State, m.Filter.Type, m.Filter.Queue = "", q.Get("type"), q.Get("queue")
	m.Filter.Tag = q.Get("tag")
	m.Empty = &views.Empty{
		Title: "The query was not understood.", Text: problem,
		Links: []views.Link{{Text: "All jobs", Href: v.k.url("/jobs")}, {Text: "How to search", Href: v.k.url("/help")}},
	}
	return v.render(http.StatusBadRequest, views.JobsPage(m))
}

func (v *visit) jobsActions() []views.Action {
	if !v.may(auth.ScopeJobsWrite) {
		return nil
	}
	return []views.Action{{Kind: "new", Text: "New job", Href: v.k.url("/jobs/new"), Main: true}}
}

func (v *visit) jobsOf(asked jobQuery, page inspect.JobPage, at cursor) views.JobsList {
	m := views.JobsList{Frame: v.frame("Jobs", "jobs", true), Tabs: v.tabs(asked), Actions: v.jobsActions()}
	m.Frame.Query = asked.String()
	m.Chips, m.Clear = v.jobChips(asked)
	m.Filter = views.JobsFilter{State: placeWord(asked.place), Type: asked.typ, Queue: asked.queue, Tag: asked.tag}
	if asked.priority != nil {
		m.Filter.Priority = strconv.Itoa(int(*asked.priority))
	}
	if v.figures != nil {
		m.Filter.Queues, m.Filter.Types = v.figures.queueNames(), v.figures.typeNames()
	}
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

// noJobs says what is absent, why, and where to go from here.
func (v *visit) noJobs(asked jobQuery) *views.Empty {
	if asked.empty() {
		e := firstSteps()
		e.Links = []views.Link{{Text: "New job", Href: v.k.url("/jobs/new")}}
		return e
	}
	e := &views.Empty{Title: "No job matches " + asked.String() + ".", Links: []views.Link{{Text: "All jobs", Href: v.k.url("/jobs")}}}
	switch asked.place {
	case inspect.PlaceDead:
		e.Text = "Jobs land here after " + strconv.Itoa(v.k.MaxAttempts) + " failed attempts, or when their error is permanent."
	case inspect.PlaceRetrying:
		e.Text = "Nothing waits out a backoff."
	case inspect.PlaceCompleted, inspect.PlaceCancelled:
		e.Text = "Jobs that ended long ago are no longer kept."
	case inspect.PlaceReady, inspect.PlaceScheduled, inspect.PlaceHeld, inspect.PlaceRunning, "":
	}
	if v.figures == nil {
		return e
	}
	for _, try := range []struct{ given, what string }{{asked.queue, "queue"}, {asked.typ, "type"}, {asked.word, "queue"}, {asked.word, "type"}} {
		names := v.figures.queueNames()
		if try.what == "type" {
			names = v.figures.typeNames()
		}
		if near := closest(try.given, names); try.given != "" && near != "" && near != try.given {
			e.Text = "Closest " + try.what + ": " + near + "."
			e.Links = append([]views.Link{{Text: "Show " + near, Href: v.k.url("/jobs?" + try.what + "=" + url.QueryEscape(near))}}, e.Links...)
			break
		}
	}
	return e
}

// tabs are the states with their counts: of all jobs, or of one queue as far as
// that is known. Other filters have no counts.
func (v *visit) tabs(asked jobQuery) []views.Tab {
	tab := func(text string, place inspect.Place, n int64, known bool) views.Tab {
		with := asked
		with.place, with.word = place, ""
		t := views.Tab{Text: text, Href: v.k.jobsURL(with), State: placeStates[place], Current: asked.place == place}
		if known {
			t.Count = tally(n)
		}
		return t
	}
	counted := v.figures != nil && asked.typ == "" && asked.tag == "" && asked.priority == nil && asked.word == ""
	whole := counted && asked.queue == ""
	var d inspect.Depth
	var p inspect.Pulse
	if v.figures != nil {
		d, p = v.figures.depth(asked.queue), *v.figures.pulse
	}
	tabs := []views.Tab{
		tab("All", "", p.Jobs, whole), tab("Ready", inspect.PlaceReady, d.Ready, counted), tab("Scheduled", inspect.PlaceScheduled, d.Scheduled, counted),
		tab("Running", inspect.PlaceRunning, d.Running, counted), tab("Retrying", inspect.PlaceRetrying, d.Retrying, counted),
		tab("Dead", inspect.PlaceDead, d.Dead, counted), tab("Completed", inspect.PlaceCompleted, p.Completed, whole),
		tab("Cancelled", inspect.PlaceCancelled, p.Cancelled, whole),
	}
	if d.Held > 0 || asked.place == inspect.PlaceHeld {
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
	add := func(name, value string) {
		if value != "" {
			chips = append(chips, views.Chip{Key: name, Value: value, Remove: v.k.jobsURL(asked.without(name))})
		}
	}
	add("queue", asked.queue)
	add("type", asked.typ)
	if asked.priority != nil {
		add("priority", priorityText(*asked.priority))
	}
	add("tag", asked.tag)
	add("word", asked.word)
	if len(chips) > 0 {
		clear = v.k.jobsURL(jobQuery{place: asked.place})
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
