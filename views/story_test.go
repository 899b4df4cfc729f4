package views

import (
	"fmt"
	"strings"

	"github.com/a-h/templ"
)

// The story of every page: 30 November 2026, 02:14:07 UTC. The payment gateway
// broke at 02:07. The numbers agree from page to page.

const (
	storyJob  = "0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10"
	longQueue = "tenant-4711-customer-notifications-transactional-eu-central-1"
)

var longError = "charge: gateway timeout after 10 s (POST https://pay.example.net/v2/charges): context deadline exceeded\n" +
	"  attempt 1 of the client: dial tcp 203.0.113.7:443: i/o timeout\n  attempt 2 of the client: dial tcp 203.0.113.8:443: i/o timeout\n" +
	"  attempt 3 of the client: dial tcp 203.0.113.9:443: i/o timeout\n  request id 4bf92f3577b34da6a3ce929d0e0e4736\n" +
	"  route eu-central-1\n  body 312 bytes\n  no response headers\n  breaker closed\n  gave up"

func at(clock, text string) Time {
	return Time{ISO: "2026-11-30T" + clock + "Z", Text: text, Full: "30 Nov 2026, " + clock + " UTC"}
}

func storyFrame(title, active, path string) Frame {
	return Frame{
		Base: "/console", Path: "/console" + path, Title: title, Active: active, Env: "production", Version: "0.2.0", DeadCount: "341",
		Now: at("02:14:07", "02:14:07"), Live: Live{Href: "/console" + path + "?live=off"}, Person: &Person{Name: "oncall-eu", Role: "Operator"},
		Banners: []Banner{{
			State: StatePaused, Title: "mail is paused.",
			Text:    []Span{{Text: "2,071 ready jobs wait. oncall-eu,"}, {At: at("02:09:12", "02:09")}, {Text: "UTC:"}, {Text: "Receipts would say paid while charges fail (INC-204)", Quote: true}},
			Actions: []Action{{Kind: "view", Text: "Show", Label: "Show queue mail", Href: "/console/queues/mail"}},
		}},
	}
}

// noisy draws n values around level, falling or rising to last over the end.
func noisy(n int, level, last float64, turn int) []float64 {
	list := make([]float64, n)
	for i := range list {
		v := level * (1 + 0.02*float64((i*7919)%11-5)/5)
		if i > turn {
			v = level + (last-level)*min(float64(i-turn)/4, 1)
		}
		list[i] = v
	}
	return list
}

func storyOverview() Overview {
	m := Overview{
		Frame: storyFrame("Overview", "overview", "/"), Day: "Monday 30 November 2026, UTC", DeadTotal: "341", DeadNew: "325",
		Verdict: Verdict{
			Level: LevelDegraded, Text: "325 jobs died in the last hour, 96 % with one error",
			Cause: []Span{{Text: "billing / charge / gateway timeout", Href: "/console/dlq/groups/9f3c1a2b"}, {Text: "since"}, {At: at("02:07:12", "02:07")}},
			Also:  "Also: billing waits 2 min 41 s (target 60 s), mail paused, 1 worker lost",
		},
	}
	flow := Card{ID: "flow", Question: "Is work flowing?", Href: "/console/queues", Figure: []Span{{Text: "712"}}, Caption: "completed per min",
		Spark: &Spark{State: StateRunning, Label: "Completed 712 per minute, down from 1,225 an hour ago; enqueued steady at 1,229", Values: noisy(61, 1225, 712, 52), Ghost: noisy(61, 1229, 1229, 60)}}
	flow.Lines = []CardLine{
		{Left: muted("Enqueued per min"), Right: plain("1,229")},
		{Left: muted("Started per min"), Right: plain("958")},
		{Left: muted("Backlog, last 15 min"), Right: []Span{{Text: "+2,304", Tone: ToneWarn, Bold: true}}},
	}
	fail := Card{ID: "fail", Question: "What is failing?", Href: "/console/dlq", Figure: []Span{{Text: "25.7", Tone: ToneUp}, {Text: "%", Small: true, Tone: ToneUp}}, Caption: "of 4,791 runs in 5 min",
		Spark: &Spark{State: StateDead, Label: "Failed executions 25.7 percent, up from 0.1 percent an hour ago", Values: noisy(61, 0.1, 25.7, 53), Max: 36}}
	for _, l := range [][4]string{{"GatewayTimeout · charge", "9f3c1a2b", "312", "02:07"}, {"EndpointGone · webhook", "41d07e55", "7", "01:22"}, {"MailboxUnavailable · email", "b8823fd0", "6", "01:19"}} {
		fail.Lines = append(fail.Lines, CardLine{Left: []Span{{Text: l[0], Href: "/console/dlq/groups/" + l[1]}}, Right: []Span{{Text: l[2], Bold: true}, {Text: "since " + l[3], Tone: ToneMuted}}})
	}
	stuck := Card{ID: "stuck", Question: "Where is it stuck?", Href: "/console/queues?sort=-oldest", Figure: []Span{{Text: "4"}, {Text: "min", Small: true}, {Text: "55"}, {Text: "s", Small: true}}, Caption: "oldest ready job",
		Spark: &Spark{State: StateRetrying, Label: "Oldest ready job 4 min 55 s, up from 1 s an hour ago", Values: noisy(61, 1, 295, 52)}}
	stuck.Lines = []CardLine{
		{State: StatePaused, Left: []Span{{Text: "mail", Href: "/console/queues/mail"}, {Text: "oncall-eu: INC-204", Tone: ToneMuted}}, Right: []Span{{Text: "2,071", Bold: true}, {Text: "paused", Tone: ToneHush}}},
		{State: LevelDegraded, Left: []Span{{Text: "billing", Href: "/console/queues/billing"}, {Text: "2 min 41 s", Tone: ToneMuted}}, Right: []Span{{Text: "214", Bold: true}, {Text: "not draining", Tone: ToneWarn}}},
		{State: StateReady, Left: []Span{{Text: longQueue, Href: "/console/queues/x"}, {Text: "0.4 s", Tone: ToneMuted}}, Right: []Span{{Text: "12", Bold: true}, {Text: "drains in 2 s", Tone: ToneMuted}}},
	}
	workers := Card{ID: "workers", Question: "Are the workers alive?", Href: "/console/workers", Figure: []Span{{Text: "5"}, {Text: "live", Small: true, Tone: ToneMuted}, {Text: "1", Tone: ToneUp}, {Text: "lost", Small: true, Tone: ToneUp}}, Caption: "60 of 100 slots busy",
		Spark: &Spark{State: StateReady, Label: "Slots busy 60 of 100, up from 38 an hour ago", Values: noisy(61, 38, 60, 52), Max: 100}}
	workers.Lines = []CardLine{
		{Left: []Span{{Text: "wrk-bill-3", Href: "/console/workers/3"}, {Text: "lost", Tone: ToneMuted}, {At: at("02:09:38", "4 min ago")}}, Right: plain("20 jobs recovered")},
		{Left: muted("Leases reaped, 15 min"), Right: plain("2")}, {Left: muted("Late"), Right: plain("0")},
		{Left: muted("Last reaper pass"), Right: plain("3 s ago")},
	}
	changed := Card{ID: "changed", Question: "What changed?", Href: "/console/audit", Figure: []Span{{Text: "4"}}, Caption: "changes in 60 min",
		Spark: &Spark{State: StateReady, Label: "Changes in the last hour at 01:40, 01:58, 02:09 and 02:12", Pins: true, Values: marksAt(61, 26, 44, 55, 58)}, Events: storyEvents()}
	m.Cards = []Card{flow, fail, stuck, workers, changed}
	m.Queues = storyQueueRows()
	m.Charts = storyCharts()
	return m
}

