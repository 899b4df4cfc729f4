package e2e

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/playwright-community/playwright-go"
)

// patience is how long a page may take to show what it should, in milliseconds. It
// is not waited for: an assertion ends as soon as it holds.
const patience = 15_000

var expect = playwright.NewPlaywrightAssertions(patience)

// watch is what every page tells of: refusals of its policy, and whether a text
// that should be text has run.
const watch = `document.addEventListener("securitypolicyviolation", (e) =>
	console.error("policy: " + e.violatedDirective + " " + e.blockedURI + " " + e.sample));
window.ran = window.ran || [];`

// visitor is a person with a browser of their own: no cookies but their own. What
// goes wrong in any of their pages fails the test: a refusal of the policy, an
// error of the script, a request to elsewhere, a dialog of the browser.
type visitor struct {
	playwright.Page
	t       *testing.T
	context playwright.BrowserContext
	origin  string
	allowed []*regexp.Regexp

	mu      sync.Mutex
	trouble []string
}

type viewport = playwright.Size

// visit opens a browser context on a stage's console. change may alter how.
func (s *stage) visit(t *testing.T, change ...func(*playwright.BrowserNewContextOptions)) *visitor {
	t.Helper()
	o := playwright.BrowserNewContextOptions{
		BaseURL: &s.api, Viewport: &viewport{Width: 1280, Height: 720}, Locale: playwright.String("en-GB"), TimezoneId: playwright.String("Etc/UTC"),
		ReducedMotion: playwright.ReducedMotionReduce,
	}
	for _, c := range change {
		c(&o)
	}
	context, err := needBrowser(t).NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{t: t, context: context, origin: s.api}
	t.Cleanup(v.leave)
	context.SetDefaultTimeout(patience)
	if err := context.AddInitScript(playwright.Script{Content: playwright.String(watch)}); err != nil {
		t.Fatal(err)
	}
	context.OnRequest(v.request)
	context.OnConsole(func(m playwright.ConsoleMessage) {
		if kind := m.Type(); kind == "error" || kind == "warning" {
			at := ""
			if l := m.Location(); l != nil {
				at = " at " + l.URL
			}
			v.report(kind + " in the console: " + m.Text() + at)
		}
	})
	context.OnWebError(func(e playwright.WebError) { v.report("script: " + e.Error().Error()) })
	context.OnDialog(func(d playwright.Dialog) {
		v.report("a dialog of the browser: " + d.Message())
		go func() { _ = d.Dismiss() }() // a callback may not wait for an answer
	})
	v.Page, err = context.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func withoutScript(o *playwright.BrowserNewContextOptions) {
	o.JavaScriptEnabled = playwright.Bool(false)
}

func (v *visitor) request(r playwright.Request) {
	u, err := url.Parse(r.URL())
	if err != nil || (u.Scheme != "data" && u.Scheme != "blob" && u.Scheme+"://"+u.Host != v.origin) {
		v.report("a request to elsewhere: " + r.URL())
	}
}

func (v *visitor) report(what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.trouble = append(v.trouble, what)
}

// expects names trouble that the test brings about itself.
func (v *visitor) expects(patterns ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range patterns {
		v.allowed = append(v.allowed, regexp.MustCompile(p))
	}
}

// troubles is what went wrong so far and was not expected.
func (v *visitor) troubles() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.trouble), func(what string) bool {
		return slices.ContainsFunc(v.allowed, func(a *regexp.Regexp) bool { return a.MatchString(what) })
	})
}

func (v *visitor) leave() {
	if v.t.Failed() && v.Page != nil {
		text, _ := v.Locator("body").InnerText(playwright.LocatorInnerTextOptions{Timeout: playwright.Float(1000)})
		v.t.Logf("%s showed:\n%s", v.URL(), head(text, 60))
	}
	if err := v.context.Close(); err != nil {
		v.t.Error(err)
	}
	for _, what := range v.troubles() {
		v.t.Error(what)
	}
}

func head(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[:min(len(all), lines)], "\n")
}

