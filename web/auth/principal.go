// Package auth says who calls and what is refused before a handler runs: API
// tokens, foreign origins and hosts, and the address behind trusted proxies.
package auth

import (
	"slices"

	"github.com/labstack/echo/v4"
)

// Kind is what a caller is.
type Kind string

// The kinds. Anonymous callers exist only where no token is asked for: in
// development on a loopback address, and for probes.
const (
	KindToken     Kind = "token"
	KindAnonymous Kind = "anonymous"
)

// Scope is one right of a token.
type Scope string

// The scopes.
const (
	ScopeJobsRead    Scope = "jobs:read"
	ScopeJobsWrite   Scope = "jobs:write"
	ScopeQueuesWrite Scope = "queues:write"
	ScopeDLQWrite    Scope = "dlq:write"
	ScopeAdmin       Scope = "admin"
)

// Principal is who calls.
type Principal struct {
	// Name stands in the audit trail.
	Name   string
	Kind   Kind
	Scopes []Scope
}

// May tells whether p has a scope; admin has all.
func (p Principal) May(s Scope) bool {
	return slices.Contains(p.Scopes, s) || slices.Contains(p.Scopes, ScopeAdmin)
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
// codes; Detail is for the caller.
type Refusal struct{ Code, Detail string }

func (e *Refusal) Error() string { return e.Code + ": " + e.Detail }