func marksAt(n int, at ...int) []float64 {
	list := make([]float64, n)
	for _, i := range at {
		list[i] = 1
	}
	return list
}

func plain(s string) []Span { return []Span{{Text: s}} }

func muted(s string) []Span { return []Span{{Text: s, Tone: ToneMuted}} }

func storyEvents() []Event {
	return []Event{
		{At: at("02:12:20", "02:12"), State: StateDead, Icon: "rotate-ccw", Text: []Span{{Text: "Replayed"}, {Text: "7ad1c09e", Href: "/console/jobs/7ad1c09e"}, {Text: ", died again: GatewayTimeout"}}, By: "oncall-us"},
		{At: at("02:09:12", "02:09"), State: StatePaused, Text: []Span{{Text: "Paused"}, {Text: "mail", Href: "/console/queues/mail"}, {Text: "Receipts would say paid while charges fail", Quote: true}}, By: "oncall-eu"},
		{At: at("01:58:31", "01:58"), Icon: "package", Text: []Span{{Text: "Build"}, {Text: "1.8.2", Bold: true}, {Text: "first seen on wrk-bill-1, wrk-bill-2, wrk-bill-3"}}, By: "deploy"},
		{At: at("01:40:02", "01:40"), Icon: "trash", Text: []Span{{Text: "Discarded 18 dead letters of"}, {Text: "report.monthly", Code: true}, {Text: "superseded by the November run", Quote: true}}, By: "oncall-us"},
		{At: at("00:12:45", "00:12"), Icon: "database", Text: []Span{{Text: "Migration 0031 applied in 2.1 s"}}, By: "deploy"},
	}
}

func storyCharts() []Chart {
	x := []Tick{{0, "01:14"}, {15, "01:29"}, {30, "01:44"}, {45, "01:59"}, {60, "02:14"}}
	marks := []Mark{{44, "build 1.8.2"}, {53, "gateway"}, {55, "mail paused"}}
	rows := [][]string{{"02:14", "1,229", "958", "712"}, {"02:13", "1,237", "952", "714"}, {"02:12", "1,220", "960", "714"}}
	return []Chart{
		{ID: "throughput", Title: "Completed 712 per min, down from 1,225 an hour ago", XTicks: x, Marks: marks, YTicks: []Tick{{0, "0"}, {500, "500"}, {1000, "1,000"}, {1500, "1,500"}},
			Series: []Series{{Name: "Enqueued", State: StateReady, Values: noisy(61, 1229, 1229, 60), Dash: 1}, {Name: "Started", State: StateScheduled, Values: noisy(61, 1228, 958, 53), Dash: 2}, {Name: "Completed", State: StateRunning, Values: noisy(61, 1225, 712, 52), Area: true}},
			Head:   []string{"Minute (UTC)", "Enqueued", "Started", "Completed"}, Rows: rows},
		{ID: "wait", Title: "Wait p95 about 1 min 48 s, up from 0.4 s an hour ago", XTicks: x, Marks: marks, YTicks: []Tick{{0, "0"}, {60, "1 min"}, {120, "2 min"}, {180, "3 min"}},
			Series: []Series{{Name: "p99 2.5 min", State: StateDead, Values: noisy(61, 0.9, 152, 52), Dash: 1}, {Name: "p95 1.8 min", State: StateRetrying, Values: noisy(61, 0.4, 108, 53)}, {Name: "p50 0.04 s", State: StateCompleted, Values: noisy(61, 0.04, 0.04, 60), Dash: 2}},
			Head:   []string{"Minute (UTC)", "p50", "p95", "p99"}, Rows: rows},
	}
}

func seg(s State, n int64, count string) Segment { return Segment{State: s, N: n, Count: count} }

func storyQueueRows() []QueueRow {
	out := func(s State, label string, level, last float64) *Spark {
		return &Spark{State: s, Label: label, Values: noisy(30, level, last, 24)}
	}
	rows := []QueueRow{
		{Name: "mail", State: StatePaused, Depth: Depth{Segments: []Segment{seg(StateReady, 2071, "2,071"), seg(StateScheduled, 312, "312"), seg(StateRetrying, 1, "1")}},
			Oldest: "4 min 55 s", OldestTone: ToneHush, In: "421", Out: "0", Wait: "", Failed: "0.0 %", Workers: "1", Slots: "0 of 20", Spark: out(StatePaused, "mail: 0 completed per minute", 420, 0),
			Dead: Link{"11 dead", "/console/dlq?view=jobs&queue=mail"},
			Note: &Notice{State: StatePaused, Title: "oncall-eu", Text: []Span{{Text: "paused mail"}, {At: at("02:09:12", "5 min ago")}, {Text: ":"}, {Text: "Receipts would say paid while charges fail (INC-204)", Quote: true}, {Text: ". No resume time set. About 5 min to drain once resumed."}}}},
		{Name: "billing", State: StateActive, Depth: Depth{Segments: []Segment{seg(StateReady, 214, "214"), seg(StateRunning, 40, "40"), seg(StateRetrying, 118, "118"), seg(StateBlocked, 24, "24"), seg(StateScheduled, 36, "36")}},
			Oldest: "2 min 41 s", OldestTone: ToneWarn, OldestNote: "target 60 s", In: "96", Out: "0", Wait: "2 min 12 s", Failed: "100 %", FailedTone: ToneUp, Workers: "2", WorkerNote: "1 lost", Slots: "40 of 40", Spark: out(StateRetrying, "billing: 0 completed per minute", 96, 0),
			Dead: Link{"316 dead", "/console/dlq?view=jobs&queue=billing"}, Drain: "not draining"},
		{Name: longQueue, State: StateActive, Depth: Depth{Segments: []Segment{seg(StateReady, 12, "12"), seg(StateRunning, 11, "11"), seg(StateScheduled, 1204117, "1,204,117"), seg(StateRetrying, 1, "1")}},
			Oldest: "0.4 s", In: "520", Out: "521", Wait: "0.4 s", Failed: "0.1 %", Workers: "2", Slots: "11 of 40", Spark: out(StateReady, "521 completed per minute", 521, 521)},
		{Name: "webhooks", State: StateActive, Depth: Depth{Segments: []Segment{seg(StateRunning, 7, "7"), seg(StateScheduled, 140, "140"), seg(StateRetrying, 1, "1")}},
			In: "180", Out: "180", Wait: "0.2 s", Failed: "0.4 %", Workers: "2", Slots: "7 of 40", Spark: out(StateReady, "180 completed per minute", 180, 180), Dead: Link{"9 dead", "/console/dlq?view=jobs&queue=webhooks"}},
		{Name: "exports", State: StateActive, In: "0", Out: "0", Workers: "2", Slots: "0 of 40", Spark: out(StateReady, "0 completed per minute", 0, 0)},
	}
	for i := range rows {
		rows[i].Href = "/console/queues/" + rows[i].Name
	}
	return rows
}

