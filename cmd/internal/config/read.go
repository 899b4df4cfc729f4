package config

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// reader is one run of Load.
type reader struct {
	getenv   func(string) (string, bool)
	which    Binary
	cfg      *Config
	parts    dbParts
	notes    []string
	problems []Problem
	bad      map[string]bool // settings whose value cannot be relied on
}

func (r *reader) note(s string) { r.notes = append(r.notes, s) }

// problem records a mistake. value is quoted and cut short here.
func (r *reader) problem(name, value, want string) {
	if len(value) > 80 {
		value = value[:80] + "..."
	}
	if value != "" {
		value = strconv.Quote(value)
	}
	r.bad[name] = true
	r.problems = append(r.problems, Problem{Name: name, Value: value, Want: want})
}

// value is a variable that is set and not empty.
func (r *reader) value(name string) (string, bool) {
	v, ok := r.getenv(name)
	return v, ok && v != ""
}

// read finds one setting's value and puts it, or its default, into the Config.
func (r *reader) read(s setting) {
	raw, from, ok := r.lookup(s)
	r.cfg.given[s.name] = ok
	if !ok {
		raw, from = s.def, s.name
	}
	r.cfg.effective = append(r.cfg.effective, s.effective(raw, from, ok))
	if raw == "" {
		return
	}
	if !s.secret {
		raw = strings.TrimSpace(raw)
	}
	if s.kind.parse(r, raw) {
		return
	}
	if s.secret || strings.Contains(raw, "@") { // an address may hold a password
		raw = ""
	}
	r.problem(from, raw, s.kind.want)
	r.bad[s.name] = true
}

// effective is the setting for people to read.
func (s setting) effective(raw, from string, given bool) Effective {
	e := Effective{Name: s.name, Value: strings.TrimSpace(raw), Source: from}
	switch {
	case given && (s.secret || strings.Contains(raw, "@")):
		e.Value = "set, hidden"
	case given:
	case s.derived != "":
		e.Value, e.Source = s.derived, "default"
	default:
		e.Source = "default"
	}
	return e
}

// lookup gives the value and the variable it came from: the name itself, its
// file, or the first second name that is set.
func (r *reader) lookup(s setting) (raw, from string, ok bool) {
	raw, ok = r.value(s.name)
	if s.secret {
		path, inFile := r.value(s.name + "_FILE")
		switch {
		case ok && inFile:
			r.problem(s.name+"_FILE", "", "must not be set together with "+s.name)
			r.bad[s.name] = true
		case inFile:
			return r.fromFile(s.name, path)
		}
	}
	for _, second := range s.also {
		v, set := r.value(second)
		switch {
		case set && ok:
			r.note(second + " has no effect: " + s.name + " is set")
		case set:
			r.note(second + " is read for " + s.name + ", which is not set")
			return v, second, true
		}
	}
	return raw, s.name, ok
}

// maxSecretFile bounds what is read of a NAME_FILE; a secret is far smaller.
const maxSecretFile = 64 << 10

// fromFile reads a secret and takes one newline from its end, since editors
// and echo add one.
func (r *reader) fromFile(name, path string) (raw, from string, ok bool) {
	from = name + "_FILE"
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var data []byte
		data, err = io.ReadAll(io.LimitReader(f, maxSecretFile+1))
		raw = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	}
	switch {
	case err != nil:
		r.problem(from, path, "must be a readable file: "+reason(err))
	case raw == "":
		r.problem(from, path, "must be a file with the secret in it; it is empty")
	case len(raw) > maxSecretFile:
		r.problem(from, path, "must be a file of at most 64 KiB")
	default:
		return raw, from, true
	}
	r.bad[name] = true
	return "", from, true
}

// reason is a file error without the act and the path, which the message has already.
func reason(err error) string {
	if pe, ok := err.(*os.PathError); ok {
		err = pe.Err
	}
	return err.Error()
}

// derive fills in the defaults that depend on other settings.
func (r *reader) derive() {
	c, given := r.cfg, r.cfg.given
	if !given["APP_DEBUG"] {
		c.Debug = c.Env != Production
	}
	if !given["LOG_LEVEL"] && c.Debug {
		c.Log.Level = slog.LevelDebug
	}
	if !given["LOG_FORMAT"] {
		c.Log.Format = "json"
		if c.Env == Development {
			c.Log.Format = "text"
		}
	}
	color, _ := r.value("NO_COLOR")
	term, _ := r.value("TERM")
	c.Ctl.DumbTerminal = term == "dumb"
	c.Ctl.NoColor = color != "" || c.Ctl.DumbTerminal
	r.deriveFolders()
	if r.which == Ctl {
		return
	}
	r.deriveServer()
	r.chooseDatabase()
	if !given["WORKER_SHUTDOWN_TIMEOUT"] {
		c.Worker.ShutdownTimeout = c.Worker.JobTimeout
	}
	if !given["SMTP_PORT"] {
		c.SMTP.Port = 587
		if c.SMTP.TLS == "tls" {
			c.SMTP.Port = 465
		}
	}
	if !given["METRICS_ADDR"] && r.which == Worker {
		c.Metrics.Addr = ":9090"
	}
}

