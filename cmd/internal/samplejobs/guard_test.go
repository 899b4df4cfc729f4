package samplejobs

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// guarded are 64 addresses that no webhook may reach: each special-purpose range of the
// IANA registries at its edges, IPv4 within IPv6 in every form that has one, and the
// metadata services of the clouds.
var guarded = []string{
	"0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "100.100.100.200", "127.0.0.1", "127.0.0.53", "127.255.255.254",
	"168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1",
	"192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.255", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::127.0.0.1", "::10.0.0.1", "::ffff:0.0.0.0", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:192.168.1.1", "::ffff:0:127.0.0.1",
	"64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::0.0.0.0", "64:ff9b:1::127.0.0.1", "64:ff9b:1::8.8.8.8",
	"100::1", "100:0:0:1::1", "2001::1", "2001:0:7f00:1::", "2001:10::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1", "5f00::1",
	"fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::a9fe:a9fe", "fec0::1", "ff02::1", "ff0e::1",
}

// spellings lead to the loopback address for one program or another: a resolver takes
// some for addresses, a browser others.
var spellings = []string{
	"2130706433", "017700000001", "0x7f000001", "0x7f.0x0.0x0.0x1", "0177.0.0.1", "0177.0.0.01", "127.1", "127.0.1", "127.000.000.001", "0x7f.1", "00000177.0.0.1",
	"127.0.0.1.", "127.0.0.1..", "localhost", "localhost.", "LOCALHOST", "localhost.localdomain", "ip6-localhost", "①②⑦.⓪.⓪.①", "127。0。0。1", "127.0.0.1%00.example.com", "127.0.0.1%2eexample.com",
	"[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::1%25lo]", "[::ffff:7f00:1]", "[::ffff:127.0.0.1%25eth0]", "[fe80::1%25lo]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[0000::0001]",
	"public.example@127.0.0.1", "public.example:80@127.0.0.1", "127.0.0.1@127.0.0.1", `public.example\@127.0.0.1`, "public.example%40127.0.0.1", "127.0.0.1#@public.example", "127.0.0.1?@public.example",
	"127.0.0.1/@public.example", "[127.0.0.1]", "[::1].example.com", "127.0.0.1:x", "-127.0.0.1", "+127.0.0.1", " 127.0.0.1", "127.0.0.1\t", "%31%32%37.0.0.1", "127.0.0.1,public.example",
}

// theOpen stands in for a public address: the one that the allow list names.
const theOpen = "127.77.0.1"

// canary listens at every address of this machine. Who comes by another than theOpen
// has got past the guard.
type canary struct {
	*httptest.Server
	port         string
	open, caught atomic.Int32
	redirect     atomic.Pointer[string]
	mu           sync.Mutex
	caughtAt     []string
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := c.redirect.Load(); to != nil {
			http.Redirect(w, r, *to, http.StatusTemporaryRedirect)
		}
	}))
	c.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state != http.StateNew {
			return
		}
		if at, ok := netip.AddrFromSlice(conn.LocalAddr().(*net.TCPAddr).IP); ok && at.Unmap().String() == theOpen {
			c.open.Add(1)
			return
		}
		c.caught.Add(1)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.caughtAt = append(c.caughtAt, conn.LocalAddr().String())
	}
	_ = c.Listener.Close() // for the one that hears every address
	c.Listener = l
	c.Start()
	t.Cleanup(c.Close)
	_, c.port, _ = net.SplitHostPort(l.Addr().String())
	probe, err := net.Dial("tcp", net.JoinHostPort(theOpen, c.port))
	if err != nil {
		t.Skipf("this machine has no address %s beside 127.0.0.1: %v", theOpen, err)
	}
	_ = probe.Close() // it was there
	for end := time.Now().Add(5 * time.Second); c.open.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return c
}

// quiet fails if anybody came who should not have.
func (c *canary) quiet(t *testing.T) {
	t.Helper()
	if n := c.caught.Load(); n > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Errorf("%d connections got past the guard, at %v", n, c.caughtAt)
	}
}

// literal writes an address as a URL has it.
func literal(addr netip.Addr) string {
	if addr.Is4() {
		return addr.String()
	}
	return "[" + addr.String() + "]"
}

// names is a name server whose answers a test sets, and changes, by name.
type names struct {
	mu      sync.Mutex
	answers map[string][]netip.Addr
}

func (n *names) set(name string, addrs ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name+"."] = addrs
}