func storyJobRows(n int) []JobRow {
	states := []State{StateRunning, StateRunning, StateRetrying, StateRunning, StateRetrying, StateReady, StateDead, StateRetrying, StateDead, StateDead, StateCompleted, StateCancelled, StateScheduled, StateBlocked}
	var rows []JobRow
	for i := range n {
		id := fmt.Sprintf("0193b6a2-6f1e-7c41-9a57-2d1f%08x", 0x598bd4b3+i*0x1a2b3c)
		r := JobRow{ID: id, Short: id[len(id)-8:], Href: "/console/jobs/" + id, State: states[i%len(states)], Type: "charge", Queue: "billing", Priority: "default", Attempt: fmt.Sprint(2 + i%4), Max: "5",
			TypeHref: "/console/types/charge", QueueHref: "/console/queues/billing",
			Created: at(fmt.Sprintf("02:%02d:%02d", 10-i/10, 59-i), fmt.Sprintf("%d min ago", 3+i/12)), Duration: "10.0 s", Error: strings.SplitN(longError, "\n", 2)[0]}
		if r.State == StateRetrying || r.State == StateScheduled {
			r.Due = at("02:14:28", "in 21 s")
		}
		if r.State == StateCompleted {
			r.Error, r.Type, r.Duration, r.TypeHref = "", "customer-notification.render-and-send", "1 h 12 min", "/console/types/x"
			r.Queue = longQueue
		}
		if r.State == StateReady {
			r.Duration, r.Due = "", at("02:14:01", "due now")
		}
		if i == 4 {
			r.Priority = "critical"
		}
		rows = append(rows, r)
	}
	return rows
}

func storyJobs() JobsList {
	return JobsList{
		Frame: func() Frame {
			f := storyFrame("Jobs", "jobs", "/jobs?queue=billing")
			f.Query = "queue:billing"
			return f
		}(),
		Tabs: []Tab{{Text: "All", Href: "/console/jobs", Count: "462", Current: true}, {Text: "Ready", Href: "/console/jobs?state=ready", Count: "9", State: StateReady}, {Text: "Scheduled", Href: "?", Count: "0", State: StateScheduled},
			{Text: "Blocked", Href: "?", Count: "0", State: StateBlocked}, {Text: "Running", Href: "?", Count: "31", State: StateRunning}, {Text: "Retrying", Href: "?", Count: "97", State: StateRetrying},
			{Text: "Completed", Href: "?", Count: "10,000+", State: StateCompleted}, {Text: "Dead", Href: "?", Count: "316", State: StateDead}, {Text: "Cancelled", Href: "?", Count: "6", State: StateCancelled}},
		Chips: []Chip{{Key: "queue", Value: "billing", Remove: "/console/jobs"}, {Key: "finished", Value: "in the last 24 h", Remove: "/console/jobs?finished=any", Default: true}}, Clear: "/console/jobs",
		Filter: JobsFilter{Queue: "billing", Queues: []string{"billing", "mail", longQueue}, Types: []string{"charge", "email"}}, Count: "462 jobs, newest first", Rows: storyJobRows(14),
		Pager:   Pager{Text: "1–50 of 462", Older: "/console/jobs?cursor=eyJ", Size: "100 a page", SizeHref: "/console/jobs?limit=100"},
		Actions: []Action{{Kind: "new", Text: "Enqueue", Href: "/console/jobs/new", Main: true}},
	}
}

func storyAttempts() []Attempt {
	logs := []LogLine{
		{N: "17", Anchor: "a3-l17", At: at("02:13:48", "02:13:48.181"), Level: "info", Text: "job started", Fields: "wait_ms=110888"},
		{N: "18", Anchor: "a3-l18", At: at("02:13:48", "02:13:48.187"), Level: "info", Text: "charging", Fields: "customer=c_48122 amount=12900 currency=EUR"},
		{N: "19", Anchor: "a3-l19", At: at("02:13:50", "02:13:50.190"), Level: "warn", Text: "slow gateway, no response headers after 2 s"},
		{N: "20", Anchor: "a3-l20", At: at("02:13:58", "02:13:58.190"), Level: "error", Text: "POST https://pay.example.net/v2/charges: context deadline exceeded"},
		{N: "21", Anchor: "a3-l21", At: at("02:13:58", "02:13:58.192"), Level: "debug", Text: "body", Fields: `raw="{\"amount\":12900}"`},
	}
	own := []StackFrame{{"billing.(*Gateway).Charge", "billing/gateway.go:118"}, {"billing.ChargeWorker.Work", "billing/charge.go:64"}}
	other := []StackFrame{{"engine.(*runner).call", "engine/execute.go:88"}, {"net/http.(*Client).do", "net/http/client.go:724"}, {"runtime.goexit", "runtime/asm_amd64.s:1700"}}
	group := Link{"fp 9f3c1a2b, 312 dead jobs", "/console/dlq/groups/9f3c1a2b"}
	w := func(n string) Link { return Link{"wrk-bill-" + n, "/console/workers/" + n} }
	return []Attempt{
		{Anchor: "a3", Title: "3 of 5", Run: "run 4", Outcome: "failed", Worker: w("1"), Build: "1.8.2", Token: "48302", Started: at("02:13:48", "02:13:48"), Wait: "1 min 51 s", Ran: "10.0 s", Open: true,
			ErrorClass: "GatewayTimeout", Error: longError, Group: group, OwnFrames: own, OtherFrames: other, OtherText: "3 more frames: engine, net/http, runtime", Logs: logs, LogsText: "5 lines"},
		{Anchor: "a2", Title: "2 of 5", Run: "run 3", Outcome: "failed", Worker: w("2"), Build: "1.8.2", Token: "48207", Started: at("02:11:31", "02:11:31"), Wait: "41.8 s", Ran: "10.0 s", ErrorClass: "GatewayTimeout", Error: longError, Group: group, OwnFrames: own},
		{Anchor: "a1", Title: "1 of 5", Run: "run 2", Outcome: "timed_out", Worker: w("1"), Build: "1.8.2", Token: "48131", Started: at("02:10:31", "02:10:31"), Wait: "48.7 s", Ran: "10.0 s", ErrorClass: "GatewayTimeout", Error: "context deadline exceeded", Group: group},
		{Anchor: "r1", Title: "not counted", Run: "run 1", Outcome: "lease_expired", Worker: w("3"), Build: "1.8.2", Token: "48113", Started: at("02:08:52", "02:08:52"), Wait: "20.9 s", Ran: "50.3 s",
			Refused: []Event{{At: at("02:10:36", "02:10:36"), State: StateDead, Icon: "ban", Text: []Span{{Text: "tried to fail it: token 48113 refused, current 48131"}}, By: "wrk-bill-3"}}},
	}
}

