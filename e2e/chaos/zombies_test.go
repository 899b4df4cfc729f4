//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var zombiesFlag = flag.Int("zombies", 0, "freeze workers past their leases so many times")

// undead are workers whose leases end within half a second.
var undead = []string{"-lease", "450ms", "-heartbeat", "120ms", "-reaper", "80ms", "-poll", "80ms", "-drain", "10s"}

const (
	undeadLease   = 450 * time.Millisecond
	undeadWorkers = 6
)

// TestZombies freezes workers for 1.5 to 4 leases while their handlers run: what
// those write afterwards must be refused, every time, and be on record.
func TestZombies(t *testing.T) {
	if *zombiesFlag == 0 {
		t.Skip("give -zombies 1000, or use make chaos-zombies")
	}
	seed, began := seedOf(t), time.Now()
	s := newStage(t, "zombies", scene{args: undead})
	var done, missed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Half as many stay sane: a job that only ever met the undead would be lost ten
	// times in a row, which makes it poison by design.
	var sane []*program
	for i := range undeadWorkers / 2 {
		w := s.worker(fmt.Sprintf("sane-%d", i))
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
		sane = append(sane, w)
	}
	var supply, freezers sync.WaitGroup
	supply.Go(func() { s.supply(ctx, undeadWorkers*6) })
	for i := range undeadWorkers {
		w := s.worker(fmt.Sprintf("zombie-%d", i))
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		freezers.Go(func() {
			for done.Load() < int64(*zombiesFlag) {
				s.busy(w)
				pause(ctx, time.Duration(20+r.IntN(80))*time.Millisecond)
				if !w.freeze(ctx, undeadLease*3/2+time.Duration(r.Int64N(int64(undeadLease*5/2)))) {
					if missed.Add(1); !w.running() {
						t.Errorf("%s is gone: %s", w.name, w.lastExit())
						return
					}
					continue
				}
				done.Add(1)
			}
			if !w.stop(20 * time.Second) {
				t.Errorf("%s did not end within 20s of SIGTERM", w.name)
			}
		})
	}
	freezers.Wait()
	cancel()
	supply.Wait()
	for _, w := range sane {
		w.stop(20 * time.Second)
	}
	s.finish()
	s.judgeZombies(int(done.Load()))
	t.Logf("seed %d, %s: %d freezes of 1.5 to 4 leases, %d jobs", seed, time.Since(began).Round(time.Second), done.Load(), s.made)
}

// supply keeps so many jobs in line or at work, until ctx ends.
func (s *stage) supply(ctx context.Context, most int) {
	kinds := []string{"sluggish", "sluggish", "sluggish", "sluggish", "tx", "once", "sluggish", "long", "flaky", "ok"}
	for n := 0; ctx.Err() == nil; {
		var open int
		if err := s.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM job_ready) + (SELECT coalesce(sum(cardinality(c.job_ids)), 0) FROM job_claims AS c)").
			Scan(&open); err != nil {
			if !errors.Is(err, context.Canceled) {
				s.t.Error(err)
			}
			return
		}
		for ; open < most; open++ {
			s.enqueue(kinds[n%len(kinds)])
			n++
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// stale are the runs whose handlers returned in a living process after their
// lease was taken: each tried to write its end.
const stale = `SELECT DISTINCT t.job, t.token FROM evidence.traces AS t
	JOIN job_executions AS e ON e.job_id = t.job AND e.fencing_token = t.token AND e.outcome = 6
	WHERE t.event = 'end'`

// judgeZombies asks that every stale write is on record with the right tokens, and
// that there were enough of them.
func (s *stage) judgeZombies(freezes int) {
	t := s.t
	t.Helper()
	for name, sql := range map[string]string{
		"a stale write is on record": `SELECT format('job %s token %s', x.job, x.token) FROM (` + stale + `) AS x
			WHERE NOT EXISTS (SELECT FROM refused_writes AS w WHERE w.job_id = x.job AND w.token_held = x.token)`,
		"a record names the token that is current": `SELECT format('job %s held %s current %s', w.job_id, w.token_held, w.token_current) FROM refused_writes AS w
			WHERE w.token_current IS NULL OR w.token_current < w.token_held`,
		"what was refused changed nothing": `SELECT format('job %s token %s: outcome %s', w.job_id, w.token_held, e.outcome) FROM refused_writes AS w
			JOIN job_executions AS e ON e.job_id = w.job_id AND e.fencing_token = w.token_held WHERE e.outcome <> 6`,
	} {
		rows, err := s.pool.Query(t.Context(), sql)
		if err != nil {
			t.Errorf("could not check that %s: %v", name, err)
			continue
		}
		n := 0
		for rows.Next() {
			var found string
			if err := rows.Scan(&found); err != nil {
				t.Errorf("could not check that %s: %v", name, err)
			}
			if n++; n <= mostTold {
				t.Errorf("VIOLATION %s: %s", name, found)
			}
		}
		if rows.Err() != nil {
			t.Errorf("could not check that %s: %v", name, rows.Err())
		}
		if n > mostTold {
			t.Errorf("%s: %d violations in all", name, n)
		}
	}
	var attempts, records int
	if err := s.pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM ("+stale+") AS x), (SELECT count(*) FROM refused_writes)").Scan(&attempts, &records); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d stale writes by handlers that returned, %d refusals on record (with what was claimed ahead and handed back)", attempts, records)
	if attempts < freezes/2 {
		t.Errorf("%d stale writes in %d freezes, want half as many at least: the zombies were idle", attempts, freezes)
	}
}
