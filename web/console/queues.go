package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// queueSorts are the orders of the list, by their name in the address: the natural
// one first, the other with a leading minus.
var queueSorts = map[string]func(k *Console, f *figures, a, b *inspect.Queue) int{
	"name": func(_ *Console, _ *figures, a, b *inspect.Queue) int { return strings.Compare(a.Name, b.Name) },
	"oldest": func(_ *Console, _ *figures, a, b *inspect.Queue) int {
		return cmp.Compare(a.OldestReady, b.OldestReady)
	},
	"in": func(_ *Console, _ *figures, a, b *inspect.Queue) int {
		return cmp.Compare(a.PerMinute.Enqueued, b.PerMinute.Enqueued)
	},
	"failed": func(_ *Console, f *figures, a, b *inspect.Queue) int {
		return cmp.Compare(failedShare(f.stats.queue(a.Name)), failedShare(f.stats.queue(b.Name)))
	},
}

func failedShare(l *line) float64 {
	if l.runs5 == 0 {
		return 0
	}
	return float64(l.failed5) / float64(l.runs5)
}

// readSort reads the parameter sort against a list of allowed keys.
func readSort(q url.Values, def string, allowed ...string) (key string, descending bool, err error) {
	s := q.Get("sort")
	if s == "" {
		s = def
	}
	key, descending = strings.CutPrefix(s, "-")
	if !slices.Contains(allowed, key) {
		return "", false, badQuery("The parameter sort may be " + strings.Join(allowed, ", ") + ", each with a minus before it or without.")
	}
	return key, descending, nil
}

// sortsOf are the heads of the columns: a click on the sorted one turns it round.
func sortsOf(path string, key string, descending bool, falling []string, all ...string) map[string]views.Sort {
	out := map[string]views.Sort{}
	for _, name := range all {
		prefix := ""
		if slices.Contains(falling, name) {
			prefix = "-"
		}
		s := views.Sort{Href: path + "?sort=" + prefix + name}
		if name == key {
			s.Dir, s.Href = "ascending", path+"?sort=-"+name
			if descending {
				s.Dir, s.Href = "descending", path+"?sort="+name
			}
		}
		out[name] = s
	}
	return out
}

func (k *Console) queues(c echo.Context) error {
	q, err := query(c, "sort")
	if err != nil {
		return err
	}
	key, down, err := readSort(q, "-oldest", "name", "oldest", "in", "failed")
	if err != nil {
		return err
	}
	v := k.visit(c)
	if v.figures == nil {
		return v.missing()
	}
	m := views.Queues{
		Frame: v.frame("Queues", "queues", true), Stale: v.stale(),
		Sorts: sortsOf(k.url("/queues"), key, down, []string{"oldest", "in", "failed"}, "name", "oldest", "in", "failed"),
	}
	list := slices.Clone(v.figures.snap.Queues)
	slices.SortStableFunc(list, func(a, b inspect.Queue) int {
		order := queueSorts[key](k, v.figures, &a, &b)
		if down {
			order = -order
		}
		return order
	})
	var paused, late int
	var scale int64
	for i := range list {
		if list[i].Paused {
			paused++
		} else if list[i].OldestReady > k.LatencyTarget {
			late++
		}
		scale = max(scale, total(list[i].Depth))
	}
	for i := range list {
		row := k.queueRow(v, &list[i])
		row.Depth.Scale = scale
		m.Rows = append(m.Rows, row)
	}
	m.Summary = plural(int64(len(list)), "queue")
	if paused > 0 {
		m.Summary += ", " + strconv.Itoa(paused) + " paused"
	}
	if late > 0 {
		m.Summary += ", " + strconv.Itoa(late) + " over its wait target"
	}
	m.Empty = &views.Empty{Title: "No queue is known yet.", Text: "A queue stands here once a job, a worker or a setting names it."}
	return v.page(http.StatusOK, m.Frame, views.QueuesPage(m), views.QueuesLive(m))
}

