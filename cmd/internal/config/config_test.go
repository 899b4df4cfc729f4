package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	token     = "rje_0123456789abcdef0123456789abcdef"
	dbAddress = "postgres://jobs:correct-horse@db.example.com:5432/jobs?sslmode=verify-full"
)

// load reads lines "NAME=value" as the whole environment.
func load(which Binary, lines ...string) (*Config, []string, error) {
	env := map[string]string{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, "=")
		env[name] = value
	}
	get := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	return Load(get, lines, which)
}

func mustLoad(t *testing.T, which Binary, lines ...string) *Config {
	t.Helper()
	c, _, err := load(which, lines...)
	if err != nil {
		t.Fatalf("Load(%q): %v", lines, err)
	}
	return c
}

func TestDefaultsInDevelopment(t *testing.T) {
	t.Parallel()
	got := mustLoad(t, Server)
	want := &Config{
		Env: Development, Debug: true, LocalPostgres: true,
		Server: ServerSettings{Host: "127.0.0.1", Port: 8080, Workers: true, PublicURL: "http://127.0.0.1:8080"},
		DB:     DatabaseSettings{MaxConns: 20, Timeout: 5 * time.Second},
		Worker: WorkerSettings{Concurrency: 10, LeaseDuration: 30 * time.Second, HeartbeatInterval: 10 * time.Second,
			ReaperInterval: 5 * time.Second, CrashLimit: 3, Prefetch: AutoPrefetch, StopGrace: 10 * time.Second,
			PollInterval: time.Second, JobTimeout: time.Minute, ShutdownTimeout: time.Minute},
		Retry: RetrySettings{BaseBackoff: time.Second, MaxBackoff: 5 * time.Minute, MaxAttempts: 5,
			Strategy: "full_jitter", DLQEnabled: true},
		API:  APISettings{RequestTimeout: 10 * time.Second, PayloadMaxBytes: 262144, IdempotencyTTL: 24 * time.Hour},
		Auth: AuthSettings{SessionIdleTTL: 12 * time.Hour, SessionTTL: 168 * time.Hour},
		Retention: RetentionSettings{Completed: 168 * time.Hour, Cancelled: 168 * time.Hour,
			Audit: 8760 * time.Hour},
		Integrity: IntegritySettings{CheckInterval: time.Hour},
		Log:       LogSettings{Level: slog.LevelDebug, Format: "text"},
		SMTP:      SMTPSettings{Port: 587, TLS: "starttls"},
		Console:   ConsoleSettings{BasePath: "/console", Mask: []string{"password", "token", "secret", "authorization", "card"}},
		Ctl:       CtlSettings{Server: "http://127.0.0.1:8080"},
	}
	got.given, got.effective = nil, nil
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Config{})); d != "" {
		t.Errorf("defaults (-want +got):\n%s", d)
	}
}

func TestDefaultsThatDependOnOthers(t *testing.T) {
	t.Parallel()
	production := mustLoad(t, Server, "APP_ENV=production", "DATABASE_URL="+dbAddress, "BOOTSTRAP_TOKEN="+token)
	if p := production; p.Debug || p.Log.Level != slog.LevelInfo || p.Log.Format != "json" || p.Server.Workers ||
		p.LocalPostgres || p.Server.Addr() != "0.0.0.0:8080" || p.Server.PublicURL != "http://localhost:8080" || p.Metrics.Addr != "" {
		t.Errorf("production = %+v", p)
	}
	worker := mustLoad(t, Worker, "JOB_TIMEOUT=90s", "SMTP_TLS=tls")
	if worker.Metrics.Addr != ":9090" || worker.Worker.ShutdownTimeout != 90*time.Second || worker.SMTP.Port != 465 {
		t.Errorf("worker = %+v", worker)
	}
	quiet := mustLoad(t, Server, "APP_DEBUG=false")
	if quiet.Log.Level != slog.LevelInfo {
		t.Errorf("level without APP_DEBUG = %v, want info", quiet.Log.Level)
	}
	chosen := mustLoad(t, Server, "LOG_LEVEL=warn", "LOG_FORMAT=json")
	if chosen.Log.Level != slog.LevelWarn || chosen.Log.Format != "json" {
		t.Errorf("LOG_LEVEL, LOG_FORMAT = %+v", chosen.Log)
	}
}

