//go:build unix && !linux

package localpg

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// attr makes a child run as the identity.
func (a identity) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if a.change {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

func namespaceWorks(ids) bool { return false }

// detach puts Postgres in a process group of its own, so that Ctrl-C reaches this
// program alone, which stops Postgres last.
func detach(attr *syscall.SysProcAttr, _ bool) { attr.Setpgid = true }

// holdLifeline ties Postgres's life to this program's.
func holdLifeline(pid int) (*os.File, error) { return lifeline(pid, "INT") }

// alive tells whether process pid runs, be it another user's.
func alive(pid int) bool { return exists(pid) }

// isServer tells whether pid is a Postgres on data, not a process that got the id
// of one.
func isServer(pid int, data string) bool {
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "postgres") && strings.Contains(string(out), data)
}
