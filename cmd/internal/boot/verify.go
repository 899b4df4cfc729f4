package boot

import (
	"time"

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
