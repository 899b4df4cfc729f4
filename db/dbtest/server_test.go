//go:build unix

package dbtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestCommittedRowsSurviveEveryKindOfEnd(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	query(t, s, "CREATE TABLE kept (how text)")
	port := s.Port()
	for _, end := range []struct {
		how string
		do  func()
	}{{"stop", s.Stop}, {"immediate", s.StopImmediate}, {"kill", s.Kill}, {"kill all", s.KillAll}} {
		query(t, s, "INSERT INTO kept VALUES ('"+end.how+"') RETURNING how")
		end.do()
		if _, err := connect(t, s, time.Second); err == nil {
			t.Fatalf("%s: the server still answers", end.how)
		}
		begun := time.Now()
		s.Start()
		t.Logf("start after %s took %v", end.how, time.Since(begun))
		if s.Port() != port {
			t.Errorf("%s: port = %d, want %d as before", end.how, s.Port(), port)
		}
	}
	if got := query(t, s, "SELECT string_agg(how, ' ') FROM kept"); got != "stop immediate kill kill all" {
		t.Errorf("rows after four ends = %q", got)
	}
	if got := query(t, s, "SHOW fsync"); got != "on" {
		t.Errorf("fsync = %q, want on", got)
	}
}

func TestAFrozenServerAnswersNobodyUntilThawed(t *testing.T) {
	t.Parallel()
	s := NewServer(t)
	conn, err := connect(t, s, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an open connection answered while frozen: %v", err)
	}
	if _, err := connect(t, s, 300*time.Millisecond); err == nil {
		t.Error("a new connection was answered while frozen")
	}
	s.Thaw()
	if got := query(t, s, "SELECT 'awake'"); got != "awake" {
		t.Errorf("after Thaw: %q", got)
	}
}

func TestServerSettingsArrive(t *testing.T) {
	t.Parallel()
	s := NewServer(t, "max_connections=7")
	if got := query(t, s, "SHOW max_connections"); got != "7" {
		t.Errorf("max_connections = %q, want 7", got)
	}
}

// TestNothingOutlivesAKilledTestProcess kills a test process that has both kinds of
// server, one of them frozen.
func TestNothingOutlivesAKilledTestProcess(t *testing.T) {
	if os.Getenv("DBTEST_VICTIM") != "" {
		victim(t)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=50s")
	cmd.Env = append(os.Environ(), "DBTEST_VICTIM=1", "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) == 0 && lines.Scan(); {
		for word := range strings.FieldsSeq(strings.TrimPrefix(lines.Text(), "pids ")) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	// Two postmasters with at least five processes below each.
	if len(pids) < 12 {
		t.Fatalf("the victim told of %d processes", len(pids))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as meant
	for _, pid := range pids {
		eventually(t, "postgres outlived its test process", func() bool { return !running(pid) })
	}
	// The throwaway's folder goes at once, the other's when the next process sweeps.
	t.Setenv("TMPDIR", temp)
	eventually(t, "folders of a killed test process stayed", func() bool {
		sweepFolders(ctx)
		left, err := os.ReadDir(temp)
		return err == nil && len(left) == 0
	})
}

func eventually(t *testing.T, complaint string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
	}
}

func victim(t *testing.T) {
	conn := New(t)
	var throwaway int
	err := conn.QueryRow(t.Context(), "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int").Scan(&throwaway)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(t)
	s.Freeze()
	children, err := childrenOf(throwaway)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("\npids", throwaway, strings.Trim(fmt.Sprint(children, s.frozen.pids), "[]"))
	time.Sleep(45 * time.Second)
}

func connect(t *testing.T, s *Server, timeout time.Duration) (*pgx.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return pgx.Connect(ctx, s.URL("postgres"))
}

func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := connect(t, s, 10*time.Second)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(values, " ")
}
