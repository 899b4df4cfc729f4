package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

var interleavings = flag.String("interleavings", "1500", "orders of steps that TestInterleavings tries, evenly sampled over its scenes: a number, or all")

// rings is how many databases are worked on at once. Most of the time goes by waiting for the server.
const rings = 6

// TestInterleavings runs transactions that race for one job in every order of their steps, each on its own connection.
// A step that waits for another's lock is seen to wait, and the order goes on without it. After each order the tables
// and what the callers were told must agree.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	var total int64
	for _, s := range scenes {
		total += s.orders()
	}
	wanted := total
	if *interleavings != "all" {
		n, err := strconv.ParseInt(*interleavings, 10, 64)
		if err != nil || n < 1 {
			t.Fatalf("-interleavings=%s: a number or all", *interleavings)
		}
		wanted = min(n, total)
	}
	if testing.Short() {
		wanted = min(wanted, 165) // with the race detector an order takes long
	}
	began := time.Now()
	share := wanted / int64(len(scenes))
	tried := inRings(t, func(yield func(scene, int64)) {
		for _, s := range scenes {
			all := s.orders()
			n := min(all, max(share, 1))
			if wanted == total {
				n = all
			}
			for i := range n {
				yield(s, i*all/n)
			}
		}
	}, func(s scene, rank int64, faults []string) {
		t.Errorf("%s, order %d %v:\n  %s", s.name, rank, s.order(rank), joinLines(faults))
	})
	t.Logf("%d of %d orders of %d scenes in %v", tried, total, len(scenes), time.Since(began).Round(time.Millisecond))
}

// TestInterleavingsOfRejectedShapesFail holds the harness to what it is for: statements that were tried and lost jobs,
// aborted, or told lies must be caught.
func TestInterleavingsOfRejectedShapesFail(t *testing.T) {
	t.Parallel()
	for _, s := range rejectedScenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			l := newRing(t)
			all := s.orders()
			n := min(all, 120)
			failed, first := 0, ""
			for i := range n {
				if faults := l.try(t.Context(), s, i*all/n); len(faults) > 0 {
					failed++
					first = faults[0]
				}
			}
			if failed == 0 {
				t.Errorf("no fault found in %d of %d orders", n, all)
			}
			t.Logf("%d of %d orders at fault, as in: %s", failed, n, first)
		})
	}
}

// inRings tries what produce yields on several databases at once.
func inRings(t *testing.T, produce func(func(scene, int64)), fault func(scene, int64, []string)) (tried int) {
	type task struct {
		scene scene
		rank  int64
	}
	tasks := make(chan task)
	var mu sync.Mutex
	var wg sync.WaitGroup
	faulty := 0
	for range rings {
		l := newRing(t)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for x := range tasks {
				faults := l.try(t.Context(), x.scene, x.rank)
				mu.Lock()
				tried++
				if len(faults) > 0 {
					if faulty++; faulty <= 10 {
						fault(x.scene, x.rank, faults)
					}
				}
				mu.Unlock()
			}
		}()
	}
	produce(func(s scene, rank int64) { tasks <- task{s, rank} })
	close(tasks)
	wg.Wait()
	if faulty > 10 {
		t.Errorf("%d orders at fault in all", faulty)
	}
	return tried
}

// scene is a set-up and the programs that race in it.
type scene struct {
	name     string
	setUp    func(*world) error
	programs []program
}

// program is one caller: a sequence of steps, as many as steps says if nothing stands in its way.
type program struct {
	steps int
	run   func(*actor)
}

// orders is the number of ways to interleave the steps.
func (s scene) orders() int64 {
	counts := s.counts()
	return multinomial(counts)
}

func (s scene) counts() []int {
	counts := make([]int, len(s.programs))
	for i, p := range s.programs {
		counts[i] = p.steps
	}
	return counts
}

func multinomial(counts []int) int64 {
	n, ways := int64(0), int64(1)
	for _, c := range counts {
		for k := int64(1); k <= int64(c); k++ {
			n++
			ways = ways * n / k // always whole: it is a product of binomials
		}
	}
	return ways
}

// order is the rank-th of the orders: whose step comes when.
func (s scene) order(rank int64) []int {
	left := s.counts()
	var order []int
	for {
		took := false
		for i := range left {
			if left[i] == 0 {
				continue
			}
			left[i]--
			if ways := multinomial(left); rank >= ways {
				rank -= ways
				left[i]++
				continue
			}
			order, took = append(order, i), true
			break
		}
		if !took {
			return order
		}
	}
}

// actor runs one program on a connection of its own, step by step.
type actor struct {
	w     *world
	conn  *pgx.Conn
	tx    pgx.Tx
	pid   uint32
	grant chan struct{}
	event chan bool // true: the program has ended; false: it stands before its next step

	busy  bool // granted, and neither at its next step nor at its end
	ended bool
	owed  int // steps the order has given it while it waited for a lock
}

