package config

import (
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// dbParts are the DB_ settings that an address is put together from.
type dbParts struct {
	host, user, password, name, sslmode string
	port                                int
}

func part(to func(*dbParts) *string, allowed ...string) kind {
	want := "must not hold a NUL byte"
	if len(allowed) > 0 {
		want = "must be " + orList(allowed)
	}
	return kind{want, func(r *reader, raw string) bool {
		*to(&r.parts) = raw
		for _, a := range allowed {
			if raw == a {
				return true
			}
		}
		return len(allowed) == 0 && !strings.ContainsRune(raw, 0)
	}}
}

func partPort() kind {
	k := integer(1, 65535, func(*Config) *int { return new(int) })
	return kind{k.want, func(r *reader, raw string) bool {
		n, ok := whole(1, 65535)(raw)
		r.parts.port = n
		return ok
	}}
}

// url is the address. The parts are escaped, so that a password may hold anything.
func (p dbParts) url() Secret {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(p.user, p.password), Path: "/" + p.name}
	q := url.Values{"sslmode": {p.sslmode}}
	if strings.HasPrefix(p.host, "/") { // a Unix socket's folder cannot stand where a host does
		q.Set("host", p.host)
		q.Set("port", strconv.Itoa(p.port))
	} else {
		u.Host = net.JoinHostPort(strings.Trim(p.host, "[]"), strconv.Itoa(p.port))
	}
	u.RawQuery = q.Encode()
	return Secret(u.String())
}

// chooseDatabase settles which address is used.
func (r *reader) chooseDatabase() {
	given := r.cfg.given
	switch {
	case given["DATABASE_URL"]:
		r.noteIdleParts("DATABASE_URL is used instead", "DB_HOST", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME", "DB_SSLMODE")
	case given["DB_HOST"]:
		r.cfg.DB.URL = r.parts.url()
		if _, err := pgconn.ParseConfig(r.cfg.DB.URL.Reveal()); err != nil && !r.bad["DB_PORT"] && !r.bad["DB_SSLMODE"] {
			r.problem("DB_HOST", r.parts.host, "does not make a database address together with the other DB_ settings")
		}
	case r.cfg.Env == Development && !r.bad["APP_ENV"]:
		r.cfg.LocalPostgres = true
		r.noteIdleParts("without DB_HOST or DATABASE_URL a private Postgres is used", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME", "DB_SSLMODE")
	case !r.bad["APP_ENV"]:
		r.problem("DATABASE_URL", "", "must be set in "+string(r.cfg.Env)+", or DB_HOST with DB_USER, DB_PASSWORD and DB_NAME")
	}
}

func (r *reader) noteIdleParts(why string, names ...string) {
	for _, n := range names {
		if r.cfg.given[n] {
			r.note(n + " has no effect: " + why)
		}
	}
}

// checkProductionDatabase refuses what only a workstation may do.
func (r *reader) checkProductionDatabase() {
	password, sslmode := "DATABASE_URL", "DATABASE_URL"
	if !r.cfg.given["DATABASE_URL"] {
		password, sslmode = "DB_PASSWORD", "DB_SSLMODE"
	}
	if r.cfg.DB.URL != "" && !r.bad["DATABASE_URL"] {
		r.checkProductionURL(r.cfg.DB.URL, password, sslmode)
	}
	if r.cfg.DB.MigrateURL != "" && !r.bad["DB_MIGRATE_URL"] {
		r.checkProductionURL(r.cfg.DB.MigrateURL, "DB_MIGRATE_URL", "DB_MIGRATE_URL")
	}
}

func (r *reader) checkProductionURL(address Secret, passwordFrom, sslmodeFrom string) {
	c, err := pgconn.ParseConfig(address.Reveal())
	if err != nil {
		return // reported where it was parsed
	}
	withoutPassword := c.Password == "" && !hasCertificate(c.TLSConfig) && !strings.HasPrefix(c.Host, "/")
	if c.Password == PasswordPlaceholder || withoutPassword {
		r.problem(passwordFrom, "", "must have a password of its own in production, not none and not the placeholder")
	}
	switch plain, encrypted := reaches(c); {
	case plain && !encrypted:
		r.problem(sslmodeFrom, "", "sslmode disable is refused in production to any host but this one; use verify-full or require")
	case plain:
		r.note(sslmodeFrom + ": its sslmode lets a connection fall back to plain text; verify-full or require do not")
	}
}

func hasCertificate(c *tls.Config) bool {
	return c != nil && (len(c.Certificates) > 0 || c.GetClientCertificate != nil)
}

// reaches says whether another machine may be spoken to in plain text, and
// whether encrypted. pgx lists every host and way to try as fallbacks.
func reaches(c *pgconn.Config) (plain, encrypted bool) {
	ways := []*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}
	for _, way := range append(ways, c.Fallbacks...) {
		if isLoopback(way.Host) {
			continue
		}
		plain = plain || way.TLSConfig == nil
		encrypted = encrypted || way.TLSConfig != nil
	}
	return plain, encrypted
}

// isLoopback is true of addresses that only this machine reaches, Unix sockets included.
func isLoopback(host string) bool {
	if host == "localhost" || strings.HasPrefix(host, "/") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
