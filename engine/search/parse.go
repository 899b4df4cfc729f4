package search

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Parse reads a text. now is what relative times count from, kept to the
// microsecond, as the database does. The error is a *[Error].
func Parse(text string, now time.Time) (Query, error) {
	p := parser{text: text, now: now}
	return p.parse()
}

type parser struct {
	text string
	now  time.Time
}

// piece is a value without its quotes, and where it stood.
type piece struct {
	text     string
	from, to int
	quoted   bool
}

func wrong(from, to int, format string, args ...any) *Error {
	return &Error{From: from, To: to, Message: fmt.Sprintf(format, args...)}
}

func (p *parser) parse() (Query, error) {
	var q Query
	if len(p.text) > MaxLength {
		return q, wrong(MaxLength, len(p.text), "At most %d bytes.", MaxLength)
	}
	if !utf8.ValidString(p.text) || strings.ContainsRune(p.text, 0) {
		return q, wrong(0, len(p.text), "The text is not UTF-8, or has a NUL.")
	}
	for at := 0; ; {
		for at < len(p.text) {
			r, n := utf8.DecodeRuneInString(p.text[at:])
			if !unicode.IsSpace(r) {
				break
			}
			at += n
		}
		if at == len(p.text) {
			return q, nil
		}
		end, err := p.wordEnd(at)
		if err != nil {
			return Query{}, err
		}
		if len(q.Terms) == MaxTerms {
			return Query{}, wrong(at, end, "At most %d conditions.", MaxTerms)
		}
		t, err := p.term(at, end)
		if err != nil {
			return Query{}, err
		}
		q.Terms = append(q.Terms, t)
		at = end
	}
}

// wordEnd finds the space that ends a word, outside of quotes.
func (p *parser) wordEnd(from int) (int, error) {
	open, escaped := -1, false
	for i, r := range p.text[from:] {
		switch {
		case escaped:
			escaped = false
		case r == '\\' && open >= 0:
			escaped = true
		case r == '"' && open < 0:
			open = from + i
		case r == '"':
			open = -1
		case unicode.IsSpace(r) && open < 0:
			return from + i, nil
		}
	}
	if open >= 0 {
		return 0, wrong(open, len(p.text), "This quote is not closed.")
	}
	return len(p.text), nil
}

func (p *parser) term(from, to int) (Term, error) {
	t := Term{Text: p.text[from:to], From: from}
	at := from
	if p.text[at] == '-' {
		t.Not, at = true, at+1
	}
	colon := nameEnd(p.text[at:to])
	if colon < 0 {
		return p.bare(t, at, to)
	}
	name := strings.ToLower(p.text[at : at+colon])
	if rest, ok := strings.CutPrefix(name, "payload."); ok {
		if slices.Contains(strings.Split(rest, "."), "") {
			return t, wrong(at, at+colon, "A payload path is names with dots between them, as in payload.customer.id:123.")
		}
		name, t.Path = "payload", strings.Split(p.text[at+len("payload."):at+colon], ".")
	}
	def, known := qualifiers[name]
	switch {
	case !known:
		if near := nearest(name, Names); near != "" {
			return t, wrong(at, at+colon+1, "There is no %s: here. Did you mean %s: ?", cut(name), near)
		}
		return t, wrong(at, at+colon+1, "There is no %s: here. Use %s:, or put quotes around a text with a colon.", cut(name), strings.Join(Names, ": "))
	case name == "payload" && t.Path == nil:
		return t, wrong(at, to, "Name a place in the payload, as in payload.customer.id:123.")
	}
	t.Name = name
	values, err := p.values(at+colon+1, to, def)
	if err != nil {
		return t, err
	}
	for _, v := range values {
		if err := t.read(v, def.kind, p.now); err != nil {
			return t, err
		}
	}
	return t, nil
}

// nameEnd is where a qualifier's colon stands; -1 if the word has none before a
// quote.
func nameEnd(word string) int {
	i := strings.IndexAny(word, `:"`)
	if i < 0 || word[i] == '"' {
		return -1
	}
	return i
}

// bare is a word without a qualifier: a job's id, or the beginning of a name.
func (p *parser) bare(t Term, from, to int) (Term, error) {
	values, err := p.values(from, to, qualifier{texts, "billing", ""})
	if err != nil {
		return t, err
	}
	for _, v := range values {
		if id, err := uuid.Parse(v.text); err == nil && len(v.text) == 36 && !v.quoted {
			if len(values) > 1 {
				return t, wrong(v.from, v.to, "One id at a time.")
			}
			t.ID = id
			return t, nil
		}
		t.Values = append(t.Values, v.text)
	}
	return t, nil
}

// values splits a term's values at commas outside of quotes.
func (p *parser) values(from, to int, def qualifier) ([]piece, error) {
	var list []piece
	var b strings.Builder
	start, open, quoted := from, false, false
	end := func(at int) error {
		if b.Len() == 0 {
			return wrong(start, max(at, start), "A value is missing here, as in %s.", def.example)
		}
		if len(list) == MaxValues {
			return wrong(start, at, "At most %d values.", MaxValues)
		}
		list = append(list, piece{b.String(), start, at, quoted})
		b.Reset()
		quoted = false
		return nil
	}
	escaped := false
	for i, r := range p.text[from:to] {
		switch {
		case escaped:
			b.WriteRune(r)
			escaped = false
		case r == '\\' && open:
			escaped = true
		case r == '"':
			open, quoted = !open, true
		case r == ',' && !open:
			if err := end(from + i); err != nil {
				return nil, err
			}
			start = from + i + 1
		case unicode.IsControl(r):
			return nil, wrong(from+i, from+i+1, "No control characters.")
		default:
			b.WriteRune(r)
		}
	}
	if err := end(to); err != nil {
		return nil, err
	}
	return list, nil
}

