package access_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

func TestFiveTriesAndThenAGrowingWaitOnEveryServer(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	for _, name := range []string{"ann", "nobody"} { // one behaves like the other
		from := func(i int) access.Try {
			return access.Try{Name: name, Password: wrong, Address: fmt.Sprintf("192.0.2.%d", i)}
		}
		for i := range 5 {
			s.fails([]*access.Accounts{s.a, s.b}[i%2], from(i))
		}
		for i, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			wait := s.mustWait(s.b, from(100+i)).Seconds()
			if wait > float64(want) || wait < float64(want)-1 {
				t.Errorf("%s: wait %d = %.1f s, want %d s", name, i, wait, want)
			}
			right := from(200)
			right.Password = "correct horse battery"
			s.mustWait(s.a, right)
			s.waitOver()
			s.fails(s.a, from(100+i))
		}
	}
	s.waitOver()
	s.signIn(s.a, "ann")
	s.fails(s.a, try("ann", wrong))
	if _, err := s.b.SignIn(s.ctx, try("ann", right)); err != nil {
		t.Errorf("after a success the name must begin anew: %v", err)
	}
}

func TestTriesFromOneAddressCountTogether(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	s.create("mallory", access.RoleViewer)
	at := func(name, password, address string) access.Try {
		return access.Try{Name: name, Password: password, Address: address}
	}
	for i := range 4 {
		s.fails(s.a, at(fmt.Sprintf("guess%d", i), wrong, fmt.Sprintf("2001:db8::%d", i)))
	}
	// An account of one's own must not wipe the count.
	if _, err := s.b.SignIn(s.ctx, at("mallory", right, "2001:db8::f:1")); err != nil {
		t.Fatal(err)
	}
	s.fails(s.a, at("guess4", wrong, "2001:db8::99"))
	s.mustWait(s.b, at("ann", right, "2001:db8::abcd"))
	if _, err := s.b.SignIn(s.ctx, at("ann", right, "2001:db8:0:1::1")); err != nil {
		t.Errorf("another network has to wait too: %v", err)
	}
	s.exec("UPDATE sign_in_tries SET last_at = last_at - interval '16 minutes', blocked_until = blocked_until - interval '16 minutes'")
	s.fails(s.a, at("guess5", wrong, "2001:db8::99"))
	if _, err := s.b.SignIn(s.ctx, at("ann", right, "2001:db8::99")); err != nil {
		t.Errorf("old tries are not forgotten: %v", err)
	}
}

// Ways to write a name must not give five more tries each.
func TestOneNameWrittenInManyWaysIsOneName(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	for i, name := range []string{"ann", "ANN", " ann", "ann\t", "Ann"} {
		s.fails(s.a, access.Try{Name: name, Password: wrong, Address: fmt.Sprintf("192.0.2.%d", i)})
	}
	s.mustWait(s.a, access.Try{Name: "ann", Password: wrong, Address: "192.0.2.77"})
	for _, name := range []string{"an\x00n", "an\u200bn", "ann\xff", "ａｎｎ", "", strings.Repeat("ann", 1000)} {
		s.fails(s.a, access.Try{Name: name, Password: right, Address: "192.0.2.78"})
		s.exec("DELETE FROM sign_in_tries WHERE kind = 'address'")
	}
}

// The count comes before the look at the password: many at once gain no guesses at a
// name, and from an address as many as are hashed at once.
func TestManyTriesAtOnceGainNothing(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	for what, tries := range map[string]struct {
		of   func(i int) access.Try
		most int32
	}{
		"name": {func(i int) access.Try {
			return access.Try{Name: "ann", Password: wrong, Address: fmt.Sprintf("192.0.2.%d", i)}
		}, 5},
		"address": {func(i int) access.Try {
			return access.Try{Name: fmt.Sprint("guess", i), Password: wrong, Address: "198.51.100.1"}
		}, 5 + 3},
	} {
		var looked, told atomic.Int32
		var all sync.WaitGroup
		began := time.Now()
		for i := range 40 {
			all.Go(func() {
				_, err := []*access.Accounts{s.a, s.b}[i%2].SignIn(s.ctx, tries.of(i))
				var throttled *access.ThrottledError
				switch {
				case errors.Is(err, access.ErrBadCredentials):
					looked.Add(1)
				case errors.As(err, &throttled):
					told.Add(1)
				default:
					t.Errorf("SignIn = %v", err)
				}
			})
		}
		all.Wait()
		later := int32(math.Log2(time.Since(began).Seconds() + 1)) // those whose wait was over by then
		if n := looked.Load(); n < 5 || n > tries.most+later || n+told.Load() != 40 {
			t.Errorf("%s: %d passwords looked at, %d told to wait; want at most %d looked at", what, n, told.Load(), tries.most+later)
		}
	}
}

