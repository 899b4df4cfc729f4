package auth

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

func TestPagesNeedASession(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Mode: ModeLocal, Development: true}, "")
	s.create("ann", access.RoleOperator)
	for _, cookie := range []string{"", "Cookie: session=", "Cookie: session=" + strings.Repeat("A", 43), "Cookie: session=x; session=y"} {
		res := s.ask("GET", "/console/jobs?q=a+b&page=2", "", cookie)
		if got, want := res.Header.Get("Location"), "/console/login?next=%2Fconsole%2Fjobs%3Fpage%3D2%26q%3Da%2Bb"; res.StatusCode != 303 || got != want {
			t.Errorf("with %q: %d to %q, want 303 to %q", cookie, res.StatusCode, got, want)
		}
	}
	for _, h := range []string{"HX-Request: true", "Sec-Fetch-Mode: cors"} {
		if res := s.ask("GET", "/console/jobs", "", h); res.StatusCode != 401 || res.Header.Get("Location") != "" {
			t.Errorf("a script's request (%s): %d, want 401", h, res.StatusCode)
		}
	}
	res := s.ask("POST", "/console/jobs", "a=b", "Referer: http://127.0.0.1:8080/console/jobs?q=1")
	if got := res.Header.Get("Location"); res.StatusCode != 303 || got != "/console/login?next=%2Fconsole%2Fjobs%3Fq%3D1" || s.acts != 0 {
		t.Errorf("a form without a session: %d to %q, %d acts", res.StatusCode, got, s.acts)
	}
	if got := s.ask("POST", "/console/jobs", "a=b", "Referer: http://evil.example/console/jobs").Header.Get("Location"); got != "/console/login" {
		t.Errorf("a form from elsewhere leads to %q", got)
	}
	cookie := s.signIn("ann")
	if res := s.ask("GET", "/console/jobs", "", cookie, "Sec-Fetch-Mode: navigate"); res.StatusCode != 200 || s.who.Name != "ann" || s.who.Kind != KindUser {
		t.Errorf("signed in: %d as %+v", res.StatusCode, s.who)
	}
	if s.ask("POST", "/console/jobs", "a=b", cookie); s.acts != 1 {
		t.Error("signed in, the form did not get through")
	}
}

func TestCookieIsOnlyForThisServerAndNoScript(t *testing.T) {
	pool := newPool(t)
	for _, c := range []struct {
		config SessionsConfig
		name   string
		secure bool
	}{
		{SessionsConfig{Addr: "0.0.0.0:8080"}, "__Host-session", true},
		{SessionsConfig{Mode: ModeLocal, Development: true}, "session", false},
		{SessionsConfig{Mode: ModeLocal, Development: true, PublicURL: "https://jobs.example.com"}, "__Host-session", true},
		{SessionsConfig{Addr: "0.0.0.0:8080", PublicURL: "http://jobs.example.com"}, "__Host-session", true},
	} {
		s := newSite(t, pool, c.config, "")
		if have, err := s.accounts.HasUsers(t.Context()); err != nil || !have {
			s.create("ann", access.RoleViewer)
		}
		res := s.ask("POST", "/console/login", credentials("ann", right))
		if len(res.Cookies()) != 1 {
			t.Fatalf("%+v: cookies %v", c.config, res.Cookies())
		}
		got := res.Cookies()[0]
		if got.Name != c.name || got.Secure != c.secure || !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || got.Path != "/" || got.Domain != "" ||
			got.MaxAge != 7*24*3600 || len(got.Value) != 43 {
			t.Errorf("%+v: cookie %v", c.config, got)
		}
		if res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("the answer may be kept: %v", res.Header)
		}
	}
}

func TestRolesBecomeScopes(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Mode: ModeLocal, Development: true}, "")
	for role, want := range map[access.Role][]Scope{
		access.RoleViewer:   {ScopeJobsRead},
		access.RoleOperator: {ScopeJobsRead, ScopeJobsWrite, ScopeQueuesWrite, ScopeDLQWrite},
		access.RoleAdmin:    {ScopeAdmin},
	} {
		s.create(string(role), role)
		s.ask("GET", "/console/jobs", "", s.signIn(string(role)))
		if !slices.Equal(s.who.Scopes, want) {
			t.Errorf("%s may %v, want %v", role, s.who.Scopes, want)
		}
	}
}

func TestSessionWorksOnTwoServersAndEndsOnBothAtOnce(t *testing.T) {
	pool := newPool(t)
	a := newSite(t, pool, SessionsConfig{Mode: ModeLocal, Development: true}, "")
	b := newSite(t, pool, SessionsConfig{Mode: ModeLocal, Development: true}, "")
	a.create("ann", access.RoleViewer)
	cookie := a.signIn("ann")
	if b.ask("GET", "/console/jobs", "", cookie).StatusCode != 200 || b.who.May(ScopeJobsWrite) {
		t.Fatalf("the other server sees %+v", b.who)
	}
	if err := a.accounts.Edit(t.Context(), "ann", access.UserEdit{Role: new(access.RoleOperator)}, cli); err != nil {
		t.Fatal(err)
	}
	if got := b.ask("GET", "/console/jobs", "", cookie).StatusCode; got != 303 {
		t.Errorf("after a change of role: %d, want the page to sign in", got)
	}
	cookie = b.signIn("ann")
	res := a.ask("POST", "/console/logout", "", cookie)
	if res.StatusCode != 303 || res.Header.Get("Location") != "/console/login" || len(res.Cookies()) != 1 || res.Cookies()[0].MaxAge >= 0 {
		t.Errorf("sign-out: %d, %v", res.StatusCode, res.Header)
	}
	if got := b.ask("GET", "/console/jobs", "", cookie).StatusCode; got != 303 {
		t.Errorf("after sign-out: %d", got)
	}
}

