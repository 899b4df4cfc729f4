//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/enginetest"
)

const limit = 40 * time.Second

// shop is the program on a database of its own.
type shop struct {
	t       *testing.T
	program string
	url     string
	pool    *pgxpool.Pool
}

func (s shop) command(dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), s.program, append([]string{"-url", s.url, "-lease", "1500ms"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd
}

func (s shop) run(args ...string) string {
	s.t.Helper()
	out, err := s.command(s.t.TempDir(), args...).Output()
	if err != nil {
		s.t.Fatalf("orders %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

func (s shop) count(of string) (n int) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM "+of).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// One receipt for an order, wherever its first worker is killed: before the handler, with
// the receipt written and not committed, after the commit, before and after the engine
// has taken note of it.
func TestOneReceiptWhereverTheWorkerIsKilled(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "orders")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "faultpoints", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for point, committed := range map[string]int{"run.before": 0, "completetx.before": 0, "completetx.after": 0, "run.after": 1, "finish.intx": 1} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			url := dbtest.NewURL(t)
			s := shop{t, program, url, dbtest.OpenURL(t, url)}
			s.run("setup")
			if got := s.run("place", "customer@example.com"); got != "order 1" {
				t.Fatalf("place says %q, want order 1", got)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "fault-armed"), []byte(point+" 1"), 0o600); err != nil {
				t.Fatal(err)
			}
			first := s.command(dir, "work")
			if err := first.Run(); err == nil || first.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the first worker ended with %v, want SIGKILL", err)
			}
			if n := s.count("receipts"); n != committed {
				t.Errorf("%d receipts when the worker was killed, want %d", n, committed)
			}

			second := s.command(t.TempDir(), "work")
			if err := second.Start(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(limit); s.count("job_states WHERE state = 'completed'") == 0 && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
			}
			if got := s.run("place", "customer@example.com"); got != "order 2" { // and the shop is open
				t.Errorf("place says %q, want order 2", got)
			}
			for end := time.Now().Add(limit); s.count("job_states WHERE state = 'completed'") < 2 && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
			}
			if err := second.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := second.Wait(); err != nil {
				t.Errorf("the second worker: %v", err)
			}
			if jobs, sent := s.count("job_states WHERE state = 'completed'"), s.count("receipts"); jobs != 2 || sent != 2 || s.count("receipts WHERE order_id = 1") != 1 {
				t.Errorf("%d jobs completed, %d receipts, want 2 and 2", jobs, sent)
			}
		})
	}
}

// What the shop asks of the engine is seen without a database, but for the transaction.
func TestAnOrderWithoutAnAddressIsADeadLetter(t *testing.T) {
	t.Parallel()
	workers := engine.NewWorkers()
	engine.Register(workers, receipts(nil), engine.TypeOptions{})
	got, err := enginetest.Run(context.Background(), workers, sendReceipt{OrderID: 1}, enginetest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]any{engine.StateDeadLetter, engine.ReasonPermanent, "the order has no address"}, []any{got.State, got.Reason, got.Message}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
