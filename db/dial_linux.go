package db

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeoutMillis is how long sent data or a probe may stay unanswered. Without
// it a query sent into a dead network waits for the kernel's retransmissions,
// some fifteen minutes, since keepalive only watches an idle connection.
const userTimeoutMillis = 20_000

func userTimeout(network, _ string, c syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeoutMillis)
	}); e != nil {
		return e
	}
	return err
}
