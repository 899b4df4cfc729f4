package console

import (
	"strconv"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// why is the panel that says why a job is not running; nil once it has ended.
func (v *visit) why(d dossier) *views.Why {
	x := &d.why
	if len(x.Checks) == 0 || x.State.Finished() {
		return nil
	}
	head := x.Headline()
	w := &views.Why{Title: "Why is this job not running?", Text: head.Text, State: v.whyState(&d.job, head)}
	if x.State == engine.StateLeased {
		w.Title = "Where does this job stand?"
	}
	if a, ok := v.help(&d.job, head); ok {
		w.Actions = []views.Action{a}
	}
	for _, c := range x.Checks {
		row := views.WhyCheck{Code: string(c.Code), Verdict: views.CheckVerdict(c.Verdict), Text: c.Text}
		if c.Verdict == inspect.Failed {
			row.Evidence = v.evidenceFacts(c.Evidence)
		}
		w.Checks = append(w.Checks, row)
	}
	return w
}

// whyState colours the headline: what is in the way, or how the job stands.
func (v *visit) whyState(j *inspect.Job, head inspect.Check) views.State {
	if head.Verdict != inspect.Failed {
		return stateOf(j, v.clock.now)
	}
	switch head.Code {
	case inspect.CheckPaused:
		return views.StatePaused
	case inspect.CheckLeased:
		if j.Lease != nil && !j.Lease.ExpiresAt.After(v.clock.now) {
			return views.StateLost
		}
	case inspect.CheckNoPlace, inspect.CheckWorker:
		return views.LevelCritical
	case inspect.CheckSlots, inspect.CheckStart:
		return views.LevelDegraded
	case inspect.CheckSuspect:
		return views.StateLate
	case inspect.CheckHeld:
		return views.StateBlocked
	case inspect.CheckEnded, inspect.CheckNotDue, inspect.CheckAhead:
	}
	return stateOf(j, v.clock.now)
}

// help is the one action that helps, if the caller may do it.
func (v *visit) help(j *inspect.Job, c inspect.Check) (views.Action, bool) {
	if c.Verdict != inspect.Failed {
		return views.Action{}, false
	}
	view := func(text, href string) (views.Action, bool) {
		return views.Action{Kind: "view", Text: text, Href: v.k.url(href)}, true
	}
	switch c.Help.Code {
	case inspect.HelpRunNow:
		return v.k.runNowAction(j), v.may(auth.ScopeJobsWrite)
	case inspect.HelpQueue:
		return view("Queue "+c.Help.Target, "/queues/"+escape(c.Help.Target))
	case inspect.HelpWorker:
		return view("Its worker", "/workers/"+c.Help.Target)
	case inspect.HelpWorkers:
		return view("Workers", "/workers")
	case inspect.HelpSystem:
		return view("System", "/system")
	case inspect.HelpReplay, inspect.HelpRestore: // of jobs that have ended
	}
	return views.Action{}, false
}

func (v *visit) evidenceFacts(list []inspect.Evidence) (facts []views.Fact) {
	for _, e := range list {
		if value := v.evidenceSpan(e); value.Text != "" || value.At.ISO != "" {
			facts = append(facts, views.Fact{Name: evidenceName(e.Name), Value: []views.Span{value}})
		}
	}
	return facts
}

// evidenceName is a name of the API as a page writes it.
func evidenceName(name string) string {
	if name == "worker_id" {
		return "Its number"
	}
	name = strings.TrimSuffix(name, "_id")
	return strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "_", " ")
}

func (v *visit) evidenceSpan(e inspect.Evidence) views.Span {
	switch x := e.Value.(type) {
	case string:
		return views.Span{Text: cut(x, 300), Quote: e.Name == "reason" && x != ""}
	case bool:
		return views.Span{Text: strconv.FormatBool(x)}
	case int64:
		return views.Span{Text: count(x)}
	case float64:
		return views.Span{Text: strconv.FormatFloat(x, 'g', 3, 64)}
	case time.Time:
		return views.Span{At: v.clock.due(x)}
	case time.Duration:
		return views.Span{Text: span(x)}
	case []string:
		return views.Span{Text: cut(joined(x), 300)}
	case engine.ID:
		return views.Span{Text: shortID(x), Href: v.k.url("/jobs/" + x.String())}
	case inspect.Token:
		text := strconv.FormatInt(int64(x), 10)
		if e.Name == "worker_id" {
			return views.Span{Text: text, Href: v.k.url("/workers/" + text)}
		}
		return views.Span{Text: text}
	}
	return views.Span{}
}
