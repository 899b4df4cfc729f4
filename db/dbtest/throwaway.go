package dbtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/reliable-job-engine/reliable-job-engine/db/localpg"
)

// settings keep a test's Postgres small, and let many pools connect at once.
var settings = map[string]string{
	"shared_buffers":     "64MB",
	"max_connections":    "400",
	"synchronous_commit": "on",
	// DROP DATABASE waits for every session to take note, which one does not while it
	// asks a frozen client for a password: a minute by default.
	"authentication_timeout": "10s",
}

// startThrowaway runs a Postgres without durability in a temporary folder. The
// kernel stops it when this process ends; the folder goes right after that, and
// if even that was prevented, when the next test process starts.
func startThrowaway(ctx context.Context) (*localpg.Server, error) {
	sweepFolders(ctx)
	dir, err := newFolder(ctx)
	if err != nil {
		return nil, err
	}
	server, err := localpg.Start(ctx, localpg.Options{
		DataDir: dir, Database: "postgres", NoDownload: true, NoSync: true, Settings: settings,
	})
	if err != nil {
		return nil, err
	}
	return server, removeAfterExit(server.PID(), dir)
}

const folderPrefix = "rje-dbtest-"

// newFolder is a temporary data folder, with data from the cache.
func newFolder(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp(parent(), fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("make a folder for the test database: %w", err)
	}
	// As root, Postgres may have to run as a user who must be able to pass here.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a folder for the test database: %w", err)
	}
	cached, err := initialised(ctx)
	if err != nil || cached == "" {
		return dir, err
	}
	return dir, copyFolder(cached, dir)
}

// sweepFolders removes what killed test processes left. A folder that is another
// user's or in use stays.
func sweepFolders(ctx context.Context) {
	// Glob's one error is a malformed pattern.
	dirs, _ := filepath.Glob(filepath.Join(parent(), folderPrefix+"*"))
	for _, dir := range dirs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), folderPrefix), "-")
		if pid, err := strconv.Atoi(owner); err == nil && !running(pid) {
			_ = localpg.Remove(ctx, dir)
		}
	}
}

// initialised returns a data folder that nothing runs on, to be copied: initdb
// takes 0.8 s, a copy 0.1 s. "" if there is no place to keep one.
func initialised(ctx context.Context) (string, error) {
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", nil // an account without a home pays for initdb each time
	}
	version, err := localpg.Version(ctx, localpg.Options{NoDownload: true})
	if err != nil {
		return "", err
	}
	base := filepath.Join(caches, "reliable-job-engine", "dbtest")
	final := filepath.Join(base, "postgres-"+version)
	if complete(final) {
		return final, nil
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", nil // read-only home, same
	}
	work, err := os.MkdirTemp(base, "new-")
	if err != nil {
		return "", nil
	}
	if err := localpg.Init(ctx, localpg.Options{DataDir: work, NoDownload: true, NoSync: true}); err != nil {
		return "", err
	}
	if complete(work) && os.Rename(work, final) == nil {
		return final, nil
	}
	// Another process was faster, or the data had to be put elsewhere.
	if err := localpg.Remove(ctx, work); err != nil {
		return "", err
	}
	if complete(final) {
		return final, nil
	}
	return "", nil
}

func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "postgres", "PG_VERSION"))
	return err == nil
}

func copyFolder(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy initialised data: %w", err)
	}
	// CopyFS gives every folder the usual mode, Postgres insists on a private one.
	if err := os.Chmod(filepath.Join(to, "postgres"), 0o700); err != nil {
		return fmt.Errorf("copy initialised data: %w", err)
	}
	return nil
}
