package views

// Frame is what stands around every page. Base and Title are required.
type Frame struct {
	Base  string // CONSOLE_BASE_PATH without a slash at its end: "/console"
	Path  string // this page's own address with its query, for the live regions and the way back
	Title string // "Jobs", "Job 0c9b5e10, charge"
	// Active is the entry of the rail: overview, jobs, queues, types, dlq, workers,
	// audit, system, help.
	Active string
	// Env is APP_ENV: development, staging, production.
	Env       string
	Version   string
	Query     string // stands in the search box
	DeadCount string // of the badge in the rail; empty shows none
	Now       Time   // when the data was read
	Live      Live
	Banners   []Banner
	Flash     *Flash
	Person    *Person // nil where no sign-in is needed
	// Lacks says what the reader may not do on this page, and which role may.
	Lacks string
	// Access has the entry Access stand in the rail; Narrow leaves out the pages that
	// tell of every queue.
	Access, Narrow bool
	Display        Display
	// SessionEnds is RFC 3339; empty where sessions do not end.
	SessionEnds string
}

// Live says whether a page follows what happens.
type Live struct {
	Off  bool   // ?live=off
	Href string // this page with the other setting
}

// Display is how a person wants pages, kept in cookies for a year, readable by
// script: console_theme, console_density, console_times, console_keys. They are
// set by POST {base}/display with the fields theme, density, times, keys and
// return, answered by 303 to return.
type Display struct {
	Theme   string // system, light, dark
	Density string // compact, comfortable
	// Times is ago ("3 min ago"), utc (clock times) or local (clock times that the
	// script puts into the reader's zone).
	Times  string
	NoKeys bool // keyboard shortcuts are off; the field keys is on or off
}

// Person is who is signed in. Role has what they are limited to: "Operator of mail".
type Person struct{ Name, Role string }

// Banner stands over every page until its cause is gone.
type Banner struct {
	State   State  // paused, degraded, critical
	Title   string // "mail is paused."
	Text    []Span
	Actions []Action
}

// Flash tells what an action did.
type Flash struct {
	Failed bool // said at once, and kept until dismissed
	Text   []Span
	Undo   *Action
}

// Overview is the first screen: five questions answered.
type Overview struct {
	Frame   Frame
	Verdict Verdict
	Day     string // "Monday 30 November 2026, UTC"
	Note    string // what a reader of some queues is not shown
	// DeadTotal and DeadNew are counts; DeadNew is of the last hour, empty for none.
	DeadTotal, DeadNew string
	// Cards in order: flow, fail, stuck, workers, changed.
	Cards []Card
	// Queues is depth per queue and state, the deepest first.
	Queues []QueueRow
	Charts []Chart
	// First stands instead of the cards on an installation without any job.
	First *Empty
}

// Verdict is the line that says whether to worry.
type Verdict struct {
	Level State
	Text  string // "325 jobs died in the last hour, 96 % with one error"
	Cause []Span // the link to the cause, since when
	Also  string // what else is wrong, in one line
}

// Card is one question of the overview.
type Card struct {
	ID       string // flow, fail, stuck, workers, changed
	Question string
	Href     string
	Figure   []Span
	Caption  string
	Spark    *Spark
	Lines    []CardLine
	Events   []Event // of "What changed?"
	Empty    string  // said when there are no lines: "Nothing failed in 5 minutes"
	Stale    string  // "no fresh data since 02:14:07 UTC"
}

// CardLine is a line of a card: on the left what, on the right how much.
type CardLine struct {
	State State // gives an icon; empty has none
	Left  []Span
	Right []Span
}

// Event is something that happened, in a feed or a timeline.
type Event struct {
	At    Time
	State State  // colour
	Icon  string // a name of the sprite; empty takes the state's
	Text  []Span
	// By is who did it, and from where; in a timeline Gap is how long it took.
	By, Gap string
	Future  bool
	ID      string // its anchor
}

// Queues is the list of queues.
type Queues struct {
	Frame   Frame
	Summary string // "6 queues, 1 paused, 1 over its wait target"
	Sorts   map[string]Sort
	Rows    []QueueRow
	Empty   *Empty
	Stale   string
}

// QueueRow is a queue in a list. Sorts of the list are by oldest, name, in, failed.
type QueueRow struct {
	Name, Href string
	State      State
	Depth      Depth
	Dead       Link // "316 dead", to its dead letters; empty for none
	Oldest     string
	OldestTone Tone
	OldestNote string // "target 60 s"
	In, Out    string // per minute
	Wait       string // "2 min 12 s", p95
	Failed     string // "25.7 %"
	FailedTone Tone
	Workers    string
	WorkerNote string // "1 lost"
	Slots      string // "40 of 40"
	Drain      string // "drains in 2 s", "not draining"
	Spark      *Spark
	Note       *Notice // its pause: who, when, why
}

// Queue is the page of one queue.
type Queue struct {
	Frame   Frame
	Crumbs  []Crumb
	Row     QueueRow
	Strip   []Figure
	Actions []Action
	Running []JobRow
	Waiting []JobRow // the first in line
	Types   []TypeRow
	Workers []WorkerRow
	History []Event // pauses and other actions on it
	Charts  []Chart
}