func storyTimeline() Timeline {
	bar := func(s State, from, width float64, text string) LaneBar {
		return LaneBar{State: s, From: from, To: from + width, Text: text}
	}
	t := Timeline{
		Text: "5 min 36 s so far: 3 min 42 s waiting, 1 min 20 s running, 33 s backing off", Now: 0.8738,
		Label: "To scale from 02:08 to 02:15: one run lost with its worker after 50 s, then three attempts of 10 s with growing backoff",
		Lanes: []Lane{
			{Name: "Waiting", Bars: []LaneBar{bar(StateReady, 0.0738, 0.05, ""), bar(StateReady, 0.2436, 0.116, ""), bar(StateReady, 0.4033, 0.0995, ""), bar(StateReady, 0.565, 0.264, "")}},
			{Name: "Running", Bars: []LaneBar{bar(StateDead, 0.1238, 0.1198, "lost"), bar(StateRetrying, 0.3595, 0.0238, "1"), bar(StateRetrying, 0.5029, 0.024, "2"), bar(StateRetrying, 0.829, 0.0238, "3")}},
			{Name: "Backoff", Bars: []LaneBar{bar(StateRetrying, 0.3833, 0.02, ""), bar(StateRetrying, 0.5269, 0.0381, ""), bar(StateRetrying, 0.8529, 0.0862, "")}},
		},
	}
	for i := range 8 {
		t.Ticks = append(t.Ticks, PlaceMark{At: float64(i) / 7, Text: fmt.Sprintf("02:%02d", 8+i), Odd: i%2 == 1})
	}
	worker := func(n string) Span { return Span{Text: "wrk-bill-" + n, Href: "/console/workers/" + n} }
	b := func(s string) Span { return Span{Text: s, Bold: true} }
	m := func(s string) Span { return Span{Text: s, Tone: ToneMuted} }
	t.Events = []Event{
		{At: at("02:14:34", "02:14:34.400"), State: StateScheduled, Text: plain("Due again: attempt 4 of 5"), Gap: "in 27 s", Future: true},
		{At: at("02:13:58", "02:13:58.192"), State: StateRetrying, Text: []Span{b("Attempt 3 failed"), {Text: "GatewayTimeout"}, m("after 10.0 s on"), worker("1")}, Gap: "backoff 36.2 s"},
		{At: at("02:11:41", "02:11:41.251"), State: StateRetrying, Text: []Span{b("Attempt 2 failed"), {Text: "GatewayTimeout"}, m("after 10.0 s on"), worker("2")}, Gap: "backoff 16.0 s"},
		{At: at("02:10:41", "02:10:41.031"), State: StateRetrying, Text: []Span{b("Attempt 1 timed out"), {Text: "GatewayTimeout"}, m("after 10.0 s, isolated on"), worker("1")}, Gap: "backoff 8.4 s"},
		{At: at("02:10:36", "02:10:36.771"), State: StateDead, Icon: "ban", Text: []Span{b("Write refused"), m("wrk-bill-3 tried to fail it: token 48113 refused, current 48131")}},
		{At: at("02:09:42", "02:09:42.318"), State: StateDead, Icon: "unplug", Text: []Span{b("Lease expired"), m("run 1 lost with"), worker("3"), m(", reaped; no attempt used")}, Gap: "ran 50.3 s"},
		{At: at("02:08:52", "02:08:52.004"), State: StateRunning, Text: []Span{b("Run 1 started"), m("on"), worker("3")}, Gap: "waited 20.9 s"},
		{At: at("02:08:31", "02:08:31.120"), State: StateReady, Icon: "plus", Text: []Span{b("Enqueued"), m("by token checkout-api, key"), {Text: "charge-8123", Code: true}}},
	}
	return t
}

func storyMask(key string) bool { return key == "card" }

func storyWhy() *Why {
	text := "It waits out its backoff after attempt 3 of 5: due in 27 s. The delay is 36 s, drawn between 0 s and 40 s."
	return &Why{Title: "Why is this job not running?",
		Text: text, State: StateRetrying,
		Actions: []Action{{Kind: "run_now", Text: "Run now", Label: "Run now: job 0c9b5e10", Href: "/console/jobs/" + storyJob + "/run-now", Post: true, Fields: []Field{{Name: "version", Value: "1"}}}},
		Checks: []WhyCheck{
			{Code: "queue_paused", Verdict: "passed", Text: "Its queue billing is not paused."},
			{Code: "not_due", Verdict: "failed", Text: text, Evidence: []Fact{{Name: "Run at", Value: []Span{{At: at("02:14:34", "in 27 s")}}}, {Name: "Attempts", Value: plain("3")}, {Name: "Delay", Value: plain("36 s")}}},
			{Code: "leased", Verdict: "passed", Text: "No worker holds it."},
			{Code: "no_worker", Verdict: "passed", Text: "3 live workers serve its queue billing and know its type charge."},
			{Code: "slots_busy", Verdict: "failed", Text: "All 30 slots for it are taken, the longest run began 3 min ago.", Evidence: []Fact{{Name: "Busy", Value: plain("30")}, {Name: "Longest job", Value: []Span{{Text: "7ad1c09e", Href: "/console/jobs/7ad1c09e"}}}}},
			{Code: "suspect_waits", Verdict: "passed", Text: "It is no suspect: its last run was not lost with its process."},
			{Code: "held", Verdict: "passed", Text: "Nothing holds it back."},
			{Code: "jobs_ahead", Verdict: "not_applicable", Text: "It does not stand in line."},
			{Code: "not_started", Verdict: "not_applicable", Text: "Something else is in the way."},
		},
	}
}

