package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// prepare finds the binaries, sees to what a crash left behind, and initialises the
// data if there is none.
func prepare(ctx context.Context, o Options, p place) (binaries, login, error) {
	if err := clearLeftovers(ctx, p, o.Log); err != nil {
		return binaries{}, login{}, err
	}
	b, err := findBinaries(ctx, o, p)
	if err != nil {
		return binaries{}, login{}, err
	}
	l, err := ensureCluster(ctx, o, p, b)
	return b, l, err
}

func (s *Server) start(ctx context.Context, o Options) error {
	if o.Port != 0 && !portFree(o.Port) {
		return portTaken(o.Port) // told before the work of initdb
	}
	b, l, err := prepare(ctx, o, s.where)
	if err != nil {
		return err
	}
	s.version = b.version
	// The download has its own bound; the rest is a matter of seconds.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.launchAnywhere(ctx, o, b, l); err != nil {
		return err
	}
	if err := s.publish(ctx, o, l); err != nil {
		s.halt(context.Background())
		return err
	}
	go s.waitForEnd()
	return nil
}

// launchAnywhere launches on the wanted port, or on free ones until it works:
// between choosing and binding a port, another program may take it.
func (s *Server) launchAnywhere(ctx context.Context, o Options, b binaries, l login) error {
	for taken := 0; ; {
		port, err := choosePort(o.Port, l.Port, taken)
		if err != nil {
			return err
		}
		err = s.launch(ctx, o, b, l, port)
		switch {
		case errors.Is(err, ErrPortTaken) && o.Port == 0 && taken < portTries:
			taken++
		case errors.Is(err, errBackendsLeft) && ctx.Err() == nil:
			time.Sleep(5 * readyPoll)
		default:
			return err
		}
	}
}

// launch runs Postgres on port and waits until it takes connections.
func (s *Server) launch(ctx context.Context, o Options, b binaries, l login, port int) error {
	p, err := run(s.where, b, serverArgs(o, s.where, port), o.NoSync)
	if err != nil {
		return fmt.Errorf("start %s: %w", b.postgres(), err)
	}
	s.process, s.port = p, port
	err = waitReady(ctx, p, serverURL(l, port, superuser))
	if err == nil {
		return nil
	}
	s.halt(context.Background())
	return startError(s.where, port, err)
}

// publish creates the database and tells other processes where the server is.
func (s *Server) publish(ctx context.Context, o Options, l login) error {
	if err := ensureDatabase(ctx, serverURL(l, s.port, superuser), o.Database); err != nil {
		return err
	}
	s.url = serverURL(l, s.port, o.Database)
	l.Port = s.port
	if err := l.write(s.where.dir); err != nil {
		return err
	}
	return state{
		URL: s.url, Port: s.port, PID: s.process.pid, OwnerPID: os.Getpid(),
		Version: s.version, StartedAt: time.Now().UTC(),
	}.write(s.where.dir)
}

var errExited = errors.New("it ended at once")

// errBackendsLeft says that sessions of a killed server have not noticed yet.
var errBackendsLeft = errors.New("processes of a killed Postgres are still there")

// waitReady asks until Postgres answers, ends, or ctx is over.
func waitReady(ctx context.Context, p *process, url string) error {
	for {
		err := ping(ctx, url)
		var pg *pgconn.PgError
		if err == nil || errors.As(err, &pg) && pg.Code != "57P03" { // cannot_connect_now: still starting
			return err
		}
		select {
		case <-p.done:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("it did not answer in time: %w", context.Cause(ctx))
		case <-time.After(readyPoll):
		}
	}
}

func ping(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// startError tells why Postgres did not start, from what it wrote last.
func startError(p place, port int, err error) error {
	text, _ := os.ReadFile(p.logFile())
	last := lastLines(string(text), 4)
	switch {
	case strings.Contains(last, "could not bind"), strings.Contains(last, "could not create any TCP/IP sockets"):
		return portTaken(port)
	case strings.Contains(last, "pre-existing shared memory block"):
		return fmt.Errorf("%w in %s: %s", errBackendsLeft, p.data(), last)
	case strings.Contains(last, "password authentication failed"):
		return fmt.Errorf("%w: the password of %s is not the one in %s; put the right one back, or move the data away to begin anew",
			ErrFolder, p.data(), loginFile)
	}
	return fmt.Errorf("start Postgres on %s: %w: %s (all of it in %s)", p.data(), err, last, p.logFile())
}

func ensureDatabase(ctx context.Context, url, name string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the local Postgres: %w", err)
	}
	defer conn.Close(ctx)
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func choosePort(wanted, last, taken int) (int, error) {
	if wanted != 0 {
		if !portFree(wanted) {
			return 0, portTaken(wanted)
		}
		return wanted, nil
	}
	if last != 0 && taken == 0 && portFree(last) {
		return last, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func portFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	listener.Close()
	return true
}

func portTaken(port int) error {
	return fmt.Errorf("%w: another program listens on 127.0.0.1:%d; stop it, or choose another port for Postgres (0 takes a free one)",
		ErrPortTaken, port)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
