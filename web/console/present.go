package console

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// clock writes instants as one page shows them, seen from one moment. Everything
// is in UTC and says so; the script may move clock times to the reader's zone.
type clock struct {
	now   time.Time
	times string // ago, utc, local
}

const fullLayout = "2 Jan 2006, 15:04:05 MST"

func (k clock) time(t time.Time, ago string) views.Time {
	if t.IsZero() {
		return views.Time{}
	}
	t = t.UTC()
	text := ago
	if k.times == "utc" || k.times == "local" {
		text = k.short(t)
	}
	return views.Time{ISO: t.Format(time.RFC3339), Text: text, Full: t.Format(fullLayout)}
}

// past is something that has happened: it is never said to lie ahead, even when
// two machines' clocks differ.
func (k clock) past(t time.Time) views.Time { return k.time(t, agoText(k.now.Sub(t))) }

// due is something that may lie ahead.
func (k clock) due(t time.Time) views.Time {
	if ahead := t.Sub(k.now); ahead > 0 {
		return k.time(t, "in "+coarse(ahead))
	}
	return k.past(t)
}

// at is a clock time whatever the reader prefers: "02:14:07", with the day if it
// is another one.
func (k clock) at(t time.Time) views.Time {
	if t.IsZero() {
		return views.Time{}
	}
	t = t.UTC()
	return views.Time{ISO: t.Format(time.RFC3339Nano), Text: k.short(t), Full: t.Format(fullLayout)}
}

// minute is "02:07", for feeds.
func (k clock) minute(t time.Time) views.Time {
	v := k.at(t)
	if !t.IsZero() {
		t = t.UTC()
		if v.Text = t.Format("15:04"); !sameDay(t, k.now) {
			v.Text = t.Format("2 Jan")
		}
	}
	return v
}

func (k clock) short(t time.Time) string {
	if sameDay(t, k.now) {
		return t.Format("15:04:05")
	}
	if t.Year() == k.now.UTC().Year() {
		return t.Format("2 Jan 15:04:05")
	}
	return t.Format("2 Jan 2006 15:04")
}

func sameDay(a, b time.Time) bool {
	ay, am, ad := a.UTC().Date()
	by, bm, bd := b.UTC().Date()
	return ay == by && am == bm && ad == bd
}

func agoText(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return coarse(d) + " ago"
}

// coarse is a span in its largest unit: "12 s", "3 min", "5 h", "2 d".
func coarse(d time.Duration) string {
	switch {
	case d < time.Second:
		return "1 s"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	}
	return count(int64(d/(24*time.Hour))) + " d"
}

// span is a duration in words: "35 ms", "9.8 s", "2 min 41 s", "5 h 3 min".
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < 100*time.Millisecond:
		return strconv.Itoa(int(d.Round(time.Millisecond)/time.Millisecond)) + " ms"
	case d < 9950*time.Millisecond:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return pair(int64(d/time.Minute), "min", int64(d%time.Minute/time.Second), "s")
	case d < 48*time.Hour:
		return pair(int64(d/time.Hour), "h", int64(d%time.Hour/time.Minute), "min")
	}
	return pair(int64(d/(24*time.Hour)), "d", int64(d%(24*time.Hour)/time.Hour), "h")
}

func pair(a int64, unit string, b int64, lesser string) string {
	s := count(a) + " " + unit
	if b > 0 {
		s += " " + strconv.FormatInt(b, 10) + " " + lesser
	}
	return s
}

// spanFigure is span taken apart for a card: large numbers, small units.
func spanFigure(d time.Duration) []views.Span {
	var out []views.Span
	for i, word := range strings.Fields(span(d)) {
		out = append(out, views.Span{Text: word, Small: i%2 == 1})
	}
	return out
}

// count groups a number by thousands: "1,229".
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// tally is a count that is exact up to 10,000.
func tally(n int64) string {
	if n >= inspect.TabCap {
		return "10,000+"
	}
	return count(n)
}

