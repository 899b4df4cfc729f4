package search

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Facts are what is known of a job when a query is held against it. Those that
// [Needs] does not ask for may be missing.
type Facts struct {
	ID          uuid.UUID
	Type, Queue string
	Priority    int64
	Tags        []string
	CreatedAt   time.Time

	Place   string // "" is not known: no state: fails for it
	Attempt int64

	FinishedAt     time.Time     // of the last run that ended; zero if none did
	Duration, Wait time.Duration // below zero if there is none

	Workers     []string // names and numbers
	Builds      []string
	Keys        []string
	Error       string // class and message of the last one
	Fingerprint string
	Payload     []string // in the order of Needs.Paths; nil in Absent
	Absent      []bool
}

// Needs are the facts that a query asks for, beyond a job's own row.
type Needs struct {
	Place, Runs, Workers, Error, Keys bool
	Paths                             [][]string
}

// Needs of the query, each path once.
func (q Query) Needs() Needs {
	var n Needs
	for _, t := range q.Terms {
		switch t.Name {
		case "state", "attempt":
			n.Place = true
		case "wait":
			n.Place, n.Runs = true, true
		case "duration", "finished":
			n.Runs = true
		case "worker", "build":
			n.Workers = true
		case "error", "fp":
			n.Error = true
		case "key":
			n.Keys = true
		case "payload":
			if n.path(t.Path) < 0 {
				n.Paths = append(n.Paths, t.Path)
			}
		}
	}
	return n
}

func (n Needs) path(p []string) int {
	return slices.IndexFunc(n.Paths, func(o []string) bool { return slices.Equal(o, p) })
}

// Matcher holds jobs against a query.
type Matcher struct {
	Query Query
	Needs Needs
	Now   time.Time
}

// NewMatcher returns the matcher of a query at an instant.
func NewMatcher(q Query, now time.Time) *Matcher { return &Matcher{q, q.Needs(), now} }

// Matches tells whether every term holds.
func (m *Matcher) Matches(f *Facts) bool {
	for i := range m.Query.Terms {
		t := &m.Query.Terms[i]
		if t.Name == "state" && f.Place == "" {
			continue
		}
		if m.holds(t, f) == t.Not {
			return false
		}
	}
	return true
}

func (m *Matcher) holds(t *Term, f *Facts) bool {
	switch t.Name {
	case "":
		return t.ID == f.ID && t.ID != uuid.Nil || anyText(t.Values, append([]string{f.Type, f.Queue}, f.Tags...), strings.HasPrefix)
	case "state":
		return slices.Contains(t.Values, f.Place)
	case "type":
		return anyText(t.Values, []string{f.Type}, named)
	case "queue":
		return anyText(t.Values, []string{f.Queue}, named)
	case "tag":
		return anyText(t.Values, f.Tags, named)
	case "worker":
		return anyText(t.Values, f.Workers, named)
	case "build":
		return anyText(t.Values, f.Builds, named)
	case "key":
		return anyText(t.Values, f.Keys, func(have, wanted string) bool { return have == wanted })
	case "fp":
		return NamesCause(f.Fingerprint, t.Values)
	case "error":
		return f.Error != "" && anyText(t.Values, []string{f.Error}, containsFold)
	case "payload":
		i := m.Needs.path(t.Path)
		return i >= 0 && i < len(f.Payload) && !f.Absent[i] && anyText(t.Values, f.Payload[i:i+1], named)
	case "priority":
		return anyInterval(t.Numbers, f.Priority)
	case "attempt":
		return anyInterval(t.Numbers, f.Attempt)
	case "duration":
		return f.Duration >= 0 && anyInterval(t.Spans, f.Duration)
	case "wait":
		return f.Wait >= 0 && anyInterval(t.Spans, f.Wait)
	case "age":
		return anyInterval(t.Spans, m.Now.Sub(f.CreatedAt))
	case "created":
		return anyMoment(t.Times, f.CreatedAt)
	case "finished":
		return !f.FinishedAt.IsZero() && anyMoment(t.Times, f.FinishedAt)
	}
	return false
}

func anyText(wanted, have []string, is func(have, wanted string) bool) bool {
	for _, w := range wanted {
		for _, h := range have {
			if is(h, w) {
				return true
			}
		}
	}
	return false
}

// named compares a name, of which an ending * leaves the rest open.
func named(have, wanted string) bool {
	if begin, ok := strings.CutSuffix(wanted, "*"); ok {
		return strings.HasPrefix(have, begin)
	}
	return have == wanted
}

func containsFold(have, wanted string) bool {
	return strings.Contains(strings.ToLower(have), strings.ToLower(wanted))
}

// fingerprinted takes a fingerprint with or without its version, whole or its
// beginning.
func fingerprinted(have, wanted string) bool {
	_, bare, _ := strings.Cut(have, ":")
	wanted = strings.TrimSuffix(wanted, "*")
	return strings.HasPrefix(have, wanted) || bare != "" && strings.HasPrefix(bare, wanted)
}

// NamesCause tells whether fp: with these values means a fingerprint.
func NamesCause(fingerprint string, values []string) bool {
	return fingerprint != "" && anyText(values, []string{fingerprint}, fingerprinted)
}

func anyInterval[T int64 | time.Duration](list []Interval[T], v T) bool {
	return slices.ContainsFunc(list, func(i Interval[T]) bool { return i.holds(v) })
}

func anyMoment(list []Moments, t time.Time) bool {
	return slices.ContainsFunc(list, func(m Moments) bool { return m.holds(t) })
}

// recentSpan is how far back ended jobs are looked for when nothing is said.
const recentSpan = "-24h.."

// Recent adds finished:-24h.. to a query for completed or cancelled jobs alone that
// says nothing of when: those are the history, and the rest of it is rarely meant.
// finished:.. asks for all of it.
func (q Query) Recent(now time.Time) (bounded Query, added bool) {
	left, all := q.States()
	if all || len(left) == 0 || slices.ContainsFunc(left, func(p string) bool { return p != Completed && p != Cancelled }) || q.Has("finished", "created", "age", "key", "fp") {
		return q, false
	}
	with, err := q.With("finished:"+recentSpan, now)
	return with, err == nil
}
