package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// town is a site with accounts and tokens that asks nobody to sign in.
type town struct {
	*site
	people *access.Accounts
	tokens *access.Tokens
}

func newTown(t *testing.T) *town {
	t.Helper()
	pool := dbtest.New(t)
	w := &town{people: access.New(access.Config{Pool: pool}), tokens: access.NewTokens(pool, nil)}
	w.site = newConsoleOn(t, pool, func(c *Config) { c.Accounts, c.Tokens, c.AuthMode = w.people, w.tokens, auth.ModeNone })
	if _, err := w.people.Create(t.Context(), access.UserSpec{Name: "first", Password: password, Role: access.RoleAdmin}, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// accessAct is one act on a person or a token, by console and Go.
type accessAct struct {
	action, kind string
	target       func() string // its name or id
	console      string
	form         url.Values
	call         func(ctx context.Context, target string, by engine.Actor) error
}

func (w *town) accessActs() []accessAct {
	by := engine.Actor{Name: "setting up"}
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	person := func() string {
		name := uuid.NewString()
		_, err := w.people.Create(w.t.Context(), access.UserSpec{Name: name, Password: password, Role: access.RoleViewer}, by)
		must(err)
		return name
	}
	disabled := func() string {
		name := person()
		must(w.people.Disable(w.t.Context(), name, by))
		return name
	}
	nobody := func() string { return uuid.NewString() }
	token := func() string {
		_, made, err := w.tokens.Create(w.t.Context(), access.TokenSpec{Name: uuid.NewString(), Scopes: []access.Scope{access.ScopeAdmin}}, by)
		must(err)
		return made.ID
	}
	twice := url.Values{"password": {password + "!"}, "again": {password + "!"}}
	user := "/access/users/:name"
	return []accessAct{
		{"create", "user", nobody, "/access/users", url.Values{"name": {":name"}, "role": {"operator"}, "queues": {"mail, sms"}, "password": {password}, "again": {password}},
			func(ctx context.Context, name string, a engine.Actor) error {
				_, err := w.people.Create(ctx, access.UserSpec{Name: name, Password: password, Role: access.RoleOperator}, a)
				return err
			}},
		{"edit", "user", person, user + "/edit", url.Values{"role": {"operator"}, "queues": {"mail"}, "version": {"1"}}, func(ctx context.Context, name string, a engine.Actor) error {
			return w.people.Edit(ctx, name, access.UserEdit{Queues: &[]string{"mail"}}, a)
		}},
		{"disable", "user", person, user + "/disable", nil, w.people.Disable},
		{"enable", "user", disabled, user + "/enable", nil, w.people.Enable},
		{"reset_password", "user", person, user + "/password", twice, func(ctx context.Context, name string, a engine.Actor) error {
			return w.people.ResetPassword(ctx, name, password+"!", a)
		}},
		{"revoke_sessions", "user", person, user + "/end-sessions", nil, w.people.RevokeAll},
		{"create", "token", nobody, "/access/tokens", url.Values{"name": {":name"}, "scope": {"jobs:read", "dlq:write"}, "queues": {"mail"}, "days": {"30"}},
			func(ctx context.Context, name string, a engine.Actor) error {
				_, _, err := w.tokens.Create(ctx, access.TokenSpec{Name: name, Scopes: []access.Scope{access.ScopeAdmin}}, a)
				return err
			}},
		{"revoke", "token", token, "/access/tokens/:id/revoke", nil, w.tokens.Revoke},
	}
}

// TestEveryActOnAccessWritesItsRowOrDoesNothing does each act by each door, first while
// the trail cannot be written: then nothing may have happened, and no secret be told.
func TestEveryActOnAccessWritesItsRowOrDoesNothing(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	state := func() string {
		return w.text(`SELECT concat((SELECT string_agg(u::text, '|' ORDER BY id) FROM console_users AS u), (SELECT string_agg(k::text, '|' ORDER BY id) FROM api_tokens AS k),
			(SELECT count(*) FROM operator_actions))`)
	}
	for _, act := range w.accessActs() {
		doors := map[string]func(target string) (bool, string){
			"go": func(target string) (bool, string) {
				ctx, cancel := shortly()
				defer cancel()
				err := act.call(ctx, target, engine.Actor{Name: "program", Reason: "INC-204"})
				return err == nil, fmt.Sprint(err)
			},
			"console": func(target string) (bool, string) {
				form := url.Values{"reason": {"INC-204"}}
				for name, values := range act.form {
					form[name] = slices.Clone(values)
					if values[0] == ":name" {
						form.Set(name, target)
					}
				}
				got := w.submit(strings.NewReplacer(":name", target, ":id", target).Replace(act.console), form)
				return got.status < 400, fmt.Sprintf("%d %.300s", got.status, plainText(got.body))
			},
		}
		for door, do := range doors {
			target := act.target()
			w.exec("ALTER TABLE operator_action_head RENAME TO elsewhere")
			before := state()
			done, says := do(target)
			if done || strings.Contains(says, "rje_") {
				t.Errorf("%s %s by %s is answered as done without its row: %s", act.action, act.kind, door, says)
			}
			if after := state(); after != before {
				t.Errorf("%s %s by %s without its row changed\n%s\nto\n%s", act.action, act.kind, door, before, after)
			}
			w.exec("ALTER TABLE elsewhere RENAME TO operator_action_head")
			last := w.count("SELECT coalesce(max(id), 0) FROM operator_actions")
			if done, says := do(target); !done {
				t.Errorf("%s %s by %s: %s", act.action, act.kind, door, says)
				continue
			}
			actor := map[string]string{"go": "program", "console": "anonymous (no sign-in)"}[door]
			want := strings.Join([]string{actor, door, act.action, act.kind, "INC-204"}, " ")
			if got := w.text(`SELECT string_agg(concat_ws(' ', actor, source, action, target_kind, reason), '; ') FROM operator_actions WHERE id > $1`, last); got != want {
				t.Errorf("%s %s by %s left %q, want %q", act.action, act.kind, door, got, want)
			}
		}
	}
}

// TestTheActsOnAccessAreAllThatTheConsoleHas finds an unsafe route that the test above
// leaves out.
func TestTheActsOnAccessAreAllThatTheConsoleHas(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	routes := map[string]bool{}
	for _, act := range w.accessActs() {
		routes["/console"+act.console] = true
	}
	for _, r := range w.echo.Routes() {
		if strings.HasPrefix(r.Path, "/console/access") && r.Method == http.MethodPost && !routes[r.Path] {
			t.Errorf("POST %s is no act of accessActs", r.Path)
		}
	}
}
