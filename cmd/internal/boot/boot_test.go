package boot

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

func load(t *testing.T, settings map[string]string) *config.Config {
	t.Helper()
	cfg, _, err := config.Load(func(name string) (string, bool) { v, ok := settings[name]; return v, ok }, nil, config.Worker)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Every setting reaches the engine; what it calls zero, the engine may call default.
func TestSettingsReachTheEngine(t *testing.T) {
	t.Parallel()
	got := engineConfig(load(t, map[string]string{
		"WORKER_CONCURRENCY": "3", "WORKER_LEASE_DURATION": "40s", "WORKER_HEARTBEAT_INTERVAL": "4s", "WORKER_QUEUES": "mail,billing",
		"WORKER_PREFETCH": "0", "JOB_TIMEOUT": "7s", "POLL_INTERVAL": "2s", "REAPER_INTERVAL": "6s", "CRASH_LIMIT": "2", "SUSPECT_MEMORY_MB": "256",
		"RETRY_BASE_BACKOFF": "2s", "RETRY_MAX_BACKOFF": "9s", "RETRY_STRATEGY": "exponential", "RETRY_MAX_ATTEMPTS": "8", "DLQ_ENABLED": "false",
		"RETENTION_COMPLETED": "never", "RETENTION_CANCELLED": "24h", "RETENTION_DEAD": "720h", "PAYLOAD_MAX_BYTES": "1000",
		"RETENTION_AUDIT": "2160h", "IDEMPOTENCY_TTL": "2h", "DB_TIMEOUT": "3s", "STOP_GRACE": "8s",
	}))
	want := engine.Config{
		Concurrency: 3, LeaseDuration: 40 * time.Second, HeartbeatInterval: 4 * time.Second, Queues: []string{"mail", "billing"},
		NoPrefetch: true, JobTimeout: 7 * time.Second, PollInterval: 2 * time.Second, ReaperInterval: 6 * time.Second, CrashLimit: 2, SuspectMemoryBytes: 256 << 20,
		Retry: engine.Exponential{Base: 2 * time.Second, Max: 9 * time.Second}, MaxAttempts: 8, DiscardDead: true,
		Retention:       engine.Retention{Completed: -1, Cancelled: 24 * time.Hour, Dead: 720 * time.Hour, Audit: 2160 * time.Hour},
		PayloadMaxBytes: 1000, KeyTTL: 2 * time.Hour, DBTimeout: 3 * time.Second, StopGrace: 8 * time.Second,
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b *slog.Logger) bool { return a == b })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if auto := engineConfig(load(t, nil)); auto.Prefetch != config.AutoPrefetch || auto.NoPrefetch || auto.Retention.Dead != -1 {
		t.Errorf("by default: prefetch %d (%v), dead kept %s", auto.Prefetch, auto.NoPrefetch, auto.Retention.Dead)
	}
}

// A schema that a newer program brought is refused at the start, with both versions.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	at := Addresses{URL: dbtest.URL(t, pool), Migrate: dbtest.URL(t, pool)}
	if err := migrate(t.Context(), at, nil); err != nil {
		t.Fatalf("an equal schema: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "INSERT INTO schema_migrations (version) VALUES ('29990101000000')"); err != nil {
		t.Fatal(err)
	}
	err := migrate(t.Context(), at, nil)
	var mismatch *db.SchemaMismatchError
	if !errors.As(err, &mismatch) || mismatch.Database != "29990101000000" || mismatch.Binary == "" {
		t.Fatalf("migrate = %v", err)
	}

	// A server that runs already says so through its readiness.
	for _, c := range DatabaseChecks(pool) {
		err := c.Run(t.Context())
		if c.Name == "database" && err != nil || c.Name == "migrations" && (err == nil || !c.Tell || !strings.Contains(err.Error(), "newer than this program's")) {
			t.Errorf("check %s: %v", c.Name, err)
		}
	}
}

func TestChecksTellNoAddresses(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	pool.Close()
	for _, c := range DatabaseChecks(pool) {
		err := c.Run(t.Context())
		if err == nil {
			t.Errorf("check %s passes without a database", c.Name)
		} else if c.Tell && err.Error() != "the database cannot be asked" {
			t.Errorf("check %s tells anybody: %v", c.Name, err)
		}
	}
}
