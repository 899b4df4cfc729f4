//go:build linux || darwin || freebsd

// Command worker is the engine with handlers that misbehave on purpose: what the
// chaos tests kill, freeze and cut off. It tells every run's begin and end in a
// file that outlives it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// addressSpace bounds the process's virtual memory, so that a payload which asks
// for more dies at once and harms nobody else on the machine.
const addressSpace = 6 << 30

type settings struct {
	url, effects   string
	drain, patient time.Duration
	engine         engine.Config
}

func main() {
	s := settings{}
	c := &s.engine
	flag.StringVar(&s.url, "url", "", "address of the database")
	flag.StringVar(&s.effects, "effects", "", "file to which runs tell their begin and end")
	flag.DurationVar(&s.drain, "drain", 3*time.Second, "time for running handlers after SIGTERM")
	flag.DurationVar(&s.patient, "patience", 30*time.Second, "how long to wait for a database at the start")
	flag.StringVar(&c.Name, "name", "", "name among the workers")
	flag.IntVar(&c.Concurrency, "concurrency", 8, "handlers at once")
	// Each death loses what was claimed ahead, and a storm has one every second.
	flag.IntVar(&c.Prefetch, "prefetch", 24, "jobs claimed ahead")
	flag.DurationVar(&c.LeaseDuration, "lease", 1500*time.Millisecond, "lease duration")
	flag.DurationVar(&c.HeartbeatInterval, "heartbeat", 400*time.Millisecond, "heartbeat interval")
	flag.DurationVar(&c.ReaperInterval, "reaper", 300*time.Millisecond, "reaper interval")
	flag.DurationVar(&c.PollInterval, "poll", 200*time.Millisecond, "poll interval")
	flag.DurationVar(&c.DBTimeout, "db-timeout", 3*time.Second, "bound of one statement")
	flag.DurationVar(&c.Retention.Completed, "keep", 0, "how long completed jobs are kept; 0 is the engine's default")
	flag.Parse()
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "chaos worker:", err)
		os.Exit(1)
	}
}

func run(s settings) error {
	if err := limitMemory(); err != nil {
		return err
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	effects, err := openEffects(s.effects)
	if err != nil {
		return err
	}
	base := runtime.NumGoroutine()
	e, pool, err := start(stop, s, effects)
	if err != nil || e == nil {
		return err
	}
	<-stop.Done()
	ctx, cancel := context.WithTimeout(context.Background(), s.drain)
	defer cancel()
	err = e.Stop(ctx)
	pool.Close()
	fmt.Fprintf(os.Stderr, "goroutines %d of %d\n", leftOver(base), base)
	return err
}

// leftOver counts goroutines once those that are ending have ended.
func leftOver(base int) int {
	for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > base && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return runtime.NumGoroutine()
}

// start tries until there is a database, nil if the process is to stop first.
func start(stop context.Context, s settings, effects *effectLog) (*engine.Engine, *pgxpool.Pool, error) {
	level := slog.LevelWarn
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	for began := time.Now(); stop.Err() == nil; time.Sleep(50 * time.Millisecond) {
		pool, err := db.Open(stop, db.PoolConfig{URL: s.url, MaxConns: 6, StatementTimeout: s.engine.DBTimeout, ApplicationName: s.engine.Name})
		if err == nil {
			var e *engine.Engine
			if e, err = startOn(stop, s.engine, pool, log, effects); err == nil {
				return e, pool, nil
			}
			pool.Close()
		}
		if time.Since(began) > s.patient {
			return nil, nil, err
		}
	}
	return nil, nil, nil
}

func startOn(ctx context.Context, c engine.Config, pool *pgxpool.Pool, log *slog.Logger, effects *effectLog) (*engine.Engine, error) {
	c.Pool, c.Log, c.Version = pool, log, "chaos"
	c.Workers = handlers(pool, effects)
	c.Retry = engine.FullJitter{Base: 100 * time.Millisecond, Max: time.Second}
	e, err := engine.New(c)
	if err != nil {
		return nil, err
	}
	return e, e.Start(ctx)
}

func limitMemory() error {
	limit := syscall.Rlimit{Cur: addressSpace, Max: addressSpace}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		return fmt.Errorf("limit the address space: %w", err)
	}
	return nil
}
