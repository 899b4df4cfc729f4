package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// counted counts what is asked of the database.
type counted struct {
	*access.Tokens
	asked int
}

func (c *counted) Authenticate(ctx context.Context, secret string) (access.Token, error) {
	c.asked++
	return c.Tokens.Authenticate(ctx, secret)
}

func TestAServerBelievesTheDatabaseForFiveSeconds(t *testing.T) {
	pool := newPool(t)
	tokens := &counted{Tokens: access.NewTokens(pool, nil)}
	k := &knownTokens{ask: tokens}
	unknown := "rje_" + "0123456789012345678901234567890123456789"
	create := func(spec access.TokenSpec) (string, access.Token) {
		t.Helper()
		secret, made, err := tokens.Create(t.Context(), spec, cli)
		if err != nil {
			t.Fatal(err)
		}
		return secret, made
	}
	secret, made := create(access.TokenSpec{Name: "mailer", Scopes: []access.Scope{access.ScopeJobsWrite}, Queues: []string{"mail"}})
	want := Principal{Name: "token:mailer", Kind: KindToken, Scopes: []Scope{ScopeJobsWrite}, Queues: []string{"mail"}}
	for range 3 {
		got, err := k.principal(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("principal (-want +got):\n%s", d)
		}
	}
	if tokens.asked != 1 {
		t.Errorf("asked %d times within the memory, want once", tokens.asked)
	}
	key := sha256.Sum256([]byte(secret))
	if until := time.Until(k.seen[key].until); until > TokenMemory || TokenMemory > 10*time.Second {
		t.Errorf("remembered for %s more", until)
	}
	if _, good := k.recall(key, time.Now().Add(TokenMemory)); good {
		t.Error("remembered beyond its time")
	}
	// What is unknown is asked for each time, and never remembered.
	for range 2 {
		if _, err := k.principal(t.Context(), unknown); !errors.Is(err, access.ErrNoToken) {
			t.Errorf("an unknown token: %v", err)
		}
	}
	if tokens.asked != 3 || len(k.seen) != 1 {
		t.Errorf("asked %d times, %d remembered", tokens.asked, len(k.seen))
	}
	// Revoked, it goes on until the memory is over, and not a moment longer.
	if err := tokens.Revoke(t.Context(), made.ID, cli); err != nil {
		t.Fatal(err)
	}
	k.seen[key] = knownToken{k.seen[key].who, time.Now()}
	if _, err := k.principal(t.Context(), secret); !errors.Is(err, access.ErrNoToken) {
		t.Errorf("a revoked token: %v", err)
	}
	if len(k.seen) != 0 {
		t.Error("a revoked token is remembered")
	}
	// One that expires sooner is not remembered beyond that.
	short, _ := create(access.TokenSpec{Name: "short", Scopes: []access.Scope{access.ScopeJobsRead}, TTL: time.Second})
	if _, err := k.principal(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	if until := time.Until(k.seen[sha256.Sum256([]byte(short))].until); until > time.Second {
		t.Errorf("a token of one second is remembered for %s", until)
	}
	// Without a database, what is remembered goes on and the rest is not judged.
	secret, _ = create(access.TokenSpec{Name: "reader", Scopes: []access.Scope{access.ScopeJobsRead}})
	if _, err := k.principal(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	pool.Close()
	if _, err := k.principal(t.Context(), secret); err != nil {
		t.Errorf("a token known a moment ago, without a database: %v", err)
	}
	if _, err := k.principal(t.Context(), unknown); err == nil || errors.Is(err, access.ErrNoToken) {
		t.Errorf("an unknown token without a database: %v, want an error that is not ErrNoToken", err)
	}
}

func TestTheMemoryOfTokensIsBounded(t *testing.T) {
	t.Parallel()
	k := &knownTokens{}
	for i := range mostKnown + 10 {
		k.note(sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)}), knownToken{})
	}
	if len(k.seen) > mostKnown {
		t.Errorf("%d tokens remembered", len(k.seen))
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	free, limited := Principal{}, Principal{Queues: []string{"mail"}}
	if free.Limited() || !free.MayTouch("sms") || !limited.Limited() || !limited.MayTouch("mail") || limited.MayTouch("sms") || limited.MayTouch("") {
		t.Error("limits are not told apart")
	}
}
