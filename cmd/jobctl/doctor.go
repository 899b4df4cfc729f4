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
	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/doctor"
)

func newDoctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Tell what is wrong with the database, and what to do", Args: exactly(),
		Long: `Tell what is wrong with the database, and what to do: its version, fsync, full_page_writes and
synchronous_commit (of the server, the database and the roles), the rights of the role, the migrations,
the clock, poolers that lose prepared statements or notifications, transactions that are open too long,
prepared ones and replication slots that were left behind, autovacuum, connections, and the upkeep.

It asks the database itself, over the address that servers and workers use, and changes nothing.

Exit codes: 0 nothing is broken (a warning may stand), 1 there is a problem, 3 none is seen but some
checks could not look: the database is away, a right is missing.`,
		Example: `  jobctl doctor
  jobctl doctor --json | jq '.checks[] | select(.verdict != "ok")'
  jobctl doctor -o id`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit(databaseTimeout))
			defer cancel()
			return a.visit(ctx)
		},
	}
}

// wireCheck is one check's answer, as -o json has it.
type wireCheck struct {
	Code     string `json:"code"`
	Verdict  string `json:"verdict"`
	Evidence string `json:"evidence"`
	Remedy   string `json:"remedy,omitempty"`
}

var checkView = view[wireCheck]{
	id: func(c wireCheck) string { return c.Code },
	columns: []column[wireCheck]{
		{name: "check", value: func(c wireCheck) string { return c.Code }},
		{name: "verdict", value: func(c wireCheck) string { return c.Verdict }},
		{name: "evidence", value: func(c wireCheck) string { return oneLine(c.Evidence, 300) }},
	},
}

func (a *app) visit(ctx context.Context) error {
	cfg, at, err := a.database()
	if err != nil {
		return unchecked(err)
	}
	pool, err := boot.OpenPool(ctx, cfg, at, "jobctl doctor")
	if err != nil {
		return unchecked(databaseFailure(err))
	}
	defer pool.Close()
	r := doctor.Run(ctx, doctor.Config{
		Pool: pool, Schema: schemaOf(pool), Connections: connectionsOf(cfg),
		ReaperInterval: cfg.Worker.ReaperInterval, PollInterval: cfg.Worker.PollInterval, Timeout: max(cfg.DB.Timeout, 5*time.Second),
	})
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		return errInterrupted
	}
	if err := a.printVisit(r); err != nil {
		return err
	}
	switch r.Verdict() {
	case doctor.Problem:
		return &failure{exitFailed, fmt.Errorf("%d of %d checks found a problem", r.Count(doctor.Problem), len(r.Checks)), ""}
	case doctor.Unchecked:
		return &failure{exitUnchecked, fmt.Errorf("%d of %d checks could not look", r.Count(doctor.Unchecked), len(r.Checks)), "This says nothing about what they are for. Mend the cause and ask again."}
	case doctor.Warning:
		a.say("No problem; %d of %d checks have a warning.", r.Count(doctor.Warning), len(r.Checks))
	case doctor.OK:
		a.say("All is well: %d checks in %s.", len(r.Checks), r.Took.Round(time.Millisecond))
	}
	return nil
}

// connectionsOf is how many one process with these settings opens at most.
func connectionsOf(cfg *config.Config) int { return cfg.DB.MaxConns + engine.OwnConnections }

func schemaOf(pool *pgxpool.Pool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		err := db.CheckSchema(ctx, pool)
		var mismatch *db.SchemaMismatchError
		if errors.As(err, &mismatch) {
			return mismatch.Error(), nil
		}
		return "", err
	}
}

func (a *app) printVisit(r doctor.Report) error {
	raws := make([]json.RawMessage, 0, len(r.Checks))
	var remedies strings.Builder
	for _, c := range r.Checks {
		if a.format == formatID && c.Verdict == doctor.OK {
			continue
		}
		raw, err := json.Marshal(wireCheck{c.Code, string(c.Verdict), c.Evidence, c.Remedy})
		if err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		raws = append(raws, raw)
		if c.Remedy != "" {
			fmt.Fprintf(&remedies, "  %s: %s\n", c.Code, printable(c.Remedy))
		}
	}
	body, err := json.Marshal(struct {
		At      time.Time         `json:"at"`
		TookMS  int64             `json:"took_ms"`
		Verdict string            `json:"verdict"`
		Checks  []json.RawMessage `json:"checks"`
	}{r.At.UTC(), r.Took.Milliseconds(), string(r.Verdict()), raws})
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if err := checkView.print(a, body, raws); err != nil || remedies.Len() == 0 || a.format != formatTable && a.format != formatWide {
		return err
	}
	return a.write([]byte("\nWhat to do\n" + remedies.String()))
}
