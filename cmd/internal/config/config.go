// Package config turns the environment into a [Config]. It is the only package
// that reads environment variables; everything else is given what it needs.
//
// The table in settings.go holds each variable's name, default, unit and check.
// It drives parsing, [Help] and the .env.example at the root of the repository.
// A variable that is set but empty counts as unset.
package config

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// Binary says for whom [Load] reads: it decides which settings are read and
// which checks apply.
type Binary int

// The readers of settings.
const (
	// Server is the API and console. It alone must have sign-in set up.
	Server Binary = iota + 1
	// Worker is the engine without the API.
	Worker
	// Ctl is jobctl talking to a server: application, log and JOBCTL_ settings only.
	Ctl
	// CtlDB is jobctl working on the database itself.
	CtlDB
)

// Environment is where the product runs: APP_ENV.
type Environment string

// The three environments.
const (
	Development Environment = "development"
	Staging     Environment = "staging"
	Production  Environment = "production"
)

// PasswordPlaceholder is DB_PASSWORD's default. Production refuses it.
const PasswordPlaceholder = "postgres_password_placeholder"

// AutoPrefetch is WorkerSettings.Prefetch when the engine is to measure for itself.
const AutoPrefetch = -1

// Config is every setting, parsed, checked and with its default filled in. It
// is made by [Load], belongs to the caller and is safe to read from several
// goroutines as long as nobody writes.
type Config struct {
	Env   Environment
	Debug bool // verbose logs; never in production

	// LocalPostgres asks for a private Postgres kept in .data: development with
	// neither DATABASE_URL nor DB_HOST set. DB.URL is empty then.
	LocalPostgres bool

	Server    ServerSettings
	DB        DatabaseSettings
	Worker    WorkerSettings
	Retry     RetrySettings
	API       APISettings
	Auth      AuthSettings
	Bootstrap BootstrapSettings
	Retention RetentionSettings
	Integrity IntegritySettings
	Metrics   MetricsSettings
	Log       LogSettings
	SMTP      SMTPSettings
	Webhook   WebhookSettings
	Console   ConsoleSettings
	Ctl       CtlSettings

	given     map[string]bool
	effective []Effective
}

// Effective is a setting as it holds, for people to read. A secret's value is not
// in it.
type Effective struct{ Name, Value, Source string }

// Effective lists every setting read, in the order of the documents. Source is
// the variable the value came from, or "default".
func (c *Config) Effective() []Effective { return c.effective }

// ServerSettings are for the listener of API and console.
type ServerSettings struct {
	Host           string // 0.0.0.0 once sign-in is set up, else 127.0.0.1
	Port           int    // 1 to 65535
	Workers        bool   // the server runs workers too
	PublicURL      string // for links, without a trailing slash
	TrustedProxies []netip.Prefix
}

