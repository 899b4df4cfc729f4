//go:build unix

package localpg

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestMain lets the test binary play a program that owns a server: it starts one,
// tells about it on standard output and stops it when standard input ends.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCALPG_OWNER_OF"); dir != "" {
		own(dir)
		return
	}
	code := m.Run()
	if template != "" {
		os.RemoveAll(template)
	}
	os.Exit(code)
}

var (
	template     string
	makeTemplate = sync.OnceValue(func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if template, err = os.MkdirTemp("", "localpg-template-"); err != nil {
			return err
		}
		return Init(ctx, Options{DataDir: template, NoDownload: true, NoSync: true})
	})
)

// initialised is a data folder on which no server ran yet, a copy of one made once:
// for tests that are not about initdb, which takes most of a first start.
func initialised(t *testing.T) string {
	t.Helper()
	if err := makeTemplate(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(template)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "postgres"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{loginFile, "postgres.lock"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func own(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Start(ctx, Options{DataDir: dir, NoDownload: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(state{URL: s.URL(), PID: s.PID(), OwnerPID: os.Getpid()})
	io.Copy(io.Discard, os.Stdin)
	if err := s.Stop(ctx); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// owner is such a program.
type owner struct {
	state
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func startOwner(t *testing.T, dir string) *owner {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	o := &owner{cmd: exec.CommandContext(ctx, os.Args[0])}
	o.cmd.Env = append(os.Environ(), "LOCALPG_OWNER_OF="+dir)
	stdin, err := o.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &o.state) != nil {
		t.Fatalf("the owner said %q, %v", line, err)
	}
	return o
}

func (o *owner) kill(t *testing.T) {
	t.Helper()
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = o.cmd.Wait() // killed, as meant
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	begun := time.Now()
	o.NoDownload = o.MirrorURL == ""
	s, err := Start(limit(t, time.Minute), o)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Logf("Start took %v", time.Since(begun).Round(time.Millisecond))
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// ask runs sql, whose last statement yields one text.
func ask(t *testing.T, url, sql string) string {
	t.Helper()
	ctx := limit(t, 10*time.Second)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	rows := results[len(results)-1].Rows
	if len(rows) == 0 {
		return ""
	}
	return string(rows[0][0])
}

func limit(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, within time.Duration, complaint string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
	}
}
