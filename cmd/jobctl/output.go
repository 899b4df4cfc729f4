package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// The forms of -o.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatID    = "id"
)

var formats = []string{formatTable, formatWide, formatJSON, formatJSONL, formatID}

// column is one column of a table of Ts.
type column[T any] struct {
	name  string
	wide  bool // shown with -o wide only
	right bool // numbers
	value func(T) string
}

// item is one element of an answer, as it came and as this program reads it.
type item[T any] struct {
	raw json.RawMessage
	it  T
}

func decodeItems[T any](raws []json.RawMessage) ([]item[T], error) {
	list := make([]item[T], len(raws))
	for i, raw := range raws {
		list[i].raw = raw
		if err := json.Unmarshal(raw, &list[i].it); err != nil {
			return nil, fmt.Errorf("read the server's answer: %w", err)
		}
	}
	return list, nil
}

// view is how Ts are printed: their columns and what names one.
type view[T any] struct {
	columns []column[T]
	id      func(T) string
	empty   string // said when there is none
}

// print writes items in the chosen form. body is the whole answer for -o json.
func (v view[T]) print(a *app, body []byte, raws []json.RawMessage) error {
	if a.format == formatJSON {
		return a.write(append(bytes.TrimSpace(body), '\n'))
	}
	items, err := decodeItems[T](raws)
	if err != nil {
		return err
	}
	if len(items) == 0 && v.empty != "" {
		a.say("%s", v.empty)
	}
	var b bytes.Buffer
	switch a.format {
	case formatJSONL:
		for _, it := range items {
			if err := json.Compact(&b, it.raw); err != nil {
				return fmt.Errorf("read the server's answer: %w", err)
			}
			b.WriteByte('\n')
		}
	case formatID:
		for _, it := range items {
			fmt.Fprintln(&b, printable(v.id(it.it)))
		}
	default:
		v.table(&b, a, items)
	}
	return a.write(b.Bytes())
}

func (v view[T]) table(w io.Writer, a *app, items []item[T]) {
	if len(items) == 0 {
		return
	}
	var head []string
	var shown []column[T]
	for _, c := range v.columns {
		if !c.wide || a.format == formatWide {
			shown = append(shown, c)
			head = append(head, strings.ToUpper(c.name))
		}
	}
	lines := [][]string{head}
	for _, it := range items {
		cells := make([]string, len(shown))
		for i, c := range shown {
			cells[i] = printable(c.value(it.it))
		}
		lines = append(lines, cells)
	}
	writeAligned(w, lines, func(i int) bool { return shown[i].right }, a.colour)
}

// writeAligned pads cells to columns. paint is given each cell before its padding,
// since colour codes have no width.
func writeAligned(w io.Writer, lines [][]string, right func(i int) bool, paint func(string) string) {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range lines {
		var b strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if right(i) {
				b.WriteString(pad + paint(c))
			} else {
				b.WriteString(paint(c) + pad)
			}
			if i < len(cells)-1 {
				b.WriteString("  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// colours are the words that carry a colour on a terminal. The word says it too.
var colours = map[string]string{
	"completed": "32", "Healthy": "32", "pass": "32", "live": "32", "ok": "32",
	"failed": "33", "Degraded": "33", "late": "33", "unchecked": "33", "warning": "33", "paused": "35",
	"dead_letter": "31", "Critical": "31", "fail": "31", "lost": "31", "violated": "31", "problem": "31", "Unreachable": "31",
	"leased": "34", "cancelled": "90", "stopped": "90", "✓": "32", "✗": "33",
}

func (a *app) colour(word string) string {
	code := colours[word]
	if a.noColor || code == "" {
		return word
	}
	return "\x1b[" + code + "m" + word + "\x1b[0m"
}

// pair is one line of a single thing's details.
type pair struct{ name, value string }

// details prints what is known of one thing, leaving out what is empty.
func (a *app) details(pairs []pair) string {
	var lines [][]string
	for _, p := range pairs {
		if p.value != "" {
			lines = append(lines, []string{p.name, printable(p.value)})
		}
	}
	var b strings.Builder
	if len(lines) > 0 {
		writeAligned(&b, lines, func(int) bool { return false }, a.colour)
	}
	return b.String()
}

// write sends data to stdout.
func (a *app) write(b []byte) error {
	if _, err := a.out.Write(b); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// writeCompact sends a JSON value to stdout as one line.
func (a *app) writeCompact(body []byte) error { return a.write(compactLine(body)) }

// compactLine is a JSON value on one line. What is none stays as it is.
func compactLine(body []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, body) != nil {
		return body
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// printable makes stored text safe for a terminal: what would move its cursor,
// change its colours or reorder its letters is shown as �.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// oneLine is s cut to its first line and to n letters.
func oneLine(s string, n int) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// isTerminal tells whether f is a terminal somebody may sit at.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && (isatty.IsTerminal(file.Fd()) || isatty.IsCygwinTerminal(file.Fd()))
}

// ago is how long since, or until, t, in one unit that fits.
func ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	d := time.Since(*t)
	if d < -time.Second {
		return "in " + span(-d)
	}
	return span(max(d, 0)) + " ago"
}

func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dmin", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// instant is t for people who compare it with logs.
func instant(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
