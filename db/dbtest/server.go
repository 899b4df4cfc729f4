package dbtest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/db/localpg"
)

// Server is a durable Postgres of one test, to be broken. Its methods fail the test
// when they can't do their work; they are for one goroutine at a time.
type Server struct {
	t       testing.TB
	options localpg.Options
	pg      *localpg.Server
	frozen  *freeze
}

// NewServer starts a Postgres with fsync on, for t alone, removed when t ends.
// Settings are server settings, "name=value". It has no database of ours yet:
// give [Server.URL] of any name to db.Migrate, which makes it.
func NewServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	sweepFolders(ctx)
	dir, err := newFolder(ctx)
	if err != nil {
		t.Fatalf("test server: %v", err)
	}
	s := &Server{t: t, options: localpg.Options{
		DataDir: dir, Database: "postgres", NoDownload: true, Settings: map[string]string{"shared_buffers": "64MB"},
	}}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		s.options.Settings[name] = value
	}
	t.Cleanup(s.remove)
	s.Start()
	s.options.Port = s.pg.Port()
	return s
}

// URL is the address of a database of that name, whether or not it exists.
func (s *Server) URL(database string) string { return withDatabase(s.pg.URL(), database) }

// Port is the port on 127.0.0.1; it stays the same over stops and starts.
func (s *Server) Port() int { return s.pg.Port() }

// Start starts the server again after a stop, on the same port, and returns when
// it takes connections. What was committed is there.
func (s *Server) Start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	pg, err := localpg.Start(ctx, s.options)
	if err != nil {
		s.t.Fatalf("start test server: %v", err)
	}
	s.pg = pg
}

// Stop shuts the server down in order: sessions are cut off, data is written.
func (s *Server) Stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := s.pg.Stop(ctx); err != nil {
		s.t.Fatalf("stop test server: %v", err)
	}
}

// StopImmediate stops the server without writing anything, as `pg_ctl -m immediate`
// does: the next start recovers from the log.
func (s *Server) StopImmediate() {
	s.t.Helper()
	s.signalAndWait(signalQuit)
}

// Kill ends the server's parent process as the kernel does when memory runs out;
// its sessions follow on their own.
func (s *Server) Kill() {
	s.t.Helper()
	s.signalAndWait(os.Kill)
}

// KillAll ends the parent process and every session at one moment, as the loss of
// the machine does, but for what the kernel had not written yet.
func (s *Server) KillAll() {
	s.t.Helper()
	tree, err := freezeTree(s.pg.PID())
	if err == nil {
		err = tree.kill()
	}
	if err != nil {
		s.t.Fatalf("kill test server: %v", err)
	}
	s.waitForEnd("a kill")
}

func (s *Server) signalAndWait(signal os.Signal) {
	s.t.Helper()
	process, err := os.FindProcess(s.pg.PID())
	if err == nil {
		err = process.Signal(signal)
	}
	if err != nil {
		s.t.Fatalf("send %v to test server: %v", signal, err)
	}
	s.waitForEnd(signal.String())
}

func (s *Server) waitForEnd(after string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	select {
	case <-s.pg.Done():
	case <-ctx.Done():
		s.t.Fatalf("test server did not end within %v of %s", callTimeout, after)
	}
}

// Freeze stops all processes of the server where they are: connections stay open,
// new ones are taken by the kernel, nothing answers.
func (s *Server) Freeze() {
	s.t.Helper()
	frozen, err := freezeTree(s.pg.PID())
	if err != nil {
		s.t.Fatalf("freeze test server: %v", err)
	}
	s.frozen = frozen
}

// Thaw lets a frozen server go on; of one not frozen it does nothing.
func (s *Server) Thaw() {
	s.t.Helper()
	if s.frozen == nil {
		return
	}
	if err := s.frozen.thaw(); err != nil {
		s.t.Errorf("thaw test server: %v", err)
	}
	s.frozen = nil
}

func (s *Server) remove() {
	s.Thaw()
	if s.pg != nil {
		s.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := localpg.Remove(ctx, s.options.DataDir); err != nil {
		s.t.Errorf("remove test server: %v", err)
	}
}
