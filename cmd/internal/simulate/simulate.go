// Package simulate writes a made-up past and present into a database, as an engine
// would have left them: jobs in every place, their runs with errors, stacks and log
// lines, the rollups, dead letters, workers, acts of operators. Nothing runs and
// nothing is sent. A job's rows are drawn from the seed and the job's number alone,
// so that the same seed makes the same data whatever the size of a batch.
//
// Every row is one the engine could have written: a job stands in one place and its
// runs have rising tokens out of the engine's own sequence. A batch of jobs and what
// belongs to them is one transaction, so that an end in the middle leaves fewer jobs
// and no broken ones.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// MaxJobs is the most that one simulation makes.
const MaxJobs = 2_000_000

// DefaultJobs shows every page with something on it.
const DefaultJobs = 5_000

// Scenarios are the names that [Options.Scenario] may have.
var Scenarios = []string{"steady", "incident"}

// Options say what to make.
type Options struct {
	// Scenario is steady, where all is well, or incident: a payment gateway broke
	// seven minutes ago, a worker was lost, a queue is paused. Default incident.
	Scenario string
	// Jobs is how many, 1 to [MaxJobs]. Default [DefaultJobs].
	Jobs int
	// Seed decides every chance.
	Seed uint64
	// Now is the instant that the history leads up to. Default: the database's now.
	Now time.Time
}

// ErrOptions says that a scenario or a number of jobs cannot be.
var ErrOptions = errors.New("no such simulation")

func (o *Options) check() error {
	if o.Scenario == "" {
		o.Scenario = "incident"
	}
	if o.Jobs == 0 {
		o.Jobs = DefaultJobs
	}
	if o.Jobs < 1 || o.Jobs > MaxJobs {
		return fmt.Errorf("%d jobs, allowed are 1 to %d: %w", o.Jobs, MaxJobs, ErrOptions)
	}
	for _, s := range Scenarios {
		if s == o.Scenario {
			return nil
		}
	}
	return fmt.Errorf("scenario %q: %w", o.Scenario, ErrOptions)
}

// Count is how many jobs of one type and queue stand where.
type Count struct {
	Queue     string `json:"queue"`
	Type      string `json:"type"`
	Jobs      int    `json:"jobs"`
	Ready     int    `json:"ready"`
	Scheduled int    `json:"scheduled"`
	Held      int    `json:"held"`
	Running   int    `json:"running"`
	Retrying  int    `json:"retrying"`
	Completed int    `json:"completed"`
	Cancelled int    `json:"cancelled"`
	Dead      int    `json:"dead"`
	Discarded int    `json:"discarded"`
}

// Result is what was written.
type Result struct {
	Now        time.Time
	Jobs       int
	Executions int
	// Counts are in order of queue and type.
	Counts []Count
}

// HasJobs tells whether the database has any job.
func HasJobs(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var found bool
	if err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM jobs)`).Scan(&found); err != nil {
		return false, fmt.Errorf("look for jobs: %w", err)
	}
	return found, nil
}

// Run makes the data. Batches are drawn while the one before is written. It ends by
// bringing the planner's statistics up to date. Errors: [ErrOptions].
func Run(ctx context.Context, pool *pgxpool.Pool, o Options) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, err
	}
	w, err := begin(ctx, pool, &o)
	if err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	plan := newPlan(o)
	if err := w.fleet.record(ctx, pool, w.now, w.tally(plan)); err != nil {
		return Result{}, fmt.Errorf("simulate: write workers: %w", err)
	}
	batches := make(chan *batch, 1)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(batches)
		return w.draw(gctx, plan, batches)
	})
	g.Go(func() error {
		for b := range batches {
			if err := w.write(gctx, b); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	return w.finish(ctx)
}
