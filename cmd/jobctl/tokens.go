package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// wireToken is a token as jobctl prints it. Token, the secret, is there once.
type wireToken struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	Token      string         `json:"token,omitempty"`
	Status     string         `json:"status"`
	Scopes     []access.Scope `json:"scopes"`
	Queues     []string       `json:"queues"` // null is every queue
	CreatedAt  time.Time      `json:"created_at"`
	CreatedBy  string         `json:"created_by"`
	ExpiresAt  *time.Time     `json:"expires_at"`
	LastUsedAt *time.Time     `json:"last_used_at"`
	RevokedAt  *time.Time     `json:"revoked_at"`
}

func (t wireToken) scopes() string {
	words := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

var tokenView = view[wireToken]{
	id: func(t wireToken) string { return t.ID },
	columns: []column[wireToken]{
		{name: "id", value: func(t wireToken) string { return t.ID }},
		{name: "name", value: func(t wireToken) string { return t.Name }},
		{name: "status", value: func(t wireToken) string { return t.Status }},
		{name: "scopes", value: wireToken.scopes},
		{name: "queues", value: func(t wireToken) string { return cmp.Or(strings.Join(t.Queues, ", "), "all") }},
		{name: "last used", value: func(t wireToken) string { return cmp.Or(ago(t.LastUsedAt), "never") }},
		{name: "expires", value: func(t wireToken) string { return cmp.Or(ago(t.ExpiresAt), "never") }},
		{name: "created", wide: true, value: func(t wireToken) string { return ago(&t.CreatedAt) }},
		{name: "by", wide: true, value: func(t wireToken) string { return t.CreatedBy }},
		{name: "revoked", wide: true, value: func(t wireToken) string { return ago(t.RevokedAt) }},
	},
	empty: "There are no tokens. Make one with: jobctl tokens create --name NAME --scope jobs:write",
}

func newTokensCommand(a *app) *cobra.Command {
	cmd := noun("tokens", "Tokens of programs that call the API", `  jobctl tokens create --name mailer --scope jobs:write --queue mail
  jobctl tokens list`)
	cmd.Long = `Tokens of programs that call the API, and of jobctl itself. These commands work on the database.

Scopes: jobs:read reads everything; jobs:write enqueues, cancels, stops and brings forward; queues:write pauses and
resumes; dlq:write replays, discards and restores; admin does all. Each allows reading too. A token
of some queues sees and touches nothing in others.`
	cmd.AddCommand(newTokensCreateCommand(a), newTokensListCommand(a), newTokensRevokeCommand(a))
	return cmd
}

func newTokensCreateCommand(a *app) *cobra.Command {
	var name, reason string
	var scopes, queues []string
	var expires time.Duration
	known := make([]string, 0, len(access.Scopes()))
	for _, s := range access.Scopes() {
		known = append(known, string(s))
	}
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token and print it, this once", Args: exactly(),
		Long: `Make a token and print it. It is shown this once: the database keeps a hash of it. It alone is written to
stdout, so that it can go into a file.`,
		Example: `  jobctl tokens create --name mailer --scope jobs:write --queue mail --expires 720h
  (umask 077; jobctl tokens create --name ci --scope jobs:read >token.txt) && JOBCTL_TOKEN_FILE=token.txt jobctl status`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec := access.TokenSpec{Name: name, Queues: queues, TTL: expires}
			switch {
			case name == "":
				return usage(exampleOf(cmd), "the token needs a --name: who acts, in the audit trail")
			case len(scopes) == 0:
				return usage("It takes: "+strings.Join(known, ", "), "the token needs a --scope: what it may do")
			case cmd.Flags().Changed("expires") && expires <= 0:
				return usage("Leave --expires out for a token that does not expire.", "--expires %s is over already", expires)
			}
			for _, s := range scopes {
				if err := oneOf("--scope", s, known); err != nil {
					return err
				}
				spec.Scopes = append(spec.Scopes, access.Scope(s))
			}
			return a.onTokens(cmd.Context(), func(ctx context.Context, tokens *access.Tokens) error {
				if a.dryRun {
					return a.rehearseToken(ctx, tokens, spec)
				}
				secret, made, err := tokens.Create(ctx, spec, actor(reason))
				if err != nil {
					return err
				}
				a.say("Made token %s, %s. This is the only time that it is shown.", made.ID, made.Name)
				return a.printNewToken(secret, made)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` of the token: token:NAME is who acts, in the audit trail")
	cmd.Flags().StringArrayVar(&scopes, "scope", nil, "what it may do, once or more: `"+strings.Join(known, ", ")+"`")
	cmd.Flags().StringArrayVar(&queues, "queue", nil, "a `queue` that it may touch, once or more; left out, every queue")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is good for, such as 720h; left out, until it is revoked")
	addReason(cmd, &reason)
	a.addDryRun(cmd)
	return cmd
}

// rehearseToken tells whether a token could be made.
func (a *app) rehearseToken(ctx context.Context, tokens *access.Tokens, spec access.TokenSpec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	list, err := tokens.List(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(t access.Token) bool { return t.Name == spec.Name && t.RevokedAt.IsZero() }) {
		return access.ErrTokenExists
	}
	return a.would("Token %s would be made", spec.Name)
}

func newTokensListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List tokens with their scopes and last use", Args: exactly(), Example: "  jobctl tokens list -o wide\n  jobctl tokens list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onTokens(cmd.Context(), func(ctx context.Context, tokens *access.Tokens) error {
				list, err := tokens.List(ctx)
				if err != nil {
					return err
				}
				return a.printTokens(list)
			})
		},
	}
}

func newTokensRevokeCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "End a token for good", Args: exactly("the id of a token"),
		Long:    "End a token for good. Its id is what stands in the list, and in the token itself: the eight letters after rje_.",
		Example: `  jobctl tokens revoke 4fJ0aQ2x --reason "leaked in a log" --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onTokens(cmd.Context(), func(ctx context.Context, tokens *access.Tokens) error {
				if a.dryRun {
					list, err := tokens.List(ctx)
					if err == nil && !slices.ContainsFunc(list, func(t access.Token) bool { return t.ID == args[0] && t.RevokedAt.IsZero() }) {
						err = access.ErrTokenNotFound
					}
					if err != nil {
						return err
					}
					return a.would("Token %s would be revoked", args[0])
				}
				if err := a.confirm(ctx, "Revoking token "+args[0]+", which cannot be taken back,"); err != nil {
					return err
				}
				if err := tokens.Revoke(ctx, args[0], actor(reason)); err != nil {
					return err
				}
				a.say("Revoked %s. Servers forget it within %s.", args[0], auth.TokenMemory)
				return nil
			})
		},
	}
	addReason(cmd, &reason)
	a.addDryRun(cmd)
	return cmd
}

// onTokens does something to the tokens of the database.
func (a *app) onTokens(ctx context.Context, do func(ctx context.Context, tokens *access.Tokens) error) error {
	return a.onDatabase(ctx, "jobctl tokens", func(ctx context.Context, _ *config.Config, pool *pgxpool.Pool) error {
		return tokenFailure(do(ctx, access.NewTokens(pool, nil)))
	})
}

// tokenFailure gives errors of tokens their exit codes.
func tokenFailure(err error) error {
	switch {
	case errors.Is(err, access.ErrTokenExists):
		return &failure{exitConflict, err, "Take another name, or revoke that one first: jobctl tokens list"}
	case errors.Is(err, access.ErrTokenNotFound):
		return &failure{exitNotFound, err, "See: jobctl tokens list"}
	}
	return userFailure(err)
}

func wireTokenOf(t access.Token) wireToken {
	w := wireToken{ID: t.ID, Name: t.Name, Status: "good", Scopes: t.Scopes, Queues: t.Queues, CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy,
		ExpiresAt: unlessZero(t.ExpiresAt), LastUsedAt: unlessZero(t.LastUsedAt), RevokedAt: unlessZero(t.RevokedAt)}
	switch {
	case w.RevokedAt != nil:
		w.Status = "revoked"
	case t.Expired:
		w.Status = "expired"
	}
	return w
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// printNewToken prints the secret alone, and with -o json or jsonl what is known of
// it too.
func (a *app) printNewToken(secret string, t access.Token) error {
	if a.format != formatJSON && a.format != formatJSONL {
		return a.write([]byte(secret + "\n"))
	}
	w := wireTokenOf(t)
	w.Token = secret
	raw, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("print token: %w", err)
	}
	return tokenView.print(a, raw, []json.RawMessage{raw})
}

func (a *app) printTokens(tokens []access.Token) error {
	raws := make([]json.RawMessage, len(tokens))
	for i, t := range tokens {
		var err error
		if raws[i], err = json.Marshal(wireTokenOf(t)); err != nil {
			return fmt.Errorf("print tokens: %w", err)
		}
	}
	body, err := joined(page{}, raws)
	if err != nil {
		return err
	}
	return tokenView.print(a, body, raws)
}
