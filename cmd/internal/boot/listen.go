package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/web"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

// Listen takes addr, before anything slow is opened. remedy completes the sentence
// said where it is taken.
func (p *Process) Listen(addr, remedy string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s: stop that one, or %s", addr, remedy)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("this user may not listen on %s: use a port above 1023, or %s", addr, remedy)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w; %s", addr, err, remedy)
	}
	p.onClose("listener "+addr, func(context.Context) error {
		_ = ln.Close() // its server has closed it, unless the start failed before
		return nil
	})
	return ln, nil
}

// Serve answers on ln until the process stops: then it takes no more connections
// and lets requests finish, for at most most of the stop's time. A listener that
// fails ends the process.
func (p *Process) Serve(name string, ln net.Listener, h http.Handler) {
	s := web.Server(ln.Addr().String(), h)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			p.fail(name, err)
		}
	}()
	p.onClose(name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, min(p.timeout/2, p.Config.API.RequestTimeout+time.Second))
		defer cancel()
		err := s.Shutdown(ctx)
		if err != nil {
			_ = s.Close() // what is still open is cut off
			err = errors.New("requests were cut off, since they took too long")
		}
		<-ended
		return err
	})
}

// Every runs a small task at once and then each interval until the process ends.
// Its errors are logged; a pass has 10 s.
func (p *Process) Every(name string, interval time.Duration, pass func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			call, done := context.WithTimeout(ctx, 10*time.Second)
			if err := pass(call); err != nil && ctx.Err() == nil {
				p.Log.Warn("task failed", "task", name, "error", err)
			}
			done()
			select {
			case <-ctx.Done():
			case <-time.After(interval):
			}
		}
	}()
	p.onClose(name, func(stop context.Context) error {
		cancel()
		return within(stop, 100*time.Millisecond, func() { <-ended })
	})
}

// Local is the address at which this machine reaches ln.
func Local(ln net.Listener) string {
	at := ln.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// DatabaseChecks are what readiness asks of the database.
func DatabaseChecks(pool *pgxpool.Pool) []ops.Check {
	return []ops.Check{
		{Name: "database", Run: pool.Ping},
		{Name: "writable", Tell: true, Run: func(ctx context.Context) error {
			err := db.CheckWritable(ctx, pool)
			if err != nil && !errors.Is(err, db.ErrReadOnly) {
				return errors.New("the database cannot be asked")
			}
			return err
		}},
		{Name: "migrations", Tell: true, Run: func(ctx context.Context) error {
			err := db.CheckSchema(ctx, pool)
			var mismatch *db.SchemaMismatchError
			if err != nil && !errors.As(err, &mismatch) {
				// The text may hold an address, and whoever asks has no token.
				return errors.New("the database cannot be asked")
			}
			return err
		}},
	}
}
