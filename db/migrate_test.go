package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

func TestTwelveStartersMigrateAnAbsentDatabaseAtOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		wg.Go(func() { errs[i] = db.Migrate(timeout(t, time.Minute), url, nil) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("starter %d: %v", i, err)
		}
	}
	if err := db.CheckSchema(timeout(t, 10*time.Second), connect(t, url)); err != nil {
		t.Error(err)
	}
}

func TestEachPendingMigrationIsAppliedOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for range 2 {
		if err := db.MigrateFiles(timeout(t, time.Minute), url, logger, files(first, second)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "migration applied"); n != 2 {
		t.Errorf("log tells of %d applied migrations, want 2:\n%s", n, &log)
	}
}

// TestAMigrationBrokenInTheMiddleLeavesNothing fails at each statement in turn, and
// then completes with the file as it should have been.
func TestAMigrationBrokenInTheMiddleLeavesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	conn := migrateTo(t, url, first)
	good := []string{"CREATE TABLE b1 (id int);", "INSERT INTO a VALUES (1);", "CREATE TABLE b2 (id int);"}
	for at := range len(good) + 1 {
		broken := append(append(append([]string{}, good[:at]...), "SELECT 1/0;"), good[at:]...)
		err := db.MigrateFiles(timeout(t, time.Minute), url, nil, files(first, migration("20260102000000_b.sql", broken...)))
		if err == nil || !strings.Contains(err.Error(), "division by zero") {
			t.Fatalf("broken at %d: err = %v", at, err)
		}
		if got := scan(t, conn, leftovers); got != "b1=f b2=f rows=0 versions=1" {
			t.Errorf("broken at %d left: %s", at, got)
		}
	}
	if err := db.MigrateFiles(timeout(t, time.Minute), url, nil, files(first, migration("20260102000000_b.sql", good...))); err != nil {
		t.Fatal(err)
	}
	if got := scan(t, conn, leftovers); got != "b1=t b2=t rows=1 versions=2" {
		t.Errorf("the next start left: %s", got)
	}
}

const leftovers = `SELECT format('b1=%s b2=%s rows=%s versions=%s',
	to_regclass('b1') IS NOT NULL, to_regclass('b2') IS NOT NULL,
	(SELECT count(*) FROM a), (SELECT count(*) FROM schema_migrations))`

func TestAMigrationCutOffByItsContextLeavesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	conn := migrateTo(t, url, first)
	slow := migration("20260102000000_b.sql", "CREATE TABLE b1 (id int);", "SELECT pg_sleep(30);", "CREATE TABLE b2 (id int);")
	begun := time.Now()
	err := db.MigrateFiles(timeout(t, 500*time.Millisecond), url, nil, files(first, slow))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want context.DeadlineExceeded", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %v to give up", took)
	}
	// The lock is free and the broken session gone: the next start completes.
	quick := migration("20260102000000_b.sql", "CREATE TABLE b1 (id int);", "CREATE TABLE b2 (id int);")
	if err := db.MigrateFiles(timeout(t, 20*time.Second), url, nil, files(first, quick)); err != nil {
		t.Fatal(err)
	}
	if got := scan(t, conn, leftovers); got != "b1=t b2=t rows=0 versions=2" {
		t.Errorf("the next start left: %s", got)
	}
}

func TestWaitingForAnotherStarterIsBounded(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	holder := connect(t, url)
	if _, err := holder.Exec(timeout(t, 10*time.Second), "SELECT pg_advisory_lock($1)", db.MigrationLock); err != nil {
		t.Fatal(err)
	}
	err := db.Migrate(timeout(t, 300*time.Millisecond), url, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want context.DeadlineExceeded", err)
	}
}

