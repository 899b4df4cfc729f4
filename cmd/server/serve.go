package main

import (
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

// serve opens the server's parts. Ports first: one that is taken is told before
// the database starts. They end in reverse: requests finish, the engine drains,
// the pool closes, Postgres stops.
func serve(p *boot.Process) error {
	began := time.Now()
	ln, err := p.Listen(p.Config.Server.Addr(), "set SERVER_PORT to another port")
	if err != nil {
		return err
	}
	metricsLn, err := listenMetrics(p)
	if err != nil {
		return err
	}
	pool, err := p.OpenDatabase(true)
	if err != nil {
		return err
	}
	read, metrics := inspect.New(pool), ops.NewMetrics(p.Build)
	read.Pace = boot.Pace(p.Config)
	metrics.AddSnapshot(read, p.Log)
	metrics.AddPool(pool)
	e, err := p.NewEngine(pool, read, metrics, !p.Config.Server.Workers)
	if err != nil {
		return err
	}
	accounts, err := openAccounts(p, pool)
	if err != nil {
		return err
	}
	c := webConfig(p, pool, read, e, metrics)
	c.Accounts, c.AuthMode, c.Console = accounts, auth.Mode(p.Config.Auth.Mode), consoleConfig(p, pool)
	c.Tokens = access.NewTokens(pool, p.Log)
	handler, err := web.New(c)
	if err != nil {
		return err
	}
	if err := p.StartEngine(e); err != nil {
		return err
	}
	p.WatchIntegrity(e, pool)
	if metricsLn != nil {
		health := ops.NewHealth(p.Build, append(boot.DatabaseChecks(pool), ops.Draining(p.Stopping)), p.Log)
		p.Serve("metrics listener", metricsLn, ops.WorkerHandler(health, metrics, p.Config.Metrics.Token.Reveal()))
	}
	p.Serve("API", ln, handler)
	p.Log.Info("server ready", "address", ln.Addr().String(), "workers", p.Config.Server.Workers, "duration_ms", time.Since(began).Milliseconds())
	if p.Config.Env == config.Development {
		if _, err := fmt.Fprint(p.Stdout, greeting(p.Config, "http://"+boot.Local(ln))); err != nil {
			p.Log.Debug("greeting not written", "error", err)
		}
	}
	return nil
}

func listenMetrics(p *boot.Process) (net.Listener, error) {
	if p.Config.Metrics.Addr == "" {
		return nil, nil
	}
	return p.Listen(p.Config.Metrics.Addr, "set METRICS_ADDR to another port, or leave it out for /metrics on the API's listener")
}

func webConfig(p *boot.Process, pool *pgxpool.Pool, read *inspect.Reader, e *engine.Engine, metrics *ops.Metrics) web.Config {
	cfg := p.Config
	return web.Config{
		Engine: e.Client(), Read: read, Metrics: metrics, Log: p.Log, Build: p.Build, Ready: boot.DatabaseChecks(pool), Draining: p.Stopping,
		Addr: cfg.Server.Addr(), Development: cfg.Env == config.Development, Token: cfg.Bootstrap.Token.Reveal(),
		MetricsToken: cfg.Metrics.Token.Reveal(), PublicURL: cfg.Server.PublicURL, TrustedProxies: cfg.Server.TrustedProxies,
		RequestTimeout: cfg.API.RequestTimeout, PayloadMaxBytes: cfg.API.PayloadMaxBytes,
		RateLimit: cfg.API.RateLimit.Count, RateWindow: cfg.API.RateLimit.Per,
	}
}
