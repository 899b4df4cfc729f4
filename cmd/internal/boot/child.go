package boot

import (
	"context"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// runSuspects is all that a server or worker does as the child of its engine: it
// connects to the database that the parent uses, and the engine takes over. No
// port is taken, no Postgres started, nothing migrated.
func runSuspects(p *Process) error {
	at, err := FindDatabase(p.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.Config.DB.Timeout)
	defer cancel()
	pool, err := OpenPool(ctx, p.Config, at, p.Service)
	if err != nil {
		return hint(err)
	}
	e, err := p.NewEngine(pool, inspect.New(pool), engine.NopObserver{}, false)
	if err != nil {
		return err
	}
	return p.StartEngine(e)
}
