package main

import (
	"errors"
	"strings"
)

func asError[T error](err error, into *T) bool { return errors.As(err, into) }

// oneOf checks a flag that takes one word of a list.
func oneOf(flag, value string, allowed []string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	next := "It takes: " + strings.Join(allowed, ", ")
	if near := nearest(value, allowed); near != "" {
		next = "Did you mean " + near + "?  " + next
	}
	return usage(next, "%s %q is unknown", flag, value)
}

// nearest is the known word that word may be meant for: at most two letters, or a
// third of it, away, or begun by it.
func nearest(word string, known []string) string {
	best, bestAway := "", max(2, len(word)/3)+1
	word = strings.ToLower(word)
	for _, k := range known {
		away := distance(word, k)
		if len(word) >= 2 && strings.HasPrefix(k, word) {
			away = 1
		}
		if away < bestAway && away < len(k) {
			best, bestAway = k, away
		}
	}
	return best
}

// distance counts letters to change, add, leave out or swap (optimal string
// alignment), so that "lsit" is one from "list".
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
