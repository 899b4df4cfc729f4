package samplejobs

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// table is a report ready to print. The first Texts columns are names and times,
// the others numbers.
type table struct {
	Title, Filters string
	From, To       time.Time
	Columns        []string
	Texts          int
	Rows           [][]string
	Omitted        int
	About          bool // some numbers are estimates
	Where          string
}

// tabulate makes the table of a's kind from counts in order.
func tabulate(a Report, counts []*tally) *table {
	t := &table{From: a.From, To: a.To, Filters: filters(a), Texts: 2}
	switch a.Kind {
	case "throughput":
		t.throughput(a, counts)
	case "failures":
		t.failures(counts)
	default:
		t.latencies(counts)
	}
	return t.first(reportRowsMax)
}

func filters(a Report) string {
	var parts []string
	if a.Queue != "" {
		parts = append(parts, "queue "+a.Queue)
	}
	if a.Type != "" {
		parts = append(parts, "type "+a.Type)
	}
	if len(parts) == 0 {
		return "All queues and types."
	}
	return "Only " + strings.Join(parts, ", ") + "."
}

func (t *table) throughput(a Report, counts []*tally) {
	t.Title, t.Texts = "Throughput", 3
	t.Columns = []string{"from", "queue", "type", "runs", "completed", "failures", "other", "completed_per_minute"}
	for _, c := range counts {
		completed := c.outcomes[engine.OutcomeCompleted]
		t.Rows = append(t.Rows, []string{stamp(latest(c.period, a.From)), c.queue, c.jobType, number(c.runs), number(completed), number(c.failures()),
			number(c.runs - completed - c.failures()), ratio(float64(completed), a.minutesOf(c.period))})
	}
}

// minutesOf is how much of a period lies within the span.
func (a *Report) minutesOf(period time.Time) float64 {
	end := period.Add(a.period())
	if end.After(a.To) {
		end = a.To
	}
	return end.Sub(latest(period, a.From)).Minutes()
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (t *table) failures(counts []*tally) {
	t.Title = "Failures"
	t.Columns = []string{"queue", "type", "runs", "failures", "failures_percent", "failed", "timed_out", "crashed", "lease_expired", "expired"}
	worst := slices.Clone(counts)
	slices.SortStableFunc(worst, func(a, b *tally) int { return cmp.Compare(b.failures(), a.failures()) })
	for _, c := range worst {
		t.Rows = append(t.Rows, []string{c.queue, c.jobType, number(c.runs), number(c.failures()),
			ratio(100*float64(c.failures()), float64(c.failures()+c.outcomes[engine.OutcomeCompleted])),
			number(c.outcomes[engine.OutcomeFailed]), number(c.outcomes[engine.OutcomeTimedOut]), number(c.outcomes[engine.OutcomeCrashed]),
			number(c.outcomes[engine.OutcomeLeaseExpired]), number(c.outcomes[engine.OutcomeExpired])})
	}
}

func (t *table) latencies(counts []*tally) {
	t.Title, t.About = "Latencies", true
	t.Columns = []string{"queue", "type", "runs", "about_wait_p50_seconds", "about_wait_p95_seconds", "about_wait_p99_seconds",
		"about_run_p50_seconds", "about_run_p95_seconds", "about_run_p99_seconds", "run_mean_seconds"}
	for _, c := range counts {
		t.Rows = append(t.Rows, []string{c.queue, c.jobType, number(c.runs), quantile(c.wait, 0.5), quantile(c.wait, 0.95), quantile(c.wait, 0.99),
			quantile(c.run, 0.5), quantile(c.run, 0.95), quantile(c.run, 0.99), ratio(float64(c.runMS)/1000, float64(c.runs))})
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// ratio is a/b to three places, empty where there is nothing to divide by.
func ratio(a, b float64) string {
	if b == 0 {
		return ""
	}
	return strconv.FormatFloat(a/b, 'f', 3, 64)
}

// first is t with at most n rows.
func (t *table) first(n int) *table {
	short := *t
	if len(t.Rows) > n {
		short.Rows, short.Omitted = t.Rows[:n], t.Omitted+len(t.Rows)-n
	}
	return &short
}

// note says what is left out, empty if nothing is.
func (t *table) note() string {
	if t.Omitted == 0 {
		return ""
	}
	return fmt.Sprintf("%d more rows are left out; ask for one queue, one type, or a shorter span.", t.Omitted)
}

// fit renders t, with as many rows as keep the file within its limit.
func (t *table) fit(format string) ([]byte, error) {
	render := t.csv
	if format == "html" {
		render = t.html
	}
	data, err := render()
	for err == nil && len(data) > reportBytesMax {
		*t = *t.first(len(t.Rows) / 2)
		data, err = render()
	}
	return data, err
}

// csv is RFC 4180 with a header line; the note is a last line, in its first cell.
func (t *table) csv() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	lines := slices.Concat([][]string{t.Columns}, t.Rows)
	if note := t.note(); note != "" {
		last := make([]string, len(t.Columns))
		last[0] = note
		lines = append(lines, last)
	}
	for _, line := range lines {
		guarded := slices.Clone(line)
		for i := range t.Texts {
			guarded[i] = plainCell(line[i])
		}
		if err := w.Write(guarded); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// plainCell keeps a spreadsheet from taking a name for a formula: what begins
// like one gets an apostrophe, which spreadsheets read as "text follows".
func plainCell(s string) string {
	if s != "" && strings.ContainsAny(s[:1], "=+-@\t\r\n") {
		return "'" + s
	}
	for _, wide := range []string{"＝", "＋", "－", "＠"} {
		if strings.HasPrefix(s, wide) {
			return "'" + s
		}
	}
	return s
}

// text is for a mail read without HTML.
func (t *table) text() string {
	if len(t.Rows) == 0 {
		return "No runs in this span."
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, line := range slices.Concat([][]string{t.Columns}, t.Rows) {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	_ = w.Flush() // a strings.Builder takes everything
	return strings.TrimRight(b.String(), "\n")
}

//go:embed report.html
var reportPage string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"stamp": stamp,
	"words": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
}).Parse(reportPage))

// html is a page that needs no other file.
func (t *table) html() ([]byte, error) {
	var b bytes.Buffer
	err := reportTemplate.Execute(&b, struct {
		*table
		Note string
	}{t, t.note()})
	return b.Bytes(), err
}