// missing is the answer of a page that has nothing to show without figures.
func (v *visit) missing() error {
	if v.trouble != nil {
		return v.trouble
	}
	return errNoFigures
}

func (k *Console) queueRow(v *visit, q *inspect.Queue) views.QueueRow {
	l := v.figures.stats.queue(q.Name)
	r := views.QueueRow{
		Name: q.Name, Href: k.url("/queues/" + escape(q.Name)), State: views.StateActive, Depth: depthOf(q.Depth),
		Oldest: "0 s", In: rate(q.PerMinute.Enqueued), Out: rate(q.PerMinute.Completed), Wait: percentileText(l.wait5, 0.95),
		Failed: share(l.failed5, l.runs5), Workers: count(int64(q.Workers)), Slots: count(q.Busy) + " of " + count(int64(q.Slots)), Drain: drainText(q),
		Spark: sparkOf(views.StateCompleted, "Completed in "+q.Name, closedMinutes(l.completed[:])),
	}
	if q.OldestReady > 0 {
		r.Oldest = span(q.OldestReady)
	}
	if q.OldestReady > k.LatencyTarget && !q.Paused {
		r.OldestTone, r.OldestNote = views.ToneUp, "target "+span(k.LatencyTarget)
	}
	if l.runs5 >= fewRuns && float64(l.failed5) > failureLimit*float64(l.runs5) {
		r.FailedTone = views.ToneUp
	}
	if q.Workers == 0 && q.Depth.Ready > 0 {
		r.WorkerNote = "none live"
	}
	if q.Depth.Dead > 0 {
		r.Dead = views.Link{Text: count(q.Depth.Dead) + " dead", Href: k.url("/dlq?view=jobs&queue=" + url.QueryEscape(q.Name))}
	}
	if q.Paused {
		r.State, r.Note = views.StatePaused, v.pauseNotice(q)
	}
	return r
}

func (v *visit) pauseNotice(q *inspect.Queue) *views.Notice {
	n := &views.Notice{State: views.StatePaused, Title: "Paused since"}
	n.Text = []views.Span{{At: v.clock.past(q.PausedAt)}}
	if v.figures != nil {
		for i := range v.figures.pulse.Actions {
			if a := &v.figures.pulse.Actions[i]; a.TargetKind == "queue" && a.Target == q.Name && a.Action == "pause" {
				n.Text = append(n.Text, views.Span{Text: "by " + cut(a.Actor, 80)})
				break
			}
		}
	}
	if q.PausedReason != "" {
		n.Text = append(n.Text, views.Span{Text: cut(q.PausedReason, 300), Quote: true})
	}
	if !q.ResumeAt.IsZero() {
		n.Text = append(n.Text, views.Span{Text: "resumes"}, views.Span{At: v.clock.due(q.ResumeAt)})
	}
	return n
}

func depthOf(d inspect.Depth) views.Depth {
	var out views.Depth
	for _, s := range []struct {
		state views.State
		n     int64
	}{
		{views.StateRunning, d.Running}, {views.StateReady, d.Ready}, {views.StateRetrying, d.Retrying}, {views.StateScheduled, d.Scheduled},
		{views.StateBlocked, d.Held},
	} {
		if s.n > 0 {
			out.Segments = append(out.Segments, views.Segment{State: s.state, N: s.n, Count: count(s.n)})
		}
	}
	return out
}

