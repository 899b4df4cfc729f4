package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/bench"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

const benchPeerHelp = `Does one operation of a comparison of engines and prints its figures as one JSON line.

The comparison says what to do by variables: DATABASE_URL (a database of its own), SCENARIO
(setup, fill-done, fill-future, bulk, single, drain, latency), JOBS, CONNS, RATE, and OPTIONS,
as key=value,key=value: workers (64) runs handlers, chunk (10000) sizes a bulk enqueue.
The engine is the real one, with leases, tokens, execution rows and statistics; its log is at
warn. The seconds of a drain go from the engine's start until the last completion is committed.`

func newBenchCommand(a *app) *cobra.Command {
	cmd := noun("bench", "Measure the engine", "  jobctl bench peer")
	cmd.AddCommand(&cobra.Command{
		Use: "peer", Short: "Do one operation of a comparison of engines", Long: benchPeerHelp, Args: exactly(),
		Example: "  DATABASE_URL=postgres://127.0.0.1/bench SCENARIO=drain JOBS=100000 jobctl bench peer",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := config.PeerFromEnvironment()
			if err != nil {
				return &failure{exitUsage, err, "See: jobctl bench peer --help"}
			}
			options, err := bench.ParseOptions(p.Options)
			if err != nil {
				return &failure{exitUsage, err, "See: jobctl bench peer --help"}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit(10*time.Minute))
			defer cancel()
			result, err := bench.Run(ctx, bench.Task{URL: p.URL, Scenario: p.Scenario, Jobs: p.Jobs, Conns: p.Conns, Rate: p.Rate,
				Options: options, Log: slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))})
			if err != nil {
				return err
			}
			return json.NewEncoder(a.out).Encode(result)
		},
	})
	return cmd
}
