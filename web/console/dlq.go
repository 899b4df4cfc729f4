package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

var deadReasons = []string{"exhausted", "permanent", "poison", "expired"}

func (k *Console) deadLetters(c echo.Context) error {
	q, err := query(c, "view", "type", "queue", "reason", "sort", "cursor", "back", "limit")
	if err != nil {
		return err
	}
	view := q.Get("view")
	if view == "" {
		view = "groups"
	}
	if !slices.Contains([]string{"groups", "jobs", "discarded"}, view) {
		return badQuery("The parameter view may be groups, jobs or discarded.")
	}
	if r := q.Get("reason"); r != "" && !slices.Contains(deadReasons, r) {
		return badQuery("The parameter reason may be " + joined(deadReasons) + ".")
	}
	if q.Get("queue") != "" {
		if err := k.mayName(c, q.Get("queue"), ""); err != nil {
			return err
		}
	}
	v := k.visit(c)
	m := views.DeadLetters{Frame: v.frame("Dead letters", "dlq", true), View: view, Tabs: v.deadTabs(view, q)}
	m.Chips, m.Clear = v.deadChips(view, q)
	m.Summary = v.deadSummary()
	if k.DiscardDead {
		m.Notices = append(m.Notices, views.Notice{
			State: views.StateLate, Title: "Dead letters are discarded at once.",
			Text: []views.Span{{Text: "DLQ_ENABLED=false: what dies stands under"}, {Text: "Discarded", Href: k.url("/dlq?view=discarded")}, {Text: "for 7 days and can be restored."}},
		})
	}
	if view == "groups" {
		err = v.fillGroups(&m, q)
	} else {
		err = v.fillDead(&m, q, view)
	}
	if err != nil {
		return err
	}
	m.Frame.Lacks = v.lacks(auth.ScopeDLQWrite, "replaying and discarding")
	return v.page(http.StatusOK, m.Frame, views.DeadLettersPage(m), views.DeadLettersLive(m))
}

func (v *visit) deadSummary() []views.Span {
	if v.figures == nil {
		return nil
	}
	n, fresh := v.figures.dead(), v.figures.pulse.Deaths.N
	s := []views.Span{{Text: plural(n, "job")}}
	if fresh > 0 {
		s[0].Text += ","
		s = append(s, views.Span{Text: count(fresh) + " new", Tone: views.ToneUp, Bold: true}, views.Span{Text: "in the last hour"})
	}
	return s
}

func (v *visit) deadTabs(view string, q url.Values) []views.Tab {
	tab := func(text, name string) views.Tab {
		keep := url.Values{"view": {name}}
		for _, f := range []string{"type", "queue"} {
			if q.Get(f) != "" {
				keep.Set(f, q.Get(f))
			}
		}
		return views.Tab{Text: text, Href: withQuery(v.k.url("/dlq"), keep), Current: view == name}
	}
	tabs := []views.Tab{tab("Groups", "groups"), tab("Jobs", "jobs"), tab("Discarded", "discarded")}
	if v.figures != nil && q.Get("type") == "" && q.Get("queue") == "" {
		tabs[1].Count = tally(v.figures.dead())
		if !v.figures.limited {
			tabs[2].Count = tally(v.figures.pulse.Discarded)
		}
	}
	return tabs
}

func (v *visit) deadChips(view string, q url.Values) (chips []views.Chip, clear string) {
	for _, name := range []string{"queue", "type", "reason"} {
		if q.Get(name) == "" || view == "groups" && name == "reason" {
			continue
		}
		keep := url.Values{"view": {view}}
		for _, other := range []string{"queue", "type", "reason"} {
			if other != name && q.Get(other) != "" {
				keep.Set(other, q.Get(other))
			}
		}
		chips = append(chips, views.Chip{Key: name, Value: q.Get(name), Remove: withQuery(v.k.url("/dlq"), keep)})
	}
	if len(chips) > 0 {
		clear = v.k.url("/dlq?view=" + view)
	}
	return chips, clear
}

