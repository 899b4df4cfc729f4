package console

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// mountAccount adds what is the caller's own.
func (k *Console) mountAccount(g *echo.Group, mine echo.MiddlewareFunc) {
	g.GET("/account", k.account, mine)
	if k.SignIn == nil || k.People == nil {
		return
	}
	g.POST("/account/extend", k.extend, mine)
	g.POST("/account/password", k.changePassword, mine)
	g.POST("/account/sessions/end-others", k.endOthers, mine)
	g.POST("/account/sessions/:id/end", k.endOwn, mine)
}

func (k *Console) account(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	return k.accountPage(c, http.StatusOK, passwordFaults{})
}

// passwordFaults say what is wrong with the form for a new password.
type passwordFaults struct{ all, current, password, again string }

func (k *Console) accountPage(c echo.Context, status int, bad passwordFaults) error {
	v := k.visit(c)
	m := views.Account{Frame: v.frame("Account", "account", false)}
	m.Frame.Path = k.url("/account") // also where a form was refused
	own, signedIn := auth.SessionOf(c)
	if signedIn && k.People != nil {
		list, err := k.People.Sessions(c.Request().Context(), v.who.Name)
		if err != nil {
			return err
		}
		m.Facts = []views.Fact{
			{Name: "Name", Value: text(v.who.Name)}, {Name: "Role", Value: text(roleOf(v.who))}, {Name: "Queues", Value: text(queuesText(v.who.Queues))},
			{Name: "Session ends", Value: []views.Span{{At: v.clock.due(own.EndsAt)}, {Text: "unless it is used"}}},
		}
		for i := range list {
			row := v.sessionRow(&list[i])
			if row.Own = list[i].ID == own.ID; !row.Own {
				row.End = &views.Action{Kind: "end", Text: "End", Label: "End the session from " + orWord(row.Address, "nowhere") + " of " + row.Began.Text,
					Href: k.url("/account/sessions/" + row.ID + "/end"), Post: true}
			}
			m.Sessions = append(m.Sessions, row)
		}
		if len(list) > 1 {
			m.Others = &views.Action{Kind: "end", Text: "End all others", Href: k.url("/account/sessions/end-others"), Post: true, Harm: true}
		}
		m.Password = &views.PasswordForm{Href: k.url("/account/password"), Problem: bad.all, Username: v.who.Name, Inputs: []views.Input{
			{Name: "current", Label: "Current password", Kind: "password", Auto: "current-password", Required: true, Problem: bad.current},
			{Name: "password", Label: "New password", Kind: "password", Auto: "new-password", Required: true, Hint: passwordHint, Problem: bad.password},
			{Name: "again", Label: "New password again", Kind: "password", Auto: "new-password", Required: true, Problem: bad.again},
		}}
	}
	return v.render(status, views.AccountPage(m))
}

const passwordHint = "At least 12 characters."

func (v *visit) sessionRow(s *access.Session) views.SessionRow {
	return views.SessionRow{
		ID: strconv.FormatInt(s.ID, 10), Agent: s.UserAgent, Address: s.Address, Began: v.clock.past(s.CreatedAt), Used: v.clock.past(s.UsedAt), Ends: v.clock.due(s.EndsAt),
	}
}

// extend counts as a use of the session, which puts off its end, and tells the new
// one. The page that asks stays as it is.
func (k *Console) extend(c echo.Context) error {
	if _, err := k.form(c, smallForm); err != nil {
		return err
	}
	own, signedIn := auth.SessionOf(c)
	if !signedIn {
		return notFound("Nobody needs to sign in here.")
	}
	idle, total := k.SignIn.Limits()
	ends := time.Now().Add(idle)
	if last := own.CreatedAt.Add(total); last.Before(ends) {
		ends = last
	}
	c.Response().Header().Set("Session-Ends", ends.UTC().Format(time.RFC3339))
	return c.NoContent(http.StatusNoContent)
}

func (k *Console) changePassword(c echo.Context) error {
	form, err := k.form(c, smallForm)
	if err != nil {
		return err
	}
	if _, signedIn := auth.SessionOf(c); !signedIn {
		return notFound("Nobody needs to sign in here.")
	}
	if form.Get("password") != form.Get("again") {
		return k.accountPage(c, http.StatusUnprocessableEntity, passwordFaults{again: "The two differ."})
	}
	err = k.SignIn.ChangePassword(c, form.Get("current"), form.Get("password"))
	var rule *access.RuleError
	var throttled *access.ThrottledError
	switch {
	case errors.As(err, &rule):
		return k.accountPage(c, http.StatusUnprocessableEntity, passwordFaults{password: "It " + rule.Detail + "."})
	case errors.Is(err, access.ErrBadCredentials):
		return k.accountPage(c, http.StatusUnprocessableEntity, passwordFaults{current: "This is not your password."})
	case errors.As(err, &throttled):
		wait := int(math.Ceil(max(throttled.Wait.Seconds(), 1)))
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(wait))
		return k.accountPage(c, http.StatusTooManyRequests, passwordFaults{all: "Too many tries. Wait " + plural(int64(wait), "second") + ", then try again."})
	case err != nil:
		return err
	}
	k.leave(c, note{Did: "own_password"})
	return c.Redirect(http.StatusSeeOther, k.url("/account"))
}

func (k *Console) endOthers(c echo.Context) error {
	if _, err := k.form(c, smallForm); err != nil {
		return err
	}
	if _, signedIn := auth.SessionOf(c); !signedIn {
		return notFound("Nobody needs to sign in here.")
	}
	if _, err := k.SignIn.EndOthers(c); err != nil {
		return err
	}
	k.leave(c, note{Did: "own_others"})
	return c.Redirect(http.StatusSeeOther, k.url("/account"))
}

// endOwn ends one session of the caller's. The one that they came with is ended by
// signing out.
func (k *Console) endOwn(c echo.Context) error {
	if _, err := k.form(c, smallForm); err != nil {
		return err
	}
	s, err := param(c, "id")
	if err != nil {
		return err
	}
	own, signedIn := auth.SessionOf(c)
	id, bad := strconv.ParseInt(s, 10, 64)
	if !signedIn || bad != nil || id == own.ID {
		return notFound("You have no other session of this number.")
	}
	err = k.People.Revoke(c.Request().Context(), k.caller(c).Name, id, k.actor(c, ""))
	if errors.Is(err, access.ErrNoSession) {
		return notFound("You have no other session of this number. It may have ended.")
	}
	if err != nil {
		return err
	}
	k.leave(c, note{Did: "own_session"})
	return c.Redirect(http.StatusSeeOther, k.url("/account"))
}