// A page left open asks again every few seconds; that is nobody's presence.
func TestPageThatRefreshesItselfIsNoUse(t *testing.T) {
	pool := newPool(t)
	s := newSite(t, pool, SessionsConfig{Mode: ModeLocal, Development: true}, "")
	s.create("ann", access.RoleViewer)
	cookie := s.signIn("ann")
	idle := func() (d time.Duration) {
		if err := pool.QueryRow(t.Context(), "SELECT now() - used_at FROM console_sessions").Scan(&d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	if _, err := pool.Exec(t.Context(), "UPDATE console_sessions SET used_at = used_at - interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	if res := s.ask("GET", "/console/jobs", "", cookie, "HX-Request: true"); res.StatusCode != 200 || idle() < time.Hour {
		t.Errorf("a poll (%d) counted as use", res.StatusCode)
	}
	if s.ask("POST", "/console/jobs", "a=b", cookie, "HX-Request: true"); idle() > time.Minute {
		t.Error("an act did not count as use")
	}
}

func TestModeNoneIsForDevelopmentOnThisMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		SessionsConfig
		ok bool
	}{
		{SessionsConfig{Mode: ModeNone, Development: true, Addr: "127.0.0.1:8080"}, true},
		{SessionsConfig{Mode: ModeNone, Development: true, Addr: "[::1]:8080"}, true},
		{SessionsConfig{Mode: ModeNone, Development: true, Addr: "0.0.0.0:8080"}, false},
		{SessionsConfig{Mode: ModeNone, Development: true, Addr: ":8080"}, false},
		{SessionsConfig{Mode: ModeNone, Development: true, Addr: "192.0.2.1:8080"}, false},
		{SessionsConfig{Mode: ModeNone, Addr: "127.0.0.1:8080"}, false},
		{SessionsConfig{Mode: "open", Development: true, Addr: "127.0.0.1:8080"}, false},
		{SessionsConfig{Mode: ModeLocal, Addr: ":8080"}, true},
		{SessionsConfig{Addr: "8080"}, false},
	} {
		if _, err := NewSessions(c.SessionsConfig); (err == nil) != c.ok {
			t.Errorf("mode %q, development %t, %s: %v, want ok %t", c.Mode, c.Development, c.Addr, err, c.ok)
		}
	}
}

// Unset, the mode is none until the first account exists, and local from then on,
// for pages and API alike.
func TestUnsetModeClosesWithTheFirstAccount(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Development: true}, "")
	want := func(what string, page, call int) {
		t.Helper()
		if got := s.ask("GET", "/console/jobs", "").StatusCode; got != page {
			t.Errorf("%s: page %d, want %d", what, got, page)
		}
		if got := s.ask("POST", "/api/v1/jobs", "").StatusCode; got != call {
			t.Errorf("%s: API %d, want %d", what, got, call)
		}
		if s.ask("GET", "/healthz", "").StatusCode != 200 {
			t.Errorf("%s: the probe is refused", what)
		}
	}
	want("no account", 200, 200)
	if s.who.Name != "anonymous" { // the probe's
		t.Errorf("the probe is %+v", s.who)
	}
	if got := s.ask("GET", "/console/login?next=/console/jobs", ""); got.StatusCode != 303 || got.Header.Get("Location") != "/console/jobs" {
		t.Errorf("the page to sign in: %d", got.StatusCode)
	}
	s.create("ann", access.RoleOperator) // an admin could not be disabled, being the last
	want("an account", 303, 401)
	if err := s.accounts.Disable(t.Context(), "ann", cli); err != nil {
		t.Fatal(err)
	}
	want("a disabled account", 303, 401)
	if s.ask("GET", MetricsPath, "").StatusCode != 401 {
		t.Error("the metrics are open")
	}
}

func TestUnsetModeIsLocalWhereOthersReachIt(t *testing.T) {
	pool := newPool(t)
	for _, c := range []SessionsConfig{{Addr: "127.0.0.1:8080"}, {Addr: "0.0.0.0:8080", Development: true}, {Addr: "192.0.2.1:8080", Development: true}} {
		if got := newSite(t, pool, c, "").ask("GET", "/console/jobs", "").StatusCode; got != 303 {
			t.Errorf("%+v without an account: %d, want the page to sign in", c, got)
		}
	}
}

func TestTokensWorkBesideSessions(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Mode: ModeLocal, Development: true}, "rje_token")
	s.create("ann", access.RoleAdmin)
	cookie := s.signIn("ann")
	for h, want := range map[string]int{"Authorization: Bearer rje_token": 200, "Authorization: Bearer rje_other": 401, cookie: 401, "X: y": 401} {
		if got := s.ask("POST", "/api/v1/jobs", "", h).StatusCode; got != want {
			t.Errorf("API with %.24s: %d, want %d", h, got, want)
		}
	}
	if got := s.ask("GET", "/console/jobs", "", "Authorization: Bearer rje_token").StatusCode; got != 303 {
		t.Errorf("a page by token: %d, want the page to sign in", got)
	}
	open := newSite(t, newPoolBeside(t), SessionsConfig{Mode: ModeNone, Development: true}, "rje_token")
	if got := open.ask("POST", "/api/v1/jobs", "").StatusCode; got != 200 {
		t.Errorf("API in mode none: %d, want no token needed", got)
	}
}
