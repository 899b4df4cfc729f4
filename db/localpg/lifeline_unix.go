//go:build unix

package localpg

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// lifeline starts a watcher that signals pid when this process ends: it waits for
// the end of a pipe whose other end only this process holds. Closing the file
// lets the watcher go; pid has ended by then.
func lifeline(pid int, signal string) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	watcher := exec.Command("/bin/sh", "-c", `read -r _; kill -"$1" "$0"`, strconv.Itoa(pid), signal)
	watcher.Stdin = read
	watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := watcher.Start(); err != nil {
		write.Close()
		return nil, err
	}
	// It ends by itself, at the latest with this process.
	go func() { _ = watcher.Wait() }()
	return write, nil
}
