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
	ID        int64
	Name      string
	Role      Role
	CreatedAt time.Time
	// DisabledAt and SignedInAt are zero if that never was.
	DisabledAt, SignedInAt time.Time
	// Sessions is how many are open.
	Sessions int
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
func (a *Accounts) Create(ctx context.Context, name, password string, role Role, by engine.Actor) (User, error) {
	name, err := CheckName(name)
	if err != nil {
		return User{}, err
	}
	if err := errors.Join(checkRole(role), CheckPassword(name, password)); err != nil {
		return User{}, err
	}
	hash, err := a.hash.make(ctx, password)
	if err != nil {
		return User{}, fmt.Errorf("create user %s: %w", name, err)
	}
	var row dbsqlc.InsertUserRow
	err = a.act(ctx, by, "create", name, func(tx pgx.Tx) (change, error) {
		row, err = a.q.InsertUser(ctx, tx, name, hash, string(role))
		if errors.Is(err, pgx.ErrNoRows) {
			return change{}, ErrUserExists
		}
		return change{after: map[string]any{"role": role}, affected: 1}, err
	})
	if err != nil {
		return User{}, fmt.Errorf("create user %s: %w", name, err)
	}
	return User{ID: row.ID, Name: row.Name, Role: Role(row.Role), CreatedAt: row.CreatedAt.UTC()}, nil
}

// List returns every account by name, at most 1000.
func (a *Accounts) List(ctx context.Context) ([]User, error) {
	rows, err := a.q.ListUsers(ctx, a.pool, a.idle.Seconds(), a.total.Seconds(), maxUsers)
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	users := make([]User, len(rows))
	for i, r := range rows {
		users[i] = User{ID: r.ID, Name: r.Name, Role: Role(r.Role), CreatedAt: r.CreatedAt.UTC(),
			DisabledAt: instant(r.DisabledAt), SignedInAt: instant(r.SignedInAt), Sessions: int(r.Sessions)}
	}
	return users, nil
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

// Disable keeps a person from signing in and ends their sessions. Their name
// stays in use. Repeating it is no error. Error: [ErrUserNotFound].
func (a *Accounts) Disable(ctx context.Context, name string, by engine.Actor) error {
	return a.change(ctx, "disable", name, by, changeOf{disabled: new(true)})
}

// Enable takes back a Disable. Error: [ErrUserNotFound].
func (a *Accounts) Enable(ctx context.Context, name string, by engine.Actor) error {
	return a.change(ctx, "enable", name, by, changeOf{disabled: new(false)})
}

// SetRole gives another role and ends the person's sessions. Errors:
// [*RuleError], [ErrUserNotFound].
func (a *Accounts) SetRole(ctx context.Context, name string, role Role, by engine.Actor) error {
	if err := checkRole(role); err != nil {
		return err
	}
	return a.change(ctx, "set_role", name, by, changeOf{role: &role})
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
	hash     *string
	disabled *bool
}

// change writes c and ends every session of the person.
func (a *Accounts) change(ctx context.Context, action, name string, by engine.Actor, c changeOf) error {
	name = foldName(name)
	err := a.act(ctx, by, action, name, func(tx pgx.Tx) (change, error) {
		row, err := a.q.ChangeUser(ctx, tx, (*string)(c.role), c.hash, c.disabled, name)
		if errors.Is(err, pgx.ErrNoRows) {
			return change{}, ErrUserNotFound
		}
		if err != nil {
			return change{}, err
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

func (c changeOf) audit(was dbsqlc.ChangeUserRow, ended int64) change {
	before, after := map[string]any{}, map[string]any{"sessions_ended": ended}
	if c.role != nil {
		before["role"], after["role"] = was.OldRole, *c.role
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
		_, err := a.q.InsertUser(ctx, tx, BootstrapName, hash, string(RoleAdmin))
		return change{after: map[string]any{"role": RoleAdmin}, affected: 1}, err
	})
	if errors.Is(err, ErrUserExists) {
		return false, nil
	}
	return err == nil, err
}
