package access_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

func TestFirstAdminIsMadeOnceByTwoServers(t *testing.T) {
	s := newStage(t)
	var made atomic.Int32
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			yes, err := []*access.Accounts{s.a, s.b}[i%2].Bootstrap(s.ctx, right)
			if err != nil {
				t.Errorf("Bootstrap: %v", err)
			}
			if yes {
				made.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 || s.count("console_users WHERE name = 'admin' AND role = 'admin'") != 1 || s.count("operator_actions") != 1 {
		t.Fatalf("made %d times, %d users, %d audit rows", made.Load(), s.count("console_users"), s.count("operator_actions"))
	}
	s.signIn(s.a, "admin")
	if yes, err := s.b.Bootstrap(s.ctx, "another long password"); yes || err != nil {
		t.Errorf("Bootstrap with users = %v, %v", yes, err)
	}
	s.signIn(s.b, "admin")
}

func TestFirstAdminIsMadeInAnEmptyInstallationOnly(t *testing.T) {
	s := newStage(t)
	if _, err := s.a.Bootstrap(s.ctx, "short"); !isRule(err, "password") {
		t.Errorf("a short password: %v", err)
	}
	tx, err := s.pool.Begin(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(s.ctx)
	if _, err := tx.Exec(s.ctx, "INSERT INTO console_users (name, password_hash, role) VALUES ('ann', 'x', 'viewer')"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan bool, 1)
	go func() {
		yes, err := s.b.Bootstrap(s.ctx, right)
		if err != nil {
			t.Errorf("Bootstrap: %v", err)
		}
		answer <- yes
	}()
	s.waitUntil("pg_locks WHERE NOT granted AND relation = 'console_users'::regclass")
	if err := tx.Commit(s.ctx); err != nil {
		t.Fatal(err)
	}
	if <-answer || s.count("console_users") != 1 {
		t.Error("the first admin was made beside a user who was being made")
	}
	if err := s.a.Disable(s.ctx, "ann", cli); err != nil {
		t.Fatal(err)
	}
	if yes, err := s.b.Bootstrap(s.ctx, right); yes || err != nil {
		t.Errorf("Bootstrap beside a disabled user = %v, %v", yes, err)
	}
}

// waitUntil waits until FROM's rows are there.
func (s *stage) waitUntil(from string) {
	s.t.Helper()
	for until := time.Now().Add(20 * time.Second); s.count(from) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			s.t.Fatalf("no row of %s within 20 s", from)
		}
	}
}

func isRule(err error, field string) bool {
	var rule *access.RuleError
	return errors.As(err, &rule) && rule.Field == field
}

func TestRefusedAccountsLeaveNothing(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	for _, c := range []struct {
		name, password string
		role           access.Role
		want           func(error) bool
	}{
		{"Ann", right, access.RoleViewer, func(err error) bool { return errors.Is(err, access.ErrUserExists) }},
		{"a b", right, access.RoleViewer, func(err error) bool { return isRule(err, "name") }},
		{"bob", "short", access.RoleViewer, func(err error) bool { return isRule(err, "password") }},
		{"bob", right, "root", func(err error) bool { return isRule(err, "role") }},
		{"bob", right, "", func(err error) bool { return isRule(err, "role") }},
	} {
		if _, err := s.a.Create(s.ctx, access.UserSpec{Name: c.name, Password: c.password, Role: c.role}, cli); !c.want(err) {
			t.Errorf("Create(%q, %q, %q) = %v", c.name, c.password, c.role, err)
		}
	}
	for act, err := range map[string]error{"disable": s.a.Disable(s.ctx, "bob", cli), "role": s.a.Edit(s.ctx, "bob", access.UserEdit{Role: new(access.RoleAdmin)}, cli),
		"password": s.a.ResetPassword(s.ctx, "bob", right, cli), "revoke": s.a.RevokeAll(s.ctx, "bob", cli)} {
		if !errors.Is(err, access.ErrUserNotFound) {
			t.Errorf("%s of nobody = %v, want ErrUserNotFound", act, err)
		}
	}
	if err := s.a.ResetPassword(s.ctx, "ann", "short", cli); !isRule(err, "password") {
		t.Errorf("a short new password: %v", err)
	}
	if users, actions := s.count("console_users"), s.count("operator_actions"); users != 1 || actions != 1 {
		t.Errorf("%d users and %d audit rows, want 1 and 1", users, actions)
	}
}

