package dbtest

import "os"

func running(pid int) bool {
	process, err := os.FindProcess(pid) // opens the process: an error means there is none
	return err == nil && process.Release() == nil
}

// removeAfterExit leaves the folder to the next test process.
func removeAfterExit(int, string) error { return nil }
