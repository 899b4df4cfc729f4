package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

const (
	operationsEach = 50
	// typedAbove is the number of jobs from which on a person types it.
	typedAbove  = 1000
	defaultRate = 60
)

// selectionParams are what an address says of the jobs that an operation is for.
var selectionParams = []string{"action", "q", "fingerprint", "type", "queue", "reason_code"}

// selectionOf reads them of a query or a form.
func selectionOf(q url.Values) (engine.OperationSpec, error) {
	s := engine.OperationSpec{Action: engine.OperationAction(q.Get("action")), Select: engine.Selection{
		Query: strings.TrimSpace(q.Get("q")), Fingerprint: q.Get("fingerprint"), Type: q.Get("type"), Queue: q.Get("queue"), Reason: engine.Reason(q.Get("reason_code")),
	}}
	if _, known := operationVerbs[s.Action]; !known {
		return s, badQuery("The action may be replay, discard, cancel or run_now.")
	}
	if !ofDead(s.Action) && s.Select.Query == "" {
		return s, badQuery("Say which jobs, as in q=state:scheduled.")
	}
	return s, nil
}

// operationVerbs name what is done to each job.
var operationVerbs = map[engine.OperationAction]string{engine.OperateReplay: "Replay", engine.OperateDiscard: "Discard", engine.OperateCancel: "Cancel",
	engine.OperateRunNow: "Run now"}

// ofDead tells the acts on dead letters from those on jobs that wait.
func ofDead(a engine.OperationAction) bool {
	return a == engine.OperateReplay || a == engine.OperateDiscard
}

// mayOperate is the right that an action needs beyond its route's.
func (k *Console) mayOperate(c echo.Context, a engine.OperationAction) error {
	if ofDead(a) {
		return nil
	}
	return k.need(auth.ScopeJobsWrite, "operator")(func(echo.Context) error { return nil })(c)
}

// operationTitle says what an operation does to so many jobs: Replay 12 jobs.
func operationTitle(a engine.OperationAction, jobs string) string {
	if a == engine.OperateRunNow {
		return "Run " + jobs + " now"
	}
	return operationVerbs[a] + " " + jobs
}

