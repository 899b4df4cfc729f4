package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"
)

// hosts are the names this server answers to. A page that points its own name at
// this machine (DNS rebinding) comes with that name, and is refused.
type hosts struct{ names map[string]bool }

func hostsOf(listen, publicURL string) (hosts, error) {
	h := hosts{names: map[string]bool{"localhost": true}}
	if a, err := netip.ParseAddr(listen); listen != "" && (err != nil || !a.IsUnspecified()) {
		h.names[strings.ToLower(listen)] = true
	}
	if publicURL != "" {
		u, err := url.Parse(publicURL)
		if err != nil || u.Hostname() == "" {
			return h, fmt.Errorf("PUBLIC_URL %q: not an address such as https://jobs.example.com", publicURL)
		}
		h.names[strings.ToLower(u.Hostname())] = true
	}
	return h, nil
}

// known tells whether hostport, with or without a port, names this server: one of
// its names, a loopback address, or the address that the connection came in at.
func (h hosts) known(hostport string, r *http.Request) bool {
	host := strings.ToLower(hostOnly(hostport))
	if h.names[host] || loopback(host) {
		return true
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap() == a.Unmap()
}

func hostOnly(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

// SameOrigin refuses requests for a foreign host, and writes that a browser sends
// from a foreign page: by its fetch metadata, and by Origin where that is missing.
// Programs send neither. Probes may name any host: an orchestrator's have none.
func (g *Guard) SameOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if open[c.Path()] {
			return next(c)
		}
		if !g.hosts.known(r.Host, r) {
			return &Refusal{Code: "forbidden", Detail: "This server does not answer to that host; PUBLIC_URL sets its name."}
		}
		if safe(r.Method) {
			return next(c)
		}
		switch site := r.Header.Get("Sec-Fetch-Site"); site {
		case "", "same-origin", "none":
		default:
			return &Refusal{Code: "forbidden", Detail: "A write from another site is refused."}
		}
		for _, origin := range r.Header.Values(echo.HeaderOrigin) {
			u, err := url.Parse(origin)
			if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) && !g.public(u.Host, r) {
				return &Refusal{Code: "forbidden", Detail: "A write from another origin is refused."}
			}
		}
		return next(c)
	}
}

// public tells whether a page at host is this server's own, seen through a proxy
// that sets another Host.
func (g *Guard) public(host string, r *http.Request) bool {
	return g.hosts.names[strings.ToLower(hostOnly(host))] && !loopback(hostOnly(host)) && g.hosts.known(r.Host, r)
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// ClientAddress is where a request comes from. What X-Forwarded-For says counts as
// far as trusted proxies have written it: it is read from the right, and the first
// address that is no trusted proxy is the client.
func (g *Guard) ClientAddress(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	client := at.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values(echo.HeaderXForwardedFor), ","), ",")
	for i := len(hops) - 1; i >= 0 && g.trusted(client); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		client = hop.Unmap().WithZone("")
	}
	return client.String()
}

func (g *Guard) trusted(a netip.Addr) bool {
	for _, p := range g.proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
