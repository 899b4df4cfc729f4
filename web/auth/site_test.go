package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

const (
	right = "correct horse battery"
	wrong = "incorrect horse battery"
)

// site is one server with a page, a form and an API call behind sign-in.
type site struct {
	t        *testing.T
	h        http.Handler
	accounts *access.Accounts
	acts     int // forms and calls that got through
	who      Principal
}

var cli = engine.Actor{Name: "root@host", Source: "cli"}

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	t.Parallel()
	return dbtest.New(t)
}

func newSite(t *testing.T, pool *pgxpool.Pool, c SessionsConfig, token string) *site {
	t.Helper()
	st := &site{t: t, accounts: access.New(access.Config{Pool: pool, Hashing: 2})}
	if c.Addr == "" {
		c.Addr = "127.0.0.1:8080"
	}
	c.Accounts = st.accounts
	sessions, err := NewSessions(c)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := New(Config{Addr: "127.0.0.1:8080", Development: true, PublicURL: c.PublicURL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		status := http.StatusInternalServerError
		var refusal *Refusal
		if errors.As(err, &refusal) {
			status = map[string]int{"unauthenticated": 401, "forbidden": 403, "unsupported-media-type": 415, "payload-too-large": 413, "bad-query": 400}[refusal.Code]
		}
		if err := c.String(status, err.Error()); err != nil {
			t.Error(err)
		}
	}
	e.Use(guard.SameOrigin)
	draw := func(c echo.Context, status int, p LoginPage) error {
		return c.JSON(status, p)
	}
	page := func(c echo.Context) error { st.who = Caller(c); return c.String(http.StatusOK, "hello "+st.who.Name) }
	act := func(c echo.Context) error { st.acts++; return page(c) }
	g := e.Group("/console", sessions.RequireSession("/console"))
	g.GET("/login", sessions.LoginForm("/console", draw))
	g.POST("/login", sessions.Login("/console", draw))
	g.POST("/logout", sessions.Logout("/console"))
	g.GET("/jobs", page)
	g.POST("/jobs", act)
	api := e.Group("", sessions.RequireToken(guard))
	api.POST("/api/v1/jobs", act)
	api.GET(MetricsPath, page)
	api.GET("/healthz", page)
	st.h = e
	return st
}

func (s *site) create(name string, role access.Role) {
	s.t.Helper()
	if _, err := s.accounts.Create(s.t.Context(), access.UserSpec{Name: name, Password: right, Role: role}, cli); err != nil {
		s.t.Fatal(err)
	}
}

// ask sends one request. headers are "Name: value".
func (s *site) ask(method, target, body string, headers ...string) *http.Response {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8080"
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	return w.Result()
}

func credentials(name, password string, more ...string) string {
	form := url.Values{"name": {name}, "password": {password}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form.Encode()
}

// signIn returns the header of a signed-in browser.
func (s *site) signIn(name string, headers ...string) string {
	s.t.Helper()
	res := s.ask("POST", "/console/login", credentials(name, right), headers...)
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		s.t.Fatalf("sign in %s: %d, cookies %v", name, res.StatusCode, res.Cookies())
	}
	return "Cookie: " + res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
}
