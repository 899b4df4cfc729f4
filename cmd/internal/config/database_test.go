package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestAddressFromParts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lines             []string
		host, user, pw, n string
		port              uint16
	}{
		{[]string{"DB_HOST=db"}, "db", "postgres", PasswordPlaceholder, "reliable_job_engine", 5432},
		{[]string{"DB_HOST=::1", "DB_PORT=6000", "DB_USER=a@b", "DB_PASSWORD=p:/?#[]@ %", "DB_NAME=my jobs"}, "::1", "a@b", "p:/?#[]@ %", "my jobs", 6000},
		{[]string{"DB_HOST=/var/run/postgresql", "DB_PORT=6000"}, "/var/run/postgresql", "postgres", PasswordPlaceholder, "reliable_job_engine", 6000},
	} {
		c := mustLoad(t, Worker, tt.lines...)
		got, err := pgconn.ParseConfig(c.DB.URL.Reveal())
		if err != nil {
			t.Errorf("%q: %v", tt.lines, err)
			continue
		}
		if got.Host != tt.host || got.User != tt.user || got.Password != tt.pw || got.Database != tt.n || got.Port != tt.port || got.TLSConfig != nil {
			t.Errorf("%q makes %s %s %s %s %d", tt.lines, got.Host, got.User, got.Password, got.Database, got.Port)
		}
		if c.LocalPostgres || c.DB.MigrationURL() != c.DB.URL {
			t.Errorf("%q: LocalPostgres %v, MigrationURL is not URL", tt.lines, c.LocalPostgres)
		}
	}
	c := mustLoad(t, Worker, "DATABASE_URL="+dbAddress, "DB_MIGRATE_URL=host=direct user=jobs password=x dbname=jobs")
	if c.DB.URL.Reveal() != dbAddress || c.DB.MigrationURL() == c.DB.URL {
		t.Errorf("DB = %q, %q", c.DB.URL.Reveal(), c.DB.MigrationURL().Reveal())
	}
}

func TestWhichDatabaseIsNoted(t *testing.T) {
	t.Parallel()
	_, notes, _ := load(Server, "DATABASE_URL="+dbAddress, "DB_HOST=db")
	_, local, _ := load(Server, "DB_PORT=6000")
	want := []string{"DB_HOST has no effect: DATABASE_URL is used instead",
		"DB_PORT has no effect: without DB_HOST or DATABASE_URL a private Postgres is used"}
	if d := cmp.Diff(want, append(notes, local...)); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

// A start is refused with these mistakes, and with no others.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	production := func(lines ...string) []string {
		return append([]string{"APP_ENV=production", "BOOTSTRAP_TOKEN=" + token}, lines...)
	}
	for _, tt := range []struct {
		name  string
		which Binary
		lines []string
		want  string // names, with spaces between
	}{
		{"production is well", Server, production("DATABASE_URL=" + dbAddress), ""},
		{"no address in staging", Worker, []string{"APP_ENV=staging"}, "DATABASE_URL"},
		{"no address in production", Worker, []string{"APP_ENV=production"}, "DATABASE_URL"},
		{"no address for migrate", CtlDB, []string{"APP_ENV=production"}, "DATABASE_URL"},
		{"a port alone is no address", Worker, []string{"APP_ENV=staging", "DB_PORT=5432"}, "DATABASE_URL"},
		{"placeholder and plain text", Server, production("DB_HOST=db"), "DB_PASSWORD DB_SSLMODE"},
		{"placeholder in the address", Server, production("DATABASE_URL=postgres://u:" + PasswordPlaceholder + "@db/j?sslmode=require"), "DATABASE_URL"},
		{"no password in the address", Server, production("DATABASE_URL=postgres://u@db.example.com/j?sslmode=require&passfile=/nonexistent"), "DATABASE_URL"},
		{"plain text to this host", Server, production("DB_HOST=127.0.0.1", "DB_PASSWORD=x"), ""},
		{"plain text to a socket without password", Server, production("DATABASE_URL=postgres://u@/j?host=/run/pg&sslmode=disable"), ""},
		{"plain text to one of two hosts", Server, production("DATABASE_URL=postgres://u:p@127.0.0.1,db.example.com/j?sslmode=disable"), "DATABASE_URL"},
		{"plain text for migrations", Server, production("DATABASE_URL="+dbAddress, "DB_MIGRATE_URL=postgres://u:p@db/j?sslmode=disable"), "DB_MIGRATE_URL"},
		{"plain text in staging", Server, []string{"APP_ENV=staging", "DB_HOST=db"}, ""},
		{"debug in production", Server, production("DATABASE_URL="+dbAddress, "APP_DEBUG=true"), "APP_DEBUG"},
		{"no token in production", Server, []string{"APP_ENV=production", "DATABASE_URL=" + dbAddress}, "BOOTSTRAP_TOKEN"},
		{"worker needs no token", Worker, []string{"APP_ENV=production", "DATABASE_URL=" + dbAddress}, ""},
		{"open without sign-in", Server, []string{"SERVER_HOST=0.0.0.0"}, "SERVER_HOST"},
		{"open by name without sign-in", Server, []string{"SERVER_HOST=jobs.example.com"}, "SERVER_HOST"},
		{"open with sign-in", Server, []string{"SERVER_HOST=0.0.0.0", "BOOTSTRAP_TOKEN=" + token}, ""},
		{"loopback without sign-in", Server, []string{"SERVER_HOST=::1"}, ""},
		{"loopback by name", Server, []string{"SERVER_HOST=localhost"}, ""},
		{"bad environment alone", Server, []string{"APP_ENV=prod", "APP_DEBUG=true"}, "APP_ENV"},
	} {
		_, _, err := load(tt.which, tt.lines...)
		var names []string
		var e *Error
		if errors.As(err, &e) {
			for _, p := range e.Problems {
				names = append(names, p.Name)
			}
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s: refused for %q, want %q (%v)", tt.name, got, tt.want, err)
		}
	}
}

func TestFallingBackToPlainTextIsNoted(t *testing.T) {
	t.Parallel()
	_, notes, err := load(Worker, "APP_ENV=production", "DATABASE_URL=postgres://u:p@db.example.com/j?sslmode=prefer")
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "fall back to plain text") {
		t.Errorf("notes %q, error %v", notes, err)
	}
}
