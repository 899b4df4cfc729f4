//go:build unix

package dbtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Pooler starts a PgBouncer in transaction mode before the database at address and
// returns its own address. It ends with t, and t is skipped where no PgBouncer is
// installed. Settings are lines of its section [pgbouncer].
func Pooler(t testing.TB, address string, settings ...string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if _, err := os.Stat("/usr/sbin/pgbouncer"); err != nil {
			t.Skip("pgbouncer is not installed: nothing was tested through a pooler")
		}
		program = "/usr/sbin/pgbouncer"
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().(*net.TCPAddr)
	_ = free.Close()
	dir := t.TempDir()
	password, _ := u.User.Password()
	ini := fmt.Sprintf(`[databases]
jobs = host=%s port=%s dbname=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 100
logfile = %s
%s
`, u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username(), password, listen.Port, filepath.Join(dir, "log"), strings.Join(settings, "\n"))
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	startPooler(t, program, file, dir)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", listen.String(), time.Second)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not listen: %v", err)
		}
	}
	return fmt.Sprintf("postgres://app@%s/jobs?sslmode=disable", listen)
}

// startPooler runs it as nobody where this is root: it refuses to be that.
func startPooler(t testing.TB, program, file, dir string) {
	t.Helper()
	cmd := exec.Command(program, file)
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for path := dir; path != filepath.Dir(path) && path != os.TempDir(); path = filepath.Dir(path) {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if said, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && t.Failed() {
			t.Logf("pgbouncer:\n%.4000s", said)
		}
	})
}
