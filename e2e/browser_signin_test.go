package e2e

import (
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/playwright-community/playwright-go"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

const adminPassword = "correct horse battery staple"

func TestPeopleSignInAndOut(t *testing.T) {
	t.Parallel()
	s := stageOn(t, dbtest.NewURL(t), append(quick, "BOOTSTRAP_ADMIN_PASSWORD="+adminPassword)...)
	for name, journey := range map[string]func(*testing.T, *stage){
		"sign in, be refused, sign out": signInAndOut,
		"a session that was ended":      sessionEnded,
		"a session about to end":        sessionAboutToEnd,
		"sign in without script":        signInWithoutScript,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journey(t, s)
		})
	}
}

func (v *visitor) signIn(password string) {
	v.t.Helper()
	v.fill("Name", "admin")
	v.fill("Password", password)
	v.click(v.button("Sign in"))
}

func signInAndOut(t *testing.T, s *stage) {
	v := s.visit(t)
	v.expects("the server responded with a status of 401")
	v.open("/queues?sort=name")
	v.at("/login?next=%2Fconsole%2Fqueues%3Fsort%3Dname")
	v.must(expect.Locator(v.GetByLabel("Name", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)})).ToBeFocused())
	v.signIn("not the password")
	v.says(v.GetByRole("alert"), "Name or password is wrong.")
	v.must(expect.Locator(v.GetByLabel("Name", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)})).ToHaveValue("admin"))
	v.must(expect.Locator(v.GetByLabel("Password", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)})).ToBeFocused())
	v.signIn(adminPassword)
	v.at("/queues?sort=name")
	v.sees(v.heading("Queues"))
	v.sees(v.GetByText("Admin", playwright.PageGetByTextOptions{Exact: playwright.Bool(true)}))
	v.click(v.button("Sign out"))
	v.sees(v.heading("Sign in"))
	_, err := v.GoBack() // what was shown is not kept
	v.must(err)
	v.sees(v.heading("Sign in"))
	v.open("/jobs")
	v.sees(v.heading("Sign in"))
}

func signInWithoutScript(t *testing.T, s *stage) {
	v := s.visit(t, withoutScript)
	v.open("/audit")
	v.signIn(adminPassword)
	v.at("/audit")
	v.sees(v.heading("Audit"))
	v.click(v.button("Sign out"))
	v.sees(v.heading("Sign in"))
}

// A page whose session was ended elsewhere says so where it stands, and goes on
// once there is one again.
func sessionEnded(t *testing.T, s *stage) {
	v := s.visit(t)
	v.expects("the server responded with a status of 401")
	v.open("/jobs?queue=ended")
	v.signIn(adminPassword)
	v.sees(v.heading("Jobs"))
	v.must(v.context.ClearCookies(playwright.BrowserContextClearCookiesOptions{Name: "session"}))
	says := v.Locator("#connection")
	v.says(says, "Your session has ended.")
	v.says(v.GetByTestId("live-control"), "Stale")
	v.at("/jobs?queue=ended")
	tab, err := v.context.ExpectPage(func() error { return v.link("Sign in again").Click() })
	v.must(err)
	again := &visitor{Page: tab, t: t, context: v.context, origin: v.origin}
	again.signIn(adminPassword)
	again.sees(again.heading("Overview"))
	v.must(tab.Close())
	v.must(expect.Locator(says).ToBeEmpty())
	v.says(v.GetByTestId("live-control"), "Live")
}

func sessionAboutToEnd(t *testing.T, s *stage) {
	v := s.visit(t)
	v.must(v.Clock().Install())
	v.open("/help")
	v.signIn(adminPassword)
	v.sees(v.heading("Help"))
	v.must(v.Clock().FastForward("11:54:00"))
	v.missing(v.button("Stay signed in"))
	v.must(v.Clock().FastForward("01:30"))
	v.says(v.GetByRole("alert"), "You will be signed out in 5 minutes.")
	// Twelve hours passed in the page alone: the server, which extends the session, stayed behind. The page, with what
	// was typed into it, stays too.
	v.must(v.Clock().SetSystemTime(time.Now()))
	v.staysHere()
	v.must(v.Locator("#q").Fill("half typed"))
	v.click(v.button("Stay signed in"))
	v.must(expect.Locator(v.GetByRole("alert")).ToBeEmpty())
	v.hasStayed()
	v.must(expect.Locator(v.Locator("#q")).ToHaveValue("half typed"))
}

// A server that goes away and comes back on the same address.
func TestAPageOutlivesItsServer(t *testing.T) {
	t.Parallel()
	s := stageOn(t, dbtest.NewURL(t), quick...)
	v := s.visit(t)
	v.expects("Failed to load resource: net::ERR_CONNECTION_REFUSED", "Failed to load resource: net::ERR_", "Failed to fetch")
	v.open("/jobs?queue=lost")
	v.staysHere()
	s.server.signal(syscall.SIGKILL)
	s.server.ends(5 * time.Second)
	says, control := v.Locator("#connection"), v.GetByTestId("live-control")
	v.must(expect.Locator(says).ToHaveText(regexp.MustCompile(`^Connection lost, showing \d\d:\d\d:\d\d UTC, retrying\.$`),
		playwright.LocatorAssertionsToHaveTextOptions{Timeout: playwright.Float(2 * patience)}))
	v.says(control, "Stale")
	s.serve()
	id := s.later(t, "lost")
	v.sees(v.row(id))
	v.must(expect.Locator(says).ToBeEmpty())
	v.says(control, "Live")
	v.hasStayed()
}
