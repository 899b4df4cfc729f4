package web

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// limiter bounds how often each caller of the API asks this process. A caller may
// spend the quota at once; it comes back evenly over the window.
type limiter struct {
	quota   int // 0: no limit
	window  time.Duration
	address func(*http.Request) string
	refused func(class string)

	mu      sync.Mutex
	callers map[string]*caller
	swept   time.Time
}

type caller struct {
	bucket *rate.Limiter
	seen   time.Time
}

// limitError is a request too many. wait is in seconds.
type limitError struct {
	quota  int
	window time.Duration
	wait   int
}

func (e *limitError) Error() string {
	return fmt.Sprintf("%d requests in %s are allowed, and each job of many counts as one. Try again in %d s.", e.quota, e.window, e.wait)
}

func newLimiter(quota int, window time.Duration, address func(*http.Request) string, refused func(string)) *limiter {
	if quota <= 0 || window <= 0 {
		quota = 0
	}
	return &limiter{quota: quota, window: window, address: address, refused: refused, callers: map[string]*caller{}}
}

// each counts every request of the API. Pages, probes and metrics are not counted.
func (l *limiter) each(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if path := c.Path(); strings.HasPrefix(path, "/api/") || path == "/jobs" || strings.HasPrefix(path, "/jobs/") {
			if err := l.take(c, 1); err != nil {
				return err
			}
		}
		return next(c)
	}
}

// more counts n requests beside the one counted before. More than the quota count as
// the quota, or they could never be sent.
func (l *limiter) more(c echo.Context, n int) error { return l.take(c, min(n, l.quota-1)) }

// take counts n requests, and refuses them if they are too many: then none is
// counted.
func (l *limiter) take(c echo.Context, n int) error {
	if l.quota == 0 || n <= 0 {
		return nil
	}
	now := time.Now()
	class, who := string(auth.KindToken), auth.Caller(c).Name
	if auth.Caller(c).Kind != auth.KindToken {
		class, who = string(auth.KindAnonymous), l.address(c.Request())
	}
	bucket := l.bucket(class+" "+who, now)
	ok := bucket.AllowN(now, n)
	left := max(bucket.TokensAt(now), 0)
	h := c.Response().Header()
	h.Set("RateLimit-Policy", fmt.Sprintf(`"api";q=%d;w=%d`, l.quota, ceil(l.window.Seconds())))
	h.Set("RateLimit", fmt.Sprintf(`"api";r=%d;t=%d`, int(left), l.seconds(float64(l.quota)-left)))
	if ok {
		return nil
	}
	l.refused(class)
	return &limitError{l.quota, l.window, max(l.seconds(float64(n)-left), 1)}
}

// seconds is how long n requests take to come back.
func (l *limiter) seconds(n float64) int {
	return ceil(n * l.window.Seconds() / float64(l.quota))
}

func ceil(s float64) int { return int(math.Ceil(s)) }

func (l *limiter) bucket(who string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > l.window {
		l.swept = now
		for name, x := range l.callers {
			if now.Sub(x.seen) > l.window { // it has its quota again
				delete(l.callers, name)
			}
		}
	}
	x := l.callers[who]
	if x == nil {
		x = &caller{bucket: rate.NewLimiter(rate.Limit(float64(l.quota)/l.window.Seconds()), l.quota)}
		l.callers[who] = x
	}
	x.seen = now
	return x.bucket
}
