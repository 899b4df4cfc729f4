package api

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
)

// query is what a URL asks for, of a list of known parameters.
type query struct {
	values url.Values
	bad    []Flaw
}

func (q *query) refuse(parameter, code, detail string) {
	q.bad = append(q.bad, Flaw{Parameter: cut(parameter), Code: code, Detail: detail})
}

// readQuery refuses what it does not know, so that a mistyped filter never answers
// with everything.
func readQuery(c echo.Context, known ...string) *query {
	values, err := url.ParseQuery(c.Request().URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.refuse("", "invalid", "the query is not encoded properly")
	}
	for name, v := range values {
		switch {
		case !utf8.ValidString(name) || !slices.Contains(known, name):
			q.refuse(strings.ToValidUTF8(name, "\ufffd"), "unknown-parameter", strings.Replace(unknown(name, known), "field", "parameter", 1))
		case len(v) > 1 && name != "status":
			q.refuse(name, "duplicate", "given twice")
		case slices.ContainsFunc(v, func(s string) bool { return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) }):
			q.refuse(name, "invalid", "text without control characters")
		case slices.ContainsFunc(v, func(s string) bool { return len(s) > 2000 }):
			q.refuse(name, "too-long", "at most 2000 bytes")
		}
	}
	slices.SortFunc(q.bad, func(a, b Flaw) int { return strings.Compare(a.Parameter, b.Parameter) })
	return q
}

func (q *query) err() error {
	if len(q.bad) == 0 {
		return nil
	}
	detail := make([]string, len(q.bad))
	for i, f := range q.bad {
		detail[i] = strings.TrimPrefix(f.Parameter+": "+f.Detail, ": ")
	}
	return &RequestError{Code: "bad-query", Detail: strings.Join(detail, "; ") + ".", Flaws: q.bad}
}

func (q *query) text(name string) string { return q.values.Get(name) }

// number reads a whole number from 1 to most; def if it is not given.
func (q *query) number(name string, def, most int) int {
	if !q.values.Has(name) {
		return def
	}
	s := q.values.Get(name)
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most || strconv.Itoa(n) != s {
		q.refuse(name, "out-of-range", fmt.Sprintf("a whole number from 1 to %d", most))
		return def
	}
	return n
}

// search reads a text of the search language, with what it leaves to default.
func (q *query) search(name string, now time.Time) search.Query {
	asked, err := search.Parse(q.values.Get(name), now)
	var bad *search.Error
	if errors.As(err, &bad) {
		q.bad = append(q.bad, Flaw{Parameter: name, Code: "invalid", Detail: strings.TrimSuffix(bad.Message, "."), Mark: &mark{bad.From, bad.To}})
		return asked
	}
	asked, _ = asked.Recent(now)
	return asked
}

func (q *query) flag(name string) bool {
	switch s := q.values.Get(name); {
	case s == "true":
		return true
	case s != "" && s != "false", s == "" && q.values.Has(name):
		q.refuse(name, "invalid", "true or false")
	}
	return false
}

// instant reads a time; zero if it is not given.
func (q *query) instant(name string) time.Time {
	if !q.values.Has(name) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, q.values.Get(name))
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		q.refuse(name, "invalid", "a time such as 2026-12-01T06:00:00Z")
		return time.Time{}
	}
	return t
}

// states reads status, several by comma or repetition; running is leased too.
func (q *query) states() []engine.State {
	var states []engine.State
	for _, s := range q.values["status"] {
		for name := range strings.SplitSeq(s, ",") {
			if name == "running" {
				name = string(engine.StateLeased)
			}
			if !slices.Contains(engine.States, engine.State(name)) {
				q.refuse("status", "invalid", "pending, blocked, leased (or running), failed, completed, dead_letter, cancelled")
				return nil
			}
			if !slices.Contains(states, engine.State(name)) {
				states = append(states, engine.State(name))
			}
		}
	}
	slices.Sort(states)
	return states
}

func (q *query) priority() *engine.Priority {
	if !q.values.Has("priority") {
		return nil
	}
	p, err := engine.ParsePriority(q.values.Get("priority"))
	if err != nil {
		q.refuse("priority", "invalid", priorityRule)
		return nil
	}
	return &p
}

// include reads a list of extras.
func (q *query) include(known ...string) map[string]bool {
	wanted := map[string]bool{}
	if !q.values.Has("include") {
		return wanted
	}
	for name := range strings.SplitSeq(q.values.Get("include"), ",") {
		if !slices.Contains(known, name) {
			q.refuse("include", "invalid", strings.Join(known, ", "))
			return nil
		}
		wanted[name] = true
	}
	return wanted
}
