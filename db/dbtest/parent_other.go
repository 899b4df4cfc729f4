//go:build !linux

package dbtest

import "os"

// parent is where data folders are made.
func parent() string { return os.TempDir() }
