package views

import "strconv"

// JobsList is the list of jobs.
type JobsList struct {
	Frame   Frame
	Tabs    []Tab
	Chips   []Chip
	Clear   string // the list without its filters; empty shows no link
	Filter  JobsFilter
	Count   string // "462 jobs, newest first"
	Rows    []JobRow
	Pager   Pager
	Empty   *Empty
	Problem *Mistake // the query was not understood (400)
	Actions []Action
}

// Mistake is a query that was not understood: what was expected, and where.
type Mistake struct{ Before, Marked, After, Text string }

// JobsFilter is the form over the list. Queues and Types fill its suggestions.
type JobsFilter struct {
	Type, Queue, Priority, Tag string
	Rest                       string // of the query, which the form has no field for
	Queues, Types              []string
	Open                       bool
}

// JobRow is a job in a list.
type JobRow struct {
	ID, Short, Href string // Short is the last eight characters
	State           State
	Type, Queue     string
	TypeHref        string
	QueueHref       string
	Priority        string // "high"; default is drawn muted
	Attempt, Max    string
	Created         Time
	Due             Time // zero when it does not wait
	Duration        string
	Error           string // its first line
}

// Job is the page of one job.
type Job struct {
	Frame     Frame
	Crumbs    []Crumb
	ID, Short string
	Type      string
	State     State
	// Standing says how a dead job stands, and what that rests on; Why is nil once a
	// job has ended.
	Standing, StandingText string
	Why                    *Why
	Actions                []Action
	Running                bool // follow it every 2 s instead of 5
	// Progress and Live, the end of its log, are those of the run that goes on.
	Progress     *Progress
	Live         []LogLine
	Notices      []Notice
	Timeline     Timeline
	AttemptsText string // "3 of 5 used, 1 run lost"
	Attempts     []Attempt
	AttemptsCut  string // "the latest 1,000 of 2,310 runs"
	Payload      JSON
	Result       *JSON // nil while there is none
	ResultText   string
	Activity     []Event
	API          JSON // exactly the API's body
	Facts        []Fact
	Related      []Fact
}

// Why says why a job is not running: the headline with what helps, then every check.
type Why struct {
	Title   string // the question
	Text    string
	State   State
	Actions []Action
	Checks  []WhyCheck
}

// asked are the checks that say something, or those that do not matter where the
// job stands.
func (w Why) asked(matters bool) []WhyCheck {
	var list []WhyCheck
	for _, c := range w.Checks {
		if (c.Verdict != "not_applicable") == matters {
			list = append(list, c)
		}
	}
	return list
}

func (w Why) restText(n int) string {
	if n == 1 {
		return "1 check that does not matter now"
	}
	return strconv.Itoa(n) + " checks that do not matter now"
}

// CheckVerdict is how a check came out: passed, failed or not_applicable.
type CheckVerdict string

// WhyCheck is one thing that could be in the job's way. Code is the API's name of it.
type WhyCheck struct {
	Code     string
	Verdict  CheckVerdict
	Text     string
	Evidence []Fact
}

// Progress is how far a run says it has come.
type Progress struct {
	Share   float64 // 0 to 1
	Percent string  // "40 %"
	Text    string
}

// Timeline is a job's life, to scale and as a list, newest first.
type Timeline struct {
	Text   string // "5 min 36 s so far: 3 min 42 s waiting, 1 min 20 s running"
	Label  string // what the drawing shows, in a sentence
	Lanes  []Lane
	Ticks  []PlaceMark
	Now    float64 // 0 to 1; negative when the job has ended
	Events []Event
	Cut    string // "the latest 200 of 2,310 events"
}

// Lane is a row of the drawing: waiting, running, backoff.
type Lane struct {
	Name string
	Bars []LaneBar
}

// LaneBar is a stretch of a lane. From and To are 0 to 1 of the drawing's width.
type LaneBar struct {
	State    State
	From, To float64
	Text     string // "1", "lost"
}

// PlaceMark is a tick under the drawing, At 0 to 1.
type PlaceMark struct {
	At   float64
	Text string
	Odd  bool // left out where it is narrow
}

// Attempt is one run of a job, with its evidence.
type Attempt struct {
	Anchor  string // "a3"; a run that did not count: "r1"
	Title   string // "3 of 5", "not counted"
	Run     string // "run 4"
	Outcome Outcome
	Worker  Link
	Build   string
	Token   string
	Started Time
	Wait    string
	Ran     string
	Open    bool
	Lease   string // while it runs: "lease ends in 12 s"
	Told    string // how far it had come: "40 %, page 4"

	ErrorClass, Error string
	Group             Link // "fp 9f3c1a2b", to its dead letters
	// OwnFrames are shown, OtherFrames folded under OtherText: "11 more frames:
	// engine, net/http, runtime".
	OwnFrames, OtherFrames []StackFrame
	OtherText              string
	Stack                  string // as stored, for the copy button
	Logs                   []LogLine
	LogsText               string // "5 lines", "the last 1,000 of 1,204 lines"
	Refused                []Event
	HasResult              bool
}

// StackFrame is a function and where it stands.
type StackFrame struct{ Func, At string }

// LogLine is a line a handler wrote.
type LogLine struct {
	N      string // the line's number in the run: "17"
	Anchor string // "a3-l17"
	At     Time
	Level  string // debug, info, warn, error
	Text   string
	Fields string // `customer=c_48122 amount=12900`
}
