package inspect_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

var (
	explainSeed   = flag.Uint64("explain.seed", 0, "the first random world of the explain property; 0 takes one by the clock")
	explainWorlds = flag.Int("explain.worlds", 320, "how many random worlds the explain property looks at")
)

// TestNothingInTheWayMeansTheNextClaimTakesIt holds Explain to the claim over random
// worlds, with the real statements:
//
//   - it says that nothing is in the way exactly when a worker that is there would
//     take the job with its next claim;
//   - it finds only workers at fault exactly when a made-up idle worker of the job's
//     queue and type would take it;
//   - a batch that takes Ahead jobs more takes it, one that takes Ahead does not.
func TestNothingInTheWayMeansTheNextClaimTakesIt(t *testing.T) {
	s := newStage(t)
	worlds := int64(*explainWorlds)
	if testing.Short() {
		worlds = min(worlds, 60)
	}
	first := *explainSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	t.Logf("%d worlds from seed %d: repeat one with -explain.seed N -explain.worlds 1", worlds, first)
	var next atomic.Int64
	var seen tallies
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !t.Failed() {
				n := next.Add(1) - 1
				if n >= worlds {
					return
				}
				seed := first + uint64(n)
				if err := s.holdWorld(seed, &seen); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("jobs: %d with nothing in the way, %d that only lack a worker, %d behind others, %d suspects next, %d suspects that wait, %d kept back",
		seen.claimable.Load(), seen.lackWorker.Load(), seen.behind.Load(), seen.suspectNext.Load(), seen.suspectWaits.Load(), seen.keptBack.Load())
	if worlds >= 100 {
		for name, n := range map[string]*atomic.Int64{"nothing in the way": &seen.claimable, "only lacks a worker": &seen.lackWorker, "behind others": &seen.behind,
			"a suspect that is next": &seen.suspectNext, "a suspect that waits": &seen.suspectWaits, "kept back": &seen.keptBack} {
			if n.Load() < 20 {
				t.Errorf("only %d jobs with: %s; the worlds are too plain", n.Load(), name)
			}
		}
	}
}

// tallies show that the worlds hold what the property is about.
type tallies struct{ claimable, lackWorker, behind, suspectNext, suspectWaits, keptBack atomic.Int64 }

func (s *stage) holdWorld(seed uint64, seen *tallies) (err error) {
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if undo := tx.Rollback(ctx); err == nil && !errors.Is(undo, pgx.ErrTxClosed) {
			err = undo
		}
	}()
	w := &world{ctx: ctx, tx: tx, q: dbsqlc.New(), rnd: rand.New(rand.NewPCG(seed, 1))}
	if err := w.build(); err != nil {
		return err
	}
	var taken []uuid.UUID // by somebody who is there
	for _, c := range w.workers {
		if c.idle() {
			got, err := w.claim(c, 1000)
			if err != nil {
				return err
			}
			taken = append(taken, got...)
		}
	}
	for _, j := range w.jobs {
		x, err := s.r.ExplainIn(ctx, tx, j.id)
		if err != nil {
			return err
		}
		if err := w.hold(j, x, slices.Contains(taken, j.id), seen); err != nil {
			return fmt.Errorf("%w\n%+v\nof %+v in\n%s", err, x, j, w)
		}
	}
	return nil
}

// hold compares what Explain says of one job with what claims do.
func (w *world) hold(j placed, x inspect.Explanation, taken bool, seen *tallies) error {
	if x.Claimable != taken {
		return fmt.Errorf("nothing in the way: %t; some worker's next claim takes it: %t", x.Claimable, taken)
	}
	if x.Claimable {
		seen.claimable.Add(1)
	}
	kept := slices.ContainsFunc(x.Checks, func(c inspect.Check) bool {
		return c.Verdict == inspect.Failed && !slices.Contains(aboutWorkers, c.Code)
	})
	next, err := w.madeUp(j)
	if err != nil {
		return err
	}
	switch {
	case j.place == "suspect":
		return w.holdSuspect(j, x, kept, next, seen)
	case next == kept:
		return fmt.Errorf("kept back by more than workers: %t; a made-up idle worker takes it: %t", kept, next)
	case kept:
		seen.keptBack.Add(1)
		return nil
	case !x.Claimable:
		seen.lackWorker.Add(1)
	}
	// Exactly Ahead are taken first, by a worker that knows all that those who take
	// this job know.
	one := claimer{id: 1, queues: []string{j.queue}, types: w.typesWith(j), suspect: true} // so that it takes ordinary jobs alone
	for batch := max(x.Ahead, 1); batch <= x.Ahead+1; batch++ {
		got, err := w.claim(one, int(batch))
		if err != nil {
			return err
		}
		if slices.Contains(got, j.id) != (batch > x.Ahead) {
			return fmt.Errorf("%d jobs ahead; a batch of %d takes it: %t", x.Ahead, batch, batch <= x.Ahead)
		}
	}
	if x.Ahead > 0 {
		seen.behind.Add(1)
	}
	return nil
}

// madeUp tells whether an idle worker of a job's queue and type alone takes the job.
func (w *world) madeUp(j placed) (bool, error) {
	key := j.queue + "/" + j.kind
	if _, asked := w.takenBy[key]; !asked {
		got, err := w.claim(claimer{id: 1, queues: []string{j.queue}, types: []string{j.kind}}, 1000)
		if err != nil {
			return false, err
		}
		w.takenBy[key] = got
	}
	return slices.Contains(w.takenBy[key], j.id), nil
}

// holdSuspect: suspects are taken one a claim, so that a made-up worker takes the
// first of its queue and type alone, and the others are not next for it either.
func (w *world) holdSuspect(j placed, x inspect.Explanation, kept, next bool, seen *tallies) error {
	before := slices.ContainsFunc(w.jobs, func(o placed) bool {
		return o.place == "suspect" && o.queue == j.queue && o.kind == j.kind && o.id != j.id && (o.priority > j.priority || o.priority == j.priority && o.id.String() < j.id.String())
	})
	switch {
	case kept == next && !before:
		return fmt.Errorf("kept back by more than workers: %t; a made-up idle worker takes it: %t", kept, next)
	case next && before:
		return errors.New("a suspect was claimed before the one ahead of it")
	case kept:
		seen.keptBack.Add(1)
	case x.Claimable:
		seen.suspectNext.Add(1)
	default:
		seen.suspectWaits.Add(1)
	}
	return nil
}

var aboutWorkers = []inspect.CheckCode{inspect.CheckWorker, inspect.CheckSlots, inspect.CheckSuspect, inspect.CheckAhead, inspect.CheckStart}

func (w *world) typesWith(j placed) []string {
	types := []string{j.kind}
	for _, c := range w.workers {
		if c.takes && c.slots > 0 && c.serves(j.queue) && slices.Contains(c.types, j.kind) {
			types = append(types, c.types...)
		}
	}
	return types
}
