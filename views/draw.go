package views

import (
	"math"
	"strconv"
	"strings"
)

// The drawings share one coordinate system: sparkTop high, as wide as there are
// steps between values, stretched by the style sheet.
const sparkTop = 40.0

// number prints a coordinate with one decimal at most.
func number(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// percent prints a share of one as an attribute: 0.5 is "50%".
func percent(v float64) string {
	v = min(max(v, 0), 1)
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v*100, 'f', 2, 64), "0"), ".") + "%"
}

// top returns the scale of some lines: the given one, or the largest value.
func top(given float64, lines ...[]float64) float64 {
	if given > 0 {
		return given
	}
	for _, line := range lines {
		for _, v := range line {
			if !math.IsNaN(v) && v > given {
				given = v
			}
		}
	}
	if given == 0 {
		return 1
	}
	return given
}

// linePath draws values from left to right, zero at height. A gap in the values
// is a gap in the line.
func linePath(values []float64, scale, height float64) string {
	var b strings.Builder
	pen := "M"
	for i, v := range values {
		if math.IsNaN(v) {
			pen = "M"
			continue
		}
		y := height - min(max(v/scale, 0), 1)*(height-1) - 0.5
		b.WriteString(pen + strconv.Itoa(i) + " " + number(y))
		pen = "L"
	}
	return b.String()
}

// areaPath closes what linePath drew at the zero line. It fills the stretch from
// the first to the last value, so that it is drawn only for lines without gaps.
func areaPath(values []float64, scale, height float64) string {
	for _, v := range values {
		if math.IsNaN(v) {
			return ""
		}
	}
	if len(values) < 2 {
		return ""
	}
	return linePath(values, scale, height) + "L" + strconv.Itoa(len(values)-1) + " " + number(height) + "L0 " + number(height) + "Z"
}

func (s *Spark) scale() float64 { return top(s.Max, s.Values, s.Ghost) * 1.08 }

func (s *Spark) viewBox() string {
	return "0 0 " + strconv.Itoa(max(s.width(), 1)) + " 40"
}

func (s *Spark) width() int {
	if s.Bars {
		return len(s.Values)
	}
	return len(s.Values) - 1
}

func (s *Spark) base() string { return "M0 39.5h" + strconv.Itoa(max(s.width(), 1)) }

// dot marks the newest value.
func (s *Spark) dot() string {
	if len(s.Values) == 0 || math.IsNaN(s.Values[len(s.Values)-1]) {
		return ""
	}
	last := len(s.Values) - 1
	y := sparkTop - min(s.Values[last]/s.scale(), 1)*(sparkTop-1) - 0.5
	return "M" + strconv.Itoa(last) + " " + number(y) + "h0"
}

// pins marks the moments that have something, pinHeads gives them heads.
func (s *Spark) pins() string { return s.eachPin("V18") }

func (s *Spark) pinHeads() string { return s.eachPin("") }

func (s *Spark) eachPin(line string) string {
	var b strings.Builder
	for i, v := range s.Values {
		switch {
		case v <= 0:
		case line != "":
			b.WriteString("M" + strconv.Itoa(i) + " 40" + line)
		default:
			b.WriteString("M" + strconv.Itoa(i) + " 18h0")
		}
	}
	return b.String()
}

// rect is a bar of a drawing.
type rect struct {
	x, y, width, height string
	state               State
}

func (s *Spark) bars() []rect {
	var list []rect
	scale := s.scale()
	for i, v := range s.Values {
		if v <= 0 || math.IsNaN(v) {
			continue
		}
		h := max(v/scale*sparkTop, 2)
		list = append(list, rect{x: number(float64(i) + 0.1), y: number(sparkTop - h), width: "0.8", height: number(h)})
	}
	return list
}

// parts lays the segments of a depth bar side by side. A segment with anything in
// it is never thinner than can be seen.
func (d Depth) parts() []rect {
	var sum int64
	for _, s := range d.Segments {
		sum += s.N
	}
	scale := float64(max(d.Scale, sum))
	if scale == 0 {
		return nil
	}
	var list []rect
	x := 0.0
	for _, s := range d.Segments {
		if s.N <= 0 {
			continue
		}
		w := max(float64(s.N)/scale, 0.006)
		list = append(list, rect{x: percent(x), width: percent(w), state: s.State})
		x += w
	}
	return list
}