// The least of several times is what the work takes; what comes on top is the machine's.
func TestUnknownNamesTakeAsLongAsWrongPasswords(t *testing.T) {
	s := newQuietStage(t)
	s.create("ann", access.RoleViewer)
	s.create("bob", access.RoleViewer)
	if err := s.a.Disable(s.ctx, "bob", cli); err != nil {
		t.Fatal(err)
	}
	tries := map[string]access.Try{"known": try("ann", wrong), "unknown": try("nobody", wrong), "disabled": try("bob", right), "no name": try("<>", wrong),
		"long": try("ann", strings.Repeat("x", 4096))}
	least := map[string]time.Duration{}
	differs := func() (complaint string) {
		for name, took := range least {
			if ratio := float64(took) / float64(least["known"]); ratio < 0.6 || ratio > 1.7 {
				complaint += fmt.Sprintf("%s takes %v, a wrong password %v\n", name, took, least["known"])
			}
		}
		return complaint
	}
	for round := 0; round < 6 || round < 60 && differs() != ""; round++ { // a busy machine needs more rounds
		for name, tr := range tries {
			s.exec("DELETE FROM sign_in_tries")
			began := time.Now()
			s.fails(s.a, tr)
			if took := time.Since(began); least[name] == 0 || took < least[name] {
				least[name] = took
			}
		}
	}
	if complaint := differs(); complaint != "" {
		t.Error(complaint)
	}
}

func TestManySignInsTakeBoundedMemory(t *testing.T) {
	s := newQuietStage(t)
	s.create("user0", access.RoleViewer)
	s.exec(`INSERT INTO console_users (name, password_hash, role) SELECT 'user' || i, password_hash, role FROM console_users, generate_series(1, 63) AS i`)
	peak, done := make(chan uint64), make(chan struct{})
	go func() {
		var m runtime.MemStats
		most := uint64(0)
		for {
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if _, err := s.a.SignIn(s.ctx, try(fmt.Sprintf("user%d", i), right)); err != nil {
				t.Errorf("user%d: %v", i, err)
			}
		})
	}
	all.Wait()
	close(done)
	// All at once they would take 1.2 GiB; two at a time take 38 MiB and what is not
	// collected yet.
	if most := <-peak; most > 200<<20 {
		t.Errorf("the heap grew to %d MiB", most>>20)
	}
	if n := s.count("console_sessions"); n != 64 {
		t.Errorf("%d sessions, want 64", n)
	}
}

func TestOldParametersAreRaisedAtSignIn(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	before := s.signIn(s.a, "ann")
	salt := []byte("0123456789abcdef")
	old := fmt.Sprintf("$argon2id$v=19$m=8192,t=1,p=2$%s$%s", base64.RawStdEncoding.EncodeToString(salt),
		base64.RawStdEncoding.EncodeToString(argon2.IDKey([]byte(right), salt, 1, 8192, 2, 32)))
	s.exec("UPDATE console_users SET password_hash = $1", old)
	stored := func() (h string) {
		if err := s.pool.QueryRow(s.ctx, "SELECT password_hash FROM console_users").Scan(&h); err != nil {
			t.Fatal(err)
		}
		return h
	}
	s.fails(s.a, try("ann", wrong))
	if stored() != old {
		t.Error("a wrong password changed the hash")
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := s.b.SignIn(s.ctx, try("ann", right)); err != nil {
				t.Errorf("sign in under the old hash: %v", err)
			}
		})
	}
	all.Wait()
	if h := stored(); !strings.HasPrefix(h, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("hash after signing in = %s", h)
	}
	if !s.open(s.a, before.Token) {
		t.Error("raising the parameters ended a session")
	}
	s.signIn(s.a, "ann")
}

// A token known to somebody before the sign-in opens nothing after it.
func TestSessionIsNewAtSignIn(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	s.create("mallory", access.RoleViewer)
	planted := s.signIn(s.a, "mallory")
	for _, old := range []string{planted.Token, strings.Repeat("A", 43), "", "x"} {
		tr := try("ann", right)
		tr.OldToken = old
		in, err := s.a.SignIn(s.ctx, tr)
		if err != nil || in.Token == old || in.User != "ann" {
			t.Fatalf("SignIn = %+v, %v", in, err)
		}
		if s.open(s.a, old) {
			t.Errorf("the old token %q opens a session", old)
		}
	}
	again := s.signIn(s.a, "ann")
	bad := try("ann", wrong)
	bad.OldToken = again.Token
	s.fails(s.a, bad)
	if !s.open(s.a, again.Token) {
		t.Error("a failed sign-in ended the session")
	}
}

func TestHashThatCannotBeReadIsAnError(t *testing.T) {
	s := newStage(t)
	s.create("ann", access.RoleViewer)
	s.exec("UPDATE console_users SET password_hash = '$argon2id$v=19$m=4194304,t=2,p=1$c2FsdHNhbHQ$a2V5'")
	_, err := s.a.SignIn(s.ctx, try("ann", right))
	if err == nil || errors.Is(err, access.ErrBadCredentials) || !strings.Contains(err.Error(), "sign in user ann") {
		t.Errorf("SignIn = %v", err)
	}
}

func TestWaitsGrowWithoutEnd(t *testing.T) {
	s := newStage(t)
	for _, n := range []int{0, 4, 5, 6, 14, 1000, math.MaxInt32} {
		var seconds float64
		if err := s.pool.QueryRow(s.ctx, "SELECT extract(epoch FROM sign_in_wait($1))::float8", n).Scan(&seconds); err != nil {
			t.Fatalf("sign_in_wait(%d): %v", n, err)
		}
		want := 0.0
		if n >= 5 {
			want = min(math.Pow(2, float64(min(n, 60)-5)), 300)
		}
		if seconds != want {
			t.Errorf("sign_in_wait(%d) = %v, want %v", n, seconds, want)
		}
	}
}
