package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// KindUser is a person who has signed in.
const KindUser Kind = "user"

// NoSignIn is who acts in mode none. No account can have this name.
const NoSignIn = "anonymous (no sign-in)"

// Mode is how people sign in.
type Mode string

// The modes. The empty one is none in development on a loopback address while no
// account exists, and local everywhere else.
const (
	ModeNone  Mode = "none"
	ModeLocal Mode = "local"
)

// Accounts is what sessions need of [access.Accounts].
type Accounts interface {
	HasUsers(ctx context.Context) (bool, error)
	SignIn(ctx context.Context, t access.Try) (access.SignedIn, error)
	SignOut(ctx context.Context, token string, by engine.Actor) error
	Session(ctx context.Context, token string) (access.Session, error)
	Touch(ctx context.Context, token string) error
	Limits() (idle, total time.Duration)
	ChangePassword(ctx context.Context, t access.Try, password string, by engine.Actor) error
	RevokeOthers(ctx context.Context, token string, by engine.Actor) (ended int, err error)
}

var _ Accounts = (*access.Accounts)(nil)

// SessionsConfig says how people sign in. Accounts is required.
type SessionsConfig struct {
	Accounts Accounts
	Mode     Mode
	// Development allows the mode none, and cookies over plain HTTP unless
	// PublicURL begins with https.
	Development bool
	// Addr is the listener's host:port. An empty host listens on every address.
	Addr      string
	PublicURL string
	// ClientAddress is where a request comes from. Default: its RemoteAddr.
	ClientAddress func(*http.Request) string
	// RequestID names a request in the audit trail. Default: none.
	RequestID func(echo.Context) string
	// Log gets what no answer can say. Default: none.
	Log *slog.Logger
}

// Sessions knows the console's callers by their cookie. It asks the database for
// each request: a session that ends anywhere is over with the next one. Only while
// the database does not answer may a session that it confirmed within the last five
// minutes read on. It is safe for many goroutines.
type Sessions struct {
	SessionsConfig
	cookie string
	secure bool
	local  atomic.Bool // an account was seen; it never goes away
	none   atomic.Bool // the database said that no account exists
	outage outage
}

// NewSessions checks c. Its error says what to set.
func NewSessions(c SessionsConfig) (*Sessions, error) {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, fmt.Errorf("listener address %q: %w", c.Addr, err)
	}
	mayBeOpen := c.Development && loopback(host)
	switch c.Mode {
	case ModeLocal, "":
	case ModeNone:
		if !mayBeOpen {
			return nil, errors.New("AUTH_MODE=none lets everybody do everything: it needs APP_ENV=development and a loopback address such as SERVER_HOST=127.0.0.1")
		}
	default:
		return nil, fmt.Errorf("AUTH_MODE %q: must be none or local", c.Mode)
	}
	if c.Mode == "" && !mayBeOpen {
		c.Mode = ModeLocal
	}
	if c.ClientAddress == nil {
		c.ClientAddress = func(r *http.Request) string { return hostOnly(r.RemoteAddr) }
	}
	if c.RequestID == nil {
		c.RequestID = func(echo.Context) string { return "" }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sessions{SessionsConfig: c, cookie: "__Host-session", secure: true}
	if c.Development && !strings.HasPrefix(c.PublicURL, "https:") {
		s.cookie, s.secure = "session", false
	}
	return s, nil
}

// Open tells whether nobody needs to sign in. With the empty mode it asks the
// database each time until the first account exists.
func (s *Sessions) Open(ctx context.Context) (bool, error) {
	if s.Mode != "" || s.local.Load() {
		return s.Mode == ModeNone, nil
	}
	exist, err := s.Accounts.HasUsers(ctx)
	if err != nil {
		if s.none.Load() {
			return true, nil // nobody can have signed up where nobody can be asked
		}
		return false, err
	}
	s.local.Store(exist)
	s.none.Store(!exist)
	return !exist, nil
}

// RequireSession names the caller by the session's cookie, and sends browsers
// without one to base+"/login", with the way back in next. Requests of the script
// get 401 instead, so that a page stays where it is. The pages to sign in and out
// are let through. It keeps an open page that refreshes itself from counting as use.
func (s *Sessions) RequireSession(base string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if c.Path() == base+loginPath || c.Path() == base+logoutPath {
				return next(c)
			}
			ctx := c.Request().Context()
			isOpen, err := s.Open(ctx)
			if err != nil {
				return err
			}
			if isOpen {
				c.Set(principalKey, Principal{Name: NoSignIn, Kind: KindAnonymous, Scopes: []Scope{ScopeAdmin}})
				return next(c)
			}
			token := s.token(c)
			session, err := s.Accounts.Session(ctx, token)
			if errors.Is(err, access.ErrNoSession) {
				s.outage.forget(token)
				return s.turnAway(c, base)
			}
			if err != nil {
				if s.enterFromMemory(c, token) {
					return next(c)
				}
				return err
			}
			s.outage.note(token, session, time.Now())
			if !polls(c.Request()) {
				if err := s.Accounts.Touch(ctx, token); err != nil { // the page can be read all the same
					s.Log.WarnContext(ctx, "use of a session not counted", "error", err, "request_id", s.RequestID(c))
				}
			}
			enter(c, session)
			return next(c)
		}
	}
}

