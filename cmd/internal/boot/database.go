package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/localpg"
)

// DataDir holds the local Postgres, and the mail of a development without a mail
// server, from the working directory.
const DataDir = ".data"

// Addresses are where the database is. Both hold the password.
type Addresses struct {
	URL string
	// Migrate reaches Postgres directly where URL goes through a pooler.
	Migrate string
}

// FindDatabase gives the addresses that the settings name or, where they leave
// them out, those of the local Postgres that a server runs from the same folder.
// Its error says what to do if none runs.
func FindDatabase(cfg *config.Config) (Addresses, error) {
	if !cfg.LocalPostgres {
		return Addresses{URL: cfg.DB.URL.Reveal(), Migrate: cfg.DB.MigrationURL().Reveal()}, nil
	}
	url, err := localpg.Find(DataDir)
	if err != nil {
		return Addresses{}, err
	}
	return Addresses{URL: url, Migrate: url}, nil
}

// OpenPool connects a pool with the settings' limits. The caller closes it.
func OpenPool(ctx context.Context, cfg *config.Config, a Addresses, name string) (*pgxpool.Pool, error) {
	return db.Open(ctx, db.PoolConfig{URL: a.URL, MaxConns: int32(cfg.DB.MaxConns), StatementTimeout: cfg.DB.Timeout, ApplicationName: name})
}

// startPostgres starts the local Postgres. The process ends with it.
func (p *Process) startPostgres() (Addresses, error) {
	pg, err := localpg.Start(p.ctx, localpg.Options{DataDir: DataDir, Log: p.Log})
	if err != nil {
		return Addresses{}, err
	}
	stopping := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-stopping:
		case <-pg.Done():
			p.fail("local Postgres", fmt.Errorf("process %d has ended; see %s/postgres.log", pg.PID(), DataDir))
		}
	}()
	p.onClose("local Postgres", func(ctx context.Context) error {
		close(stopping)
		<-watched
		return pg.Stop(ctx)
	})
	return Addresses{URL: pg.URL(), Migrate: pg.URL()}, nil
}

// OpenDatabase finds the database, brings its schema up to date and connects.
// owner starts the local Postgres where the settings ask for it; others find the
// one that runs. Error: a sentence that says what to do.
func (p *Process) OpenDatabase(owner bool) (*pgxpool.Pool, error) {
	ctx, cancel := context.WithTimeout(p.ctx, startTimeout)
	defer cancel()
	find := func() (Addresses, error) { return FindDatabase(p.Config) }
	if owner && p.Config.LocalPostgres {
		find = p.startPostgres
	}
	at, err := find()
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, at, p.Log); err != nil {
		return nil, hint(err)
	}
	pool, err := OpenPool(ctx, p.Config, at, p.Service)
	if err != nil {
		return nil, hint(err)
	}
	p.onClose("database pool", func(ctx context.Context) error {
		return within(ctx, 100*time.Millisecond, pool.Close)
	})
	return pool, nil
}

// migrate applies what the database lacks. A schema newer than this program is
// left alone and refused: pages and jobs would fail one by one.
func migrate(ctx context.Context, a Addresses, log *slog.Logger) error {
	if err := db.Migrate(ctx, a.Migrate, log); err != nil {
		return err
	}
	list, err := db.Status(ctx, a.Migrate)
	if err != nil {
		return err
	}
	mismatch := db.SchemaMismatchError{}
	for _, m := range list {
		if m.Applied {
			mismatch.Database = m.Version
		}
		if m.Known {
			mismatch.Binary = m.Version
		}
	}
	if mismatch.Database != mismatch.Binary {
		return &mismatch
	}
	return nil
}

// hint adds where the address of a database comes from.
func hint(err error) error {
	var refused *db.ConnectError
	if errors.As(err, &refused) {
		return fmt.Errorf("%w\n  The address is that of DATABASE_URL, or of DB_HOST and the other DB_ settings; in development, leave both out for a private Postgres", err)
	}
	return err
}