func (d Depth) empty() bool {
	for _, s := range d.Segments {
		if s.N > 0 {
			return false
		}
	}
	return true
}

func (m Meter) share() string {
	if m.Total <= 0 {
		return "0%"
	}
	return percent(float64(m.Busy) / float64(m.Total))
}

func (m Meter) state() State {
	if m.Total > 0 && m.Busy >= m.Total {
		return StateRetrying
	}
	return StateRunning
}

// The plot of a chart: its zero line and its top, in pixels.
const (
	chartBottom = 156.0
	chartTop    = 22.0
	chartPlot   = chartBottom - chartTop
)

func (c Chart) scale() float64 {
	if n := len(c.YTicks); n > 0 && c.YTicks[n-1].Value > 0 {
		return c.YTicks[n-1].Value
	}
	var lines [][]float64
	for _, s := range c.Series {
		lines = append(lines, s.Values)
	}
	return top(0, lines...)
}

func (c Chart) steps() int {
	n := 1
	for _, s := range c.Series {
		n = max(n, len(s.Values)-1)
	}
	return n
}

func (c Chart) viewBox() string { return "0 0 " + strconv.Itoa(c.steps()) + " " + number(chartPlot) }

func (c Chart) y(v float64) string { return number(chartBottom - v/c.scale()*chartPlot) }

func (c Chart) labelY(v float64) string { return number(chartBottom - v/c.scale()*chartPlot - 4) }

func (c Chart) x(v float64) string { return percent(v / float64(c.steps())) }

func (c Chart) path(s Series) string { return linePath(s.Values, c.scale(), chartPlot) }

func (c Chart) area(s Series) string { return areaPath(s.Values, c.scale(), chartPlot) }

// anchor keeps the labels of an axis inside the drawing.
func (c Chart) anchor(v float64) string {
	switch {
	case v <= 0:
		return "start"
	case v >= float64(c.steps()):
		return "end"
	}
	return "middle"
}

// ends are the labels at the lines' ends, pushed apart until none covers another.
func (c Chart) ends() []rect {
	const apart = 16.0
	type end struct {
		at  float64
		pos int
	}
	var ends []end
	for i, s := range c.Series {
		if n := len(s.Values); n > 0 && !math.IsNaN(s.Values[n-1]) {
			ends = append(ends, end{at: chartBottom - s.Values[n-1]/c.scale()*chartPlot + 4, pos: i})
		}
	}
	for i := range ends {
		for j := i; j > 0 && ends[j].at < ends[j-1].at; j-- {
			ends[j], ends[j-1] = ends[j-1], ends[j]
		}
	}
	for i := len(ends) - 1; i > 0; i-- {
		limit := chartBottom + 4
		if i < len(ends)-1 {
			limit = ends[i+1].at - apart
		}
		ends[i].at = min(ends[i].at, limit)
		ends[i-1].at = min(ends[i-1].at, ends[i].at-apart)
	}
	list := make([]rect, len(ends))
	for i, e := range ends {
		list[i] = rect{y: number(e.at), state: c.Series[e.pos].State, x: c.Series[e.pos].Name}
	}
	return list
}

// Heights of the lanes of a timeline.
const laneHeight = 26

func (t Timeline) height() int { return len(t.Lanes)*laneHeight + 26 }

func (t Timeline) floor() string { return strconv.Itoa(len(t.Lanes)*laneHeight + 4) }

func (t Timeline) tickY() string { return strconv.Itoa(len(t.Lanes)*laneHeight + 20) }

func laneY(i int) string { return strconv.Itoa(i*laneHeight + 6) }

func laneTextY(i int) string { return strconv.Itoa(i*laneHeight + 17) }

// span is a bar's width; a moment is still drawn.
func (b LaneBar) span() string { return percent(max(b.To-b.From, 0.003)) }