// step waits for its turn.
func (a *actor) step(do func(context.Context) error) error {
	a.event <- false
	<-a.grant
	return do(a.w.ctx)
}

// begin, in a step, opens the transaction.
func (a *actor) begin(ctx context.Context) (err error) {
	a.tx, err = a.conn.Begin(ctx)
	return err
}

// end is the step that commits, or rolls back after an error.
func (a *actor) end(err error) bool {
	return a.step(func(ctx context.Context) error {
		if err != nil {
			a.w.fault("statement refused: %v", err)
			return errors.Join(err, a.tx.Rollback(ctx))
		}
		if err := a.tx.Commit(ctx); err != nil {
			a.w.fault("commit refused: %v", err)
			return err
		}
		return nil
	}) == nil
}

// ring is a database with its connections.
type ring struct {
	pool  *pgxpool.Pool
	admin *pgx.Conn
	conns []*pgx.Conn
	tried int
}

func newRing(t *testing.T) *ring {
	t.Helper()
	pool := dbtest.New(t)
	l := &ring{pool: pool}
	for i := range 5 {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Release)
		if i == 0 {
			l.admin = c.Conn()
		} else {
			l.conns = append(l.conns, c.Conn())
		}
	}
	return l
}

// try plays one order and returns what was wrong after it.
func (l *ring) try(ctx context.Context, s scene, rank int64) []string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	w := newWorld(ctx, l.admin)
	if err := l.clear(ctx); err != nil {
		return []string{err.Error()}
	}
	if err := s.setUp(w); err != nil {
		return []string{"set up: " + err.Error()}
	}
	actors := make([]*actor, len(s.programs))
	for i, p := range s.programs {
		a := &actor{w: w, conn: l.conns[i], pid: l.conns[i].PgConn().PID(), grant: make(chan struct{}), event: make(chan bool)}
		actors[i] = a
		go func() {
			p.run(a)
			a.event <- true
		}()
		a.took(<-a.event)
	}
	for _, i := range s.order(rank) {
		l.give(ctx, actors, actors[i])
	}
	for left := true; left; { // programs that needed more steps than they said
		left = false
		for _, a := range actors {
			if !a.ended {
				left = true
				l.give(ctx, actors, a)
			}
		}
	}
	w.check()
	return w.faults
}

func (l *ring) clear(ctx context.Context) error {
	l.tried++
	sql := "DELETE FROM jobs; DELETE FROM job_ready; DELETE FROM job_scheduled; DELETE FROM job_claims; DELETE FROM job_executions; DELETE FROM dead_letter_jobs; DELETE FROM job_stop_requests; DELETE FROM job_live"
	if l.tried%1000 == 0 { // they grow all the same
		sql = "TRUNCATE jobs, job_ready, job_scheduled, job_claims, job_executions, dead_letter_jobs, job_stop_requests, job_live"
	}
	_, err := l.admin.Exec(ctx, sql)
	return err
}

func (a *actor) took(ended bool) {
	a.busy, a.ended = false, ended
}

// give lets a take one step, now or as soon as the lock it waits for is free.
func (l *ring) give(ctx context.Context, all []*actor, a *actor) {
	a.owed++
	for {
		moved := false
		for _, b := range all {
			if b.owed > 0 && !b.busy {
				b.owed--
				if !b.ended {
					b.busy = true
					b.grant <- struct{}{}
					moved = true
				}
			}
		}
		if l.settle(ctx, all) || moved {
			continue
		}
		return
	}
}

// settle waits until every step under way has ended or waits for a lock. It tells whether one has ended. With all of
// them waiting there is a deadlock, which the server ends.
func (l *ring) settle(ctx context.Context, all []*actor) (ended bool) {
	for {
		waiting, idle := 0, 0
		for _, a := range all {
			if !a.busy {
				if !a.ended {
					idle++
				}
				continue
			}
			select {
			case e := <-a.event:
				a.took(e)
				return true
			case <-time.After(1500 * time.Microsecond):
			}
			if l.waits(ctx, a) {
				waiting++
				continue
			}
			return l.settle(ctx, all)
		}
		if waiting == 0 || idle > 0 {
			return false
		}
	}
}

// waits tells whether the actor's connection waits for a lock that another of ours holds.
func (l *ring) waits(ctx context.Context, a *actor) (waits bool) {
	if err := l.admin.QueryRow(ctx, "SELECT cardinality(pg_blocking_pids($1::int)) > 0", int32(a.pid)).Scan(&waits); err != nil {
		a.w.fault("ask who waits: %v", err)
		return true
	}
	return waits
}

func joinLines(lines []string) string {
	out := ""
	for i, s := range lines {
		if i > 0 {
			out += "\n  "
		}
		out += s
	}
	return out
}

// answered keeps a check of what a caller was told, for after the order.
func (w *world) answered(check func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, check)
}

func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}
