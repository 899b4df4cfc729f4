// Package web puts the HTTP server together: middleware in order, then the groups
// of routes, out comes one handler.
package web

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/api"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
	"github.com/reliable-job-engine/reliable-job-engine/web/console"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

// Engine is what API and console ask of the engine: *[engine.Client].
type Engine interface {
	api.Engine
	console.Engine
}

// Config is what the server needs. Engine, Read, Metrics and Addr are required.
type Config struct {
	Engine  Engine
	Read    api.Reader
	Metrics *ops.Metrics
	// Log gets a line for each request. Default: none.
	Log   *slog.Logger
	Build ops.Build
	// Ready decides readiness, besides Draining.
	Ready []ops.Check
	// Draining reports true once the process is stopping. Default: never.
	Draining func() bool

	// Addr is the listener's host:port. Without a Token it must be a loopback
	// address, and Development set.
	Addr        string
	Development bool
	// Token is asked for everywhere but at the probes; MetricsToken, if set,
	// instead of it at /metrics.
	Token, MetricsToken string
	// Tokens are those of the database, each as good as Token within its scopes and
	// queues. Default: there are none.
	Tokens auth.Tokens
	// PublicURL is the address callers use, without a trailing slash; its host is
	// answered to.
	PublicURL string
	// TrustedProxies may say for whom they forward.
	TrustedProxies []netip.Prefix
	// RequestTimeout ends a request. Default 10s.
	RequestTimeout time.Duration
	// PayloadMaxBytes is the engine's limit. Default [engine.DefaultPayloadMaxBytes].
	PayloadMaxBytes int
	// RateLimit is how many requests a token, or without tokens an address, may send
	// this process in a RateWindow. Default: any number.
	RateLimit  int
	RateWindow time.Duration

	// Console are the settings of the web console; nil leaves it out. What it reads,
	// acts through and is told by this package is filled in by New.
	Console *console.Config
	// Accounts are the people who sign in to the console, by AuthMode. Without them
	// everybody may use it: Addr must be a loopback address, and Development set.
	Accounts auth.Accounts
	AuthMode auth.Mode
}

type server struct {
	log     *slog.Logger
	metrics *ops.Metrics
	build   ops.Build
	timeout time.Duration
	limit   *limiter
	help    string           // where problems are explained
	console *console.Console // nil without one
}

// New returns the handler. Its error says which setting to mend.
func New(c Config) (http.Handler, error) {
	e, err := newEcho(c)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func newEcho(c Config) (*echo.Echo, error) {
	if c.Engine == nil || c.Read == nil || c.Metrics == nil {
		return nil, errors.New("new server: Engine, Read and Metrics are required")
	}
	guard, err := auth.New(auth.Config{
		Token: c.Token, Tokens: c.Tokens, MetricsToken: c.MetricsToken, Addr: c.Addr, Development: c.Development, PublicURL: c.PublicURL,
		TrustedProxies: c.TrustedProxies,
	})
	if err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Draining == nil {
		c.Draining = func() bool { return false }
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = 10 * time.Second
	}
	if c.PayloadMaxBytes == 0 {
		c.PayloadMaxBytes = engine.DefaultPayloadMaxBytes
	}
	s := &server{
		log: c.Log, metrics: c.Metrics, build: c.Build, timeout: c.RequestTimeout,
		limit: newLimiter(c.RateLimit, c.RateWindow, guard.ClientAddress, c.Metrics.RateLimited), help: strings.TrimSuffix(c.PublicURL, "/") + "/help/problems/",
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.answerError
	e.IPExtractor = guard.ClientAddress
	requireToken, err := s.openConsole(c, guard)
	if err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	e.Pre(headAsGet)
	e.Use(asHead, s.nameRequest, s.logRequest, s.recover, s.limitTime, guard.SameOrigin, requireToken, s.limit.each)

	health := ops.NewHealth(c.Build, append(c.Ready[:len(c.Ready):len(c.Ready)], ops.Draining(c.Draining)), c.Log)
	e.GET("/healthz", plain(health.Live))
	e.GET("/readyz", plain(health.Ready))
	e.GET(auth.MetricsPath, echo.WrapHandler(c.Metrics.Handler()))
	e.GET("/api/v1/version", plain(health.Version))
	if s.console != nil {
		e.GET("/", func(c echo.Context) error { return c.Redirect(http.StatusFound, s.console.Base+"/") })
		s.console.Mount(e)
	} else {
		e.GET("/", s.welcome)
	}
	routes := api.Config{
		Engine: c.Engine, Read: c.Read, Acts: c.Metrics, Log: c.Log, PayloadMaxBytes: c.PayloadMaxBytes,
		ClientAddress: guard.ClientAddress, RequestID: requestID, Problem: s.problem, Charge: s.limit.more,
	}
	if s.console != nil {
		routes.Overview = s.console // one reading of the figures for pages and API
	}
	api.New(routes).Mount(e)
	return e, nil
}

func plain(h http.HandlerFunc) echo.HandlerFunc { return echo.WrapHandler(h) }

// welcome says where things are.
func (s *server) welcome(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]string{
		"name": "reliable-job-engine", "version": s.build.Version, "jobs": "/api/v1/jobs", "queues": "/api/v1/queues",
		"dead_letters": "/api/v1/dlq", "workers": "/api/v1/workers", "health": "/healthz", "readiness": "/readyz", "metrics": auth.MetricsPath,
	})
}

// Server returns an http.Server with limits on what a caller may take: 10s for the
// headers, a minute for request and answer, 64 KiB of headers. Start and stop are
// the caller's.
func Server(addr string, h http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: h,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
}
