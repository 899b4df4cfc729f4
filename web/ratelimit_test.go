package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func limited(n int, window time.Duration) func(*Config) {
	return func(c *Config) { c.RateLimit, c.RateWindow = n, window }
}

func TestATokenMayAskSoOften(t *testing.T) {
	t.Parallel()
	s := newSite(t, limited(3, time.Hour))
	for left := 2; left >= 0; left-- {
		got := s.do("GET", "/api/v1/jobs", "")
		if got.status != 200 || got.header.Get("RateLimit-Policy") != `"api";q=3;w=3600` || got.header.Get("RateLimit") != fmt.Sprintf(`"api";r=%d;t=%d`, left, 1200*(3-left)) {
			t.Errorf("with %d left: %d %v", left, got.status, got.header)
		}
	}
	got := s.post(`{"type":"email"}`)
	got.refused("one too many", http.StatusTooManyRequests, "rate-limited", "")
	if got.header.Get("Retry-After") != "1200" || got.header.Get("RateLimit") != `"api";r=0;t=3600` {
		t.Errorf("one too many: %v", got.header)
	}
	s.nothingStored()
	s.do("GET", "/jobs", "").refused("the paths without a version", http.StatusTooManyRequests, "rate-limited", "")
	for _, path := range []string{"/healthz", "/readyz", "/"} {
		if got := s.do("GET", path, ""); got.status != 200 || got.header.Get("RateLimit") != "" {
			t.Errorf("%s = %d %v, want it not to count", path, got.status, got.header)
		}
	}
	if got := s.do("GET", "/metrics", ""); !strings.Contains(got.body, `jobengine_api_rate_limited_total{class="token"} 2`) {
		t.Error("metrics lack 2 requests refused")
	}
	s.send("GET", "/api/v1/jobs", nil).refused("no token", http.StatusUnauthorized, "unauthenticated", "")
}

func TestWhatWasAskedComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, limited(20, 2*time.Second))
	for range 20 {
		s.do("GET", "/api/v1/version", "")
	}
	deadline := time.Now().Add(10 * time.Second)
	for s.do("GET", "/api/v1/version", "").status != 200 {
		if time.Now().After(deadline) {
			t.Fatal("a caller never gets its quota back")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestEachJobOfManyCounts: or the limit would be a thousand times what it says.
func TestEachJobOfManyCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, limited(10, time.Hour))
	jobs := func(n int) string {
		return `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"type":"email"},`, n), ",") + `]}`
	}
	if got := s.bulk(jobs(6)); got.status != 201 || !strings.HasPrefix(got.header.Get("RateLimit"), `"api";r=4;`) {
		t.Errorf("6 of 10 = %d %s, %v", got.status, got.body, got.header)
	}
	got := s.bulk(jobs(5))
	got.refused("5 of 4", http.StatusTooManyRequests, "rate-limited", "")
	if n := s.count("SELECT count(*) FROM jobs"); n != 6 || got.header.Get("Retry-After") == "" {
		t.Errorf("%d jobs, want 6; %v", n, got.header)
	}
	// More than the quota are let through by whoever has it whole.
	if got := newSite(t, limited(10, time.Hour)).bulk(jobs(500)); got.status != 201 || !strings.HasPrefix(got.header.Get("RateLimit"), `"api";r=0;`) {
		t.Errorf("500 of 10 = %d %.200s, %v", got.status, got.body, got.header)
	}
}

func TestWithoutTokensTheAddressCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, limited(1, time.Hour), func(c *Config) { c.Token, c.Development = "", true })
	if got := s.send("GET", "/api/v1/jobs", nil); got.status != 200 {
		t.Errorf("the first = %d %s", got.status, got.body)
	}
	s.send("GET", "/api/v1/jobs", nil).refused("the second", http.StatusTooManyRequests, "rate-limited", "")
	if got := s.send("GET", "/metrics", nil); !strings.Contains(got.body, `jobengine_api_rate_limited_total{class="anonymous"} 1`) {
		t.Error("metrics lack the request refused")
	}
}

func TestWithoutALimitNothingIsToldOfOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if got := s.do("GET", "/api/v1/jobs", ""); got.header.Get("RateLimit") != "" || got.header.Get("RateLimit-Policy") != "" {
		t.Errorf("headers %v", got.header)
	}
}
