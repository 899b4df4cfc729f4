package console

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// dossier is all that is known of one job.
type dossier struct {
	job      inspect.Job
	attempts []inspect.Attempt
	refused  []inspect.RefusedWrite
	actions  []inspect.Action
	copies   []engine.ID
	result   *inspect.Result
	dead     *inspect.DeadLetterDetail
	why      inspect.Explanation // empty once it has ended
}

func (k *Console) job(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	id, err := jobID(c)
	if err != nil {
		return err
	}
	d, err := k.dossier(c, id)
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := v.jobOf(d)
	m.Frame.Lacks = v.lacks(auth.ScopeJobsWrite, "acting on a job and seeing what is masked")
	return v.page(http.StatusOK, m.Frame, views.JobPage(m), views.JobLive(m))
}

func jobID(c echo.Context) (engine.ID, error) {
	s, err := param(c, "id")
	if err != nil {
		return engine.ID{}, err
	}
	id, err := parseID(s)
	if err != nil {
		return engine.ID{}, notFound("No job has the id " + quoted(s) + ".")
	}
	return id, nil
}

func (k *Console) dossier(c echo.Context, id engine.ID) (dossier, error) {
	ctx := c.Request().Context()
	var d dossier
	var err error
	if d.job, err = k.Read.Job(ctx, id); err != nil {
		return d, err
	}
	if d.attempts, err = k.Read.Attempts(ctx, id); err != nil {
		return d, err
	}
	if d.refused, err = k.Read.RefusedWrites(ctx, id); err != nil {
		return d, err
	}
	if d.actions, err = k.Read.Actions(ctx, id); err != nil {
		return d, err
	}
	if d.copies, err = k.Read.Copies(ctx, id); err != nil {
		return d, err
	}
	if slices.ContainsFunc(d.attempts, func(a inspect.Attempt) bool { return a.HasResult }) {
		switch r, err := k.Read.Result(ctx, id); {
		case err == nil:
			d.result = &r
		case !errors.Is(err, inspect.ErrNoResult):
			return d, err
		}
	}
	if !d.job.State.Finished() {
		if d.why, err = k.Read.Explain(ctx, id, k.now(c)); err != nil {
			return d, err
		}
	}
	if d.job.State == engine.StateDeadLetter {
		switch dead, err := k.Read.DeadLetter(ctx, id); {
		case err == nil:
			d.dead = &dead
		case !errors.Is(err, engine.ErrJobNotFound): // replayed between the two reads
			return d, err
		}
	}
	return d, nil
}

func (v *visit) jobOf(d dossier) views.Job {
	j := &d.job
	short := shortID(j.ID)
	m := views.Job{
		Frame: v.frame("Job "+short+", "+j.Type, "jobs", true), ID: j.ID.String(), Short: short, Type: j.Type, State: stateOf(j, v.clock.now),
		Crumbs: []views.Crumb{
			{Text: "Jobs", Href: v.k.url("/jobs")}, {Text: "queue:" + j.Queue, Href: v.k.url("/jobs?queue=" + escape(j.Queue))}, {Text: short},
		},
		Running: j.State == engine.StateLeased, Actions: v.jobActions(j), Timeline: v.timeline(d), Facts: v.jobFacts(j), Related: v.related(d),
	}
	m.Why = v.why(d)
	m.Standing, m.StandingText = v.standing(&d.job)
	if p := j.Progress; p != nil && m.Running {
		m.Progress = &views.Progress{Share: p.Percent / 100, Percent: strconv.FormatFloat(p.Percent, 'f', -1, 64) + " %", Text: p.Text}
	}
	m.Live = v.liveTail(d)
	m.Notices = v.jobNotices(d)
	m.Attempts, m.AttemptsText = v.attempts(d)
	if len(d.attempts) >= 1000 {
		m.AttemptsCut = "the latest 1,000 of " + count(j.Run) + " runs"
	}
	m.Payload = views.NewJSON(j.Payload, v.k.mask)
	m.Payload.Download = v.k.url("/jobs/" + m.ID + "/payload")
	if m.Payload.Masked > 0 && v.may(auth.ScopeJobsWrite) {
		m.Payload.Reveal = &views.Action{Kind: "reveal", Text: "Reveal…", Label: "Reveal the payload of job " + short, Href: v.k.url("/jobs/" + m.ID + "/reveal")}
	}
	if d.result != nil {
		r := views.NewJSON(d.result.JSON, v.k.mask)
		r.Download = v.k.url("/jobs/" + m.ID + "/result")
		m.Result = &r
	}
	m.ResultText = resultText(j.State)
	for i := range d.actions {
		m.Activity = append(m.Activity, v.k.eventOf(&d.actions[i], v.clock.at(d.actions[i].At)))
	}
	if body, err := v.k.JobJSON(*j); err == nil {
		m.API = views.NewJSON(body, v.k.mask)
	} else {
		v.k.Log.WarnContext(v.Request().Context(), "job body not written", "job_id", m.ID, "error", err)
	}
	return m
}

