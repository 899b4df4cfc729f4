//go:build linux

package packaging

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second
)

// postgresProgram is a program of a Postgres installed here, the newest.
func postgresProgram(t *testing.T, name string) string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/usr/local/pgsql/bin"} {
		dirs, err := filepath.Glob(filepath.Join(pattern, name))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	if len(found) > 0 {
		slices.Sort(found)
		return found[len(found)-1]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s of PostgreSQL 15 or newer is needed: %v", name, err)
	}
	return path
}

// ordinary is the user that Postgres runs as, since it refuses root.
func ordinary(t *testing.T) *syscall.SysProcAttr {
	t.Helper()
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return attr
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		t.Fatal(err)
	}
	attr.Credential = &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
	return attr
}

// database is the Postgres of a service.
type database struct {
	service  types.ServiceConfig
	socket   string // a folder
	password string
}

// startPostgres initialises and starts one as the service says, with passwordFile as its
// secret, and makes its database. It listens on sockets alone, one in each folder, which
// is given to its user.
func startPostgres(t *testing.T, service types.ServiceConfig, passwordFile string, sockets ...string) *database {
	t.Helper()
	dir := shortDir(t)
	attr := ordinary(t)
	if c := attr.Credential; c != nil {
		for _, d := range append([]string{dir}, sockets...) {
			if err := os.Chown(d, int(c.Uid), int(c.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	password, err := os.ReadFile(passwordFile)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	args := append([]string{"--pgdata=" + data, "--username=" + value(service, "POSTGRES_USER"), "--pwfile=" + passwordFile},
		strings.Fields(value(service, "POSTGRES_INITDB_ARGS"))...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	initdb := exec.CommandContext(ctx, postgresProgram(t, "initdb"), args...)
	initdb.SysProcAttr, initdb.Dir, initdb.WaitDelay = attr, dir, time.Second
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb %q: %v\n%s", args, err, out)
	}
	args = append(slices.Clone(service.Command[1:]), "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+strings.Join(sockets, ","))
	var log bytes.Buffer
	cmd := exec.Command(postgresProgram(t, service.Command[0]), args...)
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = ordinary(t), dir, &log, &log, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(cmd, os.Interrupt, stopLimit); err != nil { // a fast shutdown, as the image's STOPSIGNAL asks for
			t.Errorf("postgres: %v\n%s", err, log.String())
		}
	})
	db := &database{service, sockets[0], strings.TrimSpace(string(password))}
	db.create(t)
	return db
}

// shortDir is a folder whose name is short enough for a socket in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pkg")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// end sends a signal and waits for the process's end, and kills it after limit.
func end(cmd *exec.Cmd, signal os.Signal, limit time.Duration) error {
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() }) // Wait tells
	defer late.Stop()
	return cmd.Wait()
}

// connect is one try, with a password.
func (db *database) connect(t *testing.T, name, password string) (*pgx.Conn, error) {
	t.Helper()
	c, err := pgx.ParseConfig("host=" + db.socket + " port=5432 sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	c.User, c.Database, c.Password, c.ConnectTimeout = value(db.service, "POSTGRES_USER"), name, password, 5*time.Second
	return pgx.ConnectConfig(t.Context(), c)
}

// open connects, and closes the connection at the end of the test.
func (db *database) open(t *testing.T, name string) *pgx.Conn {
	t.Helper()
	conn, err := db.connect(t, name, db.password)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server ends with the test anyway
	return conn
}

// create waits for the server and makes the database, as the image does.
func (db *database) create(t *testing.T) {
	t.Helper()
	until(t, startLimit, "Postgres answers", func() bool {
		conn, err := db.connect(t, "postgres", db.password)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	})
	conn := db.open(t, "postgres")
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+pgx.Identifier{value(db.service, "POSTGRES_DB")}.Sanitize()); err != nil {
		t.Fatal(err)
	}
}

// until asks for ok until it is true, and fails the test after limit.
func until(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %s: %s", limit, what)
}

// Postgres takes the flags that docker-compose.yml gives it, its checks answer, and its
// socket asks for the password.
func TestPostgresRunsAsItsServiceSays(t *testing.T) {
	t.Parallel()
	service := loadCompose(t).Services["postgres"]
	socket := shortDir(t)
	db := startPostgres(t, service, openSecret(t, newSecrets(t), "db_password"), socket)
	conn := db.open(t, value(service, "POSTGRES_DB"))
	asked := 0
	for _, arg := range service.Command {
		name, want, ok := strings.Cut(arg, "=")
		if !ok {
			continue
		}
		asked++
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
	if asked < 5 {
		t.Errorf("only %d settings in %q", asked, service.Command)
	}
	for name, want := range map[string]string{"data_checksums": "on", "server_encoding": "UTF8", "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
	for _, wrong := range []string{"", "wrong"} {
		_, err := db.connect(t, "postgres", wrong)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "28P01" {
			t.Errorf("with password %q: %v, want it refused", wrong, err)
		}
	}
	check := slices.Clone(service.HealthCheck.Test[1:])
	check[slices.Index(check, "--host=127.0.0.1")] = "--host=" + socket
	if out, err := run(t, "/", nil, postgresProgram(t, check[0]), check[1:]...); err != nil {
		t.Errorf("%q: %v\n%s", check, err, out)
	}
	check[slices.Index(check, "--host="+socket)] = "--host=" + t.TempDir()
	if _, err := run(t, "/", nil, postgresProgram(t, check[0]), check[1:]...); err == nil {
		t.Errorf("%q: a Postgres that is not there is healthy", check)
	}
}
