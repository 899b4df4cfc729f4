package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/web/console"
)

// openAccounts opens the accounts of the console, makes the first admin of an
// empty installation, and keeps ended sessions from piling up.
func openAccounts(p *boot.Process, pool *pgxpool.Pool) (*access.Accounts, error) {
	cfg := p.Config
	accounts := access.New(access.Config{Pool: pool, Log: p.Log, IdleTTL: cfg.Auth.SessionIdleTTL, TTL: cfg.Auth.SessionTTL})
	if password := cfg.Bootstrap.AdminPassword.Reveal(); password != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		made, err := accounts.Bootstrap(ctx, password)
		if err != nil {
			return nil, fmt.Errorf("make the first admin: %w", err)
		}
		if !made {
			p.Log.Info("BOOTSTRAP_ADMIN_PASSWORD has no effect: there are accounts already")
		}
	}
	p.Every("prune sessions", 10*time.Minute, func(ctx context.Context) error {
		_, err := accounts.Prune(ctx)
		return err
	})
	return accounts, nil
}

// consoleConfig is the settings in the console's words.
func consoleConfig(p *boot.Process, pool *pgxpool.Pool) *console.Config {
	cfg := p.Config
	mask := cfg.Console.Mask
	if mask == nil {
		mask = []string{} // none, not the default
	}
	return &console.Config{
		Base: cfg.Console.BasePath, Env: string(cfg.Env), Mask: mask, ReaperInterval: cfg.Worker.ReaperInterval, MaxAttempts: cfg.Retry.MaxAttempts,
		DiscardDead: !cfg.Retry.DLQEnabled, Retention: retention(cfg), Settings: settings(cfg),
		SchemaVersion: func(ctx context.Context) (database, build string, err error) {
			database, build, err = db.SchemaVersions(ctx, pool)
			return database, build, err
		},
		Pool: func() []console.Setting { return poolFigures(pool) },
	}
}

func settings(cfg *config.Config) []console.Setting {
	effective := cfg.Effective()
	list := make([]console.Setting, len(effective))
	for i, e := range effective {
		list[i] = console.Setting{Name: e.Name, Value: e.Value, Source: e.Source}
	}
	return list
}

// retention is how long things are kept; zero is for ever.
func retention(cfg *config.Config) []console.Setting {
	kept := func(d time.Duration) string {
		switch {
		case d == 0:
			return "for ever"
		case d%(24*time.Hour) == 0:
			return strconv.Itoa(int(d/(24*time.Hour))) + " days"
		}
		return d.String()
	}
	r := cfg.Retention
	return []console.Setting{
		{Name: "RETENTION_COMPLETED", Value: kept(r.Completed)}, {Name: "RETENTION_CANCELLED", Value: kept(r.Cancelled)},
		{Name: "RETENTION_DEAD", Value: kept(r.Dead)},
	}
}

func poolFigures(pool *pgxpool.Pool) []console.Setting {
	s := pool.Stat()
	figure := func(name string, n int64) console.Setting {
		return console.Setting{Name: name, Value: strconv.FormatInt(n, 10)}
	}
	return []console.Setting{
		figure("Open", int64(s.TotalConns())), figure("In use", int64(s.AcquiredConns())), figure("Idle", int64(s.IdleConns())),
		figure("Most", int64(s.MaxConns())), figure("Waited for one", s.EmptyAcquireCount()), figure("Gave up waiting", s.CanceledAcquireCount()),
	}
}
