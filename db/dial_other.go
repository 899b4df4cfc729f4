//go:build !linux

package db

import "syscall"

// userTimeout does nothing where TCP_USER_TIMEOUT is not known: keepalive alone
// watches the connection there.
func userTimeout(string, string, syscall.RawConn) error { return nil }
