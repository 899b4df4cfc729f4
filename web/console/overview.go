package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/overview"
)

func (k *Console) toOverview(c echo.Context) error {
	return c.Redirect(http.StatusFound, k.url("/"))
}

// overview answers the five questions from the figures alone: no query of its own.
func (k *Console) overview(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	v := k.visit(c)
	if v.figures == nil && v.trouble != nil {
		return v.trouble
	}
	m := k.overviewOf(v)
	status := http.StatusOK
	if v.trouble != nil && !v.slow() {
		status = http.StatusServiceUnavailable // with the last good figures
		c.Response().Header().Set(echo.HeaderRetryAfter, "2")
	}
	return v.page(status, m.Frame, views.OverviewPage(m), views.OverviewLive(m))
}

func (k *Console) overviewOf(v *visit) views.Overview {
	m := views.Overview{Frame: v.frame("Overview", "overview", true), Verdict: k.verdictOf(v), Day: v.clock.now.UTC().Format("Monday 2 January 2006") + ", UTC"}
	if v.figures == nil {
		return m
	}
	f := v.figures
	m.DeadTotal = tally(f.dead())
	if n := f.pulse.Deaths.N; n > 0 {
		m.DeadNew = count(n)
	}
	if !f.limited && f.pulse.Jobs == 0 && len(f.pulse.Actions) == 0 {
		m.First = firstSteps()
		return m
	}
	m.Cards = []views.Card{k.flowCard(v), k.failCard(v), k.stuckCard(v), k.workersCard(v), k.changedCard(v)}
	for i := range m.Cards {
		m.Cards[i].Stale = v.stale()
	}
	m.Queues = k.deepest(v)
	enqueued := f.enqueued()
	if f.limited {
		m.Note, enqueued = "You see "+joined(v.who.Queues)+" alone. What is counted over all queues is left out: top errors, deaths within the hour, acts but those on queues.", nil
	}
	m.Charts = []views.Chart{v.throughputChart(f.stats.all, enqueued), v.waitChart(f.stats.all)}
	return m
}

func firstSteps() *views.Empty {
	return &views.Empty{
		Title: "No job has been enqueued yet.", Text: "Enqueue the first one from a shell, or by hand.",
		Commands: []string{
			"curl -X POST http://127.0.0.1:8080/api/v1/jobs -H 'Content-Type: application/json' \\\n  -d '{\"type\":\"email\",\"payload\":{\"to\":\"customer@example.com\"}}'",
			"jobctl jobs enqueue email --payload '{\"to\":\"customer@example.com\"}'",
		},
		Links: []views.Link{},
	}
}

func (k *Console) verdictOf(v *visit) views.Verdict {
	got := judge(k.signs(v.figures, v.trouble))
	out := views.Verdict{Level: got.level, Text: got.text}
	if got.path != "" && got.link != "" && !(got.path == "/system" && v.who.Limited()) {
		out.Cause = append(out.Cause, views.Span{Text: got.link, Href: k.url(got.path)})
		if !got.since.IsZero() {
			out.Cause = append(out.Cause, views.Span{Text: "since"}, views.Span{At: v.clock.minute(got.since)})
		}
	}
	if len(got.others) > 0 {
		out.Also = "Also: " + strings.Join(got.others, ", ")
	}
	return out
}

func (k *Console) flowCard(v *visit) views.Card {
	f := v.figures
	flow := f.flow()
	c := views.Card{ID: "flow", Question: "Is work flowing?", Href: k.url("/queues"), Figure: text(rate(flow.Completed)), Caption: "completed per min"}
	c.Spark = sparkOf(views.StateCompleted, "Completed", closedMinutes(f.stats.all.completed[:]))
	if !f.limited {
		c.Spark.Ghost = closedMinutes(f.enqueued())
	}
	c.Lines = []views.CardLine{
		{Left: text("Enqueued per min"), Right: text(rate(flow.Enqueued))},
		{Left: text("Runs ended per min"), Right: text(rate(flow.Ended))},
		{Left: text("Backlog, last 15 min"), Right: backlogChange(flow)},
	}
	if f.limited { // jobs are counted as they come over all queues
		c.Lines = c.Lines[:2]
	}
	return c
}

func backlogChange(flow overview.Flow) []views.Span {
	switch n := flow.Backlog; {
	case flow.Uncounted:
		return []views.Span{{Text: "more than can be counted", Tone: views.ToneUp}}
	case n > 0:
		return []views.Span{{Text: "+" + count(n), Tone: views.ToneUp}}
	case n < 0:
		return []views.Span{{Text: "−" + count(-n)}}
	}
	return text("±0")
}