func TestValuesOfEverySort(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, Server, "WORKER_QUEUES=mail, billing", "WORKER_PREFETCH=0", "API_RATE_LIMIT=6000/m",
		"RETENTION_DEAD=720h", "RETENTION_COMPLETED=never", "TRUSTED_PROXIES=10.0.0.0/8,192.0.2.7", "PUBLIC_URL=https://jobs.example.com/",
		"WEBHOOK_ALLOW_HOSTS=hooks.internal,*.corp.example,10.1.0.0/16", "WEBHOOK_SIGNING_KEYS=whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3",
		"SMTP_HOST=mail", "SMTP_FROM=Jobs <jobs@example.com>", "METRICS_ADDR=127.0.0.1:9191", "DLQ_ENABLED=false", " SERVER_PORT=1", "JOB_TIMEOUT= 5m ")
	if d := cmp.Diff([]string{"mail", "billing"}, c.Worker.Queues); d != "" {
		t.Error(d)
	}
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")}
	if !slices.Equal(c.Server.TrustedProxies, proxies) {
		t.Errorf("TRUSTED_PROXIES = %v, want %v", c.Server.TrustedProxies, proxies)
	}
	if c.Worker.Prefetch != 0 || c.API.RateLimit != (Rate{6000, time.Minute}) || c.Retention.Dead != 720*time.Hour ||
		c.Retention.Completed != 0 || c.Server.PublicURL != "https://jobs.example.com" || len(c.Webhook.AllowHosts) != 3 ||
		len(c.Webhook.SigningKeys) != 1 || c.Metrics.Addr != "127.0.0.1:9191" || c.Retry.DLQEnabled || c.Worker.JobTimeout != 5*time.Minute {
		t.Errorf("got %+v", c)
	}
}

func TestEveryMistakeComesInOneError(t *testing.T) {
	t.Parallel()
	_, _, err := load(Server, "SERVER_PORT=eighty", "JOB_TIMEOUT=30", "DLQ_ENABLED=maybe", "DB_PASSWORD=hunter2", "DB_SSLMODE=on",
		"BOOTSTRAP_TOKEN=rje_short", "WORKER_LEASE_DURATION=15s", "RETRY_BASE_BACKOFF=10m", "SMTP_HOST=mail", "SMTP_USER=jobs",
		"DATABASE_URL=postgres://jobs:hunter2@db:port/jobs", "JOBCTL_SERVER=http://me:hunter2@jobs", "WEBHOOK_SIGNING_KEYS=hunter2", "API_RATE_LIMIT=6000")
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("Load = %v, want an *Error", err)
	}
	var names []string
	for _, p := range e.Problems {
		names = append(names, p.Name)
		if !strings.Contains(err.Error(), "\n  "+p.Name) || p.Want == "" {
			t.Errorf("%s is not explained in %v", p.Name, err)
		}
	}
	want := []string{"SERVER_PORT", "BOOTSTRAP_TOKEN", "DATABASE_URL", "DB_SSLMODE", "JOB_TIMEOUT", "DLQ_ENABLED", "API_RATE_LIMIT", "WEBHOOK_SIGNING_KEYS",
		"JOBCTL_SERVER", "WORKER_HEARTBEAT_INTERVAL", "RETRY_MAX_BACKOFF", "SMTP_FROM", "SMTP_USER"}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("mistakes (-want +got):\n%s", d)
	}
	for _, part := range []string{`SERVER_PORT="eighty": must be a whole number from 1 to 65535`,
		`JOB_TIMEOUT="30": must be a duration with its unit, such as 30s`, `WORKER_HEARTBEAT_INTERVAL="10s": must be at most a third of WORKER_LEASE_DURATION, which is 15s; set it to 5s or less`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q:\n%v", part, err)
		}
	}
	for _, s := range []string{"hunter2", "rje_short"} {
		if strings.Contains(err.Error(), s) {
			t.Errorf("error holds the secret %s:\n%v", s, err)
		}
	}
}

func TestValuesRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"APP_ENV=prod", "SERVER_PORT=0", "SERVER_PORT=65536", "SERVER_HOST=a:1", "PUBLIC_URL=jobs.example.com", "PUBLIC_URL=ftp://x",
		"PUBLIC_URL=https://x/?a=b", "TRUSTED_PROXIES=10.0.0.0/33", "TRUSTED_PROXIES=none,10.0.0.1", "WORKER_CONCURRENCY=-1", "WORKER_QUEUES=a,,b", "WORKER_QUEUES=a b",
		"WORKER_PREFETCH=1001", "JOB_TIMEOUT=0s", "JOB_TIMEOUT=-1s", "RETRY_MAX_ATTEMPTS=101", "RETRY_STRATEGY=linear", "API_RATE_LIMIT=0/m", "API_RATE_LIMIT=5/d",
		"RETENTION_DEAD=0", "RETENTION_AUDIT=forever", "METRICS_ADDR=9090", "LOG_LEVEL=loud", "LOG_FORMAT=xml", "SMTP_FROM=jobs", "SMTP_TLS=ssl", "SMTP_PASSWORD=x",
		"WEBHOOK_ALLOW_HOSTS=https://x", "METRICS_TOKEN= x", "BOOTSTRAP_TOKEN=" + strings.TrimPrefix(token, "rje_"), "DB_PORT=tcp://10.0.0.1:5432", "PAYLOAD_MAX_BYTES=1e6"} {
		name, value, _ := strings.Cut(line, "=")
		_, _, err := load(Server, line)
		var e *Error
		if !errors.As(err, &e) || len(e.Problems) != 1 {
			t.Errorf("%s: Load = %v, want one mistake", line, err)
			continue
		}
		if p := e.Problems[0]; p.Name != name && name != "SMTP_PASSWORD" || p.Value != "" && p.Value != fmt.Sprintf("%q", value) {
			t.Errorf("%s is reported as %+v", line, p)
		}
	}
}

