package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// wireUser is an account as jobctl prints it.
type wireUser struct {
	Name       string     `json:"name"`
	Role       string     `json:"role"`
	Queues     []string   `json:"queues"` // null is every queue
	Status     string     `json:"status"`
	Sessions   int        `json:"sessions"`
	CreatedAt  time.Time  `json:"created_at"`
	SignedInAt *time.Time `json:"signed_in_at"`
}

var userView = view[wireUser]{
	id: func(u wireUser) string { return u.Name },
	columns: []column[wireUser]{
		{name: "name", value: func(u wireUser) string { return u.Name }},
		{name: "role", value: func(u wireUser) string { return u.Role }},
		{name: "queues", value: func(u wireUser) string { return cmp.Or(strings.Join(u.Queues, ", "), "all") }},
		{name: "status", value: func(u wireUser) string { return u.Status }},
		{name: "sessions", right: true, value: func(u wireUser) string { return strconv.Itoa(u.Sessions) }},
		{name: "signed in", value: func(u wireUser) string { return cmp.Or(ago(u.SignedInAt), "never") }},
		{name: "created", wide: true, value: func(u wireUser) string { return ago(&u.CreatedAt) }},
	},
	empty: "There are no users. Add the first with: jobctl users create NAME --role admin",
}

func newUsersCommand(a *app) *cobra.Command {
	cmd := noun("users", "People who sign in to the console", `  jobctl users list
  jobctl users create ann --role admin
  jobctl users role ann operator --queue mail`)
	cmd.Long = `People who sign in to the console. These commands work on the database.

A viewer reads, an operator acts on jobs and queues, an admin does all. Someone of some queues
sees and touches nothing in others. The last admin of every queue stays one.

A password is asked for at a terminal, and read from stdin elsewhere. It is never given on the
command line, where others could read it.`
	cmd.AddCommand(newUsersCreateCommand(a), newUsersListCommand(a), newUsersRoleCommand(a), newUsersDisableCommand(a), newUsersResetPasswordCommand(a))
	return cmd
}

func roleWords() []string {
	roles := make([]string, 0, len(access.Roles()))
	for _, r := range access.Roles() {
		roles = append(roles, string(r))
	}
	return roles
}

func newUsersCreateCommand(a *app) *cobra.Command {
	var role, reason string
	var queues []string
	roles := roleWords()
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Add a user", Args: exactly("a name"),
		Example: `  jobctl users create ann --role admin
  jobctl users create bob --role viewer <password.txt
  jobctl users create cleo --role operator --queue mail --queue sms`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("--role", role, roles); err != nil {
				return err
			}
			name, err := access.CheckName(args[0])
			if err != nil {
				return userFailure(err)
			}
			return a.onUsers(cmd.Context(), func(ctx context.Context, users *access.Accounts) error {
				if a.dryRun {
					return a.rehearseUser(ctx, users, name, false, "added as "+role)
				}
				password, err := a.askPassword(ctx, name)
				if err != nil {
					return err
				}
				u, err := users.Create(ctx, access.UserSpec{Name: name, Password: password, Role: access.Role(role), Queues: queues}, actor(reason))
				if err != nil {
					return err
				}
				a.say("Added %s as %s.", u.Name, u.Role)
				return a.printUsers([]access.User{u}, false)
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", string(access.RoleViewer), "what they may do: `"+strings.Join(roles, ", ")+"`")
	cmd.Flags().StringArrayVar(&queues, "queue", nil, "a `queue` that they may see and touch, once or more; left out, every queue")
	addReason(cmd, &reason)
	a.addDryRun(cmd)
	return cmd
}

func newUsersListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List users with their roles and open sessions", Args: exactly(), Example: "  jobctl users list\n  jobctl users list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onUsers(cmd.Context(), func(ctx context.Context, users *access.Accounts) error {
				list, err := users.List(ctx)
				if err != nil {
					return err
				}
				return a.printUsers(list, true)
			})
		},
	}
}

