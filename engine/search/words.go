package search

// The places of a job, as state: names them. They are finer than its state.
const (
	Ready     = "ready"
	Scheduled = "scheduled"
	Held      = "held"
	Running   = "running"
	Retrying  = "retrying"
	Completed = "completed"
	Dead      = "dead"
	Cancelled = "cancelled"
)

var places = []string{Ready, Scheduled, Held, Running, Retrying, Completed, Dead, Cancelled}

// stateWords are the words of state: with the places they mean.
var stateWords = map[string][]string{
	Ready: {Ready}, Scheduled: {Scheduled}, Held: {Held}, "blocked": {Held}, Running: {Running}, Retrying: {Retrying}, Completed: {Completed},
	Dead: {Dead}, Cancelled: {Cancelled},
	// The states of the API, and what covers several.
	"pending": {Ready, Scheduled, Held}, "leased": {Running}, "failed": {Retrying}, "dead_letter": {Dead},
	"waiting": {Ready, Scheduled, Held, Retrying}, "finished": {Completed, Dead, Cancelled},
}

const stateList = "ready, scheduled, held, running, retrying, completed, dead, cancelled, or pending, waiting, finished"

var priorityWords = map[string]int64{"low": 0, "default": 1, "high": 3, "critical": 5}

// kind is how a qualifier's values are read.
type kind int

const (
	texts kind = iota
	states
	numbers
	priorities
	spans
	times
)

type qualifier struct {
	kind    kind
	example string
	what    string
}

// qualifiers is the vocabulary.
var qualifiers = map[string]qualifier{
	"state":    {states, "state:failed", "where the job stands"},
	"queue":    {texts, "queue:billing,mail", "its queue; an ending * matches by the beginning"},
	"type":     {texts, "type:email", "its type; an ending * matches by the beginning"},
	"priority": {priorities, "priority:>=3", "0 to 5, or low, default, high, critical"},
	"tag":      {texts, "tag:orders", "one of its tags"},
	"worker":   {texts, "worker:billing-1", "the name or number of a worker that ran it"},
	"build":    {texts, "build:1.8.2", "the version of a worker that ran it"},
	"key":      {texts, "key:receipt-8123", "its idempotency key"},
	"fp":       {texts, "fp:9f3c1a2b", "the fingerprint of its last error, or how that begins"},
	"error":    {texts, `error:"gateway timeout"`, "a part of the class or message of its last error"},
	"attempt":  {numbers, "attempt:>=3", "attempts used"},
	"duration": {spans, "duration:>5s", "how long its last run took, or takes"},
	"wait":     {spans, "wait:>1m", "from being due to the start of its last run, or until now"},
	"age":      {spans, "age:>10m", "since it was created"},
	"created":  {times, "created:2026-11-01..2026-11-02", "when it was created"},
	"finished": {times, "finished:-1h..", "when its last run ended"},
	"payload":  {texts, "payload.customer.id:123", "a value in its payload"},
}

// Names lists the qualifiers, in the order in which they are told.
var Names = []string{"state", "queue", "type", "priority", "tag", "worker", "build", "key", "fp", "error", "attempt", "duration", "wait", "age",
	"created", "finished", "payload"}

// Word is a qualifier for people.
type Word struct{ Name, Example, Means string }

// Words is the vocabulary with an example of each.
func Words() []Word {
	list := make([]Word, len(Names))
	for i, n := range Names {
		list[i] = Word{n, qualifiers[n].example, qualifiers[n].what}
	}
	return list
}

// nearest is the known word that is closest to a misspelt one; "" if none is near.
func nearest(given string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(given, k); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to add, take out or change (Levenshtein).
func distance(a, b string) int {
	if len(a) > 40 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
