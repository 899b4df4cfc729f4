package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// Config says who is let in.
type Config struct {
	// Token is the installation's first API token. Empty: none is asked for, which is
	// allowed in development on a loopback address only.
	Token string
	// Tokens are those of the database, each as good as Token within its scopes and
	// queues. Default: there are none.
	Tokens Tokens
	// MetricsToken is asked for at /metrics instead, if set.
	MetricsToken string
	// Addr is the listener's host:port. An empty host listens on every address.
	Addr string
	// Development allows the API without a token.
	Development bool
	// PublicURL is the address callers use; its host is one of this server's names.
	PublicURL string
	// TrustedProxies may say for whom they forward. Default: none.
	TrustedProxies []netip.Prefix
}

// Guard refuses callers. It is safe for many goroutines.
type Guard struct {
	token, metrics *digest
	known          *knownTokens // nil without tokens in the database
	hosts          hosts
	proxies        []netip.Prefix
}

// New checks c. Its error says what to set.
func New(c Config) (*Guard, error) {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, fmt.Errorf("listener address %q: %w", c.Addr, err)
	}
	if c.Token == "" && !(c.Development && loopback(host)) {
		return nil, errors.New("the API would be open to everybody: set BOOTSTRAP_TOKEN, " +
			"or listen on 127.0.0.1 (SERVER_HOST) with APP_ENV=development")
	}
	g := &Guard{token: digestOf(c.Token), metrics: digestOf(c.MetricsToken), proxies: c.TrustedProxies}
	if g.metrics == nil {
		g.metrics = g.token
	}
	if c.Tokens != nil {
		g.known = &knownTokens{ask: c.Tokens}
	}
	g.hosts, err = hostsOf(host, c.PublicURL)
	return g, err
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// digest is a token's SHA-256: equal in length whatever came, so that comparing
// takes the same time.
type digest [sha256.Size]byte

func digestOf(token string) *digest {
	if token == "" {
		return nil
	}
	d := digest(sha256.Sum256([]byte(token)))
	return &d
}

// matches tells whether token is the one that d was made of.
func (d *digest) matches(token string) bool {
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], d[:]) == 1
}

// open are the paths that never ask for a token: probes have none.
var open = map[string]bool{"/healthz": true, "/readyz": true}

// MetricsPath asks for the metrics token.
const MetricsPath = "/metrics"

// RequireToken refuses callers without the right token and names the others. Where
// no bootstrap token is set, which is on one machine in development, it asks for
// none.
func (g *Guard) RequireToken(next echo.HandlerFunc) echo.HandlerFunc {
	ask := g.askForToken(next)
	return func(c echo.Context) error {
		if want := g.tokenFor(c.Path()); want == nil && !open[c.Path()] {
			c.Set(principalKey, Principal{Name: "development", Kind: KindAnonymous, Scopes: []Scope{ScopeAdmin}})
			return next(c)
		}
		return ask(c)
	}
}

func (g *Guard) tokenFor(path string) *digest {
	if path == MetricsPath {
		return g.metrics
	}
	return g.token
}

// askForToken asks for a token everywhere but at the probes. At the metrics it is
// the one set for them, if there is one; elsewhere the bootstrap token or one of
// the database's.
func (g *Guard) askForToken(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if open[c.Path()] {
			return next(c)
		}
		given, ok := Bearer(c.Request().Header.Get(echo.HeaderAuthorization))
		if !ok {
			return unauthenticated(c, "", "Send an API token as Authorization: Bearer rje_…; jobctl tokens create makes one.")
		}
		p, err := g.bearer(c.Request().Context(), c.Path(), given)
		switch {
		case errors.Is(err, access.ErrNoToken):
			return unauthenticated(c, `, error="invalid_token"`, "The token is not known, was revoked, or has expired.")
		case err != nil:
			return err
		}
		c.Set(principalKey, p)
		if c.Path() == MetricsPath && p.Kind == KindToken && g.metrics == g.token {
			if err := p.Needs(ScopeJobsRead); err != nil {
				return insufficient(c, err)
			}
			if p.Limited() {
				return p.LimitedTo("The metrics tell of every queue.")
			}
		}
		return next(c)
	}
}

// bearer is who holds a token. Error: [access.ErrNoToken].
func (g *Guard) bearer(ctx context.Context, path, given string) (Principal, error) {
	want := g.tokenFor(path)
	switch {
	case want != nil && want.matches(given) && want != g.token:
		return Principal{Name: "metrics", Kind: KindToken}, nil
	case want != nil && want.matches(given):
		return Principal{Name: "bootstrap", Kind: KindToken, Scopes: []Scope{ScopeAdmin}}, nil
	case g.known == nil || want != g.token:
		return Principal{}, access.ErrNoToken
	}
	return g.known.principal(ctx, given)
}

func unauthenticated(c echo.Context, why, detail string) error {
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="reliable-job-engine"`+why)
	return &Refusal{Code: "unauthenticated", Detail: detail}
}

// insufficient tells the scope in the header too, as RFC 6750 has it.
func insufficient(c echo.Context, err error) error {
	var r *Refusal
	if errors.As(err, &r) && r.Scope != "" {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="reliable-job-engine", error="insufficient_scope", scope="`+string(r.Scope)+`"`)
	}
	return err
}

// RequireScope refuses callers that lack a scope.
func RequireScope(s Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := Need(c, s); err != nil {
				return err
			}
			return next(c)
		}
	}
}

// Need is nil if the caller may do what needs s, else the answer's error. It is
// for handlers whose need depends on the request.
func Need(c echo.Context, s Scope) error {
	if err := Caller(c).Needs(s); err != nil {
		return insufficient(c, err)
	}
	return nil
}

// Bearer returns the token of an Authorization header.
func Bearer(header string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.Trim(token, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