func (v *visit) fillGroups(m *views.DeadLetters, q url.Values) error {
	key, down, err := readSort(q, "-last", "last", "first", "count")
	if err != nil {
		return err
	}
	groups, err := v.k.Read.DeadGroups(v.Request().Context(), inspect.GroupFilter{Type: q.Get("type"), Queue: q.Get("queue"), Queues: v.who.Queues, Sort: inspect.GroupSort(key)})
	if err != nil {
		return err
	}
	if !down {
		slices.Reverse(groups)
	}
	m.Sorts = sortsOf(v.k.url("/dlq"), key, down, []string{"last", "first", "count"}, "last", "first", "count")
	for i := range groups {
		m.Groups = append(m.Groups, v.groupOf(&groups[i]))
	}
	if len(m.Tabs) > 0 && len(groups) < inspect.MaxGroups {
		m.Tabs[0].Count = count(int64(len(groups)))
	}
	m.Empty = v.noDead(m.Chips)
	return nil
}

func (v *visit) noDead(chips []views.Chip) *views.Empty {
	if len(chips) > 0 {
		return &views.Empty{Title: "No dead job matches.", Links: []views.Link{{Text: "All dead letters", Href: v.k.url("/dlq")}}}
	}
	return &views.Empty{Title: "No dead jobs.", Text: "Jobs land here after " + strconv.Itoa(v.k.MaxAttempts) + " failed attempts."}
}

func (v *visit) groupOf(g *inspect.DeadGroup) views.DeadGroup {
	m := views.DeadGroup{
		Fingerprint: g.Fingerprint, Href: v.k.groupURL(g.Fingerprint), Class: failureName(g.Failure), Message: cleaned(g.Message),
		Where: joined(g.Types) + " in " + joined(g.Queues), Count: count(g.N), First: v.clock.past(g.FirstFailedAt), Last: v.clock.past(g.LastAt),
		Jobs: v.k.groupURL(g.Fingerprint) + "#jobs", SampleID: g.Sample.String(), SampleHref: v.k.url("/jobs/" + g.Sample.String()),
	}
	values := make([]float64, len(g.Hours))
	for i, n := range g.Hours {
		values[i] = float64(n)
	}
	m.Spark = &views.Spark{State: views.StateDead, Values: values, Bars: true, Label: "Deaths per hour over 24 hours: " + number(values[23]) + " in the last"}
	for _, r := range g.Reasons {
		m.Tags = append(m.Tags, string(r))
	}
	m.Hot = v.newSince(g.FirstFailedAt)
	if v.may(auth.ScopeDLQWrite) {
		a := v.k.replayAction(g.Sample, 0)
		a.Text, a.Label = "Replay newest", "Replay newest of "+m.Class+", job "+shortID(g.Sample)
		m.SampleAction = &a
	}
	return m
}

// newSince names the build that came last before an error was first seen, if that
// was within six hours and another build had run before.
func (v *visit) newSince(first time.Time) string {
	if v.figures == nil {
		return ""
	}
	builds := v.figures.pulse.Builds
	for i, b := range builds {
		if b.FirstAt.Before(first) {
			if i+1 < len(builds) && first.Sub(b.FirstAt) < 6*time.Hour && v.clock.now.Sub(first) < 24*time.Hour {
				return "new since build " + cut(b.Version, 40)
			}
			return ""
		}
	}
	return ""
}

// cleaned is a message as a group shows it: one line, its numbers stand for any.
func cleaned(s string) string {
	var b strings.Builder
	digits := false
	for _, r := range firstLine(s, 300) {
		if r >= '0' && r <= '9' {
			if !digits {
				b.WriteString("‹n›")
			}
			digits = true
			continue
		}
		digits = false
		b.WriteRune(r)
	}
	return b.String()
}

// deadCursor is the key of a page of dead letters: the microsecond of the last
// death and its job.
func deadCursor(d *inspect.DeadCursor) string {
	if d == nil {
		return ""
	}
	return strconv.FormatInt(d.DiedAt.UnixMicro(), 10) + "_" + d.ID.String()
}

