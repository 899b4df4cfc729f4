package verify

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Rule is one invariant of the stored history.
type Rule struct {
	Name    string
	Promise string // P1 to P10
	Says    string // one sentence
}

// Rules are all that [Run] asks, in the order of its report.
var Rules = []Rule{}

// offence is what every question answers: the rule's name and one offender.
type offence struct {
	Rule, Subject string
	Token         int64
	Detail        string
}

// pass is one question, and the rules it answers.
type pass struct {
	name  string
	rules []string
	ask   func(ctx context.Context, c *check, tx pgx.Tx) ([]offence, error)
}

var passes = []pass{}