// Figure is a number of a strip.
type Figure struct {
	Name  string
	Value []Span
	Tone  Tone
}

// Types is the list of job types.
type Types struct {
	Frame   Frame
	Summary string
	Rows    []TypeRow
	Empty   *Empty
	Stale   string
}

// TypeRow is a job type over the last hour.
type TypeRow struct {
	Name, Href    string
	Queues        []Link
	PerMinute     string
	Runs          string
	Failed        string
	FailedTone    Tone
	P50, P95, P99 string // durations, "about" by buckets
	Workers       string // live ones with a handler
	WorkersTone   Tone
	Builds        string
	Dead          Link
	Spark         *Spark
}

// Type is the page of one job type.
type Type struct {
	Frame    Frame
	Crumbs   []Crumb
	Row      TypeRow
	Strip    []Figure
	Facts    []Fact // retry policy, timeout, what is known of it
	Handlers []WorkerRow
	Errors   []DeadGroup
	Recent   []JobRow
	Charts   []Chart
	Notices  []Notice
}

// DeadLetters is the page of dead letters in one of its three views.
type DeadLetters struct {
	Frame   Frame
	View    string // groups, jobs, discarded
	Summary []Span
	Tabs    []Tab
	Chips   []Chip
	Clear   string
	Sorts   map[string]Sort // of groups: count, first, last
	Groups  []DeadGroup
	Rows    []DeadRow
	Pager   Pager
	Empty   *Empty
	Notices []Notice // DLQ_ENABLED=false says so here
}

// DeadGroup is the dead jobs with one fingerprint.
type DeadGroup struct {
	Fingerprint  string
	Href         string // its page
	Class        string
	Message      string // cleaned of numbers and names
	Where        string // "charge in billing"
	Tags         []string
	Hot          string // "new since build 1.8.2"
	Note         string // "5 replayed once, died again 02:12"
	Count        string
	First, Last  Time
	Spark        *Spark
	Jobs         string // its jobs in the jobs view
	Actions      []Action
	SampleID     string // its newest job
	SampleHref   string
	SampleAction *Action // replay the newest, to try the cure
}

// DeadRow is a dead job in a list. After an action the same row comes back with
// its State replayed or discarded and what may be done next.
type DeadRow struct {
	ID, Short, Href string
	State           State // dead, replayed, discarded
	Type, Queue     string
	Died            Time
	Discarded       Time
	Attempts        string // "5 of 5"
	Reason          string // exhausted, permanent, poison, expired
	Class, Error    string
	Replays         string // "replayed 2×"; empty for none
	Group           Link
	Done            []Span // instead of the error, after an action: "Replayed → Ready"
	Actions         []Action
}

// DeadGroupPage is the page of one fingerprint.
type DeadGroupPage struct {
	Frame   Frame
	Crumbs  []Crumb
	Group   DeadGroup
	Strip   []Figure
	Facts   []Fact // what defines the group
	Samples []Attempt
	Rows    []DeadRow
	Pager   Pager
	Charts  []Chart
	Actions []Action
}

// Workers is the list of workers.
type Workers struct {
	Frame Frame
	Strip []Figure
	Rows  []WorkerRow
	Empty *Empty
	Stale string
}

// WorkerRow is a worker in a list, those in trouble first.
type WorkerRow struct {
	ID, Name, Href string
	Host           string // "10.4.1.23, pid 812"
	State          State
	Queues, Types  string
	Slots          Meter
	Stuck          string // "2 stuck"
	PerMinute      string
	Failed         string
	FailedTone     Tone
	Heartbeat      Time
	BeatTone       Tone
	Build          string
	Started        Time
	Note           *Notice // what was recovered from a lost one
}

// Worker is the page of one worker.
type Worker struct {
	Frame   Frame
	Crumbs  []Crumb
	Row     WorkerRow
	Strip   []Figure
	Facts   []Fact
	Running []RunRow
	Recent  []RunRow
	Notices []Notice
	Leader  bool
}

// RunRow is a run as its worker's page shows it.
type RunRow struct {
	Job      Link // short id
	ID       string
	Type     string
	Queue    string
	Attempt  string
	Token    string
	Started  Time
	Ran      string
	Lease    Time // its end
	Outcome  Outcome
	Error    string
	Prefetch bool // claimed, not yet started
}

// Audit is the trail of what people and tokens did.
type Audit struct {
	Frame  Frame
	Chips  []Chip
	Clear  string
	Filter AuditFilter
	Rows   []AuditRow
	Pager  Pager
	Empty  *Empty
	Note   string // how long entries are kept
}

// AuditFilter is the form over the trail.
type AuditFilter struct{ Actor, Action, Target string }

// AuditRow is one entry.
type AuditRow struct {
	ID      string // its anchor
	At      Time
	Actor   string
	Source  string // console, api, cli, go
	Action  string
	Target  Link
	Reason  string
	Before  string
	After   string
	Revert  *Action // the way back, for those who may go it
	Count   string
	Request string
	Address string
}