func (n *names) of(q dnsmessage.Question) (addrs []netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.answers[strings.ToLower(q.Name.String())] {
		if a.Is4() == (q.Type == dnsmessage.TypeA) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// TestTheWebhookGuardHolds sends to each guarded address by each way there is: as a
// literal, by a name, by a redirect, by a name that was somewhere good a moment ago, and
// by a name that has good addresses too. Nobody comes.
func TestTheWebhookGuardHolds(t *testing.T) {
	t.Parallel()
	if len(guarded) < 60 {
		t.Fatalf("only %d addresses", len(guarded))
	}
	c := newCanary(t)
	n := &names{answers: map[string][]netip.Addr{}}
	h := hooks(t, Config{WebhookAllowHosts: []string{theOpen}})
	h.client.Transport.(*http.Transport).DisableKeepAlives = true
	h.targets.resolver = nameServer(t, n.of)
	open := netip.MustParseAddr(theOpen)
	send := func(host string) error {
		_, err := h.send(within(t, 10*time.Second), run(t, 1), Webhook{URL: "http://" + host + ":" + c.port + "/?token=hunter2"})
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the query: %v", host, err)
		}
		return err
	}
	refused := func(way, host string, err error) {
		t.Helper()
		if err == nil || fate(err) != "permanent" || !strings.Contains(err.Error(), "WEBHOOK_ALLOW_HOSTS can allow it") {
			t.Errorf("%s %s: %v (%s), want to be refused for good", way, host, err, fate(err))
		}
	}
	for i, s := range guarded {
		addr := netip.MustParseAddr(s)
		refused("literal", s, send(literal(addr)))

		name := fmt.Sprintf("name%d.example", i)
		n.set(name, addr)
		refused("name", s, send(name))
		refused("name with a dot", s, send(name+"."))

		to := "http://" + literal(addr) + ":" + c.port + "/"
		c.redirect.Store(&to)
		if err := send(theOpen); err == nil || !strings.Contains(err.Error(), "redirects are not followed") {
			t.Errorf("redirect to %s: %v", s, err)
		}
		c.redirect.Store(nil)

		rebinding := fmt.Sprintf("rebinding%d.example", i)
		n.set(rebinding, open)
		if err := send(rebinding); err != nil {
			t.Errorf("rebinding %s while it is good: %v", s, err)
		}
		n.set(rebinding, addr)
		refused("rebinding", s, send(rebinding))

		// Whichever is tried first, the message arrives at the good one or nowhere.
		for k, mixed := range [][]netip.Addr{{addr, open}, {open, addr}, {addr, addr, open}} {
			name := fmt.Sprintf("mixed%d-%d.example", i, k)
			n.set(name, mixed...)
			before := c.open.Load()
			if err := send(name); (err == nil) != (c.open.Load() > before) {
				t.Errorf("mixed %v: %v, %d arrived", mixed, err, c.open.Load()-before)
			}
		}
	}
	c.quiet(t)
	if c.open.Load() < int32(2*len(guarded)) {
		t.Errorf("only %d messages arrived where they may: this test looks at the wrong thing", c.open.Load())
	}
}

// TestNoSpellingGetsPastTheWebhookGuard, with the resolver of the system and with one that
// takes every name for the loopback address.
func TestNoSpellingGetsPastTheWebhookGuard(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	hostile := hooks(t, Config{})
	hostile.targets.resolver = nameServer(t, func(q dnsmessage.Question) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(loopback), func(a netip.Addr) bool { return a.Is4() != (q.Type == dnsmessage.TypeA) })
	})
	system := hooks(t, Config{})
	for _, s := range spellings {
		for name, h := range map[string]*webhooks{"a hostile resolver": hostile, "the system's": system} {
			if name == "the system's" && !localOnly(s) {
				continue
			}
			for _, scheme := range []string{"http://", "HTTP://", "https://", "http:///", "http:", "//"} {
				if _, err := h.send(within(t, 10*time.Second), run(t, 1), Webhook{URL: scheme + s + ":" + c.port + "/"}); err == nil {
					t.Errorf("%s%s with %s: sent", scheme, s, name)
				}
			}
		}
	}
	c.quiet(t)
}

// localOnly tells whether a spelling can be looked up without asking a name server.
func localOnly(s string) bool {
	return !strings.Contains(s, "example") && !strings.Contains(s, "localdomain") && !strings.ContainsAny(s, "。①-")
}

// TestSignaturesAreThoseOfTheSpecification: vectors that the specification's own
// libraries for other languages are tested with, and what was computed by hand.
func TestSignaturesAreThoseOfTheSpecification(t *testing.T) {
	t.Parallel()
	secret := "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	h := hooks(t, Config{WebhookSigningKeys: []string{secret}})
	header := http.Header{}
	if err := h.sign(header, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)); err != nil {
		t.Fatal(err)
	}
	if got, want := header.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want the specification's %s", got, want)
	}
	// The same by RFC 2104 alone: HMAC-SHA256 of id.timestamp.body under the decoded key.
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "{}", "\x00\xff", strings.Repeat("é", 1<<16)} {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "id.7.%s", body)
		if err := h.sign(header, "id", time.Unix(7, 999), []byte(body)); err != nil {
			t.Fatal(err)
		}
		if got, want := header.Get("webhook-signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("%.20q: signature %s, want %s", body, got, want)
		}
	}
}

// FuzzWebhookGuard: whatever the URL, with names that all lead to this machine nothing is
// sent; and no address that Go knows to be special is let through.
func FuzzWebhookGuard(f *testing.F) {
	for _, s := range spellings {
		f.Add("http://"+s+"/", []byte{127, 0, 0, 1})
	}
	for _, s := range guarded {
		addr := netip.MustParseAddr(s)
		f.Add("https://"+literal(addr)+"/x?y#z", addr.AsSlice())
	}
	t := &targets{}
	h, err := newWebhooks(Config{})
	if err != nil {
		f.Fatal(err)
	}
	h.targets.resolver = nameServer(f, func(q dnsmessage.Question) []netip.Addr {
		if q.Type == dnsmessage.TypeA {
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
		}
		return nil
	})
	f.Fuzz(func(tt *testing.T, target string, raw []byte) {
		if addr, ok := netip.AddrFromSlice(raw); ok {
			plain := addr.Unmap()
			special := plain.IsPrivate() || plain.IsLoopback() || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain.IsUnspecified()
			if err := t.check("example.com", addr); err == nil && special {
				tt.Errorf("%s is let through", addr)
			}
		}
		parsed, err := parseTarget(target)
		if err != nil {
			return
		}
		u, err := url.Parse(parsed)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
			tt.Fatalf("%q became %q: %v", target, parsed, err)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && isPublic(embedded(addr.WithZone("").Unmap())) {
			return // it may be reached, but not by a test
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := h.send(ctx, engine.Row{}, Webhook{URL: target}); err == nil {
			tt.Errorf("%q was sent", target)
		}
	})
}
