// Package db opens the database and keeps its schema in step with the program:
// migrations are embedded, applied by one starter at a time, and compared with
// what the database has before the program calls itself ready.
package db

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock of whoever changes the schema. The number
// means nothing; it only must not be used for anything else in this database.
const migrationLock int64 = 0x6a6f62735f6d6967

// lockPoll is the pause between two tries for the migration lock.
const lockPoll = 100 * time.Millisecond

// Migrate applies every embedded migration that url's database lacks, in order,
// each in its own transaction, and creates the database if it is missing. Any
// number of starters may call it at once: one works, the others wait for it.
// ctx bounds the waiting and the work; a migration cut off by it leaves nothing.
// url must reach Postgres directly, not through a transaction pooler, where the
// lock would mean nothing. log may be nil.
func Migrate(ctx context.Context, url string, log *slog.Logger) error {
	return migrate(ctx, url, log, migrations)
}

// Down takes back the newest applied migration, or returns [ErrNothingToRollBack].
// A version that this binary does not know is refused with a
// [*SchemaMismatchError]: only the binary that brought it can take it back.
func Down(ctx context.Context, url string) error {
	return down(ctx, url, migrations)
}

// ErrNothingToRollBack says that no migration has been applied.
var ErrNothingToRollBack = errors.New("no migration has been applied, so there is none to roll back")

func migrate(ctx context.Context, url string, log *slog.Logger, files fs.FS) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config, err := parseURL(url)
	if err != nil {
		return err
	}
	if err := ensureDatabase(ctx, config); err != nil {
		return err
	}
	err = underLock(ctx, config, func(*pgx.Conn) error {
		return runDBMate(ctx, config, log, files, (*dbmate.DB).Migrate)
	})
	if err != nil {
		return fmt.Errorf("migrate database %s: %w", config.Database, err)
	}
	return nil
}

func down(ctx context.Context, url string, files fs.FS) error {
	config, err := parseURL(url)
	if err != nil {
		return err
	}
	err = underLock(ctx, config, func(conn *pgx.Conn) error {
		database, err := appliedVersion(ctx, conn)
		if err != nil {
			return err
		}
		if database == "" {
			return ErrNothingToRollBack
		}
		if binary := newestVersion(files); database > binary {
			return &SchemaMismatchError{Database: database, Binary: binary}
		}
		log := slog.New(slog.DiscardHandler)
		return runDBMate(ctx, config, log, files, (*dbmate.DB).Rollback)
	})
	if err != nil {
		return fmt.Errorf("roll back database %s: %w", config.Database, err)
	}
	return nil
}

// ensureDatabase creates config's database if it is missing. Of two creators one
// loses the race, which is as good as having won it.
func ensureDatabase(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		return conn.Close(ctx)
	}
	if !hasCode(err, "3D000") { // invalid_catalog_name: there is no such database
		return connectError(&config.Config, err)
	}
	admin := config.Copy()
	admin.Database = "postgres"
	conn, err = pgx.ConnectConfig(ctx, admin)
	if err != nil {
		return connectError(&admin.Config, err)
	}
	defer closeConn(conn)
	for {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{config.Database}.Sanitize())
		switch {
		// duplicate_database, or the unique index of pg_database when both
		// creators were past that check.
		case err == nil, hasCode(err, "42P04"), hasCode(err, "23505"):
			return nil
		case !hasCode(err, "55006"): // object_in_use: template1 is being copied
			return fmt.Errorf("create database %s: %w", config.Database, err)
		}
		if err := pause(ctx, lockPoll); err != nil {
			return fmt.Errorf("create database %s: %w", config.Database, err)
		}
	}
}

// underLock runs do while a connection of its own holds the migration lock.
//
// It asks again and again instead of waiting inside pg_advisory_lock: a waiting
// statement holds a snapshot, CREATE INDEX CONCURRENTLY waits for old snapshots,
// and so the migration and the starters waiting for it would deadlock.
func underLock(ctx context.Context, config *pgx.ConnConfig, do func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return connectError(&config.Config, err)
	}
	defer closeConn(conn)
	for {
		var got bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", migrationLock).Scan(&got)
		if err != nil {
			return fmt.Errorf("take the migration lock: %w", err)
		}
		if got {
			return do(conn) // closing the connection gives the lock back
		}
		wait := lockPoll/2 + rand.N(lockPoll)
		if err := pause(ctx, wait); err != nil {
			return fmt.Errorf("wait for another starter's migrations: %w", err)
		}
	}
}

// runDBMate calls act on a dbmate.DB over files, connected through pgx.
func runDBMate(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger, files fs.FS, act func(*dbmate.DB) error) error {
	session, done := openSession(ctx, config)
	defer done()
	mate := dbmate.New(&url.URL{Scheme: sessionScheme, Host: "session", Path: "/" + session})
	mate.AutoDumpSchema = false
	mate.FS = files
	mate.MigrationsDir = []string{"migrations"}
	reader, writer := io.Pipe()
	mate.Log = writer
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		logLines(reader, log)
	}()
	err := withoutPanic(act, mate)
	writer.Close()
	<-logged
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
	}
	return err
}

// withoutPanic makes an error of dbmate's panic when it can't close a connection,
// as happens to one that the server's end has broken.
func withoutPanic(act func(*dbmate.DB) error, mate *dbmate.DB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close connection: %v", p)
		}
	}()
	return act(mate)
}

func logLines(r io.Reader, log *slog.Logger) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		act, what, found := strings.Cut(lines.Text(), ": ")
		if !found {
			continue
		}
		log.Info("migration "+strings.ToLower(act), "migration", what)
	}
}

// newestVersion is the highest version among the migration files, "" without any.
func newestVersion(files fs.FS) string {
	newest := ""
	for _, m := range embedded(files) {
		newest = max(newest, m.Version)
	}
	return newest
}

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// closeConn ends conn even when the caller's context is over, in bounded time.
// Its error tells nothing the caller could act on: the server drops the session.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// parseURL reads url for statements that may take as long as ctx allows: a
// migration of a big table is no slow query.
func parseURL(url string) (*pgx.ConnConfig, error) {
	if url == "" {
		return nil, ErrNoURL
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, badURL(url, err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = defaultConnectTimeout
	}
	config.DialFunc = dialer(config.ConnectTimeout).DialContext
	config.RuntimeParams["statement_timeout"] = strconv.Itoa(0)
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "migrate"
	}
	return config, nil
}
