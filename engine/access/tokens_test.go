package access_test

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

func (s *stage) tokens() (a, b *access.Tokens) {
	s.t.Helper()
	return access.NewTokens(s.pool, nil), access.NewTokens(s.pool, nil)
}

func (s *stage) token(on *access.Tokens, spec access.TokenSpec) (secret string, made access.Token) {
	s.t.Helper()
	secret, made, err := on.Create(s.ctx, spec, cli)
	if err != nil {
		s.t.Fatalf("create token %s: %v", spec.Name, err)
	}
	return secret, made
}

// good tells whether a token lets its bearer in.
func (s *stage) good(on *access.Tokens, secret string) bool {
	s.t.Helper()
	_, err := on.Authenticate(s.ctx, secret)
	if err != nil && !errors.Is(err, access.ErrNoToken) {
		s.t.Fatalf("Authenticate: %v", err)
	}
	return err == nil
}

func TestATokenIsShownOnceAndStoredHashed(t *testing.T) {
	s := newStage(t)
	tokens, other := s.tokens()
	secret, made := s.token(tokens, access.TokenSpec{Name: "Mailer", Queues: []string{"sms", "mail", "sms"}, TTL: time.Hour,
		Scopes: []access.Scope{access.ScopeDLQWrite, access.ScopeJobsWrite, access.ScopeDLQWrite}})
	if !regexp.MustCompile(`^rje_[0-9A-Za-z]{40}$`).MatchString(secret) || secret[4:12] != made.ID {
		t.Errorf("token %q of id %q", secret, made.ID)
	}
	want := access.Token{ID: made.ID, Name: "mailer", Scopes: []access.Scope{access.ScopeJobsWrite, access.ScopeDLQWrite}, Queues: []string{"mail", "sms"},
		CreatedBy: cli.Name, CreatedAt: made.CreatedAt, ExpiresAt: made.CreatedAt.Add(time.Hour)}
	if d := cmp.Diff(want, made, cmpopts.EquateApproxTime(time.Millisecond)); d != "" {
		t.Errorf("made (-want +got):\n%s", d)
	}
	got, err := other.Authenticate(s.ctx, secret)
	if err != nil {
		t.Fatal(err)
	}
	if got.Left < 59*time.Minute || got.Left > time.Hour {
		t.Errorf("good for %s, want the rest of an hour", got.Left)
	}
	got.Left = 0
	if d := cmp.Diff(want, got, cmpopts.EquateApproxTime(time.Millisecond)); d != "" {
		t.Errorf("on another server (-want +got):\n%s", d)
	}
	list, err := tokens.List(s.ctx)
	if err != nil || len(list) != 1 || list[0].ID != made.ID || list[0].LastUsedAt.IsZero() {
		t.Fatalf("list %+v, %v", list, err)
	}
	if n := s.count("api_tokens AS t WHERE t::text LIKE '%' || $1 || '%'", secret[12:]) +
		s.count("operator_actions AS o WHERE o::text LIKE '%' || $1 || '%'", secret[12:]); n != 0 {
		t.Errorf("the secret stands in %d rows", n)
	}
}

func TestTokensThatAreNotLetIn(t *testing.T) {
	s := newStage(t)
	tokens, other := s.tokens()
	secret, made := s.token(tokens, access.TokenSpec{Name: "mailer", Scopes: []access.Scope{access.ScopeJobsRead}})
	if made.ExpiresAt != (time.Time{}) || made.Queues != nil || !s.good(other, secret) {
		t.Fatalf("made %+v, and not let in", made)
	}
	flipped := []byte(secret)
	flipped[20] ^= 1
	for name, bad := range map[string]string{
		"nothing": "", "the id alone": "rje_" + made.ID, "another letter": string(flipped), "cut short": secret[:43], "longer": secret + "A",
		"no prefix": secret[4:], "other case": strings.ToUpper(secret), "a space": secret + " ", "a wildcard": "rje_%", "NUL": secret[:43] + "\x00",
		"the hash": fmt.Sprintf("rje_%x", secret),
	} {
		if s.good(tokens, bad) {
			t.Errorf("%s is let in", name)
		}
	}
	s.exec("UPDATE api_tokens SET expires_at = now() - interval '1 ms'")
	if s.good(other, secret) {
		t.Error("an expired token is let in")
	}
	if list, err := tokens.List(s.ctx); err != nil || !list[0].Expired {
		t.Errorf("an expired token is listed as %+v, %v", list, err)
	}
	s.exec("UPDATE api_tokens SET expires_at = NULL")
	if err := tokens.Revoke(s.ctx, made.ID, cli); err != nil {
		t.Fatal(err)
	}
	if s.good(other, secret) {
		t.Error("a revoked token is let in")
	}
	s.pool.Close()
	if _, err := tokens.Authenticate(s.ctx, secret); err == nil || errors.Is(err, access.ErrNoToken) {
		t.Errorf("without a database: %v, want an error that is not ErrNoToken", err)
	}
}

