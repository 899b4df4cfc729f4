package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/labstack/echo/v4"
)

// Config says who is let in.
type Config struct {
	// Token is the installation's API token. Empty: none is asked for, which is
	// allowed in development on a loopback address only.
	Token string
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

// matches tells whether token is the one that d was made of; a nil d asks for none.
func (d *digest) matches(token string) bool {
	if d == nil {
		return true
	}
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], d[:]) == 1
}

// open are the paths that never ask for a token: probes have none.
var open = map[string]bool{"/healthz": true, "/readyz": true}

// MetricsPath asks for the metrics token.
const MetricsPath = "/metrics"

// RequireToken refuses callers without the right token and names the others.
func (g *Guard) RequireToken(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if open[c.Path()] {
			return next(c)
		}
		want := g.token
		if c.Path() == MetricsPath {
			want = g.metrics
		}
		if want == nil {
			c.Set(principalKey, Principal{Name: "development", Kind: KindAnonymous, Scopes: []Scope{ScopeAdmin}})
			return next(c)
		}
		given, ok := Bearer(c.Request().Header.Get(echo.HeaderAuthorization))
		if !ok || !want.matches(given) {
			c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="reliable-job-engine"`)
			return &Refusal{"unauthenticated", "Send the API token as Authorization: Bearer rje_…"}
		}
		p := Principal{Name: "bootstrap", Kind: KindToken, Scopes: []Scope{ScopeAdmin}}
		if c.Path() == MetricsPath {
			p = Principal{Name: "metrics", Kind: KindToken}
		}
		c.Set(principalKey, p)
		return next(c)
	}
}

// RequireScope refuses callers that lack a scope.
func RequireScope(s Scope) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !Caller(c).May(s) {
				return &Refusal{"forbidden", "The token lacks the scope " + string(s) + "."}
			}
			return next(c)
		}
	}
}

// Bearer returns the token of an Authorization header.
func Bearer(header string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.Trim(token, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
