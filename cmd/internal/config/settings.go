package config

import (
	"log/slog"
	"net/netip"
	"time"
)

// setting is one variable.
type setting struct {
	name    string
	also    []string // second names, read when name is unset
	def     string   // parsed like a given value; empty is unset
	derived string   // how the default comes about where def cannot say it
	help    string
	secret  bool // may be given as NAME_FILE; its value is never printed
	shown   bool // stands uncommented in .env.example
	kind    kind
}

// group is a chapter of .env.example and of the help.
type group struct {
	title    string
	ctl      bool // read by jobctl even when it only talks to a server
	settings []setting
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// groups is every setting, in the order in which people read them.
var groups = []group{
	{title: "Application", ctl: true, settings: []setting{
		{name: "APP_ENV", also: []string{"ENV"}, def: "development", shown: true,
			help: "development, staging or production",
			kind: choice(func(c *Config) *Environment { return &c.Env }, Development, Staging, Production)},
		{name: "APP_DEBUG", derived: "true, in production false",
			help: "verbose logs; production refuses true",
			kind: boolean(func(c *Config) *bool { return &c.Debug })},
		{name: "LOG_LEVEL", derived: "info, or debug while APP_DEBUG is on",
			help: "debug, info, warn or error",
			kind: level(func(c *Config) *slog.Level { return &c.Log.Level })},
		{name: "LOG_FORMAT", derived: "text in development, else json",
			help: "text or json",
			kind: choice(func(c *Config) *string { return &c.Log.Format }, "text", "json")},
	}},
	{title: "Server", settings: []setting{
		{name: "SERVER_HOST", derived: "0.0.0.0 once BOOTSTRAP_TOKEN is set, else 127.0.0.1",
			help: "address to listen on; an open one needs sign-in",
			kind: host(func(c *Config) *string { return &c.Server.Host })},
		{name: "SERVER_PORT", also: []string{"PORT"}, def: "8080", help: "port to listen on",
			kind: integer(1, 65535, func(c *Config) *int { return &c.Server.Port })},
		{name: "SERVER_WORKERS", derived: "true in development, else false",
			help: "run workers inside the server too",
			kind: boolean(func(c *Config) *bool { return &c.Server.Workers })},
		{name: "PUBLIC_URL", derived: "from SERVER_HOST and SERVER_PORT", help: "address that links are made with",
			kind: baseURL(func(c *Config) *string { return &c.Server.PublicURL })},
		{name: "TRUSTED_PROXIES", def: "none", help: "addresses or ranges whose forwarded headers count, with commas between",
			kind: prefixes(func(c *Config) *[]netip.Prefix { return &c.Server.TrustedProxies })},
		{name: "BOOTSTRAP_TOKEN", secret: true, help: "first API token of an empty installation: rje_ and at least 32 characters",
			kind: apiToken(func(c *Config) *Secret { return &c.Bootstrap.Token })},
	}},
	{title: "Sign-in", settings: []setting{
		{name: "AUTH_MODE", derived: "none in development on a loopback address while no user exists, else local",
			help: "none (everybody may do everything; only in development on a loopback address) or local (accounts of the console)",
			kind: choice(func(c *Config) *string { return &c.Auth.Mode }, "none", "local")},
		{name: "SESSION_IDLE_TTL", def: "12h", help: "a session ends unused; at most SESSION_TTL",
			kind: duration(time.Minute, year, func(c *Config) *time.Duration { return &c.Auth.SessionIdleTTL })},
		{name: "SESSION_TTL", def: "168h", help: "a session ends in any case",
			kind: duration(time.Minute, year, func(c *Config) *time.Duration { return &c.Auth.SessionTTL })},
		{name: "BOOTSTRAP_ADMIN_PASSWORD", secret: true, help: "password of admin, the first user of an empty installation: at least 12 characters",
			kind: newPassword(func(c *Config) *Secret { return &c.Bootstrap.AdminPassword })},
	}},
	{title: "Console", settings: []setting{
		{name: "CONSOLE_BASE_PATH", def: "/console", help: "where the console stands",
			kind: basePath(func(c *Config) *string { return &c.Console.BasePath })},
		{name: "PAYLOAD_MASK", def: "password,token,secret,authorization,card", help: "parts of payload keys whose values the console hides, or none",
			kind: words(func(c *Config) *[]string { return &c.Console.Mask })},
	}},
	{title: "Database (in development, leave both DATABASE_URL and DB_HOST out for a private Postgres in .data)", settings: []setting{
		{name: "DATABASE_URL", secret: true, help: "whole address; wins over the parts below",
			kind: postgresURL(func(c *Config) *Secret { return &c.DB.URL })},
		{name: "DB_HOST", def: "127.0.0.1", help: "host name, address, or folder of a Unix socket",
			kind: part(func(p *dbParts) *string { return &p.host })},
		{name: "DB_PORT", def: "5432", help: "port",
			kind: partPort()},
		{name: "DB_USER", def: "postgres", help: "role",
			kind: part(func(p *dbParts) *string { return &p.user })},
		{name: "DB_PASSWORD", def: PasswordPlaceholder, secret: true, help: "password; production refuses this placeholder",
			kind: part(func(p *dbParts) *string { return &p.password })},
		{name: "DB_NAME", def: "reliable_job_engine", help: "database",
			kind: part(func(p *dbParts) *string { return &p.name })},
		{name: "DB_SSLMODE", def: "disable", help: "disable, allow, prefer, require, verify-ca or verify-full; production refuses disable to another host",
			kind: part(func(p *dbParts) *string { return &p.sslmode }, "disable", "allow", "prefer", "require", "verify-ca", "verify-full")},
		{name: "DB_MAX_CONNS", def: "20", help: "connections in the pool",
			kind: integer(1, 1000, func(c *Config) *int { return &c.DB.MaxConns })},
		{name: "DB_TIMEOUT", def: "5s", help: "time for one statement",
			kind: duration(10*time.Millisecond, 10*time.Minute, func(c *Config) *time.Duration { return &c.DB.Timeout })},
		{name: "DB_MIGRATE_URL", derived: "the database address", secret: true, help: "direct address for migrations behind a pooler",
			kind: postgresURL(func(c *Config) *Secret { return &c.DB.MigrateURL })},
	}},
	{title: "Worker and engine", settings: []setting{
		{name: "WORKER_CONCURRENCY", also: []string{"WORKER_COUNT"}, def: "10", help: "jobs run at once by one worker",
			kind: integer(1, 10000, func(c *Config) *int { return &c.Worker.Concurrency })},
		{name: "WORKER_LEASE_DURATION", also: []string{"LOCK_TIMEOUT"}, def: "30s", help: "how long a claim lasts without a heartbeat",
			kind: duration(time.Second, day, func(c *Config) *time.Duration { return &c.Worker.LeaseDuration })},
		{name: "WORKER_HEARTBEAT_INTERVAL", def: "10s", help: "renewal of leases; at most a third of the lease",
			kind: duration(100*time.Millisecond, 8*time.Hour, func(c *Config) *time.Duration { return &c.Worker.HeartbeatInterval })},
		{name: "WORKER_QUEUES", def: "*", help: "queues served, with commas between; * is all",
			kind: queues(func(c *Config) *[]string { return &c.Worker.Queues })},
		{name: "WORKER_PREFETCH", def: "auto", help: "jobs claimed ahead of free slots: auto, or a number",
			kind: prefetch(func(c *Config) *int { return &c.Worker.Prefetch })},
		{name: "WORKER_SHUTDOWN_TIMEOUT", derived: "JOB_TIMEOUT", help: "time for running jobs to end at shutdown",
			kind: duration(0, day, func(c *Config) *time.Duration { return &c.Worker.ShutdownTimeout })},
		{name: "JOB_TIMEOUT", def: "60s", help: "time for one execution",
			kind: duration(100*time.Millisecond, 7*day, func(c *Config) *time.Duration { return &c.Worker.JobTimeout })},
		{name: "STOP_GRACE", def: "10s", help: "from a stop request until the job is cancelled over its handler's head",
			kind: duration(10*time.Millisecond, day, func(c *Config) *time.Duration { return &c.Worker.StopGrace })},
		{name: "POLL_INTERVAL", def: "1s", help: "wait of an idle worker that no notification wakes",
			kind: duration(10*time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &c.Worker.PollInterval })},
		{name: "REAPER_INTERVAL", def: "5s", help: "pause between looks for expired leases",
			kind: duration(100*time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &c.Worker.ReaperInterval })},
		{name: "CRASH_LIMIT", def: "3", help: "crashes of a job alone in its process before it is poison",
			kind: integer(1, 9, func(c *Config) *int { return &c.Worker.CrashLimit })},
		{name: "SUSPECT_MEMORY_MB", derived: "no limit", help: "MiB of memory that a job suspected of crashes may take, beyond the program's own; Linux only",
			kind: integer(16, 1<<20, func(c *Config) *int { return &c.Worker.SuspectMemory })},
	}},
	{title: "Retry and dead letters", settings: []setting{
		{name: "RETRY_BASE_BACKOFF", def: "1s", help: "wait after the first failure, before jitter",
			kind: duration(time.Millisecond, day, func(c *Config) *time.Duration { return &c.Retry.BaseBackoff })},
		{name: "RETRY_MAX_BACKOFF", def: "300s", help: "longest wait; at least the base",
			kind: duration(time.Millisecond, 30*day, func(c *Config) *time.Duration { return &c.Retry.MaxBackoff })},
		{name: "RETRY_MAX_ATTEMPTS", def: "5", help: "attempts before a job is a dead letter",
			kind: integer(1, 100, func(c *Config) *int { return &c.Retry.MaxAttempts })},
		{name: "RETRY_STRATEGY", def: "full_jitter", help: "full_jitter, or exponential with 20 % either way",
			kind: choice(func(c *Config) *string { return &c.Retry.Strategy }, "full_jitter", "exponential")},
		{name: "DLQ_ENABLED", def: "true", help: "keep exhausted jobs as dead letters",
			kind: boolean(func(c *Config) *bool { return &c.Retry.DLQEnabled })},
	}},
	{title: "API limits", settings: []setting{
		{name: "REQUEST_TIMEOUT", def: "10s", help: "time for one request",
			kind: duration(100*time.Millisecond, 10*time.Minute, func(c *Config) *time.Duration { return &c.API.RequestTimeout })},
		{name: "PAYLOAD_MAX_BYTES", def: "262144", help: "largest payload, as sent and as stored",
			kind: integer(2, 16<<20, func(c *Config) *int { return &c.API.PayloadMaxBytes })},
		{name: "API_RATE_LIMIT", def: "off", help: "requests of one token: off, or a number per s, m or h such as 6000/m",
			kind: rate(func(c *Config) *Rate { return &c.API.RateLimit })},
		{name: "IDEMPOTENCY_TTL", def: "24h", help: "how long an idempotency key is kept",
			kind: duration(time.Minute, year, func(c *Config) *time.Duration { return &c.API.IdempotencyTTL })},
	}},
	{title: "Retention (a duration, or never)", settings: []setting{
		{name: "RETENTION_COMPLETED", def: "168h", help: "completed jobs",
			kind: retention(func(c *Config) *time.Duration { return &c.Retention.Completed })},
		{name: "RETENTION_CANCELLED", def: "168h", help: "cancelled jobs",
			kind: retention(func(c *Config) *time.Duration { return &c.Retention.Cancelled })},
		{name: "RETENTION_DEAD", def: "never", help: "dead letters",
			kind: retention(func(c *Config) *time.Duration { return &c.Retention.Dead })},
		{name: "RETENTION_AUDIT", def: "8760h", help: "the audit trail of operator actions",
			kind: retention(func(c *Config) *time.Duration { return &c.Retention.Audit })},
	}},
	{title: "Integrity", settings: []setting{
		{name: "INTEGRITY_CHECK_INTERVAL", def: "1h", help: "pause between two checks of the stored history by the leader, as jobctl verify makes them; or never",
			kind: retention(func(c *Config) *time.Duration { return &c.Integrity.CheckInterval })},
	}},
	{title: "Metrics", settings: []setting{
		{name: "METRICS_ADDR", derived: "server: its own listener; worker: :9090", help: "listener for /metrics, and on the worker the probes",
			kind: address(func(c *Config) *string { return &c.Metrics.Addr })},
		{name: "METRICS_TOKEN", secret: true, help: "bearer token that /metrics asks for; none if empty",
			kind: secret(func(c *Config) *Secret { return &c.Metrics.Token })},
	}},
	{title: "Built-in email and webhook jobs", settings: []setting{
		{name: "SMTP_HOST", help: "mail server; without one, development writes mail to .data/mail",
			kind: host(func(c *Config) *string { return &c.SMTP.Host })},
		{name: "SMTP_PORT", derived: "587, or 465 with SMTP_TLS=tls", help: "its port",
			kind: integer(1, 65535, func(c *Config) *int { return &c.SMTP.Port })},
		{name: "SMTP_USER", help: "user; none if empty",
			kind: text(func(c *Config) *string { return &c.SMTP.User })},
		{name: "SMTP_PASSWORD", secret: true, help: "the user's password",
			kind: secret(func(c *Config) *Secret { return &c.SMTP.Password })},
		{name: "SMTP_FROM", help: "sender, such as jobs@example.com; needed with SMTP_HOST",
			kind: mailbox(func(c *Config) *string { return &c.SMTP.From })},
		{name: "SMTP_TLS", def: "starttls", help: "starttls (required), tls (from the first byte), opportunistic or none",
			kind: choice(func(c *Config) *string { return &c.SMTP.TLS }, "starttls", "tls", "opportunistic", "none")},
		{name: "WEBHOOK_ALLOW_HOSTS", help: "private targets allowed all the same: names, addresses or ranges, with commas between",
			kind: hosts(func(c *Config) *[]string { return &c.Webhook.AllowHosts })},
		{name: "WEBHOOK_SIGNING_KEYS", secret: true, help: "whsec_ and base64 of 24 to 64 bytes, with commas between; every one signs",
			kind: signingKeys(func(c *Config) *[]Secret { return &c.Webhook.SigningKeys })},
	}},
	{title: "jobctl", ctl: true, settings: []setting{
		{name: "JOBCTL_SERVER", def: "http://127.0.0.1:8080", help: "server that jobctl talks to",
			kind: baseURL(func(c *Config) *string { return &c.Ctl.Server })},
		{name: "JOBCTL_TOKEN", secret: true, help: "its API token",
			kind: secret(func(c *Config) *Secret { return &c.Ctl.Token })},
		{name: "JOBCTL_PROFILE", help: "chapter of jobctl's file config.toml that names server and token",
			kind: text(func(c *Config) *string { return &c.Ctl.Profile })},
	}},
}

// withoutEffect are names that other versions of the product read. Set, they
// are noted, so that nobody trusts in them. A trailing * stands for any ending.
var withoutEffect = []string{
	"DB_READ_URL", "OIDC_*", "OTEL_*",
}