const sessionKey = "session"

func enter(c echo.Context, session access.Session) {
	c.Set(sessionKey, session)
	c.Set(principalKey, Principal{Name: session.User, Kind: KindUser, Scopes: scopesOf(session.Role), Queues: session.Queues})
}

// scopesOf is what a role may do.
func scopesOf(r access.Role) []Scope {
	switch r {
	case access.RoleAdmin:
		return []Scope{ScopeAdmin}
	case access.RoleOperator:
		return []Scope{ScopeJobsRead, ScopeJobsWrite, ScopeQueuesWrite, ScopeDLQWrite}
	case access.RoleViewer:
		return []Scope{ScopeJobsRead}
	}
	return nil
}

// SessionOf returns the caller's session; false where none is needed.
func SessionOf(c echo.Context) (access.Session, bool) {
	s, ok := c.Get(sessionKey).(access.Session)
	return s, ok
}

// SessionEnds is when the caller's session ends if it is not used again; zero
// where there is none.
func SessionEnds(c echo.Context) time.Time {
	s, _ := SessionOf(c)
	return s.EndsAt
}

// turnAway answers a request without a session.
func (s *Sessions) turnAway(c echo.Context, base string) error {
	if fragment(c.Request()) {
		return &Refusal{Code: "unauthenticated", Detail: "Your session has ended. Sign in again."}
	}
	noStore(c)
	return c.Redirect(http.StatusSeeOther, loginURL(base, c.Request()))
}

// fragment tells a request of a script from one that a browser makes to show a page.
func fragment(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Header.Get("HX-Request") == "true" || mode != "" && mode != "navigate"
}

// polls tells a page that refreshes itself from a person.
func polls(r *http.Request) bool { return safe(r.Method) && fragment(r) }

// token is what the caller's cookie holds; empty without one.
func (s *Sessions) token(c echo.Context) string {
	got, err := c.Cookie(s.cookie)
	if err != nil {
		return ""
	}
	return got.Value
}

// setToken puts a token into the caller's cookie; an empty one takes it away.
func (s *Sessions) setToken(c echo.Context, token string) {
	_, total := s.Accounts.Limits()
	cookie := &http.Cookie{Name: s.cookie, Value: token, Path: "/", MaxAge: int(total.Seconds()), HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode}
	if token == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}

// SignIn checks a name and password, gives the caller a new session and ends the
// one they came with. Errors: [access.ErrBadCredentials], *[access.ThrottledError].
func (s *Sessions) SignIn(c echo.Context, name, password string) (access.SignedIn, error) {
	r := c.Request()
	in, err := s.Accounts.SignIn(r.Context(), access.Try{Name: name, Password: password, Address: s.ClientAddress(r), UserAgent: r.UserAgent(),
		RequestID: s.RequestID(c), OldToken: s.token(c)})
	if err != nil {
		return access.SignedIn{}, err
	}
	s.setToken(c, in.Token)
	enter(c, in.Session)
	return in, nil
}

// SignOut ends the caller's session, if they have one, and takes the cookie away.
func (s *Sessions) SignOut(c echo.Context) error {
	by := engine.Actor{Source: "console", Address: s.ClientAddress(c.Request()), RequestID: s.RequestID(c)}
	if err := s.Accounts.SignOut(c.Request().Context(), s.token(c), by); err != nil {
		return err
	}
	s.outage.forget(s.token(c))
	s.setToken(c, "")
	return nil
}

// RequireToken is g's, but asks for no token where nobody needs to sign in, and
// always for one where a sign-in is needed.
func (s *Sessions) RequireToken(g *Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		ask := g.askForToken(next)
		return func(c echo.Context) error {
			if open[c.Path()] || c.Path() == MetricsPath && g.metrics != g.token {
				return ask(c)
			}
			isOpen, err := s.Open(c.Request().Context())
			switch {
			case err != nil:
				return err
			case isOpen:
				c.Set(principalKey, Principal{Name: NoSignIn, Kind: KindAnonymous, Scopes: []Scope{ScopeAdmin}})
				return next(c)
			}
			return ask(c)
		}
	}
}