// Addr is Host and Port as net.Listen takes them.
func (s ServerSettings) Addr() string {
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// DatabaseSettings are for the pool and for migrations.
type DatabaseSettings struct {
	URL        Secret // DATABASE_URL, or the DB_ parts put together
	MigrateURL Secret // empty: the same as URL
	MaxConns   int
	Timeout    time.Duration // per statement
}

// MigrationURL is the address for migrations: MigrateURL, or URL where that is empty.
func (d DatabaseSettings) MigrationURL() Secret {
	if d.MigrateURL != "" {
		return d.MigrateURL
	}
	return d.URL
}

// WorkerSettings are for the engine.
type WorkerSettings struct {
	Concurrency       int           // goroutines that run handlers
	LeaseDuration     time.Duration // a claim without a heartbeat lasts this long
	HeartbeatInterval time.Duration // at most a third of LeaseDuration
	ReaperInterval    time.Duration
	CrashLimit        int           // crashes alone in a child before a job is poison
	SuspectMemory     int           // MiB that child may take beyond the program's own; 0 is no limit
	Prefetch          int           // jobs claimed ahead, or AutoPrefetch
	StopGrace         time.Duration // from a stop request to the revoked lease
	Queues            []string      // nil: all
	PollInterval      time.Duration
	JobTimeout        time.Duration // one execution
	ShutdownTimeout   time.Duration // drain
}

// RetrySettings are the policy of job types that bring none of their own.
type RetrySettings struct {
	BaseBackoff time.Duration
	MaxBackoff  time.Duration // at least BaseBackoff
	MaxAttempts int           // 1 to 100
	Strategy    string        // full_jitter or exponential
	DLQEnabled  bool          // false: exhausted jobs are discarded at once
}

// APISettings are the API's limits.
type APISettings struct {
	RequestTimeout  time.Duration
	PayloadMaxBytes int
	RateLimit       Rate // per token; the zero Rate is no limit
	IdempotencyTTL  time.Duration
}

// Rate is so many requests in a span of time. The zero Rate means no limit.
type Rate struct {
	Count int
	Per   time.Duration
}

// AuthSettings are for signing in to the console.
type AuthSettings struct {
	// Mode is none, local, or empty: none in development on a loopback address
	// while no user exists, and local everywhere else.
	Mode           string
	SessionIdleTTL time.Duration // a session that is not used ends; at most SessionTTL
	SessionTTL     time.Duration // every session ends
}

// BootstrapSettings open an empty installation.
type BootstrapSettings struct {
	Token         Secret // the first API token
	AdminPassword Secret // of the first admin; empty: none is made
}

// IntegritySettings are for the check of the stored history.
type IntegritySettings struct {
	CheckInterval time.Duration // zero: never, but by jobctl verify
}

// RetentionSettings say how long things are kept. Zero is for ever.
type RetentionSettings struct {
	Completed, Cancelled, Dead, Audit time.Duration
}

// MetricsSettings are for /metrics and, on the worker, the probes beside it.
type MetricsSettings struct {
	Addr  string // empty on the server: the same listener as the API
	Token Secret // empty: no token asked for
}

// LogSettings are for the logger.
type LogSettings struct {
	Level  slog.Level
	Format string // json or text
}

// SMTPSettings are for the built-in email job. An empty Host means no mail server.
type SMTPSettings struct {
	Host     string
	Port     int
	User     string
	Password Secret
	From     string // an RFC 5322 address
	TLS      string // starttls, tls, opportunistic or none
}

// WebhookSettings are for the built-in webhook job.
type WebhookSettings struct {
	AllowHosts  []string // names, addresses or ranges allowed although private
	SigningKeys []Secret // each whsec_ and base64; all sign, so that keys can be rotated
}

// ConsoleSettings are for the web console.
type ConsoleSettings struct {
	BasePath string   // where it stands, without a slash at its end
	Mask     []string // parts of payload keys whose values are hidden
}

// CtlSettings are for jobctl.
type CtlSettings struct {
	Server  string // base URL without a trailing slash
	Token   Secret
	Profile string // a chapter of jobctl's file; empty: the one that the file says
	NoColor bool   // NO_COLOR is set, or TERM is dumb
	// DumbTerminal: TERM is dumb.
	DumbTerminal bool
	// ConfigDir is where a person's settings are kept, HomeDir where their files are;
	// empty where the environment does not say.
	ConfigDir, HomeDir string
}

// Given reports whether a variable was set, under its own name, its second name
// or as NAME_FILE. It tells a setting apart from its default.
func (c *Config) Given(name string) bool { return c.given[name] }

// Secret is a string that prints as [redacted] through fmt, slog and JSON.
type Secret string

// Reveal is the secret itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String is [redacted], or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// GoString keeps %#v from printing the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText keeps JSON from holding the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue keeps log lines from holding the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// FromEnvironment is [Load] on the environment of this process.
func FromEnvironment(which Binary) (*Config, []string, error) {
	return Load(os.LookupEnv, os.Environ(), which)
}

// Load reads the settings that which needs. getenv is os.LookupEnv or its like;
// environ is "NAME=value" lines and serves only to find names nobody reads.
//
// The strings are notes for the log: a second name used, a likely misspelling,
// a setting without effect. They never hold a secret. The error is an [*Error]
// with every mistake found; the Config is nil then.
func Load(getenv func(string) (string, bool), environ []string, which Binary) (*Config, []string, error) {
	r := &reader{getenv: getenv, which: which, bad: map[string]bool{},
		cfg: &Config{given: map[string]bool{}}}
	for _, g := range groups {
		if which == Ctl && !g.ctl {
			continue
		}
		for _, s := range g.settings {
			r.read(s)
		}
	}
	r.derive()
	if which != Ctl {
		r.check()
		r.noteUnused(environ)
	}
	if len(r.problems) > 0 {
		return nil, r.notes, &Error{Problems: r.problems}
	}
	return r.cfg, r.notes, nil
}

// Problem is one mistake.
type Problem struct {
	Name  string // the variable as it was set
	Value string // quoted and cut short; empty for secrets and for what is missing
	Want  string // what is allowed, or what to do
}

// Error is every mistake of one environment.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	var b strings.Builder
	if len(e.Problems) == 1 {
		b.WriteString("settings: 1 mistake")
	} else {
		b.WriteString("settings: " + strconv.Itoa(len(e.Problems)) + " mistakes")
	}
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.Name)
		if p.Value != "" {
			b.WriteString("=" + p.Value)
		}
		b.WriteString(": " + p.Want)
	}
	return b.String()
}