func storyJobModel() Job {
	payload := `{"order":8123,"amount":12900,"currency":"EUR","customer":{"id":"c_48122","email":"customer@example.com","card":"4111111111111111"},"lines":[{"sku":"b-1","n":2},{"sku":"b-9","n":1}],"serial":123456789012345678901234567890,"rate":1.10}`
	f := storyFrame("Job 0c9b5e10, charge", "jobs", "/jobs/"+storyJob)
	return Job{
		Frame: f, Crumbs: []Crumb{{"Jobs", "/console/jobs"}, {"queue:billing", "/console/jobs?queue=billing"}, {Text: "0c9b5e10"}}, ID: storyJob, Short: "0c9b5e10", Type: "charge", State: StateRetrying,
		Why:      storyWhy(),
		Actions:  []Action{{Kind: "copy", Text: "Enqueue a copy", Href: "/console/jobs/new?copy=" + storyJob}, {Kind: "cancel", Text: "Cancel…", Label: "Cancel job 0c9b5e10", Href: "/console/jobs/" + storyJob + "/cancel", Harm: true}},
		Timeline: storyTimeline(), AttemptsText: "3 of 5 used, 1 run lost", Attempts: storyAttempts(),
		Payload: NewJSON([]byte(payload), storyMask), ResultText: "No result yet: a job keeps one when it completes.",
		Activity: []Event{{At: at("02:12:40", "02:12"), Icon: "pencil", Text: []Span{{Text: "Priority default → high"}, {Text: "customer is on the phone", Quote: true}}, By: "oncall-eu, console"}},
		API:      NewJSON([]byte(`{"id":"`+storyJob+`","status":"failed","type":"charge"}`), nil),
		Facts: []Fact{{Name: "Queue", Value: []Span{{Text: "billing", Href: "/console/queues/billing"}}, Badge: StateActive}, {Name: "Type", Value: []Span{{Text: "charge", Href: "/console/types/charge"}}}, {Name: "Priority", Value: plain("high (3)")},
			{Name: "Attempts", Value: plain("3 of 5, run 4")}, {Name: "Crashes", Value: plain("1")}, {Name: "Created", Value: []Span{{At: at("02:08:31", "6 min ago")}}}, {Name: "Run at", Value: []Span{{At: at("02:14:34", "02:14:34")}, {Text: "UTC"}}},
			{Name: "Expires", Value: muted("never")}, {Name: "Timeout", Value: plain("10 s")}, {Name: "Key", Value: []Span{{Text: "charge-8123", Code: true}}, Copy: "charge-8123"}, {Name: "Tags", Value: plain("orders, eu")}, {Name: "Trace", Value: []Span{{Text: "4bf92f35…", Code: true}}, Copy: "4bf92f3577b34da6a3ce929d0e0e4736"}, {Name: "Replays", Value: plain("0")}},
		Related: []Fact{{Name: "Same error", Value: []Span{{Text: "312 dead jobs", Href: "/console/dlq/groups/9f3c1a2b"}}}, {Name: "First seen", Value: []Span{{At: at("02:07:12", "7 min ago")}}}},
	}
}

func storyGroups() []DeadGroup {
	type g struct{ fp, class, msg, where, tag, hot, note, count, first, last string }
	list := []g{
		{"9f3c1a2b", "GatewayTimeout", "charge: gateway timeout after ‹n› s (POST ‹url›)", "charge in billing", "exhausted", "new since build 1.8.2", "5 replayed once, died again 02:12", "312", "7 min ago", "5 s ago"},
		{"41d07e55", "EndpointGone", "webhook: endpoint answered 410 Gone (‹url›)", "webhook in webhooks", "permanent", "", "", "9", "3 h ago", "2 min ago"},
		{"b8823fd0", "MailboxUnavailable", "smtp: 550 5.1.1 ‹address›: mailbox unavailable", "email in mail", "permanent", "", "", "11", "1 d ago", "9 min ago"},
		{"07be91c4", "Crashed", "worker process ended by signal 9 while the job ran", "report in reports", "poison", "", "quarantined after 3 crashes alone", "1,204,117", "5 h ago", "2 h ago"},
	}
	var out []DeadGroup
	for i, x := range list {
		s := &Spark{State: StateReady, Label: x.count + " deaths in 24 h", Bars: true, Values: marksAt(24, 2, 9, 20-i, 23)}
		if i == 0 {
			s.State, s.Values = StateDead, marksAt(24, 23)
		}
		out = append(out, DeadGroup{Fingerprint: x.fp, Href: "/console/dlq/groups/" + x.fp, Class: x.class, Message: x.msg, Where: x.where, Tags: []string{x.tag}, Hot: x.hot, Note: x.note, Count: x.count,
			First: at("02:07:12", x.first), Last: at("02:14:02", x.last), Spark: s, Jobs: "/console/dlq?view=jobs&fp=" + x.fp})
	}
	return out
}

func storyDeadRows() []DeadRow {
	var rows []DeadRow
	for i := range 12 {
		id := fmt.Sprintf("0193b6a2-6f1e-7c41-9a57-2d1f%08x", 0x7ad1c09e+i*0x9e3779)
		short := id[len(id)-8:]
		rows = append(rows, DeadRow{ID: id, Short: short, Href: "/console/jobs/" + id, State: StateDead, Type: "charge", Queue: "billing", Died: at(fmt.Sprintf("02:14:%02d", 3), fmt.Sprintf("%d s ago", 5+i)),
			Attempts: "5 of 5", Reason: "exhausted", Class: "GatewayTimeout", Error: strings.SplitN(longError, "\n", 2)[0],
			Actions: []Action{{Kind: "replay", Text: "Replay", Label: "Replay job " + short, Href: "/console/dlq/" + id + "/replay", Post: true}, {Kind: "discard", Text: "Discard…", Label: "Discard job " + short, Href: "/console/dlq/" + id + "/discard", Harm: true, Icon: true}}})
	}
	rows[1].State, rows[1].Done, rows[1].Actions = StateReplayed, []Span{{Text: "→ Ready"}, {Text: "Follow it", Href: rows[1].Href}}, []Action{{Kind: "cancel", Text: "Cancel…", Label: "Cancel job " + rows[1].Short, Href: rows[1].Href + "/cancel", Harm: true}}
	rows[2].Replays, rows[3].Reason = "replayed 2×", "poison"
	rows[4].Type, rows[4].Queue = "customer-notification.render-and-send", longQueue
	return rows
}

