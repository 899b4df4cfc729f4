package views

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/a-h/templ"
	"github.com/google/go-cmp/cmp"
)

var (
	update = flag.Bool("update", false, "rewrite testdata/*.html")
	pages  = flag.String("pages", "", "a folder to write every page of the story into, to look at")
)

func render(t testing.TB, c templ.Component) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Render(t.Context(), &b); err != nil {
		t.Fatalf("render: %v", err)
	}
	return b.String()
}

// hashes change with every edit of the style sheet, and mean nothing here.
var hashes = regexp.MustCompile(`\.[0-9a-f]{12}\.(css|js|svg)`)

// recorded is a page as testdata keeps it: a line per tag, so that a difference
// can be read.
func recorded(page string) string {
	page = hashes.ReplaceAllString(page, ".HASH.$1")
	return strings.ReplaceAll(page, "><", ">\n<") + "\n"
}

func TestPagesRenderAsRecorded(t *testing.T) {
	t.Parallel()
	for _, p := range storyPages() {
		got := recorded(render(t, p.page))
		path := filepath.Join("testdata", p.name+".html")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("read the record: %v (go test ./views -update writes it)", err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs from its record (-want +got):\n%s", p.name, diff)
		}
	}
}

func TestPagesCanBeWrittenToLookAt(t *testing.T) {
	dir := *pages
	if dir == "" {
		dir = t.TempDir()
	}
	for _, p := range storyPages() {
		files := map[string]templ.Component{p.name + ".html": p.page}
		if p.live != nil {
			files[p.name+".live.html"] = p.live
		}
		for name, c := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(render(t, c)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestThePromisedTestIDsStand keeps the contract with those who test in a browser.
func TestThePromisedTestIDsStand(t *testing.T) {
	t.Parallel()
	all := ""
	for _, p := range storyPages() {
		all += render(t, p.page)
	}
	for _, id := range []string{"verdict", "card-flow", "card-fail", "card-stuck", "card-workers", "card-changed", "job-row", "dlq-group", "dlq-row",
		"replay", "confirm", "flash", "attempt-row", "live-control", "why-panel"} {
		if !strings.Contains(all, `data-testid="`+id+`"`) {
			t.Errorf("no page has data-testid %q", id)
		}
	}
}

func TestPagesStayInBudget(t *testing.T) {
	t.Parallel()
	const budget = 150_000
	full := storyJobs()
	full.Rows = storyJobRows(50)
	for i := range full.Rows {
		full.Rows[i].Error = strings.Repeat("x", 500)
		full.Rows[i].Queue = longQueue
	}
	list := append(storyPages(), storyPage{name: "jobs of 50 rows", page: JobsPage(full)})
	for _, p := range list {
		if n := len(render(t, p.page)); n > budget {
			t.Errorf("%s takes %d bytes, want at most %d", p.name, n, budget)
		}
	}
}

func TestAFrozenPageAsksForNothing(t *testing.T) {
	t.Parallel()
	m := storyOverview()
	if page := render(t, OverviewPage(m)); !strings.Contains(page, `hx-get="/console/"`) || !strings.Contains(page, `data-live="5"`) {
		t.Error("a live page has no region that asks for it again")
	}
	m.Frame.Live.Off = true
	if page := render(t, OverviewPage(m)); strings.Contains(page, "hx-get") || strings.Contains(page, "data-live=") || !strings.Contains(page, "Frozen") {
		t.Error("?live=off does not freeze the page")
	}
}

func TestARowComesBackAsItIsAfterAnAction(t *testing.T) {
	t.Parallel()
	f := storyFrame("Dead letters", "dlq", "/dlq")
	r := storyDeadRows()[1]
	got := render(t, DeadRowSwap(f, r, false, Flash{Text: plain("Replayed.")}))
	for _, want := range []string{`<tr role="row" id="dead-` + r.ID + `"`, "Replayed", `hx-target="#flash"`, `hx-target="#dead-count"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if failed := render(t, DeadRowSwap(f, r, false, Flash{Failed: true, Text: plain("Gone.")})); !strings.Contains(failed, `hx-target="#alert"`) {
		t.Error("a failure is not put into the alert region")
	}
}

func TestReplayWorksWithoutScript(t *testing.T) {
	t.Parallel()
	page := render(t, DeadLettersPage(storyDead("jobs")))
	id := storyDeadRows()[0].ID
	want := `<form method="post" action="/console/dlq/` + id + `/replay" hx-post="/console/dlq/` + id + `/replay" hx-target="closest tr" hx-swap="outerHTML">`
	if !strings.Contains(page, want) {
		t.Errorf("no form %s", want)
	}
}

func TestAPageShowsTheThemeOfItsCookieAtOnce(t *testing.T) {
	t.Parallel()
	m := storyOverview()
	m.Frame.Display = Display{Theme: "dark", Density: "comfortable", Times: "utc", NoKeys: true}
	page := render(t, OverviewPage(m))
	if !strings.Contains(page, `<html lang="en" data-theme="dark" data-density="comfortable" data-times="utc"`) || !strings.Contains(page, `data-keys="off"`) {
		t.Error("the frame leaves out how the person wants the page")
	}
	m.Frame.Display = Display{Theme: `x" onload="y`}
	if page := render(t, OverviewPage(m)); !strings.Contains(page, `data-theme="system"`) {
		t.Error("an unknown theme is not the system's")
	}
}
