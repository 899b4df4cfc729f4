package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MigrationStatus is one migration as the binary and the database see it.
type MigrationStatus struct {
	Version string // the file's leading digits, YYYYMMDDHHMMSS
	Name    string // the file's name, "" for a version only the database has
	Applied bool   // the database has it
	Known   bool   // this binary has it
}

// Status lists every migration that the binary or the database has, oldest first.
// A database in which nothing was migrated yet has none applied.
func Status(ctx context.Context, url string) ([]MigrationStatus, error) {
	return status(ctx, url, migrations)
}

func status(ctx context.Context, url string, files fs.FS) ([]MigrationStatus, error) {
	config, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, connectError(&config.Config, err)
	}
	defer closeConn(conn)
	applied, err := appliedVersions(ctx, conn)
	if err != nil {
		return nil, err
	}
	list := embedded(files)
	for i := range list {
		at := slices.Index(applied, list[i].Version)
		if at >= 0 {
			list[i].Applied = true
			applied = slices.Delete(applied, at, at+1)
		}
	}
	for _, version := range applied {
		list = append(list, MigrationStatus{Version: version, Applied: true})
	}
	slices.SortFunc(list, func(a, b MigrationStatus) int { return strings.Compare(a.Version, b.Version) })
	return list, nil
}

// SchemaMismatchError says that database and binary were made for different
// schemas. An empty Database is one in which nothing was migrated yet.
type SchemaMismatchError struct {
	Database string // newest version applied
	Binary   string // newest version this binary knows
}

// Error says in plain words what differs and what to do.
func (e *SchemaMismatchError) Error() string {
	switch {
	case e.Database == "":
		return fmt.Sprintf("the database has no schema yet and this program needs version %s: run `jobctl migrate up`", e.Binary)
	case e.Database < e.Binary:
		return fmt.Sprintf("the database's schema is version %s, older than this program's %s: run `jobctl migrate up`", e.Database, e.Binary)
	default:
		return fmt.Sprintf("the database's schema is version %s, newer than this program's %s: deploy the program that brought it", e.Database, e.Binary)
	}
}

// Querier is what [CheckSchema] asks: a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// CheckSchema compares the newest version applied to the database with the newest
// one embedded and returns a [*SchemaMismatchError] if they differ. Any other
// error means that the database could not be asked.
func CheckSchema(ctx context.Context, q Querier) error {
	return checkSchema(ctx, q, migrations)
}

// SchemaVersions are the newest version applied to the database, "" before the
// first, and the newest this binary knows.
func SchemaVersions(ctx context.Context, q Querier) (database, binary string, err error) {
	database, err = appliedVersion(ctx, q)
	return database, newestVersion(migrations), err
}

func checkSchema(ctx context.Context, q Querier, files fs.FS) error {
	database, err := appliedVersion(ctx, q)
	if err != nil {
		return err
	}
	if binary := newestVersion(files); database != binary {
		return &SchemaMismatchError{Database: database, Binary: binary}
	}
	return nil
}

// appliedVersion is the newest version applied, "" for a database without any.
func appliedVersion(ctx context.Context, q Querier) (string, error) {
	var version string
	err := q.QueryRow(ctx, "SELECT coalesce(max(version), '') FROM schema_migrations").Scan(&version)
	if hasCode(err, "42P01") { // undefined_table
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the schema's version: %w", err)
	}
	return version, nil
}

func appliedVersions(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, "SELECT version FROM schema_migrations ORDER BY version")
	if err != nil && !hasCode(err, "42P01") {
		return nil, fmt.Errorf("read the applied migrations: %w", err)
	}
	versions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil && !hasCode(err, "42P01") {
		return nil, fmt.Errorf("read the applied migrations: %w", err)
	}
	return versions, nil
}

var migrationName = regexp.MustCompile(`^(\d+).*\.sql$`)

// embedded lists the migration files, oldest first, none marked as applied.
func embedded(files fs.FS) []MigrationStatus {
	// The folder is compiled in: reading it fails only if there is none.
	entries, _ := fs.ReadDir(files, "migrations")
	var list []MigrationStatus
	for _, entry := range entries {
		if m := migrationName.FindStringSubmatch(entry.Name()); m != nil {
			list = append(list, MigrationStatus{Version: m[1], Name: entry.Name(), Known: true})
		}
	}
	return list
}

// ErrReadOnly says that the database takes no writes: a standby, or one that was told so.
var ErrReadOnly = errors.New("the database takes no writes")

// CheckWritable returns [ErrReadOnly] where a transaction can't write, or why the
// database can't be asked. A full disk it does not find.
func CheckWritable(ctx context.Context, q Querier) error {
	var readOnly bool
	if err := q.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly {
		return ErrReadOnly
	}
	return nil
}
