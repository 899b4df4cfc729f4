package access

import (
	"fmt"
	"slices"
	"strings"
)

// Scope is one right of a token, and of a person by their role.
type Scope string

// The scopes. [Scope.Allows] says what follows from each.
const (
	// ScopeJobsRead reads everything, as a viewer does.
	ScopeJobsRead Scope = "jobs:read"
	// ScopeJobsWrite enqueues, cancels, stops, brings forward.
	ScopeJobsWrite Scope = "jobs:write"
	// ScopeQueuesWrite pauses and resumes.
	ScopeQueuesWrite Scope = "queues:write"
	// ScopeDLQWrite replays, discards, restores.
	ScopeDLQWrite Scope = "dlq:write"
	// ScopeAdmin does everything.
	ScopeAdmin Scope = "admin"
)

// Scopes lists every scope, the weakest first.
func Scopes() []Scope {
	return []Scope{ScopeJobsRead, ScopeJobsWrite, ScopeQueuesWrite, ScopeDLQWrite, ScopeAdmin}
}

// Allows tells whether who has s may do what needs want. Each scope allows reading:
// an act answers with what it acted on, so that a right to act without one to read
// would be none that holds. Admin allows all; otherwise a scope allows itself.
func (s Scope) Allows(want Scope) bool {
	return s == want || s == ScopeAdmin || want == ScopeJobsRead
}

// checkScopes returns the scopes in order, each once.
func checkScopes(scopes []Scope) ([]string, error) {
	if len(scopes) == 0 {
		return nil, &RuleError{"scope", "is missing: " + scopeWords()}
	}
	for _, s := range scopes {
		if !slices.Contains(Scopes(), s) {
			return nil, &RuleError{"scope", "must be one of " + scopeWords()}
		}
	}
	var kept []string
	for _, s := range Scopes() {
		if slices.Contains(scopes, s) {
			kept = append(kept, string(s))
		}
	}
	return kept, nil
}

// checkQueues returns the queues in order, each once; nil for none.
func checkQueues(queues []string) ([]string, error) {
	if len(queues) > maxQueues {
		return nil, &RuleError{"queue", fmt.Sprintf("is given too often: at most %d", maxQueues)}
	}
	for _, q := range queues {
		if !queueShape().MatchString(q) {
			return nil, &RuleError{"queue", "must be 1 to 100 of A-Z a-z 0-9 _ . : -"}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(queues))), nil
}

func scopeWords() string {
	words := make([]string, 0, len(Scopes()))
	for _, s := range Scopes() {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}