func storyDead(view string) DeadLetters {
	m := DeadLetters{
		Frame: storyFrame("Dead letters", "dlq", "/dlq?view="+view), View: view, Summary: []Span{{Text: "341 jobs in 6 groups,"}, {Text: "325 new", Tone: ToneUp, Bold: true}, {Text: "in the last hour"}},
		Tabs:  []Tab{{Text: "Groups", Href: "/console/dlq?view=groups", Count: "6", Current: view == "groups"}, {Text: "Jobs", Href: "/console/dlq?view=jobs", Count: "341", Current: view == "jobs"}, {Text: "Discarded", Href: "/console/dlq?view=discarded", Count: "18", Current: view == "discarded"}},
		Chips: []Chip{{Key: "queue", Value: "billing", Count: "316", Href: "?queue=billing"}, {Key: "queue", Value: "mail", Count: "11", Href: "?queue=mail"}, {Key: "reason", Value: "poison", Count: "3", Href: "?reason=poison"}},
		Sorts: map[string]Sort{"count": {Href: "?sort=-count"}, "first": {Href: "?sort=first"}, "last": {Href: "?sort=last", Dir: "descending"}},
	}
	switch view {
	case "groups":
		m.Groups = storyGroups()
	case "jobs":
		m.Rows, m.Pager = storyDeadRows(), Pager{Text: "1–12 of 341", Older: "?cursor=x"}
		m.Frame.Flash = &Flash{Text: []Span{{Text: "Discarded"}, {Text: "7ad1c09e", Href: "/console/jobs/7ad1c09e"}, {Text: "."}}, Undo: &Action{Kind: "undo", Text: "Undo", Label: "Restore job 7ad1c09e", Href: "/console/dlq/x/restore", Post: true}}
	case "discarded":
		m.Rows = storyDeadRows()[5:8]
		for i := range m.Rows {
			m.Rows[i].State, m.Rows[i].Discarded = StateDiscarded, at("02:10:00", "4 min ago")
			m.Rows[i].Actions = []Action{{Kind: "restore", Text: "Restore", Label: "Restore job " + m.Rows[i].Short, Href: "/console/dlq/x/restore", Post: true}}
		}
	}
	return m
}

func storyGroupPage() DeadGroupPage {
	g := storyGroups()[0]
	return DeadGroupPage{Frame: storyFrame("GatewayTimeout", "dlq", "/dlq/groups/9f3c1a2b"), Crumbs: []Crumb{{"Dead letters", "/console/dlq"}, {Text: "GatewayTimeout"}}, Group: g,
		Strip: []Figure{{Name: "Dead jobs", Value: plain("312"), Tone: ToneUp}, {Name: "In the last hour", Value: plain("312")}, {Name: "First seen", Value: []Span{{At: at("02:07:12", "7 min ago")}}}, {Name: "Last seen", Value: []Span{{At: at("02:14:02", "5 s ago")}}}},
		Facts: []Fact{{Name: "Type", Value: plain("charge")}, {Name: "Error class", Value: plain("GatewayTimeout")}, {Name: "Top own frame", Value: []Span{{Text: "billing.(*Gateway).Charge", Code: true}}}, {Name: "Builds", Value: plain("1.8.2")}},
		Samples: func() []Attempt {
			a := storyAttempts()[0]
			a.Title, a.Run = "Newest death", "attempt 5 of 5"
			return []Attempt{a}
		}(), Rows: storyDeadRows()[:5], Pager: Pager{Text: "5 newest of 312", Older: "?cursor=x"}}
}

func storyWorkerRows() []WorkerRow {
	row := func(id, name, host string, s State, queues string, busy int64, done, failed string, beat string) WorkerRow {
		r := WorkerRow{ID: id, Name: name, Href: "/console/workers/" + id, Host: host + ", pid 812", State: s, Queues: queues, Slots: Meter{Busy: busy, Total: 20, Text: fmt.Sprintf("%d of 20", busy)}, PerMinute: done, Failed: failed, Heartbeat: at("02:14:05", beat), Build: "1.8.2", Started: at("01:58:30", "16 min ago")}
		if failed != "0" {
			r.FailedTone = ToneUp
		}
		return r
	}
	rows := []WorkerRow{row("3", "wrk-bill-3", "10.4.1.23", StateLost, "billing", 0, "", "64", "5 min ago"), row("1", "wrk-bill-1", "10.4.1.21", StateLive, "billing", 20, "0", "598", "2 s ago"), row("2", "wrk-bill-2", "10.4.1.22", StateLate, "billing", 20, "0", "601", "26 s ago"),
		row("4", "wrk-mail-1", "10.4.1.31", StateDraining, "mail", 0, "0", "0", "4 s ago"), row("5", "wrk-gen-1", "10.4.1.41", StateLive, "default, webhooks, reports, exports, "+longQueue, 11, "361", "0", "1 s ago"), row("6", "worker-7d9c5b8f4-x2x9q.eu-central-1.internal", "10.4.1.42", StateStopped, "all queues", 9, "352", "0", "7 s ago")}
	rows[0].Slots, rows[0].BeatTone = Meter{}, ToneUp
	rows[0].Note = &Notice{State: StateLost, Title: "No heartbeat since 02:09:08.", Text: []Span{{Text: "20 jobs recovered from 2 leases, all back in billing. One late write was refused (token 48113)."}, {Text: "Show the 20 jobs", Href: "/console/jobs"}}}
	rows[4].Stuck = "2 stuck"
	return rows
}

func storyWorkers() Workers {
	small := func(s string) Span { return Span{Text: s, Small: true} }
	return Workers{Frame: storyFrame("Workers", "workers", "/workers"), Rows: storyWorkerRows(), Strip: []Figure{{Name: "Live", Value: []Span{{Text: "5"}, small("of 6")}}, {Name: "Late", Value: plain("0")}, {Name: "Lost", Value: plain("1"), Tone: ToneUp}, {Name: "Slots busy", Value: []Span{{Text: "60"}, small("of 100")}}, {Name: "Leases reaped, 15 min", Value: []Span{{Text: "2"}, small("20 jobs")}}, {Name: "Last reaper pass", Value: []Span{{Text: "3 s"}, small("ago, every 5 s")}}}}
}

