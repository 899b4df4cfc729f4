package localpg

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// attr makes a child run as the identity.
func (a identity) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	switch {
	case a.inside != nil:
		// Root keeps its own files, even in a folder that only root may enter, while
		// Postgres sees an ordinary id and has none of root's capabilities.
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: a.inside.uid, HostID: 0, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: a.inside.gid, HostID: 0, Size: 1}}
	case a.change:
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

// namespaceWorks tries a user namespace out; containers often refuse it.
func namespaceWorks(who ids) bool {
	cmd := exec.Command("/bin/sh", "-c", "exit 0")
	cmd.SysProcAttr = identity{inside: &who}.attr()
	return cmd.Run() == nil
}

// detach puts Postgres in a process group of its own, so that Ctrl-C reaches this
// program alone, which stops Postgres last; and ties its life to this program's.
func detach(attr *syscall.SysProcAttr, throwaway bool) {
	attr.Setpgid = true
	attr.Pdeathsig = syscall.SIGINT
	if throwaway {
		attr.Pdeathsig = syscall.SIGQUIT
	}
}

// holdLifeline has nothing to do: the kernel tells Postgres of its parent's death.
func holdLifeline(int) (*os.File, error) { return nil, nil }

// isServer tells whether pid is a Postgres on data, not a process that got the id
// of one.
func isServer(pid int, data string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(data); err == nil {
		data = real
	}
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	return err == nil && cwd == data && strings.HasPrefix(string(name), "postgres")
}
