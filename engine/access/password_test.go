package access

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

func TestPasswordRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		password string
		ok       bool
	}{
		{"", false}, {"eleven-char", false}, {"twelve-chars", true}, {"aaaaaaaaaaaa", true}, {"élèveélèveél", true}, {"            ", true},
		{strings.Repeat("x", 1024), true}, {strings.Repeat("x", 1025), false}, {"grace.hopper@example", false}, {"Grace.Hopper@EXAMPLE ", false},
		{"twelve-chars\xff", false},
	} {
		err := CheckPassword("grace.hopper@example", c.password)
		var rule *RuleError
		if ok := err == nil; ok != c.ok || !ok && !errors.As(err, &rule) {
			t.Errorf("CheckPassword(%q) = %v, want ok %v", c.password, err, c.ok)
		}
		if err != nil && len(c.password) > 4 && strings.Contains(err.Error(), c.password) {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

func TestNameRules(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"ann": "ann", " Ann ": "ann", "ann.b@example.com": "ann.b@example.com", "7of9": "7of9",
		"": "", "a b": "", ".ann": "", "-rf": "", "ann\n": "ann", "an\x00n": "", "ann/b": "", "<b>": "", "system": "", "Bootstrap": "", "änn": "",
		strings.Repeat("a", 64): strings.Repeat("a", 64), strings.Repeat("a", 65): ""} {
		got, err := CheckName(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("CheckName(%q) = %q, %v, want %q", given, got, err, want)
		}
	}
}

func TestHashHoldsItsParameters(t *testing.T) {
	t.Parallel()
	h := newHash("correct horse battery")
	s := h.String()
	if !strings.HasPrefix(s, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("hash = %s", s)
	}
	back, err := parseHash(s)
	if err != nil {
		t.Fatal(err)
	}
	if !back.matches("correct horse battery") || back.matches("correct horse batterz") || back.matches("") {
		t.Error("the parsed hash does not tell the password apart")
	}
	if again := newHash("correct horse battery"); again.String() == s {
		t.Error("two hashes of one password are equal: the salt is missing")
	}
	if nobody().matches("correct horse battery") {
		t.Error("nobody's hash fits a password")
	}
	composed, apart := newHash("caf\u00e9 caf\u00e9 caf\u00e9"), "cafe\u0301 cafe\u0301 cafe\u0301"
	if !composed.matches(apart) {
		t.Error("the same word in other bytes does not match")
	}
}

// A row that somebody tampered with must not cost the server its memory.
func TestBadHashesAreRefused(t *testing.T) {
	t.Parallel()
	good := newHash("correct horse battery").String()
	tail := good[strings.LastIndex(good[:strings.LastIndex(good, "$")], "$"):]
	for _, s := range []string{"", "$", "plain", strings.Replace(good, "argon2id", "argon2i", 1), strings.Replace(good, "v=19", "v=16", 1),
		"$argon2id$v=19$m=4194304,t=2,p=1" + tail, "$argon2id$v=19$m=19456,t=0,p=1" + tail, "$argon2id$v=19$m=19456,t=99,p=1" + tail,
		"$argon2id$v=19$m=19456,t=2,p=0" + tail, "$argon2id$v=19$m=19456,t=2,p=200" + tail, "$argon2id$v=19$m=0,t=2,p=1" + tail,
		"$argon2id$v=19$m=-1,t=2,p=1" + tail, "$argon2id$v=19$m=19456" + tail, good + "$x", good[:len(good)-4], "$argon2id$v=19$m=19456,t=2,p=1$$"} {
		if _, err := parseHash(s); !errors.Is(err, errBadHash) {
			t.Errorf("parseHash(%q) = %v, want errBadHash", s, err)
		}
	}
}

func TestMoreThanMayWaitAreSentAway(t *testing.T) {
	t.Parallel()
	a := New(Config{Pool: dbtest.New(t), Hashing: 1})
	leave, err := a.hash.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, maxWaiting)
	for range maxWaiting {
		go func() {
			_, err := a.hash.enter(ctx)
			left <- err
		}()
	}
	for until := time.Now().Add(10 * time.Second); a.hash.waiting.Load() < maxWaiting; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d wait, want %d", a.hash.waiting.Load(), maxWaiting)
		}
	}
	var throttled *ThrottledError
	if _, err := a.SignIn(t.Context(), Try{Name: "ann", Password: "correct horse battery"}); !errors.As(err, &throttled) || throttled.Wait != time.Second {
		t.Errorf("SignIn beyond those who may wait = %v, want a wait of 1 s", err)
	}
	cancel()
	for range maxWaiting {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("enter = %v, want the context's error", err)
		}
	}
	leave()
	if _, err := a.hash.make(t.Context(), "correct horse battery"); err != nil || a.hash.waiting.Load() != 0 {
		t.Errorf("after all have left: %v, %d wait", err, a.hash.waiting.Load())
	}
}
