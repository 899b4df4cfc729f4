package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/logging"
	"github.com/reliable-job-engine/reliable-job-engine/db"
)

// databaseTimeout is the usual limit for work on the database itself.
const databaseTimeout = 10 * time.Minute

// database reads the settings of the database and finds it.
func (a *app) database() (*config.Config, boot.Addresses, error) {
	cfg, _, err := config.FromEnvironment(config.CtlDB)
	if err != nil {
		return nil, boot.Addresses{}, &failure{exitUsage, err, "These are the server's settings; .env.example lists all."}
	}
	found, err := boot.FindDatabase(cfg)
	if err != nil {
		return nil, boot.Addresses{}, &failure{exitUnreachable, err, ""}
	}
	return cfg, found, nil
}

// databaseFailure gives database errors their exit codes.
func databaseFailure(err error) error {
	var connect *db.ConnectError
	var mismatch *db.SchemaMismatchError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &connect):
		return &failure{exitUnreachable, err, "The address is that of DATABASE_URL, or of DB_HOST and the other DB_ settings."}
	case errors.As(err, &mismatch), errors.Is(err, db.ErrNothingToRollBack):
		return &failure{exitConflict, err, ""}
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{exitUnreachable, err, "Allow more time with --timeout."}
	}
	return &failure{exitFailed, err, ""}
}

func newMigrateCommand(a *app) *cobra.Command {
	cmd := noun("migrate", "Change and show the database's schema", `  jobctl migrate status
  jobctl migrate up`)
	cmd.AddCommand(
		migrateVerb(a, "up", "Bring the schema up to date", "", a.migrateUp),
		migrateVerb(a, "down", "Take back the newest migration and what it holds", " --yes", a.migrateDown),
		migrateVerb(a, "status", "List migrations and whether the database has them", " --json", a.migrateStatus),
		migrateVerb(a, "dump", "Print the schema as SQL", " > schema.sql", a.migrateDump),
	)
	return cmd
}

func migrateVerb(a *app, verb, short, example string, do func(ctx context.Context, at boot.Addresses) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: exactly(), Example: "  jobctl migrate " + verb + example,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, at, err := a.database()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit(databaseTimeout))
			defer cancel()
			return do(ctx, at)
		},
	}
	if verb == "up" || verb == "down" {
		a.addDryRun(cmd)
	}
	return cmd
}

func (a *app) migrateUp(ctx context.Context, at boot.Addresses) error {
	if a.dryRun {
		return a.rehearseUp(ctx, at)
	}
	log := logging.New(a.err, logging.Options{Service: "jobctl", Version: buildinfo.Get().Version, Format: "text"})
	if a.quiet {
		log = nil
	}
	if err := db.Migrate(ctx, at.Migrate, log); err != nil {
		return databaseFailure(err)
	}
	list, err := db.Status(ctx, at.Migrate)
	if err != nil {
		return databaseFailure(err)
	}
	if err := schemaMismatch(list); err != nil {
		return databaseFailure(err)
	}
	a.say("The schema is up to date.")
	return nil
}

func (a *app) rehearseUp(ctx context.Context, at boot.Addresses) error {
	list, err := db.Status(ctx, at.Migrate)
	if err != nil {
		return databaseFailure(err)
	}
	var missing []db.MigrationStatus
	for _, m := range list {
		if m.Known && !m.Applied {
			missing = append(missing, m)
		}
	}
	if err := a.printMigrations(missing); err != nil {
		return err
	}
	return a.would("%d migrations would be applied", len(missing))
}

func schemaMismatch(list []db.MigrationStatus) error {
	var m db.SchemaMismatchError
	for _, l := range list {
		if l.Applied {
			m.Database = l.Version
		}
		if l.Known {
			m.Binary = l.Version
		}
	}
	if m.Database == m.Binary {
		return nil
	}
	return &m
}

func (a *app) migrateDown(ctx context.Context, at boot.Addresses) error {
	list, err := db.Status(ctx, at.Migrate)
	if err != nil {
		return databaseFailure(err)
	}
	newest := ""
	for _, m := range list {
		if m.Applied {
			newest = m.Version + " " + m.Name
		}
	}
	if newest == "" {
		return databaseFailure(db.ErrNothingToRollBack)
	}
	if a.dryRun {
		return a.would("Migration %s would be taken back, with the data that only it holds", newest)
	}
	if err := a.confirm(ctx, "Taking back migration "+newest+", with the data that only it holds,"); err != nil {
		return err
	}
	if err := db.Down(ctx, at.Migrate); err != nil {
		return databaseFailure(err)
	}
	a.say("Took back %s. A server or worker that starts brings it again.", newest)
	return nil
}

// wireMigration is one migration as jobctl prints it.
type wireMigration struct {
	Version string `json:"version"`
	Name    string `json:"name"`
	Status  string `json:"status"`
}

var migrationView = view[wireMigration]{
	id: func(m wireMigration) string { return m.Version },
	columns: []column[wireMigration]{
		{name: "version", value: func(m wireMigration) string { return m.Version }},
		{name: "status", value: func(m wireMigration) string { return m.Status }},
		{name: "name", value: func(m wireMigration) string { return m.Name }},
	},
}

func (a *app) migrateStatus(ctx context.Context, at boot.Addresses) error {
	list, err := db.Status(ctx, at.Migrate)
	if err != nil {
		return databaseFailure(err)
	}
	if err := a.printMigrations(list); err != nil {
		return err
	}
	return databaseFailure(schemaMismatch(list))
}

func (a *app) printMigrations(list []db.MigrationStatus) error {
	raws := make([]json.RawMessage, len(list))
	var err error
	for i, m := range list {
		w := wireMigration{Version: m.Version, Name: m.Name, Status: "applied"}
		switch {
		case !m.Known:
			w.Status = "unknown here"
		case !m.Applied:
			w.Status = "missing"
		}
		if raws[i], err = json.Marshal(w); err != nil {
			return fmt.Errorf("print migrations: %w", err)
		}
	}
	body, err := joined(page{}, raws)
	if err != nil {
		return err
	}
	return migrationView.print(a, body, raws)
}

func (a *app) migrateDump(ctx context.Context, at boot.Addresses) error {
	var b bytes.Buffer
	if err := db.Dump(ctx, at.Migrate, &b); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return &failure{exitFailed, err, "Install the Postgres client programs."}
		}
		return databaseFailure(err)
	}
	return a.write(b.Bytes())
}
