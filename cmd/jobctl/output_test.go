package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

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

// well is a standing in which nothing is wrong.
func well() standing {
	s := standing{ready: readiness{Status: "pass"}}
	s.workers = []item[wireWorker]{{it: wireWorker{Status: "live", Leader: true}}}
	s.queues = []item[wireQueue]{{it: wireQueue{Name: "mail", Workers: 1}}}
	return s
}

func TestVerdictFollowsTheRules(t *testing.T) {
	t.Parallel()
	number := func(n float64) *float64 { return &n }
	ago := func(d time.Duration) *time.Time { at := time.Now().Add(-d); return &at }
	for name, tt := range map[string]struct {
		change func(*standing)
		want   string
		says   string
	}{
		"all well":  {func(*standing) {}, healthy, "work flows"},
		"not ready": {func(s *standing) { s.ready.Status = "fail" }, critical, "the server is not ready"},
		"no worker": {func(s *standing) { s.queues[0].it.Depth.Ready, s.queues[0].it.Workers = 3, 0 }, critical, "queue mail has 3 ready jobs and no live worker"},
		"no leader": {func(s *standing) { s.workers[0].it.Leader = false }, critical, "nobody does the upkeep"},
		"paused":    {func(s *standing) { s.queues[0].it.Paused = true }, degraded, "queue mail is paused"},
		"waits 61s": {func(s *standing) { s.queues[0].it.Depth.Ready, s.queues[0].it.OldestReady = 1, number(61) }, degraded, "waits 61s"},
		"waits 59s": {func(s *standing) { s.queues[0].it.Depth.Ready, s.queues[0].it.OldestReady = 1, number(59) }, healthy, ""},
		"6 % fail":  {func(s *standing) { s.queues[0].it.PerMinute.Completed, s.queues[0].it.PerMinute.Failed = 94, 6 }, degraded, "6% of 500 runs failed"},
		"5 % fail":  {func(s *standing) { s.queues[0].it.PerMinute.Completed, s.queues[0].it.PerMinute.Failed = 95, 5 }, healthy, ""},
		"few runs":  {func(s *standing) { s.queues[0].it.PerMinute.Failed = 3.8 }, healthy, ""},
		"died now": {func(s *standing) {
			s.newest = []item[wireDead]{{it: wireDead{Type: "email", DiedAt: ago(time.Minute)}}}
		}, degraded, "a job died 60s ago (email"},
		"died then": {func(s *standing) { s.newest = []item[wireDead]{{it: wireDead{DiedAt: ago(6 * time.Minute)}}} }, healthy, ""},
	} {
		s := well()
		tt.change(&s)
		if v := judge(s); v.word != tt.want || !strings.Contains(strings.Join(v.reasons, "; "), tt.says) {
			t.Errorf("%s: %s %v, want %s %q", name, v.word, v.reasons, tt.want, tt.says)
		}
	}
}
