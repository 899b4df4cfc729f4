package db_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// TestAConnectionNoticesASilentNetworkWithin30s reads the options that the kernel
// acts on: the first probe after silence, those after it, and the end of patience.
func TestAConnectionNoticesASilentNetworkWithin30s(t *testing.T) {
	t.Parallel()
	conn, err := dbtest.New(t).Acquire(timeout(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	raw, err := conn.Conn().PgConn().Conn().(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	get := func(level, option int) (value int) {
		err := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, option) })
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	if get(unix.SOL_SOCKET, unix.SO_KEEPALIVE) == 0 {
		t.Error("keepalive is off")
	}
	idle, interval := get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
	patience := get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) / 1000
	// The kernel looks at the user timeout when it sends a probe.
	if longest := max(idle, patience) + interval; patience == 0 || longest > 30 {
		t.Errorf("idle %ds, interval %ds, user timeout %ds: up to %ds until a loss is noticed, want at most 30s",
			idle, interval, patience, longest)
	}
}
