package views

import (
	"slices"
	"strings"
)

// Time is an instant as a page prints it. The zero value prints a dash.
type Time struct {
	// ISO is RFC 3339 in UTC, the datetime attribute: "2026-11-30T02:14:07Z".
	ISO string
	// Text is what stands in the line: "3 min ago", "in 21 s", "02:14:07".
	Text string
	// Full is the instant with its zone, "30 Nov 2026, 02:14:07 UTC". It shows on
	// hover and focus.
	Full string
}

// Link is text that leads somewhere. Without Href it is text alone.
type Link struct{ Text, Href string }

// State is the key of a job's, queue's or worker's state, or of the verdict. It
// decides word, icon and colour together; see [State.Word].
type State string

// The states of jobs. StateReady and StateScheduled are both stored as pending;
// StateBlocked stands for held jobs too.
const (
	StateReady     State = "ready"
	StateScheduled State = "scheduled"
	StateBlocked   State = "blocked"
	StateRunning   State = "running"
	StateRetrying  State = "retrying"
	StateCompleted State = "completed"
	StateDead      State = "dead"
	StateCancelled State = "cancelled"
)

// The states of dead letters that an operator has dealt with.
const (
	StateDiscarded State = "discarded"
	StateReplayed  State = "replayed"
)

// The states of queues and workers.
const (
	StateActive   State = "active"
	StatePaused   State = "paused"
	StateLive     State = "live"
	StateLate     State = "late"
	StateLost     State = "lost"
	StateDraining State = "draining"
	StateStopped  State = "stopped"
	StateHalted   State = "halted"
)

// The states of people and tokens, besides active.
const (
	StateDisabled State = "disabled"
	StateExpired  State = "expired"
	StateRevoked  State = "revoked"
)

// The levels of the verdict.
const (
	LevelHealthy  State = "healthy"
	LevelDegraded State = "degraded"
	LevelCritical State = "critical"
)

// Outcome is how a run ended, the engine's word: completed, failed, snoozed,
// handed_back, cancelled, lease_expired, crashed, expired, timed_out; running
// while it goes on.
type Outcome string

// Tone colours one figure or word. The zero value leaves it as text.
type Tone string

// The tones: Up for what is bad and rising, Warn for what wants a look, Good for
// what was mended, Hush for what waits on purpose, Muted for what matters less.
const (
	ToneUp    Tone = "up"
	ToneWarn  Tone = "warn"
	ToneGood  Tone = "good"
	ToneHush  Tone = "hush"
	ToneMuted Tone = "muted"
)

// Span is a piece of a line or a figure: "4" big and "min" small, or a word with
// a link, or code.
type Span struct {
	Text  string
	Href  string
	Tone  Tone
	Small bool // in a figure: the unit
	Bold  bool
	Code  bool
	Quote bool // a person's own words: a reason
	At    Time // instead of Text
}

// Fact is a line of a list of facts: a name and what stands for it.
type Fact struct {
	Name  string
	Value []Span
	// Copy is what the copy button beside it takes, whole. None: no button.
	Copy string
	// Badge puts the state's icon and word behind the value.
	Badge State
}

// Tab is one of several views of a page.
type Tab struct {
	Text, Href string
	Count      string // "10,000+"; empty shows none
	State      State  // gives the tab its icon; empty has none
	Current    bool
}

// Chip is one part of the query, with the link that takes it out. Without Remove
// it is a suggestion, and Href puts it in.
type Chip struct {
	Key, Value   string // "queue", "billing"
	Count        string
	Remove, Href string
	Default      bool // set by the page itself, not by the person: drawn dashed
}

// Sort is a column that can be sorted by. Dir is "ascending", "descending" or
// empty when another column sorts.
type Sort struct{ Href, Dir string }

// Pager is the foot of a list. An empty href means there is no such page.
type Pager struct {
	// Text says what is shown: "1–50 of 462", "50 jobs, older ones follow".
	Text         string
	Newer, Older string
	// Size and SizeHref offer another page size: "100 a page".
	Size, SizeHref string
	// Stopped says that the time for looking was over: "searched back to 01:32
	// UTC". The older page goes on from there.
	Stopped string
}

// Empty is what stands where a list would be: what is absent, why, and the next
// step. Commands are shown ready to copy.
type Empty struct {
	Title, Text string
	Links       []Link
	Commands    []string
}

// Notice is a box that warns or tells. State gives colour and icon.
type Notice struct {
	State State
	Title string
	Text  []Span
}

// Crumb is a step of the way to a page; the last one has no Href.
type Crumb = Link

// Action is something that can be done to what the page shows. Post actions are
// forms that act at once; the others lead to a page that asks first.
type Action struct {
	// Kind is replay, discard, restore, cancel, copy, download, new, view. It gives
	// icon, shortcut and data-testid.
	Kind string
	Text string // "Replay", "Discard…": the ellipsis means another step follows
	// Label names the action and its object for those who hear the page:
	// "Replay job 0c9b5e10".
	Label string
	Href  string
	Post  bool
	// Fields are sent along, the version of the row among them.
	Fields []Field
	Main   bool // the one filled button of a page
	Harm   bool
	Icon   bool // a row's second action: the icon alone, named by Label
}

// Field is a hidden input.
type Field struct{ Name, Value string }

// Spark is a small drawing of the last hour or day. Label says in a sentence what
// it shows.
type Spark struct {
	State  State
	Label  string
	Values []float64
	Ghost  []float64 // a second, dashed line: what came in
	// Max is the top of the scale; 0 takes the largest value.
	Max  float64
	Bars bool // counts per span instead of a line
	Pins bool // moments instead of a line: what is not zero
}

// Segment is a part of a depth bar.
type Segment struct {
	State State
	N     int64
	Count string // "2,071"
}

// Depth is the jobs of a queue by state. Scale is what a full bar stands for, the
// same for all queues of a page; 0 takes the sum.
type Depth struct {
	Segments []Segment
	Scale    int64
}

// Meter is slots busy of slots there are.
type Meter struct {
	Busy, Total int64
	Text        string // "11 of 20"
}

// Chart is a drawing over time with its numbers beneath. Title is the finding,
// newest value in words: "Wait p95 about 1.8 s, up from 0.4 s an hour ago".
type Chart struct {
	ID     string // "throughput", "wait"
	Title  string
	Stale  string // instead of the drawing: "no fresh data since 02:14:07 UTC"
	Series []Series
	YTicks []Tick // from the zero line up
	XTicks []Tick // Value counts points from the left
	Marks  []Mark
	Head   []string   // of the numbers: "Minute (UTC)", "Enqueued"
	Rows   [][]string // newest first
}

// Series is one line of a chart. NaN leaves a gap. Dash is 0 to 2, so that lines
// differ without colour.
type Series struct {
	Name   string
	State  State
	Values []float64
	Dash   int
	Area   bool
}

// Tick is a place on an axis.
type Tick struct {
	Value float64
	Text  string
}

// Mark is a moment in a chart: a build, a pause.
type Mark struct {
	Value float64 // points from the left
	Text  string
}

// commandLabel names a command by its program, since several may stand on a page.
func commandLabel(c string) string {
	program, _, _ := strings.Cut(c, " ")
	return program + " command"
}

// measured tells whether any worker comes with what it has done.
func measured(rows []WorkerRow) bool {
	return slices.ContainsFunc(rows, func(r WorkerRow) bool { return r.PerMinute != "" || r.Failed != "" })
}
