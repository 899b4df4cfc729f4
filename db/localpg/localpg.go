// Package localpg runs a private Postgres for the one-command start: binaries found
// on this machine or downloaded, data in a folder of the project, reachable on
// 127.0.0.1 only with a password made once. The server ends with the process that
// started it, however that ends.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Errors that [Start] and [Find] return, wrapped in a sentence that says what to do.
var (
	ErrAlreadyRunning = errors.New("a Postgres is already running on this data")
	ErrNoBinaries     = errors.New("no Postgres found")
	ErrPortTaken      = errors.New("port is taken")
	ErrDataVersion    = errors.New("data of another Postgres version")
	ErrFolder         = errors.New("data folder can't be used")
	ErrNotRunning     = errors.New("no local Postgres is running")
)

// Options says where and how [Start] runs Postgres. The zero value is the default
// of every field.
type Options struct {
	// DataDir holds data, log and state file; made if missing. Default ".data".
	DataDir string
	// Port on 127.0.0.1. 0 takes the port of the last start if it is free, else any.
	Port int
	// Database is created if it is missing. Default "reliable_job_engine".
	Database string
	// BinDir is the folder of postgres and initdb; none other is then looked at.
	BinDir string
	// MirrorURL is a Maven repository with the embedded-postgres binaries, used
	// when this machine has no Postgres. Default: the public one.
	MirrorURL string
	// NoDownload returns ErrNoBinaries where a download would start.
	NoDownload bool
	// MinMajor is the oldest Postgres accepted. Default 15.
	MinMajor int
	// NoSync trades durability for speed: what a crash leaves is worth nothing.
	NoSync bool
	// Settings are server settings, as in postgresql.conf.
	Settings map[string]string
	// Log hears of starts, downloads and stops. Default: nobody.
	Log *slog.Logger

	// Set by tests.
	noNamespace bool     // as on a machine that refuses user namespaces
	searchDirs  []string // instead of this machine's folders
}

const (
	superuser      = "postgres"
	startTimeout   = 60 * time.Second
	stopTimeout    = 10 * time.Second // fast shutdown, then immediate
	quitTimeout    = 5 * time.Second  // immediate shutdown, then SIGKILL
	orphanTimeout  = 10 * time.Second // a dead owner's server gets to end by itself
	readyPoll      = 20 * time.Millisecond
	portTries      = 5
	defaultDataDir = ".data"
)

// Server is a running Postgres. Its methods may be called from several goroutines.
type Server struct {
	url, version string
	port         int
	process      *process
	where        place
	lock         *fileLock
	log          *slog.Logger
	done         chan struct{}
}

// Start runs Postgres on options.DataDir, initialising the data on first use, and
// returns once it takes connections. ctx bounds the start, not the server's life;
// without a deadline a start may take a minute. Errors: [ErrAlreadyRunning],
// [ErrNoBinaries], [ErrPortTaken], [ErrDataVersion], [ErrFolder].
func Start(ctx context.Context, options Options) (*Server, error) {
	begun := time.Now()
	o := withDefaults(options)
	p, lock, err := open(o)
	if err != nil {
		return nil, err
	}
	s := &Server{where: p, lock: lock, log: o.Log, done: make(chan struct{})}
	if err := s.start(ctx, o); err != nil {
		lock.release()
		return nil, err
	}
	o.Log.Info("local postgres ready", "port", s.port, "version", s.version,
		"duration_ms", time.Since(begun).Milliseconds())
	return s, nil
}

// Init makes the data folder ready for [Start] without starting the server. It does
// nothing if data is there.
func Init(ctx context.Context, options Options) error {
	o := withDefaults(options)
	p, lock, err := open(o)
	if err != nil {
		return err
	}
	defer lock.release()
	_, _, err = prepare(ctx, o, p)
	return err
}

