package views

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/a-h/templ"
)

var (
	update = flag.Bool("update", false, "rewrite testdata/*.html")
	pages  = flag.String("pages", "", "a folder to write every page of the story into")
)

func render(t testing.TB, c templ.Component) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Render(t.Context(), &b); err != nil {
		t.Fatalf("render: %v", err)
	}
	return b.String()
}

func TestPagesRenderAsRecorded(t *testing.T) {
	for _, p := range storyPages() {
		got := render(t, p.page)
		if *pages != "" {
			if err := os.WriteFile(filepath.Join(*pages, p.name+".html"), []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
