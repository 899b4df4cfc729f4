// Package search is the language in which jobs are looked for: one text, the same
// in the console's box, in the API's q and behind jobctl's --query.
//
//	state:failed queue:billing,mail attempt:>=3 -tag:test error:"gateway timeout"
//
// A space means and, a comma in a value or, a leading minus not; quotes keep
// spaces and commas; in them a backslash stands before a quote. Words without a colon match a type, queue or tag by its
// beginning.
package search

import (
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
)

// Limits of a query.
const (
	MaxLength = 2_000 // bytes
	MaxTerms  = 50
	MaxValues = 100 // of one term
)

// Query is a text that was understood. The zero value asks for everything.
type Query struct {
	Terms []Term
}

// Term is one condition; all of a query's hold.
type Term struct {
	// Name is the qualifier, as in [Names]; "" for a bare word.
	Name string
	// Path is where in the payload, for payload.
	Path []string
	// Not turns the condition round.
	Not bool
	// Values of which one must hold: of fields that are texts, and of states.
	Values []string
	// Numbers of which one must hold: of attempt and priority.
	Numbers []Interval[int64]
	// Spans of which one must hold: of duration, wait and age.
	Spans []Interval[time.Duration]
	// Times of which one must hold: of created and finished.
	Times []Moments
	// ID is the job that a bare word names.
	ID uuid.UUID

	// Text is the term as it was typed, From where it begins in the text, in bytes.
	Text string
	From int
}

// Interval has its ends, each of which may be missing or left out.
type Interval[T int64 | time.Duration] struct {
	Least, Most         T
	HasLeast, HasMost   bool
	OverLeast, LessMost bool // the end itself is no part
}

func (i Interval[T]) holds(v T) bool {
	if i.HasLeast && (v < i.Least || i.OverLeast && v == i.Least) {
		return false
	}
	return !i.HasMost || v < i.Most || v == i.Most && !i.LessMost
}

// Moments are the instants from From up to but without To; a zero end is open.
type Moments struct{ From, To time.Time }

func (m Moments) holds(t time.Time) bool {
	return (m.From.IsZero() || !t.Before(m.From)) && (m.To.IsZero() || t.Before(m.To))
}

// Error says where a text could not be understood, and what was expected there.
type Error struct {
	From, To int // bytes of the text
	Message  string
}

func (e *Error) Error() string { return e.Message }

// String is the query as one may type it.
func (q Query) String() string {
	texts := make([]string, len(q.Terms))
	for i, t := range q.Terms {
		texts[i] = t.Text
	}
	return strings.Join(texts, " ")
}

// Plain is the term of one value, whatever stands in it.
func Plain(name, value string) string {
	if strings.ContainsAny(value, " ,\"\\:-*") || strings.ContainsFunc(value, unicode.IsSpace) {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	return name + ":" + value
}

// Without is the query less one of its terms.
func (q Query) Without(i int) Query {
	return Query{Terms: append(append([]Term{}, q.Terms[:i]...), q.Terms[i+1:]...)}
}

// With is the query with another term, which must be well-formed.
func (q Query) With(text string, now time.Time) (Query, error) {
	more, err := Parse(text, now)
	if err != nil {
		return q, err
	}
	return Query{Terms: append(append([]Term{}, q.Terms...), more.Terms...)}, nil
}

// Has tells whether a term of one of these names is there.
func (q Query) Has(names ...string) bool {
	for _, t := range q.Terms {
		for _, n := range names {
			if t.Name == n {
				return true
			}
		}
	}
	return false
}

// Job is the job that the query names and nothing else.
func (q Query) Job() (uuid.UUID, bool) {
	if len(q.Terms) == 1 && q.Terms[0].ID != uuid.Nil && !q.Terms[0].Not {
		return q.Terms[0].ID, true
	}
	return uuid.Nil, false
}

// One is the only text that a job's field must have, if the query says so: what
// an index can look for.
func (q Query) One(name string) (string, bool) {
	for _, t := range q.Terms {
		if t.Name == name && !t.Not && len(t.Values) == 1 {
			return t.Values[0], true
		}
	}
	return "", false
}

// States are the places that the query leaves, of all that there are; all is true
// if it asks for none in particular.
func (q Query) States() (states []string, all bool) {
	all = true
	left := map[string]bool{}
	for _, p := range places {
		left[p] = true
	}
	for _, t := range q.Terms {
		if t.Name != "state" {
			continue
		}
		all = false
		for _, p := range places {
			if t.has(p) == t.Not {
				delete(left, p)
			}
		}
	}
	for _, p := range places {
		if left[p] {
			states = append(states, p)
		}
	}
	return states, all
}

func (t Term) has(value string) bool {
	for _, v := range t.Values {
		if v == value {
			return true
		}
	}
	return false
}

// Created are the bounds of created: and age: at an instant; a zero end is open.
// They may be wider than what matches, never narrower.
func (q Query) Created(now time.Time) Moments {
	var out Moments
	narrow := func(m Moments) {
		if !m.From.IsZero() && (out.From.IsZero() || m.From.After(out.From)) {
			out.From = m.From
		}
		if !m.To.IsZero() && (out.To.IsZero() || m.To.Before(out.To)) {
			out.To = m.To
		}
	}
	for _, t := range q.Terms {
		switch {
		case t.Not:
		case t.Name == "created" && len(t.Times) == 1:
			narrow(t.Times[0])
		case t.Name == "age" && len(t.Spans) == 1:
			var m Moments
			if s := t.Spans[0]; s.HasMost {
				m.From = now.Add(-s.Most)
			}
			if s := t.Spans[0]; s.HasLeast {
				m.To = now.Add(-s.Least).Add(time.Microsecond)
			}
			narrow(m)
		}
	}
	return out
}
