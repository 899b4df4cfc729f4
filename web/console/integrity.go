package console

import (
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// integrityNotices are on top of the page while the stored history breaks a rule.
func integrityNotices(i *inspect.Integrity) []views.Notice {
	if i == nil || len(i.Violated) == 0 {
		return nil
	}
	return []views.Notice{{
		State: views.LevelCritical, Title: "The stored history breaks " + plural(int64(len(i.Violated)), "rule") + ".",
		Text: text("jobctl verify, on the database's settings, names the jobs. Keep them and the log of that time before anything is mended by hand."),
	}}
}

// integritySection tells what the last check of the stored history found, and
// what to do about it.
func (v *visit) integritySection(i *inspect.Integrity) views.Section {
	s := views.Section{ID: "integrity", Title: "Integrity", Text: "the promises, checked on the stored history by the leader"}
	if i == nil {
		s.Facts = []views.Fact{{Name: "Last check", Value: text("none yet")}, {Name: "To check now", Value: text("jobctl verify")}}
		return s
	}
	verdict := views.Span{Text: "every rule holds"}
	next := "nothing; jobctl verify checks at once"
	switch i.Verdict {
	case "violated":
		verdict, next = views.Span{Text: "violated", Tone: views.ToneUp}, "run jobctl verify: it names the jobs and leases"
	case "unchecked":
		verdict, next = views.Span{Text: "could not be checked", Tone: views.ToneWarn}, "see this server's log for the reason, then run jobctl verify"
	}
	s.Facts = []views.Fact{
		{Name: "Last check", Value: []views.Span{{At: v.clock.past(i.At)}}}, {Name: "Verdict", Value: []views.Span{verdict}},
		{Name: "Took", Value: text(i.Took.Round(time.Millisecond).String())}, {Name: "Rules", Value: text(count(int64(i.Rules)))},
	}
	for _, list := range []struct {
		name  string
		rules []string
	}{{"Violated", i.Violated}, {"Not checked", i.Unchecked}} {
		if len(list.rules) > 0 {
			s.Facts = append(s.Facts, views.Fact{Name: list.name, Value: text(strings.Join(list.rules, ", "))})
		}
	}
	s.Facts = append(s.Facts, views.Fact{Name: "What to do", Value: text(next)})
	return s
}
