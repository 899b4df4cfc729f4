package boot

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/logging"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

// Process is one run of a server or worker. What its methods open, it closes, the
// last first, when [Run] ends.
type Process struct {
	Config  *config.Config
	Log     *slog.Logger
	Service string // server or worker
	Build   ops.Build
	Stdout  io.Writer

	*life
}

// Run reads the settings, calls open, waits for the first signal or the failure of
// a part, closes everything, and returns the exit code: 0 after a stop that was
// asked for, 1 after a failure, 2 for wrong settings. The stop takes at most
// WORKER_SHUTDOWN_TIMEOUT and 2 s; a second signal ends the process at once.
func Run(which config.Binary, service string, stdout, stderr io.Writer, open func(*Process) error) int {
	cfg, notes, err := config.FromEnvironment(which)
	if err != nil {
		fmt.Fprintf(stderr, "%v\n", err)
		return exitSettings
	}
	if engine.InChild() {
		open, notes = runSuspects, nil // the parent has told them
	}
	b := buildinfo.Get()
	log := logging.New(stderr, logging.Options{Level: cfg.Log.Level, Format: cfg.Log.Format, Service: service, Version: b.Version})
	for _, n := range notes {
		log.Warn("settings: " + n)
	}
	life, finish := newLife(log, stderr, cfg.Worker.ShutdownTimeout)
	defer finish()
	p := &Process{Config: cfg, Log: log, Service: service, Stdout: stdout, life: life,
		Build: ops.Build{Version: b.Version, Commit: b.Commit, BuiltAt: b.BuiltAt, Go: b.Go}}
	if err := open(p); err != nil && context.Cause(p.ctx) != errSignal {
		p.refuse(stderr, err)
	}
	<-p.ctx.Done()
	return p.close()
}

// refuse says why there was no start. A person at a terminal gets a sentence, a
// collector of JSON a line.
func (p *Process) refuse(stderr io.Writer, err error) {
	if p.Config.Log.Format == "text" {
		fmt.Fprintf(stderr, "The %s cannot start: %v\n", p.Service, err)
	} else {
		p.Log.Error("cannot start", "error", err)
	}
	p.stop(err)
}

// Stopping reports true from the first signal, or the failure of a part, on.
func (p *Process) Stopping() bool { return p.ctx.Err() != nil }