func (k *Console) failCard(v *visit) views.Card {
	f := v.figures
	all := f.stats.all
	c := views.Card{ID: "fail", Question: "What is failing?", Href: k.url("/dlq"), Empty: "Nothing failed in 60 minutes"}
	c.Figure = figureShare(all.failed5, all.runs5)
	c.Caption = "of " + plural(all.runs5, "run") + " in 5 min; " + count(all.failed60) + " of " + count(all.runs60) + " in 60 min"
	c.Spark = sparkOf(views.StateDead, "Failed", closedMinutes(all.failed[:]))
	for _, g := range f.failing().Groups {
		c.Lines = append(c.Lines, views.CardLine{
			Left:  []views.Span{{Text: failureName(g.Failure), Href: k.groupURL(g.Fingerprint)}, {Text: "· " + g.Type, Tone: views.ToneMuted}},
			Right: []views.Span{{Text: count(g.N), Bold: true}, {Text: "since", Tone: views.ToneMuted}, {At: v.clock.minute(g.FirstAt)}},
		})
	}
	return c
}

func figureShare(part, whole int64) []views.Span {
	if whole == 0 {
		return text("0")
	}
	s := share(part, whole)
	value, unit, _ := strings.Cut(s, " ")
	tone := views.Tone("")
	if whole >= fewRuns && float64(part) > failureLimit*float64(whole) {
		tone = views.ToneUp
	}
	return []views.Span{{Text: value, Tone: tone}, {Text: unit, Small: true, Tone: tone}}
}

// plainClasses say of an error only that it is one: the engine's word for those
// without a type of their own, and Go's, which older runs were kept with.
var plainClasses = map[string]bool{"error": true, "errors.errorString": true, "errors.joinError": true, "fmt.wrapError": true, "fmt.wrapErrors": true}

// failureName is what a failure is called: its class, or how its message begins.
func failureName(f inspect.Failure) string {
	if m := firstLine(f.Message, 80); f.Class == "" || plainClasses[f.Class] && m != "" {
		return orWord(m, "unknown error")
	}
	return cut(f.Class, 60)
}

// groupURL is the page of one error. What died without any, since it expired, has
// no group of its own.
func (k *Console) groupURL(fingerprint string) string {
	if fingerprint == "" {
		return k.url("/dlq?view=jobs&reason=expired")
	}
	return k.url("/dlq/groups/" + escape(fingerprint))
}

func (k *Console) stuckCard(v *visit) views.Card {
	f := v.figures
	c := views.Card{ID: "stuck", Question: "Where is it stuck?", Href: k.url("/queues?sort=-oldest"), Caption: "oldest ready job", Empty: "No job waits"}
	oldest := f.oldestReady()
	c.Figure = spanFigure(oldest)
	if oldest == 0 {
		c.Figure = text("0")
	}
	if oldest > k.LatencyTarget {
		for i := range c.Figure {
			c.Figure[i].Tone = views.ToneUp
		}
	}
	queues := f.stuck()
	for i := range queues {
		c.Lines = append(c.Lines, k.stuckLine(v, &queues[i]))
	}
	return c
}

func (k *Console) stuckLine(v *visit, q *inspect.Queue) views.CardLine {
	l := views.CardLine{Left: []views.Span{{Text: q.Name, Href: k.url("/queues/" + escape(q.Name))}}}
	if q.Paused {
		l.State = views.StatePaused
		if q.PausedReason != "" {
			l.Left = append(l.Left, views.Span{Text: cut(q.PausedReason, 60), Quote: true})
		}
		l.Right = []views.Span{{Text: count(q.Depth.Ready)}, {Text: "paused", Tone: views.ToneHush}}
		return l
	}
	tone := views.Tone("")
	if q.OldestReady > k.LatencyTarget {
		tone = views.ToneUp
	}
	l.Left = append(l.Left, views.Span{Text: span(q.OldestReady), Tone: tone})
	l.Right = []views.Span{{Text: count(q.Depth.Ready)}, {Text: drainText(q), Tone: views.ToneMuted}}
	return l
}

// drainText is when a queue would be empty at the pace of the last five minutes.
func drainText(q *inspect.Queue) string {
	switch d, ok := overview.Drain(q); {
	case q.Depth.Ready == 0:
		return "empty"
	case q.Workers == 0:
		return "no worker"
	case !ok:
		return "not draining"
	default:
		return "drains in " + coarse(d)
	}
}

func (k *Console) workersCard(v *visit) views.Card {
	f := v.figures
	if f.limited {
		return k.servedCard(v)
	}
	fleet := f.snap.Fleet
	live, late, lost := fleet.ByStatus[inspect.WorkerLive], fleet.ByStatus[inspect.WorkerLate], fleet.ByStatus[inspect.WorkerLost]
	c := views.Card{ID: "workers", Question: "Are the workers alive?", Href: k.url("/workers")}
	c.Figure = []views.Span{{Text: count(int64(live))}, {Text: "live", Small: true}}
	if live == 0 {
		c.Figure[0].Tone = views.ToneUp
	}
	if lost > 0 {
		c.Figure = append(c.Figure, views.Span{Text: count(int64(lost)), Tone: views.ToneUp}, views.Span{Text: "lost", Small: true, Tone: views.ToneUp})
	}
	c.Caption = count(int64(fleet.Busy)) + " of " + count(int64(fleet.Slots)) + " slots busy"
	c.Lines = []views.CardLine{
		{Left: text("Runs lost, 15 min"), Right: toned(f.stats.all.reaped15, views.ToneUp)},
		{Left: text("Late"), Right: toned(int64(late), views.ToneWarn)},
	}
	if fleet.Stuck > 0 {
		c.Lines = append(c.Lines, views.CardLine{State: views.StateLate, Left: text("Slots stuck"), Right: toned(int64(fleet.Stuck), views.ToneUp)})
	}
	c.Lines = append(c.Lines, views.CardLine{Left: text("Last reaper pass"), Right: passOf(f.task("reaper"), 3*k.ReaperInterval)})
	return c
}

