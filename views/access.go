package views

// Users is the list of people who may sign in.
type Users struct {
	Frame   Frame
	Tabs    []Tab
	Summary string
	Actions []Action
	Notices []Notice
	Rows    []UserRow
	Empty   *Empty
}

// UserRow is a person in a list.
type UserRow struct {
	Name, Href string
	State      State // active, disabled
	Role       string
	Queues     string // "every queue", "mail, sms"
	SignedIn   Time
	Sessions   string
	Created    Time
}

// User is the page of one person.
type User struct {
	Frame   Frame
	Crumbs  []Crumb
	Row     UserRow
	Notices []Notice
	// Roles, Queues and EditHref make the form that leads to the question before an
	// edit.
	Roles    []Choice
	Queues   string // as typed: "mail, sms"
	EditHref string
	Actions  []Action
	Sessions []SessionRow
	History  []ChangeRow
}

// ChangeRow is an act on a person or a token, with the way back.
type ChangeRow struct {
	ID      string
	At      Time
	By      string
	Action  string
	Change  string // "role: viewer → role: operator"
	Reason  string
	Revert  *Action
	Address string
}

// SessionRow is one sign-in that has not ended.
type SessionRow struct {
	ID                string
	Agent, Address    string
	Began, Used, Ends Time
	Own               bool    // the reader's very own
	End               *Action // nil where it cannot be ended by itself
}

// Tokens is the list of tokens of programs.
type Tokens struct {
	Frame   Frame
	Tabs    []Tab
	Summary string
	Actions []Action
	Rows    []TokenRow
	Empty   *Empty
}

// TokenRow is a token in a list. Its secret is nowhere.
type TokenRow struct {
	ID, Name       string
	State          State // active, expired, revoked
	Scopes, Queues string
	By             string
	Created, Used  Time
	Expires        Time
	Revoke         *Action
}

// NewToken is a token that was just made: the one page that its secret stands on.
type NewToken struct {
	Frame  Frame
	Crumbs []Crumb
	Name   string
	Secret string
	Facts  []Fact
	Back   Link
}

// Account is what a person settles for themselves.
type Account struct {
	Frame    Frame
	Facts    []Fact // who they are; none where nobody signs in
	Sessions []SessionRow
	Others   *Action // ends all sessions but this one
	Password *PasswordForm
}

// PasswordForm changes one's own password.
type PasswordForm struct {
	Href     string
	Problem  string
	Inputs   []Input
	Username string // for the password manager
}

// Input is a field of a form. Kind is text, password, check or radio; the latter
// two have Options.
type Input struct {
	Name, Label, Kind    string
	Value, Hint, Problem string
	Auto                 string // autocomplete; off by default
	Required             bool
	Options              []Choice
}

// typ is the type of its elements.
func (in Input) typ() string {
	if in.Kind == "check" {
		return "checkbox"
	}
	return choice(in.Kind, "text", "password", "radio")
}

func (in Input) auto() string {
	if in.Auto == "" {
		return "off"
	}
	return in.Auto
}

func (in Input) describedBy() string {
	if in.Problem != "" {
		return "hint-" + in.Name + " flaw-" + in.Name
	}
	return "hint-" + in.Name
}