// deriveFolders follows the XDG base directories: a relative XDG_CONFIG_HOME is
// none.
func (r *reader) deriveFolders() {
	ctl := &r.cfg.Ctl
	ctl.HomeDir, _ = r.value("HOME")
	if ctl.ConfigDir, _ = r.value("XDG_CONFIG_HOME"); !filepath.IsAbs(ctl.ConfigDir) {
		ctl.ConfigDir = ""
		if ctl.HomeDir != "" {
			ctl.ConfigDir = filepath.Join(ctl.HomeDir, ".config")
		}
	}
}

func (r *reader) deriveServer() {
	c, given := r.cfg, r.cfg.given
	if !given["SERVER_HOST"] {
		c.Server.Host = "127.0.0.1"
		if given["BOOTSTRAP_TOKEN"] && c.Auth.Mode != "none" {
			c.Server.Host = "0.0.0.0"
		}
	}
	if !given["SERVER_WORKERS"] {
		c.Server.Workers = c.Env == Development
	}
	if !given["PUBLIC_URL"] {
		name := c.Server.Host
		if name == "0.0.0.0" || name == "::" {
			name = "localhost"
		}
		c.Server.PublicURL = "http://" + net.JoinHostPort(name, strconv.Itoa(c.Server.Port))
	}
}

// ok says that none of the named settings is already known to be wrong.
func (r *reader) ok(names ...string) bool {
	for _, n := range names {
		if r.bad[n] {
			return false
		}
	}
	return true
}

// check looks at settings together.
func (r *reader) check() {
	c, given := r.cfg, r.cfg.given
	if w := c.Worker; r.ok("WORKER_LEASE_DURATION", "WORKER_HEARTBEAT_INTERVAL") && w.HeartbeatInterval > w.LeaseDuration/3 {
		r.problem("WORKER_HEARTBEAT_INTERVAL", short(w.HeartbeatInterval), fmt.Sprintf(
			"must be at most a third of WORKER_LEASE_DURATION, which is %s; set it to %s or less", short(w.LeaseDuration), short(w.LeaseDuration/3)))
	}
	if y := c.Retry; r.ok("RETRY_BASE_BACKOFF", "RETRY_MAX_BACKOFF") && y.MaxBackoff < y.BaseBackoff {
		r.problem("RETRY_MAX_BACKOFF", short(y.MaxBackoff), "must be at least RETRY_BASE_BACKOFF, which is "+short(y.BaseBackoff))
	}
	if a := c.Auth; r.ok("SESSION_IDLE_TTL", "SESSION_TTL") && a.SessionIdleTTL > a.SessionTTL {
		r.problem("SESSION_IDLE_TTL", short(a.SessionIdleTTL), "must be at most SESSION_TTL, which is "+short(a.SessionTTL))
	}
	if given["SMTP_HOST"] && !given["SMTP_FROM"] {
		r.problem("SMTP_FROM", "", "must be set together with SMTP_HOST")
	}
	if given["SMTP_USER"] != given["SMTP_PASSWORD"] {
		r.problem("SMTP_USER", "", "must be set together with SMTP_PASSWORD, or neither")
	}
	if !r.ok("APP_ENV") {
		return
	}
	if c.Env == Production {
		if c.Debug && r.ok("APP_DEBUG") {
			r.problem("APP_DEBUG", "true", "is refused in production; leave it out, and set LOG_LEVEL=debug for a while if need be")
		}
		r.checkProductionDatabase()
	}
	if r.which == Server {
		r.checkSignIn()
	}
}

// checkSignIn keeps a server that asks nobody who they are to this machine.
func (r *reader) checkSignIn() {
	c := r.cfg
	if c.Auth.Mode == "none" {
		switch {
		case c.Env != Development:
			r.problem("AUTH_MODE", "none", "is refused in "+string(c.Env)+": everybody could do everything; leave it out, or set local")
			return
		case r.ok("SERVER_HOST") && !isLoopback(c.Server.Host):
			r.problem("AUTH_MODE", "none", "is refused at SERVER_HOST "+c.Server.Host+", which other machines reach; set AUTH_MODE=local, or SERVER_HOST=127.0.0.1")
			return
		}
	}
	if c.given["BOOTSTRAP_TOKEN"] {
		return
	}
	switch {
	case c.Env == Production:
		r.problem("BOOTSTRAP_TOKEN", "", "must be set in production, or BOOTSTRAP_TOKEN_FILE: without it anybody could use the API")
	case r.ok("SERVER_HOST") && !isLoopback(c.Server.Host):
		r.problem("SERVER_HOST", c.Server.Host, "is open to other machines while sign-in is not set up; set BOOTSTRAP_TOKEN, or SERVER_HOST=127.0.0.1")
	}
}
