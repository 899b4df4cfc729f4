package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/playwright-community/playwright-go"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

func TestPeopleAndTokensInTheBrowser(t *testing.T) {
	t.Parallel()
	s := stageOn(t, dbtest.NewURL(t), append(quick, "BOOTSTRAP_ADMIN_PASSWORD="+adminPassword)...)
	for name, journey := range map[string]func(*testing.T, *stage){
		"add a person, change them, revert": peopleByClick,
		"disable a person by keyboard":      disableByKeyboard,
		"a token without script":            tokenWithoutScript,
		"reveal a payload":                  revealByClick,
		"one's own sessions and display":    ownAccount,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journey(t, s)
		})
	}
}

// signedIn is a visitor who is the admin.
func (s *stage) signedIn(t *testing.T, path string, change ...func(*playwright.BrowserNewContextOptions)) *visitor {
	t.Helper()
	v := s.visit(t, change...)
	v.open(path)
	v.signIn(adminPassword)
	v.at(path)
	return v
}

// addPerson fills in the form for a new account.
func (v *visitor) addPerson(name, role, queues string) {
	v.t.Helper()
	v.open("/access/new-user")
	v.fill("Name", name)
	v.must(v.GetByLabel(role).Check())
	v.fill("Queues", queues)
	v.fill("Password", adminPassword+name)
	v.fill("Password again", adminPassword+name)
	v.click(v.button("Add a person"))
	v.at("/access/users/" + name)
	v.says(v.flash(), name+" was added.")
}

func peopleByClick(t *testing.T, s *stage) {
	v := s.signedIn(t, "/access/users")
	v.sees(v.heading("People"))
	v.addPerson("clicked", "Viewer", "")
	_, err := v.GetByLabel("Role", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)}).SelectOption(playwright.SelectOptionValues{Values: &[]string{"operator"}})
	v.must(err)
	v.fill("Queues", "sms, mail")
	v.click(v.button("Change…"))
	v.sees(v.heading("Change what clicked may do?"))
	v.says(v.GetByRole("main"), "Viewer → Operator")
	v.fill("Reason (optional)", "on call this week")
	v.click(v.GetByTestId("confirm"))
	v.at("/access/users/clicked")
	v.says(v.flash(), "Their sessions have ended.")
	v.says(v.GetByRole("main"), "Operator, mail, sms")
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Revert edit of clicked"}))
	v.says(v.dialog(), "Operator → Viewer")
	v.click(v.dialog().GetByTestId("confirm"))
	v.at("/access/users/clicked")
	v.says(v.GetByRole("main"), "Viewer, every queue")
	v.open("/audit?target=clicked")
	v.says(v.GetByRole("main"), "on call this week")
}

