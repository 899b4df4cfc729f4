package views

// storyAccess is the pages about who may do what, and the reader's own.
func storyAccess() []storyPage {
	frame := func(title, active, path string) Frame {
		f := storyFrame(title, active, path)
		f.Person, f.Access, f.Live = &Person{Name: "head", Role: "Admin"}, true, Live{}
		return f
	}
	tabs := func(current string) []Tab {
		return []Tab{{Text: "People", Href: "/console/access/users", Current: current == "users"}, {Text: "Tokens", Href: "/console/access/tokens", Current: current == "tokens"}}
	}
	rows := []UserRow{
		{Name: "head", Href: "/console/access/users/head", State: StateActive, Role: "Admin", Queues: "every queue", SignedIn: at("01:40:02", "34 min ago"), Sessions: "1", Created: at("00:00:00", "2 days ago")},
		{Name: "oncall-eu", Href: "/console/access/users/oncall-eu", State: StateActive, Role: "Operator", Queues: "mail, " + longQueue, SignedIn: at("02:07:30", "7 min ago"), Sessions: "2", Created: at("00:00:00", "2 days ago")},
		{Name: "gone", Href: "/console/access/users/gone", State: StateDisabled, Role: "Viewer", Queues: "every queue", Sessions: "0", Created: at("00:00:00", "2 days ago")},
	}
	users := Users{Frame: frame("People", "access", "/access/users"), Tabs: tabs("users"), Summary: "3 people", Rows: rows, Actions: []Action{{Kind: "new", Text: "Add a person", Href: "/console/access/new-user", Main: true}}}
	sessions := []SessionRow{
		{ID: "7", Agent: "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36", Address: "10.0.0.8", Began: at("02:07:30", "7 min ago"), Used: at("02:13:50", "17 s ago"), Ends: at("14:13:50", "in 12 h"), Own: true},
		{ID: "6", Agent: "Mozilla/5.0 (iPhone)", Address: "10.0.0.9", Began: at("01:00:00", "1 h ago"), Used: at("01:20:00", "54 min ago"), Ends: at("13:20:00", "in 11 h"), End: &Action{Kind: "end", Text: "End", Label: "End the session from 10.0.0.9", Href: "/console/account/sessions/6/end", Post: true}},
	}
	user := User{
		Frame: frame("Person oncall-eu", "access", "/access/users/oncall-eu"), Crumbs: []Crumb{{"People", "/console/access/users"}, {Text: "oncall-eu"}}, Row: rows[1], Queues: "mail", EditHref: "/console/access/users/oncall-eu/edit",
		Roles:    []Choice{{Value: "viewer", Text: "Viewer", Hint: "reads"}, {Value: "operator", Text: "Operator", Hint: "acts", Checked: true}},
		Actions:  []Action{{Kind: "password", Text: "Reset password…", Label: "Reset password: oncall-eu", Href: "/console/access/users/oncall-eu/password"}, {Kind: "disable", Text: "Disable…", Label: "Disable: oncall-eu", Href: "/console/access/users/oncall-eu/disable", Harm: true}},
		Sessions: sessions, History: []ChangeRow{
			{ID: "e9", At: at("01:40:02", "34 min ago"), By: "head, console", Action: "edit", Change: "queues: null, role: viewer → queues: [mail], role: operator", Reason: "on call this week", Revert: &Action{Kind: "revert", Text: "Revert…", Label: "Revert edit of oncall-eu", Href: "/console/access/users/oncall-eu/edit?role=viewer"}},
			{ID: "e8", At: at("00:00:00", "2 h ago"), By: "oncall-eu, console", Action: "sign_in"},
		},
	}
	tokens := Tokens{Frame: frame("Tokens", "access", "/access/tokens"), Tabs: tabs("tokens"), Summary: "2 tokens", Actions: []Action{{Kind: "new", Text: "New token", Href: "/console/access/new-token", Main: true}}, Rows: []TokenRow{
		{ID: "4fJ0aQ2x", Name: "mailer", State: StateActive, Scopes: "jobs:read, jobs:write", Queues: "mail", By: "head", Created: at("00:00:00", "2 h ago"), Used: at("02:13:00", "1 min ago"), Expires: at("14:00:00", "in 12 h"), Revoke: &Action{Kind: "revoke", Text: "Revoke…", Label: "Revoke token mailer", Href: "/console/access/tokens/4fJ0aQ2x/revoke", Harm: true}},
		{ID: "9hK2bW7y", Name: "ci", State: StateRevoked, Scopes: "admin", Queues: "every queue", By: "root@host", Created: at("00:00:00", "2 h ago")},
	}}
	made := NewToken{Frame: frame("Token mailer", "access", "/access/tokens"), Crumbs: []Crumb{{"Tokens", "/console/access/tokens"}, {Text: "mailer"}}, Name: "mailer", Secret: "rje_4fJ0aQ2x0000000000000000000000000000000000", Facts: []Fact{{Name: "Scopes", Value: plain("jobs:write")}}, Back: Link{"Done, I have copied it", "/console/access/tokens"}}
	account := Account{Frame: frame("Account", "account", "/account"), Facts: []Fact{{Name: "Name", Value: plain("head")}, {Name: "Role", Value: plain("Admin")}}, Sessions: sessions, Others: &Action{Kind: "end", Text: "End all others", Href: "/console/account/sessions/end-others", Post: true, Harm: true},
		Password: &PasswordForm{Href: "/console/account/password", Problem: "Too many tries.", Username: "head", Inputs: []Input{{Name: "current", Label: "Current password", Kind: "password", Auto: "current-password", Required: true, Problem: "This is not your password."}, {Name: "password", Label: "New password", Kind: "password", Auto: "new-password", Required: true, Hint: "At least 12 characters."}}}}
	add := Confirm{Frame: frame("New token", "access", "/access/new-token"), Crumbs: []Crumb{{"Tokens", "/console/access/tokens"}, {Text: "New token"}}, Title: "New token", Act: Action{Kind: "new", Text: "Make the token", Href: "/console/access/tokens", Post: true}, Keep: Link{"Cancel", "/console/access/tokens"}, Reason: ReasonField{Ask: true},
		Inputs: []Input{{Name: "name", Label: "Name", Kind: "text", Required: true, Problem: "It must be 1 to 64 letters."}, {Name: "scope", Label: "Scopes", Kind: "check", Options: []Choice{{Value: "jobs:read", Text: "jobs:read", Hint: "reads", Checked: true}, {Value: "admin", Text: "admin", Hint: "does all"}}}, {Name: "role", Label: "Role", Kind: "radio", Options: []Choice{{Value: "viewer", Text: "Viewer", Hint: "reads", Checked: true}}}}}
	return []storyPage{
		{"access-users", UsersPage(users), nil}, {"access-user", UserPage(user), nil}, {"access-tokens", TokensPage(tokens), nil}, {"access-new-token", ConfirmPage(add), ConfirmDialog(add)},
		{"access-token-made", NewTokenPage(made), nil}, {"account", AccountPage(account), nil},
	}
}
