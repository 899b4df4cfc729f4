//go:build unix

package dbtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const signalQuit = syscall.SIGQUIT

// freeze is a process tree that stands still.
type freeze struct {
	pids    []int
	watcher *exec.Cmd
	release io.WriteCloser
}

// freezeTree stops the process parent, so that it makes no more children, then
// the children. A stopped process ignores the signal that its owner's death would
// send, so a shell watches meanwhile and kills them all if this process ends.
func freezeTree(parent int) (*freeze, error) {
	f := &freeze{}
	for next := []int{parent}; len(next) > 0; {
		for _, pid := range next {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, errors.Join(fmt.Errorf("stop process %d: %w", pid, err), f.thaw())
			}
			f.pids = append(f.pids, pid)
		}
		children, err := childrenOf(parent)
		if err != nil {
			return nil, errors.Join(err, f.thaw())
		}
		next = slices.DeleteFunc(children, func(pid int) bool { return slices.Contains(f.pids, pid) })
	}
	if err := f.watch(); err != nil {
		return nil, errors.Join(err, f.thaw())
	}
	return f, nil
}

func (f *freeze) watch() error {
	args := []string{"-c", `read -r _ || kill -KILL "$@"`, "watch"}
	for _, pid := range f.pids {
		args = append(args, strconv.Itoa(pid))
	}
	cmd := exec.Command("/bin/sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.watcher, f.release = cmd, pipe
	return nil
}

// thaw lets the children go on first: the parent acts on what they do.
func (f *freeze) thaw() error {
	var errs []error
	if f.watcher != nil {
		_, err := io.WriteString(f.release, "thawed\n")
		errs = append(errs, err, f.watcher.Wait())
	}
	for _, pid := range slices.Backward(f.pids) {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("continue process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// kill ends all of them where they stand.
func (f *freeze) kill() error {
	var errs []error
	for _, pid := range f.pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("kill process %d: %w", pid, err))
		}
	}
	_, err := io.WriteString(f.release, "ended\n")
	return errors.Join(append(errs, err, f.watcher.Wait())...)
}

// childrenOf reads /proc, or asks ps where there is none.
func childrenOf(parent int) ([]int, error) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // a constant pattern is well formed
	if len(stats) == 0 {
		return childrenByPS(parent)
	}
	var children []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid ...; the name may hold spaces and brackets.
		_, rest, _ := cutLast(string(text), ")")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children, nil
}

func childrenByPS(parent int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		var pid, ppid int
		if _, err := fmt.Sscan(line, &pid, &ppid); err == nil && ppid == parent {
			children = append(children, pid)
		}
	}
	return children, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