func (k *Console) queue(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	name, err := param(c, "name")
	if err != nil {
		return err
	}
	if err := k.mayName(c, name, ""); err != nil {
		return err
	}
	v := k.visit(c)
	if v.figures == nil {
		return v.missing()
	}
	q := v.figures.queue(name)
	if q == nil {
		detail := "Nothing is known of a queue " + quoted(name) + "."
		if near := closest(name, v.figures.queueNames()); near != "" {
			detail += " Closest: " + near + "."
		}
		return notFound(detail)
	}
	m := views.Queue{
		Frame: v.frame("Queue "+name, "queues", true), Crumbs: []views.Crumb{{Text: "Queues", Href: k.url("/queues")}, {Text: name}}, Row: k.queueRow(v, q),
	}
	l := v.figures.stats.queue(name)
	m.Strip = k.queueStrip(q, l)
	if v.may(auth.ScopeJobsRead) {
		m.Actions = []views.Action{{Kind: "view", Text: "Its jobs", Href: k.jobsURL(only("queue", name))}}
	}
	if err := v.queueLists(&m, name); err != nil {
		return err
	}
	m.Charts = []views.Chart{v.throughputChart(l, nil), v.waitChart(l)}
	return v.page(http.StatusOK, m.Frame, views.QueuePage(m), views.QueueLive(m))
}

func (k *Console) queueStrip(q *inspect.Queue, l *line) []views.Figure {
	oldest := views.Figure{Name: "Oldest ready", Value: spanFigure(q.OldestReady)}
	if q.OldestReady > k.LatencyTarget && !q.Paused {
		oldest.Tone = views.ToneUp
	}
	workers := views.Figure{Name: "Workers", Value: text(count(int64(q.Workers)))}
	if q.Workers == 0 && q.Depth.Ready > 0 {
		workers.Tone = views.ToneUp
	}
	failed := views.Figure{Name: "Failed, 5 min", Value: text(dash(share(l.failed5, l.runs5)))}
	if l.runs5 >= fewRuns && float64(l.failed5) > failureLimit*float64(l.runs5) {
		failed.Tone = views.ToneUp
	}
	return []views.Figure{
		oldest, {Name: "In per min", Value: text(rate(q.PerMinute.Enqueued))}, {Name: "Out per min", Value: text(rate(q.PerMinute.Completed))},
		{Name: "Wait p95, 5 min", Value: text(dash(percentileText(l.wait5, 0.95)))}, failed,
		workers, {Name: "Slots", Value: text(count(q.Busy) + " of " + count(int64(q.Slots)))},
	}
}

func dash(s string) string {
	if s == "" {
		return "—"
	}
	return s
}

// queueLists reads what a queue's page lists.
func (v *visit) queueLists(m *views.Queue, name string) error {
	ctx := v.Request().Context()
	running, err := v.k.Read.JobList(ctx, inspect.ListFilter{Place: inspect.PlaceRunning, JobFilter: inspect.JobFilter{Queue: name, Limit: 20}})
	if err != nil {
		return err
	}
	for i := range running.Jobs {
		m.Running = append(m.Running, v.jobRow(&running.Jobs[i]))
	}
	waiting, err := v.k.Read.NextReady(ctx, name, 20)
	if err != nil {
		return err
	}
	for i := range waiting {
		m.Waiting = append(m.Waiting, v.jobRow(&waiting[i]))
	}
	workers, err := v.k.readWorkers(ctx, v.who)
	if err != nil {
		return err
	}
	for i := range workers {
		if w := &workers[i]; w.Status.Alive() && serves(w, name) && len(m.Workers) < 50 {
			m.Workers = append(m.Workers, v.workerRow(w))
		}
	}
	for pair := range v.figures.stats.pairs {
		if pair[0] == name {
			m.Types = append(m.Types, v.typeRow(pair[1], v.figures.stats.pairs[pair]))
		}
	}
	slices.SortFunc(m.Types, func(a, b views.TypeRow) int { return strings.Compare(a.Name, b.Name) })
	acts, _, err := v.k.Read.Audit(ctx, inspect.AuditFilter{Target: name, Limit: 50})
	if err != nil {
		return err
	}
	for i := range acts {
		if a := &acts[i]; a.TargetKind == "queue" && a.Target == name {
			m.History = append(m.History, v.k.eventOf(a, v.clock.at(a.At)))
		}
	}
	return nil
}

func serves(w *inspect.Worker, queue string) bool {
	return len(w.Queues) == 0 || slices.Contains(w.Queues, "*") || slices.Contains(w.Queues, queue)
}
