package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// userAct is an act on one person: the question before it, and the act.
type userAct struct {
	params []string // of the address
	// ask fills in what is particular: title, button, before and after. typed is what
	// the address or the form has, bad what is wrong with it.
	ask func(v *visit, u *access.User, typed url.Values, bad map[string]string, m *views.Confirm)
	do  func(ctx context.Context, name string, form url.Values, by engine.Actor) error
}

// userActs are those there are, by the last step of their address.
func (k *Console) userActs() map[string]userAct {
	return map[string]userAct{
		"edit": {[]string{"role", "queues"}, askEdit, func(ctx context.Context, name string, form url.Values, by engine.Actor) error {
			role, queues := access.Role(form.Get("role")), readQueues(form.Get("queues"))
			return k.People.Edit(ctx, name, access.UserEdit{Role: &role, Queues: &queues}, by)
		}},
		"disable": {nil, askDisable, func(ctx context.Context, name string, _ url.Values, by engine.Actor) error {
			return k.People.Disable(ctx, name, by)
		}},
		"enable": {nil, askEnable, func(ctx context.Context, name string, _ url.Values, by engine.Actor) error {
			return k.People.Enable(ctx, name, by)
		}},
		"password": {nil, askPassword, func(ctx context.Context, name string, form url.Values, by engine.Actor) error {
			if form.Get("password") != form.Get("again") {
				return &access.RuleError{Field: "again", Detail: "differs from the first"}
			}
			return k.People.ResetPassword(ctx, name, form.Get("password"), by)
		}},
		"end-sessions": {nil, askEndSessions, func(ctx context.Context, name string, _ url.Values, by engine.Actor) error {
			return k.People.RevokeAll(ctx, name, by)
		}},
	}
}

func (k *Console) askUser(path string, act userAct) echo.HandlerFunc {
	return func(c echo.Context) error {
		q, err := query(c, act.params...)
		if err != nil {
			return err
		}
		u, err := k.readUser(c)
		if err != nil {
			return err
		}
		return k.userQuestion(c, http.StatusOK, path, act, &u, q, nil)
	}
}

// userQuestion is the page before an act on a person, as they are now.
func (k *Console) userQuestion(c echo.Context, status int, path string, act userAct, u *access.User, typed url.Values, bad map[string]string) error {
	v := k.visit(c)
	m := views.Confirm{
		Keep: views.Link{Text: "Keep as is", Href: v.userURL(u.Name)}, Problem: bad["all"],
		Reason: views.ReasonField{Ask: true, Value: typed.Get("reason"), Problem: bad["reason"]},
		Act:    views.Action{Kind: path, Href: v.userURL(u.Name) + "/" + path, Post: true, Fields: []views.Field{{Name: "version", Value: strconv.Itoa(u.Version)}}},
		Facts: []views.Fact{
			{Name: "Person", Value: []views.Span{{Text: u.Name, Href: v.userURL(u.Name)}}, Badge: v.userRow(u).State}, {Name: "Open sessions", Value: text(strconv.Itoa(u.Sessions))},
		},
	}
	act.ask(v, u, typed, bad, &m)
	m.Frame = v.frame(m.Title, "access", false)
	m.Crumbs = []views.Crumb{{Text: "People", Href: k.url("/access/users")}, {Text: u.Name, Href: v.userURL(u.Name)}, {Text: m.Act.Text}}
	return v.askWith(status, m)
}

// becomes is a fact with what is and what would be.
func becomes(name, is, willBe string) views.Fact {
	return views.Fact{Name: name, Value: []views.Span{{Text: is}, {Text: "→"}, {Text: willBe, Bold: true}}}
}

func askEdit(v *visit, u *access.User, typed url.Values, bad map[string]string, m *views.Confirm) {
	role, queues := u.Role, u.Queues
	if typed.Has("role") {
		role = access.Role(typed.Get("role"))
	}
	if typed.Has("queues") {
		queues = readQueues(typed.Get("queues"))
		slices.Sort(queues)
	}
	m.Title, m.Act.Text, m.Act.Harm = "Change what "+u.Name+" may do?", "Change", true
	name := string(role)
	if slices.Contains(access.Roles(), role) {
		name = roleName(role)
	}
	m.Facts = append(m.Facts, becomes("Role", roleName(u.Role), cut(name, 40)), becomes("Queues", queuesText(u.Queues), cut(queuesText(queues), 400)))
	m.Act.Fields = append(m.Act.Fields, views.Field{Name: "role", Value: string(role)}, views.Field{Name: "queues", Value: strings.Join(queues, ",")})
	m.Note = "Their sessions end at once: they sign in again, with the new rights. The way back is Revert, here and in the audit trail."
	switch {
	case bad["role"] != "":
		m.Problem = "The role: " + bad["role"]
	case bad["queue"] != "":
		m.Problem = "A queue: " + bad["queue"]
	case m.Problem == "" && role == u.Role && slices.Equal(queues, u.Queues):
		m.Problem = "Nothing would change. Choose another role, or other queues, on the page of " + u.Name + "."
	}
}

