package web

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

const password = "correct horse battery staple"

// newGuarded starts a site whose people must sign in: a viewer, an operator, an
// admin.
func newGuarded(t testing.TB) (*site, *access.Accounts) {
	t.Helper()
	var accounts *access.Accounts
	s := newConsole(t, func(c *Config) {
		c.Token = apiToken
	})
	accounts = access.New(access.Config{Pool: s.pool})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, r := range access.Roles() {
		if _, err := accounts.Create(ctx, access.UserSpec{Name: "the-" + string(r), Password: password, Role: r}, engine.Actor{Name: "test"}); err != nil {
			t.Fatalf("create %s: %v", r, err)
		}
	}
	guarded := newConsoleOn(t, s.pool, func(c *Config) { c.Token, c.Accounts = apiToken, accounts })
	return guarded, accounts
}

// signIn returns the cookie of a new session.
func (s *site) signIn(name string) string {
	s.t.Helper()
	r := s.submit("/login", url.Values{"name": {name}, "password": {password}, "return": {"/console/jobs"}})
	r.redirects("sign in", http.StatusSeeOther, "/console/jobs")
	cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	return cookie
}

// fill puts values that fit into the parameters of a route.
func fill(route, id string) string {
	return strings.NewReplacer(":id", id, ":name", "mail", ":type", "email", ":fingerprint", "fp1", ":code", "internal", "*", "nothing").Replace(route)
}

// TestNoPageIsOpenWithoutASession walks the router's own table, so that a new route
// that is open fails here.
func TestNoPageIsOpenWithoutASession(t *testing.T) {
	t.Parallel()
	s, _ := newGuarded(t)
	id := s.buried()
	before := s.fingerprint()
	mayBeOpen := map[string]bool{"GET /console/static/*": true, "GET /console/login": true, "POST /console/login": true, "POST /console/logout": true}
	walked := 0
	for _, route := range s.echo.Routes() {
		if !strings.HasPrefix(route.Path, "/console") || mayBeOpen[route.Method+" "+route.Path] {
			continue
		}
		walked++
		path := strings.TrimPrefix(fill(route.Path, id), "/console")
		headers := []string{"Content-Type", "application/x-www-form-urlencoded"}
		r := s.send(route.Method, "/console"+path, strings.NewReader("reason=x"), headers...)
		if r.status != http.StatusSeeOther || !strings.HasPrefix(r.header.Get("Location"), "/console/login") {
			t.Errorf("%s %s without a session = %d to %q, want the page to sign in", route.Method, route.Path, r.status, r.header.Get("Location"))
		}
		if strings.Contains(r.body, id) {
			t.Errorf("%s %s tells of a job", route.Method, route.Path)
		}
		for _, extra := range [][]string{{"X-Forwarded-For", "127.0.0.1"}, {"Cookie", "session=forged"}, {"Authorization", "Bearer " + apiToken}} {
			if r := s.send(route.Method, "/console"+path, nil, append(headers, extra...)...); r.status != http.StatusSeeOther && r.status != http.StatusUnauthorized {
				t.Errorf("%s %s with %s = %d", route.Method, route.Path, extra[0], r.status)
			}
		}
	}
	if walked < 25 {
		t.Errorf("only %d routes walked", walked)
	}
	s.unchanged("walking without a session", before)
	if r := s.get("/jobs", fragment("div#live")...); r.status != http.StatusUnauthorized || strings.Contains(r.body, "Live") {
		t.Errorf("a region without a session = %d, want 401", r.status)
	}
	s.get("/login").shows("the page to sign in", http.StatusOK, "Sign in", "Password")
	s.submit("/login", url.Values{"name": {"the-viewer"}, "password": {"wrong"}}).shows("a wrong password", http.StatusUnauthorized, "Name or password is wrong.")
}

// TestAViewerReadsAndActsOnNothing walks the same table as one who may only read.
func TestAViewerReadsAndActsOnNothing(t *testing.T) {
	t.Parallel()
	s, _ := newGuarded(t)
	id := s.buried()
	viewer := s.signIn("the-viewer")
	before := s.fingerprint()
	for _, route := range s.echo.Routes() {
		if !strings.HasPrefix(route.Path, "/console/") || route.Method != http.MethodPost || strings.HasSuffix(route.Path, "*") {
			continue
		}
		switch route.Path {
		case "/console/login", "/console/logout", "/console/display":
			continue
		}
		role := "operator"
		switch {
		case strings.HasPrefix(route.Path, "/console/account/"):
			continue
		case strings.HasPrefix(route.Path, "/console/access/"):
			role = "admin"
		}
		r := s.submit(strings.TrimPrefix(fill(route.Path, id), "/console"), url.Values{"reason": {"x"}, "type": {"email"}}, "Cookie", viewer)
		r.shows("POST "+route.Path+" by a viewer", http.StatusForbidden, role)
	}
	s.unchanged("a viewer's acts", before)
	page := s.get("/jobs/"+id, "Cookie", viewer)
	page.shows("a job", http.StatusOK, "the-viewer", "Viewer", "smtp")
	list := s.get("/dlq?view=jobs", "Cookie", viewer)
	list.shows("dead letters", http.StatusOK, short(id))
	page.shows("a job, to a viewer", http.StatusOK, "acting on a job and seeing what is masked needs the role operator")
	list.shows("dead letters, to a viewer", http.StatusOK, "replaying and discarding needs the role operator")
	for _, r := range []reply{page, list, s.get("/jobs", "Cookie", viewer)} {
		for _, button := range []string{"/replay", "/discard", "/cancel", "/reveal", "/jobs/new", "/console/access"} {
			if strings.Contains(r.body, button+`"`) {
				t.Errorf("a viewer is shown %s", button)
			}
		}
	}
	operator := s.signIn("the-operator")
	s.submit("/dlq/"+id+"/replay", nil, "Cookie", operator).redirects("an operator's replay", http.StatusSeeOther, "/console/jobs/"+id)
	if got := s.trail(id); !strings.HasPrefix(got, "replay the-operator console - 1 true") {
		t.Errorf("trail %q", got)
	}
}

