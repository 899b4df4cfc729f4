package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

const (
	simulatedMax   = 100_000
	simulatedBatch = 500
)

// simulation is what the command was asked for.
type simulation struct {
	scenario string
	jobs     int
	seed     uint64
}

func newSimulateCommand(a *app) *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use: "simulate", Short: "Fill the database with a realistic mix of jobs", Args: exactly(),
		Long: `Fill the database with a realistic mix of email, webhook and report jobs, which run once a
server or worker does. The same seed makes the same jobs. Webhooks go to this machine alone: healthy
ones to the server's /healthz, at JOBCTL_SERVER; those of an incident to a port that refuses them.

steady completes. incident adds jobs that fail: they retry, and end as dead letters.`,
		Example: `  jobctl simulate --scenario steady --jobs 200
  jobctl simulate --scenario incident --seed 7`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("--scenario", s.scenario, scenarioNames); err != nil {
				return err
			}
			if s.jobs < 1 || s.jobs > simulatedMax {
				return usage("", "--jobs %d: give 1 to %d", s.jobs, simulatedMax)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit(databaseTimeout))
			defer cancel()
			return a.simulate(ctx, s)
		},
	}
	cmd.Flags().StringVar(&s.scenario, "scenario", "steady", "`name` of the mix: "+strings.Join(scenarioNames, ", "))
	cmd.Flags().IntVar(&s.jobs, "jobs", 300, "how many jobs")
	cmd.Flags().Uint64Var(&s.seed, "seed", 1, "`number` that decides all chances")
	return cmd
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
		if err := a.confirm(ctx, "SMTP_HOST is set: sending made-up mail through "+cfg.SMTP.Host); err != nil {
			return err
		}
	}
	target, err := a.healthy()
	if err != nil {
		return err
	}
	made, err := (&scenario{rand: rand.New(rand.NewPCG(s.seed, s.seed)), target: target}).make(s.scenario, s.jobs)
	if err != nil {
		return err
	}
	ids, err := write(ctx, cfg, at, made)
	if err != nil {
		return databaseFailure(err)
	}
	a.say("Wrote %d jobs. Servers and workers on this database run them; watch with: jobctl queues list", len(ids))
	return a.printSimulation(s, made, ids)
}

// healthy is what answers webhooks of healthy jobs: the server, if it is on this machine.
func (a *app) healthy() (string, error) {
	u, err := url.Parse(a.server)
	if err != nil || !isLoopback(u.Hostname()) {
		return "", usage("Name one at 127.0.0.1 with --server or JOBCTL_SERVER.", "a simulation sends webhooks to this machine alone, and the server %q is elsewhere", a.server)
	}
	return u.JoinPath("/healthz").String(), nil
}

// write enqueues the jobs in order, in batches.
func write(ctx context.Context, cfg *config.Config, at boot.Addresses, made []madeJob) ([]engine.ID, error) {
	pool, err := boot.OpenPool(ctx, cfg, at, "jobctl simulate")
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool, PayloadMaxBytes: cfg.API.PayloadMaxBytes, MaxAttempts: cfg.Retry.MaxAttempts})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = client.Close(ctx) // hints only: workers look by themselves within POLL_INTERVAL
	}()
	var ids []engine.ID
	for batch := range slices.Chunk(made, simulatedBatch) {
		items := make([]engine.EnqueueItem, len(batch))
		for i, m := range batch {
			items[i] = engine.EnqueueItem{Args: engine.RawArgs{Type: m.Type, Payload: m.Payload}, Options: engine.EnqueueOptions{
				Queue: m.Queue, Priority: m.Priority.Ptr(), Delay: m.Delay, MaxAttempts: m.Attempts, Tags: m.Tags}}
		}
		done, err := client.EnqueueMany(ctx, items)
		if err != nil {
			return nil, err
		}
		for _, d := range done {
			ids = append(ids, d.ID)
		}
	}
	return ids, nil
}

// simulatedCount is one line of what a simulation wrote.
type simulatedCount struct {
	Queue string `json:"queue"`
	Type  string `json:"type"`
	Jobs  int    `json:"jobs"`
	Later int    `json:"scheduled"`
}

var simulatedView = view[simulatedCount]{
	columns: []column[simulatedCount]{
		{name: "queue", value: func(c simulatedCount) string { return c.Queue }},
		{name: "type", value: func(c simulatedCount) string { return c.Type }},
		{name: "jobs", right: true, value: func(c simulatedCount) string { return whole(int64(c.Jobs)) }},
		{name: "scheduled", right: true, value: func(c simulatedCount) string { return whole(int64(c.Later)) }},
	},
	id: func(c simulatedCount) string { return c.Queue },
}

func (a *app) printSimulation(s simulation, made []madeJob, ids []engine.ID) error {
	if a.format == formatID {
		var b strings.Builder
		for _, id := range ids {
			fmt.Fprintln(&b, id)
		}
		return a.write([]byte(b.String()))
	}
	counts := countJobs(made)
	raws := make([]json.RawMessage, len(counts))
	for i, c := range counts {
		var err error
		if raws[i], err = json.Marshal(c); err != nil {
			return fmt.Errorf("print the simulation: %w", err)
		}
	}
	body, err := json.Marshal(struct {
		Scenario string           `json:"scenario"`
		Seed     uint64           `json:"seed"`
		Jobs     int              `json:"jobs"`
		Counts   []simulatedCount `json:"counts"`
	}{s.scenario, s.seed, len(made), counts})
	if err != nil {
		return fmt.Errorf("print the simulation: %w", err)
	}
	return simulatedView.print(a, body, raws)
}

func countJobs(made []madeJob) []simulatedCount {
	type line struct{ queue, jobType string }
	byLine := map[line]*simulatedCount{}
	var counts []*simulatedCount
	for _, m := range made {
		c := byLine[line{m.Queue, m.Type}]
		if c == nil {
			c = &simulatedCount{Queue: m.Queue, Type: m.Type}
			byLine[line{m.Queue, m.Type}] = c
			counts = append(counts, c)
		}
		c.Jobs++
		if m.Delay > 0 {
			c.Later++
		}
	}
	slices.SortFunc(counts, func(x, y *simulatedCount) int {
		return cmp.Or(strings.Compare(x.Queue, y.Queue), strings.Compare(x.Type, y.Type))
	})
	list := make([]simulatedCount, len(counts))
	for i, c := range counts {
		list[i] = *c
	}
	return list
}
