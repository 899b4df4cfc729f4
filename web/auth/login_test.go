package auth

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// newPoolBeside is a second database of a test that runs in parallel already.
func newPoolBeside(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return dbtest.New(t)
}

func pageOf(t *testing.T, res *http.Response) (p LoginPage) {
	t.Helper()
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSignInLeadsToWhereOneWanted(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Mode: ModeLocal, Development: true}, "")
	s.create("ann", access.RoleViewer)
	page := pageOf(t, s.ask("GET", "/console/login?next=%2Fconsole%2Fjobs%3Fq%3D1", ""))
	if page.Next != "/console/jobs?q=1" || page.Failed != "" || page.Hint != "Sessions end after 12 h without use, and after 7 days in any case." || page.PlainHTTP {
		t.Errorf("page = %+v", page)
	}
	for _, field := range []string{"next", "return"} {
		res := s.ask("POST", "/console/login", credentials("ann", right, field, page.Next))
		if res.StatusCode != 303 || res.Header.Get("Location") != page.Next {
			t.Errorf("with %s: %d to %q", field, res.StatusCode, res.Header.Get("Location"))
		}
	}
	if got := s.ask("POST", "/console/login", credentials("ann", right, "next", "https://evil.example/")).Header.Get("Location"); got != "/console/" {
		t.Errorf("led to %q", got)
	}
	res := s.ask("GET", "/console/login?next=//evil.example", "", s.signIn("ann"))
	if res.StatusCode != 303 || res.Header.Get("Location") != "/console/" {
		t.Errorf("signed in already: %d to %q", res.StatusCode, res.Header.Get("Location"))
	}
}

func TestNextStaysOnThisServer(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"/console/jobs":                         "/console/jobs",
		"/console/jobs?q=state:dead&p=2":        "/console/jobs?p=2&q=state%3Adead",
		"/console/jobs#top":                     "/console/jobs",
		"/console":                              "/console/",
		"/console/":                             "/console/",
		"/console/?live=off":                    "/console/?live=off",
		"/console/queues/a%2Fb":                 "/console/queues/a%2Fb",
		"/console/queues/a%20%22%3Cb%3E":        "/console/queues/a%20%22%3Cb%3E",
		"":                                      "/console/",
		"/":                                     "/console/",
		"/jobs":                                 "/console/",
		"/consoleevil":                          "/console/",
		"/console.evil.example/":                "/console/",
		"console/jobs":                          "/console/",
		"https://evil.example/console/":         "/console/",
		"//evil.example/console/":               "/console/",
		"///evil.example/console/":              "/console/",
		"/\\evil.example/console/":              "/console/",
		"\\\\evil.example":                      "/console/",
		"/console/\\..\\evil":                   "/console/",
		"/console/%5cevil.example":              "/console/",
		"/console//evil.example":                "/console/",
		"/console/%2Fevil.example":              "/console/",
		"/%2Fevil.example/console/":             "/console/",
		"/console/../api/v1/jobs":               "/console/",
		"/console/%2e%2e/api":                   "/console/",
		"/console/./jobs":                       "/console/",
		"javascript:alert(1)":                   "/console/",
		"/console/javascript:alert(1)":          "/console/javascript:alert(1)",
		"data:text/html,x":                      "/console/",
		"http:/console/":                        "/console/",
		"http:console":                          "/console/",
		"//console/jobs":                        "/console/",
		"//user@console/console/":               "/console/",
		" /console/jobs":                        "/console/",
		"\t/console/jobs":                       "/console/",
		"/console/jobs\r\nSet-Cookie: a":        "/console/",
		"/console/jobs%0d%0aSet-Cookie:a":       "/console/",
		"/console/jobs?q=%0d%0aX:%20y":          "/console/jobs?q=%0D%0AX%3A+y",
		"/console/login?next=/x":                "/console/",
		"/console/logout":                       "/console/",
		"/console/login/":                       "/console/",
		"/console/jobs/%zz":                     "/console/",
		"/console/" + strings.Repeat("a", 3000): "/console/",
	} {
		got := SafeNext("/console", given)
		if got != want {
			t.Errorf("SafeNext(%.60q) = %q, want %q", given, got, want)
		}
		if u, err := url.Parse(got); err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(got, "/console") || strings.ContainsAny(got, "\r\n\\") {
			t.Errorf("SafeNext(%.60q) = %q, which leaves the console", given, got)
		}
	}
	for given, want := range map[string]string{"": "/", "//evil.example": "/", "/jobs": "/jobs", "/%2Fevil.example": "/", "/login": "/"} {
		if got := SafeNext("", given); got != want {
			t.Errorf("at the root, SafeNext(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestFailedSignInSaysTheSameForEveryName(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Mode: ModeLocal, Development: true}, "")
	s.create("ann", access.RoleViewer)
	s.create("bob", access.RoleViewer)
	if err := s.accounts.Disable(t.Context(), "bob", cli); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"ann", wrong}, {"nobody", right}, {"bob", right}, {"", ""}} {
		res := s.ask("POST", "/console/login", credentials(c[0], c[1], "next", "/console/jobs"))
		page := pageOf(t, res)
		if res.StatusCode != 401 || page.Failed != "Name or password is wrong." || page.Name != c[0] || page.Next != "/console/jobs" || len(res.Cookies()) != 0 {
			t.Errorf("%v: %d, %+v, cookies %v", c, res.StatusCode, page, res.Cookies())
		}
	}
	if page := pageOf(t, s.ask("POST", "/console/login", credentials("My Secret Password!", ""))); page.Name != "" {
		t.Errorf("what can be no name is shown again: %q", page.Name)
	}
	res := s.ask("POST", "/console/login", credentials("ann", right)) // the sixth from this address
	page := pageOf(t, res)
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" || page.Failed != "Too many tries. Wait a second, then try again." || len(res.Cookies()) != 0 {
		t.Errorf("past the limit: %d, %+v, Retry-After %q", res.StatusCode, page, res.Header.Get("Retry-After"))
	}
}

