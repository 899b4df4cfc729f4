package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// maxReason is how long a reason may be, in characters.
const maxReason = 500

func (k *Console) replay(c echo.Context) error  { return k.act(c, "replay", k.Engine.Replay) }
func (k *Console) restore(c echo.Context) error { return k.act(c, "restore", k.Engine.Restore) }
func (k *Console) discard(c echo.Context) error { return k.act(c, "discard", k.Engine.Discard) }
func (k *Console) cancel(c echo.Context) error  { return k.act(c, "cancel", k.Engine.Cancel) }
func (k *Console) runNow(c echo.Context) error  { return k.act(c, "run_now", k.Engine.RunNow) }
func (k *Console) stop(c echo.Context) error    { return k.act(c, "stop", k.Engine.RequestStop) }

// act does one act on one job. Without script the answer is a redirect that says
// what was done; a row that asked for itself gets the row as it is now.
func (k *Console) act(c echo.Context, name string, do func(context.Context, engine.ID, engine.Actor) error) error {
	id, err := jobID(c)
	if err != nil {
		return err
	}
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	reason := strings.TrimSpace(form.Get("reason"))
	if !validReason(reason) {
		return badQuery("The reason may have 500 characters of plain text.")
	}
	actor := k.actor(c, reason)
	if actor.Version, err = seen(form); err != nil {
		return err
	}
	if actor.Version == 0 {
		actor.Version = seenJob(c)
	}
	ctx := c.Request().Context()
	before := k.rowBefore(ctx, c, name, id)
	err = do(ctx, id, actor)
	var state *engine.StateError
	switch {
	case err == nil:
		k.Acts.OperatorAction(name, "done")
		k.board.expire()
	case errors.Is(err, engine.ErrStopPending):
		k.Acts.OperatorAction(name, "repeated")
	case errors.As(err, &state):
		k.Acts.OperatorAction(name, "refused")
		if strings.HasPrefix(target(c), "dead-") && isFragment(c) {
			return k.swapRefused(c, id, before, state)
		}
		return k.conflict(c, id, state)
	default:
		return err
	}
	n := note{Did: name, ID: id.String()}
	if before != nil {
		n.Type = before.Type
	} else if j, err := k.Read.Job(ctx, id); err == nil {
		n.Type = j.Type
		if j.Stop != nil {
			n.At = j.Stop.At.Unix()
		}
	}
	if before != nil && isFragment(c) {
		return k.swapRow(c, name, before, n)
	}
	k.leave(c, n)
	return c.Redirect(http.StatusSeeOther, k.afterAct(c, name, id))
}

func validReason(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0) && utf8.RuneCountInString(s) <= maxReason
}

// seen is the version of the job that the form's page showed; 0 where none is sent.
func seen(form url.Values) (int, error) {
	sent := form.Get("version")
	if sent == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(sent, 10, 32)
	if err != nil || n < 1 {
		return 0, badQuery("The version is the number that the form came with.")
	}
	return int(n), nil
}

// actor is who acts, for the row of the audit trail that the act writes in its own
// transaction.
func (k *Console) actor(c echo.Context, reason string) engine.Actor {
	return engine.Actor{
		Name: k.caller(c).Name, Source: "console", Reason: reason, RequestID: k.RequestID(c), Address: k.ClientAddress(c.Request()),
	}
}

// rowBefore reads the dead letter whose row asks, since after a replay it is gone.
// It is nil for everything else.
func (k *Console) rowBefore(ctx context.Context, c echo.Context, name string, id engine.ID) *inspect.DeadLetter {
	if !isFragment(c) || !strings.HasPrefix(target(c), "dead-") || name == "cancel" {
		return nil
	}
	d, err := k.Read.DeadLetter(ctx, id)
	if err != nil {
		return nil // the act itself will say what is wrong
	}
	return &d.DeadLetter
}

// swapRow is the row after an act and what may be done next.
func (k *Console) swapRow(c echo.Context, name string, before *inspect.DeadLetter, n note) error {
	v := k.visit(c)
	row := v.deadRow(before)
	discarded := !before.DiscardedAt.IsZero()
	switch name {
	case "replay":
		row.State = views.StateReplayed
		row.Done = []views.Span{{Text: "→ Ready", Href: row.Href}}
		row.Actions = []views.Action{{Kind: "cancel", Text: "Cancel…", Label: "Cancel job " + row.Short, Href: k.url("/jobs/" + row.ID + "/cancel")}}
	case "discard":
		row.State = views.StateDiscarded
		row.Done = text("restorable for 7 days")
		row.Actions = []views.Action{k.restoreAction(before.JobID, before.Version+1)}
	case "restore":
		row.State = views.StateDead
		row.Done = text("back on the list")
		row.Actions = []views.Action{k.replayAction(before.JobID, before.Version+1), k.discardAction(before.JobID, true)}
	}
	flash := k.flashOf(n)
	if flash == nil {
		flash = &views.Flash{Text: text("Done.")}
	}
	return v.render(http.StatusOK, views.DeadRowSwap(v.frame("", "dlq", false), row, discarded, *flash))
}