func parseDeadCursor(s string) (*inspect.DeadCursor, error) {
	if s == "" {
		return nil, nil
	}
	bad := badQuery("The parameter cursor is none that this page has given.")
	micro, id, found := strings.Cut(s, "_")
	n, err := strconv.ParseInt(micro, 10, 64)
	if !found || err != nil || n < 0 || n > 253370764800e6 { // the year 9999
		return nil, bad
	}
	job, err := parseID(id)
	if err != nil {
		return nil, bad
	}
	return &inspect.DeadCursor{DiedAt: time.UnixMicro(n).UTC(), ID: job}, nil
}

func (v *visit) fillDead(m *views.DeadLetters, q url.Values, view string) error {
	at, err := readKey(q)
	if err != nil {
		return err
	}
	f := inspect.DeadFilter{
		Type: q.Get("type"), Queue: q.Get("queue"), Queues: v.who.Queues, Reason: engine.Reason(q.Get("reason")), Discarded: view == "discarded", Limit: at.limit,
	}
	if f.After, err = parseDeadCursor(at.key); err != nil {
		return err
	}
	page, err := v.k.Read.DeadLetters(v.Request().Context(), f)
	if err != nil {
		return err
	}
	for i := range page.Letters {
		m.Rows = append(m.Rows, v.deadRow(&page.Letters[i]))
	}
	keep := url.Values{"view": {view}}
	for _, name := range []string{"type", "queue", "reason"} {
		if q.Get(name) != "" {
			keep.Set(name, q.Get(name))
		}
	}
	m.Pager = at.pager(v.k.url("/dlq"), keep, len(m.Rows), "job", deadCursor(page.Next))
	m.Empty = v.noDead(m.Chips)
	if view == "discarded" && len(m.Chips) == 0 {
		m.Empty = &views.Empty{Title: "Nothing is discarded.", Text: "A discarded job stands here for 7 days and can be restored, then it is removed."}
	}
	return nil
}

func (v *visit) deadRow(d *inspect.DeadLetter) views.DeadRow {
	r := views.DeadRow{
		ID: d.JobID.String(), Short: shortID(d.JobID), Href: v.k.url("/jobs/" + d.JobID.String()), State: views.StateDead, Type: d.Type, Queue: d.Queue,
		Died: v.clock.past(d.DiedAt), Discarded: v.clock.past(d.DiscardedAt), Attempts: strconv.Itoa(d.Attempt) + " of " + strconv.Itoa(d.MaxAttempts),
		Reason: string(d.Reason), Class: failureName(d.Error), Error: firstLine(d.Error.Message, 160),
	}
	if r.Class == firstLine(d.Error.Message, 80) {
		r.Error = ""
	}
	if d.Replays > 0 {
		r.Replays = "replayed " + strconv.Itoa(d.Replays) + "×"
	}
	if d.Error.Fingerprint != "" {
		r.Group = views.Link{Text: "fp " + shortPrint(d.Error.Fingerprint), Href: v.k.groupURL(d.Error.Fingerprint)}
	}
	if !d.DiscardedAt.IsZero() {
		r.State = views.StateDiscarded
	}
	if v.may(auth.ScopeDLQWrite) {
		if d.DiscardedAt.IsZero() {
			r.Actions = []views.Action{v.k.replayAction(d.JobID, d.Version), v.k.discardAction(d.JobID, true)}
		} else {
			r.Actions = []views.Action{v.k.restoreAction(d.JobID, d.Version)}
		}
	}
	return r
}