func TestTokenRules(t *testing.T) {
	s := newStage(t)
	tokens, _ := s.tokens()
	read := []access.Scope{access.ScopeJobsRead}
	for what, c := range map[string]struct {
		spec  access.TokenSpec
		field string
	}{
		"no name":             {access.TokenSpec{Scopes: read}, "name"},
		"a name with a colon": {access.TokenSpec{Name: "token:x", Scopes: read}, "name"},
		"no scope":            {access.TokenSpec{Name: "x"}, "scope"},
		"an unknown scope":    {access.TokenSpec{Name: "x", Scopes: []access.Scope{"jobs:readwrite"}}, "scope"},
		"an odd queue":        {access.TokenSpec{Name: "x", Scopes: read, Queues: []string{"mail", "a b"}}, "queue"},
		"an empty queue":      {access.TokenSpec{Name: "x", Scopes: read, Queues: []string{""}}, "queue"},
		"many queues":         {access.TokenSpec{Name: "x", Scopes: read, Queues: make([]string, 101)}, "queue"},
		"expired at once":     {access.TokenSpec{Name: "x", Scopes: read, TTL: -time.Second}, "expiry"},
		"for ever and a day":  {access.TokenSpec{Name: "x", Scopes: read, TTL: 200 * 365 * 24 * time.Hour}, "expiry"},
	} {
		_, _, err := tokens.Create(s.ctx, c.spec, cli)
		var rule *access.RuleError
		if !errors.As(err, &rule) || rule.Field != c.field {
			t.Errorf("%s: %v, want the rule of %s", what, err, c.field)
		}
	}
	if n := s.count("api_tokens") + s.count("operator_actions"); n != 0 {
		t.Errorf("what was refused left %d rows", n)
	}
}

