//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"context"
)

func TestPostgresDoesNotOutliveAKilledOwner(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	o := startOwner(t, dir)
	ask(t, o.URL, "CREATE TABLE kept AS SELECT 'still here' AS words")
	o.kill(t)
	begun := time.Now()
	eventually(t, 10*time.Second, "Postgres is there 10s after its owner was killed", func() bool {
		return !isServer(o.PID, filepath.Join(dir, "postgres"))
	})
	t.Logf("Postgres ended %v after its owner", time.Since(begun).Round(time.Millisecond))
	if _, err := Find(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Find: %v, want ErrNotRunning", err)
	}
	if got := ask(t, start(t, Options{DataDir: dir}).URL(), "SELECT words FROM kept"); got != "still here" {
		t.Errorf("the next start finds %q", got)
	}
}

// TestAStartRightAfterAKilledOwnerWaits: the old Postgres is still stopping.
func TestAStartRightAfterAKilledOwnerWaits(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	o := startOwner(t, dir)
	o.kill(t)
	start(t, Options{DataDir: dir})
}

func TestASecondProgramOnTheSameDataIsRefused(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	o := startOwner(t, dir)
	_, err := Start(limit(t, time.Minute), Options{DataDir: dir, NoDownload: true})
	if !errors.Is(err, ErrAlreadyRunning) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", o.OwnerPID)) {
		t.Errorf("err = %v, want ErrAlreadyRunning and the process", err)
	}
	if got, err := Find(dir); err != nil || got != o.URL {
		t.Errorf("Find = %q, %v, want %q", got, err, o.URL)
	}
	o.stdin.Close()
	if err := o.cmd.Wait(); err != nil {
		t.Errorf("the owner's orderly stop: %v", err)
	}
	start(t, Options{DataDir: dir})
}

// TestAPostgresStartedByHandIsLeftAlone: it is none of ours to wait for or to stop.
func TestAPostgresStartedByHandIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	s := start(t, Options{DataDir: dir})
	removeState(dir)
	s.lock.release()
	_, err := Start(limit(t, time.Minute), Options{DataDir: dir, NoDownload: true})
	if !errors.Is(err, ErrAlreadyRunning) || !strings.Contains(err.Error(), strconv.Itoa(s.PID())) {
		t.Errorf("err = %v, want ErrAlreadyRunning and the process", err)
	}
	if got := ask(t, s.URL(), "SELECT 'untouched'"); got != "untouched" {
		t.Errorf("the other server says %q", got)
	}
}

// TestAStalePidFileDoesNotStopTheStart has the id of a process that never was a
// Postgres, as after the restart of a container.
func TestAStalePidFileDoesNotStopTheStart(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	s := start(t, Options{DataDir: dir})
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	path := filepath.Join(dir, "postgres", "postmaster.pid")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("a killed server left no pid file: %v", err)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	stale := strings.Replace(string(text), strconv.Itoa(s.PID()), strconv.Itoa(other.Process.Pid), 1)
	if err := os.WriteFile(path, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, Options{DataDir: dir})
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process that has the id was harmed: %v", err)
	}
}

// TestStopIsBounded stops a server that can't answer.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	s, err := Start(limit(t, time.Minute), Options{DataDir: dir, NoDownload: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	err = s.Stop(ctx)
	if err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("Stop = %v, want word of the killing", err)
	}
	if took := time.Since(begun); took > quitTimeout+2*time.Second {
		t.Errorf("Stop took %v", took)
	}
	stop(t, s)
	start(t, Options{DataDir: dir})
}

func TestALifelineSignalsWhenItsHolderIsGone(t *testing.T) {
	t.Parallel()
	victim := exec.Command("sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := lifeline(victim.Process.Pid, "INT")
	if err != nil {
		t.Fatal(err)
	}
	line.Close() // as the kernel does when the process ends
	ended := make(chan error, 1)
	go func() { ended <- victim.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
			t.Errorf("it ended with %v, want an interrupt", err)
		}
	case <-time.After(10 * time.Second):
		victim.Process.Kill()
		t.Error("it was not signalled within 10s")
	}
}