// swapRefused is the row of a job that somebody else has dealt with: as it is now,
// with who did it.
func (k *Console) swapRefused(c echo.Context, id engine.ID, before *inspect.DeadLetter, state *engine.StateError) error {
	v := k.visit(c)
	row := views.DeadRow{ID: id.String(), Short: shortID(id), Href: k.url("/jobs/" + id.String())}
	if before != nil {
		row = v.deadRow(before)
		row.Actions = nil
	}
	job, err := k.Read.Job(c.Request().Context(), id)
	if err != nil {
		return err
	}
	row.Type, row.Queue, row.State = job.Type, job.Queue, stateOf(&job, v.clock.now)
	who := v.lastAct(id)
	row.Done = append([]views.Span{{Text: "now"}}, who...)
	flash := views.Flash{Failed: true, Text: append([]views.Span{{Text: job.Type + " " + row.Short, Href: row.Href}, {Text: refusal(state)}}, who...)}
	return v.render(http.StatusOK, views.DeadRowSwap(v.frame("", "dlq", false), row, !job.DiscardedAt.IsZero(), flash))
}

// refusal says why an act was not done.
func refusal(e *engine.StateError) string {
	now := stateText(e.State)
	if e.Discarded {
		now = "discarded"
	}
	if e.Changed {
		now += " and has changed since this page was made"
	}
	switch e.Act {
	case "cancel":
		return "was not cancelled: it is " + now + "."
	case "run_now":
		return "was not brought forward: it is " + now + "."
	case "stop":
		return "was not asked to stop: it is " + now + "."
	case "replay":
		return "was not replayed: it is " + now + "."
	case "discard":
		return "was not discarded: it is " + now + "."
	case "restore":
		return "was not restored: it is " + now + "."
	}
	return "is " + now + "."
}

// lastAct is who changed a job last, and when; empty if nobody did.
func (v *visit) lastAct(id engine.ID) []views.Span {
	acts, err := v.k.Read.Actions(v.Request().Context(), id)
	if err != nil || len(acts) == 0 {
		return nil
	}
	a := &acts[0]
	word := a.Action
	if w, ok := actionWords[a.Action]; ok {
		word = w.word
	}
	return []views.Span{{Text: word + " by " + cut(a.Actor, 80) + ","}, {At: v.clock.past(a.At)}}
}

// afterAct is where a form without script goes next.
func (k *Console) afterAct(c echo.Context, name string, id engine.ID) string {
	if ret := c.Request().Header.Get("Referer"); name == "replay" || name == "restore" {
		if to := k.fromReferer(c, ret); to != "" {
			return to
		}
	}
	switch name {
	case "discard":
		return k.url("/dlq?view=jobs")
	case "restore":
		return k.url("/dlq?view=discarded")
	}
	return k.url("/jobs/" + id.String())
}

// fromReferer is the page of this console that a form stood on. The policy sends
// it within the same origin alone; without it the job's page is next.
func (k *Console) fromReferer(c echo.Context, ref string) string {
	_, rest, found := strings.Cut(ref, "://"+c.Request().Host+"/")
	if !found {
		return ""
	}
	to := auth.SafeNext(k.Base, "/"+rest)
	if to == k.url("/") && "/"+rest != to {
		return ""
	}
	path, _, _ := strings.Cut(to, "?")
	if strings.HasSuffix(path, "/reveal") || strings.HasSuffix(path, "/discard") || strings.HasSuffix(path, "/cancel") || strings.HasSuffix(path, "/stop") {
		return ""
	}
	return to
}

func (k *Console) confirmCancel(c echo.Context) error {
	id, v, job, err := k.asked(c)
	if err != nil {
		return err
	}
	switch job.State {
	case engine.StatePending, engine.StateFailed, engine.StateBlocked:
	case engine.StateLeased, engine.StateCompleted, engine.StateDeadLetter, engine.StateCancelled:
		return k.conflict(c, id, &engine.StateError{ID: id, Act: "cancel", State: job.State, Discarded: !job.DiscardedAt.IsZero()})
	}
	m := v.confirm(job, "Cancel job "+shortID(id)+"?", "jobs")
	m.Act = views.Action{
		Kind: "cancel", Text: "Cancel job", Href: k.url("/jobs/" + id.String() + "/cancel"), Post: true, Harm: true, Fields: []views.Field{versionField(job)},
	}
	m.Note = "It will not run. A copy of it can be enqueued afterwards."
	return v.ask(m)
}

