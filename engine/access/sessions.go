package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// Session is one sign-in that has not ended.
type Session struct {
	ID   int64
	User string
	Role Role
	// Queues are all that the person may see and touch; nil is every queue.
	Queues []string
	// CreatedAt is the sign-in, UsedAt the last use, exact to a minute.
	CreatedAt, UsedAt time.Time
	// EndsAt is when it ends if it is not used again.
	EndsAt time.Time
	// UserAgent and Address are those of the sign-in, cut short.
	UserAgent, Address string
}

const (
	tokenBytes   = 32 // 256 bits
	maxUserAgent = 200
	maxAddress   = 64
	maxSessions  = 200  // in a list
	pruneBatch   = 5000 // rows of each table in one Prune
	touchEvery   = time.Minute
)

// newToken returns a token for the cookie and the hash for the table.
func newToken() (token string, hash []byte) {
	raw := make([]byte, tokenBytes)
	rand.Read(raw) // never fails
	sum := sha256.Sum256(raw)
	return base64.RawURLEncoding.EncodeToString(raw), sum[:]
}

// hashToken gives the hash of a token; false for what no token looks like.
func hashToken(token string) ([]byte, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != tokenBytes {
		return nil, false
	}
	sum := sha256.Sum256(raw)
	return sum[:], true
}

// Session returns whose session token is. A look is no use: [Accounts.Touch] puts
// off its end. Error: [ErrNoSession].
func (a *Accounts) Session(ctx context.Context, token string) (Session, error) {
	hash, ok := hashToken(token)
	if !ok {
		return Session{}, ErrNoSession
	}
	row, err := a.q.GetSession(ctx, a.pool, hash, a.idle.Seconds(), a.total.Seconds())
	if errors.Is(err, pgx.ErrNoRows) {
		return Session{}, ErrNoSession
	}
	if err != nil {
		return Session{}, fmt.Errorf("look up session: %w", err)
	}
	return a.session(Session{ID: row.ID, User: row.Name, Role: Role(row.Role), Queues: row.Queues, CreatedAt: row.CreatedAt, UsedAt: row.UsedAt,
		UserAgent: row.UserAgent, Address: row.Address}), nil
}

// session fills in what follows from the rest.
func (a *Accounts) session(s Session) Session {
	s.CreatedAt, s.UsedAt = s.CreatedAt.UTC(), s.UsedAt.UTC()
	s.EndsAt = s.UsedAt.Add(a.idle)
	if end := s.CreatedAt.Add(a.total); end.Before(s.EndsAt) {
		s.EndsAt = end
	}
	return s
}

// Touch counts a use of the session. It writes at most once a minute, and never
// brings back a session that has ended.
func (a *Accounts) Touch(ctx context.Context, token string) error {
	hash, ok := hashToken(token)
	if !ok {
		return nil
	}
	if _, err := a.q.TouchSession(ctx, a.pool, hash, min(touchEvery, a.idle/10).Seconds(), a.idle.Seconds()); err != nil {
		return fmt.Errorf("touch session: %w", err)
	}
	return nil
}

// SignOut ends the session of token. One that has ended is no error.
func (a *Accounts) SignOut(ctx context.Context, token string, by engine.Actor) error {
	hash, ok := hashToken(token)
	if !ok {
		return nil
	}
	user := ""
	err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		row, err := a.q.DeleteSession(ctx, tx, hash)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		user, by.Name = row.Name, row.Name
		return a.record(ctx, tx, by, "sign_out", user, change{before: map[string]any{"session": row.ID}, affected: 1})
	})
	if err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	if user != "" {
		a.logAct(ctx, by, "sign_out", user)
	}
	return nil
}

// Sessions lists a person's open sessions, the last used first, at most 200. A
// name that nobody has gives none.
func (a *Accounts) Sessions(ctx context.Context, name string) ([]Session, error) {
	name = foldName(name)
	rows, err := a.q.ListSessionsOf(ctx, a.pool, name, a.idle.Seconds(), a.total.Seconds(), maxSessions)
	if err != nil {
		return nil, fmt.Errorf("list sessions of user %s: %w", name, err)
	}
	list := make([]Session, len(rows))
	for i, r := range rows {
		list[i] = a.session(Session{ID: r.ID, User: name, CreatedAt: r.CreatedAt, UsedAt: r.UsedAt, UserAgent: r.UserAgent, Address: r.Address})
	}
	return list, nil
}

// Revoke ends one session of a person. Error: [ErrNoSession].
func (a *Accounts) Revoke(ctx context.Context, name string, id int64, by engine.Actor) error {
	name = foldName(name)
	err := a.act(ctx, by, "revoke_session", name, func(tx pgx.Tx) (change, error) {
		n, err := a.q.DeleteSessionByID(ctx, tx, id, name)
		if err == nil && n == 0 {
			err = ErrNoSession
		}
		return change{before: map[string]any{"session": id}, affected: 1}, err
	})
	if err != nil {
		return fmt.Errorf("revoke session of user %s: %w", name, err)
	}
	return nil
}

// RevokeAll ends every session of a person, and sign-ins that have begun. Error:
// [ErrUserNotFound].
func (a *Accounts) RevokeAll(ctx context.Context, name string, by engine.Actor) error {
	return a.change(ctx, "revoke_sessions", name, by, changeOf{})
}

// RevokeOthers ends every session of the person whose token it is, but the token's
// own. Error: [ErrNoSession].
func (a *Accounts) RevokeOthers(ctx context.Context, token string, by engine.Actor) (ended int, err error) {
	own, err := a.Session(ctx, token)
	if err != nil {
		return 0, err
	}
	hash, _ := hashToken(token)
	err = a.act(ctx, by, "revoke_sessions", own.User, func(tx pgx.Tx) (change, error) {
		n, err := a.q.DeleteOtherSessions(ctx, tx, hash)
		ended = int(n)
		return change{after: map[string]any{"sessions_ended": n, "kept": own.ID}, affected: ended}, err
	})
	if err != nil {
		return 0, fmt.Errorf("revoke other sessions of user %s: %w", own.User, err)
	}
	return ended, nil
}

// Prune removes sessions that have ended and tries that are forgotten, at most
// 5000 of each. What it would remove has no effect any more, so that it matters to
// the tables' size alone. Several may run at once.
func (a *Accounts) Prune(ctx context.Context) (removed int64, err error) {
	sessions, err := a.q.PruneSessions(ctx, a.pool, a.idle.Seconds(), a.total.Seconds(), pruneBatch)
	if err != nil {
		return 0, fmt.Errorf("prune sessions: %w", err)
	}
	tries, err := a.q.PruneSignInTries(ctx, a.pool, forgetAfter.Seconds(), pruneBatch)
	if err != nil {
		return sessions, fmt.Errorf("prune tries to sign in: %w", err)
	}
	return sessions + tries, nil
}

// brief cuts s to n letters and takes out what does not print, so that what a
// client says of itself can stand in a list.
func brief(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
