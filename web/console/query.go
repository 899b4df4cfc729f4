package console

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
)

// jobQuery is what the list of jobs was asked for, from its parameters and from the
// search box. The zero value asks for everything.
type jobQuery struct {
	search.Query
	recent bool // finished: was added
}

// plainParams are the parameters that each stand for one term.
var plainParams = []string{"state", "queue", "type", "priority", "tag", "id"}

// parseJobQuery reads the parameters. Its error is a *[search.Error] of text,
// which is all of them as the search box has it.
func parseJobQuery(q url.Values, now time.Time) (out jobQuery, text string, err error) {
	var parts []string
	for _, name := range plainParams {
		switch value := q.Get(name); {
		case value == "":
		case name == "id":
			if _, err := parseID(value); err != nil {
				return out, value, &search.Error{To: len(value), Message: "This is no job id."}
			}
			parts = append(parts, value)
		default:
			parts = append(parts, search.Plain(name, value))
		}
	}
	if typed := strings.TrimSpace(q.Get("q")); typed != "" {
		parts = append(parts, typed)
	}
	text = strings.Join(parts, " ")
	asked, err := search.Parse(text, now)
	if err != nil {
		return out, text, err
	}
	out.Query, out.recent = asked.Recent(now)
	return out, text, nil
}

// only is a query of one term.
func only(name, value string) jobQuery {
	q, err := search.Parse(search.Plain(name, value), time.Now())
	if err != nil {
		return jobQuery{}
	}
	return jobQuery{Query: q}
}

// asked is the query without what was added to it.
func (j jobQuery) asked() jobQuery {
	if j.recent {
		return jobQuery{Query: j.Without(len(j.Terms) - 1)}
	}
	return j
}

// String is the query as the search box has it.
func (j jobQuery) String() string { return j.asked().Query.String() }

func (j jobQuery) empty() bool { return len(j.Terms) == 0 }

// values is the query as an address has it.
func (j jobQuery) values() url.Values {
	if j.asked().empty() {
		return url.Values{}
	}
	return url.Values{"q": {j.String()}}
}

// in is the query for the jobs of one place; "" for any.
func (j jobQuery) in(place inspect.Place) jobQuery {
	out := j.asked()
	out.Terms = slices.DeleteFunc(slices.Clone(out.Terms), func(t search.Term) bool { return t.Name == "state" })
	if place != "" {
		out.Terms = append(only("state", string(place)).Terms, out.Terms...)
	}
	return out
}

// place is the one place that is left; all tells that any is.
func (j jobQuery) place() (place inspect.Place, all bool) {
	states, all := j.States()
	if !all && len(states) == 1 {
		return inspect.Place(states[0]), false
	}
	return "", all
}

// less is the query without one of its terms.
func (j jobQuery) less(i int) jobQuery {
	if i >= len(j.Terms) {
		return j
	}
	return jobQuery{Query: j.Without(i)}
}

// beyond tells whether the query has terms but these.
func (j jobQuery) beyond(names ...string) bool {
	return slices.ContainsFunc(j.asked().Terms, func(t search.Term) bool { return t.Not || !slices.Contains(names, t.Name) })
}

// parseID takes ids as they are written everywhere, in lower or upper case, and
// none of the other forms that a UUID may have.
func parseID(s string) (engine.ID, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return engine.ID{}, err
	}
	if len(s) != 36 {
		return engine.ID{}, strconv.ErrSyntax
	}
	return id, nil
}

// escape makes a step of a path.
func escape(s string) string { return url.PathEscape(s) }

// closest is the known name nearest to a misspelt one, if any is near.
func closest(given string, names []string) string {
	best, least := "", 3
	for _, n := range names {
		if d := distance(given, n, least); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to change, add or leave out to make b of a, up to
// limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for k := 1; k <= len(b); k++ {
			cost := diagonal
			if a[i-1] != b[k-1] {
				cost++
			}
			diagonal = row[k]
			row[k] = min(cost, row[k]+1, row[k-1]+1)
		}
	}
	return min(row[len(b)], limit)
}