func resultText(s engine.State) string {
	switch s {
	case engine.StateCompleted:
		return "Its handler kept no result."
	case engine.StateDeadLetter, engine.StateCancelled:
		return "It did not complete."
	case engine.StatePending, engine.StateBlocked, engine.StateLeased, engine.StateFailed:
	}
	return "There is none until it completes."
}

// liveTailLines is how many lines of a run that goes on stand over the page.
const liveTailLines = 20

// liveTail is the end of the log of the run that goes on.
func (v *visit) liveTail(d dossier) []views.LogLine {
	n := len(d.attempts)
	if n == 0 || d.attempts[n-1].Outcome != 0 {
		return nil
	}
	lines, _ := v.logs(anchorOf(&d.attempts[n-1])+"-live", d.attempts[n-1].Logs)
	return lines[max(len(lines)-liveTailLines, 0):]
}

// jobActions are those that the state allows and the caller may do.
func (v *visit) jobActions(j *inspect.Job) []views.Action {
	id := j.ID.String()
	var list []views.Action
	switch j.State {
	case engine.StateDeadLetter:
		if v.may(auth.ScopeDLQWrite) {
			if j.DiscardedAt.IsZero() {
				replay := v.k.replayAction(j.ID, j.Version)
				replay.Main = true
				list = append(list, replay, v.k.discardAction(j.ID, false))
			} else {
				list = append(list, v.k.restoreAction(j.ID, j.Version))
			}
		}
	case engine.StatePending, engine.StateFailed, engine.StateBlocked:
		if v.may(auth.ScopeJobsWrite) {
			if j.State != engine.StateBlocked && j.ScheduledAt.After(v.clock.now) {
				list = append(list, v.k.runNowAction(j))
			}
			list = append(list, views.Action{
				Kind: "cancel", Text: "Cancel…", Label: "Cancel job " + shortID(j.ID), Href: v.k.url("/jobs/" + id + "/cancel"), Harm: true,
				Fields: []views.Field{versionField(j)},
			})
		}
	case engine.StateLeased:
		if v.may(auth.ScopeJobsWrite) && j.Stop == nil {
			list = append(list, views.Action{
				Kind: "stop", Text: "Request stop…", Label: "Request stop of job " + shortID(j.ID), Href: v.k.url("/jobs/" + id + "/stop"), Harm: true,
				Fields: []views.Field{versionField(j)},
			})
		}
	case engine.StateCompleted, engine.StateCancelled:
	}
	if v.may(auth.ScopeJobsWrite) {
		list = append(list, views.Action{
			Kind: "copy", Text: "Enqueue a copy", Label: "Enqueue a copy of job " + shortID(j.ID), Href: v.k.url("/jobs/new?from=" + id),
		})
	}
	return list
}

func versionField(j *inspect.Job) views.Field {
	return views.Field{Name: "version", Value: strconv.Itoa(j.Version)}
}

// versionFields say which version of a job a button was drawn for; 0 is not known.
func versionFields(version int) []views.Field {
	if version == 0 {
		return nil
	}
	return []views.Field{{Name: "version", Value: strconv.Itoa(version)}}
}

func (k *Console) runNowAction(j *inspect.Job) views.Action {
	return views.Action{
		Kind: "run_now", Text: "Run now", Label: "Run now: job " + shortID(j.ID), Href: k.url("/jobs/" + j.ID.String() + "/run-now"), Post: true,
		Fields: []views.Field{versionField(j)},
	}
}

