package auth

import (
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestOnlyTrustedProxiesSayForWhomTheyForward(t *testing.T) {
	t.Parallel()
	g := &Guard{proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	for _, c := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"198.51.100.7:1", nil, "198.51.100.7"},
		{"198.51.100.7:1", []string{"127.0.0.1"}, "198.51.100.7"},
		{"10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:1", []string{"127.0.0.1, 198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:1", []string{"127.0.0.1", "198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		{"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1:1", []string{"garbage"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"[::ffff:10.0.0.1]:1", []string{"2001:db8::1"}, "2001:db8::1"},
		{"[fd00::1]:1", []string{"fe80::1%eth0"}, "fe80::1"},
		{"@", []string{"198.51.100.7"}, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RemoteAddr = c.remote
		for _, f := range c.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		if got := g.ClientAddress(r); got != c.want {
			t.Errorf("from %s, forwarded %q = %q, want %q", c.remote, c.forwarded, got, c.want)
		}
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"Bearer a": "a", "bearer  a ": "a", "Bearer": "", "Bearer ": "", "Basic a": "", "a": "", "": "", "Bearera": ""} {
		got, ok := Bearer(header)
		if ok != (want != "") || ok && got != want {
			t.Errorf("Bearer(%q) = %q, %t, want %q", header, got, ok, want)
		}
	}
}

func TestBadAddressesAreTold(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{Token: "t", Addr: "8080"}, {Token: "t", Addr: ":8080", PublicURL: "jobs.example.com"}, {Token: "t", Addr: ":8080", PublicURL: "http://[::"}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) = nil, want an error", c)
		}
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	if (Principal{Scopes: []Scope{ScopeJobsRead}}).May(ScopeJobsWrite) || !(Principal{Scopes: []Scope{ScopeAdmin}}).May(ScopeDLQWrite) || (Principal{}).May(ScopeJobsRead) {
		t.Error("scopes are not told apart")
	}
}
