//go:build unix

package dbtest

import (
	"errors"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

func running(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// lifelines are the pipes whose end tells the shells below of this process's end;
// kept here, for an unreachable file is closed by the garbage collector.
var lifelines []io.Closer

// removeAfterExit leaves a shell behind that waits for this process's end (the end
// of its standard input), then for the server's, for 10s at most, and removes dir.
func removeAfterExit(server int, dir string) error {
	const script = `read -r _
n=0
while kill -0 "$0" 2>/dev/null && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.05; done
kill -0 "$0" 2>/dev/null || rm -rf -- "$1"`
	cmd := exec.Command("/bin/sh", "-c", script, strconv.Itoa(server), dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	lifelines = append(lifelines, pipe)
	return cmd.Start()
}
