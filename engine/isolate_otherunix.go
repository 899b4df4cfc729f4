//go:build unix && !linux

package engine

import (
	"os"
	"os/exec"
	"syscall"
)

const canLimitMemory = false

func selfPath() (string, error) { return os.Executable() }

// bind puts the child in a group of its own. It ends with its parent when it
// sees the pipe closed.
func bind(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// limitMemory knows no limit that a Go program meets soundly here; [New] refuses one.
func limitMemory(int64) error { return nil }
