package access_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

const (
	right = "correct horse battery"
	wrong = "incorrect horse battery"
)

var cli = engine.Actor{Name: "root@host", Source: "cli"}

// stage is one installation with two servers on it.
type stage struct {
	t    *testing.T
	ctx  context.Context
	pool *pgxpool.Pool
	a, b *access.Accounts
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	return newQuietStage(t)
}

// newQuietStage is for what measures: no other test of the package runs beside it.
func newQuietStage(t *testing.T) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	pool := dbtest.New(t)
	other := dbtest.OpenURL(t, dbtest.URL(t, pool))
	return &stage{t: t, ctx: ctx, pool: pool, a: access.New(access.Config{Pool: pool, Hashing: 2}), b: access.New(access.Config{Pool: other, Hashing: 2})}
}

func (s *stage) create(name string, role access.Role) {
	s.t.Helper()
	if _, err := s.a.Create(s.ctx, access.UserSpec{Name: name, Password: right, Role: role}, cli); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(s.ctx, sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *stage) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	if err := s.pool.QueryRow(s.ctx, "SELECT count(*) FROM "+sql, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func try(name, password string) access.Try {
	return access.Try{Name: name, Password: password, Address: "192.0.2.7", UserAgent: "Browser/1"}
}

func (s *stage) signIn(on *access.Accounts, name string) access.SignedIn {
	s.t.Helper()
	in, err := on.SignIn(s.ctx, try(name, right))
	if err != nil {
		s.t.Fatalf("sign in %s: %v", name, err)
	}
	return in
}

func (s *stage) open(on *access.Accounts, token string) bool {
	s.t.Helper()
	_, err := on.Session(s.ctx, token)
	if err != nil && !errors.Is(err, access.ErrNoSession) {
		s.t.Fatalf("Session: %v", err)
	}
	return err == nil
}

// fails signs in and wants ErrBadCredentials.
func (s *stage) fails(on *access.Accounts, t access.Try) {
	s.t.Helper()
	if _, err := on.SignIn(s.ctx, t); !errors.Is(err, access.ErrBadCredentials) {
		s.t.Fatalf("sign in %s: %v, want ErrBadCredentials", t.Name, err)
	}
}

// mustWait signs in and wants to be told to wait.
func (s *stage) mustWait(on *access.Accounts, t access.Try) time.Duration {
	s.t.Helper()
	_, err := on.SignIn(s.ctx, t)
	var throttled *access.ThrottledError
	if !errors.As(err, &throttled) {
		s.t.Fatalf("sign in %s: %v, want a wait", t.Name, err)
	}
	return throttled.Wait
}

// waitOver lets the waits pass.
func (s *stage) waitOver() {
	s.t.Helper()
	s.exec("UPDATE sign_in_tries SET blocked_until = clock_timestamp()")
}