// operationURL is where an operation on a selection is asked for.
func (k *Console) operationURL(action engine.OperationAction, s engine.Selection) string {
	q := url.Values{"action": {string(action)}}
	for name, value := range map[string]string{"q": s.Query, "fingerprint": s.Fingerprint, "type": s.Type, "queue": s.Queue, "reason_code": string(s.Reason)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return k.url("/operations/new?" + q.Encode())
}

// newOperation asks before many jobs are touched, with the numbers of this moment.
func (k *Console) newOperation(c echo.Context) error {
	q, err := query(c, selectionParams...)
	if err != nil {
		return err
	}
	s, err := selectionOf(q)
	if err == nil {
		err = k.mayOperate(c, s.Action)
	}
	if err != nil {
		return err
	}
	if err := k.mayName(c, s.Select.Queue, oneQueue); err != nil {
		return err
	}
	return k.askOperation(c, s, views.Confirm{}, http.StatusOK)
}

// askOperation draws the question; m holds what was filled in and what was wrong
// with it.
func (k *Console) askOperation(c echo.Context, s engine.OperationSpec, m views.Confirm, status int) error {
	p, err := k.Engine.PreviewOperation(c.Request().Context(), engine.OperationSpec{Action: s.Action, Select: s.Select})
	var invalid *engine.ValidationError
	switch {
	case errors.Is(err, engine.ErrNothingSelected):
		return nothingFits(s.Action)
	case errors.As(err, &invalid) && m.Problem == "" && len(invalid.Fields) > 0:
		return badQuery(invalid.Fields[0].Field + ": " + invalid.Fields[0].Detail)
	case err != nil:
		return err
	}
	v := k.visit(c)
	title := operationTitle(s.Action, plural(int64(p.Total), "job"))
	m.Title = title + "?"
	if ofDead(s.Action) {
		m.Frame, m.Crumbs = v.frame(title, "dlq", false), []views.Crumb{{Text: "Dead letters", Href: k.url("/dlq")}}
	} else {
		m.Frame, m.Crumbs = v.frame(title, "jobs", false), []views.Crumb{{Text: "Jobs", Href: k.url("/jobs")}}
	}
	m.Keep = views.Link{Text: "Keep as is", Href: m.Crumbs[0].Href}
	m.Crumbs = append(m.Crumbs, views.Crumb{Text: operationVerbs[s.Action] + " many"})
	switch {
	case s.Select.Fingerprint != "":
		m.Keep.Href = k.groupURL(s.Select.Fingerprint)
	case s.Select.Query != "":
		m.Keep.Href = k.url("/jobs?" + url.Values{"q": {s.Select.Query}}.Encode())
	}
	m.Act = views.Action{Kind: string(s.Action), Text: title, Href: k.url("/operations"), Post: true,
		Harm: s.Action == engine.OperateDiscard || s.Action == engine.OperateCancel, Fields: operationFields(s, p.Total)}
	m.Reason.Ask, m.Reason.Required = true, true
	if m.Reason.Hint == "" {
		m.Reason.Hint = "Kept in the audit trail and shown on the operation."
	}
	if s.Action == engine.OperateReplay {
		m.Pace = paceOf(s, p.Total)
		m.Note = "Same job ids, attempts back to 0, history kept. Refused if the number moves by more than 10 % before you confirm."
	} else {
		m.Note = operationNotes[s.Action]
	}
	if p.Total > typedAbove {
		m.Typed.Ask, m.Typed.Want = true, strconv.Itoa(p.Total)
	}
	v.previewFacts(&m, s, p)
	if isFragment(v) && target(v) == "dialog-body" {
		return v.render(status, views.ConfirmDialog(m))
	}
	return v.render(status, views.ConfirmPage(m))
}

// operationNotes say what comes of it, and the way back.
var operationNotes = map[engine.OperationAction]string{
	engine.OperateDiscard: "They leave the list and can be restored one by one for 7 days.",
	engine.OperateCancel:  "They will not run. There is no way back but to enqueue a copy of each. One that a worker takes meanwhile is passed over.",
	engine.OperateRunNow:  "They enter the line now, before their time. One that a worker takes meanwhile is passed over.",
}

func nothingFits(a engine.OperationAction) error {
	if ofDead(a) {
		return notFound("No dead job fits any more. They may have been replayed, discarded or removed.")
	}
	return notFound("No waiting job fits any more. They may have run, or been cancelled.")
}

// operationFields carry the selection and the number that was shown.
func operationFields(s engine.OperationSpec, total int) []views.Field {
	f := []views.Field{{Name: "action", Value: string(s.Action)}, {Name: "expected", Value: strconv.Itoa(total)}}
	for _, x := range []views.Field{{Name: "q", Value: s.Select.Query}, {Name: "fingerprint", Value: s.Select.Fingerprint}, {Name: "type", Value: s.Select.Type}, {Name: "queue", Value: s.Select.Queue},
		{Name: "reason_code", Value: string(s.Select.Reason)}} {
		if x.Value != "" {
			f = append(f, x)
		}
	}
	return f
}

func paceOf(s engine.OperationSpec, total int) []views.Choice {
	rate := s.PerMinute
	if rate < 1 {
		rate = defaultRate
	}
	pace := s.Pace
	if pace == "" {
		pace = engine.PaceCanary
	}
	return []views.Choice{
		{Name: "pace", Value: "canary", Text: "Canary", Hint: "5 jobs, watch, then double. Halts by itself when over half fail again.", Checked: pace == engine.PaceCanary},
		{Name: "pace", Value: "rate", Text: "Steady", Hint: "Evenly, as many a minute as you say; " + strconv.Itoa(rate) + " a minute take about " +
			span(time.Duration(total)*time.Minute/time.Duration(rate)) + ".", Checked: pace == engine.PaceRate, Number: "per_minute", NumberValue: strconv.Itoa(rate),
			NumberLabel: "Jobs a minute"},
		{Name: "pace", Value: "all", Text: "All at once", Hint: plural(int64(total), "job") + " become ready together.", Checked: pace == engine.PaceAll},
	}
}

func (v *visit) previewFacts(m *views.Confirm, s engine.OperationSpec, p engine.OperationPreview) {
	fact := func(name string, value ...views.Span) {
		m.Facts = append(m.Facts, views.Fact{Name: name, Value: value})
	}
	fact("Jobs", views.Span{Text: count(int64(p.Total)), Bold: true})
	if s.Select.Query != "" {
		fact("Search", views.Span{Text: cut(s.Select.Query, 200), Code: true})
	}
	if s.Select.Fingerprint != "" {
		fact("Error", views.Span{Text: "fp " + shortPrint(s.Select.Fingerprint), Href: v.k.groupURL(s.Select.Fingerprint)})
	}
	oldest := time.Time{}
	for i, g := range p.Groups {
		if oldest.IsZero() || g.OldestAt.Before(oldest) {
			oldest = g.OldestAt
		}
		if i < 5 {
			fact(cut(g.Type, 60), views.Span{Text: count(int64(g.N)), Bold: true}, views.Span{Text: "in"}, views.Span{Text: g.Queue, Href: v.k.url("/queues/" + escape(g.Queue))})
		}
	}
	if len(p.Groups) > 5 {
		fact("and", views.Span{Text: "more types or queues"})
	}
	fact("Oldest", views.Span{Text: "made"}, views.Span{At: v.clock.past(oldest)})
	for _, g := range p.Groups {
		for _, id := range g.Samples {
			if len(m.Sample) < 3 {
				m.Sample = append(m.Sample, views.DeadRow{ID: id.String(), Short: shortID(id), Href: v.k.url("/jobs/" + id.String()), Type: g.Type})
			}
		}
	}
	m.SampleTitle = "The first of them"
}

// makeOperation starts one, unless something of the form is wrong.
func (k *Console) makeOperation(c echo.Context) error {
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	s, err := selectionOf(form)
	if err != nil {
		return err
	}
	if err := k.mayOperate(c, s.Action); err != nil {
		return err
	}
	if err := k.mayName(c, s.Select.Queue, oneQueue); err != nil {
		return err
	}
	var m views.Confirm
	s.Pace, m.Reason.Value = engine.Pace(form.Get("pace")), form.Get("reason")
	if s.Action != engine.OperateReplay {
		s.Pace = engine.PaceAll
	}
	if s.Pace == engine.PaceRate {
		if s.PerMinute, err = strconv.Atoi(strings.TrimSpace(form.Get("per_minute"))); err != nil {
			s.PerMinute = -1
		}
	}
	if s.Expected, err = strconv.Atoi(form.Get("expected")); err != nil || s.Expected < 1 {
		return badQuery("The form does not say what number it showed.")
	}
	reason := strings.TrimSpace(m.Reason.Value)
	switch {
	case reason == "":
		m.Reason.Problem = "Say why: it stands in the audit trail."
		return k.askOperation(c, s, m, http.StatusUnprocessableEntity)
	case !validReason(reason):
		m.Reason.Problem = "At most 500 characters of plain text."
		return k.askOperation(c, s, m, http.StatusUnprocessableEntity)
	case s.Expected > typedAbove && strings.TrimSpace(form.Get("typed")) != strconv.Itoa(s.Expected):
		m.Typed.Problem = "Type the number of jobs, without spaces or commas."
		return k.askOperation(c, s, m, http.StatusUnprocessableEntity)
	}
	o, err := k.Engine.Operate(c.Request().Context(), s, k.actor(c, reason))
	var moved *engine.CountMovedError
	var invalid *engine.ValidationError
	switch {
	case errors.As(err, &moved):
		k.Acts.OperatorAction("operation "+string(s.Action), "refused")
		m.Problem = "The number has moved from " + count(int64(moved.Expected)) + " to " + count(int64(moved.Total)) + " since this was asked. Look again."
		return k.askOperation(c, s, m, http.StatusConflict)
	case errors.As(err, &invalid):
		m.Problem = invalid.Fields[0].Field + ": " + invalid.Fields[0].Detail
		return k.askOperation(c, s, m, http.StatusUnprocessableEntity)
	case errors.Is(err, engine.ErrNothingSelected):
		return nothingFits(s.Action)
	case err != nil:
		return err
	}
	k.Acts.OperatorAction("operation "+string(s.Action), "done")
	k.board.expire()
	return c.Redirect(http.StatusSeeOther, k.url("/operations/"+o.ID.String()))
}

// steerOperation pauses, continues or stops one.
func (k *Console) steerOperation(act string, do func(context.Context, engine.ID, engine.Actor) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := operationID(c)
		if err != nil {
			return err
		}
		if _, err := k.form(c, smallForm); err != nil {
			return err
		}
		if _, err := k.ownOperation(c, id); err != nil {
			return err
		}
		err = do(c.Request().Context(), id, k.actor(c, ""))
		var state *engine.OperationStateError
		switch {
		case err == nil:
			k.Acts.OperatorAction("operation "+act, "done")
		case errors.As(err, &state):
			k.Acts.OperatorAction("operation "+act, "refused") // its page says what it is now
		case errors.Is(err, engine.ErrOperationNotFound):
			return notFound("No operation has this id.")
		default:
			return err
		}
		return c.Redirect(http.StatusSeeOther, k.url("/operations/"+id.String()))
	}
}

