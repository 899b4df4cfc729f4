package access_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

func TestSessionIsSharedByTwoServersAndEndsOnBoth(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleOperator)
	in := s.signIn(s.a, "Ann ")
	got, err := s.b.Session(s.ctx, in.Token)
	if err != nil || got.User != "ann" || got.Role != access.RoleOperator || got.UserAgent != "Browser/1" || got.Address != "192.0.2.7" || !reflect.DeepEqual(got, in.Session) {
		t.Fatalf("Session on the other server = %+v, %v, want %+v", got, err, in.Session)
	}
	if want := got.CreatedAt.Add(12 * time.Hour); !got.EndsAt.Equal(want) {
		t.Errorf("EndsAt = %v, want %v", got.EndsAt, want)
	}
	if err := s.b.SignOut(s.ctx, in.Token, cli); err != nil {
		t.Fatal(err)
	}
	if s.open(s.a, in.Token) || s.open(s.b, in.Token) {
		t.Error("the session is open after sign-out")
	}
	if err := s.a.SignOut(s.ctx, in.Token, cli); err != nil {
		t.Errorf("signing out twice: %v", err)
	}
}

func TestTokenIsRandomAndKeptAsItsHash(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	one, two := s.signIn(s.a, "ann"), s.signIn(s.a, "ann")
	raw, err := base64.RawURLEncoding.DecodeString(one.Token)
	if err != nil || len(raw) != 32 || one.Token == two.Token {
		t.Fatalf("tokens %q and %q, want 256 bits each", one.Token, two.Token)
	}
	var stored []byte
	if err := s.pool.QueryRow(s.ctx, "SELECT token_hash FROM console_sessions WHERE id = $1", one.ID).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(raw); !bytes.Equal(stored, want[:]) {
		t.Errorf("stored %x, want the token's SHA-256", stored)
	}
	stolen := base64.RawURLEncoding.EncodeToString(stored)
	for _, token := range []string{"", "x", stolen, one.Token + "A", strings.ToLower(one.Token), one.Token[:42] + "\n", strings.Repeat("A", 1<<20)} {
		if s.open(s.a, token) {
			t.Errorf("token %.60q opens a session", token)
		}
	}
}

func TestSessionEndsUnusedAndInTotal(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	in := s.signIn(s.a, "ann")
	shift := func(column, by string) {
		s.exec("UPDATE console_sessions SET "+column+" = "+column+" - $1::interval", by)
	}
	shift("used_at", "11 hours 59 minutes")
	if !s.open(s.a, in.Token) {
		t.Fatal("ended before 12 hours without use")
	}
	if err := s.a.Touch(s.ctx, in.Token); err != nil {
		t.Fatal(err)
	}
	shift("used_at", "11 hours 59 minutes")
	if !s.open(s.a, in.Token) {
		t.Fatal("a use did not put off the end")
	}
	shift("used_at", "2 minutes")
	if s.open(s.a, in.Token) {
		t.Error("open after 12 hours without use")
	}
	if err := s.a.Touch(s.ctx, in.Token); err != nil || s.open(s.a, in.Token) {
		t.Errorf("a use brought back an ended session (%v)", err)
	}

	again := s.signIn(s.a, "ann")
	s.exec("UPDATE console_sessions SET created_at = created_at - interval '6 days 23 hours', used_at = now() WHERE id = $1", again.ID)
	got, err := s.a.Session(s.ctx, again.Token)
	if err != nil || time.Until(got.EndsAt) > 61*time.Minute {
		t.Errorf("Session = %+v, %v, want one that ends within the hour", got, err)
	}
	s.exec("UPDATE console_sessions SET created_at = created_at - interval '61 minutes' WHERE id = $1", again.ID)
	if s.open(s.a, again.Token) {
		t.Error("open after 7 days")
	}
}

