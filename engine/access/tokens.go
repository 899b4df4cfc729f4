package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

const (
	tokenPrefix  = "rje_"
	tokenIDChars = 8
	// tokenSecretChars of 62 letters are 190 random bits.
	tokenSecretChars = 32
	// touchTokenWait bounds the note that a token was used: nobody waits for it.
	touchTokenWait = time.Second
	maxQueues      = 100  // of a person or a token
	maxTokens      = 1000 // in a list
	// maxTokenTTL keeps an expiry within what a clock can tell.
	maxTokenTTL = 100 * 365 * 24 * time.Hour
)

var (
	tokenShape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(fmt.Sprintf(`^%s[0-9A-Za-z]{%d}$`, tokenPrefix, tokenIDChars+tokenSecretChars))
	})
	queueShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`) })
)

// The errors of tokens. Test with errors.Is.
var (
	// ErrNoToken: the token is not known, was revoked, or has expired. It says no
	// more.
	ErrNoToken = errors.New("no such token")
	// ErrTokenNotFound: no token has this id.
	ErrTokenNotFound = errors.New("no token has this id")
	// ErrTokenExists: a token of this name has not been revoked.
	ErrTokenExists = errors.New("a token of this name exists")
)

// Token is what is known of a token: all but itself.
type Token struct {
	// ID is public: the token's eight letters after rje_.
	ID   string
	Name string
	// Scopes are in the order of [Scopes].
	Scopes []Scope
	// Queues are all that it may touch; nil is every queue.
	Queues    []string
	CreatedAt time.Time
	CreatedBy string
	// ExpiresAt, LastUsedAt and RevokedAt are zero if that never is or was.
	// LastUsedAt is exact to a minute.
	ExpiresAt, LastUsedAt, RevokedAt time.Time
	// Expired tells, by the database's clock, that ExpiresAt has passed.
	Expired bool
	// Left is how long it is good for after [Tokens.Authenticate]; 0 is for ever.
	Left time.Duration
}

// TokenSpec asks for a token.
type TokenSpec struct {
	// Name is 1 to 64 letters, digits, dots, hyphens, underscores or @. Living tokens
	// have different names: token:NAME is who acts, in the audit trail.
	Name string
	// Scopes are at least one.
	Scopes []Scope
	// Queues limit the token to at most 100 queues; none is every queue. The queues
	// need not exist yet.
	Queues []string
	// TTL is how long it is good for; 0 is until it is revoked.
	TTL time.Duration
}

// Tokens are those of one installation. All methods may be called by several
// goroutines.
type Tokens struct{ ledger }

// NewTokens returns the tokens kept in pool, which stays the caller's. log may be
// nil.
func NewTokens(pool *pgxpool.Pool, log *slog.Logger) *Tokens {
	return &Tokens{newLedger("token", pool, log)}
}

// randomText is n random letters and digits, all equally likely.
func randomText(n int) string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := make([]byte, 0, n)
	var raw [64]byte
	for len(text) < n {
		rand.Read(raw[:]) // never fails
		for _, b := range raw {
			// 248 is four times 62: the bytes above would favour the first letters.
			if b < 248 && len(text) < n {
				text = append(text, letters[b%62])
			}
		}
	}
	return string(text)
}

func hashAPIToken(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// Check tells what of the specification breaks a rule, before anything is made.
// Error: *[RuleError].
func (s TokenSpec) Check() error {
	_, err := s.check()
	return err
}

func (s *TokenSpec) check() (scopes []string, err error) {
	if s.Name = foldName(s.Name); !namePattern().MatchString(s.Name) {
		return nil, &RuleError{"name", "must be 1 to 64 letters, digits, dots, hyphens, underscores or @, the first a letter or digit"}
	}
	if scopes, err = checkScopes(s.Scopes); err != nil {
		return nil, err
	}
	if s.Queues, err = checkQueues(s.Queues); err != nil {
		return nil, err
	}
	if s.TTL < 0 || s.TTL > maxTokenTTL {
		return nil, &RuleError{"expiry", "must lie ahead, by at most 100 years"}
	}
	return scopes, nil
}

// Create makes a token. The secret is returned this once: only its hash is kept.
// Errors: [*RuleError], [ErrTokenExists].
func (t *Tokens) Create(ctx context.Context, s TokenSpec, by engine.Actor) (secret string, made Token, err error) {
	scopes, err := s.check()
	if err != nil {
		return "", Token{}, err
	}
	id := randomText(tokenIDChars)
	secret = tokenPrefix + id + randomText(tokenSecretChars)
	p := dbsqlc.InsertTokenParams{ID: id, TokenHash: hashAPIToken(secret), Name: s.Name, Scopes: scopes, Queues: s.Queues, CreatedBy: by.Name}
	if s.TTL > 0 {
		p.ExpiresSeconds = new(s.TTL.Seconds())
	}
	var row dbsqlc.InsertTokenRow
	err = t.act(ctx, by, "create", id, func(tx pgx.Tx) (change, error) {
		if row, err = t.q.InsertToken(ctx, tx, p); errors.Is(err, pgx.ErrNoRows) {
			return change{}, ErrTokenExists
		}
		after := map[string]any{"name": s.Name, "scopes": scopes, "queues": s.Queues, "expires_at": row.ExpiresAt}
		return change{after: after, affected: 1}, err
	})
	if err != nil {
		return "", Token{}, fmt.Errorf("create token %s: %w", s.Name, err)
	}
	return secret, Token{ID: id, Name: s.Name, Scopes: asScopes(scopes), Queues: s.Queues, CreatedAt: row.CreatedAt.UTC(), CreatedBy: by.Name,
		ExpiresAt: instant(row.ExpiresAt)}, nil
}

func asScopes(words []string) []Scope {
	scopes := make([]Scope, len(words))
	for i, w := range words {
		scopes[i] = Scope(w)
	}
	return scopes
}

// List returns every token, revoked ones last, at most 1000.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	rows, err := t.q.ListTokens(ctx, t.pool, maxTokens)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	list := make([]Token, len(rows))
	for i, r := range rows {
		list[i] = Token{ID: r.ID, Name: r.Name, Scopes: asScopes(r.Scopes), Queues: r.Queues, CreatedAt: r.CreatedAt.UTC(), CreatedBy: r.CreatedBy,
			ExpiresAt: instant(r.ExpiresAt), LastUsedAt: instant(r.LastUsedAt), RevokedAt: instant(r.RevokedAt), Expired: r.Expired}
	}
	return list, nil
}

// Revoke ends a token for good and frees its name. One that was revoked before is
// no error, and no second act. Error: [ErrTokenNotFound].
func (t *Tokens) Revoke(ctx context.Context, id string, by engine.Actor) error {
	err := t.act(ctx, by, "revoke", id, func(tx pgx.Tx) (change, error) {
		row, err := t.q.RevokeToken(ctx, tx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return change{}, t.whyNotRevoked(ctx, tx, id)
		}
		return change{before: map[string]any{"name": row.Name, "scopes": row.Scopes, "queues": row.Queues}, affected: 1}, err
	})
	if err != nil && !errors.Is(err, errRevokedBefore) {
		return fmt.Errorf("revoke token %s: %w", id, err)
	}
	return nil
}

var errRevokedBefore = errors.New("the token was revoked before")

func (t *Tokens) whyNotRevoked(ctx context.Context, tx pgx.Tx, id string) error {
	found, err := t.q.HasToken(ctx, tx, id)
	switch {
	case err != nil:
		return err
	case !found:
		return ErrTokenNotFound
	}
	return errRevokedBefore
}

// Authenticate returns whose token this is, and notes its use at most once a
// minute; that a note fails is logged and changes nothing. Error: [ErrNoToken].
// Any other says that the database could not be asked.
func (t *Tokens) Authenticate(ctx context.Context, secret string) (Token, error) {
	if !tokenShape().MatchString(secret) {
		return Token{}, ErrNoToken
	}
	row, err := t.q.GetToken(ctx, t.pool, touchEvery.Seconds(), hashAPIToken(secret))
	if errors.Is(err, pgx.ErrNoRows) {
		return Token{}, ErrNoToken
	}
	if err != nil {
		return Token{}, fmt.Errorf("look up token: %w", err)
	}
	if row.Stale {
		t.touch(ctx, row.ID)
	}
	known := Token{ID: row.ID, Name: row.Name, Scopes: asScopes(row.Scopes), Queues: row.Queues, CreatedAt: row.CreatedAt.UTC(), CreatedBy: row.CreatedBy,
		ExpiresAt: instant(row.ExpiresAt), LastUsedAt: instant(row.LastUsedAt)}
	if row.ExpiresAt != nil {
		known.Left = max(time.Duration(row.ExpiresIn*float64(time.Second)), 1)
	}
	return known, nil
}

func (t *Tokens) touch(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, touchTokenWait)
	defer cancel()
	if _, err := t.q.TouchToken(ctx, t.pool, id, touchEvery.Seconds()); err != nil {
		t.log.WarnContext(ctx, "use of a token not counted", "token", id, "error", err)
	}
}
