package console

import (
	"math"
	"strconv"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/views"
)

// throughputChart draws what came in and what ended, minute by minute. enqueued
// may be nil where it is not known.
func (v *visit) throughputChart(l *line, enqueued []float64) views.Chart {
	c := views.Chart{ID: "throughput", Stale: v.stale()}
	now, before := l.completed[hour-2], l.completed[0]
	c.Title = "Completed " + rate(now) + " per min" + comparedTo(rate(now), rate(before), now-before)
	if enqueued != nil {
		c.Series = append(c.Series, views.Series{Name: "Enqueued", State: views.StateReady, Values: closedMinutes(enqueued), Dash: 1})
	}
	c.Series = append(c.Series,
		views.Series{Name: "Completed", State: views.StateCompleted, Values: closedMinutes(l.completed[:]), Area: true},
		views.Series{Name: "Failed", State: views.StateDead, Values: closedMinutes(l.failed[:]), Dash: 2})
	c.XTicks, c.YTicks = v.minuteTicks(), countTicks(c.Series)
	c.Head = []string{"Minute (UTC)"}
	for _, s := range c.Series {
		c.Head = append(c.Head, s.Name)
	}
	c.Rows = v.chartRows(c.Series, func(f float64) string { return count(int64(math.Round(f))) })
	return c
}

// comparedTo is ", down from 1,225 an hour ago".
func comparedTo(now, before string, change float64) string {
	switch {
	case now == before || before == "":
		return ""
	case change > 0:
		return ", up from " + before + " an hour ago"
	}
	return ", down from " + before + " an hour ago"
}

// waitChart draws how long jobs waited before they started, in seconds.
func (v *visit) waitChart(l *line) views.Chart {
	c := views.Chart{ID: "wait", Stale: v.stale()}
	for i, p := range []struct {
		name string
		at   float64
	}{{"p99", 0.99}, {"p95", 0.95}, {"p50", 0.5}} {
		s := views.Series{Name: p.name, State: views.StateRunning, Dash: 2 - i, Values: make([]float64, hour-1)}
		for m := range s.Values {
			s.Values[m] = math.NaN()
			if d, ok := percentile(l.waits[m], p.at); ok {
				s.Values[m] = d.Seconds()
			}
		}
		c.Series = append(c.Series, s)
	}
	now, before := secondsAt(c.Series[1].Values, hour-2), secondsAt(c.Series[1].Values, 0)
	c.Title = "Wait p95: no runs in the last minute"
	if now != "" {
		c.Title = "Wait p95 about " + now + comparedTo(now, before, c.Series[1].Values[hour-2]-c.Series[1].Values[0])
	}
	c.XTicks, c.YTicks = v.minuteTicks(), secondTicks(c.Series)
	c.Head = []string{"Minute (UTC)", "p99", "p95", "p50"}
	c.Rows = v.chartRows(c.Series, func(f float64) string { return span(time.Duration(f * float64(time.Second))) })
	return c
}

func secondsAt(values []float64, i int) string {
	if math.IsNaN(values[i]) {
		return ""
	}
	return span(time.Duration(values[i] * float64(time.Second)))
}

// chartRows are the numbers of the last 15 minutes, the newest first.
func (v *visit) chartRows(series []views.Series, write func(float64) string) [][]string {
	var rows [][]string
	for m := hour - 2; m >= hour-16; m-- {
		row := []string{minuteLabel(v.figures.pulse, m)}
		for _, s := range series {
			cell := "—"
			if m < len(s.Values) && !math.IsNaN(s.Values[m]) {
				cell = write(s.Values[m])
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

func (v *visit) minuteTicks() []views.Tick {
	var ticks []views.Tick
	for _, m := range []int{0, 15, 30, 45, hour - 2} {
		ticks = append(ticks, views.Tick{Value: float64(m), Text: minuteLabel(v.figures.pulse, m)})
	}
	return ticks
}

func highest(series []views.Series) float64 {
	high := 0.0
	for _, s := range series {
		for _, f := range s.Values {
			if !math.IsNaN(f) {
				high = max(high, f)
			}
		}
	}
	return high
}

// roundUp is the next of 1, 2 and 5 times a power of ten.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5, 10} {
		if v <= step*base*1.000001 {
			return step * base
		}
	}
	return 10 * base
}

func countTicks(series []views.Series) []views.Tick {
	top := max(roundUp(highest(series)), 2)
	return []views.Tick{{Value: 0, Text: "0"}, {Value: top / 2, Text: tickText(top / 2)}, {Value: top, Text: tickText(top)}}
}

func tickText(v float64) string {
	if v >= 1000 {
		return count(int64(v))
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func secondTicks(series []views.Series) []views.Tick {
	top := roundUp(highest(series))
	text := func(v float64) string { return span(time.Duration(v * float64(time.Second))) }
	return []views.Tick{{Value: 0, Text: "0"}, {Value: top / 2, Text: text(top / 2)}, {Value: top, Text: text(top)}}
}