func operationID(c echo.Context) (engine.ID, error) {
	s, err := param(c, "id")
	if err != nil {
		return engine.ID{}, err
	}
	id, err := parseID(s)
	if err != nil {
		return id, notFound("No operation has the id " + quoted(s) + ".")
	}
	return id, nil
}

func (k *Console) operations(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	list, err := k.Engine.Operations(c.Request().Context(), engine.Operation{}, operationsEach)
	if err != nil {
		return err
	}
	list = kept(list, func(o *engine.Operation) bool { return k.mayTouchOperation(c, o) })
	v := k.visit(c)
	m := views.Operations{Frame: v.frame("Operations", "operations", true), Empty: &views.Empty{
		Title: "No operation yet.", Text: "Acts on many jobs at once stand here while they run and afterwards. They begin at a group of dead letters.",
		Links: []views.Link{{Text: "Dead letters", Href: k.url("/dlq")}},
	}}
	for i := range list {
		m.Rows = append(m.Rows, v.operationRow(&list[i]))
	}
	return v.page(http.StatusOK, m.Frame, views.OperationsPage(m), views.OperationsLive(m))
}

func (k *Console) operation(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	id, err := operationID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	o, err := k.ownOperation(c, id)
	if err != nil {
		return err
	}
	outcomes, err := k.Engine.OperationOutcomes(ctx, o)
	if err != nil {
		return err
	}
	failures, err := k.Engine.OperationFailures(ctx, id, 0, operationsEach)
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := v.operationPage(&o, outcomes, failures)
	m.Frame.Lacks = v.lacks(auth.ScopeDLQWrite, "pausing, continuing and stopping")
	return v.page(http.StatusOK, m.Frame, views.OperationPageView(m), views.OperationLive(m))
}

