// Package access keeps the people who use the console with their sessions, and the
// tokens of programs that call the API. It is the only place where their tables
// are read and written; every act writes its row of operator_actions in its own
// transaction.
//
// A password is kept as an argon2id hash, the token of a session or a program as
// its SHA-256. A change of role, a disabled account and a new password end a
// person's sessions with the commit, on all servers: none keeps a session in its
// memory.
package access

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The defaults of [Config].
const (
	DefaultIdleTTL = 12 * time.Hour
	DefaultTTL     = 168 * time.Hour
)

// Role is what a person may do: a viewer reads, an operator acts on jobs and
// queues, an admin also changes limits and people.
type Role string

// The roles.
const (
	RoleAdmin    Role = "admin"
	RoleOperator Role = "operator"
	RoleViewer   Role = "viewer"
)

// Roles lists every role, the mightiest first.
func Roles() []Role { return []Role{RoleAdmin, RoleOperator, RoleViewer} }

// Config is what New needs. The zero value of every field but Pool is its default.
type Config struct {
	Pool *pgxpool.Pool
	Log  *slog.Logger
	// IdleTTL ends a session that was not used for so long. Default 12h.
	IdleTTL time.Duration
	// TTL ends a session so long after it began, used or not. Default 168h.
	TTL time.Duration
	// Hashing is how many passwords are hashed at once; each takes 19 MiB and a
	// processor. More shorten the wait of many who sign in together. Default: the
	// processors, at most 4.
	Hashing int
}

// Accounts are the people of one installation. Several servers may each have one
// on the same database. All methods may be called by several goroutines.
type Accounts struct {
	ledger
	idle  time.Duration
	total time.Duration
	hash  *hasher
}

// New returns the accounts kept in c.Pool, which stays the caller's.
func New(c Config) *Accounts {
	a := &Accounts{ledger: newLedger("user", c.Pool, c.Log), idle: c.IdleTTL, total: c.TTL}
	if a.idle <= 0 {
		a.idle = DefaultIdleTTL
	}
	if a.total <= 0 {
		a.total = DefaultTTL
	}
	if c.Hashing <= 0 {
		c.Hashing = min(runtime.GOMAXPROCS(0), 4)
	}
	a.hash = newHasher(c.Hashing)
	return a
}

// Limits returns after how long a session ends: unused, and in total.
func (a *Accounts) Limits() (idle, total time.Duration) { return a.idle, a.total }

// What is refused, by name. Test with errors.Is.
var (
	// ErrBadCredentials: no enabled account has this name and password. It says
	// no more, and takes as long, whichever of the three is wrong.
	ErrBadCredentials = errors.New("name or password is wrong")
	// ErrNoSession: the token names no session, or one that has ended.
	ErrNoSession = errors.New("no such session")
	// ErrUserNotFound: no account has this name.
	ErrUserNotFound = errors.New("no such user")
	// ErrUserExists: an account of this name exists, perhaps a disabled one.
	ErrUserExists = errors.New("a user of this name exists")
	// ErrUserChanged: somebody has changed the account since the actor looked.
	ErrUserChanged = errors.New("the user has changed since you looked")
	// ErrLastAdmin: nobody would be left who may do everything.
	ErrLastAdmin = errors.New("this is the last admin of every queue; make another one first")
)

// ThrottledError says that too many tries have failed, or too many wait. The
// password was not looked at.
type ThrottledError struct{ Wait time.Duration }

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("too many tries to sign in; the next is allowed in %s", e.Wait.Round(time.Second))
}

// RuleError says that a name, password, role, scope, queue or expiry breaks a rule.
// It holds no password.
type RuleError struct {
	Field  string // name, password, role, scope, queue or expiry
	Detail string // ends a sentence that begins with the field
}

func (e *RuleError) Error() string { return e.Field + " " + e.Detail }
