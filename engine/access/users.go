package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// BootstrapName is the name of the first admin.
const BootstrapName = "admin"

// maxUsers bounds a list of accounts.
const maxUsers = 1000

// User is one account.
type User struct {
	ID   int64
	Name string
	Role Role
	// Queues are all that they may see and touch; nil is every queue.
	Queues    []string
	CreatedAt time.Time
	// DisabledAt and SignedInAt are zero if that never was.
	DisabledAt, SignedInAt time.Time
	// Sessions is how many are open.
	Sessions int
	// Version rises with every change of what they may do or know.
	Version int
}

// UserSpec asks for an account.
type UserSpec struct {
	// Name is 1 to 64 letters, digits, dots, hyphens, underscores or @, and folded to
	// lower case.
	Name, Password string
	Role           Role
	// Queues limit the person to at most 100 queues; none is every queue. The queues
	// need not exist yet.
	Queues []string
}

// UserEdit is what changes of an account; nil stays.
type UserEdit struct {
	Role *Role
	// Queues are the new ones; an empty list is every queue.
	Queues *[]string
}

var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,63}$`) })

// reserved are names that the audit trail gives to callers who are no person.
var reserved = []string{"anonymous", "bootstrap", "development", "metrics", "system"}

// foldName makes one of the ways to write a name.
func foldName(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// CheckName returns the name as it is kept, in lower case. Error: [*RuleError].
func CheckName(name string) (string, error) {
	name = foldName(name)
	switch {
	case !namePattern().MatchString(name):
		return "", &RuleError{"name", "must be 1 to 64 letters, digits, dots, hyphens, underscores or @, the first a letter or digit"}
	case slices.Contains(reserved, name):
		return "", &RuleError{"name", fmt.Sprintf("%s is kept for the product itself", name)}
	}
	return name, nil
}

func checkRole(r Role) error {
	if !slices.Contains(Roles(), r) {
		return &RuleError{"role", "must be admin, operator or viewer"}
	}
	return nil
}

// Create adds an account. Errors: [*RuleError], [ErrUserExists].
func (a *Accounts) Create(ctx context.Context, s UserSpec, by engine.Actor) (User, error) {
	name, err := CheckName(s.Name)
	if err != nil {
		return User{}, err
	}
	queues, err := checkQueues(s.Queues)
	if err := errors.Join(err, checkRole(s.Role), CheckPassword(name, s.Password)); err != nil {
		return User{}, err
	}
	hash, err := a.hash.make(ctx, s.Password)
	if err != nil {
		return User{}, fmt.Errorf("create user %s: %w", name, err)
	}
	var row dbsqlc.InsertUserRow
	err = a.act(ctx, by, "create", name, func(tx pgx.Tx) (change, error) {
		row, err = a.q.InsertUser(ctx, tx, name, hash, string(s.Role), queues)
		if errors.Is(err, pgx.ErrNoRows) {
			return change{}, ErrUserExists
		}
		after := map[string]any{"role": s.Role}
		if queues != nil {
			after["queues"] = queues
		}
		return change{after: after, affected: 1}, err
	})
	if err != nil {
		return User{}, fmt.Errorf("create user %s: %w", name, err)
	}
	return User{ID: row.ID, Name: row.Name, Role: Role(row.Role), Queues: queues, CreatedAt: row.CreatedAt.UTC(), Version: 1}, nil
}

// List returns every account by name, at most 1000.
func (a *Accounts) List(ctx context.Context) ([]User, error) {
	users, err := a.list(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return users, nil
}

// User returns one account. Error: [ErrUserNotFound].
func (a *Accounts) User(ctx context.Context, name string) (User, error) {
	name = foldName(name)
	users, err := a.list(ctx, &name)
	if err == nil && len(users) == 0 {
		err = ErrUserNotFound
	}
	if err != nil {
		return User{}, fmt.Errorf("read user %s: %w", name, err)
	}
	return users[0], nil
}

func (a *Accounts) list(ctx context.Context, name *string) ([]User, error) {
	rows, err := a.q.ListUsers(ctx, a.pool, a.idle.Seconds(), a.total.Seconds(), name, maxUsers)
	users := make([]User, len(rows))
	for i, r := range rows {
		users[i] = User{ID: r.ID, Name: r.Name, Role: Role(r.Role), Queues: r.Queues, CreatedAt: r.CreatedAt.UTC(),
			DisabledAt: instant(r.DisabledAt), SignedInAt: instant(r.SignedInAt), Sessions: int(r.Sessions), Version: int(r.Generation)}
	}
	return users, err
}

func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// HasUsers tells whether any account exists, a disabled one too.
func (a *Accounts) HasUsers(ctx context.Context) (bool, error) {
	yes, err := a.q.HasUsers(ctx, a.pool)
	if err != nil {
		return false, fmt.Errorf("look for users: %w", err)
	}
	return yes, nil
}

// The acts on an account that follow do nothing if by.Version is set and the
// account has changed since: [ErrUserChanged].

// Disable keeps a person from signing in and ends their sessions. Their name
// stays in use. Repeating it is no error. Errors: [ErrUserNotFound],
// [ErrLastAdmin].
func (a *Accounts) Disable(ctx context.Context, name string, by engine.Actor) error {
	return a.change(ctx, "disable", name, by, changeOf{disabled: new(true)})
}

// Enable takes back a Disable. Error: [ErrUserNotFound].
func (a *Accounts) Enable(ctx context.Context, name string, by engine.Actor) error {
	return a.change(ctx, "enable", name, by, changeOf{disabled: new(false)})
}

// Edit gives another role or other queues and ends the person's sessions. Errors:
// [*RuleError], [ErrUserNotFound], [ErrLastAdmin].
func (a *Accounts) Edit(ctx context.Context, name string, e UserEdit, by engine.Actor) error {
	c := changeOf{role: e.Role}
	if e.Role != nil {
		if err := checkRole(*e.Role); err != nil {
			return err
		}
	}
	if e.Queues != nil {
		queues, err := checkQueues(*e.Queues)
		if err != nil {
			return err
		}
		c.queues = append([]string{}, queues...) // an empty one lifts the limit, nil would leave it
	}
	return a.change(ctx, "edit", name, by, c)
}

// ResetPassword gives a new password, ends the person's sessions and forgets
// failed tries at their name. Errors: [*RuleError], [ErrUserNotFound].
func (a *Accounts) ResetPassword(ctx context.Context, name, password string, by engine.Actor) error {
	if err := CheckPassword(foldName(name), password); err != nil {
		return err
	}
	hash, err := a.hash.make(ctx, password)
	if err != nil {
		return fmt.Errorf("reset password of user %s: %w", name, err)
	}
	return a.change(ctx, "reset_password", name, by, changeOf{hash: &hash})
}

// changeOf is what changes; nil stays.
type changeOf struct {
	role     *Role
	queues   []string
	hash     *string
	disabled *bool
}

// takesAdmin tells whether one who may do everything may not after it.
func (c changeOf) takesAdmin() bool {
	return c.role != nil && *c.role != RoleAdmin || len(c.queues) > 0 || c.disabled != nil && *c.disabled
}

// change writes c and ends every session of the person.
func (a *Accounts) change(ctx context.Context, action, name string, by engine.Actor, c changeOf) error {
	name = foldName(name)
	err := a.act(ctx, by, action, name, func(tx pgx.Tx) (change, error) {
		if c.takesAdmin() {
			if err := a.keepAdmin(ctx, tx, name); err != nil {
				return change{}, err
			}
		}
		row, err := a.q.ChangeUser(ctx, tx, (*string)(c.role), c.queues, c.hash, c.disabled, name)
		if errors.Is(err, pgx.ErrNoRows) {
			return change{}, ErrUserNotFound
		}
		if err != nil {
			return change{}, err
		}
		if by.Version != 0 && by.Version != int(row.OldGeneration) {
			return change{}, ErrUserChanged
		}
		ended, err := a.q.DeleteSessionsOf(ctx, tx, row.ID)
		if err == nil && c.hash != nil {
			err = a.q.ForgetSignInName(ctx, tx, subjectOf(name))
		}
		return c.audit(row, ended), err
	})
	if err != nil {
		return fmt.Errorf("%s user %s: %w", strings.ReplaceAll(action, "_", " "), name, err)
	}
	return nil
}

// keepAdmin refuses to take the right of the last one who may do everything. Of two
// acts that each take one away, the second waits and then sees who is left.
func (a *Accounts) keepAdmin(ctx context.Context, tx pgx.Tx, name string) error {
	if err := a.q.LockUsers(ctx, tx); err != nil {
		return err
	}
	admins, err := a.q.ListAdmins(ctx, tx)
	if err == nil && len(admins) == 1 && admins[0] == name {
		err = ErrLastAdmin
	}
	return err
}

func (c changeOf) audit(was dbsqlc.ChangeUserRow, ended int64) change {
	before, after := map[string]any{}, map[string]any{"sessions_ended": ended}
	if c.role != nil {
		before["role"], after["role"] = was.OldRole, was.Role
	}
	if c.queues != nil {
		before["queues"], after["queues"] = was.OldQueues, was.Queues
	}
	if c.disabled != nil {
		before["disabled"], after["disabled"] = was.WasDisabled, *c.disabled
	}
	return change{before: before, after: after, affected: 1}
}

// Bootstrap makes the first admin, [BootstrapName], if no account exists. Of
// several servers that start at once one makes it. Later it does nothing but log
// that the password can be taken away. Error: [*RuleError].
func (a *Accounts) Bootstrap(ctx context.Context, password string) (made bool, err error) {
	if err := CheckPassword(BootstrapName, password); err != nil {
		return false, err
	}
	taken, err := a.HasUsers(ctx)
	if err == nil && !taken {
		made, err = a.bootstrap(ctx, password)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("make the first admin: %w", err)
	case made:
		a.log.InfoContext(ctx, "first admin made; sign in, then take BOOTSTRAP_ADMIN_PASSWORD away", "user", BootstrapName)
	default:
		a.log.InfoContext(ctx, "BOOTSTRAP_ADMIN_PASSWORD has no effect: users exist")
	}
	return made, nil
}

func (a *Accounts) bootstrap(ctx context.Context, password string) (made bool, err error) {
	hash, err := a.hash.make(ctx, password)
	if err != nil {
		return false, err
	}
	by := engine.Actor{Name: "system", Source: "system", Reason: "first admin, from BOOTSTRAP_ADMIN_PASSWORD"}
	err = a.act(ctx, by, "create", BootstrapName, func(tx pgx.Tx) (change, error) {
		if err := a.q.LockUsers(ctx, tx); err != nil {
			return change{}, err
		}
		if taken, err := a.q.HasUsers(ctx, tx); err != nil || taken {
			return change{}, errors.Join(err, ErrUserExists)
		}
		_, err := a.q.InsertUser(ctx, tx, BootstrapName, hash, string(RoleAdmin), nil)
		return change{after: map[string]any{"role": RoleAdmin}, affected: 1}, err
	})
	if errors.Is(err, ErrUserExists) {
		return false, nil
	}
	return err == nil, err
}