func TestTokenActsAreInTheTrail(t *testing.T) {
	s := newStage(t)
	tokens, other := s.tokens()
	why := cli
	why.Reason = "leaked"
	_, made := s.token(tokens, access.TokenSpec{Name: "mailer", Scopes: []access.Scope{access.ScopeJobsWrite}, Queues: []string{"mail"}})
	if _, _, err := other.Create(s.ctx, access.TokenSpec{Name: "MAILER", Scopes: []access.Scope{access.ScopeAdmin}}, cli); !errors.Is(err, access.ErrTokenExists) {
		t.Errorf("a second mailer: %v, want ErrTokenExists", err)
	}
	for range 2 {
		if err := other.Revoke(s.ctx, made.ID, why); err != nil {
			t.Fatal(err)
		}
	}
	if err := tokens.Revoke(s.ctx, "nothing0", why); !errors.Is(err, access.ErrTokenNotFound) {
		t.Errorf("revoke of nothing: %v, want ErrTokenNotFound", err)
	}
	_, again := s.token(tokens, access.TokenSpec{Name: "mailer", Scopes: []access.Scope{access.ScopeAdmin}})
	rows, err := s.pool.Query(s.ctx, `SELECT concat_ws(' ', actor, source, action, target_kind, target, reason, before, after) FROM operator_actions ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	want := []string{
		`root@host cli create token ` + made.ID + ` {"name": "mailer", "queues": ["mail"], "scopes": ["jobs:write"], "expires_at": null}`,
		`root@host cli revoke token ` + made.ID + ` leaked {"name": "mailer", "queues": ["mail"], "scopes": ["jobs:write"]}`,
		`root@host cli create token ` + again.ID + ` {"name": "mailer", "queues": null, "scopes": ["admin"], "expires_at": null}`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit trail (-want +got):\n%s", d)
	}
}

// A use is written once a minute at most, whoever asks, and never waits for the row.
func TestUseOfATokenIsNotedOnceAMinute(t *testing.T) {
	s := newStage(t)
	tokens, other := s.tokens()
	secret, _ := s.token(tokens, access.TokenSpec{Name: "mailer", Scopes: []access.Scope{access.ScopeJobsRead}})
	writes := func() int { return s.count("api_tokens AS t WHERE t.xmin::text <> (SELECT version FROM was)") }
	s.exec("CREATE TABLE was AS SELECT xmin::text AS version FROM api_tokens")
	if !s.good(tokens, secret) || writes() != 1 {
		t.Fatal("the first use was not written")
	}
	s.exec("UPDATE was SET version = (SELECT xmin::text FROM api_tokens)")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { s.good([]*access.Tokens{tokens, other}[i%2], secret) })
	}
	all.Wait()
	if writes() != 0 {
		t.Error("a use within the minute was written")
	}
	s.exec("UPDATE api_tokens SET last_used_at = now() - interval '61 s'")
	tx, err := s.pool.Begin(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(s.ctx) }()
	if _, err := tx.Exec(s.ctx, "SELECT 1 FROM api_tokens FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if !s.good(other, secret) || time.Since(began) > 900*time.Millisecond {
		t.Errorf("a use while the row is held took %s", time.Since(began))
	}
	if err := tx.Rollback(s.ctx); err != nil {
		t.Fatal(err)
	}
	if !s.good(other, secret) || s.count("api_tokens WHERE last_used_at > now() - interval '30 s'") != 1 {
		t.Error("a use after the minute was not written")
	}
	// A note that cannot be written keeps nobody out.
	s.exec("UPDATE api_tokens SET last_used_at = NULL")
	s.exec(`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$disk full$$; END'`)
	s.exec("CREATE TRIGGER no BEFORE UPDATE ON api_tokens FOR EACH ROW EXECUTE FUNCTION no()")
	if !s.good(tokens, secret) {
		t.Error("a token is kept out since its use cannot be noted")
	}
}

func TestWhatScopesAllow(t *testing.T) {
	t.Parallel()
	for scope, want := range map[access.Scope]string{
		"jobs:read": "jobs:read", "jobs:write": "jobs:read jobs:write", "queues:write": "jobs:read queues:write", "dlq:write": "jobs:read dlq:write",
		"admin": "jobs:read jobs:write queues:write dlq:write admin",
	} {
		var allowed []string
		for _, s := range access.Scopes() {
			if scope.Allows(s) {
				allowed = append(allowed, string(s))
			}
		}
		if got := strings.Join(allowed, " "); got != want {
			t.Errorf("%s allows %s, want %s", scope, got, want)
		}
	}
}

// Where the trail cannot be written, nothing is done: each act writes its row in its
// own transaction.
func TestNoActOnAccessWithoutItsRow(t *testing.T) {
	s := newStage(t)
	tokens, _ := s.tokens()
	s.create("ann", access.RoleOperator)
	in := s.signIn(s.a, "ann")
	_, made := s.token(tokens, access.TokenSpec{Name: "mailer", Scopes: []access.Scope{access.ScopeJobsRead}})
	state := func() (all string) {
		s.t.Helper()
		if err := s.pool.QueryRow(s.ctx, `SELECT concat((SELECT string_agg(u::text, '|' ORDER BY id) FROM console_users AS u),
			(SELECT string_agg(c::text, '|' ORDER BY id) FROM console_sessions AS c), (SELECT string_agg(k::text, '|' ORDER BY id) FROM api_tokens AS k),
			(SELECT count(*) FROM operator_actions))`).Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	s.exec("ALTER TABLE operator_action_head RENAME TO elsewhere")
	before := state()
	for name, act := range map[string]func() error{
		"create": func() error {
			_, err := s.a.Create(s.ctx, access.UserSpec{Name: "bob", Password: right, Role: access.RoleViewer}, cli)
			return err
		},
		"disable":         func() error { return s.a.Disable(s.ctx, "ann", cli) },
		"enable":          func() error { return s.a.Enable(s.ctx, "ann", cli) },
		"edit":            func() error { return s.a.Edit(s.ctx, "ann", access.UserEdit{Role: new(access.RoleAdmin)}, cli) },
		"reset password":  func() error { return s.a.ResetPassword(s.ctx, "ann", right, cli) },
		"revoke session":  func() error { return s.a.Revoke(s.ctx, "ann", in.ID, cli) },
		"revoke sessions": func() error { return s.a.RevokeAll(s.ctx, "ann", cli) },
		"revoke others":   func() error { _, err := s.a.RevokeOthers(s.ctx, in.Token, cli); return err },
		"change password": func() error { return s.a.ChangePassword(s.ctx, try("ann", right), right+"!", cli) },
		"sign out":        func() error { return s.a.SignOut(s.ctx, in.Token, cli) },
		"sign in":         func() error { _, err := s.a.SignIn(s.ctx, try("ann", right)); return err },
		"create token": func() error {
			_, _, err := tokens.Create(s.ctx, access.TokenSpec{Name: "two", Scopes: []access.Scope{access.ScopeAdmin}}, cli)
			return err
		},
		"revoke token": func() error { return tokens.Revoke(s.ctx, made.ID, cli) },
	} {
		if err := act(); err == nil {
			t.Errorf("%s is done without its row in the trail", name)
		}
		if after := state(); after != before {
			t.Errorf("%s has changed\n%s\nto\n%s", name, before, after)
			before = after
		}
	}
}

// Each method that takes an actor is an act, and TestNoActOnAccessWithoutItsRow tries it.
func TestTheActsOnAccessAreAllThereAre(t *testing.T) {
	t.Parallel()
	tried := []string{"Create", "Disable", "Enable", "Edit", "ResetPassword", "ChangePassword", "Revoke", "RevokeAll", "RevokeOthers", "SignOut", "Tokens.Create", "Tokens.Revoke"}
	for prefix, kind := range map[string]reflect.Type{"": reflect.TypeFor[*access.Accounts](), "Tokens.": reflect.TypeFor[*access.Tokens]()} {
		for m := range kind.Methods() {
			for in := range m.Type.Ins() {
				if in == reflect.TypeFor[engine.Actor]() && !slices.Contains(tried, prefix+m.Name) {
					t.Errorf("%s of %s is an act that no test tries without its row", m.Name, kind)
				}
			}
		}
	}
}
