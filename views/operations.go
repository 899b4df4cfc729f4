package views

// Operations is the list of acts on many jobs, the newest first.
type Operations struct {
	Frame Frame
	Rows  []OperationRow
	Empty *Empty
}

// OperationRow is one of them.
type OperationRow struct {
	ID, Href, Title string // "Replay 312 jobs"
	State           State
	Made            Time
	By, Reason      string
	Pace            string
	Progress        Meter
}

// OperationPage is the page of one.
type OperationPage struct {
	Frame    Frame
	Crumbs   []Crumb
	Row      OperationRow
	Notice   *Notice
	Strip    []Figure
	Facts    []Fact
	Actions  []Action
	Failures []OperationFailure
	More     bool // there are more failures than shown
}

// OperationFailure is a job that an operation passed over, or that failed again.
type OperationFailure struct {
	ID, Short, Href string
	What, Error     string
	At              Time
}