func TestCookieGivenBeforeSignInIsNotKept(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Mode: ModeLocal, Development: true}, "")
	s.create("ann", access.RoleAdmin)
	s.create("mallory", access.RoleViewer)
	planted := s.signIn("mallory")
	mine := s.signIn("ann", planted)
	if mine == planted {
		t.Fatal("the planted cookie was kept")
	}
	if got := s.ask("GET", "/console/jobs", "", planted).StatusCode; got != 303 {
		t.Errorf("the planted cookie still opens a session: %d", got)
	}
	if again := s.signIn("ann", mine); again == mine || s.ask("GET", "/console/jobs", "", mine).StatusCode != 303 {
		t.Error("signing in again did not end the session before")
	}
}

// Signing somebody in as another, and signing them out, are writes too.
func TestForeignPagesCannotSignInOrOut(t *testing.T) {
	pool := newPool(t)
	s := newSite(t, pool, SessionsConfig{Mode: ModeLocal, Development: true, PublicURL: "https://jobs.example.com"}, "")
	s.create("ann", access.RoleViewer)
	s.create("mallory", access.RoleViewer)
	cookie := s.signIn("ann")
	sessions := func() (n int) {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM console_sessions").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, h := range [][]string{
		{"Origin: https://evil.example"}, {"Origin: null"}, {"Origin: http://127.0.0.1:9999"}, {"Origin: https://jobs.example.com.evil.example"},
		{"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"}, {"Sec-Fetch-Site: cross-site", "Origin: http://127.0.0.1:8080"},
		{"Host: evil.example"}, {"Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin"}, {"Sec-Fetch-Site: surprise"},
	} {
		if res := s.ask("POST", "/console/login", credentials("mallory", right), append(h, cookie)...); res.StatusCode != 403 || len(res.Cookies()) != 0 {
			t.Errorf("sign-in with %q: %d, cookies %v", h, res.StatusCode, res.Cookies())
		}
		if res := s.ask("POST", "/console/logout", "", append(h, cookie)...); res.StatusCode != 403 || len(res.Cookies()) != 0 {
			t.Errorf("sign-out with %q: %d", h, res.StatusCode)
		}
		if res := s.ask("POST", "/console/jobs", "a=b", append(h, cookie)...); res.StatusCode != 403 || s.acts != 0 {
			t.Errorf("an act with %q: %d", h, res.StatusCode)
		}
	}
	if n := sessions(); n != 1 || s.ask("GET", "/console/jobs", "", cookie).StatusCode != 200 {
		t.Errorf("%d sessions, want the one that was there", n)
	}
	// The router knows no other way in: neither a GET nor a method named in a header or field.
	for _, target := range []string{"/console/logout", "/console/login?name=mallory&password=" + url.QueryEscape(right)} {
		if res := s.ask("GET", target, "", "X-HTTP-Method-Override: POST", cookie); res.StatusCode == 200 || len(res.Cookies()) != 0 {
			t.Errorf("GET %s: %d, cookies %v", target, res.StatusCode, res.Cookies())
		}
	}
	if sessions() != 1 {
		t.Error("a GET changed something")
	}
	if res := s.ask("POST", "/console/login", credentials("ann", right), "Origin: https://jobs.example.com", "Host: jobs.example.com", "Sec-Fetch-Site: same-origin"); res.StatusCode != 303 {
		t.Errorf("the site's own page: %d", res.StatusCode)
	}
}

func TestLoginTakesOnlyItsForm(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Mode: ModeLocal, Development: true}, "")
	s.create("ann", access.RoleViewer)
	form := credentials("ann", right)
	for _, c := range []struct {
		target, body, kind string
		want               int
	}{
		{"/console/login", form, "application/x-www-form-urlencoded; charset=UTF-8", 303},
		{"/console/login", form, "text/plain", 415},
		{"/console/login", `{"name":"ann","password":"` + right + `"}`, "application/json", 415},
		{"/console/login", form, "multipart/form-data; boundary=x", 415},
		{"/console/login", "name=%zz", "application/x-www-form-urlencoded", 400},
		{"/console/login", form + "&x=" + strings.Repeat("x", 17<<10), "application/x-www-form-urlencoded", 413},
		{"/console/login?" + form, "x=y", "application/x-www-form-urlencoded", 401},
	} {
		if res := s.ask("POST", c.target, c.body, "Content-Type: "+c.kind); res.StatusCode != c.want {
			t.Errorf("%.40s with %.20s as %s: %d, want %d", c.target, c.body, c.kind, res.StatusCode, c.want)
		}
	}
}

func TestPlainHTTPIsWarnedOf(t *testing.T) {
	s := newSite(t, newPool(t), SessionsConfig{Addr: "0.0.0.0:8080", PublicURL: "http://jobs.example.com"}, "")
	for host, want := range map[string]bool{"jobs.example.com": true, "127.0.0.1:8080": false} {
		if page := pageOf(t, s.ask("GET", "/console/login", "", "Host: "+host)); page.PlainHTTP != want {
			t.Errorf("at %s PlainHTTP = %t, want %t", host, page.PlainHTTP, want)
		}
	}
	if page := pageOf(t, s.ask("GET", "/console/login", "", "Host: jobs.example.com", "X-Forwarded-Proto: https")); page.PlainHTTP {
		t.Error("behind a proxy that speaks HTTPS there is nothing to warn of")
	}
}
