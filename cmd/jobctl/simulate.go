package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/simulate"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// simulation is what the command was asked for.
type simulation struct {
	simulate.Options
	now  string
	live bool
}

func newSimulateCommand(a *app) *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use: "simulate", Short: "Fill the database with a made-up past and present", Args: exactly(),
		Long: `Fill the database with a made-up past and present: jobs in every place, their runs, errors, log
lines and rollups, dead letters, workers, acts of operators. The same seed makes the same data, its
times counted back from the database's now or from --now. Nothing runs and nothing is sent.

steady is a day on which all is well. incident is the moment after a payment gateway broke: charges
time out and die, a worker was lost, an operator paused the mail.

The workers are rows that nobody beats for: they age, from live over late to lost, within half a
minute. A server or worker on this database takes what they held back, and runs the jobs in line
whose types it knows, as it would any other. --live adds a few that it runs at once: mail and, to a
port of this machine that refuses them, webhooks.

In production it refuses. A database that has jobs needs --yes.`,
		Example: `  jobctl simulate
  jobctl simulate --scenario steady --jobs 500 --seed 3
  jobctl simulate --jobs 1000000 --seed 7 --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit(databaseTimeout))
			defer cancel()
			return a.simulate(ctx, s)
		},
	}
	cmd.Flags().StringVar(&s.Scenario, "scenario", "incident", "`name` of the story: "+strings.Join(simulate.Scenarios, ", "))
	cmd.Flags().IntVar(&s.Jobs, "jobs", simulate.DefaultJobs, "how many jobs")
	cmd.Flags().Uint64Var(&s.Seed, "seed", 1, "`number` that decides all chances")
	cmd.Flags().StringVar(&s.now, "now", "", "`instant` that the history leads up to, as 2026-11-30T02:14:07Z; the database's now if left out")
	a.addDryRun(cmd)
	cmd.Flags().BoolVar(&s.live, "live", false, "enqueue a few real jobs too")
	return cmd
}

func (s *simulation) check() error {
	if err := oneOf("--scenario", s.Scenario, simulate.Scenarios); err != nil {
		return err
	}
	if s.Jobs < 1 || s.Jobs > simulate.MaxJobs {
		return usage("", "--jobs %d: give 1 to %d", s.Jobs, simulate.MaxJobs)
	}
	if s.now != "" {
		at, err := time.Parse(time.RFC3339, s.now)
		if err != nil {
			return usage("Write it as 2026-11-30T02:14:07Z.", "--now %q is no instant", s.now)
		}
		s.Now = at
	}
	return nil
}

func (a *app) simulate(ctx context.Context, s simulation) error {
	cfg, at, err := a.database()
	if err != nil {
		return err
	}
	if cfg.Env == config.Production {
		return &failure{exitNotAllowed, errors.New("production takes no made-up jobs"), "Point DATABASE_URL at another installation, with its APP_ENV."}
	}
	if cfg.SMTP.Host != "" {
		if err := a.confirm(ctx, "SMTP_HOST is set: workers on this database would send made-up mail through "+cfg.SMTP.Host); err != nil {
			return err
		}
	}
	pool, err := boot.OpenPool(ctx, cfg, at, "jobctl simulate")
	if err != nil {
		return databaseFailure(err)
	}
	defer pool.Close()
	found, err := simulate.HasJobs(ctx, pool)
	if err != nil {
		return databaseFailure(err)
	}
	if a.dryRun {
		there := "has none yet"
		if found {
			there = "has jobs already"
		}
		return a.would("%d jobs of the scenario %s would be written; the database %s", s.Jobs, s.Scenario, there)
	}
	if found {
		if err := a.confirm(ctx, "the database has jobs already: adding made-up ones"); err != nil {
			return err
		}
	}
	start := time.Now()
	made, err := simulate.Run(ctx, pool, s.Options)
	if errors.Is(err, simulate.ErrThere) {
		return &failure{exitConflict, err, "Give another --seed or --now."}
	}
	if err != nil {
		return databaseFailure(err)
	}
	a.say("Wrote %s jobs and %s runs in %s, up to %s.", whole(int64(made.Jobs)), whole(int64(made.Executions)), time.Since(start).Round(time.Second/10), made.Now.Format(time.RFC3339))
	if s.live {
		if err := a.enqueueLive(ctx, cfg, pool, s); err != nil {
			return err
		}
	}
	return a.printSimulation(s, made)
}

// closedTarget is a port that nothing listens on here: discard, RFC 863.
const closedTarget = "http://127.0.0.1:9/hook"

// enqueueLive adds real jobs of each end: mail that completes, mail whose address is
// wrong, webhooks that are refused and end as dead letters.
func (a *app) enqueueLive(ctx context.Context, cfg *config.Config, pool *pgxpool.Pool, s simulation) error {
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool, PayloadMaxBytes: cfg.API.PayloadMaxBytes, MaxAttempts: cfg.Retry.MaxAttempts})
	if err != nil {
		return databaseFailure(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = client.Close(ctx) // hints only: workers look by themselves within POLL_INTERVAL
	}()
	var items []engine.EnqueueItem
	for i := range 3 {
		items = append(items,
			live("email", fmt.Sprintf(`{"to":"customer-%d@example.com","subject":"Receipt %d","text":"Thank you.\n"}`, i+1, 1000*s.Seed+uint64(i)), 0),
			live("webhook", fmt.Sprintf(`{"url":"%s","body":{"order":%d}}`, closedTarget, 1970670598291982290+int64(i)), 2))
	}
	items = append(items, live("email", `{"to":"customer 4 at example.com","subject":"Receipt 4","text":"Thank you.\n"}`, 0))
	done, err := client.EnqueueMany(ctx, items)
	if err != nil {
		return databaseFailure(err)
	}
	a.say("Enqueued %d real jobs in the queue live.", len(done))
	return nil
}

func live(jobType, payload string, attempts int) engine.EnqueueItem {
	return engine.EnqueueItem{Args: engine.RawArgs{Type: jobType, Payload: json.RawMessage(payload)},
		Options: engine.EnqueueOptions{Queue: "live", MaxAttempts: attempts, Tags: []string{"live"}}}
}

func counted(n func(simulate.Count) int) func(simulate.Count) string {
	return func(c simulate.Count) string { return whole(int64(n(c))) }
}

var simulatedView = view[simulate.Count]{
	columns: []column[simulate.Count]{
		{name: "queue", value: func(c simulate.Count) string { return c.Queue }},
		{name: "type", value: func(c simulate.Count) string { return c.Type }},
		{name: "jobs", right: true, value: counted(func(c simulate.Count) int { return c.Jobs })},
		{name: "ready", right: true, value: counted(func(c simulate.Count) int { return c.Ready })},
		{name: "scheduled", right: true, value: counted(func(c simulate.Count) int { return c.Scheduled })},
		{name: "held", wide: true, right: true, value: counted(func(c simulate.Count) int { return c.Held })},
		{name: "running", right: true, value: counted(func(c simulate.Count) int { return c.Running })},
		{name: "retrying", right: true, value: counted(func(c simulate.Count) int { return c.Retrying })},
		{name: "completed", right: true, value: counted(func(c simulate.Count) int { return c.Completed })},
		{name: "cancelled", wide: true, right: true, value: counted(func(c simulate.Count) int { return c.Cancelled })},
		{name: "dead", right: true, value: counted(func(c simulate.Count) int { return c.Dead })},
		{name: "discarded", wide: true, right: true, value: counted(func(c simulate.Count) int { return c.Discarded })},
	},
	id: func(c simulate.Count) string { return c.Queue },
}

func (a *app) printSimulation(s simulation, made simulate.Result) error {
	raws := make([]json.RawMessage, len(made.Counts))
	for i, c := range made.Counts {
		var err error
		if raws[i], err = json.Marshal(c); err != nil {
			return fmt.Errorf("print the simulation: %w", err)
		}
	}
	body, err := json.Marshal(struct {
		Scenario   string           `json:"scenario"`
		Seed       uint64           `json:"seed"`
		Jobs       int              `json:"jobs"`
		Executions int              `json:"executions"`
		Counts     []simulate.Count `json:"counts"`
	}{s.Scenario, s.Seed, made.Jobs, made.Executions, made.Counts})
	if err != nil {
		return fmt.Errorf("print the simulation: %w", err)
	}
	return simulatedView.print(a, body, raws)
}
