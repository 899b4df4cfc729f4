package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/playwright-community/playwright-go"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

func TestPagesFollowTheReader(t *testing.T) {
	t.Parallel()
	s := stageOn(t, dbtest.NewURL(t), quick...)
	for name, journey := range map[string]func(*testing.T, *stage){
		"theme without a flash": themeWithoutFlash,
		"density":               density,
		"copying":               copying,
		"keyboard":              keyboardHelp,
		"shortcuts off":         shortcutsOff,
		"print":                 printSheet,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journey(t, s)
		})
	}
}

const (
	darkBackground  = "rgb(15, 18, 22)"
	lightBackground = "rgb(255, 255, 255)"
)

func (v *visitor) background() string {
	v.t.Helper()
	return fmt.Sprint(v.evaluate("() => getComputedStyle(document.body).backgroundColor"))
}

// The theme is in the first bytes of a page, so that no other one is ever drawn.
func themeWithoutFlash(t *testing.T, s *stage) {
	v := s.visit(t, func(o *playwright.BrowserNewContextOptions) { o.ColorScheme = playwright.ColorSchemeLight })
	v.open("/queues")
	if got := v.background(); got != lightBackground {
		t.Errorf("the system's theme is drawn on %s, want %s", got, lightBackground)
	}
	v.click(v.button("Display"))
	v.must(v.GetByLabel("Dark").Check())
	v.click(v.button("Save"))
	v.at("/queues")
	if got := v.background(); got != darkBackground {
		t.Errorf("the dark theme is drawn on %s, want %s", got, darkBackground)
	}
	r, err := v.Goto("/console/types")
	v.must(err)
	html, err := r.Text()
	v.must(err)
	if !strings.Contains(html, `data-theme="dark"`) {
		t.Error("the page came without its theme")
	}
	plain := s.visit(t, withoutScript, func(o *playwright.BrowserNewContextOptions) { o.ColorScheme = playwright.ColorSchemeLight })
	plain.cookie("console_theme", "dark")
	plain.open("/")
	plain.must(expect.Locator(plain.Locator("body")).ToHaveCSS("background-color", darkBackground))

	v.press("t") // dark, then the system's
	v.says(v.Locator("#said"), "Theme: system")
	v.press("t")
	v.says(v.Locator("#said"), "Theme: light")
	if got := v.background(); got != lightBackground {
		t.Errorf("the light theme is drawn on %s, want %s", got, lightBackground)
	}
	_, err = v.Reload()
	v.must(err)
	v.must(expect.Locator(v.Locator("html")).ToHaveAttribute("data-theme", "light"))
}

func density(t *testing.T, s *stage) {
	id := s.later(t, "density")
	v := s.visit(t)
	v.open("/jobs?queue=density")
	height := func() float64 {
		box, err := v.row(id).BoundingBox()
		v.must(err)
		return box.Height
	}
	compact := height()
	v.click(v.button("Display"))
	v.must(v.GetByLabel("Comfortable").Check())
	v.click(v.button("Save"))
	v.must(expect.Locator(v.Locator("html")).ToHaveAttribute("data-density", "comfortable"))
	if comfortable := height(); compact > 33 || comfortable < 40 {
		t.Errorf("rows are %g px and %g px high, want 32 and 40", compact, comfortable)
	}
}

func copying(t *testing.T, s *stage) {
	id := s.later(t, "copy")
	v := s.visit(t)
	v.must(v.context.GrantPermissions([]string{"clipboard-read", "clipboard-write"}))
	v.open("/jobs/" + id)
	v.click(v.button("Copy job id"))
	v.says(v.GetByRole("status").Filter(playwright.LocatorFilterOptions{HasText: "Copied"}), "Copied")
	v.press("/", "Control+v")
	v.must(expect.Locator(v.GetByRole("searchbox", playwright.PageGetByRoleOptions{Name: "Search jobs"})).ToHaveValue(id))

	// Where the page may not use the clipboard, as over plain HTTP.
	v.evaluate(`() => Object.defineProperty(window, "isSecureContext", { value: false })`)
	v.click(v.button("Copy JSON"))
	v.says(v.GetByRole("status").Filter(playwright.LocatorFilterOptions{HasText: "Copied"}), "Copied")
	v.press("/", "Control+a", "Control+v")
	v.must(expect.Locator(v.GetByRole("searchbox")).ToHaveValue(regexp.MustCompile(`"queue":\s*"copy"`)))
}

func keyboardHelp(t *testing.T, s *stage) {
	v := s.visit(t)
	v.open("/")
	v.press("?")
	v.says(v.dialog(), "Keyboard shortcuts")
	v.press("Escape")
	v.must(expect.Locator(v.dialog()).ToBeHidden())
	for key, path := range map[string]string{"j": "/jobs", "q": "/queues", "d": "/dlq", "w": "/workers", "a": "/audit", "y": "/types", "o": "/"} {
		v.press("g", key)
		v.at(path)
		v.scripted()
	}
	v.open("/")
	v.press("Tab", "Enter")
	v.must(expect.Locator(v.GetByRole("main")).ToBeFocused())
	v.press("/")
	v.must(v.Keyboard().Type("g?p")) // no shortcuts in a field
	v.must(expect.Locator(v.GetByRole("searchbox")).ToHaveValue("g?p"))
	v.press("Escape")
	v.must(expect.Locator(v.GetByRole("searchbox")).Not().ToBeFocused())
	v.press("p")
	v.says(v.GetByTestId("live-control"), "Paused")
}

func shortcutsOff(t *testing.T, s *stage) {
	v := s.visit(t)
	v.open("/help")
	v.click(v.button("Display"))
	v.must(v.GetByRole("group", playwright.PageGetByRoleOptions{Name: "Shortcuts"}).GetByLabel("Off").Check())
	v.click(v.button("Save"))
	v.must(expect.Locator(v.Locator("body")).ToHaveAttribute("data-keys", "off"))
	v.press("?", "g", "j")
	v.at("/help")
	v.must(expect.Locator(v.dialog()).ToBeHidden())
}

// Paper has no rail and no buttons, and the payload is whole on it.
func printSheet(t *testing.T, s *stage) {
	id, ok := s.post(`{"type":"report","queue":"print","delay_seconds":86400,"payload":{"kind":"throughput","deep":{"er":{"still":"on paper"}}}}`, "")
	if !ok {
		t.Fatal("enqueue was refused")
	}
	v := s.visit(t)
	for _, path := range []string{"/jobs/" + id, "/", "/jobs", "/dlq?view=jobs"} {
		v.open(path)
		v.must(v.EmulateMedia(playwright.PageEmulateMediaOptions{Media: playwright.MediaPrint}))
		for _, l := range []playwright.Locator{
			v.GetByRole("navigation", playwright.PageGetByRoleOptions{Name: "Main"}), v.GetByRole("button"), v.GetByRole("searchbox"), v.GetByTestId("live-control"),
		} {
			if n, err := l.Filter(playwright.LocatorFilterOptions{Visible: playwright.Bool(true)}).Count(); err != nil || n != 0 {
				t.Errorf("%s prints %d of what only a screen needs (%v)", path, n, err)
			}
		}
		v.must(v.EmulateMedia(playwright.PageEmulateMediaOptions{Media: playwright.MediaScreen}))
	}
	v.open("/jobs/" + id)
	v.must(v.EmulateMedia(playwright.PageEmulateMediaOptions{Media: playwright.MediaPrint}))
	v.sees(v.GetByText("on paper").First())
}