// servedCard is the workers of a caller limited to queues: how many serve each.
func (k *Console) servedCard(v *visit) views.Card {
	f := v.figures
	c := views.Card{ID: "workers", Question: "Are the workers alive?", Href: k.url("/workers"), Empty: "None of your queues is known yet"}
	unserved := int64(0)
	for i := range f.snap.Queues {
		q := &f.snap.Queues[i]
		if q.Workers == 0 {
			unserved++
		}
		if len(c.Lines) < 4 {
			c.Lines = append(c.Lines, views.CardLine{Left: []views.Span{{Text: q.Name, Href: k.url("/queues/" + escape(q.Name))}}, Right: text(plural(int64(q.Workers), "worker"))})
		}
	}
	c.Figure, c.Caption = toned(unserved, views.ToneUp), "of "+plural(int64(len(f.snap.Queues)), "queue")+" without a live worker"
	c.Lines = append(c.Lines, views.CardLine{Left: text("Last reaper pass"), Right: passOf(f.task("reaper"), 3*k.ReaperInterval)})
	return c
}

func toned(n int64, tone views.Tone) []views.Span {
	if n == 0 {
		tone = ""
	}
	return []views.Span{{Text: count(n), Tone: tone}}
}

func passOf(t *inspect.Task, limit time.Duration) []views.Span {
	if t == nil {
		return []views.Span{{Text: "none yet", Tone: views.ToneUp}}
	}
	tone := views.Tone("")
	if t.Age > limit {
		tone = views.ToneUp
	}
	return []views.Span{{Text: agoText(t.Age), Tone: tone}}
}

func (k *Console) changedCard(v *visit) views.Card {
	c := views.Card{ID: "changed", Question: "What changed?", Href: k.url("/audit"), Empty: "Nobody has changed anything"}
	if v.figures.limited {
		c.Href = k.url("/queues")
	}
	events := k.changes(v)
	recent, times := 0, make([]string, 0, len(events))
	pins := views.Spark{State: views.StateReady, Pins: true, Values: make([]float64, hour)}
	for _, e := range events {
		if ago := v.clock.now.Sub(e.at); ago >= 0 && ago < time.Hour {
			recent++
			pins.Values[hour-1-int(ago.Minutes())] = 1
			if at := e.At.Text; !slices.Contains(times, at) {
				times = append(times, at)
			}
		}
	}
	c.Figure, c.Caption = text(count(int64(recent))), verb(int64(recent), "change", "changes")+" in 60 min"
	if acts := v.figures.pulse.Actions; len(acts) == inspect.PulseActions && v.clock.now.Sub(acts[len(acts)-1].At) < time.Hour {
		c.Figure = text(count(int64(recent)) + "+") // what came before them is not read
	}
	if recent > 0 {
		slices.Reverse(times)
		pins.Label = "Changes in the last hour at " + joined(times)
		c.Spark = &pins
	}
	for i, e := range events {
		if i == 5 {
			break
		}
		c.Events = append(c.Events, e.Event)
	}
	return c
}

// dated is an event with the instant that orders it.
type dated struct {
	at time.Time
	views.Event
}

// changes are acts and new builds, the newest first.
func (k *Console) changes(v *visit) []dated {
	var list []dated
	for i := range v.figures.pulse.Actions {
		a := &v.figures.pulse.Actions[i]
		list = append(list, dated{a.At, k.eventOf(a, v.clock.minute(a.At))})
	}
	for _, b := range v.figures.pulse.Builds {
		list = append(list, dated{b.FirstAt, views.Event{
			At: v.clock.minute(b.FirstAt), Icon: "tag", By: "deploy",
			Text: []views.Span{{Text: "Build " + cut(b.Version, 60), Bold: true}, {Text: strings.TrimSuffix("first seen on "+cut(strings.Join(b.Names, ", "), 120), " on ")}},
		}})
	}
	slices.SortStableFunc(list, func(a, b dated) int { return b.at.Compare(a.at) })
	return list
}

// deepest are the queues of the overview's bars, on one scale.
func (k *Console) deepest(v *visit) []views.QueueRow {
	queues := slices.Clone(v.figures.snap.Queues)
	slices.SortStableFunc(queues, func(a, b inspect.Queue) int { return int(min(max(total(b.Depth)-total(a.Depth), -1), 1)) })
	if len(queues) > 12 {
		queues = queues[:12]
	}
	rows := make([]views.QueueRow, len(queues))
	for i := range queues {
		rows[i] = k.queueRow(v, &queues[i])
		rows[i].Depth.Scale = total(queues[0].Depth)
	}
	return rows
}

func total(d inspect.Depth) int64 { return d.Ready + d.Scheduled + d.Running + d.Retrying + d.Held }
