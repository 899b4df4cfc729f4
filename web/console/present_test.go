package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

var now = time.Date(2026, 11, 30, 2, 14, 7, 0, time.UTC)

func TestSpansInWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 ms", 35 * time.Millisecond: "35 ms", 99600 * time.Microsecond: "100 ms", 400 * time.Millisecond: "0.4 s",
		9800 * time.Millisecond: "9.8 s", 9960 * time.Millisecond: "9 s", 41 * time.Second: "41 s", 161 * time.Second: "2 min 41 s", time.Hour: "1 h",
		5*time.Hour + 3*time.Minute: "5 h 3 min", 76 * time.Hour: "3 d 4 h", 400 * 24 * time.Hour: "400 d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestCountsAndShares(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1229: "1,229", -1229: "-1,229", -100: "-100", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	if tally(10_000) != "10,000" || tally(10_001) != "10,000+" {
		t.Errorf("tally = %q, %q", tally(10_000), tally(10_001))
	}
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 0, ""}, {0, 5, "0 %"}, {5, 5, "100 %"}, {1, 100_000, "0.1 %"}, {99_999, 100_000, "99.9 %"}, {1231, 4791, "25.7 %"}, {1, 2, "50 %"}} {
		if got := share(c.part, c.whole); got != c.want {
			t.Errorf("share(%d, %d) = %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}

func TestTheTimeOfDayAndOfTheReader(t *testing.T) {
	t.Parallel()
	ago, utc := clock{now: now, times: "ago"}, clock{now: now, times: "utc"}
	three := now.Add(-3 * time.Minute)
	if got := ago.past(three); got.Text != "3 min ago" || got.ISO != "2026-11-30T02:11:07Z" || got.Full != "30 Nov 2026, 02:11:07 UTC" {
		t.Errorf("past = %+v", got)
	}
	if got := utc.past(three).Text; got != "02:11:07" {
		t.Errorf("clock time = %q", got)
	}
	if got := utc.past(now.Add(-24 * time.Hour)).Text; got != "29 Nov 02:14:07" {
		t.Errorf("yesterday = %q", got)
	}
	if got := ago.past(now.Add(time.Hour)).Text; got != "just now" {
		t.Errorf("what has happened lies ahead: %q", got)
	}
	if got := ago.due(now.Add(27 * time.Second)).Text; got != "in 27 s" {
		t.Errorf("due = %q", got)
	}
	if got := ago.past(three.In(time.FixedZone("", 9*3600))).ISO; got != "2026-11-30T02:11:07Z" {
		t.Errorf("another zone = %q", got)
	}
	if got := ago.past(time.Time{}); got.Text != "" || got.ISO != "" {
		t.Errorf("no instant = %+v", got)
	}
}

func TestPercentilesFromBuckets(t *testing.T) {
	t.Parallel()
	b := make([]int64, len(inspect.BucketBounds)+1)
	if _, ok := percentile(b, 0.5); ok {
		t.Error("a percentile of nothing")
	}
	b[7] = 100 // 500 ms to 1 s
	if d, ok := percentile(b, 0.5); !ok || d != 750*time.Millisecond {
		t.Errorf("p50 = %v, want 750 ms", d)
	}
	b[len(b)-1] = 100
	if d, _ := percentile(b, 0.99); d != time.Hour {
		t.Errorf("p99 beyond the last bound = %v, want 1 h", d)
	}
	if d, _ := percentile(b, 0.5); d != time.Second {
		t.Errorf("p50 = %v, want 1 s", d)
	}
}

const goStack = `goroutine 34 [running]:
runtime/debug.Stack()
	/usr/local/go/src/runtime/debug/stack.go:26 +0x5e
panic({0x1?, 0x2?})
	/usr/local/go/src/runtime/panic.go:783 +0x132
example.com/shop/billing.(*Gateway).Charge(0xc000012345, {0x1, 0x2})
	/src/billing/gateway.go:118 +0x1a
main.main.func1(...)
	/src/main.go:12
net/http.(*Client).Do(0xc0000)
	/usr/local/go/src/net/http/client.go:10 +0x1
github.com/reliable-job-engine/reliable-job-engine/engine.(*Engine).execute(0xc0000)
	/src/engine/execute.go:163 +0x2
created by github.com/reliable-job-engine/reliable-job-engine/engine.(*Engine).start in goroutine 7
	/src/engine/run.go:50 +0x3
`

func TestAStackFallsIntoOwnFramesAndTheRest(t *testing.T) {
	t.Parallel()
	own, other, text := framesOf(goStack)
	if len(own) != 2 || own[0].Func != "example.com/shop/billing.(*Gateway).Charge" || own[0].At != "/src/billing/gateway.go:118" || own[1].Func != "main.main.func1" {
		t.Errorf("own frames %+v", own)
	}
	if len(other) != 5 || text != "5 more frames: engine, net/http, runtime, runtime/debug" {
		t.Errorf("other frames %+v, %q", other, text)
	}
	own, other, _ = framesOf("Traceback:\n  File \"x.py\", line 3\nValueError: no")
	if len(own) != 3 || len(other) != 0 {
		t.Errorf("a stack of another language: %+v %+v", own, other)
	}
	if own, other, text = framesOf(""); own != nil || other != nil || text != "" {
		t.Errorf("no stack: %v %v %q", own, other, text)
	}
}

func TestALifeIsWaitingRunningAndBackingOff(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	d := dossier{
		job: inspect.Job{State: engine.StateFailed, CreatedAt: at(-100), ScheduledAt: at(27)},
		attempts: []inspect.Attempt{
			{Run: 1, Outcome: engine.OutcomeLeaseExpired, ClaimedAt: at(-90), FinishedAt: at(-60)},
			{Run: 2, Outcome: engine.OutcomeFailed, ClaimedAt: at(-50), StartedAt: at(-50), FinishedAt: at(-40)},
		},
	}
	var got []string
	for _, s := range life(d, now) {
		got = append(got, []string{"waits", "runs", "backs off"}[s.lane]+" "+span(s.to.Sub(s.from)))
	}
	if want := "waits 10 s, runs 30 s, waits 10 s, runs 10 s, backs off 1 min 7 s"; strings.Join(got, ", ") != want {
		t.Errorf("life = %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestMaskedValuesComeBackIntoACopy(t *testing.T) {
	t.Parallel()
	mask := masker([]string{"password", "CARD", ""})
	if !mask("dbPassword") || !mask("card_number") || mask("name") || mask("") {
		t.Error("masker does not mask what it should")
	}
	old, err := decodeJSON([]byte(`{"card":{"n":12345678901234567890},"list":[{"password":"x"}],"a":1.50}`))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := maskJSON([]byte(`{"card":{"n":12345678901234567890},"list":[{"password":"x"}],"a":1.50}`), mask)
	if err != nil || strings.Contains(string(shown), "123456") || !strings.Contains(string(shown), "1.50") {
		t.Fatalf("masked %s, %v", shown, err)
	}
	typed, err := decodeJSON(shown)
	if err != nil {
		t.Fatal(err)
	}
	back, err := encodeJSON(unmask(typed, old, mask))
	if err != nil || !strings.Contains(string(back), "12345678901234567890") || !strings.Contains(string(back), `"x"`) {
		t.Errorf("unmasked %s, %v", back, err)
	}
}

func TestQueriesAndTheirAddresses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"state:dead queue:billing":    "state:dead queue:billing",
		"leased-word":                 "leased-word",
		`tag:"two words" priority:3`:  `tag:"two words" priority:3`,
		"state:completed":             "state:completed",
		"-state:finished attempt:>=3": "-state:finished attempt:>=3",
		"  type:email  ":              "type:email",
		"":                            "",
	} {
		j, _, err := parseJobQuery(url.Values{"q": {in}}, time.Now())
		if err != nil || j.String() != want {
			t.Errorf("%q = %q, %v, want %q", in, j, err, want)
			continue
		}
		again, _, err := parseJobQuery(j.values(), time.Now())
		if err != nil || again.String() != j.String() {
			t.Errorf("%q does not survive its own address: %q, %v", in, again, err)
		}
	}
	j, _, err := parseJobQuery(url.Values{"state": {"dead"}, "tag": {`a "b"`}, "q": {"attempt:>1"}}, time.Now())
	if want := `state:dead tag:"a \"b\"" attempt:>1`; err != nil || j.String() != want {
		t.Errorf("parameters became %s, %v; want %s", j, err, want)
	}
	if got := j.in(inspect.PlaceReady).String(); got != `state:ready tag:"a \"b\"" attempt:>1` {
		t.Errorf("another tab is %s", got)
	}
	if closest("biling", []string{"mail", "billing"}) != "billing" || closest("zzz", []string{"mail"}) != "" {
		t.Error("closest names are wrong")
	}
	if _, err := parseID("{0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10}"); err == nil {
		t.Error("an id in braces is taken")
	}
}

func TestPagesBackAndForth(t *testing.T) {
	t.Parallel()
	q := url.Values{"state": {"dead"}}
	step := func(address string) cursor {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := readKey(u.Query())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := cursor{limit: pageSize}
	p := first.pager("/jobs", q, 50, "job", "a")
	if p.Newer != "" || p.Older != "/jobs?cursor=a&state=dead" {
		t.Errorf("first page %+v", p)
	}
	p = step(p.Older).pager("/jobs", q, 50, "job", "b")
	if p.Newer != "/jobs?state=dead" {
		t.Errorf("second page %+v", p)
	}
	third := step(p.Older).pager("/jobs", q, 50, "job", "")
	if third.Newer != "/jobs?cursor=a&state=dead" || third.Older != "" {
		t.Errorf("third page %+v", third)
	}
	if back := step(third.Newer).pager("/jobs", q, 50, "job", "b"); back.Newer != "/jobs?state=dead" {
		t.Errorf("back on the second page %+v", back)
	}
}
