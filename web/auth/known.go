package auth

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// Tokens is what the guard needs of [access.Tokens].
type Tokens interface {
	Authenticate(ctx context.Context, secret string) (access.Token, error)
}

var _ Tokens = (*access.Tokens)(nil)

// TokenMemory is how long a server believes what the database said of a token, and
// so how long a revoked one may go on. Shorter asks more often: once for each token,
// server and TokenMemory.
const TokenMemory = 5 * time.Second

// mostKnown bounds the memory. Beyond it, all is asked for anew.
const mostKnown = 10_000

// knownTokens remembers tokens that the database has just confirmed, by their
// SHA-256. What it has refused is asked for each time: a token made a moment ago is
// good at once.
type knownTokens struct {
	ask  Tokens
	mu   sync.Mutex
	seen map[[sha256.Size]byte]knownToken
}

type knownToken struct {
	who   Principal
	until time.Time
}

// principal is who holds a token. Error: [access.ErrNoToken]; any other says that
// the database could not be asked, which makes nobody a stranger.
func (k *knownTokens) principal(ctx context.Context, secret string) (Principal, error) {
	key := sha256.Sum256([]byte(secret))
	if p, ok := k.recall(key, time.Now()); ok {
		return p, nil
	}
	// From before the question: what is remembered must not outlive an answer that
	// was long on its way.
	asked := time.Now()
	t, err := k.ask.Authenticate(ctx, secret)
	if err != nil {
		k.forget(key)
		return Principal{}, err
	}
	p := Principal{Name: "token:" + t.Name, Kind: KindToken, Scopes: t.Scopes, Queues: t.Queues}
	memory := TokenMemory
	if t.Left > 0 {
		memory = min(memory, t.Left)
	}
	k.note(key, knownToken{p, asked.Add(memory)})
	return p, nil
}

func (k *knownTokens) recall(key [sha256.Size]byte, now time.Time) (Principal, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, found := k.seen[key]
	return t.who, found && now.Before(t.until)
}

func (k *knownTokens) note(key [sha256.Size]byte, t knownToken) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil || len(k.seen) >= mostKnown {
		k.seen = map[[sha256.Size]byte]knownToken{}
	}
	k.seen[key] = t
}

func (k *knownTokens) forget(key [sha256.Size]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.seen, key)
}
