package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
)

// clearLeftovers deals with a postmaster.pid that a crash left behind. This process
// holds the folder's lock, so the server it names has no living owner of ours.
func clearLeftovers(ctx context.Context, p place, log *slog.Logger) error {
	text, err := os.ReadFile(p.pidFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return folderError(p.data(), err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	if pid > 0 && isServer(pid, p.data()) {
		if st, err := readState(p.dir); err != nil || st.PID != pid {
			return fmt.Errorf("%w: process %d, not started by this program, uses %s; stop it with pg_ctl, or use another data folder",
				ErrAlreadyRunning, pid, p.data())
		}
		log.Warn("waiting for the postgres of an owner that died", "pid", pid)
		if err := endOrphan(ctx, pid, p.data()); err != nil {
			return err
		}
	}
	removeState(p.dir)
	if !alive(pid) {
		return nil // Postgres sees that itself
	}
	// Postgres asks only whether some process has that id. After a restart of the
	// machine or container one usually has, and the server would refuse to start.
	if err := os.Remove(p.pidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return folderError(p.data(), err)
	}
	return nil
}

// endOrphan waits for a server that its owner's death has told to stop, and
// helps after a while.
func endOrphan(ctx context.Context, pid int, data string) error {
	deadline := time.Now().Add(orphanTimeout)
	told := false
	for isServer(pid, data) {
		if time.Now().After(deadline) {
			if told {
				return fmt.Errorf("%w: process %d does not stop; end it with `kill %d`", ErrAlreadyRunning, pid, pid)
			}
			told, deadline = true, time.Now().Add(quitTimeout)
			quitPID(pid)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for Postgres process %d to stop: %w", pid, context.Cause(ctx))
		case <-time.After(readyPoll):
		}
	}
	return nil
}