var operationStates = map[engine.OperationState]views.State{
	engine.OperationRunning: views.StateRunning, engine.OperationPaused: views.StatePaused, engine.OperationHalted: views.StateHalted,
	engine.OperationStopped: views.StateStopped, engine.OperationFinished: views.StateCompleted,
}

func (v *visit) operationRow(o *engine.Operation) views.OperationRow {
	at := o.Done + o.PassedOver
	return views.OperationRow{
		ID: o.ID.String(), Href: v.k.url("/operations/" + o.ID.String()), Title: operationTitle(o.Action, plural(int64(o.Total), "job")), State: operationStates[o.State], Made: v.clock.past(o.CreatedAt),
		By: cut(o.Actor, 80) + ", " + o.Source, Reason: cut(o.Reason, 200), Pace: paceText(o),
		Progress: views.Meter{Busy: int64(at), Total: int64(o.Total), Text: count(int64(at)) + " of " + count(int64(o.Total))},
	}
}

func paceText(o *engine.Operation) string {
	switch o.Pace {
	case engine.PaceRate:
		return count(int64(o.PerMinute)) + " a minute"
	case engine.PaceCanary:
		return "canary"
	case engine.PaceAll:
	}
	return "all at once"
}

func (v *visit) operationPage(o *engine.Operation, out engine.OperationOutcomes, failures []engine.OperationFailure) views.OperationPage {
	row := v.operationRow(o)
	m := views.OperationPage{
		Frame: v.frame(row.Title, "operations", o.EndedAt.IsZero()), Row: row,
		Crumbs: []views.Crumb{{Text: "Operations", Href: v.k.url("/operations")}, {Text: shortID(o.ID)}},
		Strip: []views.Figure{
			{Name: "Done", Value: text(count(int64(o.Done)))}, {Name: "Passed over", Value: text(count(int64(o.PassedOver)))},
			{Name: "Left", Value: text(count(int64(o.Total - o.Done - o.PassedOver)))},
		},
	}
	if o.Action == engine.OperateReplay {
		tone := views.Tone("")
		if out.Failed > 0 {
			tone = views.ToneUp
		}
		m.Strip = append(m.Strip, views.Figure{Name: "Have run since", Value: text(count(int64(out.Ran)) + " of " + count(int64(out.Acted)))},
			views.Figure{Name: "Failed again", Value: []views.Span{{Text: count(int64(out.Failed)), Tone: tone}}})
	}
	if o.State == engine.OperationHalted {
		m.Notice = &views.Notice{State: views.StateHalted, Title: "It halted itself.", Text: text(o.HaltedReason + ". Mend the cause, then continue: it begins again with small steps.")}
	}
	m.Facts = v.operationFacts(o)
	m.Actions = v.operationActions(o)
	for i := range failures {
		f := &failures[i]
		r := views.OperationFailure{Short: shortID(f.JobID), ID: f.JobID.String(), Href: v.k.url("/jobs/" + f.JobID.String()), At: v.clock.past(f.At)}
		if f.PassedOver {
			r.What = "passed over: it had changed since the cut-off"
		} else {
			r.What = strings.TrimSpace(f.Outcome.String() + " " + f.Class)
			r.Error = firstLine(f.Error, 160)
		}
		m.Failures = append(m.Failures, r)
	}
	m.More = len(failures) == operationsEach
	return m
}