func (k *Console) replayAction(id engine.ID, version int) views.Action {
	return views.Action{
		Kind: "replay", Text: "Replay", Label: "Replay job " + shortID(id), Href: k.url("/dlq/" + id.String() + "/replay"), Post: true,
		Fields: versionFields(version),
	}
}

func (k *Console) discardAction(id engine.ID, row bool) views.Action {
	return views.Action{
		Kind: "discard", Text: "Discard…", Label: "Discard job " + shortID(id), Href: k.url("/dlq/" + id.String() + "/discard"), Harm: true, Icon: row,
	}
}

func (k *Console) restoreAction(id engine.ID, version int) views.Action {
	return views.Action{
		Kind: "restore", Text: "Restore", Label: "Restore job " + shortID(id), Href: k.url("/dlq/" + id.String() + "/restore"), Post: true,
		Fields: versionFields(version),
	}
}

// standing says how a dead job stands; what a job waits for is said by [visit.why].
func (v *visit) standing(j *inspect.Job) (head, body string) {
	switch {
	case j.State != engine.StateDeadLetter:
		return "", ""
	case !j.DiscardedAt.IsZero():
		since := v.clock.now.Sub(j.DiscardedAt)
		return "Discarded " + agoText(since), "It can be restored for another " + coarse(max(engine.RestoreWindow-since, 0)) + ", then it is removed."
	}
	return "Dead: " + reasonText(j.DeadReason), "It will not run again by itself. Replay puts the same job back in line."
}

func reasonText(r engine.Reason) string {
	switch r {
	case engine.ReasonExhausted:
		return "its attempts are used up"
	case engine.ReasonPermanent:
		return "its error is permanent"
	case engine.ReasonPoison:
		return "its runs were lost with their process too often"
	case engine.ReasonExpired:
		return "it expired before it could run"
	}
	return string(r)
}

func (v *visit) jobNotices(d dossier) []views.Notice {
	var list []views.Notice
	if d.job.Payload == nil {
		list = append(list, views.Notice{State: views.StateLate, Title: "The payload could not be read."})
	}
	if s := d.job.Stop; s != nil {
		n := views.Notice{State: views.StateLate, Title: "Stop requested " + s.At.Format(time.TimeOnly) + " UTC"}
		n.Text = text("by " + cut(s.Actor, 80) + ". The worker learns of it with its next heartbeat; unless it completes first, the job is cancelled, and a later result is refused.")
		if s.Reason != "" {
			n.Text = append(n.Text, views.Span{Text: cut(s.Reason, 200), Quote: true})
		}
		list = append(list, n)
	}
	switch {
	case d.job.Suspect():
		list = append(list, views.Notice{
			State: views.StateLate, Title: suspectText(&d.job),
			Text: text("It is cleared once a run ends by itself. The attempts tell how each was lost."),
		})
	case d.job.DeadReason == engine.ReasonPoison:
		list = append(list, views.Notice{
			State: views.StateDead, Title: "Quarantined: " + plural(int64(d.job.Crashes), "run") + " in a row " + verb(int64(d.job.Crashes), "was", "were") +
				" lost with " + verb(int64(d.job.Crashes), "its", "their") + " process.",
			Text: text("The attempts tell how each ended. Replay only what is mended: it would end a process again."),
		})
	}
	return list
}

// suspectText says why a job is treated apart.
func suspectText(j *inspect.Job) string {
	n, when := int64(j.Crashes), "next"
	if j.State == engine.StateLeased {
		when = "now"
	}
	return "Suspect: ran in " + plural(n, "run") + " that " + verb(n, "was", "were") + " lost with " + verb(n, "its", "their") +
		" process; runs alone in a child process " + when + "."
}

