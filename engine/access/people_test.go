package access_test

import (
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

func (s *stage) edit(on *access.Accounts, name string, e access.UserEdit) error {
	s.t.Helper()
	return on.Edit(s.ctx, name, e, cli)
}

func (s *stage) user(name string) access.User {
	s.t.Helper()
	u, err := s.a.User(s.ctx, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

func TestQueuesLimitAPersonFromTheNextSessionOn(t *testing.T) {
	s := newStage(t)
	made, err := s.a.Create(s.ctx, access.UserSpec{Name: "Ann", Password: right, Role: access.RoleOperator, Queues: []string{"sms", "mail", "sms"}}, cli)
	if want := []string{"mail", "sms"}; err != nil || !reflect.DeepEqual(made.Queues, want) || !reflect.DeepEqual(s.signIn(s.a, "ann").Queues, want) {
		t.Fatalf("Create = %+v, %v, want queues %v, in the session too", made, err, want)
	}
	if err := s.edit(s.b, "ann", access.UserEdit{Queues: &[]string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	in := s.signIn(s.b, "ann")
	if got, err := s.a.Session(s.ctx, in.Token); err != nil || !reflect.DeepEqual(got.Queues, []string{"billing"}) {
		t.Errorf("Session = %+v, %v", got, err)
	}
	if err := s.edit(s.a, "ann", access.UserEdit{Queues: &[]string{}, Role: new(access.RoleViewer)}); err != nil {
		t.Fatal(err)
	}
	if u := s.user("ANN"); u.Queues != nil || u.Role != access.RoleViewer || u.Version != 3 {
		t.Errorf("User = %+v, want a viewer of every queue", u)
	}
	if s.count(`operator_actions WHERE action = 'edit' AND before @> '{"queues": ["billing"], "role": "operator"}' AND after @> '{"queues": null, "role": "viewer"}'`) != 1 {
		t.Error("the trail does not tell what was before and after")
	}
	for _, queues := range [][]string{{"a queue"}, {""}, make([]string, 101)} {
		if err := s.edit(s.a, "ann", access.UserEdit{Queues: &queues}); !isRule(err, "queue") {
			t.Errorf("Edit to queues %q: %v", queues, err)
		}
		if _, err := s.a.Create(s.ctx, access.UserSpec{Name: "bob", Password: right, Role: access.RoleViewer, Queues: queues}, cli); !isRule(err, "queue") {
			t.Errorf("Create with queues %q: %v", queues, err)
		}
	}
}

func TestTheLastAdminStays(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleAdmin)
	s.create("bob", access.RoleOperator)
	s.create("gone", access.RoleAdmin)
	s.create("narrow", access.RoleAdmin)
	for _, err := range []error{s.a.Disable(s.ctx, "gone", cli), s.edit(s.a, "narrow", access.UserEdit{Queues: &[]string{"mail"}})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	in := s.signIn(s.a, "ann")
	for what, err := range map[string]error{
		"disable": s.a.Disable(s.ctx, "ANN", cli), "role": s.edit(s.a, "ann", access.UserEdit{Role: new(access.RoleOperator)}),
		"queues": s.edit(s.a, "ann", access.UserEdit{Queues: &[]string{"mail"}}),
	} {
		if !errors.Is(err, access.ErrLastAdmin) {
			t.Errorf("%s of the last admin = %v, want ErrLastAdmin", what, err)
		}
	}
	if u := s.user("ann"); u.Version != 1 || u.Role != access.RoleAdmin || !u.DisabledAt.IsZero() || !s.open(s.b, in.Token) {
		t.Errorf("a refused act has changed %+v", u)
	}
	for _, err := range []error{s.edit(s.a, "ann", access.UserEdit{Role: new(access.RoleAdmin)}), s.a.ResetPassword(s.ctx, "ann", right, cli),
		s.edit(s.a, "bob", access.UserEdit{Role: new(access.RoleAdmin)}), s.a.Disable(s.ctx, "ann", cli)} {
		if err != nil {
			t.Error(err)
		}
	}
}

// Two admins take the right from each other, on two servers at once: one of them is
// told that the other is the last.
func TestTwoAdminsCannotTakeEachOtherAway(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleAdmin)
	s.create("bob", access.RoleAdmin)
	for range 15 {
		var both sync.WaitGroup
		errs := make([]error, 2)
		both.Go(func() { errs[0] = s.edit(s.a, "ann", access.UserEdit{Role: new(access.RoleViewer)}) })
		both.Go(func() { errs[1] = s.b.Disable(s.ctx, "bob", cli) })
		both.Wait()
		if s.count("console_users WHERE role = 'admin' AND disabled_at IS NULL") != 1 || (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("both = %v: want one done, one refused, one admin left", errs)
		}
		for _, err := range errs {
			if err != nil && !errors.Is(err, access.ErrLastAdmin) {
				t.Fatal(err)
			}
		}
		if err := errors.Join(s.edit(s.a, "ann", access.UserEdit{Role: new(access.RoleAdmin)}), s.a.Enable(s.ctx, "bob", cli)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnActOnWhatHasChangedSinceIsRefused(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	in := s.signIn(s.a, "ann")
	seen := cli
	seen.Version = 2
	for what, err := range map[string]error{
		"edit": s.a.Edit(s.ctx, "ann", access.UserEdit{Role: new(access.RoleAdmin)}, seen), "disable": s.a.Disable(s.ctx, "ann", seen), "enable": s.a.Enable(s.ctx, "ann", seen),
		"password": s.a.ResetPassword(s.ctx, "ann", right+"!", seen), "sessions": s.a.RevokeAll(s.ctx, "ann", seen),
	} {
		if !errors.Is(err, access.ErrUserChanged) {
			t.Errorf("%s = %v, want ErrUserChanged", what, err)
		}
	}
	if s.user("ann").Version != 1 || !s.open(s.a, in.Token) || s.count("operator_actions WHERE action <> 'create' AND action <> 'sign_in'") != 0 {
		t.Error("a refused act has left something")
	}
	seen.Version = 1
	if err := s.a.Disable(s.ctx, "ann", seen); err != nil {
		t.Error(err)
	}
}

func TestAPersonChangesTheirOwnPassword(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	in := s.signIn(s.a, "ann")
	if err := s.b.ChangePassword(s.ctx, try("ann", wrong), right+"!", cli); !errors.Is(err, access.ErrBadCredentials) || !s.open(s.a, in.Token) {
		t.Errorf("with a wrong password = %v", err)
	}
	if err := s.b.ChangePassword(s.ctx, try("ann", right), "short", cli); !isRule(err, "password") {
		t.Errorf("to a short one = %v", err)
	}
	if err := s.b.ChangePassword(s.ctx, try("Ann", right), right+"!", cli); err != nil || s.open(s.a, in.Token) {
		t.Fatalf("ChangePassword = %v, and the sessions end", err)
	}
	s.fails(s.a, try("ann", right))
	if _, err := s.a.SignIn(s.ctx, try("ann", right+"!")); err != nil {
		t.Errorf("sign in with the new password: %v", err)
	}
	// Guesses are counted with those at the door.
	for range 4 {
		_ = s.a.ChangePassword(s.ctx, try("ann", wrong), right, cli)
	}
	var throttled *access.ThrottledError
	if err := s.a.ChangePassword(s.ctx, try("ann", wrong), right, cli); !errors.As(err, &throttled) {
		t.Errorf("after five guesses = %v, want a wait", err)
	}
}

func TestOthersEndAndOnesOwnSessionStays(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	s.create("bob", access.RoleViewer)
	one, two, three, bob := s.signIn(s.a, "ann"), s.signIn(s.a, "ann"), s.signIn(s.b, "ann"), s.signIn(s.a, "bob")
	if n, err := s.b.RevokeOthers(s.ctx, two.Token, cli); n != 2 || err != nil {
		t.Fatalf("RevokeOthers = %d, %v", n, err)
	}
	if s.open(s.a, one.Token) || s.open(s.a, three.Token) || !s.open(s.a, two.Token) || !s.open(s.a, bob.Token) {
		t.Error("want ann's one session and bob's open, no other")
	}
	if _, err := s.a.RevokeOthers(s.ctx, one.Token, cli); !errors.Is(err, access.ErrNoSession) {
		t.Errorf("by a session that has ended = %v", err)
	}
}
