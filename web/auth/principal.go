// Package auth says who calls and what is refused before a handler runs: API
// tokens, foreign origins and hosts, and the address behind trusted proxies.
package auth

import (
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// Kind is what a caller is.
type Kind string

// The kinds. Anonymous callers exist only where no token is asked for: in
// development on a loopback address, and for probes.
const (
	KindToken     Kind = "token"
	KindAnonymous Kind = "anonymous"
)

// Scope is one right. What follows from each is said at [access.Scope].
type Scope = access.Scope

// The scopes.
const (
	ScopeJobsRead    = access.ScopeJobsRead
	ScopeJobsWrite   = access.ScopeJobsWrite
	ScopeQueuesWrite = access.ScopeQueuesWrite
	ScopeDLQWrite    = access.ScopeDLQWrite
	ScopeAdmin       = access.ScopeAdmin
)

// Principal is who calls.
type Principal struct {
	// Name stands in the audit trail: a person's as it is, a token's as token:NAME.
	Name   string
	Kind   Kind
	Scopes []Scope
	// Queues are all that the caller may touch; nil is every queue.
	Queues []string
}

// May tells whether p may do what needs s.
func (p Principal) May(s Scope) bool {
	return slices.ContainsFunc(p.Scopes, func(has Scope) bool { return has.Allows(s) })
}

// Limited tells whether p may touch some queues only.
func (p Principal) Limited() bool { return p.Queues != nil }

// MayTouch tells whether p may read and act on what is in a queue.
func (p Principal) MayTouch(queue string) bool {
	return !p.Limited() || slices.Contains(p.Queues, queue)
}

// Needs is nil if p may do what needs s, else the refusal.
func (p Principal) Needs(s Scope) error {
	if p.May(s) {
		return nil
	}
	return &Refusal{Code: "forbidden", Detail: "This needs the scope " + string(s) + ".", Scope: s}
}

// LimitedTo refuses p something that is not within its queues. detail says what,
// and the queues follow.
func (p Principal) LimitedTo(detail string) error {
	who := "This token is"
	if p.Kind == KindUser {
		who = "You are"
	}
	return &Refusal{Code: "forbidden", Detail: strings.TrimSpace(detail+" "+who) + " limited to: " + strings.Join(p.Queues, ", ") + "."}
}

const principalKey = "principal"

// Caller returns who calls; an anonymous principal without scopes before the
// token was looked at.
func Caller(c echo.Context) Principal {
	if p, ok := c.Get(principalKey).(Principal); ok {
		return p
	}
	return Principal{Name: string(KindAnonymous), Kind: KindAnonymous}
}

// Refusal is a request that is not let through. Code is one of the API's problem
// codes; Detail is for the caller; Scope is the one that the caller lacks, if a
// scope would do.
type Refusal struct {
	Code, Detail string
	Scope        Scope
}

func (e *Refusal) Error() string { return e.Code + ": " + e.Detail }