func (v *visit) jobFacts(j *inspect.Job) []views.Fact {
	fact := func(name, value string) views.Fact { return views.Fact{Name: name, Value: text(value)} }
	priority := priorityText(j.Priority)
	if n := strconv.Itoa(int(j.Priority)); n != priority {
		priority += " (" + n + ")"
	}
	attempts := strconv.Itoa(j.Attempt) + " of " + strconv.Itoa(j.MaxAttempts)
	if j.Run > 0 {
		attempts += ", run " + count(j.Run)
	}
	facts := []views.Fact{
		{Name: "Queue", Value: []views.Span{{Text: j.Queue, Href: v.k.url("/queues/" + escape(j.Queue))}}},
		{Name: "Type", Value: []views.Span{{Text: j.Type, Href: v.k.url("/types/" + escape(j.Type))}}},
		fact("Priority", priority), fact("Attempts", attempts), fact("Crashes", strconv.Itoa(j.Crashes)),
		{Name: "Created", Value: []views.Span{{At: v.clock.past(j.CreatedAt)}}},
		{Name: "Run at", Value: []views.Span{{At: v.clock.due(j.ScheduledAt)}}},
	}
	if !j.FinishedAt.IsZero() {
		facts = append(facts, views.Fact{Name: "Finished", Value: []views.Span{{At: v.clock.past(j.FinishedAt)}}})
	}
	expires := text("never")
	if !j.ExpiresAt.IsZero() {
		expires = []views.Span{{At: v.clock.due(j.ExpiresAt)}}
	}
	facts = append(facts, views.Fact{Name: "Expires", Value: expires})
	timeout := "the type's"
	if j.Timeout > 0 {
		timeout = span(j.Timeout)
	}
	facts = append(facts, fact("Timeout", timeout))
	if b := j.Backoff; b != nil {
		words := map[engine.BackoffPolicy]string{engine.BackoffFullJitter: "full jitter", engine.BackoffExponential: "exponential"}[b.Policy]
		facts = append(facts, fact("Backoff", words+", from "+span(b.Base)+", at most "+span(b.Max)))
	}
	if len(j.Tags) > 0 {
		var tags []views.Span
		for _, t := range j.Tags {
			tags = append(tags, views.Span{Text: t, Href: v.k.jobsURL(only("tag", t))})
		}
		facts = append(facts, views.Fact{Name: "Tags", Value: tags})
	}
	if j.FencingToken > 0 {
		facts = append(facts, fact("Token", strconv.FormatInt(j.FencingToken, 10)))
	}
	if j.Traceparent != "" {
		facts = append(facts, views.Fact{Name: "Trace", Value: []views.Span{{Text: cut(j.Traceparent, 20), Code: true}}, Copy: j.Traceparent})
	}
	return append(facts, fact("Replays", strconv.Itoa(j.Replays)), fact("Version", strconv.Itoa(j.Version)))
}

func (v *visit) related(d dossier) []views.Fact {
	list := v.callback(d.job)
	if from := d.job.CopiedFrom; from != nil {
		list = append(list, views.Fact{Name: "Copied from", Value: []views.Span{{Text: shortID(*from), Href: v.k.url("/jobs/" + from.String())}}})
	}
	if len(d.copies) > 0 {
		var links []views.Span
		for _, id := range d.copies {
			links = append(links, views.Span{Text: shortID(id), Href: v.k.url("/jobs/" + id.String())})
		}
		list = append(list, views.Fact{Name: "Copies", Value: links})
	}
	if e := d.job.LastError; e != nil && e.Fingerprint != "" {
		list = append(list, views.Fact{Name: "Same error", Value: []views.Span{{Text: "fp " + shortPrint(e.Fingerprint), Href: v.k.groupURL(e.Fingerprint)}}})
	}
	return list
}

// callback is how the job's end is told, and of which end it tells itself.
func (v *visit) callback(j inspect.Job) (list []views.Fact) {
	link := func(id engine.ID) views.Span {
		return views.Span{Text: shortID(id), Href: v.k.url("/jobs/" + id.String())}
	}
	if of := j.CallbackOf; of != nil {
		list = append(list, views.Fact{Name: "Callback of", Value: []views.Span{link(*of)}})
	}
	c := j.Callback
	if c == nil {
		return list
	}
	value := text("when the job ends")
	switch {
	case c.Error != "":
		value = []views.Span{{Text: "could not be made "}, {At: v.clock.past(c.FailedAt)}, {Text: ", and is tried again: " + c.Error}}
	case c.Made():
		value = []views.Span{{Text: "job "}, link(c.JobID), {Text: " " + stateText(c.State)}}
	case j.State.Finished():
		value = text("made, and removed since")
	}
	return append(list, views.Fact{Name: "Callback", Value: value}, views.Fact{Name: "Callback to", Value: []views.Span{{Text: cut(c.URL, 60), Code: true}}, Copy: c.URL})
}
