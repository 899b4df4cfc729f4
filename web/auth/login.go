package auth

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

const (
	loginPath  = "/login"
	logoutPath = "/logout"
	// maxLogin bounds the form: a password of 1 KiB is 3 KiB when escaped.
	maxLogin = 16 << 10
	maxNext  = 2000
)

// LoginPage is what the page to sign in shows.
type LoginPage struct {
	// Name is what was typed, if an account may have it.
	Name string
	// Next is where the form leads to, in a field of that name or of the name return.
	Next string
	// Failed says why the last try failed. It is the same for every name.
	Failed string
	Hint   string
	// PlainHTTP warns that the browser will not keep the session: the page came
	// unencrypted from another machine, and the cookie is for HTTPS.
	PlainHTTP bool
}

// RenderLogin draws the page with a status.
type RenderLogin func(c echo.Context, status int, p LoginPage) error

// LoginForm answers GET base/login.
func (s *Sessions) LoginForm(base string, render RenderLogin) echo.HandlerFunc {
	return func(c echo.Context) error {
		noStore(c)
		next := SafeNext(base, c.QueryParam("next"))
		if in, err := s.isIn(c); err != nil {
			return err
		} else if in {
			return c.Redirect(http.StatusSeeOther, next)
		}
		return render(c, http.StatusOK, s.page(c, "", next))
	}
}

// isIn tells whether the caller needs no page to sign in.
func (s *Sessions) isIn(c echo.Context) (bool, error) {
	ctx := c.Request().Context()
	if isOpen, err := s.Open(ctx); isOpen || err != nil {
		return isOpen, err
	}
	_, err := s.Accounts.Session(ctx, s.token(c))
	if errors.Is(err, access.ErrNoSession) {
		return false, nil
	}
	return err == nil, err
}

// Login answers POST base/login: 303 to where the caller wanted to go; the page
// again with 401, or with 429 and Retry-After for one who must wait.
func (s *Sessions) Login(base string, render RenderLogin) echo.HandlerFunc {
	return func(c echo.Context) error {
		noStore(c)
		form, err := loginFields(c)
		if err != nil {
			return err
		}
		next := SafeNext(base, cmp.Or(form.Get("next"), form.Get("return")))
		isOpen, err := s.Open(c.Request().Context())
		if err != nil {
			return err
		}
		if !isOpen {
			_, err = s.SignIn(c, form.Get("name"), form.Get("password"))
		}
		if err == nil {
			return c.Redirect(http.StatusSeeOther, next)
		}
		page, status := s.page(c, form.Get("name"), next), http.StatusUnauthorized
		var throttled *access.ThrottledError
		switch {
		case errors.Is(err, access.ErrBadCredentials):
			page.Failed = "Name or password is wrong."
		case errors.As(err, &throttled):
			wait := int(math.Ceil(max(throttled.Wait.Seconds(), 1)))
			c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(wait))
			page.Failed, status = "Too many tries. Wait "+inWords(wait)+", then try again.", http.StatusTooManyRequests
		default:
			return err
		}
		return render(c, status, page)
	}
}

// Logout answers POST base/logout. Without a session it leads to the same page.
func (s *Sessions) Logout(base string) echo.HandlerFunc {
	return func(c echo.Context) error {
		noStore(c)
		if err := s.SignOut(c); err != nil {
			return err
		}
		return c.Redirect(http.StatusSeeOther, base+loginPath)
	}
}

// page is the page to sign in. What no account can be named is not shown again: it
// may be a password in the wrong field.
func (s *Sessions) page(c echo.Context, name, next string) LoginPage {
	idle, total := s.Accounts.Limits()
	p := LoginPage{Next: next, Hint: fmt.Sprintf("Sessions end after %s without use, and after %s in any case.", hours(idle), hours(total)),
		PlainHTTP: s.secure && plainHTTP(c.Request())}
	if name, err := access.CheckName(name); err == nil {
		p.Name = name
	}
	return p
}

// plainHTTP believes what a proxy says, trusted or not: it is for a warning alone.
func plainHTTP(r *http.Request) bool {
	return r.TLS == nil && r.Header.Get(echo.HeaderXForwardedProto) != "https" && !loopback(hostOnly(r.Host))
}

func hours(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0 && d > 24*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return d.Round(time.Minute).String()
}

func inWords(seconds int) string {
	switch {
	case seconds == 1:
		return "a second"
	case seconds < 120:
		return strconv.Itoa(seconds) + " seconds"
	}
	return strconv.Itoa((seconds+59)/60) + " minutes"
}

// loginFields reads the form of the body alone: a password in the address would
// stand in logs.
func loginFields(c echo.Context) (url.Values, error) {
	r := c.Request()
	kind, _, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	if err != nil || kind != echo.MIMEApplicationForm {
		return nil, &Refusal{Code: "unsupported-media-type", Detail: "Send a form, as the page does."}
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), r.Body, maxLogin))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, &Refusal{Code: "payload-too-large", Detail: "The form is larger than 16 KiB."}
	}
	if err != nil {
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, ReadError(err, "bad-query")
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, &Refusal{Code: "bad-query", Detail: "The form was not understood."}
	}
	return form, nil
}

// loginURL is the page to sign in, with the way back to what r asked for; after a
// form without a session, to the page that had it.
func loginURL(base string, r *http.Request) string {
	back := r.URL.RequestURI()
	if !safe(r.Method) {
		back = ""
		if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
			back = from.RequestURI()
		}
	}
	next := SafeNext(base, back)
	if next == base+"/" {
		return base + loginPath
	}
	return base + loginPath + "?" + url.Values{"next": {next}}.Encode()
}

// SafeNext returns where s leads if that is a page below base on this server, made
// anew from its parts; else the first page.
func SafeNext(base, s string) string {
	first := base + "/"
	u, err := url.Parse(s)
	if err != nil || len(s) > maxNext || u.Scheme != "" || u.Opaque != "" || u.Host != "" || u.User != nil ||
		strings.ContainsFunc(s+u.Path, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' }) {
		return first
	}
	if u.Path != base && !strings.HasPrefix(u.Path, first) || strings.Contains(u.Path, "//") {
		return first
	}
	for step := range strings.SplitSeq(u.Path, "/") {
		if step == "." || step == ".." {
			return first
		}
	}
	if p := strings.TrimSuffix(u.Path, "/"); p == base || p == base+loginPath || p == base+logoutPath {
		return (&url.URL{Path: first, RawQuery: queryOf(u, p == base)}).String()
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.Query().Encode()}).String()
}

func queryOf(u *url.URL, keep bool) string {
	if !keep {
		return ""
	}
	return u.Query().Encode()
}

func noStore(c echo.Context) { c.Response().Header().Set(echo.HeaderCacheControl, "no-store") }
