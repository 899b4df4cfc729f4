package views

import (
	"context"
	"strings"

	"github.com/reliable-job-engine/reliable-job-engine/static"
)

type baseKey struct{}

// withBase lets what is drawn deep inside a page find the files of the console.
func withBase(ctx context.Context, base string) context.Context {
	return context.WithValue(ctx, baseKey{}, base)
}

// file is the address of a static file, below the base path of the page that is
// being drawn.
func file(ctx context.Context, name string) string {
	base, _ := ctx.Value(baseKey{}).(string)
	return base + static.URL(name)
}

// htmxConfig is law in the console's policy: no styles added, nothing evaluated,
// and no element that was opened by hand closed by a morph.
const htmxConfig = `{"extensions":"console-security, ptag","includeIndicatorCSS":false,"history":"reload","morphIgnore":["data-htmx-powered","open"]}`

type navEntry struct{ key, path, text, icon, shortcut string }

// The rail. An entry stands here once its page exists.
var (
	navTop = []navEntry{
		{"overview", "/", "Overview", "gauge", "o"},
		{"jobs", "/jobs", "Jobs", "list", "j"},
		{"queues", "/queues", "Queues", "layers", "q"},
		{"types", "/types", "Types", "shapes", "y"},
		{"dlq", "/dlq", "Dead letters", "archive-x", "d"},
		{"workers", "/workers", "Workers", "server", "w"},
		{"operations", "/operations", "Operations", "list-checks", ""},
		{"audit", "/audit", "Audit", "history", "a"},
	}
	navBottom = []navEntry{
		{"system", "/system", "System", "database", ""},
		{"access", "/access", "Access", "key", ""},
		{"help", "/help", "Help", "circle-help", ""},
	}
)

// shows tells whether an entry stands in the rail of this reader.
func (f Frame) shows(e navEntry) bool {
	switch e.key {
	case "access":
		return f.Access
	case "audit", "system":
		return !f.Narrow
	}
	return true
}

func (f Frame) title() string {
	if f.Title == "" {
		return "Job Engine"
	}
	return f.Title + " · Job Engine"
}

func (f Frame) theme() string { return choice(f.Display.Theme, "system", "light", "dark") }

func (f Frame) density() string { return choice(f.Display.Density, "compact", "comfortable") }

func (f Frame) times() string { return choice(f.Display.Times, "ago", "utc", "local") }

// choice returns given if it is allowed, else the first of those allowed.
func choice(given string, allowed ...string) string {
	for _, a := range allowed {
		if a == given {
			return a
		}
	}
	return allowed[0]
}

// path is this page's own address, for its live region and for forms that return
// to it; the overview if the frame gives none on this host.
func (f Frame) path() string {
	if len(f.Path) < 1 || f.Path[0] != '/' || strings.HasPrefix(f.Path, "//") || strings.HasPrefix(f.Path, `/\`) {
		return f.Base + "/"
	}
	return f.Path
}

// gap is the space between two spans of a line.
func gap(list []Span, i int) string {
	if i == 0 {
		return ""
	}
	if t := list[i].Text; t != "" {
		switch t[0] {
		case ',', '.', ':', ';', ')', '?', '!':
			return ""
		}
	}
	return " "
}

type shortcut struct{ keys, does string }

var shortcuts = []shortcut{
	{"?", "this help"},
	{"/", "search"},
	{"g then o j q y d w a", "overview, jobs, queues, types, dead letters, workers, audit"},
	{"j k", "next row, row before"},
	{"Enter", "open the row"},
	{"r", "replay the row or the job"},
	{"y", "copy the id"},
	{"[ ]", "newer page, older page"},
	{"u", "up"},
	{"p", "pause or resume live updates"},
	{"t", "light, dark or the system's theme"},
	{"Esc", "close or clear"},
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func flashClass(f Flash) string {
	if f.Failed {
		return "s-dead"
	}
	return "s-completed"
}
