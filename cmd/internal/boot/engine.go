package boot

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/samplejobs"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// NewEngine makes an engine on pool with the settings. It runs the built-in job
// types, or with maintenanceOnly no jobs at all.
func (p *Process) NewEngine(pool *pgxpool.Pool, read *inspect.Reader, observer engine.Observer, maintenanceOnly bool) (*engine.Engine, error) {
	c := engineConfig(p.Config)
	c.Pool, c.Log, c.Observer, c.Version, c.MaintenanceOnly = pool, p.Log, observer, p.Build.Version, maintenanceOnly
	check, err := samplejobs.CheckTarget(samplejobs.Config{Development: p.Config.Env == config.Development, WebhookAllowHosts: p.Config.Webhook.AllowHosts})
	if err != nil {
		return nil, err
	}
	c.CheckCallback = check
	if !maintenanceOnly {
		ws, err := p.sampleJobs(pool, read, observer)
		if err != nil {
			return nil, err
		}
		c.Workers = ws
	}
	return engine.New(c)
}

// StartEngine starts e. At the end it drains until the stop's time is over, and
// hands the rest back.
func (p *Process) StartEngine(e *engine.Engine) error {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	p.onClose("engine", e.Stop)
	if err := e.Start(ctx); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	return nil
}

// sampleJobs registers the built-in types. Reports enqueue through a client of
// their own, since the engine's does not exist before its workers do.
func (p *Process) sampleJobs(pool *pgxpool.Pool, read *inspect.Reader, observer engine.Observer) (*engine.Workers, error) {
	cfg := p.Config
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool, Log: p.Log, Observer: observer,
		PayloadMaxBytes: cfg.API.PayloadMaxBytes, MaxAttempts: cfg.Retry.MaxAttempts, KeyTTL: cfg.API.IdempotencyTTL})
	if err != nil {
		return nil, err
	}
	p.onClose("client of reports", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_ = client.Close(ctx) // hints only: polling finds the jobs
		return nil
	})
	keys := make([]string, len(cfg.Webhook.SigningKeys))
	for i, k := range cfg.Webhook.SigningKeys {
		keys[i] = k.Reveal()
	}
	ws := engine.NewWorkers()
	err = samplejobs.Register(ws, samplejobs.Config{
		Development: cfg.Env == config.Development,
		SMTP: samplejobs.SMTP{Host: cfg.SMTP.Host, Port: cfg.SMTP.Port, User: cfg.SMTP.User, Password: cfg.SMTP.Password.Reveal(),
			From: cfg.SMTP.From, TLS: cfg.SMTP.TLS},
		WebhookAllowHosts: cfg.Webhook.AllowHosts, WebhookSigningKeys: keys, MailDir: filepath.Join(DataDir, "mail"),
		Source: read, Enqueuer: client, Log: p.Log,
	})
	return ws, err
}

// engineConfig is the settings in the engine's words.
func engineConfig(cfg *config.Config) engine.Config {
	w := cfg.Worker
	c := engine.Config{
		Queues: w.Queues, Concurrency: w.Concurrency, LeaseDuration: w.LeaseDuration, HeartbeatInterval: w.HeartbeatInterval,
		ReaperInterval: w.ReaperInterval, PollInterval: w.PollInterval, JobTimeout: w.JobTimeout, CrashLimit: w.CrashLimit,
		SuspectMemoryBytes: int64(w.SuspectMemory) << 20,
		StopGrace:          w.StopGrace,
		Prefetch:           w.Prefetch, NoPrefetch: w.Prefetch == 0, DiscardDead: !cfg.Retry.DLQEnabled, DBTimeout: cfg.DB.Timeout,
		Retention: engine.Retention{Completed: forever(cfg.Retention.Completed), Cancelled: forever(cfg.Retention.Cancelled),
			Dead: forever(cfg.Retention.Dead), Audit: forever(cfg.Retention.Audit)},
		PayloadMaxBytes: cfg.API.PayloadMaxBytes, MaxAttempts: cfg.Retry.MaxAttempts, KeyTTL: cfg.API.IdempotencyTTL,
	}
	c.Retry = engine.FullJitter{Base: cfg.Retry.BaseBackoff, Max: cfg.Retry.MaxBackoff}
	if cfg.Retry.Strategy == "exponential" {
		c.Retry = engine.Exponential{Base: cfg.Retry.BaseBackoff, Max: cfg.Retry.MaxBackoff}
	}
	return c
}

// Pace is what workers with these settings are told.
func Pace(cfg *config.Config) inspect.Pace {
	c := engineConfig(cfg)
	return inspect.Pace{Poll: c.PollInterval, Reaper: c.ReaperInterval, Retry: c.Retry}
}

// forever maps the settings' word for it, zero, to the engine's, which takes zero
// as its default.
func forever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
