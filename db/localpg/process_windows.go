package localpg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// interrupt asks for a fast shutdown. Windows has no signals: Postgres is told
// through pg_ctl, and if that is missing, quit ends it.
func (p *process) interrupt(where place) {
	image, err := exec.LookPath("pg_ctl")
	if err != nil {
		return
	}
	_ = exec.Command(image, "stop", "-m", "fast", "-W", "-D", where.data()).Run()
}

func (p *process) quit() { _ = p.handle.Kill() }

func quitPID(pid int) {
	if handle, err := os.FindProcess(pid); err == nil {
		_ = handle.Kill()
	}
}

func alive(pid int) bool {
	handle, err := os.FindProcess(pid) // opens the process: an error means there is none
	if err != nil {
		return false
	}
	return handle.Release() == nil
}

var errLocked = errors.New("locked by another process")

// fileLock is the open file: Windows removes no file that a process has open.
type fileLock struct{ file *os.File }

func lockFile(path string) (*fileLock, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errLocked
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, errLocked
	}
	if err != nil {
		return nil, err
	}
	return &fileLock{file: file}, nil
}

func (l *fileLock) release() { l.file.Close() }

// identity is always this process's user; Postgres gives up administrator rights
// by itself on Windows.
type identity struct{}

func newPlace(dir string, _ bool) (place, error) { return place{dir: dir, home: dir}, nil }

func (identity) attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func (identity) own(string) error { return nil }

func (identity) owns(string) bool { return true }

func keepOwner(string) {}

func detach(attr *syscall.SysProcAttr, _ bool) {
	attr.CreationFlags = syscall.CREATE_NEW_PROCESS_GROUP
}

func holdLifeline(int) (*os.File, error) { return nil, nil }

// isServer asks whether the process that postmaster.pid names is there and runs.
func isServer(pid int, data string) bool {
	_, err := os.Stat(filepath.Join(data, "postmaster.pid"))
	return err == nil && alive(pid)
}
