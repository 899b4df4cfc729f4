package views

import (
	"math"
	"strconv"
	"testing"
)

func TestLinesLeaveGaps(t *testing.T) {
	t.Parallel()
	got := linePath([]float64{0, 10, math.NaN(), 5}, 10, 40)
	if want := "M0 39.5L1 0.5M3 20"; got != want {
		t.Errorf("path = %s, want %s", got, want)
	}
	if got := areaPath([]float64{0, math.NaN()}, 10, 40); got != "" {
		t.Errorf("area over a gap = %s, want none", got)
	}
}

func TestSharesAreNeverMoreThanAll(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0%", 0.5: "50%", 1: "100%", 3: "100%", -1: "0%", 1.0 / 3: "33.33%", 0.1: "10%"} {
		if got := percent(v); got != want {
			t.Errorf("percent(%g) = %s, want %s", v, got, want)
		}
	}
	if got := (Meter{Busy: 3}).share(); got != "0%" {
		t.Errorf("3 of 0 slots = %s, want 0%%", got)
	}
}

func TestADepthBarShowsEveryStateThatHasJobs(t *testing.T) {
	t.Parallel()
	d := Depth{Segments: []Segment{{State: StateReady, N: 1}, {State: StateRunning}, {State: StateScheduled, N: 999_999}}}
	parts := d.parts()
	if len(parts) != 2 || parts[0].width != "0.6%" || parts[1].x != "0.6%" {
		t.Errorf("parts = %+v, want a sliver and the rest", parts)
	}
	d.Scale = 2_000_000
	if got := d.parts()[1].width; got != "50%" {
		t.Errorf("half of the scale is %s wide, want 50%%", got)
	}
	if (Depth{}).parts() != nil || !(Depth{}).empty() {
		t.Error("an empty queue has a bar")
	}
}

func TestLabelsAtTheEndsOfLinesDoNotCoverEachOther(t *testing.T) {
	t.Parallel()
	c := Chart{YTicks: []Tick{{0, ""}, {100, ""}}, Series: []Series{{Name: "a", Values: []float64{0}}, {Name: "b", Values: []float64{0}}, {Name: "c", Values: []float64{1}}, {Name: "d", Values: []float64{99}}}}
	last := math.Inf(-1)
	for _, e := range c.ends() {
		y, err := strconv.ParseFloat(e.y, 64)
		if err != nil {
			t.Fatal(err)
		}
		if y-last < 15.9 {
			t.Errorf("label %s stands at %g, %g below the one above, want 16", e.x, y, y-last)
		}
		last = y
	}
	if last > chartBottom+4 {
		t.Errorf("the last label stands at %g, below the axis", last)
	}
}

func TestEveryStateHasWordIconAndColour(t *testing.T) {
	t.Parallel()
	for s := range looks {
		if s.Word() == "Unknown" || s.icon() == "" || s.class() == "" {
			t.Errorf("state %s = %q, %q, %q", s, s.Word(), s.icon(), s.class())
		}
	}
	if s := State("?\"x"); s.Word() != "Unknown" || s.class() != "" {
		t.Errorf("an unknown state is %q with class %q", s.Word(), s.class())
	}
	for _, o := range []Outcome{"completed", "failed", "snoozed", "handed_back", "cancelled", "lease_expired", "crashed", "expired", "timed_out", "running"} {
		if o.word() == "Unknown" {
			t.Errorf("outcome %s has no word", o)
		}
	}
}
