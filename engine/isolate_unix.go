//go:build unix

package engine

import (
	"os/exec"
	"syscall"
)

// canIsolate tells whether a child gets pipes beyond its standard ones here.
const canIsolate = true

func closeOnExec(fd int) { syscall.CloseOnExec(fd) }

// killGroup ends a child and what it has started. The caller has not yet reaped
// the child, so that the number is still its own.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing is left to kill
}