// Remove deletes the data folder dir and all that belongs to it. Error:
// [ErrAlreadyRunning] while a process of ours uses it.
func Remove(ctx context.Context, dir string) error {
	p, lock, err := open(withDefaults(Options{DataDir: dir}))
	if err != nil {
		return err
	}
	defer lock.release()
	if err := clearLeftovers(ctx, p, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	if p.home != p.dir {
		if err := os.RemoveAll(p.home); err != nil {
			return folderError(p.home, err)
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return folderError(p.dir, err)
	}
	return nil
}

// Version is the version of the binaries that [Start] would use, "15.13".
func Version(ctx context.Context, options Options) (string, error) {
	o := withDefaults(options)
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return "", fmt.Errorf("find folder %s: %w", o.DataDir, err)
	}
	p, err := newPlace(dir, o.noNamespace)
	if err != nil {
		return "", err
	}
	b, err := findBinaries(ctx, o, p)
	return b.version, err
}

func withDefaults(o Options) Options {
	if o.DataDir == "" {
		o.DataDir = defaultDataDir
	}
	if o.Database == "" {
		o.Database = "reliable_job_engine"
	}
	if o.MinMajor == 0 {
		o.MinMajor = 15
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// open makes the folder, takes its lock and decides who Postgres will run as.
func open(o Options) (place, *fileLock, error) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return place{}, nil, fmt.Errorf("find folder %s: %w", o.DataDir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return place{}, nil, folderError(dir, err)
	}
	lock, err := lockFile(filepath.Join(dir, "postgres.lock"))
	if errors.Is(err, errLocked) {
		return place{}, nil, alreadyRunning(dir)
	}
	if err != nil {
		return place{}, nil, folderError(dir, err)
	}
	p, err := newPlace(dir, o.noNamespace)
	if err != nil {
		lock.release()
		return place{}, nil, err
	}
	return p, lock, nil
}

func folderError(dir string, err error) error {
	return fmt.Errorf("%w: %s: %w; make it writable for this user or choose another folder", ErrFolder, dir, err)
}

func alreadyRunning(dir string) error {
	if st, err := readState(dir); err == nil && alive(st.OwnerPID) {
		return fmt.Errorf("%w: process %d runs it from %s on port %d; stop that one first, or use another data folder",
			ErrAlreadyRunning, st.OwnerPID, dir, st.Port)
	}
	return fmt.Errorf("%w: another process is starting or stopping it in %s; wait for it, or use another data folder",
		ErrAlreadyRunning, dir)
}

// waitForEnd tidies up after the server, whether stopped or fallen. Whoever calls
// Stop waits for it.
func (s *Server) waitForEnd() {
	<-s.process.done
	removeState(s.where.dir)
	s.lock.release()
	close(s.done)
}

// URL is the address of Options.Database, password included.
func (s *Server) URL() string { return s.url }

// Port is the port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// PID is the process id of Postgres's parent process, the postmaster.
func (s *Server) PID() int { return s.process.pid }

// Version is the server's version, "15.13".
func (s *Server) Version() string { return s.version }

// Done is closed when Postgres has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop ends Postgres: sessions are cut off, data is written. If that takes longer
// than 10s or than ctx, Postgres is stopped without writing, which the next start
// makes up for. It returns when the process is gone; stopping twice does no harm.
func (s *Server) Stop(ctx context.Context) error {
	err := s.halt(ctx)
	<-s.done
	s.log.Info("local postgres stopped", "port", s.port)
	return err
}

func (s *Server) halt(ctx context.Context) error {
	fast, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	s.process.interrupt(s.where)
	if s.process.ended(fast) {
		return nil
	}
	quit, cancel := context.WithTimeout(context.Background(), quitTimeout)
	defer cancel()
	s.process.quit()
	if s.process.ended(quit) {
		return nil
	}
	s.process.kill()
	<-s.process.done
	return fmt.Errorf("postgres process %d did not stop and was killed; its data recovers at the next start", s.process.pid)
}