func TestTouchWritesAtMostOnceAMinute(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	in := s.signIn(s.a, "ann")
	version := func() (v string) {
		if err := s.pool.QueryRow(s.ctx, "SELECT xmin::text FROM console_sessions").Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := version()
	for range 5 {
		if err := s.a.Touch(s.ctx, in.Token); err != nil {
			t.Fatal(err)
		}
	}
	if version() != before {
		t.Error("a session used a moment ago was written")
	}
	s.exec("UPDATE console_sessions SET used_at = used_at - interval '61 seconds'")
	before = version()
	if err := s.a.Touch(s.ctx, in.Token); err != nil || version() == before {
		t.Errorf("a session used a minute ago was not written (%v)", err)
	}
}

func TestChangesOfAPersonEndTheirSessionsAtOnce(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleOperator)
	s.create("bob", access.RoleOperator)
	bob := s.signIn(s.a, "bob")
	for name, act := range map[string]func() error{
		"queues": func() error {
			return s.b.Edit(s.ctx, "ann", access.UserEdit{Queues: &[]string{"mail"}}, cli)
		},
		"role":       func() error { return s.b.Edit(s.ctx, "ann", access.UserEdit{Role: new(access.RoleViewer)}, cli) },
		"password":   func() error { return s.b.ResetPassword(s.ctx, "ANN", right, cli) },
		"revoke all": func() error { return s.b.RevokeAll(s.ctx, "ann", cli) },
		"disable":    func() error { return s.b.Disable(s.ctx, "ann", cli) },
	} {
		if err := s.a.Enable(s.ctx, "ann", cli); err != nil {
			t.Fatal(err)
		}
		one, two := s.signIn(s.a, "ann"), s.signIn(s.b, "ann")
		if err := act(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.open(s.a, one.Token) || s.open(s.a, two.Token) {
			t.Errorf("%s: a session is still open", name)
		}
	}
	if !s.open(s.a, bob.Token) {
		t.Error("another person's session ended too")
	}
}

func TestRevokeEndsOneSessionOfItsOwner(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	s.create("bob", access.RoleViewer)
	one, two := s.signIn(s.a, "ann"), s.signIn(s.a, "ann")
	if err := s.b.Revoke(s.ctx, "bob", one.ID, cli); !errors.Is(err, access.ErrNoSession) {
		t.Errorf("revoking ann's session as bob's: %v, want ErrNoSession", err)
	}
	if err := s.b.Revoke(s.ctx, "ann", one.ID, cli); err != nil {
		t.Fatal(err)
	}
	if s.open(s.a, one.Token) || !s.open(s.a, two.Token) {
		t.Error("want the one revoked and the other open")
	}
	list, err := s.a.Sessions(s.ctx, "ann")
	if err != nil || len(list) != 1 || list[0].ID != two.ID || list[0].UserAgent != "Browser/1" {
		t.Errorf("Sessions = %+v, %v", list, err)
	}
}

// Whoever guessed the old password is in the middle of signing in when it is reset.
func TestSignInUnderAnOldPasswordLeavesNoSession(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleAdmin)
	for round := range 4 {
		password := right + strings.Repeat("!", round)
		var thieves sync.WaitGroup
		for i := range 6 {
			on := []*access.Accounts{s.a, s.b}[i%2]
			thieves.Go(func() {
				for {
					if _, err := on.SignIn(s.ctx, try("ann", password)); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * 25 * time.Millisecond) // another moment of the sign-in in each round
		if err := s.b.ResetPassword(s.ctx, "ann", password+"!", cli); err != nil {
			t.Fatal(err)
		}
		thieves.Wait()
		if n := s.count("console_sessions"); n != 0 {
			t.Fatalf("round %d: %d sessions under the old password", round, n)
		}
		s.exec("DELETE FROM sign_in_tries")
	}
}

func TestPruneRemovesWhatHasEnded(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	live := s.signIn(s.a, "ann")
	s.exec(`INSERT INTO console_sessions (token_hash, user_id, created_at, used_at, user_agent, address)
		SELECT sha256(i::text::bytea), (SELECT id FROM console_users), now() - interval '1 day', now() - interval '13 hours', '', '' FROM generate_series(1, 6000) AS i`)
	s.exec(`INSERT INTO sign_in_tries SELECT 'name', i::text, 3, now() - interval '1 hour', now() FROM generate_series(1, 6000) AS i`)
	s.fails(s.a, try("nobody", wrong))
	for pass, want := range []int64{10000, 2000, 0} {
		if n, err := s.b.Prune(s.ctx); n != want || err != nil {
			t.Errorf("pass %d removed %d, %v, want %d", pass, n, err, want)
		}
	}
	if !s.open(s.a, live.Token) || s.count("sign_in_tries WHERE subject = '192.0.2.7'") != 1 {
		t.Error("what is in use was removed")
	}
}