func TestSecondNamesWorkAndAreNoted(t *testing.T) {
	t.Parallel()
	c, notes, err := load(Server, "ENV=staging", "PORT=9000", "WORKER_COUNT=5", "LOCK_TIMEOUT=5m", "DB_HOST=db", "WORKER_CONCURRENCY=7")
	if err != nil {
		t.Fatal(err)
	}
	if c.Env != Staging || c.Server.Port != 9000 || c.Worker.LeaseDuration != 5*time.Minute || c.Worker.Concurrency != 7 {
		t.Errorf("got %+v", c)
	}
	want := []string{"ENV is read for APP_ENV, which is not set", "PORT is read for SERVER_PORT, which is not set",
		"WORKER_COUNT has no effect: WORKER_CONCURRENCY is set", "LOCK_TIMEOUT is read for WORKER_LEASE_DURATION, which is not set"}
	if d := cmp.Diff(want, notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
	if _, _, err := load(Server, "PORT=x"); err == nil || !strings.Contains(err.Error(), `PORT="x"`) {
		t.Errorf("a bad second name gives %v", err)
	}
}

func TestLikelyMisspellingsAreNoted(t *testing.T) {
	t.Parallel()
	_, notes, err := load(Server, "WORKER_CONCURENCY=5", "RETRY_MAX_ATTEMPT=3", "DB_PASSWORT=x", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x",
		"DB_READ_URL=x", "OIDC_CLIENT_SECRET_FILE=/x", "HOME=/", "WORKER_EMPTY=")
	want := []string{"DB_PASSWORT is not a setting; the closest is DB_PASSWORD", "DB_READ_URL has no effect in this version",
		"OIDC_CLIENT_SECRET_FILE has no effect in this version", "OTEL_EXPORTER_OTLP_ENDPOINT has no effect in this version",
		"RETRY_MAX_ATTEMPT is not a setting; the closest is RETRY_MAX_ATTEMPTS", "WORKER_CONCURENCY is not a setting; the closest is WORKER_CONCURRENCY"}
	if d := cmp.Diff(want, notes); d != "" || err != nil {
		t.Errorf("notes (-want +got), error %v:\n%s", err, d)
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := mustLoad(t, Server, "BOOTSTRAP_TOKEN_FILE="+file("token", token+"\n"), "DB_HOST=db", "DB_PASSWORD_FILE="+file("password", " two\n\n"))
	if c.Bootstrap.Token.Reveal() != token || !strings.Contains(c.DB.URL.Reveal(), "postgres:%20two%0A@db:5432") {
		t.Errorf("token %q, address %q: one newline must go from the end, nothing else", c.Bootstrap.Token.Reveal(), c.DB.URL.Reveal())
	}
	if !c.Given("BOOTSTRAP_TOKEN") || c.Given("JOBCTL_TOKEN") {
		t.Error("Given must be true of a secret from a file, and of nothing else")
	}
	for name, lines := range map[string][]string{
		"is missing":  {"BOOTSTRAP_TOKEN_FILE=" + filepath.Join(dir, "missing")},
		"is empty":    {"BOOTSTRAP_TOKEN_FILE=" + file("empty", "\n")},
		"is huge":     {"BOOTSTRAP_TOKEN_FILE=" + file("huge", strings.Repeat("x", maxSecretFile+1))},
		"is a folder": {"BOOTSTRAP_TOKEN_FILE=" + dir},
		"is both":     {"BOOTSTRAP_TOKEN_FILE=" + file("again", token), "BOOTSTRAP_TOKEN=" + token},
		"is bad":      {"BOOTSTRAP_TOKEN_FILE=" + file("bad", "rje_short")},
	} {
		_, _, err := load(Server, lines...)
		var e *Error
		if !errors.As(err, &e) || len(e.Problems) != 1 || e.Problems[0].Name != "BOOTSTRAP_TOKEN_FILE" || strings.Contains(err.Error(), "rje_short") {
			t.Errorf("the file %s: %v, want one mistake of BOOTSTRAP_TOKEN_FILE", name, err)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, Server, "BOOTSTRAP_TOKEN="+token, "DATABASE_URL="+dbAddress)
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var line strings.Builder
	slog.New(slog.NewJSONHandler(&line, nil)).Info("settings", "token", c.Bootstrap.Token)
	for _, out := range []string{string(asJSON), line.String(), fmt.Sprintf("%v %+v %#v %s %q", c, *c, *c, c.DB.URL, c.DB.URL)} {
		if strings.Contains(out, token) || strings.Contains(out, "correct-horse") || !strings.Contains(out, "[redacted]") {
			t.Errorf("a secret shows in %s", out)
		}
	}
}

func TestJobctlReadsLittle(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, Ctl, "APP_ENV=production", "JOBCTL_SERVER=https://jobs.example.com/", "JOBCTL_TOKEN="+token, "WORKER_COUNT=x", "DB_PORT=x", "NO_COLOR=1")
	if c.Ctl != (CtlSettings{Server: "https://jobs.example.com", Token: token, NoColor: true}) {
		t.Errorf("Ctl = %+v", c.Ctl)
	}
	if c := mustLoad(t, CtlDB, "APP_ENV=production", "DATABASE_URL="+dbAddress, "TERM=dumb"); c.DB.URL.Reveal() != dbAddress || !c.Ctl.NoColor {
		t.Errorf("CtlDB = %+v", c)
	}
}

func TestEnvironmentOfThisProcess(t *testing.T) {
	t.Setenv("JOBCTL_SERVER", "http://192.0.2.1:1")
	c, _, err := FromEnvironment(Ctl)
	if err != nil || c.Ctl.Server != "http://192.0.2.1:1" {
		t.Errorf("FromEnvironment = %+v, %v", c, err)
	}
}

func TestSignInSettings(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, Server, "AUTH_MODE=local", "SESSION_IDLE_TTL=30m", "SESSION_TTL=30m", "BOOTSTRAP_ADMIN_PASSWORD= twelve chars ")
	if want := (AuthSettings{Mode: "local", SessionIdleTTL: 30 * time.Minute, SessionTTL: 30 * time.Minute}); c.Auth != want || c.Bootstrap.AdminPassword.Reveal() != " twelve chars " {
		t.Errorf("got %+v, %q", c.Auth, c.Bootstrap.AdminPassword.Reveal())
	}
	if c := mustLoad(t, Server, "AUTH_MODE=none", "BOOTSTRAP_TOKEN="+token); c.Server.Host != "127.0.0.1" {
		t.Errorf("with AUTH_MODE=none the server listens at %s", c.Server.Host)
	}
	for lines, name := range map[string]string{
		"AUTH_MODE=oidc":                                   "AUTH_MODE",
		"AUTH_MODE=none SERVER_HOST=0.0.0.0":               "AUTH_MODE",
		"AUTH_MODE=none SERVER_HOST=192.0.2.1":             "AUTH_MODE",
		"AUTH_MODE=none APP_ENV=staging DB_HOST=localhost": "AUTH_MODE",
		"AUTH_MODE=none APP_ENV=production BOOTSTRAP_TOKEN=" + token + " DATABASE_URL=" + dbAddress: "AUTH_MODE",
		"SESSION_IDLE_TTL=200h":                                 "SESSION_IDLE_TTL",
		"SESSION_TTL=1h":                                        "SESSION_IDLE_TTL",
		"SESSION_TTL=0s":                                        "SESSION_TTL",
		"BOOTSTRAP_ADMIN_PASSWORD=elevenchars":                  "BOOTSTRAP_ADMIN_PASSWORD",
		"BOOTSTRAP_ADMIN_PASSWORD=" + PasswordPlaceholder:       "BOOTSTRAP_ADMIN_PASSWORD",
		"BOOTSTRAP_ADMIN_PASSWORD=" + strings.Repeat("x", 1025): "BOOTSTRAP_ADMIN_PASSWORD",
	} {
		_, _, err := load(Server, strings.Fields(lines)...)
		var e *Error
		if !errors.As(err, &e) || len(e.Problems) != 1 || e.Problems[0].Name != name || strings.Contains(err.Error(), "elevenchars") {
			t.Errorf("%s: %v, want one mistake of %s", lines, err, name)
		}
	}
}
