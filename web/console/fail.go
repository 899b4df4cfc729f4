package console

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// errNoFigures is what a page says that has nothing to show yet.
var errNoFigures = errors.New("no figures could be read yet")

// Problem is what went wrong with a request, as package web has judged it.
type Problem struct {
	Status        int
	Code          string
	Title, Detail string
}

// Fail answers a request of the console that has failed: with a page that keeps
// the frame, or with what stands in a region or a dialog.
func (k *Console) Fail(c echo.Context, p Problem) error {
	setHeaders(c)
	if c.Request().Method == http.MethodHead {
		return c.NoContent(p.Status)
	}
	v := &visit{Context: c, k: k, who: k.caller(c)}
	v.clock = clock{now: k.now(c), times: "ago"}
	// A database that is away is not asked again for the frame's sake, and a caller
	// who is refused is told nothing of what stands behind.
	if p.Status != http.StatusUnauthorized && p.Status != http.StatusForbidden {
		all, trouble := k.board.glance()
		v.figures, v.trouble = all.of(v.who), trouble
	}
	m := k.problemPage(p)
	m.Frame = v.frame(m.Title, "", false)
	m.RequestID = k.RequestID(c)
	if isFragment(c) {
		return v.render(p.Status, views.ErrorSwap(m))
	}
	return v.render(p.Status, views.ErrorPageView(m))
}

func (k *Console) problemPage(p Problem) views.ErrorPage {
	m := views.ErrorPage{Status: strconv.Itoa(p.Status), Title: p.Title, Text: []string{p.Detail}}
	m.Links = []views.Link{{Text: "Overview", Href: k.url("/")}}
	switch p.Status {
	case http.StatusNotFound:
		m.Title = "Nothing is here"
		if kept, known := strings.CutPrefix(k.keptFor("RETENTION_COMPLETED"), ", kept "); known {
			m.Text = append(m.Text, "History of completed jobs: kept "+kept+".")
		}
		m.Links = append(m.Links, views.Link{Text: "Jobs", Href: k.url("/jobs")})
	case http.StatusUnauthorized:
		m.Title = "You are signed out"
		m.Links = []views.Link{{Text: "Sign in again", Href: k.url("/login")}}
	case http.StatusForbidden:
		m.Title = "You may not do this"
	case http.StatusServiceUnavailable:
		m.Title = "The database does not answer"
		if p.Code == "timeout" {
			m.Title = "This took too long"
		}
		m.Text = []string{"Nothing was lost: jobs stay where they are. Try again in a moment."}
	case http.StatusInternalServerError:
		m.Text = []string{"The request id finds the reason in the server's log."}
	}
	return m
}

// loginPage draws the page to sign in, for whoever handles it. It tells nothing of
// what stands behind.
func (k *Console) loginPage(c echo.Context, status int, p auth.LoginPage) error {
	setHeaders(c)
	v := &visit{Context: c, k: k, clock: clock{now: k.now(c), times: "ago"}}
	f := views.Frame{Base: k.Base, Path: k.url("/login"), Title: "Sign in", Env: k.Env, Display: v.display()}
	if p.PlainHTTP {
		p.Hint = "This page came unencrypted: the browser will not keep a session. Use https. " + p.Hint
	}
	return v.render(status, views.LoginPage(views.Login{Frame: f, Name: p.Name, Return: p.Next, Failed: p.Failed, Hint: p.Hint}))
}