func askDisable(v *visit, u *access.User, _ url.Values, _ map[string]string, m *views.Confirm) {
	m.Title, m.Act.Text, m.Act.Harm = "Disable "+u.Name+"?", "Disable", true
	m.Facts = append(m.Facts, becomes("May sign in", yesNo(u.DisabledAt.IsZero()), "no"))
	m.Note = "Their sessions end at once. Their name stays in use, since the audit trail has it; Enable takes this back."
}

func askEnable(v *visit, u *access.User, _ url.Values, _ map[string]string, m *views.Confirm) {
	m.Title, m.Act.Text = "Enable "+u.Name+"?", "Enable"
	m.Facts = append(m.Facts, becomes("May sign in", yesNo(u.DisabledAt.IsZero()), "yes"))
	m.Note = "They sign in with the password that they had, as " + string(u.Role) + " of " + queuesText(u.Queues) + "."
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func askPassword(v *visit, u *access.User, _ url.Values, bad map[string]string, m *views.Confirm) {
	m.Title, m.Act.Text, m.Act.Harm = "Give "+u.Name+" a new password?", "Reset password", true
	m.Inputs = []views.Input{
		{Name: "password", Label: "New password", Kind: "password", Auto: "new-password", Required: true, Hint: passwordHint, Problem: bad["password"]},
		{Name: "again", Label: "New password again", Kind: "password", Auto: "new-password", Required: true, Problem: bad["again"]},
	}
	m.Facts = append(m.Facts, becomes("Password", "the old one", "the new one"))
	m.Note = "Their sessions end at once. Tell them the password over a way that you trust; they change it under Account."
}

func askEndSessions(v *visit, u *access.User, _ url.Values, _ map[string]string, m *views.Confirm) {
	m.Title, m.Act.Text, m.Act.Harm = "End all sessions of "+u.Name+"?", "End sessions", true
	m.Facts[1] = becomes("Open sessions", strconv.Itoa(u.Sessions), "0")
	m.Note = "They are asked to sign in with their next click. What they have done stays done."
}

func (k *Console) doUser(path string, act userAct) echo.HandlerFunc {
	return func(c echo.Context) error {
		form, err := k.form(c, smallForm)
		if err != nil {
			return err
		}
		u, err := k.readUser(c)
		if err != nil {
			return err
		}
		if !formPlain(form) {
			return badQuery("The form holds characters that no name has.")
		}
		again := func(status int, bad map[string]string) error {
			return k.userQuestion(c, status, path, act, &u, form, bad)
		}
		reason := strings.TrimSpace(form.Get("reason"))
		if !validReason(reason) {
			return again(http.StatusUnprocessableEntity, map[string]string{"reason": "At most 500 characters of plain text."})
		}
		by := k.actor(c, reason)
		if by.Version, err = seen(form); err != nil {
			return err
		}
		err = act.do(c.Request().Context(), u.Name, form, by)
		switch faults := ruleFaults(err); {
		case faults != nil:
			return again(http.StatusUnprocessableEntity, faults)
		case errors.Is(err, access.ErrLastAdmin):
			k.Acts.OperatorAction(path+" user", "refused")
			return again(http.StatusConflict, map[string]string{"all": "Not done: " + u.Name + " is the last admin of every queue. Make another one first."})
		case errors.Is(err, access.ErrUserChanged):
			k.Acts.OperatorAction(path+" user", "refused")
			return again(http.StatusConflict, map[string]string{"all": "Not done: somebody has changed " + u.Name + " since this was asked. What stands here is as it is now."})
		case err != nil:
			return err
		}
		k.Acts.OperatorAction(path+" user", "done")
		k.leave(c, note{Did: "user_" + path, ID: u.Name})
		return c.Redirect(http.StatusSeeOther, k.visit(c).userURL(u.Name))
	}
}
