package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

func TestPointers(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{"type": "/type", "payload.a.b": "/payload/a/b", "payload.a/b~c": "/payload/a~1b~0c", "tags.3": "/tags/3", "items.0.run_at": "/items/0/run_at"} {
		e := FieldsError([]engine.FieldError{{Field: field, Code: "invalid", Detail: "x"}})
		if got := *e.Flaws[0].Pointer; got != want {
			t.Errorf("pointer of %s = %s, want %s", field, got, want)
		}
	}
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"priorty": "did you mean priority?", "Type": "did you mean type?", "que": "did you mean queue?", "max_attempt": "did you mean max_attempts?",
		"zzzzzz": "not a known field", "": "not a known field", strings.Repeat("x", 10_000): "not a known field"} {
		if got := unknown(name, enqueueFields); got != want {
			t.Errorf("unknown(%s) = %q, want %q", cut(name), got, want)
		}
	}
}

func TestWhatIsUnstorableText(t *testing.T) {
	t.Parallel()
	for raw, broken := range map[string]bool{
		`"\u0000"`: true, `"\\u0000"`: false, `"\\\u0000"`: true, `"\ud83d"`: true, `"\ud83d\ude00"`: false, `"\ude00"`: true, `"\ud83d\ud83d"`: true,
		`"\ud83dx"`: true, `"\uD83D\uDE00"`: false, `"\ud83d\\ude00"`: true, `["a","\u0001"]`: false, `"é"`: false, `5`: false,
	} {
		if got := brokenText([]byte(raw)); (got != "") != broken {
			t.Errorf("brokenText(%s) = %q, want broken %t", raw, got, broken)
		}
	}
}

func TestTimesAndDurationsOnTheWire(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 22, 14, 3, 120_456_000, time.FixedZone("", 3600))
	for v, want := range map[any]string{
		stamp(at): `"2026-11-30T21:14:03.120Z"`, stamp(at.Truncate(time.Second)): `"2026-11-30T21:14:03Z"`,
		seconds(1500 * time.Millisecond): "1.5", seconds(0): "0", seconds(30 * 24 * time.Hour): "2592000", seconds(time.Microsecond): "0.000001",
		token(9007199254740993): `"9007199254740993"`,
	} {
		b, err := json.Marshal(v)
		if err != nil || string(b) != want {
			t.Errorf("%v = %s, %v, want %s", v, b, err, want)
		}
	}
}

func TestFileNamesAreTame(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"report.csv": "report.csv", "../../etc/passwd": "passwd", `C:\x\y.csv`: "y.csv", ".htaccess": "htaccess", "": "def", "///": "def", "...": "def", "a\r\nb": "a__b", "é.csv": "csv",
		strings.Repeat("a", 300): strings.Repeat("a", 100),
	} {
		if got := (file{Filename: name}).name("def"); got != want {
			t.Errorf("name of %q = %q, want %q", name, got, want)
		}
	}
}