func storyWorker() Worker {
	r := storyWorkerRows()[1]
	run := func(o Outcome, token string) RunRow {
		return RunRow{Job: Link{"0c9b5e10", "/console/jobs/" + storyJob}, ID: storyJob, Type: "charge", Queue: "billing", Attempt: "3 of 5", Token: token, Started: at("02:13:48", "19 s ago"), Ran: "10.0 s", Lease: at("02:14:19", "in 12 s"), Outcome: o, Error: strings.SplitN(longError, "\n", 2)[0]}
	}
	return Worker{Frame: storyFrame("Worker wrk-bill-1", "workers", "/workers/1"), Crumbs: []Crumb{{"Workers", "/console/workers"}, {Text: r.Name}}, Row: r, Leader: true, Strip: storyWorkers().Strip[:4],
		Facts:   []Fact{{Name: "Host", Value: plain("10.4.1.21")}, {Name: "Process", Value: plain("812")}, {Name: "Build", Value: plain("1.8.2")}, {Name: "Queues", Value: plain("billing")}, {Name: "Types", Value: plain("charge, invoice, refund")}, {Name: "Heartbeat", Value: []Span{{At: r.Heartbeat}}}},
		Running: []RunRow{run("running", "48302"), {Job: Link{"7ad1c09e", "/console/jobs/x"}, ID: "x", Type: "charge", Queue: "billing", Attempt: "1 of 5", Token: "48303", Prefetch: true, Lease: at("02:14:19", "in 12 s")}}, Recent: []RunRow{run("failed", "48299"), run("completed", "48290")}}
}

func storyTypeRows() []TypeRow {
	return []TypeRow{
		{Name: "charge", Href: "/console/types/charge", Queues: []Link{{"billing", "/console/queues/billing"}}, PerMinute: "96", Runs: "5,760", Failed: "25.7 %", FailedTone: ToneUp, P50: "10.0 s", P95: "10.0 s", P99: "10.1 s", Workers: "2", Builds: "1.8.2", Dead: Link{"312", "/console/dlq?type=charge"}, Spark: &Spark{State: StateRetrying, Label: "charge: 0 completed per minute", Values: noisy(30, 96, 0, 24)}},
		{Name: "customer-notification.render-and-send", Href: "/console/types/x", Queues: []Link{{longQueue, "/console/queues/x"}, {"mail", "/console/queues/mail"}}, PerMinute: "1,204,117", Runs: "72,247,020", Failed: "0.1 %", P50: "0.04 s", P95: "0.4 s", P99: "1.2 s", Workers: "0", WorkersTone: ToneUp, Builds: "1.8.1, 1.8.2", Spark: &Spark{State: StateReady, Label: "steady", Values: noisy(30, 520, 520, 29)}},
	}
}

type storyPage struct {
	name string
	page templ.Component
	live templ.Component // nil for pages that do not follow
}

