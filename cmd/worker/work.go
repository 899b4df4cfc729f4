package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

// work opens the worker's parts. The listener ends after the engine, so that
// probes see it drain.
func work(p *boot.Process) error {
	began := time.Now()
	ln, err := p.Listen(p.Config.Metrics.Addr, "set METRICS_ADDR=:0 for any free port, as a second worker on one machine needs")
	if err != nil {
		return err
	}
	pool, err := p.OpenDatabase(false)
	if err != nil {
		return err
	}
	metrics := ops.NewMetrics(p.Build)
	metrics.AddPool(pool)
	e, err := p.NewEngine(pool, inspect.New(pool), metrics, false)
	if err != nil {
		return err
	}
	var started atomic.Bool
	health := ops.NewHealth(p.Build, append(boot.DatabaseChecks(pool), canWork(e, &started), ops.Draining(p.Stopping)), p.Log)
	p.Serve("probes and metrics", ln, ops.WorkerHandler(health, metrics, p.Config.Metrics.Token.Reveal()))
	if err := p.StartEngine(e); err != nil {
		return err
	}
	p.WatchIntegrity(e, pool)
	started.Store(true)
	p.Log.Info("worker ready", "metrics", "http://"+boot.Local(ln)+"/metrics", "slots", p.Config.Worker.Concurrency,
		"duration_ms", time.Since(began).Milliseconds())
	return nil
}

// canWork fails until the engine has started, and while every slot is held by a handler that ignores its deadline.
func canWork(e *engine.Engine, started *atomic.Bool) ops.Check {
	return ops.Check{Name: "worker", Tell: true, Run: func(context.Context) error {
		if !started.Load() {
			return errors.New("the engine is starting")
		}
		if s := e.Status(); !s.Draining && !s.Ready() {
			return errors.New("every slot is held by a handler that went on after its deadline")
		}
		return nil
	}}
}
