package boot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// VerifyOptions are what the settings say of a check of the stored history: how
// soon a finished job may be removed, and how long a lease may stand.
func VerifyOptions(cfg *config.Config) verify.Options {
	w := cfg.Worker
	kept := engine.RestoreWindow // a discarded dead letter's
	for _, d := range []time.Duration{cfg.Retention.Completed, cfg.Retention.Cancelled, cfg.Retention.Dead} {
		if d > 0 { // 0 is for ever
			kept = min(kept, d)
		}
	}
	// After an outage the reaper waits for a heartbeat, and a statement may take its time.
	return verify.Options{Retention: kept, LeaseGrace: max(time.Minute, 2*w.ReaperInterval+2*w.HeartbeatInterval+2*cfg.DB.Timeout)}
}

// WatchIntegrity checks the stored history from time to time while e leads.
func (p *Process) WatchIntegrity(e *engine.Engine, pool *pgxpool.Pool) {
	if p.Config.Integrity.CheckInterval == 0 {
		return
	}
	w := verify.Watch{Pool: pool, Leads: func() bool { return e.Status().Leader }, Every: p.Config.Integrity.CheckInterval,
		Options: VerifyOptions(p.Config), Log: p.Log}
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	p.onClose("integrity check", func(closing context.Context) error {
		cancel()
		select {
		case <-done:
		case <-closing.Done():
		}
		return nil
	})
}
