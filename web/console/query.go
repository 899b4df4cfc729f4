package console

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// jobQuery is what the list of jobs was asked for, from its parameters and from the
// search box. Empty fields ask for everything.
type jobQuery struct {
	place    inspect.Place
	typ      string
	queue    string
	priority *engine.Priority
	tag      string
	id       engine.ID // a job, to go to it
	// word is a bare word that is no id: the name of a queue or a type.
	word string
}

var placeWords = map[string]inspect.Place{
	"ready": inspect.PlaceReady, "scheduled": inspect.PlaceScheduled, "blocked": inspect.PlaceHeld, "held": inspect.PlaceHeld,
	"running": inspect.PlaceRunning, "leased": inspect.PlaceRunning, "retrying": inspect.PlaceRetrying, "failed": inspect.PlaceRetrying,
	"completed": inspect.PlaceCompleted, "dead": inspect.PlaceDead, "dead_letter": inspect.PlaceDead, "cancelled": inspect.PlaceCancelled,
}

const placeList = "ready, scheduled, blocked, running, retrying, completed, dead, cancelled"

// placeWord is how a place stands in an address.
func placeWord(p inspect.Place) string {
	if p == inspect.PlaceHeld {
		return "blocked"
	}
	return string(p)
}

// parseJobQuery reads the parameters. Its error says what was expected, for the
// person who typed it.
func parseJobQuery(q url.Values) (jobQuery, string) {
	var out jobQuery
	words, problem := splitWords(q.Get("q"))
	if problem != "" {
		return out, problem
	}
	for _, w := range words {
		if problem := out.take(w); problem != "" {
			return out, problem
		}
	}
	for _, name := range []string{"state", "type", "queue", "priority", "tag", "id"} {
		if value := q.Get(name); value != "" {
			if problem := out.set(name, value); problem != "" {
				return out, problem
			}
		}
	}
	return out, ""
}

// take takes one word of the search box.
func (j *jobQuery) take(w string) string {
	name, value, qualified := strings.Cut(w, ":")
	switch {
	case !qualified:
		if id, err := parseID(w); err == nil {
			j.id = id
			return ""
		}
		if j.word != "" {
			return "One bare word at a time: " + quoted(j.word) + " or " + quoted(w) + "."
		}
		j.word = w
		return ""
	case value == "":
		return quoted(name+":") + " has no value."
	}
	return j.set(name, value)
}

func (j *jobQuery) set(name, value string) string {
	if strings.Contains(value, ",") && name != "tag" {
		return quoted(name+":"+value) + ": one value at a time."
	}
	switch name {
	case "state":
		p, ok := placeWords[value]
		if !ok {
			return "There is no state " + quoted(value) + ". States: " + placeList + "."
		}
		j.place = p
	case "type":
		j.typ = value
	case "queue":
		j.queue = value
	case "tag":
		j.tag = value
	case "priority":
		p, err := engine.ParsePriority(value)
		if err != nil {
			return "There is no priority " + quoted(value) + ". Use low, default, high, critical, or 0 to 5."
		}
		j.priority = &p
	case "id":
		id, err := parseID(value)
		if err != nil {
			return quoted(value) + " is no job id."
		}
		j.id = id
	default:
		return quoted(name+":") + " is not known here. Use state: queue: type: priority: tag: or an id."
	}
	return ""
}

// splitWords splits at spaces outside quotes.
func splitWords(s string) ([]string, string) {
	var words []string
	var b strings.Builder
	open, any := false, false
	for _, r := range s {
		switch {
		case r == '"':
			open, any = !open, true
		case r == ' ' && !open:
			if any {
				words = append(words, b.String())
			}
			b.Reset()
			any = false
		default:
			b.WriteRune(r)
			any = true
		}
	}
	if open {
		return nil, "A quote is not closed."
	}
	if any {
		words = append(words, b.String())
	}
	return words, ""
}

// resolve makes a filter of a bare word, by the names that are known: the whole
// name first, then one that begins with it. It returns whether it is known.
func (j *jobQuery) resolve(queues, types []string) bool {
	if j.word == "" {
		return true
	}
	switch {
	case slices.Contains(queues, j.word):
		j.queue = j.word
	case slices.Contains(types, j.word):
		j.typ = j.word
	default:
		queue, queueOK := onePrefixed(queues, j.word)
		typ, typeOK := onePrefixed(types, j.word)
		switch {
		case queueOK && !typeOK:
			j.queue = queue
		case typeOK:
			j.typ = typ
		default:
			return false
		}
	}
	j.word = ""
	return true
}

func onePrefixed(names []string, prefix string) (string, bool) {
	found := ""
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			if found != "" {
				return "", false
			}
			found = n
		}
	}
	return found, found != ""
}

// values is the query as an address has it.
func (j jobQuery) values() url.Values {
	q := url.Values{}
	put := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	put("state", placeWord(j.place))
	put("type", j.typ)
	put("queue", j.queue)
	put("tag", j.tag)
	put("q", j.word)
	if j.priority != nil {
		put("priority", strconv.Itoa(int(*j.priority)))
	}
	return q
}

// String is the query as the search box has it.
func (j jobQuery) String() string {
	var parts []string
	put := func(name, value string) {
		if value == "" {
			return
		}
		if strings.ContainsAny(value, " ") {
			value = `"` + value + `"`
		}
		parts = append(parts, name+value)
	}
	put("state:", placeWord(j.place))
	put("queue:", j.queue)
	put("type:", j.typ)
	if j.priority != nil {
		put("priority:", priorityText(*j.priority))
	}
	put("tag:", j.tag)
	put("", j.word)
	return strings.Join(parts, " ")
}

func (j jobQuery) empty() bool { return j.String() == "" }

// without is the query with one part taken out.
func (j jobQuery) without(name string) jobQuery {
	switch name {
	case "state":
		j.place = ""
	case "type":
		j.typ = ""
	case "queue":
		j.queue = ""
	case "tag":
		j.tag = ""
	case "priority":
		j.priority = nil
	case "word":
		j.word = ""
	}
	return j
}

func (j jobQuery) filter() inspect.ListFilter {
	return inspect.ListFilter{
		Place: j.place, Tag: j.tag, JobFilter: inspect.JobFilter{Type: j.typ, Queue: j.queue, Priority: j.priority},
	}
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
