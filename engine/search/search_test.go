package search

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func understood(t testing.TB, text string) Query {
	t.Helper()
	q, err := Parse(text, noon)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return q
}

// someJob is a job that ran and failed twice.
func someJob() Facts {
	return Facts{
		ID: uuid.MustParse("0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10"), Type: "charge", Queue: "billing", Priority: 3, Tags: []string{"orders", "vip"},
		CreatedAt: noon.Add(-2 * time.Hour), Place: Retrying, Attempt: 2, FinishedAt: noon.Add(-5 * time.Minute), Duration: 6 * time.Second,
		Wait: 90 * time.Second, Workers: []string{"billing-1", "17"}, Builds: []string{"1.8.2"}, Keys: []string{"receipt-8123"},
		Error: "gateway.Timeout: Gateway timeout after 5 s", Fingerprint: "v1:9f3c1a2b77", Payload: []string{"123"}, Absent: []bool{false},
	}
}

func TestWhatMatches(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": true, "state:failed": true, "state:retrying,dead": true, "state:waiting": true, "state:dead": false, "-state:dead": true, "STATE:Failed": true,
		"queue:billing": true, "queue:mail,billing": true, "queue:bill*": true, "queue:bill": false, "-queue:billing": false, "-queue:mail": true,
		"type:charge queue:billing": true, "type:charge queue:mail": false, "priority:3": true, "priority:high": true, "priority:>=4": false, "priority:low..high": true,
		"priority:0,3": true, "priority:<3": false, "tag:vip": true, "tag:vip tag:orders": true, "tag:vip tag:test": false, "-tag:test": true, "tag:test,vip": true,
		"worker:billing-1": true, "worker:17": true, "worker:billing*": true, "worker:18": false, "build:1.8.2": true, "build:1.8": false, "key:receipt-8123": true, "key:receipt": false,
		"fp:9f3c1a2b": true, "fp:v1:9f3c": true, "fp:9f3c*": true, "fp:3c1a": false, `error:"gateway timeout"`: true, "error:TIMEOUT": true, `error:"refused"`: false,
		"attempt:>=2": true, "attempt:2": true, "attempt:>2": false, "attempt:..1": false, "attempt:1..": true, "attempt:=2": true,
		"duration:>5s": true, "duration:<6s": false, "duration:5s..6s": true, "duration:>1m": false, "wait:>1m": true, "wait:>1m30s": false, "wait:>=1m30s": true,
		"age:>1h": true, "age:<1h30m": false, "age:1h..3h": true, "created:2026-11-15": true, "created:2026-11-14": false, "created:2026-11": true,
		"created:2026-11-01..2026-11-15": true, "created:2026-11-15T10:00:00Z": true, "created:2026-11-15T10:00:01Z": false, "created:..2026-11-15T10:00:00Z": false,
		"finished:-1h..": true, "finished:..-1h": false, "finished:-10m..-1m": true, "finished:..": true, "-finished:-1h..": false, "finished:-1h..now": true,
		"payload.customer.id:123": true, "payload.customer.id:12*": true, "payload.customer.id:124": false, "payload.customer.id:124,123": true, "-payload.customer.id:124": true,
		"bill": true, "char": true, "ord": true, "mail": false, "-mail": true, "mail,bill": true, `"bill"`: true,
		"0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10": true, "0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e11": false,
		"  state:failed\t queue:billing  ": true,
	} {
		f := someJob()
		if got := NewMatcher(understood(t, text), noon).Matches(&f); got != want {
			t.Errorf("%s: matches = %v", text, got)
		}
	}
}

