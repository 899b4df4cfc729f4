package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/fault"
)

const (
	rescanEvery  = time.Second // full passes, with all marks 0
	rescanShare  = 10          // a full pass may take a tenth of the time
	suspectEvery = time.Second
	queuesEvery  = time.Second
	priorities   = 6
)

// lane is one queue at one priority.
type lane struct {
	queue    string
	priority int16
}

// claimer is the one goroutine of a process that claims. What it remembers of
// the lanes is only a way to look at less: a full pass finds all.
type claimer struct {
	e     *Engine
	freed chan struct{} // a slot came free
	woken chan struct{} // new jobs may stand in line

	mu    sync.Mutex
	hints map[string]struct{} // queues named by notifications

	queues     []string
	queuesAt   time.Time
	turn       int
	marks      map[lane]int64
	rescanAt   time.Time
	suspectAt  time.Time
	sawSuspect bool
	lost       bool // the last claim's answer was lost
}

func newClaimer(e *Engine) *claimer {
	return &claimer{e: e, freed: make(chan struct{}, 1), woken: make(chan struct{}, 1), hints: map[string]struct{}{}, marks: map[lane]int64{}}
}

// signal tells that a slot came free.
func (c *claimer) signal() {
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// wake tells that a queue may have a ready job; "" that any may.
func (c *claimer) wake(queue string) {
	if queue != "" {
		if !c.e.serves(queue) {
			return
		}
		c.mu.Lock()
		if len(c.hints) < 10_000 {
			c.hints[queue] = struct{}{}
		}
		c.mu.Unlock()
	}
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// run claims while there is room and work. When a claim brought less than was
// asked for, the lines are empty: it waits for a hint, or the poll.
func (c *claimer) run(ctx context.Context) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	drained, failures := false, 0
	for ctx.Err() == nil {
		if want := c.e.room(); want > 0 && !drained {
			got, err := c.claimOnce(want)
			switch {
			case err != nil:
				c.lost = true
				failures++
				c.e.trouble("claim", err)
				c.e.sleep(ctx, backoffAfter(failures, time.Second))
			default:
				failures = 0
				c.e.lastClaim.Store(time.Now().UnixNano())
				drained = got < want
			}
			poll.Reset(jitter(c.e.cfg.PollInterval))
			continue
		}
		select {
		case <-ctx.Done():
		case <-c.freed:
			// The suspect that ran may have ended; the next one waits behind it.
			drained = drained && !c.sawSuspect
		case <-c.woken:
			drained = false
		case <-poll.C:
			drained = false
			poll.Reset(jitter(c.e.cfg.PollInterval))
		}
	}
}

// claimOnce claims up to want jobs and hands them to the slots.
func (c *claimer) claimOnce(want int) (int, error) {
	ctx, cancel := c.e.dbContext()
	defer cancel()
	if c.lost {
		if err := c.e.releaseUnknown(ctx); err != nil {
			return 0, err
		}
		c.lost = false
	}
	if err := c.findQueues(ctx); err != nil {
		return 0, err
	}
	suspects, err := c.claimSuspects(ctx)
	if err != nil {
		return 0, err
	}
	want = min(want-suspects, maxBatch)
	if len(c.queues) == 0 || want <= 0 {
		return suspects, nil
	}
	full := time.Now().After(c.rescanAt)
	got, err := c.claimPass(ctx, want, full)
	if err == nil && got == 0 && !full {
		got, err = c.claimPass(ctx, want, true)
	}
	return got + suspects, err
}

// claimPass is one round over the lanes: first each queue's share of the room,
// then what is left of it for whoever has more.
func (c *claimer) claimPass(ctx context.Context, want int, full bool) (int, error) {
	began := time.Now()
	share := (want + len(c.queues) - 1) / len(c.queues)
	got, err := c.claimLanes(ctx, want, share, full)
	if err == nil && share < want && got > 0 && got < want {
		var more int
		more, err = c.claimLanes(ctx, want-got, want-got, full)
		got += more
	}
	if full {
		c.rescanAt = time.Now().Add(max(rescanEvery, rescanShare*time.Since(began)))
	}
	c.turn++
	return got, err
}

func (c *claimer) claimLanes(ctx context.Context, most, share int, full bool) (int, error) {
	n := len(c.queues) * priorities
	p := dbsqlc.ClaimJobsParams{Queues: make([]string, 0, n), Priorities: make([]int16, 0, n), Marks: make([]int64, 0, n),
		Wants: make([]int32, 0, n), Types: c.e.types, MaxJobs: int32(most), WorkerID: c.e.workerID, LeaseSeconds: c.e.cfg.LeaseDuration.Seconds()}
	for priority := int16(priorities - 1); priority >= 0; priority-- {
		for i := range c.queues {
			l := lane{c.queues[(c.turn+i)%len(c.queues)], priority}
			mark := c.marks[l]
			if full {
				mark = 0
			}
			p.Queues = append(p.Queues, l.queue)
			p.Priorities = append(p.Priorities, priority)
			p.Marks = append(p.Marks, mark)
			p.Wants = append(p.Wants, int32(share))
		}
	}
	sent := time.Now()
	fault.Point("claim.before")
	rows, err := c.e.q.ClaimJobs(ctx, c.e.hot, p)
	if err != nil {
		return 0, err
	}
	if len(rows) > 0 {
		fault.Point("claim.after")
	}
	c.e.obs.ClaimTook(time.Since(sent), len(rows))
	c.remember(rows)
	c.e.admit(rows, time.Now(), false)
	return len(rows), nil
}

// remember moves the marks up: the highest seq claimed, less what transactions
// and other claimers still under way may leave behind it.
func (c *claimer) remember(rows []dbsqlc.ClaimJobsRow) {
	margin := int64(2 * maxBatch * max(1, int(c.e.claimers.Load())))
	for i := range rows {
		l := lane{rows[i].Queue, rows[i].Priority}
		if mark := rows[i].Seq - margin; mark > c.marks[l] {
			c.marks[l] = mark
		}
	}
}

// mostSuspects is how many share a lease at most. If the worker dies, too, each of
// them counts one more loss: so they are few.
const mostSuspects = 10

const (
	// slowSuspect is how long a suspect may run until the next ones are looked for.
	slowSuspect = 200 * time.Millisecond
	// mostChildren is how many suspects run at a time, each in a child of its own.
	mostChildren = 8
)

// suspectsSuffice tells whether those in hand are enough: the first to run, or as
// many as there may be children. While all of them take long, there is one more.
func (e *Engine) suspectsSuffice() bool {
	inHand := e.suspects.Load()
	if inHand == 0 || !e.isolator.isolates() || inHand >= mostChildren {
		return inHand > 0
	}
	slow := int64(0)
	now := time.Now()
	for i := range e.running {
		if r := e.running[i].Load(); r != nil && r.suspect && r.state.Load() == runRunning && now.Sub(r.began) > slowSuspect {
			slow++
		}
	}
	return slow < inHand
}

// claimSuspects takes jobs whose last run was lost with its process: as many as run
// within a moment, one after the other in a child, whose death names its culprit.
// Without a child it is one, so that another lost lease does.
func (c *claimer) claimSuspects(ctx context.Context) (int, error) {
	if c.e.suspectsSuffice() || c.e.isolator.resting() || len(c.queues) == 0 || !c.sawSuspect && time.Now().Before(c.suspectAt) {
		return 0, nil
	}
	c.suspectAt = time.Now().Add(suspectEvery)
	most := 1
	if c.e.isolator.isolates() {
		most = max(1, min(c.e.pace.prefetch(1), mostSuspects))
	}
	rows, err := c.e.q.ClaimSuspects(ctx, c.e.hot, c.queues, c.e.types, int32(most), int32(c.e.cfg.CrashLimit), c.e.workerID,
		c.e.cfg.LeaseDuration.Seconds())
	if err != nil {
		return 0, err
	}
	c.sawSuspect = len(rows) > 0
	if c.sawSuspect {
		fault.Point("claim.suspect")
	}
	same := make([]dbsqlc.ClaimJobsRow, len(rows))
	for i, r := range rows {
		same[i] = dbsqlc.ClaimJobsRow(r)
	}
	c.e.admit(same, time.Now(), true)
	return min(len(rows), 1), nil // they take one slot
}

// findQueues keeps the list of queues with ready jobs: those served, or with
// none named those seen in line or in a notification.
func (c *claimer) findQueues(ctx context.Context) error {
	if len(c.e.cfg.Queues) > 0 {
		c.queues = c.e.cfg.Queues
		return nil
	}
	c.mu.Lock()
	hinted := slices.Collect(maps.Keys(c.hints))
	clear(c.hints)
	c.mu.Unlock()
	for _, q := range hinted {
		if i, found := slices.BinarySearch(c.queues, q); !found {
			c.queues = slices.Insert(c.queues, i, q)
		}
	}
	if time.Now().Before(c.queuesAt) {
		return nil
	}
	began := time.Now()
	queues, err := c.e.q.ListReadyQueues(ctx, c.e.hot)
	if err != nil {
		return err
	}
	c.queuesAt = time.Now().Add(max(queuesEvery, rescanShare*time.Since(began)))
	c.queues = queues
	for l := range c.marks {
		if _, found := slices.BinarySearch(queues, l.queue); !found && len(c.marks) > 10_000 {
			delete(c.marks, l)
		}
	}
	return nil
}
