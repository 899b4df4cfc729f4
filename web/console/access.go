package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// People are the accounts of those who sign in.
type People interface {
	List(ctx context.Context) ([]access.User, error)
	User(ctx context.Context, name string) (access.User, error)
	Sessions(ctx context.Context, name string) ([]access.Session, error)
	Create(ctx context.Context, s access.UserSpec, by engine.Actor) (access.User, error)
	Edit(ctx context.Context, name string, e access.UserEdit, by engine.Actor) error
	Disable(ctx context.Context, name string, by engine.Actor) error
	Enable(ctx context.Context, name string, by engine.Actor) error
	ResetPassword(ctx context.Context, name, password string, by engine.Actor) error
	Revoke(ctx context.Context, name string, id int64, by engine.Actor) error
	RevokeAll(ctx context.Context, name string, by engine.Actor) error
}

var _ People = (*access.Accounts)(nil)

// mountAccess adds the pages about who may do what.
func (k *Console) mountAccess(g *echo.Group, admin echo.MiddlewareFunc) {
	if k.People == nil {
		return
	}
	g.GET("/access", func(c echo.Context) error { return c.Redirect(http.StatusFound, k.url("/access/users")) }, admin)
	g.GET("/access/users", k.users, admin)
	g.POST("/access/users", k.createUser, admin)
	g.GET("/access/new-user", k.newUser, admin)
	g.GET("/access/users/:name", k.user, admin)
	for path, act := range k.userActs() {
		g.GET("/access/users/:name/"+path, k.askUser(path, act), admin)
		g.POST("/access/users/:name/"+path, k.doUser(path, act), admin)
	}
	if k.Tokens == nil {
		return
	}
	g.GET("/access/tokens", k.tokens, admin)
	g.POST("/access/tokens", k.createToken, admin)
	g.GET("/access/new-token", k.newToken, admin)
	g.GET("/access/tokens/:id/revoke", k.confirmRevoke, admin)
	g.POST("/access/tokens/:id/revoke", k.revokeToken, admin)
}

func (v *visit) userURL(name string) string { return v.k.url("/access/users/" + escape(name)) }

func (v *visit) accessTabs(current string) []views.Tab {
	list := []views.Tab{{Text: "People", Href: v.k.url("/access/users"), Current: current == "users"}}
	if v.k.Tokens != nil {
		list = append(list, views.Tab{Text: "Tokens", Href: v.k.url("/access/tokens"), Current: current == "tokens"})
	}
	return list
}

var roleHints = map[access.Role]string{
	access.RoleViewer: "reads, payloads masked", access.RoleOperator: "acts on jobs, queues, workers and dead letters", access.RoleAdmin: "also limits, schedules, people and tokens",
}

func roleChoices(current access.Role) []views.Choice {
	var list []views.Choice
	for _, r := range access.Roles() {
		list = append(list, views.Choice{Name: "role", Value: string(r), Text: roleName(r), Hint: roleHints[r], Checked: r == current})
	}
	slices.Reverse(list)
	return list
}

func roleName(r access.Role) string { return strings.ToUpper(string(r[:1])) + string(r[1:]) }

func queuesText(queues []string) string {
	if len(queues) == 0 {
		return "every queue"
	}
	return joined(queues)
}

// readQueues takes names apart as a person types them.
func readQueues(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
}

func (v *visit) userRow(u *access.User) views.UserRow {
	r := views.UserRow{
		Name: u.Name, Href: v.userURL(u.Name), State: views.StateActive, Role: roleName(u.Role), Queues: queuesText(u.Queues), SignedIn: v.clock.past(u.SignedInAt),
		Sessions: strconv.Itoa(u.Sessions), Created: v.clock.past(u.CreatedAt),
	}
	if !u.DisabledAt.IsZero() {
		r.State = views.StateDisabled
	}
	return r
}

func (k *Console) users(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	list, err := k.People.List(c.Request().Context())
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := views.Users{
		Frame: v.frame("People", "access", false), Tabs: v.accessTabs("users"), Summary: verb(int64(len(list)), "1 person", count(int64(len(list)))+" people"),
		Actions: []views.Action{{Kind: "new", Text: "Add a person", Href: k.url("/access/new-user"), Main: true}},
		Empty:   &views.Empty{Title: "Nobody has an account yet.", Text: "Add the first admin. From then on people sign in, and programs need tokens."},
	}
	for i := range list {
		m.Rows = append(m.Rows, v.userRow(&list[i]))
	}
	return v.render(http.StatusOK, views.UsersPage(m))
}

