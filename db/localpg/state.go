package localpg

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// state is what the owner of a running server tells other processes.
type state struct {
	URL       string    `json:"url"`
	Port      int       `json:"port"`
	PID       int       `json:"pid"`
	OwnerPID  int       `json:"owner_pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
}

const stateFile = "postgres.json"

// Find returns the address of the server that another process runs from dir (""
// is ".data"), password included. Error: [ErrNotRunning].
func Find(dir string) (url string, err error) {
	if dir == "" {
		dir = defaultDataDir
	}
	st, err := readState(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%w in %s: start the server first (make run), or set DATABASE_URL", ErrNotRunning, dir)
	case err != nil:
		return "", fmt.Errorf("%w: %s can't be read (%w): run this as the user who started the server",
			ErrNotRunning, filepath.Join(dir, stateFile), err)
	case !alive(st.PID), !alive(st.OwnerPID):
		return "", fmt.Errorf("%w in %s any more (process %d is gone): start the server again (make run)", ErrNotRunning, dir, st.PID)
	}
	return st.URL, nil
}

func readState(dir string) (state, error) {
	var st state
	text, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	return st, err
}

func (st state) write(dir string) error { return writeJSON(filepath.Join(dir, stateFile), st) }

// removeState leaves a file that can't be removed to [Find], which sees that its
// process is gone.
func removeState(dir string) { _ = os.Remove(filepath.Join(dir, stateFile)) }

// writeJSON replaces path as a whole: a reader sees the old file or the new one.
// Only the owner may read it, for it holds a password.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	keepOwner(temp)
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
