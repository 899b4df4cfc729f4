package web

import (
	"fmt"
	"testing"
)

// The API's verdict is the page's own, and so are its five answers.
func TestStatsAnswerAsTheOverviewDoes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	got := s.ask("GET", "/api/v1/stats", "")
	if got.status != 200 {
		t.Fatalf("stats = %d %s", got.status, got.body)
	}
	verdict := got.field("verdict", "text").(string)
	if level := got.text("verdict", "level"); level != "degraded" && level != "critical" {
		t.Errorf("with dead letters and a paused queue the verdict is %q", level)
	}
	s.get("/").shows("overview", 200, verdict)
	for _, want := range []struct {
		path []string
		is   any
	}{
		{[]string{"failing", "groups", "0", "type"}, "charge"},
		{[]string{"stuck", "latency_target_seconds"}, 60},
		{[]string{"stuck", "queues", "0", "name"}, "held"},
		{[]string{"stuck", "queues", "0", "paused_reason"}, "INC-204"},
		{[]string{"stuck", "queues", "0", "drain_seconds"}, nil},
		{[]string{"workers", "live"}, 1},
		{[]string{"workers", "slots", "total"}, 4},
		{[]string{"dead_letters", "total"}, 2},
		{[]string{"dead_letters", "died_60_minutes"}, 3}, // one is discarded,
	} {
		if is := got.field(want.path...); fmt.Sprint(is) != fmt.Sprint(want.is) {
			t.Errorf("%v = %v, want %v", want.path, is, want.is)
		}
	}
	if got.field("workers", "last_pass_seconds", "reaper") == nil {
		t.Errorf("the reaper's last pass is missing: %s", got.body)
	}
	actions := map[any]bool{}
	for i := range 3 {
		actions[got.field("changed", fmt.Sprint(i), "action")] = true
	}
	if !actions["cancel"] || !actions["discard"] || !actions["build"] {
		t.Errorf("what changed: %v", actions)
	}
	s.ask("GET", "/api/v1/stats?range=1h", "").refused("a range", 400, "bad-query", "range")
}
