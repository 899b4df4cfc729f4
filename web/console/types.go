package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// handlers tells which living workers know a type.
func handlers(workers []inspect.Worker, typ string) []*inspect.Worker {
	var list []*inspect.Worker
	for i := range workers {
		if w := &workers[i]; w.Status.Alive() && w.Slots > 0 && slices.Contains(w.Types, typ) {
			list = append(list, w)
		}
	}
	return list
}

func (k *Console) types(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	v := k.visit(c)
	if v.figures == nil {
		return v.missing()
	}
	workers, err := k.readWorkers(c.Request().Context(), v.who)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, t := range v.figures.typeNames() {
		names[t] = true
	}
	for i := range workers {
		if workers[i].Status.Alive() {
			for _, t := range workers[i].Types {
				names[t] = true
			}
		}
	}
	m := views.Types{Frame: v.frame("Types", "types", true), Stale: v.stale(), Summary: plural(int64(len(names)), "type") + ", last 60 minutes"}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row := v.typeRow(name, v.figures.stats.typ(name))
		v.addHandlers(&row, handlers(workers, name))
		m.Rows = append(m.Rows, row)
	}
	m.Empty = &views.Empty{Title: "No type is known yet.", Text: "A type stands here once a worker has a handler for it, or a job of it has run."}
	return v.page(http.StatusOK, m.Frame, views.TypesPage(m), views.TypesLive(m))
}

func (v *visit) typeRow(name string, l *line) views.TypeRow {
	r := views.TypeRow{
		Name: name, Href: v.k.url("/types/" + escape(name)), PerMinute: rate(float64(l.runs5) / 5), Runs: count(l.runs60), Failed: share(l.failed60, l.runs60),
		P50: percentileText(l.run, 0.5), P95: percentileText(l.run, 0.95), P99: percentileText(l.run, 0.99),
		Spark: sparkOf(views.StateCompleted, "Completed of "+name, closedMinutes(l.completed[:])),
	}
	if l.runs60 >= fewRuns && float64(l.failed60) > failureLimit*float64(l.runs60) {
		r.FailedTone = views.ToneUp
	}
	for _, q := range slices.Sorted(maps.Keys(v.figures.stats.typeQueues[name])) {
		if len(r.Queues) < 5 {
			r.Queues = append(r.Queues, views.Link{Text: q, Href: v.k.url("/queues/" + escape(q))})
		}
	}
	if n := v.figures.deadOf(func(d inspect.DeadCount) bool { return d.Type == name }); n > 0 {
		r.Dead = views.Link{Text: count(n) + " dead", Href: v.k.url("/dlq?view=jobs&type=" + url.QueryEscape(name))}
	}
	return r
}

func (v *visit) addHandlers(r *views.TypeRow, list []*inspect.Worker) {
	r.Workers = strconv.Itoa(len(list))
	if len(list) == 0 {
		r.WorkersTone = views.ToneUp
	}
	builds := map[string]bool{}
	for _, w := range list {
		builds[w.Build] = true
	}
	r.Builds = joined(slices.Sorted(maps.Keys(builds)))
}

func (k *Console) jobType(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	name, err := param(c, "type")
	if err != nil {
		return err
	}
	v := k.visit(c)
	if v.figures == nil {
		return v.missing()
	}
	ctx := c.Request().Context()
	workers, err := k.readWorkers(ctx, v.who)
	if err != nil {
		return err
	}
	recent, err := v.recentOf(ctx, name)
	if err != nil {
		return err
	}
	live := handlers(workers, name)
	if len(recent.Jobs) == 0 && len(live) == 0 && !recent.Stopped && !slices.Contains(v.figures.typeNames(), name) {
		detail := "Nothing is known of a type " + quoted(name) + "."
		if near := closest(name, v.figures.typeNames()); near != "" {
			detail += " Closest: " + near + "."
		}
		return notFound(detail)
	}
	groups, err := k.Read.DeadGroups(ctx, inspect.GroupFilter{Type: name, Queues: v.who.Queues, Limit: 20})
	if err != nil {
		return err
	}
	m := v.typeOf(name, live)
	for i := range recent.Jobs {
		m.Recent = append(m.Recent, v.jobRow(&recent.Jobs[i]))
	}
	for i := range groups {
		m.Errors = append(m.Errors, v.groupOf(&groups[i]))
	}
	return v.page(http.StatusOK, m.Frame, views.TypePage(m), views.TypeLive(m))
}

// recentOf are the newest jobs of a type that the caller may see.
func (v *visit) recentOf(ctx context.Context, name string) (inspect.JobPage, error) {
	if v.who.Limited() {
		return v.k.Read.Search(ctx, inspect.SearchFilter{Query: v.within(only("type", name).Query), Limit: 20})
	}
	return v.k.Read.JobList(ctx, inspect.ListFilter{JobFilter: inspect.JobFilter{Type: name, Limit: 20}})
}

func (v *visit) typeOf(name string, live []*inspect.Worker) views.Type {
	l := v.figures.stats.typ(name)
	m := views.Type{
		Frame: v.frame("Type "+name, "types", true), Crumbs: []views.Crumb{{Text: "Types", Href: v.k.url("/types")}, {Text: name}}, Row: v.typeRow(name, l),
	}
	v.addHandlers(&m.Row, live)
	failed := views.Figure{Name: "Failed, 60 min", Value: text(dash(m.Row.Failed)), Tone: m.Row.FailedTone}
	m.Strip = []views.Figure{
		{Name: "Runs per min", Value: text(m.Row.PerMinute)}, {Name: "Runs, 60 min", Value: text(m.Row.Runs)}, failed,
		{Name: "Run p50, about", Value: text(dash(m.Row.P50))}, {Name: "Run p95, about", Value: text(dash(m.Row.P95))},
		{Name: "Run p99, about", Value: text(dash(m.Row.P99))}, {Name: "Wait p95, about", Value: text(dash(percentileText(l.wait, 0.95)))},
	}
	for _, w := range live {
		if len(m.Handlers) < 50 {
			m.Handlers = append(m.Handlers, v.workerRow(w))
		}
	}
	if len(live) == 0 {
		m.Notices = append(m.Notices, views.Notice{
			State: views.StateLost, Title: "No live worker has a handler for this type.", Text: text("Its jobs are held back until one starts."),
		})
	}
	m.Facts = []views.Fact{
		{Name: "Attempts", Value: text("up to " + strconv.Itoa(v.k.MaxAttempts) + " unless a job says otherwise")},
		{Name: "Retry policy", Value: text("set by the handler; the delay after a failure is kept with the job")},
		{Name: "Builds", Value: text(dash(m.Row.Builds))},
		{Name: "Jobs", Value: []views.Span{{Text: "all of this type", Href: v.k.jobsURL(only("type", name))}}},
	}
	if v.may(auth.ScopeJobsWrite) {
		m.Facts = append(m.Facts, views.Fact{Name: "By hand", Value: []views.Span{{Text: "enqueue one", Href: v.k.url("/jobs/new?type=" + url.QueryEscape(name))}}})
	}
	m.Charts = []views.Chart{v.throughputChart(l, nil), v.waitChart(l)}
	return m
}