func (v *visit) operationFacts(o *engine.Operation) []views.Fact {
	s := &o.Select
	facts := []views.Fact{
		{Name: "By", Value: text(cut(o.Actor, 80) + ", " + o.Source)}, {Name: "Reason", Value: text(orNone(o.Reason))}, {Name: "Pace", Value: text(paceText(o))},
		{Name: "As of", Value: []views.Span{{At: v.clock.past(o.CutOff)}}},
	}
	if s.Fingerprint != "" {
		facts = append(facts, views.Fact{Name: "Error", Value: []views.Span{{Text: "fp " + shortPrint(s.Fingerprint), Href: v.k.groupURL(s.Fingerprint)}}})
	}
	for _, f := range []struct{ name, value string }{{"Type", s.Type}, {"Queue", s.Queue}, {"Died as", string(s.Reason)}} {
		if f.value != "" {
			facts = append(facts, views.Fact{Name: f.name, Value: text(cut(f.value, 200))})
		}
	}
	if len(s.IDs) > 0 {
		facts = append(facts, views.Fact{Name: "Jobs", Value: text(plural(int64(len(s.IDs)), "job") + " by id")})
	}
	if !o.EndedAt.IsZero() {
		facts = append(facts, views.Fact{Name: "Ended", Value: []views.Span{{At: v.clock.past(o.EndedAt)}}})
	}
	return facts
}

func orNone(s string) string {
	if s == "" {
		return "none given"
	}
	return cut(s, 500)
}

// operationActions are what its state allows and the caller may do.
func (v *visit) operationActions(o *engine.Operation) []views.Action {
	if !v.may(auth.ScopeDLQWrite) {
		return nil
	}
	act := func(kind, label string, main, harm bool) views.Action {
		return views.Action{Kind: kind, Text: label, Label: label + " operation " + shortID(o.ID), Href: v.k.url("/operations/" + o.ID.String() + "/" + kind), Post: true,
			Main: main, Harm: harm}
	}
	switch o.State {
	case engine.OperationRunning:
		return []views.Action{act("pause", "Pause", true, false), act("stop", "Stop", false, true)}
	case engine.OperationPaused, engine.OperationHalted:
		return []views.Action{act("continue", "Continue", true, false), act("stop", "Stop", false, true)}
	case engine.OperationStopped, engine.OperationFinished:
	}
	return nil
}

// manyAction leads to the question before an act on all that a selection fits.
func (v *visit) manyAction(action engine.OperationAction, s engine.Selection, which string) views.Action {
	a := views.Action{Kind: string(action), Text: "Replay all…", Label: "Replay all " + which, Href: v.k.operationURL(action, s)}
	if action == engine.OperateDiscard {
		a.Text, a.Label, a.Harm = "Discard all…", "Discard all "+which, true
	}
	if v.who.Limited() && len(v.who.Queues) > 1 {
		a.Text = strings.TrimSuffix(a.Text, "…") + " in " + s.Queue + "…"
	}
	return a
}
