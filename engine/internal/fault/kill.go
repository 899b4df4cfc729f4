//go:build faultpoints && unix

// Package fault kills the process at a named point: see the doc of the build
// without the tag.
package fault

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
)

const (
	// ArmedFile holds a point's name and a number n, "claim.sent 3": the n-th pass
	// of it is the last thing this process does. It is read once, at the start.
	ArmedFile = "fault-armed"
	// FiredFile is what the armed file is renamed to right before the end: proof
	// that the point was met, and the reason why one file kills one process.
	FiredFile = "fault-fired"
)

var (
	armed string
	left  atomic.Int64
)

func init() {
	text, err := os.ReadFile(ArmedFile)
	if err != nil {
		return // none is armed
	}
	var n int64
	if _, err := fmt.Sscan(string(text), &armed, &n); err != nil || n < 1 {
		panic("fault: " + ArmedFile + " must hold a point's name and a number from 1")
	}
	left.Store(n)
}

// Point kills the process, with SIGKILL as the kernel would, if it is armed.
func Point(name string) {
	if name != armed || left.Add(-1) != 0 {
		return
	}
	if os.Rename(ArmedFile, FiredFile) != nil {
		return // another process of this folder was first
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