func (k *Console) user(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	u, err := k.readUser(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	sessions, err := k.People.Sessions(ctx, u.Name)
	if err != nil {
		return err
	}
	acts, _, err := k.Read.Audit(ctx, inspect.AuditFilter{Target: u.Name, Limit: 50})
	if err != nil {
		return err
	}
	v := k.visit(c)
	m := views.User{
		Frame: v.frame("Person "+u.Name, "access", false), Crumbs: []views.Crumb{{Text: "People", Href: k.url("/access/users")}, {Text: u.Name}}, Row: v.userRow(&u),
		Roles: roleChoices(u.Role), Queues: joined(u.Queues), EditHref: v.userURL(u.Name) + "/edit",
	}
	on := func(kind, text, path string, harm bool) {
		m.Actions = append(m.Actions, views.Action{Kind: kind, Text: text, Label: strings.TrimSuffix(text, "…") + ": " + u.Name, Href: v.userURL(u.Name) + "/" + path, Harm: harm})
	}
	on("password", "Reset password…", "password", false)
	if len(sessions) > 0 {
		on("end", "End sessions…", "end-sessions", true)
	}
	if u.DisabledAt.IsZero() {
		on("disable", "Disable…", "disable", true)
	} else {
		on("enable", "Enable…", "enable", false)
	}
	for i := range sessions {
		m.Sessions = append(m.Sessions, v.sessionRow(&sessions[i]))
	}
	for i := range acts {
		if a := &acts[i]; a.TargetKind == "user" && a.Target == u.Name {
			m.History = append(m.History, v.changeRow(a))
		}
	}
	return v.render(http.StatusOK, views.UserPage(m))
}

// readUser reads the person of the path.
func (k *Console) readUser(c echo.Context) (access.User, error) {
	name, err := param(c, "name")
	if err != nil {
		return access.User{}, err
	}
	u, err := k.People.User(c.Request().Context(), name)
	if errors.Is(err, access.ErrUserNotFound) {
		return u, notFound("Nobody has the name " + quoted(name) + ".")
	}
	return u, err
}

func (v *visit) changeRow(a *inspect.Action) views.ChangeRow {
	row := v.auditRow(a)
	r := views.ChangeRow{ID: row.ID, At: row.At, By: row.Actor + ", " + row.Source, Action: row.Action, Reason: row.Reason, Revert: row.Revert}
	r.Change = strings.TrimSpace(row.Before + " → " + row.After)
	if row.Before == "" && row.After == "" {
		r.Change = ""
	}
	return r
}

// revertOf is the way back from an act on access: the question that would undo it,
// with what was before filled in. nil where there is none, or for those who may not
// go it.
func (v *visit) revertOf(a *inspect.Action) *views.Action {
	if !v.mayAccess() {
		return nil
	}
	act := &views.Action{Kind: "revert", Text: "Revert…", Label: "Revert " + a.Action + " of " + cut(a.Target, 80)}
	switch {
	case a.TargetKind == "token" && a.Action == "create" && v.k.Tokens != nil:
		act.Href = v.k.url("/access/tokens/" + escape(a.Target) + "/revoke")
	case a.TargetKind != "user":
		return nil
	case a.Action == "disable":
		act.Href = v.userURL(a.Target) + "/enable"
	case a.Action == "enable" || a.Action == "create":
		act.Href = v.userURL(a.Target) + "/disable"
	case a.Action == "edit":
		var was struct {
			Role   *string   `json:"role"`
			Queues *[]string `json:"queues"`
		}
		if json.Unmarshal(a.Before, &was) != nil {
			return nil
		}
		q := url.Values{}
		if was.Role != nil {
			q.Set("role", *was.Role)
		}
		if strings.Contains(string(a.Before), `"queues"`) { // null is every queue
			q.Set("queues", "")
			if was.Queues != nil {
				q.Set("queues", strings.Join(*was.Queues, ","))
			}
		}
		act.Href = v.userURL(a.Target) + "/edit?" + q.Encode()
	default:
		return nil
	}
	return act
}

func (k *Console) newUser(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	return k.newUserPage(c, http.StatusOK, url.Values{"role": {string(access.RoleViewer)}}, nil)
}

// newUserPage is the form for a new account: what was typed, less the passwords, and
// what is wrong with it, by field.
func (k *Console) newUserPage(c echo.Context, status int, form url.Values, bad map[string]string) error {
	v := k.visit(c)
	title := "Add a person"
	m := views.Confirm{
		Frame: v.frame(title, "access", false), Crumbs: []views.Crumb{{Text: "People", Href: k.url("/access/users")}, {Text: title}}, Title: title,
		Act:  views.Action{Kind: "new", Text: title, Href: k.url("/access/users"), Post: true},
		Keep: views.Link{Text: "Cancel", Href: k.url("/access/users")}, Reason: views.ReasonField{Ask: true, Value: form.Get("reason"), Problem: bad["reason"]},
		Problem: bad["all"],
	}
	if v.who.Kind == auth.KindAnonymous {
		m.Warning = &views.Notice{State: views.StateLate, Title: "With the first account, everybody must sign in.", Text: text("Make it an admin's: you sign in with it next.")}
	}
	m.Inputs = []views.Input{
		{Name: "name", Label: "Name", Kind: "text", Value: form.Get("name"), Required: true, Problem: bad["name"], Hint: "1 to 64 letters, digits, dots, hyphens, underscores or @."},
		{Name: "role", Label: "Role", Kind: "radio", Options: roleChoices(access.Role(form.Get("role"))), Problem: bad["role"]},
		{Name: "queues", Label: "Queues", Kind: "text", Value: form.Get("queues"), Problem: bad["queue"], Hint: "Separated by commas. Empty is every queue."},
		{Name: "password", Label: "Password", Kind: "password", Auto: "new-password", Required: true, Problem: bad["password"], Hint: passwordHint},
		{Name: "again", Label: "Password again", Kind: "password", Auto: "new-password", Required: true, Problem: bad["again"]},
	}
	return v.askWith(status, m)
}

func (k *Console) createUser(c echo.Context) error {
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	if !formPlain(form) {
		return badQuery("The form holds characters that no name has.")
	}
	spec := access.UserSpec{Name: form.Get("name"), Password: form.Get("password"), Role: access.Role(form.Get("role")), Queues: readQueues(form.Get("queues"))}
	bad := map[string]string{}
	reason := strings.TrimSpace(form.Get("reason"))
	if !validReason(reason) {
		bad["reason"] = "At most 500 characters of plain text."
	}
	if form.Get("again") != spec.Password {
		bad["again"] = "The two differ."
	}
	if k.caller(c).Kind == auth.KindAnonymous && (spec.Role != access.RoleAdmin || len(spec.Queues) > 0) {
		if list, err := k.People.List(c.Request().Context()); err != nil {
			return err
		} else if len(list) == 0 {
			bad["role"] = "The first account must be an admin of every queue: nobody could make another."
		}
	}
	if len(bad) > 0 {
		return k.newUserPage(c, http.StatusUnprocessableEntity, form, bad)
	}
	made, err := k.People.Create(c.Request().Context(), spec, k.actor(c, reason))
	switch faults := ruleFaults(err); {
	case faults != nil:
		return k.newUserPage(c, http.StatusUnprocessableEntity, form, faults)
	case errors.Is(err, access.ErrUserExists):
		return k.newUserPage(c, http.StatusConflict, form, map[string]string{"name": "Somebody has this name, perhaps disabled."})
	case err != nil:
		return err
	}
	k.Acts.OperatorAction("create user", "done")
	k.leave(c, note{Did: "user_create", ID: made.Name})
	return c.Redirect(http.StatusSeeOther, k.visit(c).userURL(made.Name))
}

// formPlain tells whether all but the passwords of a form can be shown again.
func formPlain(form url.Values) bool {
	for name, values := range form {
		if name == "reason" || name == "password" || name == "again" {
			continue
		}
		for _, s := range values {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 && !strings.ContainsRune("\t\r\n", r) || r == 0x7f }) {
				return false
			}
		}
	}
	return true
}