// storyPages is every page of the console, once or more.
func storyPages() []storyPage {
	overview, jobs, job, queues := storyOverview(), storyJobs(), storyJobModel(), Queues{Frame: storyFrame("Queues", "queues", "/queues"), Summary: "6 queues, 1 paused, 1 over its wait target", Rows: storyQueueRows(), Sorts: map[string]Sort{"oldest": {Href: "?sort=oldest", Dir: "descending"}, "name": {Href: "?sort=name"}, "in": {Href: "?sort=-in"}, "failed": {Href: "?sort=-failed"}}}
	queue := Queue{Frame: storyFrame("Queue mail", "queues", "/queues/mail"), Crumbs: []Crumb{{"Queues", "/console/queues"}, {Text: "mail"}}, Row: queues.Rows[0], Strip: []Figure{{Name: "Oldest ready", Value: plain("4 min 55 s"), Tone: ToneHush}, {Name: "In per min", Value: plain("421")}, {Name: "Out per min", Value: plain("0")}, {Name: "Failed", Value: plain("0.0 %")}, {Name: "Slots busy", Value: plain("0 of 20")}},
		Running: nil, Waiting: storyJobRows(3), Types: storyTypeRows()[1:], Workers: storyWorkerRows()[3:4], History: storyEvents()[1:2], Charts: storyCharts()[:1]}
	types := Types{Frame: storyFrame("Types", "types", "/types"), Summary: "2 types ran in the last hour", Rows: storyTypeRows()}
	typ := Type{Frame: storyFrame("Type charge", "types", "/types/charge"), Crumbs: []Crumb{{"Types", "/console/types"}, {Text: "charge"}}, Row: storyTypeRows()[0], Strip: queue.Strip, Facts: []Fact{{Name: "Backoff", Value: plain("full jitter, 10 s to 5 min")}, {Name: "Attempts", Value: plain("5")}}, Handlers: storyWorkerRows()[1:3], Errors: storyGroups()[:1], Recent: storyJobRows(3)}
	groups, dead, discarded := storyDead("groups"), storyDead("jobs"), storyDead("discarded")
	group, workers, worker := storyGroupPage(), storyWorkers(), storyWorker()
	audit := Audit{Frame: storyFrame("Audit", "audit", "/audit"), Note: "kept for 365 days", Chips: []Chip{{Key: "who", Value: "oncall-eu", Remove: "/console/audit"}}, Clear: "/console/audit", Pager: Pager{Text: "3 entries"},
		Rows: []AuditRow{{ID: "e118", At: at("02:12:20", "2 min ago"), Actor: "oncall-us", Source: "console", Action: "replay", Target: Link{"7ad1c09e", "/console/jobs/7ad1c09e"}, Reason: "gateway says recovered, INC-204", Before: "dead_letter", After: "pending", Count: "1", Request: "0193b6a2-71c0", Address: "10.0.0.7"},
			{ID: "e117", At: at("02:09:12", "5 min ago"), Actor: "oncall-eu", Source: "api", Action: "pause", Target: Link{longQueue, "/console/queues/mail"}, Reason: "Receipts would say paid while charges fail (INC-204)", After: "paused", Count: "1", Request: "0193b6a2-71bf", Address: "10.0.0.8"}}}
	newJob := NewJob{Frame: storyFrame("New job", "jobs", "/jobs/new"), CopiedFrom: Link{"0c9b5e10", "/console/jobs/" + storyJob}, Fields: JobForm{Type: "charge", Queue: "billing", Payload: "{\n  \"order\": 8123,\n  \"amount\": 12900,\n}", Priority: "3", CopiedFrom: storyJob, RunAt: "tomorrow"},
		Problems: []Problem{{"payload", "line 4: a comma before the closing brace"}, {"run_at", "not a time: write 2026-12-01T06:00:00Z"}}, Queues: []string{"billing"}, Types: []string{"charge"}, Command: "curl -X POST http://127.0.0.1:8080/api/v1/jobs \\\n  -H 'Content-Type: application/json' \\\n  -d '{\"type\":\"charge\",\"queue\":\"billing\"}'"}
	system := System{Frame: storyFrame("System", "system", "/system"), Strip: []Figure{{Name: "Version", Value: plain("0.2.0")}, {Name: "Database", Value: plain("1.8 GB")}, {Name: "Pool", Value: plain("4 of 20")}, {Name: "Clock offset", Value: plain("2 ms")}},
		Sections: []Section{{ID: "build", Title: "Build", Facts: []Fact{{Name: "Commit", Value: []Span{{Text: "df71174", Code: true}}, Copy: "df71174"}, {Name: "Go", Value: plain("1.26.0")}}}, {ID: "settings", Title: "Settings in force", Text: "secrets hidden", Head: []string{"Name", "Value", "From"}, Rows: [][]string{{"DB_MAX_CONNS", "20", "default"}, {"DATABASE_URL", "postgres://jobs:••••@db/jobs", "environment"}}}}}
	help := Help{Frame: storyFrame("Help", "help", "/help"), Problems: []HelpProblem{{"not-found", "404", "Nothing is here", "No job has this id, or its history is no longer kept."}, {"validation-failed", "422", "The request was not accepted", "Each entry of errors names a field."}}, Retention: []Fact{{Name: "Completed", Value: plain("7 days")}, {Name: "Dead", Value: plain("never removed")}}}
	login := Login{Frame: Frame{Base: "/console", Title: "Sign in", Env: "production"}, Name: "oncall-eu", Return: "/console/dlq", Failed: "Name or password is wrong.", Hint: "Sessions end after 12 h idle. Trouble signing in? Ask an admin for a reset."}
	confirm := Confirm{Frame: storyFrame("Discard job 7ad1c09e", "dlq", "/dlq/x/discard"), Crumbs: []Crumb{{"Dead letters", "/console/dlq"}, {"7ad1c09e", "/console/jobs/7ad1c09e"}, {Text: "Discard"}}, Title: "Discard job 7ad1c09e?", Act: Action{Kind: "discard", Text: "Discard job", Href: "/console/dlq/x/discard", Harm: true, Fields: []Field{{"version", "3"}}}, Keep: Link{"Keep it", "/console/dlq?view=jobs"},
		Warning: &Notice{State: LevelDegraded, Title: "The cause is probably still there.", Text: plain("This error was last seen 5 s ago.")}, Facts: []Fact{{Name: "Error", Value: plain("GatewayTimeout")}, {Name: "Type", Value: plain("charge")}, {Name: "Queue", Value: []Span{{Text: "billing", Href: "/console/queues/billing"}}, Badge: StateActive}, {Name: "Died", Value: []Span{{At: at("02:14:02", "5 s ago")}}}}, Reason: ReasonField{Ask: true, Required: true}, Note: "It leaves the list. Undo works for 7 days.", Sample: storyDeadRows()[:3]}
	cancel := confirm
	cancel.Title, cancel.Act, cancel.Reason, cancel.Warning, cancel.Sample = "Cancel job 0c9b5e10?", Action{Kind: "cancel", Text: "Cancel job", Href: "/console/jobs/x/cancel", Harm: true}, ReasonField{Ask: true}, nil, nil
	missing := ErrorPage{Frame: storyFrame("Not found", "jobs", "/jobs/x"), Status: "404", Title: "No job has this id", Text: []string{"0193b6a2-6f1e-7c41-9a57-000000000000 is not known. History of completed jobs is kept for 168 h (RETENTION_COMPLETED)."}, Links: []Link{{"All jobs", "/console/jobs"}}, RequestID: "0193b6a2-71c0"}
	conflict := ErrorPage{Frame: storyFrame("Conflict", "dlq", "/dlq"), Status: "409", Title: "Somebody was faster", Text: []string{"oncall-us replayed this job 4 s ago."}, Fresh: &Fact{Name: "It is now", Badge: StateReady}, Links: []Link{{"The job", "/console/jobs/x"}}}
	first := Overview{Frame: storyFrame("Overview", "overview", "/"), Verdict: Verdict{Level: LevelHealthy, Text: "no job has been enqueued yet"}, Day: overview.Day, First: &Empty{Title: "Enqueue the first job", Text: "Nothing has been enqueued here yet.", Commands: []string{"jobctl jobs enqueue email --payload '{}'"}, Links: []Link{{"New job", "/console/jobs/new"}}}}
	first.Frame.Banners, first.Frame.DeadCount, first.Frame.Person, first.Frame.Env = nil, "", nil, "development"
	noJobs := JobsList{Frame: storyFrame("Jobs", "jobs", "/jobs?queue=biling"), Tabs: jobs.Tabs, Chips: []Chip{{Key: "queue", Value: "biling", Remove: "/console/jobs"}}, Empty: &Empty{Title: "No job matches queue biling.", Text: "Closest queue:", Links: []Link{{"billing", "/console/jobs?queue=billing"}}}, Problem: &Mistake{"state:dead ", "queue:", "", "A value is missing here."}}
	noDead := storyDead("groups")
	noDead.Groups, noDead.Empty, noDead.Summary = nil, &Empty{Title: "No dead jobs.", Text: "Jobs land here after 5 failed attempts."}, nil
	return append(storyAccess(), []storyPage{
		{"overview", OverviewPage(overview), OverviewLive(overview)}, {"overview-first", OverviewPage(first), nil}, {"jobs", JobsPage(jobs), JobsLive(jobs)}, {"jobs-empty", JobsPage(noJobs), nil}, {"job", JobPage(job), JobLive(job)},
		{"queues", QueuesPage(queues), QueuesLive(queues)}, {"queue", QueuePage(queue), QueueLive(queue)}, {"types", TypesPage(types), TypesLive(types)}, {"type", TypePage(typ), TypeLive(typ)},
		{"dlq", DeadLettersPage(groups), DeadLettersLive(groups)}, {"dlq-jobs", DeadLettersPage(dead), DeadLettersLive(dead)}, {"dlq-discarded", DeadLettersPage(discarded), nil}, {"dlq-empty", DeadLettersPage(noDead), nil}, {"dlq-group", DeadGroupPageView(group), DeadGroupLive(group)},
		{"workers", WorkersPage(workers), WorkersLive(workers)}, {"worker", WorkerPage(worker), WorkerLive(worker)}, {"audit", AuditPage(audit), AuditLive(audit)}, {"new-job", NewJobPage(newJob), nil}, {"system", SystemPage(system), nil}, {"help", HelpPage(help), nil},
		{"login", LoginPage(login), nil}, {"confirm-discard", ConfirmPage(confirm), ConfirmDialog(confirm)}, {"confirm-cancel", ConfirmPage(cancel), nil}, {"error-404", ErrorPageView(missing), ErrorSwap(missing)}, {"error-409", ErrorPageView(conflict), nil},
	}...)
}
