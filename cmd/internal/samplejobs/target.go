package samplejobs

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// dialTimeout bounds name lookup and connect together.
const dialTimeout = 10 * time.Second

// targets decides which addresses a webhook may be sent to. The decision is
// taken on the address of the socket about to connect, after name lookup: a name
// that answers with a public address when checked and with a private one when
// dialled (DNS rebinding) has no moment in which to change.
type targets struct {
	names    []string // lower case, without a trailing dot
	suffixes []string // ".example.com"
	ranges   []netip.Prefix
	loopback bool
	resolver *net.Resolver // nil is the system's
}

// refusedError says that a webhook's address is not public.
type refusedError struct {
	host string
	addr netip.Addr
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s is at %s, an address that is not public; WEBHOOK_ALLOW_HOSTS can allow it", e.host, e.addr)
}

// newTargets reads the allow list: exact names, *.suffix for every name below
// it, addresses, and ranges such as 10.1.0.0/16.
func newTargets(allow []string, development bool) (*targets, error) {
	t := &targets{loopback: development}
	for _, entry := range allow {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			t.ranges = append(t.ranges, prefix.Masked())
			continue
		}
		if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
			addr = addr.WithZone("").Unmap()
			t.ranges = append(t.ranges, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		suffix, wild := strings.CutPrefix(entry, "*.")
		if suffix == "" || strings.ContainsAny(suffix, "*/:@ ") {
			return nil, fmt.Errorf("webhook allow list: %q is no name, *.suffix, address or range", entry)
		}
		if wild {
			t.suffixes = append(t.suffixes, "."+hostName(suffix))
		} else {
			t.names = append(t.names, hostName(suffix))
		}
	}
	return t, nil
}

// dial connects to address unless the address its name has now is refused. It is
// the DialContext of the webhook transport.
func (t *targets) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTimeout, Resolver: t.resolver, Control: func(_, socket string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(socket)
		if err != nil {
			return fmt.Errorf("check address %q: %w", socket, err)
		}
		return t.check(host, to.Addr())
	}}
	return d.DialContext(ctx, network, address)
}

// check returns a *refusedError unless host may be reached at addr.
func (t *targets) check(host string, addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	actual := embedded(addr)
	name := hostName(host)
	switch {
	case isPublic(actual),
		t.loopback && actual.IsLoopback(),
		slices.Contains(t.names, name),
		slices.ContainsFunc(t.suffixes, func(s string) bool { return strings.HasSuffix(name, s) }),
		slices.ContainsFunc(t.ranges, func(p netip.Prefix) bool { return p.Contains(addr) || p.Contains(actual) }):
		return nil
	}
	return &refusedError{host: host, addr: addr}
}

func hostName(s string) string { return strings.TrimSuffix(strings.ToLower(s), ".") }

// nat64 is the well-known prefix behind which an IPv6-only network shows the
// IPv4 world (RFC 6052), private addresses included.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded is the IPv4 address that a NAT64 gateway would connect to, or addr.
func embedded(addr netip.Addr) netip.Addr {
	if !nat64.Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// notPublic are the ranges of the IANA special-purpose registries, and one
// address of a cloud's metadata service that is public by its number. Of IPv6
// only 2000::/3 is in use as public; these are the exceptions within it.
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// isPublic tells whether addr, unmapped, is meant to be reached over the
// Internet.
func isPublic(addr netip.Addr) bool {
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return false
	}
	return addr.IsValid() && !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(addr) })
}
