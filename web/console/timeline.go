package console

import (
	"slices"
	"strconv"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// maxEvents bounds the list of events on a page.
const maxEvents = 200

// stretch is a part of a job's life: waiting, running, or backing off.
type stretch struct {
	lane     int // 0 waiting, 1 running, 2 backoff
	from, to time.Time
	state    views.State
	text     string
}

const (
	laneWaiting = iota
	laneRunning
	laneBackoff
)

// life is a job's time taken apart, oldest first.
func life(d dossier, now time.Time) []stretch {
	var list []stretch
	at := d.job.CreatedAt
	backoff := false
	wait := func(until time.Time) {
		if until.After(at) {
			s := stretch{lane: laneWaiting, from: at, to: until, state: views.StateReady}
			if backoff {
				s.lane, s.state = laneBackoff, views.StateRetrying
			}
			list = append(list, s)
		}
	}
	for i := range d.attempts {
		a := &d.attempts[i]
		began := a.StartedAt
		if began.IsZero() {
			began = a.ClaimedAt
		}
		if began.IsZero() { // closed while it waited
			wait(a.FinishedAt)
			at = a.FinishedAt
			continue
		}
		ended := a.FinishedAt
		if a.Outcome == 0 {
			ended = now
		}
		wait(began)
		s := stretch{lane: laneRunning, from: began, to: ended, state: views.StateRunning, text: strconv.FormatInt(a.Run, 10)}
		switch a.Outcome {
		case engine.OutcomeLeaseExpired, engine.OutcomeCrashed:
			s.state, s.text = views.StateDead, "lost"
		case engine.OutcomeCompleted:
			s.state = views.StateCompleted
		case engine.OutcomeFailed, engine.OutcomeTimedOut:
			s.state = views.StateRetrying
		case engine.OutcomeSnoozed, engine.OutcomeHandedBack, engine.OutcomeCancelled, engine.OutcomeExpired, 0:
		}
		list = append(list, s)
		at, backoff = ended, a.Outcome == engine.OutcomeFailed || a.Outcome == engine.OutcomeTimedOut
	}
	if !d.job.State.Finished() && d.job.State != engine.StateLeased {
		backoff = backoff && d.job.State == engine.StateFailed
		until := now
		if d.job.ScheduledAt.After(until) {
			until = d.job.ScheduledAt
		}
		wait(until)
	}
	return list
}

func (v *visit) timeline(d dossier) views.Timeline {
	now := v.clock.now
	stretches := life(d, now)
	t := views.Timeline{Now: -1, Events: v.events(d)}
	if n := len(t.Events); n > maxEvents {
		t.Cut = "the latest " + strconv.Itoa(maxEvents) + " of " + count(int64(n)) + " events"
		t.Events = t.Events[:maxEvents]
	}
	if len(stretches) == 0 {
		return t
	}
	from, to := d.job.CreatedAt, stretches[0].to
	var sums [3]time.Duration
	for _, s := range stretches {
		sums[s.lane] += min(s.to.Sub(s.from), max(now.Sub(s.from), 0))
		if s.to.After(to) {
			to = s.to
		}
		if s.from.Before(from) {
			from = s.from
		}
	}
	whole := to.Sub(from)
	if whole <= 0 {
		return t
	}
	place := func(at time.Time) float64 { return min(max(float64(at.Sub(from))/float64(whole), 0), 1) }
	t.Lanes = []views.Lane{{Name: "Waiting"}, {Name: "Running"}, {Name: "Backoff"}}
	if len(stretches) > 300 {
		stretches = stretches[len(stretches)-300:]
	}
	for _, s := range stretches {
		t.Lanes[s.lane].Bars = append(t.Lanes[s.lane].Bars, views.LaneBar{State: s.state, From: place(s.from), To: place(s.to), Text: s.text})
	}
	if !d.job.State.Finished() {
		t.Now = place(now)
	}
	for i := range 5 {
		share := float64(i) / 4
		after := time.Duration(share * float64(whole))
		tick := v.clock.short(from.Add(after).UTC())
		if i > 0 && whole < 5*time.Second { // clocks of whole seconds would read the same
			tick = "+" + span(after)
		}
		t.Ticks = append(t.Ticks, views.PlaceMark{At: share, Text: tick, Odd: i%2 == 1})
	}
	t.Text = lifeText(d.job.State.Finished(), sums)
	t.Label = "Timeline: " + t.Text
	return t
}

func lifeText(ended bool, sums [3]time.Duration) string {
	s := span(sums[0]+sums[1]+sums[2]) + " in all: "
	if !ended {
		s = span(sums[0]+sums[1]+sums[2]) + " so far: "
	}
	s += span(sums[laneWaiting]) + " waiting, " + span(sums[laneRunning]) + " running"
	if sums[laneBackoff] > 0 {
		s += ", " + span(sums[laneBackoff]) + " backing off"
	}
	return s
}

// events is a job's life as a list, newest first.
func (v *visit) events(d dossier) []views.Event {
	var list []dated
	add := func(at time.Time, e views.Event) {
		if at.IsZero() {
			return
		}
		e.At = v.clock.at(at)
		list = append(list, dated{at, e})
	}
	add(d.job.CreatedAt, views.Event{State: views.StateReady, Icon: "plus", Text: []views.Span{{Text: "Enqueued", Bold: true}}})
	for i := range d.attempts {
		v.addRun(add, d, i)
	}
	for i := range d.refused {
		r := &d.refused[i]
		add(r.At, views.Event{State: views.StateLate, Icon: "ban", Text: refusedText(r), ID: "refused-" + strconv.FormatInt(r.ID, 10)})
	}
	for i := range d.actions {
		e := v.k.eventOf(&d.actions[i], views.Time{})
		e.Text = append(e.Text, views.Span{Text: "by " + cut(d.actions[i].Actor, 60), Tone: views.ToneMuted})
		add(d.actions[i].At, e)
	}
	if d.dead != nil {
		add(d.dead.DiedAt, views.Event{State: views.StateDead, Text: []views.Span{{Text: "Dead", Bold: true}, {Text: ": " + reasonText(d.dead.Reason)}}})
	}
	if ahead := d.job.ScheduledAt; ahead.After(v.clock.now) && !d.job.State.Finished() && d.job.HeldReason == "" {
		add(ahead, views.Event{
			State: views.StateScheduled, Icon: "clock", Future: true, Gap: "in " + coarse(ahead.Sub(v.clock.now)),
			Text: []views.Span{{Text: "Due", Bold: true}, {Text: "attempt " + strconv.Itoa(d.job.Attempt+1) + " of " + strconv.Itoa(d.job.MaxAttempts)}},
		})
	}
	slices.SortStableFunc(list, func(a, b dated) int { return b.at.Compare(a.at) })
	out := make([]views.Event, len(list))
	for i, e := range list {
		out[i] = e.Event
	}
	return out
}

func (v *visit) addRun(add func(time.Time, views.Event), d dossier, i int) {
	a := &d.attempts[i]
	worker := v.workerLink(a)
	began := a.StartedAt
	if began.IsZero() {
		began = a.ClaimedAt
	}
	e := views.Event{State: views.StateRunning, Icon: "circle-play", Text: []views.Span{{Text: "Run " + strconv.FormatInt(a.Run, 10) + " started", Bold: true}}}
	if worker.Text != "" {
		e.Text = append(e.Text, views.Span{Text: "on"}, views.Span{Text: worker.Text, Href: worker.Href})
	}
	if a.HasWait {
		e.Gap = "waited " + span(a.Wait)
	}
	add(began, e)
	if a.Outcome == 0 {
		return
	}
	e = views.Event{State: outcomeStates[a.Outcome], ID: "end-" + anchorOf(a), Text: []views.Span{{Text: endText(a), Bold: true}}}
	if a.ErrorClass != "" || a.Error != "" {
		e.Text = append(e.Text, views.Span{Text: failureName(inspect.Failure{Class: a.ErrorClass, Message: a.Error}), Href: "#" + anchorOf(a)})
	}
	if run := a.Duration(); run > 0 {
		e.Gap = "ran " + span(run)
	}
	add(a.FinishedAt, e)
}

var outcomeStates = map[engine.Outcome]views.State{
	engine.OutcomeCompleted: views.StateCompleted, engine.OutcomeFailed: views.StateRetrying, engine.OutcomeSnoozed: views.StateScheduled,
	engine.OutcomeHandedBack: views.StateReady, engine.OutcomeCancelled: views.StateCancelled, engine.OutcomeLeaseExpired: views.StateLost,
	engine.OutcomeCrashed: views.StateDead, engine.OutcomeExpired: views.StateDead, engine.OutcomeTimedOut: views.StateRetrying,
}

// endText says how a run ended: "Attempt 3 failed", "Lease of run 1 expired".
func endText(a *inspect.Attempt) string {
	attempt, run := "Attempt "+strconv.Itoa(a.Attempt), "run "+strconv.FormatInt(a.Run, 10)
	switch a.Outcome {
	case engine.OutcomeCompleted:
		return "Completed"
	case engine.OutcomeFailed:
		return attempt + " failed"
	case engine.OutcomeTimedOut:
		return attempt + " timed out"
	case engine.OutcomeSnoozed:
		return "Snoozed"
	case engine.OutcomeHandedBack:
		return "Handed back by " + run
	case engine.OutcomeCancelled:
		return "Cancelled"
	case engine.OutcomeLeaseExpired:
		return "Lease of " + run + " expired"
	case engine.OutcomeCrashed:
		return "Worker crashed in " + run
	case engine.OutcomeExpired:
		return "Expired"
	}
	return "Ended"
}

func refusedText(r *inspect.RefusedWrite) []views.Span {
	current := "the job is gone"
	if r.TokenCurrent != 0 {
		current = "current " + strconv.FormatInt(r.TokenCurrent, 10)
	}
	return []views.Span{
		{Text: "Write refused", Bold: true},
		{Text: "worker " + strconv.FormatInt(r.WorkerID, 10) + " tried to " + r.Operation + " it: token " + strconv.FormatInt(r.TokenHeld, 10) + " refused, " + current},
	}
}