// read adds one value to a term.
func (t *Term) read(v piece, k kind, now time.Time) error {
	switch k {
	case texts:
		t.Values = append(t.Values, v.text)
	case states:
		meant, ok := stateWords[strings.ToLower(v.text)]
		if !ok {
			return wrong(v.from, v.to, "There is no state %s. Use %s.", quote(v.text), stateList)
		}
		for _, m := range meant {
			if !t.has(m) {
				t.Values = append(t.Values, m)
			}
		}
	case numbers, priorities:
		n, err := interval(v, func(s string) (int64, bool) { return number(s, k) })
		if err != nil {
			return wrong(v.from, v.to, "%s is no number here. Use %s.", quote(v.text), numberForms(k))
		}
		t.Numbers = append(t.Numbers, n)
	case spans:
		n, err := interval(v, duration)
		if err != nil {
			return wrong(v.from, v.to, "%s is no length of time. Use 500ms, 5s, 10m, 2h or 3d, as in >5s or 1m..1h.", quote(v.text))
		}
		t.Spans = append(t.Spans, n)
	case times:
		m, err := moments(v.text, now)
		if err != nil {
			return wrong(v.from, v.to, "%s is no time. Use 2026-11-01, 2026-11-01T06:00:00Z, -1h or now, or two of them as in -2h..-1h.", quote(v.text))
		}
		t.Times = append(t.Times, m)
	}
	return nil
}

func numberForms(k kind) string {
	if k == priorities {
		return "0 to 5, low, default, high or critical, as in >=3 or 1..3"
	}
	return "3, >=3, <3 or 1..3"
}

func number(s string, k kind) (int64, bool) {
	if n, ok := priorityWords[strings.ToLower(s)]; ok && k == priorities {
		return n, true
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return n, err == nil && n >= 0 && s[0] != '+'
}

// interval reads 3, >=3, >3, <=3, <3, 3..5, 3.. and ..5.
func interval[T int64 | time.Duration](v piece, read func(string) (T, bool)) (i Interval[T], err error) {
	bad := strconv.ErrSyntax
	var ok bool
	s := v.text
	if low, high, two := strings.Cut(s, ".."); two {
		if low == "" && high == "" {
			return i, bad
		}
		if low != "" {
			if i.Least, ok = read(low); !ok {
				return i, bad
			}
			i.HasLeast = true
		}
		if high != "" {
			if i.Most, ok = read(high); !ok {
				return i, bad
			}
			i.HasMost = true
		}
		return i, nil
	}
	least, most := false, false
	switch {
	case strings.HasPrefix(s, ">="):
		least, s = true, s[2:]
	case strings.HasPrefix(s, "<="):
		most, s = true, s[2:]
	case strings.HasPrefix(s, ">"):
		least, i.OverLeast, s = true, true, s[1:]
	case strings.HasPrefix(s, "<"):
		most, i.LessMost, s = true, true, s[1:]
	case strings.HasPrefix(s, "="):
		least, most, s = true, true, s[1:]
	default:
		least, most = true, true
	}
	if s == "" {
		return i, bad
	}
	n, ok := read(s)
	if !ok {
		return i, bad
	}
	if least {
		i.Least, i.HasLeast = n, true
	}
	if most {
		i.Most, i.HasMost = n, true
	}
	return i, nil
}

var units = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}

// duration reads 500ms, 1.5s, 1h30m, 3d.
func duration(s string) (time.Duration, bool) {
	var sum float64
	for s != "" {
		n := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if n <= 0 {
			return 0, false
		}
		v, err := strconv.ParseFloat(s[:n], 64)
		if err != nil {
			return 0, false
		}
		s = s[n:]
		end := strings.IndexFunc(s, func(r rune) bool { return r < 'a' || r > 'z' })
		if end < 0 {
			end = len(s)
		}
		unit, ok := units[s[:end]]
		if !ok {
			return 0, false
		}
		if sum += v * float64(unit); sum > math.MaxInt64/4 {
			return 0, false
		}
		s = s[end:]
	}
	return time.Duration(sum), true
}

// moments reads an instant, a day, a month or a range of them. One instant means
// from then on; a day or month, all of it.
func moments(s string, now time.Time) (Moments, error) {
	if low, high, two := strings.Cut(s, ".."); two {
		var m Moments
		var err error
		if low != "" {
			if m.From, _, err = moment(low, now); err != nil {
				return m, err
			}
		}
		if high != "" {
			if _, m.To, err = moment(high, now); err != nil {
				return m, err
			}
		}
		return m, nil
	}
	from, to, err := moment(s, now)
	if err != nil || from.Equal(to) {
		return Moments{From: from}, err
	}
	return Moments{From: from, To: to}, nil
}

// moment is when what is named begins and ends; an instant begins and ends at
// once.
func moment(s string, now time.Time) (from, to time.Time, err error) {
	if s == "now" {
		return now, now, nil
	}
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		d, fine := duration(ago)
		if !fine || ago == "" {
			return from, to, strconv.ErrSyntax
		}
		return now.Add(-d), now.Add(-d), nil
	}
	for _, form := range []struct {
		layout              string
		years, months, days int
	}{{time.DateOnly, 0, 0, 1}, {"2006-01", 0, 1, 0}} {
		if t, err := time.Parse(form.layout, s); err == nil && sane(t) {
			return t, t.AddDate(form.years, form.months, form.days), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if t, err := time.Parse(layout, s); err == nil && sane(t) {
			return t, t, nil
		}
	}
	return from, to, strconv.ErrSyntax
}

func sane(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 9999 }

func cut(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}

func quote(s string) string { return `"` + cut(s) + `"` }