func newUsersRoleCommand(a *app) *cobra.Command {
	var reason string
	var queues []string
	var every bool
	roles := roleWords()
	cmd := &cobra.Command{
		Use: "role NAME ROLE", Short: "Give a user another role, or other queues, and end their sessions", Args: exactly("a name", "a role: "+strings.Join(roles, ", ")),
		Long: `Give a user another role. Their queues stay unless --queue names others, or --every-queue lifts the limit.
Their sessions end at once: they sign in again, with the new rights.`,
		Example: `  jobctl users role ann admin --yes
  jobctl users role bob operator --queue mail --queue sms --reason "on call for mail" --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("ROLE", args[1], roles); err != nil {
				return err
			}
			role, is := access.Role(args[1]), args[1]
			edit := access.UserEdit{Role: &role}
			switch {
			case every && len(queues) > 0:
				return usage("Give one of them.", "--queue and --every-queue exclude each other")
			case every:
				edit.Queues, is = &[]string{}, is+" of every queue"
			case len(queues) > 0:
				edit.Queues, is = &queues, is+" of "+strings.Join(queues, ", ")
			}
			return a.onUsers(cmd.Context(), func(ctx context.Context, users *access.Accounts) error {
				if a.dryRun {
					if err := rehearseLoss(ctx, users, args[0], role != access.RoleAdmin || len(queues) > 0); err != nil {
						return err
					}
					return a.rehearseUser(ctx, users, args[0], true, "made "+is+", and their sessions would end")
				}
				if err := a.confirm(ctx, "Making "+args[0]+" "+is+", whose sessions end at once,"); err != nil {
					return err
				}
				if err := users.Edit(ctx, args[0], edit, actor(reason)); err != nil {
					return err
				}
				a.say("%s is %s. Their sessions have ended.", args[0], is)
				return nil
			})
		},
	}
	cmd.Flags().StringArrayVar(&queues, "queue", nil, "a `queue` that they may see and touch, once or more; left out, their queues stay")
	cmd.Flags().BoolVar(&every, "every-queue", false, "take their limit to queues away")
	addReason(cmd, &reason)
	a.addDryRun(cmd)
	return cmd
}

func newUsersDisableCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "disable NAME", Short: "Keep a user from signing in, and end their sessions", Args: exactly("a name"),
		Example: `  jobctl users disable bob --reason "left the team" --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onUsers(cmd.Context(), func(ctx context.Context, users *access.Accounts) error {
				if a.dryRun {
					if err := rehearseLoss(ctx, users, args[0], true); err != nil {
						return err
					}
					return a.rehearseUser(ctx, users, args[0], true, "disabled, and their sessions would end")
				}
				if err := a.confirm(ctx, "Disabling user "+args[0]+", whose sessions end at once,"); err != nil {
					return err
				}
				if err := users.Disable(ctx, args[0], actor(reason)); err != nil {
					return err
				}
				a.say("Disabled %s.", args[0])
				return nil
			})
		},
	}
	addReason(cmd, &reason)
	a.addDryRun(cmd)
	return cmd
}

func newUsersResetPasswordCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "reset-password NAME", Short: "Give a user a new password, and end their sessions", Args: exactly("a name"),
		Example: `  jobctl users reset-password ann
  jobctl users reset-password ann <password.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onUsers(cmd.Context(), func(ctx context.Context, users *access.Accounts) error {
				if a.dryRun {
					return a.rehearseUser(ctx, users, args[0], true, "given a new password, and their sessions would end")
				}
				password, err := a.askPassword(ctx, args[0])
				if err != nil {
					return err
				}
				if err := users.ResetPassword(ctx, args[0], password, actor(reason)); err != nil {
					return err
				}
				a.say("%s has a new password. Their sessions have ended.", args[0])
				return nil
			})
		},
	}
	addReason(cmd, &reason)
	a.addDryRun(cmd)
	return cmd
}

// rehearseUser tells whether a user is there, as the act needs it, and what would
// become of them.
func (a *app) rehearseUser(ctx context.Context, users *access.Accounts, name string, there bool, done string) error {
	list, err := users.List(ctx)
	if err != nil {
		return err
	}
	found := slices.ContainsFunc(list, func(u access.User) bool { return u.Name == name })
	switch {
	case there && !found:
		return access.ErrUserNotFound
	case !there && found:
		return access.ErrUserExists
	}
	return a.would("%s would be %s", name, done)
}

// rehearseLoss tells whether an act that may take an admin away would leave nobody.
func rehearseLoss(ctx context.Context, users *access.Accounts, name string, takes bool) error {
	list, err := users.List(ctx)
	if err != nil || !takes {
		return err
	}
	admins := slices.DeleteFunc(list, func(u access.User) bool {
		return u.Role != access.RoleAdmin || !u.DisabledAt.IsZero() || u.Queues != nil
	})
	if len(admins) == 1 && admins[0].Name == name {
		return access.ErrLastAdmin
	}
	return nil
}

func addReason(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "`why`, for the audit trail")
}

// onUsers does something to the accounts of the database.
func (a *app) onUsers(ctx context.Context, do func(ctx context.Context, users *access.Accounts) error) error {
	return a.onDatabase(ctx, "jobctl users", func(ctx context.Context, cfg *config.Config, pool *pgxpool.Pool) error {
		users := access.New(access.Config{Pool: pool, IdleTTL: cfg.Auth.SessionIdleTTL, TTL: cfg.Auth.SessionTTL})
		return userFailure(do(ctx, users))
	})
}

// onDatabase does something on the database, whose schema must be this build's.
func (a *app) onDatabase(ctx context.Context, as string, do func(ctx context.Context, cfg *config.Config, pool *pgxpool.Pool) error) error {
	cfg, at, err := a.database()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.limit(databaseTimeout))
	defer cancel()
	pool, err := boot.OpenPool(ctx, cfg, at, as)
	if err != nil {
		return databaseFailure(err)
	}
	defer pool.Close()
	if err := db.CheckSchema(ctx, pool); err != nil {
		return databaseFailure(err)
	}
	return do(ctx, cfg, pool)
}

// userFailure gives errors of accounts their exit codes.
func userFailure(err error) error {
	var known *failure
	var rule *access.RuleError
	switch {
	case err == nil || errors.As(err, &known) || errors.Is(err, errInterrupted):
		return err
	case errors.As(err, &rule):
		return &failure{exitUsage, rule, ""}
	case errors.Is(err, access.ErrUserExists):
		return &failure{exitConflict, err, "A new password: jobctl users reset-password NAME"}
	case errors.Is(err, access.ErrLastAdmin):
		return &failure{exitConflict, err, "Such as: jobctl users role NAME admin"}
	case errors.Is(err, access.ErrUserNotFound):
		return &failure{exitNotFound, err, "See: jobctl users list"}
	}
	return databaseFailure(err)
}

// actor is who runs jobctl, as this machine knows them.
func actor(reason string) engine.Actor {
	name := "jobctl"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return engine.Actor{Name: name, Source: "cli", Reason: reason}
}

func (a *app) printUsers(users []access.User, asList bool) error {
	raws := make([]json.RawMessage, len(users))
	for i, u := range users {
		w := wireUser{Name: u.Name, Role: string(u.Role), Queues: u.Queues, Status: "enabled", Sessions: u.Sessions, CreatedAt: u.CreatedAt}
		if !u.DisabledAt.IsZero() {
			w.Status = "disabled"
		}
		if !u.SignedInAt.IsZero() {
			w.SignedInAt = &u.SignedInAt
		}
		var err error
		if raws[i], err = json.Marshal(w); err != nil {
			return fmt.Errorf("print users: %w", err)
		}
	}
	if !asList {
		return userView.print(a, raws[0], raws)
	}
	body, err := joined(page{}, raws)
	if err != nil {
		return err
	}
	return userView.print(a, body, raws)
}

// askPassword asks twice at a terminal, without showing what is typed; elsewhere
// it reads stdin, less one line break at its end.
func (a *app) askPassword(ctx context.Context, name string) (string, error) {
	if !isTerminal(a.in) {
		text, err := io.ReadAll(io.LimitReader(a.in, 2*access.MaxPasswordBytes))
		if err != nil {
			return "", fmt.Errorf("read the password from stdin: %w", err)
		}
		password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
		if password == "" {
			return "", usage("Give it on stdin, such as from a file: <password.txt", "there is no password on stdin, and no terminal to ask at")
		}
		return password, nil
	}
	first, err := a.typed(ctx, "New password for "+name+": ")
	if err != nil {
		return "", err
	}
	if err := access.CheckPassword(name, first); err != nil {
		return "", err
	}
	again, err := a.typed(ctx, "Again: ")
	if err != nil {
		return "", err
	}
	if first != again {
		return "", &failure{exitUsage, errors.New("the two passwords differ; nothing was done"), "Try again."}
	}
	return first, nil
}

// typed reads a line that does not show. An interrupt gives the terminal its echo
// back, which the read that is left behind would not.
func (a *app) typed(ctx context.Context, question string) (string, error) {
	fd := int(a.in.(*os.File).Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read the terminal: %w", err)
	}
	fmt.Fprint(a.err, printable(question))
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		read <- line{text, err}
	}()
	select {
	case <-ctx.Done():
		_ = term.Restore(fd, before) // nothing better can be done
		fmt.Fprintln(a.err)
		return "", errInterrupted
	case l := <-read:
		fmt.Fprintln(a.err)
		if l.err != nil {
			return "", fmt.Errorf("read the password: %w", l.err)
		}
		return string(l.text), nil
	}
}
