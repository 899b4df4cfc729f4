package engine

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
)

const canLimitMemory = true

// selfPath is this program as it runs, also after its file was replaced.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// bind puts the child in a group of its own, which signals of a terminal do not
// reach, and has it killed when the thread that started it ends.
func bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limitMemory makes the kernel refuse this process more than most bytes beyond
// what it has now, which ends a Go program; the collector works harder before.
// RLIMIT_DATA counts what is mapped to be written; RLIMIT_AS would count what the
// runtime only reserves, over a gigabyte. With most 0 there is no limit. In any
// case the kernel, short of memory, takes this process before its parent.
func limitMemory(most int64) error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // where it may not, the kernel chooses
	if most <= 0 {
		return nil
	}
	var size, resident, shared, text, lib, data uint64
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(string(statm), &size, &resident, &shared, &text, &lib, &data); err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_DATA, &old); err != nil {
		return err
	}
	limit := min(data*uint64(os.Getpagesize())+uint64(most), old.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	if soft := most - most/10; debug.SetMemoryLimit(-1) > soft && most < math.MaxInt64/2 {
		debug.SetMemoryLimit(soft)
	}
	return nil
}
