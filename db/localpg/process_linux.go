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

// alive tells whether process pid runs, be it another user's. One that has ended is
// there until its parent asks, in a container without an init for good.
func alive(pid int) bool {
	if !exists(pid) {
		return false
	}
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return exists(pid) // without /proc that is all there is to know
	}
	// pid (name) state ...; the name may hold spaces and brackets.
	end := strings.LastIndex(string(stat), ") ")
	return end < 0 || !strings.HasPrefix(string(stat[end+2:]), "Z")
}

// isServer tells whether pid is a Postgres on data, not a process that got the id
// of one.
func isServer(pid int, data string) bool {
	name, err := os.ReadFile(procFile(pid, "comm"))
	if err != nil || !strings.HasPrefix(string(name), "postgres") || !alive(pid) {
		return false
	}
	cwd, err := os.Readlink(procFile(pid, "cwd"))
	if err != nil {
		// In a container even root may not look at another user's process so
		// closely; its command line is open to all.
		line, err := os.ReadFile(procFile(pid, "cmdline"))
		return err == nil && strings.Contains(string(line), data)
	}
	if real, err := filepath.EvalSymlinks(data); err == nil {
		data = real
	}
	return cwd == data
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}