// TestWhatIsNotKnownDoesNotMatch: a job without runs, error, key or value has none that could match.
func TestWhatIsNotKnownDoesNotMatch(t *testing.T) {
	t.Parallel()
	bare := Facts{Type: "a", Queue: "b", Place: Ready, Duration: -1, Wait: -1, Payload: []string{""}, Absent: []bool{true}, CreatedAt: noon}
	for _, text := range []string{"worker:*", "build:*", "key:a", `error:a`, "fp:a", "duration:>=0s", "duration:..1s", "wait:<1h", "finished:..now", "payload.a:*", "tag:*"} {
		if NewMatcher(understood(t, text), noon).Matches(&bare) {
			t.Errorf("%s matches a job that has nothing of it", text)
		}
		if !NewMatcher(understood(t, "-"+text), noon).Matches(&bare) {
			t.Errorf("-%s does not match a job that has nothing of it", text)
		}
	}
}

func TestMistakesAreMarked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ marked, says string }{
		"state:runing":         {"runing", "There is no state"},
		"queue:mail quee:mail": {"quee:", "Did you mean queue: ?"},
		"frobnicate:1":         {"frobnicate:", "or put quotes around"},
		"queue:":               {"", "A value is missing here, as in queue:billing,mail."},
		"queue:a,,b":           {"", "A value is missing"},
		"-":                    {"", "A value is missing"},
		`error:"gateway`:       {`"gateway`, "This quote is not closed."},
		"attempt:many":         {"many", "is no number here"},
		"attempt:-1":           {"-1", "is no number here"},
		"attempt:..":           {"..", "is no number here"},
		"priority:9x":          {"9x", "low, default, high or critical"},
		"duration:5":           {"5", "is no length of time"},
		"duration:>5y":         {">5y", "is no length of time"},
		"age:99999999999999w":  {"99999999999999w", "is no length of time"},
		"created:yesterday":    {"yesterday", "is no time"},
		"created:2026-13-01":   {"2026-13-01", "is no time"},
		"created:0000-01-01":   {"0000-01-01", "is no time"},
		"payload:x":            {"payload:x", "Name a place in the payload"},
		"payload..a:1":         {"payload..a", "names with dots"},
		"payload.:1":           {"payload.", "names with dots"},
		"a\x01b":               {"\x01", "No control characters."},
		"mail,0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10":    {"0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10", "One id at a time."},
		strings.Repeat("a ", MaxTerms+1):               {"a", "At most 50 conditions."},
		"tag:" + strings.Repeat("a,", MaxValues) + "a": {"a", "At most 100 values."},
		strings.Repeat("a", MaxLength+1):               {"a", "At most 2000 bytes."},
		"a\x00":                                        {"a\x00", "NUL"},
		"\xff":                                         {"\xff", "UTF-8"},
	} {
		_, err := Parse(text, noon)
		var bad *Error
		if !errors.As(err, &bad) {
			t.Errorf("%.60q was taken", text)
			continue
		}
		if got := text[bad.From:bad.To]; got != want.marked || !strings.Contains(bad.Message, want.says) {
			t.Errorf("%.60q: marked %q and said %q; want %q and %q", text, got, bad.Message, want.marked, want.says)
		}
	}
}

func TestStatesThatAreLeft(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "all", "queue:a": "all", "state:dead": "dead", "state:pending": "ready scheduled held", "-state:finished": "ready scheduled held running retrying",
		"state:waiting -state:held": "ready scheduled retrying", "state:dead state:ready": "", "state:leased,failed": "running retrying",
	} {
		states, all := understood(t, text).States()
		if got := strings.Join(states, " "); all != (want == "all") || !all && got != want {
			t.Errorf("%q leaves %q", text, got)
		}
	}
}

func TestAnyValueCanBeAskedFor(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"a", "two words", `quo"te`, `back\slash`, `\`, `\"`, "a,b", "a:b", "-a", `""`, "\u00a0", "ü"} {
		q := understood(t, Plain("tag", v)+" queue:x")
		if got, ok := q.One("tag"); !ok || got != v || len(q.Terms) != 2 {
			t.Errorf("%q was written %s and read %q", v, Plain("tag", v), got)
		}
	}
}