func (k *Console) confirmStop(c echo.Context) error {
	id, v, job, err := k.asked(c)
	if err != nil {
		return err
	}
	if job.State != engine.StateLeased {
		return k.conflict(c, id, &engine.StateError{ID: id, Act: "stop", State: job.State, Discarded: !job.DiscardedAt.IsZero()})
	}
	m := v.confirm(job, "Stop job "+shortID(id)+"?", "jobs")
	m.Keep.Text = "Let it run"
	m.Act = views.Action{
		Kind: "stop", Text: "Request stop", Href: k.url("/jobs/" + id.String() + "/stop"), Post: true, Harm: true, Fields: []views.Field{versionField(job)},
	}
	m.Warning = &views.Notice{
		State: views.StateLate, Title: "What it does outside may be half done.",
		Text: text("Mails may be sent, calls made, rows written. Nothing undoes them, and the job does not run again."),
	}
	m.Note = "Its worker learns of it at once or with the next heartbeat. If the job completes before that, it has completed; otherwise it is cancelled."
	return v.ask(m)
}

func (k *Console) confirmDiscard(c echo.Context) error {
	id, v, job, err := k.asked(c)
	if err != nil {
		return err
	}
	if job.State != engine.StateDeadLetter || !job.DiscardedAt.IsZero() {
		return k.conflict(c, id, &engine.StateError{ID: id, Act: "discard", State: job.State, Discarded: !job.DiscardedAt.IsZero()})
	}
	m := v.confirm(job, "Discard job "+shortID(id)+"?", "dlq")
	m.Act = views.Action{
		Kind: "discard", Text: "Discard job", Href: k.url("/dlq/" + id.String() + "/discard"), Post: true, Harm: true, Fields: []views.Field{versionField(job)},
	}
	m.Note = "It leaves the list. Undo works for 7 days, here and under Discarded."
	return v.ask(m)
}

func (k *Console) asked(c echo.Context) (engine.ID, *visit, *inspect.Job, error) {
	if _, err := query(c); err != nil {
		return engine.ID{}, nil, nil, err
	}
	id, err := jobID(c)
	if err != nil {
		return id, nil, nil, err
	}
	job, err := k.Read.Job(c.Request().Context(), id)
	if err != nil {
		return id, nil, nil, err
	}
	return id, k.visit(c), &job, nil
}

// confirm is the question before an act, with the job as it is now.
func (v *visit) confirm(j *inspect.Job, title, active string) views.Confirm {
	href := v.k.url("/jobs/" + j.ID.String())
	m := views.Confirm{
		Frame: v.frame(title, active, false), Title: title, Keep: views.Link{Text: "Keep it", Href: href},
		Crumbs: []views.Crumb{{Text: "Jobs", Href: v.k.url("/jobs")}, {Text: shortID(j.ID), Href: href}, {Text: title}},
		Reason: views.ReasonField{Ask: true},
	}
	m.Facts = []views.Fact{
		{Name: "Job", Value: []views.Span{{Text: j.ID.String(), Href: href}}}, {Name: "State", Badge: stateOf(j, v.clock.now)},
		{Name: "Type", Value: text(j.Type)}, {Name: "Queue", Value: text(j.Queue)}, {Name: "Created", Value: []views.Span{{At: v.clock.past(j.CreatedAt)}}},
	}
	if j.LastError != nil {
		m.Facts = append(m.Facts, views.Fact{Name: "Last error", Value: text(errorLine(j.LastError))})
	}
	return m
}

// ask answers with the page, or with the dialog where the script asks for it.
func (v *visit) ask(m views.Confirm) error { return v.askWith(http.StatusOK, m) }

// askWith answers so with a status: what was sent was not done.
func (v *visit) askWith(status int, m views.Confirm) error {
	if isFragment(v) && target(v) == "dialog-body" {
		return v.render(status, views.ConfirmDialog(m))
	}
	return v.render(status, views.ConfirmPage(m))
}

// conflict says that a job is no longer what the act was meant for: its fresh state
// and who changed it.
func (k *Console) conflict(c echo.Context, id engine.ID, state *engine.StateError) error {
	v := k.visit(c)
	m := views.ErrorPage{
		Status: "409", Title: "The job has changed", Text: []string{"Job " + shortID(id) + " " + refusal(state)},
		Links: []views.Link{{Text: "Show the job", Href: k.url("/jobs/" + id.String())}}, RequestID: k.RequestID(c),
	}
	job, err := k.Read.Job(c.Request().Context(), id)
	if err != nil {
		return err
	}
	m.Fresh = &views.Fact{Name: "Now", Badge: stateOf(&job, v.clock.now), Value: v.lastAct(id)}
	if state.Act != "cancel" && state.Act != "stop" {
		m.Links = append(m.Links, views.Link{Text: "Dead letters", Href: k.url("/dlq")})
	}
	m.Frame = v.frame("The job has changed", "jobs", false)
	if isFragment(c) {
		return v.render(http.StatusConflict, views.ErrorSwap(m))
	}
	return v.render(http.StatusConflict, views.ErrorPageView(m))
}
