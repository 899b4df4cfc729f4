//go:build unix

// Package proctest builds the real programs and runs them, for tests: with an
// environment of their own, in a folder of their own, never longer than the test.
package proctest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	buildLimit = 3 * time.Minute
	killLimit  = 20 * time.Second // for a killed program's Postgres to follow it
	poll       = 10 * time.Millisecond
	module     = "github.com/reliable-job-engine/reliable-job-engine"
)

var built struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// Build builds a program of cmd/, once per test process. Any user may run it.
func Build(t testing.TB, name string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[name]; path != "" {
		return path
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "programs")
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.paths = dir, map[string]string{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	path := filepath.Join(built.dir, name)
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, module+"/cmd/"+name).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	built.paths[name] = path
	return path
}

// Run runs a package's tests and removes what [Build] built.
func Run(m *testing.M) int {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // in the system's folder for what is temporary
	}
	return code
}

// Options say how a program runs.
type Options struct {
	Dir string   // working directory
	Env []string // NAME=value; nothing else is set but PATH
	UID int      // 0 is the user of the test
}

// Program is one that runs. Its methods are for one goroutine at a time.
type Program struct {
	t        testing.TB
	cmd      *exec.Cmd
	dir      string
	out, err buffer
	done     chan struct{}
}

// Start starts path. When t ends it is killed, if it still runs.
func Start(t testing.TB, path string, o Options, args ...string) *Program {
	t.Helper()
	p := &Program{t: t, cmd: exec.Command(path, args...), dir: o.Dir, done: make(chan struct{})}
	p.cmd.Dir = o.Dir
	p.cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, o.Env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	// What a dying program leaves behind may hold its pipes; nobody waits for that.
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.UID != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.UID)}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the state says how it ended
	}()
	t.Cleanup(p.cleanUp)
	return p
}

func (p *Program) cleanUp() {
	pg := p.Postgres()
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	if pg > 0 && !gone(pg, killLimit) {
		p.t.Errorf("Postgres %d outlived its program", pg)
		_ = syscall.Kill(pg, syscall.SIGQUIT)
	}
	if p.t.Failed() {
		p.t.Logf("%s: stdout:\n%s\nstderr:\n%s", filepath.Base(p.cmd.Path), p.Stdout(), p.Stderr())
	}
}

// Signal sends s to the program alone.
func (p *Program) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v: %v", s, err)
	}
}

// Ended waits for the program's end and returns its exit code, -1 for one that was
// killed. It fails the test if the program goes on for longer than limit.
func (p *Program) Ended(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("%s still runs after %s", filepath.Base(p.cmd.Path), limit)
		return 0
	}
}

// Stdout is what it has written so far.
func (p *Program) Stdout() string { return p.out.String() }

// Stderr is what it has written so far.
func (p *Program) Stderr() string { return p.err.String() }

// Postgres is the process id of the local Postgres that runs from the program's
// folder, 0 without one.
func (p *Program) Postgres() int {
	var state struct {
		PID int `json:"pid"`
	}
	text, err := os.ReadFile(filepath.Join(p.dir, ".data", "postgres.json"))
	if err != nil || json.Unmarshal(text, &state) != nil {
		return 0
	}
	return state.PID
}

// Gone waits until a process has ended.
func Gone(t testing.TB, pid int, limit time.Duration) {
	t.Helper()
	if pid <= 0 || !gone(pid, limit) {
		t.Fatalf("process %d has not ended within %s", pid, limit)
	}
}

func gone(pid int, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(poll) {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) {
			return true
		}
	}
	return false
}

// zombie tells a process that has ended and waits for its parent to notice.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	after := strings.LastIndexByte(string(text), ')')
	return err == nil && after > 0 && strings.HasPrefix(string(text[after+1:]), " Z")
}

// FreePort is a port of 127.0.0.1 that was free a moment ago.
func FreePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

// Ready waits until url answers 200, and fails the test after limit or once the
// program has ended. It returns how long that took.
func (p *Program) Ready(url string, limit time.Duration) time.Duration {
	p.t.Helper()
	began := time.Now()
	client := &http.Client{Timeout: limit}
	last := "nothing"
	for time.Since(began) < limit {
		res, err := client.Get(url)
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return time.Since(began)
			}
			last = res.Status
		} else {
			last = err.Error()
		}
		select {
		case <-p.done:
			p.t.Fatalf("it has ended with code %d", p.cmd.ProcessState.ExitCode())
		case <-time.After(poll):
		}
	}
	p.t.Fatalf("%s answers %s after %s", url, last, limit)
	return 0
}

// Until asks for ok until it is true, and fails the test after limit.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(poll) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %s: %s", limit, what)
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Children are the processes that the program has started and that live.
func (p *Program) Children() []int {
	p.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	var pids []int
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil && !zombie(pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