func TestListShowsWhoMaySignIn(t *testing.T) {
	s := newStage(t)
	if yes, err := s.a.HasUsers(s.ctx); yes || err != nil {
		t.Errorf("HasUsers of none = %v, %v", yes, err)
	}
	s.create("bob", access.RoleOperator)
	s.create("ann", access.RoleViewer)
	s.signIn(s.a, "ann")
	s.signIn(s.a, "ann")
	if err := s.a.Disable(s.ctx, "bob", cli); err != nil {
		t.Fatal(err)
	}
	users, err := s.b.List(s.ctx)
	if err != nil || len(users) != 2 {
		t.Fatalf("List = %+v, %v", users, err)
	}
	ann, bob := users[0], users[1]
	if ann.Name != "ann" || ann.Role != access.RoleViewer || ann.Sessions != 2 || ann.SignedInAt.IsZero() || !ann.DisabledAt.IsZero() ||
		bob.Name != "bob" || bob.DisabledAt.IsZero() || !bob.SignedInAt.IsZero() || bob.Sessions != 0 {
		t.Errorf("List = %+v", users)
	}
	if yes, err := s.b.HasUsers(s.ctx); !yes || err != nil {
		t.Errorf("HasUsers = %v, %v", yes, err)
	}
}

func TestEveryActStandsInTheAuditTrail(t *testing.T) {
	s := newStage(t)
	by := cli
	by.Reason = "left the team"
	s.create("ann", access.RoleOperator)
	in := s.signIn(s.a, "ann")
	two := s.signIn(s.a, "ann")
	for _, err := range []error{s.a.Revoke(s.ctx, "ann", two.ID, by), s.a.SignOut(s.ctx, in.Token, cli), s.a.Edit(s.ctx, "ann", access.UserEdit{Role: new(access.RoleViewer)}, by),
		s.a.ResetPassword(s.ctx, "ann", right+"!", by)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.exec("DELETE FROM sign_in_tries")
	for i, name := range []string{"ann", "ann", "ann", "ann", "ann", "my secret password", "my secret password"} {
		s.waitOver()
		s.fails(s.a, access.Try{Name: name, Password: wrong, Address: "192.0.2.9", RequestID: fmt.Sprint("req-", i)})
	}
	if _, err := s.a.SignIn(s.ctx, access.Try{Name: "ann", Password: wrong, Address: "192.0.2.9"}); err == nil {
		t.Fatal("signed in")
	}
	if err := s.a.Disable(s.ctx, "ann", by); err != nil {
		t.Fatal(err)
	}
	rows, err := s.pool.Query(s.ctx, `SELECT concat_ws(' ', actor, source, action, target_kind, target, reason, before, after, request_id, address) FROM operator_actions ORDER BY id`)
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
		`root@host cli create user ann {"role": "operator"}`,
		fmt.Sprintf(`ann console sign_in user ann {"session": %d} 192.0.2.7`, in.ID),
		fmt.Sprintf(`ann console sign_in user ann {"session": %d} 192.0.2.7`, two.ID),
		fmt.Sprintf(`root@host cli revoke_session user ann left the team {"session": %d}`, two.ID),
		fmt.Sprintf(`ann cli sign_out user ann {"session": %d}`, in.ID),
		`root@host cli edit user ann left the team {"role": "operator"} {"role": "viewer", "sessions_ended": 0}`,
		`root@host cli reset_password user ann left the team {} {"sessions_ended": 0}`,
		`anonymous console sign_in_refused user ann {"failures": 5} req-4 192.0.2.9`,
		`anonymous console sign_in_refused user unknown name {"failures": 6} req-5 192.0.2.9`,
		`anonymous console sign_in_refused user unknown name {"failures": 7} req-6 192.0.2.9`,
		`root@host cli disable user ann left the team {"disabled": false} {"disabled": true, "sessions_ended": 0}`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit trail (-want +got):\n%s", d)
	}
	if n := s.count("sign_in_tries WHERE subject LIKE '%secret%'") + s.count("operator_actions AS o WHERE o::text LIKE '%secret%'"); n != 0 {
		t.Errorf("what was typed into the name's field is kept in %d rows", n)
	}
}

// Two admins change one person at the same time: each change counts.
func TestChangesAtOnceAllRaiseTheGeneration(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	s.create("bob", access.RoleAdmin)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := []*access.Accounts{s.a, s.b}[i%2].Edit(s.ctx, "ann", access.UserEdit{Role: new(access.Roles()[i%3])}, cli); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s.count("console_users WHERE generation = 21") != 1 {
		t.Error("a change was lost")
	}
}