func TestHistoryIsLimitedToADayUnlessAskedFor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"state:completed": "state:completed finished:-24h..", "state:cancelled queue:a": "state:cancelled queue:a finished:-24h..",
		"state:finished": "state:finished", "state:completed,cancelled": "state:completed,cancelled finished:-24h..", "state:dead": "state:dead", "queue:a": "queue:a",
		"state:completed finished:..": "state:completed finished:..", "state:completed created:2026-11-01": "state:completed created:2026-11-01",
		"state:completed key:a": "state:completed key:a", "-state:completed": "-state:completed", "state:dead -state:dead": "state:dead -state:dead",
	} {
		q, added := understood(t, text).Recent(noon)
		if q.String() != want || added != (want != text) {
			t.Errorf("%s became %s", text, q)
		}
	}
}

// TestCreationBoundsAreNeverTooNarrow: what an index is asked for may be more than what matches, not less.
func TestCreationBoundsAreNeverTooNarrow(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"created:2026-11-14", "created:-2h..-1h", "age:>1h", "age:<=1h", "age:1h..2h", "created:2026-11-14,2026-11-01", "-created:2026-11-14", "-age:>1h", "age:>1h created:-3h.."} {
		q := understood(t, text)
		bounds, m := q.Created(noon), NewMatcher(q, noon)
		for d := time.Duration(0); d < 40*24*time.Hour; d += 17 * time.Minute {
			f := Facts{CreatedAt: noon.Add(-d)}
			if m.Matches(&f) && !bounds.holds(f.CreatedAt) {
				t.Fatalf("%s matches a job of %s, which its bounds %v leave out", text, f.CreatedAt, bounds)
			}
		}
	}
}

func TestAQueryIsTakenApart(t *testing.T) {
	t.Parallel()
	q := understood(t, "state:failed  queue:billing attempt:>=3")
	if got := q.Without(1).String(); got != "state:failed attempt:>=3" {
		t.Errorf("without its queue: %s", got)
	}
	with, err := q.Without(2).With("tag:vip", noon)
	if err != nil || with.String() != "state:failed queue:billing tag:vip" {
		t.Errorf("with a tag: %s, %v", with, err)
	}
	if v, ok := q.One("queue"); !ok || v != "billing" {
		t.Errorf("its one queue: %q, %v", v, ok)
	}
	if _, ok := understood(t, "queue:a,b").One("queue"); ok {
		t.Error("two queues are not one")
	}
	if id, ok := understood(t, "0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10").Job(); !ok || id.Version() != 7 {
		t.Error("an id names its job")
	}
	want := Needs{Place: true, Runs: true, Workers: true, Error: true, Keys: true, Paths: [][]string{{"a", "b"}, {"c"}}}
	got := understood(t, "state:dead payload.a.b:1 payload.c:2 -payload.a.b:3 duration:>1s build:1 error:x key:k").Needs()
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// FuzzParse: whatever comes is understood or marked, and what was understood says the same when it is read again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"state:failed queue:a,b -tag:\"x y\" attempt:>=3", "created:2026-11-01..-1h", "payload.a.b:\"1,2\" age:<5m", `a"b c"d:e`, "-", `""`, "é:ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text, noon)
		var bad *Error
		if errors.As(err, &bad) {
			if bad.From < 0 || bad.From > bad.To || bad.To > len(text) || bad.Message == "" {
				t.Fatalf("%q: marked %d to %d: %s", text, bad.From, bad.To, bad.Message)
			}
			return
		}
		again, err := Parse(q.String(), noon)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, q, err)
		}
		again.Terms = append([]Term(nil), again.Terms...)
		for i := range again.Terms {
			again.Terms[i].From = q.Terms[i].From
		}
		if d := cmp.Diff(q.Terms, again.Terms); d != "" {
			t.Fatalf("%q read again differs: %s", text, d)
		}
		job := someJob()
		NewMatcher(q, noon).Matches(&job)
	})
}
