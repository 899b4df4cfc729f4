package engine

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// writeAll writes a batch, over outages of any length. A batch that the database
// answers but refuses is written run by run: what is refused alone waits for
// itself, and holds up nobody.
func (f *finisher) writeAll(ctx context.Context, batch []ended) {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := f.write(batch)
		if err == nil {
			return
		}
		f.e.trouble("finish", err)
		switch {
		case outage(err):
			f.e.sleep(ctx, backoffAfter(failures, time.Second))
		case len(batch) > 1:
			for i := range batch {
				f.writeAll(ctx, batch[i:i+1])
			}
			return
		default:
			f.postpone(batch[0], 1)
			return
		}
	}
}

// outage tells errors that say nothing about what was written. A full disk may
// concern one table, so that it counts as a refusal.
func outage(err error) bool {
	var pg *pgconn.PgError
	return unreachable(err) && !(errors.As(err, &pg) && pg.Code == "53100")
}

// postponed is an end that the database refused, and when to try it again.
type postponed struct {
	ended
	failures int
	due      time.Time
}

func (f *finisher) postpone(x ended, failures int) {
	f.later = append(f.later, postponed{x, failures, time.Now().Add(backoffCeiling(time.Second, 30*time.Second, failures-1))})
	if f.e.troubled.tell("refused end") {
		f.e.log.With(x.run.attrs()...).Error("the end of a run is refused by the database; it is tried again", "failures", failures, "waiting", len(f.later))
	}
	f.count()
}

func (f *finisher) count() {
	f.mu.Lock()
	f.refused, f.writing = len(f.later), 0
	f.mu.Unlock()
}

// nextTry is when the first refused end is due; never without one.
func (f *finisher) nextTry() <-chan time.Time {
	if len(f.later) == 0 {
		return nil
	}
	first := f.later[0].due
	for _, p := range f.later {
		if p.due.Before(first) {
			first = p.due
		}
	}
	return time.After(max(time.Until(first), 10*time.Millisecond))
}

// retryLater tries the refused ends whose time has come, one by one; all of
// them once the engine stops.
func (f *finisher) retryLater(ctx context.Context) {
	tries := f.later
	f.later = nil
	for _, p := range tries {
		if time.Now().Before(p.due) && !f.e.draining.Load() || ctx.Err() != nil {
			f.later = append(f.later, p)
			continue
		}
		if err := f.write([]ended{p.ended}); err != nil {
			f.e.trouble("finish", err)
			f.postpone(p.ended, p.failures+1)
		}
	}
	f.count()
}
