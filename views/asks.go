package views

// NewJob is the form that enqueues a job by hand.
type NewJob struct {
	Frame Frame
	// CopiedFrom names the job the values came from.
	CopiedFrom Link
	Fields     JobForm
	// Problems are listed over the form, each with a link to its field.
	Problems      []Problem
	Queues, Types []string
	Command       string // the same by curl
}

// JobForm is what stands in the fields, named type, queue, payload, priority,
// run_at, max_attempts, key, tags, callback_url and copied_from.
type JobForm struct {
	Type, Queue, Payload, Priority, RunAt, MaxAttempts, Key, Tags, CallbackURL, CopiedFrom string
}

// Problem is a mistake in a field.
type Problem struct{ Field, Text string }

// System is the page about the installation.
type System struct {
	Frame    Frame
	Strip    []Figure
	Sections []Section
	Notices  []Notice
}

// Section is a titled list of facts or a table.
type Section struct {
	ID, Title, Text string
	Facts           []Fact
	Head            []string
	Rows            [][]string
}

// numeric tells a column of quantities, which is aligned at its right end: every
// cell begins with a digit.
func (s Section) numeric(column int) bool {
	for _, row := range s.Rows {
		if column >= len(row) || row[column] == "" || row[column][0] < '0' || row[column][0] > '9' {
			return false
		}
	}
	return column > 0 && len(s.Rows) > 0
}

// Help explains states, search, shortcuts and the API's problems. Its words are
// the page's own; the model adds what depends on settings.
type Help struct {
	Frame Frame
	// Problems are the API's, with anchors problem-{code}.
	Problems  []HelpProblem
	Words     []SearchWord
	Retention []Fact
}

// SearchWord is a qualifier of the search language.
type SearchWord struct{ Name, Example, Href, Means string }

// HelpProblem is a code the API answers.
type HelpProblem struct{ Code, Status, Title, Text string }

// Login is the page to sign in. Failed stands over the form; it is the same for
// unknown names and wrong passwords.
type Login struct {
	Frame  Frame
	Name   string
	Return string
	Failed string
	Hint   string // "Sessions end after 12 h idle."
	// Offers are other ways in, started by a link.
	Offers []Link
}

// Confirm asks before an act, with fresh numbers.
type Confirm struct {
	Frame  Frame
	Crumbs []Crumb
	Title  string // "Discard job 7ad1c09e?"
	// Act is what the button does; its Href is where the form goes.
	Act     Action
	Keep    Link // the way back: "Keep it"
	Warning *Notice
	Facts   []Fact
	Inputs  []Input // what else is asked for
	Reason  ReasonField
	Pace    []Choice // of an act on many
	Typed   TypedField
	Note    string // "It leaves the list; Undo works for 7 days."
	Sample  []DeadRow
	// SampleTitle heads the sample. Default "3 newest".
	SampleTitle string
	Problem     string
}

// Choice is one of several that exclude each other, maybe with a number of its own.
type Choice struct {
	Name, Value, Text, Hint string
	Checked                 bool
	Number                  string // name of the number's field
	NumberLabel             string
	NumberValue             string
}

// TypedField asks a person to type the number of jobs, so that nobody confirms
// thousands by habit.
type TypedField struct {
	Ask     bool
	Want    string
	Problem string
}

// ReasonField is the question why.
type ReasonField struct {
	Ask      bool
	Required bool
	Value    string
	Hint     string
	Problem  string
}

// ErrorPage keeps the frame and says what happened.
type ErrorPage struct {
	Frame  Frame
	Status string // "404"
	Title  string // "No job has this id"
	Text   []string
	Facts  []Fact
	Links  []Link
	// RequestID finds the reason in the server's log; empty leaves it out.
	RequestID string
	// Fresh is the state as it is now, after a conflict.
	Fresh *Fact
}
