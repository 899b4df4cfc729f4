package config

import (
	"slices"
	"strings"
)

// checkedPrefixes are the names that belong to this product alone, so that one
// nobody reads is most likely a misspelling.
var checkedPrefixes = []string{"WORKER_", "RETRY_", "DB_"}

// noteUnused notes names in environ that have no effect.
func (r *reader) noteUnused(environ []string) {
	known := knownNames()
	for _, name := range setNames(environ) {
		switch {
		case slices.Contains(known, name):
		case matches(withoutEffect, name) || matches(withoutEffect, strings.TrimSuffix(name, "_FILE")):
			r.note(name + " has no effect in this version")
		case slices.ContainsFunc(checkedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
			r.note(name + " is not a setting; the closest is " + closest(name, known))
		}
	}
}

// setNames are the names with a value, sorted.
func setNames(environ []string) []string {
	var names []string
	for _, line := range environ {
		if name, value, _ := strings.Cut(line, "="); name != "" && value != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// knownNames is every name that is read, in order of the table.
func knownNames() []string {
	var names []string
	for _, g := range groups {
		for _, s := range g.settings {
			names = append(append(names, s.name), s.also...)
			if s.secret {
				names = append(names, s.name+"_FILE")
			}
		}
	}
	return names
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if begin, any := strings.CutSuffix(p, "*"); any {
			return strings.HasPrefix(name, begin)
		}
		return p == name
	})
}

// closest is the candidate with the fewest changed letters, the first of equals.
func closest(name string, candidates []string) string {
	best, least := "", 1<<30
	for _, c := range candidates {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is Levenshtein's: inserts, deletions and replacements from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
