package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStoredTextCannotMoveTheCursor(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain\tü\n":            "plain\tü\n",
		"\x1b[2Jgone":           "\uFFFD[2Jgone",
		"a\rb\x00c":             "a\uFFFDb\uFFFDc",
		"\u202egnp.exe":         "\uFFFDgnp.exe",
		"half \xc3 of a letter": "half \uFFFD of a letter",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestFormsOfOneList(t *testing.T) {
	t.Parallel()
	body := []byte(`{"data":[ {"name":"mail","depth":{"ready":12345678901234567}, "extra": 1e400} ],"has_more":false}` + "\n")
	items, err := listOf(body)
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{
		formatJSON:  `{"data":[ {"name":"mail","depth":{"ready":12345678901234567}, "extra": 1e400} ],"has_more":false}` + "\n",
		formatJSONL: `{"name":"mail","depth":{"ready":12345678901234567},"extra":1e400}` + "\n",
		formatID:    "mail\n",
		formatTable: "QUEUE  STATE               READY  OLDEST  RUNNING  SCHEDULED  RETRYING  DEAD  WORKERS\n" +
			"mail   active  12345678901234567                0          0         0     0        0\n",
	} {
		var out bytes.Buffer
		if err := queueView.print(&app{out: &out, format: format, noColor: true}, body, items); err != nil {
			t.Errorf("-o %s: %v", format, err)
		}
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("-o %s (-want +got):\n%s", format, d)
		}
	}
}

func TestColourHasNoWidth(t *testing.T) {
	t.Parallel()
	lines := [][]string{{"STATE", "N"}, {"failed", "1"}, {"x", "22"}}
	var plain, coloured bytes.Buffer
	right := func(i int) bool { return i == 1 }
	writeAligned(&plain, lines, right, (&app{noColor: true}).colour)
	writeAligned(&coloured, lines, right, (&app{}).colour)
	if want := "STATE    N\nfailed   1\nx       22\n"; plain.String() != want {
		t.Errorf("plain = %q, want %q", plain.String(), want)
	}
	if got := strings.NewReplacer("\x1b[33m", "", "\x1b[0m", "").Replace(coloured.String()); got != plain.String() || coloured.String() == got {
		t.Errorf("coloured = %q", coloured.String())
	}
}

func TestDetailsKeepNumbersAndMarkup(t *testing.T) {
	t.Parallel()
	got := indented(json.RawMessage(`{"n":12345678901234567890123,"b":"\u003cb\u003e"}`))
	if want := "  {\n    \"b\": \"<b>\",\n    \"n\": 12345678901234567890123\n  }"; got != want {
		t.Errorf("indented = %s, want %s", got, want)
	}
}

func TestNearestWord(t *testing.T) {
	t.Parallel()
	known := []string{"list", "get", "enqueue", "cancel"}
	for word, want := range map[string]string{"lsit": "list", "lis": "list", "enq": "enqueue", "cansel": "cancel", "frobnicate": "", "": "", "x": "", "gte": "get"} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
