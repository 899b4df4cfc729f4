//go:build !unix

package engine

import (
	"os"
	"os/exec"
)

// canIsolate tells whether a child gets pipes beyond its standard ones here.
const canIsolate = false

func closeOnExec(int) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // nothing is left to kill

const canLimitMemory = false

func selfPath() (string, error) { return os.Executable() }

func bind(*exec.Cmd) {}

func limitMemory(int64) error { return nil }
