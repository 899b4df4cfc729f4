package views

import "strings"

// look is how a state shows: always icon and word, the colour only repeats them.
type look struct{ word, icon string }

var looks = map[State]look{
	StateReady:     {"Ready", "circle-dot"},
	StateScheduled: {"Scheduled", "clock"},
	StateBlocked:   {"Blocked", "git-branch"},
	StateRunning:   {"Running", "circle-play"},
	StateRetrying:  {"Retrying", "rotate-cw"},
	StateCompleted: {"Completed", "circle-check"},
	StateDead:      {"Dead", "octagon-x"},
	StateCancelled: {"Cancelled", "ban"},
	StateDiscarded: {"Discarded", "trash"},
	StateReplayed:  {"Replayed", "rotate-ccw"},
	StateActive:    {"Active", "circle-check"},
	StatePaused:    {"Paused", "circle-pause"},
	StateLive:      {"Live", "heart-pulse"},
	StateLate:      {"Late", "triangle-alert"},
	StateLost:      {"Lost", "unplug"},
	StateDraining:  {"Draining", "log-out"},
	StateStopped:   {"Stopped", "circle-stop"},
	StateHalted:    {"Halted", "octagon-x"},
	StateDisabled:  {"Disabled", "ban"},
	StateExpired:   {"Expired", "clock"},
	StateRevoked:   {"Revoked", "ban"},
	LevelHealthy:   {"Healthy", "circle-check"},
	LevelDegraded:  {"Degraded", "triangle-alert"},
	LevelCritical:  {"Critical", "octagon-x"},
}

// Word is the state as people read it; of an unknown one, "Unknown".
func (s State) Word() string {
	if l, ok := looks[s]; ok {
		return l.word
	}
	return "Unknown"
}

func (s State) icon() string {
	if l, ok := looks[s]; ok {
		return l.icon
	}
	return "circle-help"
}

// class gives the state's colours to what stands inside the element.
func (s State) class() string {
	if _, ok := looks[s]; !ok {
		return ""
	}
	return "s-" + string(s)
}

var outcomes = map[Outcome]struct {
	word  string
	state State
	icon  string
}{
	"running":       {"Running", StateRunning, "circle-play"},
	"completed":     {"Completed", StateCompleted, "circle-check"},
	"failed":        {"Failed", StateRetrying, "rotate-cw"},
	"snoozed":       {"Snoozed", StateScheduled, "clock"},
	"handed_back":   {"Handed back", StateReady, "log-out"},
	"cancelled":     {"Cancelled", StateCancelled, "ban"},
	"lease_expired": {"Lease expired", StateDead, "unplug"},
	"crashed":       {"Crashed", StateDead, "zap"},
	"expired":       {"Expired", StateDead, "clock"},
	"timed_out":     {"Timed out", StateRetrying, "clock"},
}

func (o Outcome) word() string {
	if l, ok := outcomes[o]; ok {
		return l.word
	}
	return "Unknown"
}

func (o Outcome) state() State { return outcomes[o].state }

func (o Outcome) icon() string {
	if l, ok := outcomes[o]; ok {
		return l.icon
	}
	return "circle-help"
}

var verdicts = map[CheckVerdict]struct{ word, icon, class string }{
	"passed":         {"Clear", "check", "s-completed"},
	"failed":         {"In the way", "x", "s-dead"},
	"not_applicable": {"Not asked", "ellipsis", "muted"},
}

func (v CheckVerdict) word() string  { return verdicts[v].word }
func (v CheckVerdict) icon() string  { return verdicts[v].icon }
func (v CheckVerdict) class() string { return verdicts[v].class }

// actionIcons are the icons of the kinds of actions.
var actionIcons = map[string]string{
	"replay": "rotate-ccw", "discard": "trash", "restore": "corner", "undo": "corner", "cancel": "ban", "copy": "copy", "run_now": "zap", "download": "download",
	"pause": "circle-pause", "continue": "play", "stop": "octagon-x", "new": "plus", "view": "arrow-right", "resume": "play", "reveal": "eye", "revert": "corner", "enable": "check", "disable": "ban", "revoke": "ban", "password": "key", "end": "log-out", "refresh": "rotate-cw",
}

func (a Action) icon() string {
	if i, ok := actionIcons[a.Kind]; ok {
		return i
	}
	return "arrow-right"
}

// testID is the part of the contract with those who test in a browser.
func (a Action) testID() string {
	if a.Kind == "replay" || a.Kind == "discard" || a.Kind == "restore" || a.Kind == "cancel" || a.Kind == "stop" {
		return a.Kind
	}
	return ""
}

func (a Action) class(row bool) string {
	c := []string{"btn"}
	if row {
		c = append(c, "sm")
	}
	if a.Main && !row {
		c = append(c, "go")
	}
	if a.Icon {
		c = append(c, "icon", "bare")
	}
	if a.Harm {
		c = append(c, "harm")
	}
	return strings.Join(c, " ")
}

// asks tells whether the action leads to a page that the dialog can hold.
func (a Action) asks() bool { return !a.Post && strings.HasSuffix(a.Text, "…") }

func (t Tone) class() string { return string(t) }

// classes joins what is not empty.
func classes(list ...string) string {
	out := ""
	for _, c := range list {
		if c == "" {
			continue
		}
		if out != "" {
			out += " "
		}
		out += c
	}
	return out
}

func orDash(s string) string {
	if s == "" {
		return "—"
	}
	return s
}

func (e Event) icon() string {
	if e.Icon != "" {
		return e.Icon
	}
	return e.State.icon()
}

// busy is what a pressed button says while its request is under way.
func (a Action) busy() string {
	switch a.Kind {
	case "replay":
		return "Replaying…"
	case "discard":
		return "Discarding…"
	case "restore", "undo":
		return "Restoring…"
	case "cancel":
		return "Cancelling…"
	case "stop":
		return "Requesting…"
	case "new":
		return "Enqueuing…"
	}
	return ""
}

func lower(s string) string { return strings.ToLower(s) }

func dash(n int) string {
	switch n {
	case 1:
		return "d1"
	case 2:
		return "d2"
	}
	return ""
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// colon puts a sentence behind the verdict's word.
func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// priorities are what the filter and the form offer.
var priorities = []Field{{"", "any"}, {"5", "critical (5)"}, {"4", "4"}, {"3", "high (3)"}, {"2", "2"}, {"1", "default (1)"}, {"0", "low (0)"}}

func captionOf(what, text string) string {
	if text == "" {
		return what
	}
	return what + ": " + text
}