func TestALostRightIsFeltWithTheNextRequest(t *testing.T) {
	t.Parallel()
	s, accounts := newGuarded(t)
	cookie := s.signIn("the-operator")
	s.get("/jobs", "Cookie", cookie).shows("before", http.StatusOK, "New job")
	ctx, cancel := shortly()
	defer cancel()
	if err := accounts.Edit(ctx, "the-operator", access.UserEdit{Role: new(access.RoleViewer)}, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	if r := s.get("/jobs", "Cookie", cookie); r.status != http.StatusSeeOther {
		t.Errorf("after a change of role the session = %d, want the page to sign in", r.status)
	}
	again := s.signIn("the-operator")
	s.submit("/logout", nil, "Cookie", again).redirects("sign out", http.StatusSeeOther, "/console/login")
	if r := s.get("/jobs", "Cookie", again); r.status != http.StatusSeeOther {
		t.Errorf("after signing out = %d", r.status)
	}
}

// fingerprint is everything that an act would change.
func (s *site) fingerprint() string {
	s.t.Helper()
	return s.text(`SELECT (SELECT count(*) FROM jobs)::text || ' ' || (SELECT count(*) FROM operator_actions WHERE target_kind IN ('job', 'operation')) || ' ' ||
		coalesce((SELECT string_agg(job_id::text || coalesce(discarded_at::text, ''), ',' ORDER BY job_id) FROM dead_letter_jobs), '') || ' ' ||
		coalesce((SELECT string_agg(job_id::text, ',' ORDER BY job_id) FROM job_ready), '')`)
}

func (s *site) unchanged(what, before string) {
	s.t.Helper()
	if after := s.fingerprint(); after != before {
		s.t.Errorf("%s changed %q to %q", what, before, after)
	}
}

// TestForgedFormsChangeNothing sends each unsafe route what a foreign site can make
// a browser send, with the session of one who may do everything.
func TestForgedFormsChangeNothing(t *testing.T) {
	t.Parallel()
	s, _ := newGuarded(t)
	dead, waiting := s.buried(), s.enqueue(`{"type":"email","queue":"mail"}`)
	admin := s.signIn("the-admin")
	before := s.fingerprint()
	form := url.Values{"type": {"email"}, "payload": {"{}"}, "reason": {"forged"}}.Encode()
	forgeries := map[string][]string{
		"a foreign origin":       {"Origin", "https://evil.example"},
		"origin null":            {"Origin", "null"},
		"an origin that extends": {"Origin", s.url + ".evil.example"},
		"cross-site metadata":    {"Sec-Fetch-Site", "cross-site"},
		"same-site metadata":     {"Sec-Fetch-Site", "same-site"},
		"a foreign host":         {"Host", "evil.example"},
	}
	walked := 0
	for _, route := range s.echo.Routes() {
		if !strings.HasPrefix(route.Path, "/console/") || route.Method != http.MethodPost || strings.HasSuffix(route.Path, "*") {
			continue
		}
		walked++
		id := dead
		if strings.Contains(route.Path, "cancel") || strings.Contains(route.Path, "stop") {
			id = waiting
		}
		path := fill(route.Path, id)
		for name, headers := range forgeries {
			r := s.send("POST", path, strings.NewReader(form), append([]string{"Content-Type", "application/x-www-form-urlencoded", "Cookie", admin}, headers...)...)
			if r.status != http.StatusForbidden {
				t.Errorf("POST %s with %s = %d, want 403", route.Path, name, r.status)
			}
		}
		// A form that the browser sends as text is no form; a GET with a method that
		// overrides is a GET.
		if r := s.send("POST", path, strings.NewReader(form), "Content-Type", "text/plain", "Cookie", admin); route.Path != "/console/logout" && r.status < 400 {
			t.Errorf("POST %s as text/plain = %d", route.Path, r.status)
		}
		if route.Path == "/console/logout" {
			admin = s.signIn("the-admin")
		}
		for _, override := range []string{path + "?_method=POST", path + "?_method=DELETE"} {
			s.send("GET", override, nil, "Cookie", admin, "X-HTTP-Method-Override", "POST")
		}
	}
	if walked < 7 {
		t.Errorf("only %d unsafe routes", walked)
	}
	s.unchanged("forgery", before)
}

// TestReadingChangesNothing fetches every page twice.
func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.buried()
	before := s.fingerprint()
	for range 2 {
		for _, route := range s.echo.Routes() {
			if strings.HasPrefix(route.Path, "/console") && route.Method == http.MethodGet {
				if r := s.send("GET", fill(route.Path, id), nil); r.status >= 500 {
					t.Errorf("GET %s = %d", route.Path, r.status)
				}
			}
		}
	}
	s.unchanged("reading", before)
}

func TestAConsoleWithoutSignInIsForOneMachine(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	for name, change := range map[string]func(*Config){
		"an open address": func(c *Config) { c.Addr, c.Token = "0.0.0.0:0", apiToken },
		"production":      func(c *Config) { c.Development, c.Token = false, apiToken },
		"mode none on an open address": func(c *Config) {
			c.Addr, c.Token, c.AuthMode, c.Accounts = "0.0.0.0:0", apiToken, "none", access.New(access.Config{Pool: pool})
		},
	} {
		c := Config{Engine: &engine.Client{}, Read: consoleReads(pool), Metrics: newMetrics()}
		withConsole(&c)
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: a console for everybody starts", name)
		}
	}
}
