package auth

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// ChangePassword gives the caller, who proves by the current one that it is they, a
// new password. All their sessions end, and they go on in a new one. Errors:
// *[access.RuleError], [access.ErrBadCredentials], *[access.ThrottledError].
func (s *Sessions) ChangePassword(c echo.Context, current, password string) error {
	r, name := c.Request(), Caller(c).Name
	t := access.Try{Name: name, Password: current, Address: s.ClientAddress(r), UserAgent: r.UserAgent(), RequestID: s.RequestID(c)}
	if err := s.Accounts.ChangePassword(r.Context(), t, password, s.own(c)); err != nil {
		return err
	}
	s.outage.forget(s.token(c))
	_, err := s.SignIn(c, name, password)
	return err
}

// EndOthers ends every session of the caller but the one that they came with.
func (s *Sessions) EndOthers(c echo.Context) (ended int, err error) {
	return s.Accounts.RevokeOthers(c.Request().Context(), s.token(c), s.own(c))
}

// own is the caller, who acts on what is their own.
func (s *Sessions) own(c echo.Context) engine.Actor {
	return engine.Actor{Name: Caller(c).Name, Source: "console", Address: s.ClientAddress(c.Request()), RequestID: s.RequestID(c)}
}

// Limits returns after how long a session ends: unused, and in total.
func (s *Sessions) Limits() (idle, total time.Duration) { return s.Accounts.Limits() }
