package localpg

import (
	"context"
	"os"
	"os/exec"
	"runtime"
)

// maxLog is the size from which a start begins the log file anew.
const maxLog = 8 << 20

// process is a running postmaster.
type process struct {
	pid      int
	handle   *os.Process
	lifeline *os.File
	done     chan struct{} // closed when it has ended
}

// run starts Postgres. The thread that starts it stays with it: on Linux the
// kernel stops Postgres when that thread dies, and Go ends idle threads.
func run(p place, b binaries, args []string, throwaway bool) (*process, error) {
	log, err := openLog(p.logFile())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(b.postgres(), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.data(), serverEnv(), p.as.attr()
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd.SysProcAttr, throwaway)
	running := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(running.done)
		defer log.Close()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			running.pid, running.handle = cmd.Process.Pid, cmd.Process
			running.lifeline, err = holdLifeline(cmd.Process.Pid)
			if err != nil {
				running.kill()
			}
		}
		started <- err
		if cmd.Process != nil {
			// How it ended is in its log; that it ended is all that counts here.
			_ = cmd.Wait()
		}
		if running.lifeline != nil {
			running.lifeline.Close()
		}
	}()
	return running, <-started
}

func openLog(path string) (*os.File, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err == nil {
		keepOwner(path)
	}
	return file, err
}

// ended waits until the process is gone or ctx is over.
func (p *process) ended(ctx context.Context) bool {
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// kill ends the process without ado; an error means that it has ended.
func (p *process) kill() { _ = p.handle.Kill() }