func (k *Console) deadGroup(c echo.Context) error {
	q, err := query(c, "cursor", "back", "limit")
	if err != nil {
		return err
	}
	fingerprint, err := param(c, "fingerprint")
	if err != nil {
		return err
	}
	at, err := readKey(q)
	if err != nil {
		return err
	}
	after, err := parseDeadCursor(at.key)
	if err != nil {
		return err
	}
	ctx, v := c.Request().Context(), k.visit(c)
	groups, err := k.Read.DeadGroups(ctx, inspect.GroupFilter{Fingerprint: fingerprint, Queues: v.who.Queues, Limit: 1})
	if err != nil {
		return err
	}
	failures, err := k.Read.FailuresOf(ctx, fingerprint, time.Now().Add(-time.Hour))
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		if failures > 0 && !v.who.Limited() {
			return notFound("No dead job has this error any more; " + plural(failures, "run") + " failed with it in the last hour and may still be retried.")
		}
		return notFound("No dead job has this error. It may have been replayed, discarded or removed.")
	}
	page, err := k.Read.DeadLetters(ctx, inspect.DeadFilter{Fingerprint: fingerprint, Queues: v.who.Queues, After: after, Limit: at.limit})
	if err != nil {
		return err
	}
	sample, err := k.Read.Attempts(ctx, groups[0].Sample)
	if err != nil {
		return err
	}
	m := v.groupPageOf(&groups[0], failures, sample)
	for i := range page.Letters {
		m.Rows = append(m.Rows, v.deadRow(&page.Letters[i]))
	}
	m.Pager = at.pager(k.groupURL(fingerprint), url.Values{}, len(m.Rows), "job", deadCursor(page.Next))
	m.Frame.Lacks = v.lacks(auth.ScopeDLQWrite, "replaying and discarding")
	return v.page(http.StatusOK, m.Frame, views.DeadGroupPageView(m), views.DeadGroupLive(m))
}

func (v *visit) groupPageOf(g *inspect.DeadGroup, failures int64, sample []inspect.Attempt) views.DeadGroupPage {
	group := v.groupOf(g)
	m := views.DeadGroupPage{
		Frame: v.frame("Dead letters: "+group.Class, "dlq", true), Group: group,
		Crumbs: []views.Crumb{{Text: "Dead letters", Href: v.k.url("/dlq")}, {Text: "fp " + shortPrint(g.Fingerprint)}},
	}
	if group.SampleAction != nil {
		a := *group.SampleAction
		a.Main = true
		m.Actions = []views.Action{a}
	}
	if v.may(auth.ScopeDLQWrite) && g.Fingerprint != "" {
		for _, s := range v.ownSelections(engine.Selection{Fingerprint: g.Fingerprint}, g.Queues) {
			which := "of " + group.Class
			if s.Queue != "" {
				which += " in " + s.Queue
			}
			m.Actions = append(m.Actions, v.manyAction(engine.OperateReplay, s, which), v.manyAction(engine.OperateDiscard, s, which))
		}
	}
	m.Strip = []views.Figure{
		{Name: "Dead", Value: text(group.Count), Tone: views.ToneUp}, {Name: "First seen", Value: []views.Span{{At: group.First}}}, {Name: "Last seen", Value: []views.Span{{At: group.Last}}},
	}
	if !v.who.Limited() { // runs are counted over all queues
		m.Strip = slices.Insert(m.Strip, 1, views.Figure{Name: "Failed runs, 60 min", Value: text(tally(failures))})
	}
	m.Facts = []views.Fact{
		{Name: "Fingerprint", Value: []views.Span{{Text: g.Fingerprint, Code: true}}, Copy: g.Fingerprint}, {Name: "Error class", Value: text(dash(g.Class))},
		{Name: "Types", Value: text(joined(g.Types))}, {Name: "Queues", Value: text(joined(g.Queues))}, {Name: "Build of the newest", Value: text(dash(g.Build))},
		{Name: "Newest job", Value: []views.Span{{Text: shortID(g.Sample), Href: group.SampleHref}}, Copy: group.SampleID},
	}
	for i := len(sample) - 1; i >= 0; i-- {
		if a := &sample[i]; a.Fingerprint == g.Fingerprint {
			s := v.attempt(a, nil)
			s.Anchor, s.Title, s.Run = "sample", "The newest failure", "job "+shortID(g.Sample)+", "+s.Run
			m.Samples = []views.Attempt{s}
			break
		}
	}
	return m
}
