//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const module = "github.com/reliable-job-engine/reliable-job-engine"

// built are the programs of this test process, with the points in them.
var built struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// build makes a program once.
func build(t testing.TB, name string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[name]; path != "" {
		return path
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "chaos-programs-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.paths = dir, map[string]string{}
	}
	path := filepath.Join(built.dir, filepath.Base(name))
	if out, err := exec.Command("go", "build", "-tags", "faultpoints", "-o", path, module+"/"+name).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	built.paths[name] = path
	return path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // the system's temporary folder is cleaned anyway
	}
	os.Exit(code)
}

// program is one place in the fleet: what runs there is killed and started again.
// Its methods are safe for several goroutines.
type program struct {
	name string
	path string
	args []string
	env  []string
	dir  string
	log  *os.File
	note func(happened)

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	away  time.Duration // how long to stay away after the end that comes
	gone  bool          // for good
	exits []string
}

// happened is an event that the judgement needs: what was done to whom, when, by
// this machine's clock, which is the database's too.
type happened struct {
	At   time.Time `json:"at"`
	What string    `json:"what"` // kill, freeze, thaw, start, exit, down, up, cut, reset ...
	Who  string    `json:"who"`
	PID  int       `json:"pid,omitempty"`
	How  string    `json:"how,omitempty"`
}

func (p *program) tell(what string, pid int, how string) {
	if p.note != nil {
		p.note(happened{time.Now(), what, p.name, pid, how})
	}
}

// start runs the program in a process group of its own.
func (p *program) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.cmd != nil {
		return nil
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, p.log, p.log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + p.dir}, p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.away = cmd, ended, 100*time.Millisecond
	p.tell("start", cmd.Process.Pid, "")
	go func() {
		_ = cmd.Wait() // the state says how
		p.mu.Lock()
		p.cmd = nil
		p.exits = append(p.exits, cmd.ProcessState.String())
		p.mu.Unlock()
		p.tell("exit", cmd.Process.Pid, cmd.ProcessState.String())
		close(ended)
	}()
	return nil
}

// signal sends s to the program, or with group to its children too. It tells
// whether there was one.
func (p *program) signal(s syscall.Signal, group bool) (pid int, done <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0, nil, false
	}
	pid = p.cmd.Process.Pid
	to := pid
	if group {
		to = -pid
	}
	return pid, p.ended, syscall.Kill(to, s) == nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// kill ends the program at once and waits until it is gone. Its children are left
// to notice. It stays away for a while.
func (p *program) kill(away time.Duration) bool {
	p.mu.Lock()
	p.away = away
	p.mu.Unlock()
	at := time.Now()
	pid, ended, ok := p.signal(syscall.SIGKILL, false)
	if !ok {
		return false
	}
	<-ended
	if p.note != nil {
		p.note(happened{at, "kill", p.name, pid, ""})
	}
	return true
}

// freeze stops the program and its children for a while; what was killed meanwhile
// was no zombie.
func (p *program) freeze(ctx context.Context, d time.Duration) bool {
	pid, ended, ok := p.signal(syscall.SIGSTOP, true)
	if !ok {
		return false
	}
	p.tell("freeze", pid, d.String())
	select {
	case <-time.After(d):
	case <-ended:
		return false
	case <-ctx.Done():
	}
	now, _, ok := p.signal(syscall.SIGCONT, true)
	if !ok || now != pid {
		return false
	}
	p.tell("thaw", pid, "")
	return true
}

// stop ends the program in order, and by force after patience.
func (p *program) stop(patience time.Duration) (clean bool) {
	_, ended, ok := p.signal(syscall.SIGTERM, false)
	if !ok {
		return true
	}
	select {
	case <-ended:
		return true
	case <-time.After(patience):
		_, _, _ = p.signal(syscall.SIGQUIT, false) // it tells in its log where it hangs
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			p.kill(0)
		}
		return false
	}
}

func (p *program) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil
}

func (p *program) lastExit() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.exits) == 0 {
		return ""
	}
	return p.exits[len(p.exits)-1]
}

// retire ends the program for good.
func (p *program) retire() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	_, _, _ = p.signal(syscall.SIGCONT, true)
	p.kill(0)
}

// watch starts the program again whenever it has ended by itself, as an init
// system does, until ctx ends.
func (p *program) watch(ctx context.Context, failed func(error)) {
	for ctx.Err() == nil {
		if err := p.start(); err != nil {
			failed(err)
			return
		}
		p.mu.Lock()
		ended := p.ended
		p.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		away := p.away
		p.mu.Unlock()
		pause(ctx, away)
	}
}

// newProgram makes a place in folder dir, with a log of its own.
func newProgram(t testing.TB, dir, name, path string, env []string, args ...string) *program {
	t.Helper()
	own := filepath.Join(dir, name)
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{name: name, path: path, args: args, env: env, dir: own, log: log}
	t.Cleanup(func() {
		p.retire()
		log.Close()
	})
	return p
}
