package db

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Dump writes what the migrations add up to: the schema of url's database as
// pg_dump prints it, then the versions applied. Two dumps of one schema are equal,
// whichever minor versions pg_dump and server have. It needs a pg_dump on PATH or
// in Debian's folders, not older than the server.
func Dump(ctx context.Context, address string, w io.Writer) error {
	config, err := parseURL(address)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return connectError(&config.Config, err)
	}
	defer closeConn(conn)
	versions, err := appliedVersions(ctx, conn)
	if err != nil {
		return err
	}
	schema, err := runPgDump(ctx, conn.PgConn(), config, address)
	if err != nil {
		return fmt.Errorf("dump schema of database %s: %w", config.Database, err)
	}
	_, err = io.WriteString(w, stable(schema)+versionRows(versions))
	if err != nil {
		return fmt.Errorf("write schema of database %s: %w", config.Database, err)
	}
	return nil
}

func runPgDump(ctx context.Context, conn *pgconn.PgConn, config *pgx.ConnConfig, address string) (string, error) {
	serverMajor, _, _ := strings.Cut(conn.ParameterStatus("server_version"), ".")
	tool, err := findPgDump(ctx, serverMajor)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, tool, "--schema-only", "--no-owner", "--no-privileges",
		"--encoding=UTF8", "--dbname="+libpqAddress(address))
	// On the command line every user of the machine could read the password.
	cmd.Env = append(os.Environ(), "PGPASSWORD="+config.Password)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// findPgDump takes the one on PATH unless it is too old for the server; pg_dump
// refuses a newer server than itself.
func findPgDump(ctx context.Context, serverMajor string) (string, error) {
	var found []string
	if path, err := exec.LookPath("pg_dump"); err == nil {
		found = append(found, path)
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/pg_dump", "/usr/pgsql-*/bin/pg_dump", "/opt/homebrew/opt/*/bin/pg_dump"} {
		// Glob's one error is a malformed pattern.
		matches, _ := filepath.Glob(pattern)
		found = append(found, matches...)
	}
	for _, path := range found {
		if major := pgDumpMajor(ctx, path); len(major) >= len(serverMajor) && major >= serverMajor {
			return path, nil
		}
	}
	return "", fmt.Errorf("no pg_dump of version %s or newer: install the PostgreSQL %s client tools or put them on PATH", serverMajor, serverMajor)
}

var pgDumpVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func pgDumpMajor(ctx context.Context, path string) string {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	m := pgDumpVersion.FindSubmatch(out)
	if err != nil || m == nil {
		return ""
	}
	return string(m[1])
}

// libpqAddress is address without password and without the settings that only
// pgx knows.
func libpqAddress(address string) string {
	if !strings.Contains(address, "://") {
		return passwordSetting.ReplaceAllString(address, "")
	}
	address, query, _ := strings.Cut(address, "?")
	scheme, rest, _ := strings.Cut(address, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, _, _ := strings.Cut(rest[:at], ":")
		rest = user + rest[at:]
	}
	// The settings were read once already, when the connection was opened.
	settings, _ := url.ParseQuery(query)
	for name := range settings {
		if name == "password" || strings.HasPrefix(name, "pool_") || strings.HasPrefix(name, "default_query_") ||
			strings.HasSuffix(name, "_cache_capacity") || strings.HasSuffix(name, "_timeout") && name != "connect_timeout" {
			settings.Del(name)
		}
	}
	return scheme + "://" + rest + "?" + settings.Encode()
}

// changing are lines that differ between two dumps of one schema: a random key of
// psql's, and versions.
var changing = regexp.MustCompile(`(?m)^(\\(un)?restrict .*|-- Dumped (from|by) .*)\n`)

var blankLines = regexp.MustCompile(`\n{3,}`)

func stable(dump string) string {
	dump = changing.ReplaceAllString(dump, "")
	dump = blankLines.ReplaceAllString(dump, "\n\n")
	return strings.Trim(dump, "\n") + "\n"
}

// versionRows ends the dump as dbmate does, so that loading it is as good as
// migrating.
func versionRows(versions []string) string {
	text := "\n--\n-- Dbmate schema migrations\n--\n"
	if len(versions) == 0 {
		return text
	}
	return text + "\nINSERT INTO public.schema_migrations (version) VALUES\n    ('" +
		strings.Join(versions, "'),\n    ('") + "');\n"
}