// TestAWaitingStarterDoesNotBlockAConcurrentIndex would deadlock if starters waited
// inside pg_advisory_lock.
func TestAWaitingStarterDoesNotBlockAConcurrentIndex(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	migrateTo(t, url, first)
	index := migration("20260102000000_b.sql", "CREATE INDEX CONCURRENTLY a_id ON a (id);")
	index.text = strings.Replace(index.text, "migrate:up", "migrate:up transaction:false", 1)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if err := db.MigrateFiles(timeout(t, 20*time.Second), url, nil, files(first, index)); err != nil {
				t.Errorf("starter %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func TestDownTakesBackOneVersion(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	conn := migrateTo(t, url, first, second)
	ctx := timeout(t, time.Minute)
	for _, want := range []string{"20260101000000", ""} {
		if err := db.DownFiles(ctx, url, files(first, second)); err != nil {
			t.Fatal(err)
		}
		if got := scan(t, conn, "SELECT coalesce(max(version), '') FROM schema_migrations"); got != want {
			t.Errorf("version after Down = %q, want %q", got, want)
		}
	}
	if err := db.DownFiles(ctx, url, files(first, second)); !errors.Is(err, db.ErrNothingToRollBack) {
		t.Errorf("third Down: %v, want ErrNothingToRollBack", err)
	}
}

func TestDownRefusesAVersionItDoesNotKnow(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	migrateTo(t, url, first, second)
	var mismatch *db.SchemaMismatchError
	if err := db.DownFiles(timeout(t, time.Minute), url, files(first)); !errors.As(err, &mismatch) {
		t.Errorf("err = %v, want a SchemaMismatchError", err)
	}
}

func TestEveryEmbeddedMigrationGoesDownAndUpAgain(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	ctx := timeout(t, time.Minute)
	var before bytes.Buffer
	if err := db.Dump(ctx, url, &before); err != nil {
		t.Fatal(err)
	}
	status, err := db.Status(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	for range status {
		if err := db.Down(ctx, url); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Migrate(ctx, url, nil); err != nil {
		t.Fatal(err)
	}
	var after bytes.Buffer
	if err := db.Dump(ctx, url, &after); err != nil {
		t.Fatal(err)
	}
	if before.String() != after.String() {
		t.Error("the schema after all the way down and up differs from the one before")
	}
}

func TestStatusListsWhatEitherSideKnows(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	migrateTo(t, url, first, second)
	third := migration("20260103000000_c.sql", "SELECT 1;")
	got, err := db.StatusFiles(timeout(t, 10*time.Second), url, files(first, third))
	if err != nil {
		t.Fatal(err)
	}
	want := []db.MigrationStatus{
		{Version: "20260101000000", Name: "20260101000000_a.sql", Applied: true, Known: true},
		{Version: "20260102000000", Applied: true},
		{Version: "20260103000000", Name: "20260103000000_c.sql", Known: true},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Status = %+v, want %+v", got, want)
	}
}

func TestCheckSchemaTellsBothVersionsAndWhatToDo(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	conn := migrateTo(t, url, first)
	third := migration("20260103000000_c.sql", "SELECT 1;")
	ctx := timeout(t, 10*time.Second)
	for _, c := range []struct {
		binary fs.FS
		words  []string
	}{
		{files(first, second), []string{"20260101000000", "20260102000000", "older", "migrate"}},
		{files(migration("20250101000000_z.sql", "SELECT 1;")), []string{"20260101000000", "20250101000000", "newer", "deploy"}},
		{files(first, second, third), []string{"20260103000000"}},
	} {
		err := db.CheckSchemaFiles(ctx, conn, c.binary)
		var mismatch *db.SchemaMismatchError
		if !errors.As(err, &mismatch) {
			t.Fatalf("err = %v, want a SchemaMismatchError", err)
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q lacks %q", err, word)
			}
		}
	}
	if err := db.CheckSchemaFiles(ctx, conn, files(first)); err != nil {
		t.Errorf("equal versions: %v", err)
	}
	if _, err := conn.Exec(ctx, "DROP TABLE schema_migrations"); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSchemaFiles(ctx, conn, files(first)); err == nil || !strings.Contains(err.Error(), "no schema yet") {
		t.Errorf("without any schema: %v", err)
	}
}

// TestMigrateFindsThePrimaryAmongSeveralHosts has a dead address first.
func TestMigrateFindsThePrimaryAmongSeveralHosts(t *testing.T) {
	t.Parallel()
	url := dbtest.NewEmptyURL(t)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	several := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=1,%d user=%s password=%s dbname=%s sslmode=disable target_session_attrs=read-write",
		config.Port, config.User, config.Password, config.Database)
	if err := db.Migrate(timeout(t, time.Minute), several, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSchema(timeout(t, 10*time.Second), connect(t, url)); err != nil {
		t.Error(err)
	}
}

func TestDumpIsStableAndLoadable(t *testing.T) {
	t.Parallel()
	ctx := timeout(t, time.Minute)
	url := dbtest.NewURL(t)
	var dumps [2]bytes.Buffer
	for i := range dumps {
		if err := db.Dump(ctx, url, &dumps[i]); err != nil {
			t.Fatal(err)
		}
	}
	text := dumps[0].String()
	if text != dumps[1].String() {
		t.Error("two dumps of one schema differ")
	}
	for _, changing := range []string{"restrict ", "Dumped from", "Dumped by"} {
		if strings.Contains(text, changing) {
			t.Errorf("the dump has %q, which changes from run to run", changing)
		}
	}
	copied := dbtest.NewEmptyURL(t)
	conn := migrateTo(t, copied, first) // makes the database
	for _, sql := range []string{"DROP TABLE a, schema_migrations", text} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("load the dump: %v", err)
		}
	}
	if err := db.CheckSchema(ctx, connect(t, copied)); err != nil {
		t.Errorf("after loading the dump: %v", err)
	}
}

type file struct{ name, text string }

var (
	first  = migration("20260101000000_a.sql", "CREATE TABLE a (id int);")
	second = migration("20260102000000_b.sql", "CREATE TABLE b (id int);")
)

// migration undoes all its tables by the name its file has.
func migration(name string, up ...string) file {
	table := strings.TrimSuffix(name[strings.Index(name, "_")+1:], ".sql")
	return file{name, "-- migrate:up\n" + strings.Join(up, "\n") + "\n\n-- migrate:down\nDROP TABLE " + table + ";\n"}
}

func files(list ...file) fs.FS {
	tree := fstest.MapFS{}
	for _, f := range list {
		tree["migrations/"+f.name] = &fstest.MapFile{Data: []byte(f.text)}
	}
	return tree
}

func migrateTo(t *testing.T, url string, list ...file) *pgx.Conn {
	t.Helper()
	if err := db.MigrateFiles(timeout(t, time.Minute), url, nil, files(list...)); err != nil {
		t.Fatal(err)
	}
	return connect(t, url)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(timeout(t, 10*time.Second), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		conn.Close(ctx)
	})
	return conn
}

func scan(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var value string
	if err := conn.QueryRow(timeout(t, 10*time.Second), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
