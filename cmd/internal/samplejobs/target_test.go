package samplejobs

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"context"

	"golang.org/x/net/dns/dnsmessage"
)

func TestOnlyPublicAddressesAreDialled(t *testing.T) {
	t.Parallel()
	production, err := newTargets(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "168.63.129.16", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
		"64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	} {
		var refused *refusedError
		if err := production.check("example.com", netip.MustParseAddr(s)); !errors.As(err, &refused) {
			t.Errorf("%s is allowed", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001::1"} {
		if err := production.check("example.com", netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s is refused: %v", s, err)
		}
	}
}

func TestAllowListAndDevelopmentOpenWhatTheyName(t *testing.T) {
	t.Parallel()
	list := []string{"Hooks.Internal", "*.corp.example", "10.1.0.0/16", "192.168.7.7", "fd00:1::/32"}
	for _, tt := range []struct {
		host, addr  string
		development bool
		want        bool
	}{
		{"hooks.internal", "10.9.9.9", false, true},
		{"HOOKS.internal.", "127.0.0.1", false, true},
		{"a.hooks.internal", "10.9.9.9", false, false},
		{"a.b.corp.example", "172.16.0.1", false, true},
		{"corp.example", "172.16.0.1", false, false},
		{"evilcorp.example", "172.16.0.1", false, false},
		{"any.example", "10.1.2.3", false, true},
		{"any.example", "::ffff:10.1.2.3", false, true},
		{"any.example", "64:ff9b::10.1.2.3", false, true},
		{"any.example", "10.2.2.3", false, false},
		{"192.168.7.7", "192.168.7.7", false, true},
		{"any.example", "192.168.7.8", false, false},
		{"any.example", "fd00:1::5", false, true},
		{"localhost", "127.0.0.1", false, false},
		{"localhost", "127.0.0.1", true, true},
		{"localhost", "::1", true, true},
		{"localhost", "::ffff:127.0.0.1", true, true},
		{"localhost", "0.0.0.0", true, false},
		{"any.example", "10.2.2.3", true, false},
	} {
		targets, err := newTargets(list, tt.development)
		if err != nil {
			t.Fatal(err)
		}
		if err := targets.check(tt.host, netip.MustParseAddr(tt.addr)); (err == nil) != tt.want {
			t.Errorf("%s at %s, development %t: %v, want allowed %t", tt.host, tt.addr, tt.development, err, tt.want)
		}
	}
}

func TestPrivateTargetIsPermanentAndNamesTheSetting(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { seen.Add(1) })
	h := hooks(t, Config{})
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"} {
		_, err := h.send(within(t, 10*time.Second), run(t, 1), Webhook{URL: "http://" + host + ":" + u.Port()})
		wantError(t, err, "permanent", "WEBHOOK_ALLOW_HOSTS can allow it")
	}
	if seen.Load() != 0 {
		t.Errorf("%d requests arrived", seen.Load())
	}
}

// The allow list stands in for "public": the first lookup answers an allowed
// address, the next, as a rebinding name server would, one that is not.
func TestRebindingNameIsRefusedWhenItTurnsPrivate(t *testing.T) {
	t.Parallel()
	var answered atomic.Int32
	h := hooks(t, Config{WebhookAllowHosts: []string{"127.0.0.1"}})
	h.client.Transport.(*http.Transport).DisableKeepAlives = true
	h.targets.resolver = nameServer(t, func(q dnsmessage.Question) []netip.Addr {
		if q.Type != dnsmessage.TypeA {
			return nil
		}
		if answered.Add(1) == 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	})
	var seen atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { seen.Add(1) })
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	args := Webhook{URL: "http://rebind.example.:" + u.Port()}
	if _, err := h.send(within(t, 10*time.Second), run(t, 1), args); err != nil {
		t.Fatalf("first: %v", err)
	}
	_, err = h.send(within(t, 10*time.Second), run(t, 1), args)
	wantError(t, err, "permanent", "rebind.example. is at 127.0.0.2, an address that is not public")
	if seen.Load() != 1 {
		t.Errorf("%d requests arrived, want 1", seen.Load())
	}
}

// nameServer answers every question about an address with what answer returns for it,
// on loopback.
func nameServer(t testing.TB, answer func(dnsmessage.Question) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if reply, err := reply(buffer[:n], answer); err == nil {
				conn.WriteTo(reply, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func reply(question []byte, answer func(dnsmessage.Question) []netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	for _, a := range answer(q) {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}
		if q.Type == dnsmessage.TypeA {
			r.Body = &dnsmessage.AResource{A: a.As4()}
		}
		m.Answers = append(m.Answers, r)
	}
	return m.Pack()
}