func disableByKeyboard(t *testing.T, s *stage) {
	v := s.signedIn(t, "/access/users")
	v.addPerson("keyed", "Operator", "mail")
	v.scripted()
	v.must(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Disable: keyed"}).Focus())
	v.press("Enter")
	v.sees(v.dialog())
	v.must(expect.Locator(v.dialog().GetByLabel("Reason")).ToBeFocused())
	v.press("Escape")
	v.must(expect.Locator(v.dialog()).ToBeHidden())
	v.press("Enter")
	v.sees(v.dialog())
	v.must(v.Keyboard().Type("left the team"))
	v.must(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Disable"}).Focus())
	v.press("Enter")
	v.at("/access/users/keyed")
	v.says(v.flash(), "keyed was disabled.")
	v.says(v.Locator(".page-head"), "Disabled")
	v.sees(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Enable: keyed"}))
}

func tokenWithoutScript(t *testing.T, s *stage) {
	v := s.signedIn(t, "/access/tokens", withoutScript)
	v.click(v.link("New token"))
	v.fill("Name", "plain")
	v.must(v.GetByLabel("dlq:write").Check())
	v.fill("Queues", "mail")
	v.click(v.button("Make the token"))
	v.sees(v.GetByText("This is the only time that it is shown."))
	secret, err := v.GetByTestId("secret").InnerText()
	v.must(err)
	if !regexp.MustCompile(`^rje_[0-9A-Za-z]{40}$`).MatchString(secret) || strings.Contains(v.URL(), secret) {
		t.Fatalf("the secret %q at %s", secret, v.URL())
	}
	v.click(v.link("Done, I have copied it"))
	v.at("/access/tokens")
	row := v.GetByTestId("token-row").Filter(playwright.LocatorFilterOptions{HasText: "plain"})
	v.says(row, "never used")
	_, err = v.GoBack()
	v.must(err)
	v.missing(v.GetByText(secret)) // the browser kept no copy of the page
	v.open("/access/tokens")
	v.click(row.GetByRole("link", playwright.LocatorGetByRoleOptions{Name: "Revoke token plain"}))
	v.sees(v.heading("Revoke token plain?"))
	v.click(v.GetByTestId("confirm"))
	v.at("/access/tokens")
	v.says(v.flash(), "plain was revoked.")
	v.says(row, "Revoked")
}

func revealByClick(t *testing.T, s *stage) {
	pool := dbtest.OpenURL(t, s.url)
	var id string
	if err := pool.QueryRow(t.Context(), `SELECT enqueue_job('email', '{"to": "customer@example.com", "card": "4111-1111"}', queue => 'reveal',
		delay => interval '1 day')`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	v := s.signedIn(t, "/jobs/"+id)
	v.missing(v.GetByText("4111-1111"))
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Reveal the payload of job " + short(id)}))
	v.sees(v.dialog())
	v.fill("Reason", "the customer asks")
	v.click(v.dialog().GetByTestId("confirm"))
	v.sees(v.GetByText("4111-1111").First())
	v.says(v.Locator("#activity"), "the customer asks")
	v.open("/jobs/" + id)
	v.missing(v.GetByText("4111-1111"))
}

func ownAccount(t *testing.T, s *stage) {
	v := s.signedIn(t, "/access/users")
	v.addPerson("owner", "Viewer", "mail")
	as := func(change ...func(*playwright.BrowserNewContextOptions)) *visitor {
		p := s.visit(t, change...)
		p.open("/account")
		p.fill("Name", "owner")
		p.fill("Password", adminPassword+"owner")
		p.click(p.button("Sign in"))
		p.at("/account")
		return p
	}
	other, plain := as(), as(withoutScript)
	plain.says(plain.GetByTestId("session-row").First(), "this session")
	plain.missing(plain.rail("Access"))
	plain.missing(plain.rail("Audit"))
	plain.click(plain.button("End all others"))
	plain.says(plain.flash(), "Your other sessions have ended.")
	plain.must(expect.Locator(plain.GetByTestId("session-row")).ToHaveCount(1))
	other.open("/account")
	other.sees(other.heading("Sign in"))
	settings := plain.Locator("#settings")
	plain.must(settings.GetByLabel("Dark").Check())
	plain.must(settings.GetByLabel("Comfortable").Check())
	plain.must(settings.GetByLabel("Clock, local").Check())
	plain.must(settings.GetByRole("group", playwright.LocatorGetByRoleOptions{Name: "Shortcuts"}).GetByLabel("Off").Check())
	plain.click(plain.button("Save display"))
	plain.at("/account")
	for name, value := range map[string]string{"data-theme": "dark", "data-density": "comfortable", "data-times": "local"} {
		plain.must(expect.Locator(plain.Locator("html")).ToHaveAttribute(name, value))
	}
	plain.must(expect.Locator(plain.Locator("body")).ToHaveAttribute("data-keys", "off"))
	plain.fill("Current password", adminPassword+"owner")
	plain.fill("New password", "another long password")
	plain.fill("New password again", "another long password")
	plain.click(plain.button("Change password"))
	plain.says(plain.flash(), "Your password was changed.")
	plain.open("/jobs")
	plain.sees(plain.heading("Jobs"))
	plain.says(plain.GetByTestId("lacks"), "needs the role operator")
}

// accessPages are those about who may do what, of which {sound} is a person.
var accessPages = []string{"/access/users", "/access/new-user", "/access/users/sound", "/access/users/sound/edit?role=viewer&queues=", "/access/users/sound/password",
	"/access/users/sound/disable", "/access/tokens", "/access/new-token", "/account"}

// lookAtAccess examines the pages that only a person who has signed in is shown.
func (v *visitor) lookAtAccess(t *testing.T, html *folder) {
	t.Helper()
	v.addPerson("sound", "Operator", strings.Repeat("tenant-4711-", 4)+"mail")
	for _, path := range accessPages {
		r, err := v.Goto("/console" + path)
		v.must(err)
		text, err := r.Text()
		v.must(err)
		html.add(t, path, text)
		v.axe(path)
		v.reflows(path)
	}
	v.open("/access/new-token")
	v.fill("Name", "sound")
	v.click(v.button("Make the token"))
	v.sees(v.GetByTestId("secret"))
	v.axe("a token that was made")
	v.reflows("a token that was made")
}