// rate is a number per minute: "712", "9.4", "0".
func rate(v float64) string {
	if v <= 0 {
		return "0"
	}
	if v < 10 {
		return strings.TrimSuffix(strconv.FormatFloat(math.Max(v, 0.1), 'f', 1, 64), ".0")
	}
	return count(int64(math.Round(v)))
}

// share is "25.7 %". Something is never said to be 0 %, nor nearly all to be 100 %.
func share(part, whole int64) string {
	switch {
	case whole <= 0:
		return ""
	case part <= 0:
		return "0 %"
	case part >= whole:
		return "100 %"
	}
	p := float64(part) * 100 / float64(whole)
	p = min(max(math.Round(p*10)/10, 0.1), 99.9)
	return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
}

// wholeShare is share without a decimal, for sentences.
func wholeShare(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	p := int64(math.Round(float64(part) * 100 / float64(whole)))
	if p == 100 && part < whole {
		p = 99
	}
	return strconv.FormatInt(p, 10) + " %"
}

func size(n int64) string {
	switch {
	case n >= 10<<30:
		return count(n>>30) + " GiB"
	case n >= 10<<20:
		return count(n>>20) + " MiB"
	case n >= 10<<10:
		return count(n>>10) + " KiB"
	}
	return plural(n, "byte")
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "y") {
		return count(n) + " " + strings.TrimSuffix(what, "y") + "ies"
	}
	return count(n) + " " + what + "s"
}

func verb(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func shortID(id engine.ID) string {
	s := id.String()
	return s[len(s)-8:]
}

// priorityText is the name of a priority with one, else its number.
func priorityText(p engine.Priority) string {
	switch p {
	case engine.PriorityLow:
		return "low"
	case engine.PriorityDefault:
		return "default"
	case engine.PriorityHigh:
		return "high"
	case engine.PriorityCritical:
		return "critical"
	}
	return strconv.Itoa(int(p))
}

// firstLine is the first line of a text, at most n bytes of it.
func firstLine(s string, n int) string {
	s, _, _ = strings.Cut(s, "\n")
	return cut(strings.TrimSpace(s), n)
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

var placeStates = map[inspect.Place]views.State{
	inspect.PlaceReady: views.StateReady, inspect.PlaceScheduled: views.StateScheduled, inspect.PlaceHeld: views.StateBlocked,
	inspect.PlaceRunning: views.StateRunning, inspect.PlaceRetrying: views.StateRetrying, inspect.PlaceCompleted: views.StateCompleted,
	inspect.PlaceDead: views.StateDead, inspect.PlaceCancelled: views.StateCancelled,
}

// stateOf is how a job's state shows.
func stateOf(j *inspect.Job, now time.Time) views.State {
	if !j.DiscardedAt.IsZero() {
		return views.StateDiscarded
	}
	return placeStates[j.Place(now)]
}

// stateText is a stored state as people read it.
func stateText(s engine.State) string {
	switch s {
	case engine.StatePending:
		return "waiting"
	case engine.StateBlocked:
		return "blocked"
	case engine.StateLeased:
		return "running"
	case engine.StateFailed:
		return "retrying"
	case engine.StateCompleted:
		return "completed"
	case engine.StateDeadLetter:
		return "dead"
	case engine.StateCancelled:
		return "cancelled"
	}
	return "nowhere to be found"
}

var workerStates = map[inspect.WorkerStatus]views.State{
	inspect.WorkerLive: views.StateLive, inspect.WorkerLate: views.StateLate, inspect.WorkerLost: views.StateLost,
	inspect.WorkerDraining: views.StateDraining, inspect.WorkerStopped: views.StateStopped,
}

func text(s string) []views.Span { return []views.Span{{Text: s}} }

// engineFingerprint is one that the engine has computed.
var engineFingerprint = regexp.MustCompile(`^v1:[0-9a-f]{16}$`)

// shortPrint is enough of a fingerprint to tell it from others: eight digits of one
// that the engine has computed, and the words of one that names its cause.
func shortPrint(fp string) string {
	if engineFingerprint.MatchString(fp) {
		return fp[len("v1:"):][:8]
	}
	return cut(strings.TrimPrefix(fp, "v1:"), 60)
}

func joined(list []string) string { return strings.Join(list, ", ") }