// ruleFaults are the rules that an error names, by field; nil if it names none.
func ruleFaults(err error) map[string]string {
	var bad map[string]string
	var find func(error)
	find = func(err error) {
		var rule *access.RuleError
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				find(e)
			}
			return
		}
		if errors.As(err, &rule) {
			if bad == nil {
				bad = map[string]string{}
			}
			bad[rule.Field] = "It " + rule.Detail + "."
		}
	}
	find(err)
	return bad
}

// accessDone are the acts on access that a note may tell of.
var accessDone = map[string]string{
	"user_create": "was added.", "user_edit": "has another role or other queues. Their sessions have ended.", "user_disable": "was disabled. Their sessions have ended.",
	"user_enable": "may sign in again.", "user_password": "has a new password. Their sessions have ended.", "user_end-sessions": "has no open session any more.",
	"token_revoke": "was revoked. Servers forget it within " + span(auth.TokenMemory) + ".",
	"own_password": "Your password was changed. Your other sessions have ended.", "own_others": "Your other sessions have ended.", "own_session": "The session has ended.",
}

func (k *Console) accessFlash(n note) *views.Flash {
	said, known := accessDone[n.Did]
	switch {
	case !known:
		return nil
	case strings.HasPrefix(n.Did, "own_"):
		return &views.Flash{Text: text(said)}
	}
	name, err := access.CheckName(n.ID)
	if err != nil {
		return nil
	}
	who := views.Span{Text: name, Bold: true}
	if strings.HasPrefix(n.Did, "user_") {
		who = views.Span{Text: name, Href: k.url("/access/users/" + escape(name))}
	}
	return &views.Flash{Text: []views.Span{who, {Text: said}}}
}