// must ends the test unless a step was done.
func (v *visitor) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// open goes to a page of the console and answers its status.
func (v *visitor) open(path string) int {
	v.t.Helper()
	r, err := v.Goto("/console" + path)
	v.must(err)
	return r.Status()
}

func (v *visitor) button(name string) playwright.Locator {
	return v.GetByRole("button", playwright.PageGetByRoleOptions{Name: name, Exact: playwright.Bool(true)})
}

func (v *visitor) link(name string) playwright.Locator {
	return v.GetByRole("link", playwright.PageGetByRoleOptions{Name: name, Exact: playwright.Bool(true)})
}

// rail is a link of the main navigation; what it counts belongs to its name.
func (v *visitor) rail(name string) playwright.Locator {
	return v.GetByRole("navigation", playwright.PageGetByRoleOptions{Name: "Main"}).GetByRole("link", playwright.LocatorGetByRoleOptions{Name: name})
}

// tab is one of a page's tabs, which are links.
func (v *visitor) tab(tabs, name string) playwright.Locator {
	return v.GetByRole("navigation", playwright.PageGetByRoleOptions{Name: tabs}).GetByRole("link", playwright.LocatorGetByRoleOptions{Name: name})
}

func (v *visitor) heading(name string) playwright.Locator {
	return v.GetByRole("heading", playwright.PageGetByRoleOptions{Name: name, Exact: playwright.Bool(true)})
}

// row is the row of a table that names a job.
func (v *visitor) row(id string) playwright.Locator {
	return v.GetByRole("row").Filter(playwright.LocatorFilterOptions{Has: v.GetByTitle(id)})
}

// dialog is the one dialog, where a confirmation opens.
func (v *visitor) dialog() playwright.Locator { return v.GetByRole("dialog") }

// flash is what the last act said.
func (v *visitor) flash() playwright.Locator { return v.GetByTestId("flash") }

func (v *visitor) click(l playwright.Locator) { v.t.Helper(); v.must(l.Click()) }

func (v *visitor) press(keys ...string) {
	v.t.Helper()
	// A page may be drawn in part and its script, which knows the keys, not yet there.
	v.scripted()
	for _, k := range keys {
		v.must(v.Keyboard().Press(k))
	}
}

func (v *visitor) fill(label, text string) {
	v.t.Helper()
	v.must(v.GetByLabel(label, playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)}).Fill(text))
}

func (v *visitor) sees(l playwright.Locator) { v.t.Helper(); v.must(expect.Locator(l).ToBeVisible()) }

func (v *visitor) missing(l playwright.Locator) {
	v.t.Helper()
	v.must(expect.Locator(l).ToHaveCount(0))
}

// says waits until a part of the page has a text in it.
func (v *visitor) says(l playwright.Locator, text string) {
	v.t.Helper()
	v.must(expect.Locator(l).ToContainText(text))
}

// at waits until the address is a page of the console.
func (v *visitor) at(path string) {
	v.t.Helper()
	v.must(expect.Page(v.Page).ToHaveURL(regexp.MustCompile("^" + regexp.QuoteMeta(v.origin+"/console"+path) + "$")))
}

// scripted waits until the page's script listens to keys.
func (v *visitor) scripted() {
	v.t.Helper()
	v.must(expect.Locator(v.Locator("html[data-js]")).ToHaveCount(1))
}

// evaluate asks the page for a value.
func (v *visitor) evaluate(script string, arg ...any) any {
	v.t.Helper()
	got, err := v.Evaluate(script, arg...)
	v.must(err)
	return got
}

func (v *visitor) cookie(name, value string) {
	v.t.Helper()
	v.must(v.context.AddCookies([]playwright.OptionalCookie{{Name: name, Value: value, URL: playwright.String(v.origin + "/console/")}}))
}

// short is an id as pages show it.
func short(id string) string {
	if len(id) < 8 {
		return fmt.Sprintf("no id: %q", id)
	}
	return id[len(id)-8:]
}
