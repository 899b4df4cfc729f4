package inspect_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// world is a random state of the database: queues paused or not, workers of every
// kind, jobs in every place. It is built in a transaction that is rolled back.
type world struct {
	ctx context.Context
	tx  pgx.Tx
	q   *dbsqlc.Queries
	rnd *rand.Rand

	queues, types []string
	paused        map[string]bool
	workers       []claimer
	jobs          []placed
	takenBy       map[string][]uuid.UUID // by made-up workers of one queue and type
}

// claimer is a worker as its process would act, whatever its row says of it.
type claimer struct {
	id            int64
	queues, types []string
	takes         bool // it lives and does not drain
	slots, used   int
	suspect       bool // it runs one
}

func (c claimer) idle() bool { return c.takes && c.used < c.slots }

func (c claimer) serves(queue string) bool {
	return len(c.queues) == 0 || slices.Contains(c.queues, queue)
}

// placed is a job and the place it was put in.
type placed struct {
	id          uuid.UUID
	queue, kind string
	priority    int16
	crashes     int16
	place       string
}

func (w *world) chance(percent int) bool { return w.rnd.IntN(100) < percent }

func oneOf[T any](w *world, list []T) T { return list[w.rnd.IntN(len(list))] }

// someOf keeps each element by chance, at least one.
func (w *world) someOf(list []string, percent int) (kept []string) {
	for _, s := range list {
		if w.chance(percent) {
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 {
		kept = []string{oneOf(w, list)}
	}
	return kept
}

func (w *world) exec(sql string, args ...any) error {
	if _, err := w.tx.Exec(w.ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func (w *world) build() error {
	w.queues, w.types = []string{"billing", "mail", "slow"}[:1+w.rnd.IntN(3)], []string{"charge", "email", "report"}[:1+w.rnd.IntN(3)]
	w.paused, w.takenBy = map[string]bool{}, map[string][]uuid.UUID{}
	for _, name := range w.queues {
		if w.chance(50) {
			continue // a queue without a row is plain
		}
		w.paused[name] = w.chance(40)
		if err := w.exec(`INSERT INTO queues (name, paused_at, paused_reason) VALUES ($1, CASE WHEN $2 THEN now() - interval '1 min' END, 'a reason')`, name, w.paused[name]); err != nil {
			return err
		}
	}
	for range w.rnd.IntN(4) {
		if err := w.addWorker(); err != nil {
			return err
		}
	}
	for range 4 + w.rnd.IntN(9) {
		if err := w.addJob(); err != nil {
			return err
		}
	}
	return w.addLeases()
}

func (w *world) addWorker() error {
	c := claimer{types: w.someOf(w.types, 60), slots: w.rnd.IntN(4)}
	if w.chance(60) {
		c.queues = w.someOf(w.queues, 60)
	}
	state, age, lease := oneOf(w, []string{"running", "running", "running", "running", "draining", "stopped"}), oneOf(w, []int{0, 0, 0, 14, 16, 31}), oneOf(w, []int{15, 30, 30})
	c.takes = state == "running" && age <= lease
	if w.chance(30) {
		c.used = 1 // by a handler that outlived its run
	}
	queues := c.queues
	if len(queues) == 0 {
		queues = []string{}
	}
	err := w.tx.QueryRow(w.ctx, `INSERT INTO workers (name, hostname, pid, version, queues, types, slots, stuck, lease_ms, state, heartbeat_at)
		VALUES ('w', 'host', 1, '1', $1, $2, $3, $4, $5, $6, now() - make_interval(secs => $7)) RETURNING id`,
		queues, c.types, c.slots, c.used, lease*1000, state, age).Scan(&c.id)
	w.workers = append(w.workers, c)
	return err
}

var places = []string{"ready", "ready", "ready", "ready", "ready", "ready", "suspect", "suspect", "scheduled", "due", "failed", "held", "leased", "leased", "dead", "completed"}

func (w *world) addJob() error {
	j := placed{id: uuid.Must(uuid.NewV7()), queue: oneOf(w, w.queues), kind: oneOf(w, w.types), priority: int16(w.rnd.IntN(6)), place: oneOf(w, places)}
	if j.place == "suspect" || (j.place == "leased" || j.place == "scheduled" || j.place == "held") && w.chance(30) {
		j.crashes = int16(1 + w.rnd.IntN(3))
	}
	w.jobs = append(w.jobs, j)
	if err := w.exec(`INSERT INTO jobs (id, type, queue, priority, version) VALUES ($1, $2, $3, $4, 1)`, j.id, j.kind, j.queue, j.priority); err != nil {
		return err
	}
	switch j.place {
	case "ready", "suspect":
		return w.exec(`INSERT INTO job_ready (job_id, priority, crashes, queue, type) VALUES ($1, $2, $3, $4, $5)`, j.id, j.priority, j.crashes, j.queue, j.kind)
	case "scheduled", "due", "failed":
		return w.exec(`INSERT INTO job_scheduled (run_at, job_id, priority, crashes, failed, queue, type)
			VALUES (now() + make_interval(secs => $6), $1, $2, $3, $7, $4, $5)`, j.id, j.priority, j.crashes, j.queue, j.kind,
			map[string]int{"scheduled": 60, "due": -2, "failed": 30}[j.place], j.place == "failed")
	case "held":
		return w.exec(`INSERT INTO job_held (job_id, priority, attempt, crashes, queue, type, reason, hold_key) VALUES ($1, $2, 0, $3, $4, $5, $6, $5)`,
			j.id, j.priority, j.crashes, j.queue, j.kind, oneOf(w, []string{"no_worker", "type_paused", "dependency"}))
	case "dead":
		return w.exec(`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason) VALUES ($1, 1, 1, $2, $3, 'permanent')`, j.id, j.queue, j.kind)
	case "completed":
		return w.exec(`INSERT INTO job_executions (job_id, fencing_token, attempt, outcome, claimed_at) VALUES ($1, 1, 1, 1, now())`, j.id)
	}
	return nil
}

// addLeases gives the leased jobs to workers: ordinary ones in batches, of which one
// may have ended already, suspects each alone.
func (w *world) addLeases() error {
	holders := []int64{987654} // a worker whose row is gone
	for _, c := range w.workers {
		holders = append(holders, c.id)
	}
	batch := map[int64][]uuid.UUID{}
	for _, j := range w.jobs {
		if j.place != "leased" {
			continue
		}
		holder := oneOf(w, holders)
		if j.crashes == 0 {
			batch[holder] = append(batch[holder], j.id)
			continue
		}
		if err := w.lease(holder, []uuid.UUID{j.id}, j.crashes, true); err != nil {
			return err
		}
	}
	for holder, ids := range batch {
		ended := uuid.Must(uuid.NewV7())
		if err := w.exec(`INSERT INTO jobs (id, type, queue, version) VALUES ($1, 'email', 'mail', 1)`, ended); err != nil {
			return err
		}
		if err := w.lease(holder, ids, 0, false, ended); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) lease(holder int64, running []uuid.UUID, crashes int16, suspect bool, ended ...uuid.UUID) error {
	all := slices.Concat(running, ended)
	if _, err := w.tx.Exec(w.ctx, `WITH k AS (INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
			VALUES ($1, now() + interval '20 s', $2, array_fill(0::smallint, ARRAY[$3::int]), array_fill($4::smallint, ARRAY[$3::int])) RETURNING id)
		INSERT INTO job_executions (job_id, fencing_token, attempt, outcome, claimed_at) SELECT u.id, k.id, 1, 1, now() FROM k CROSS JOIN unnest($5::uuid[]) AS u(id)`,
		holder, all, len(all), crashes, ended); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	for i := range w.workers {
		if w.workers[i].id == holder {
			w.workers[i].used += len(running)
			w.workers[i].suspect = w.workers[i].suspect || suspect
		}
	}
	return nil
}

// claim is what a worker's next claim takes, by the real statements and in the
// order of claimOnce: one suspect, unless it runs one, then a batch over the lanes.
// All is undone.
func (w *world) claim(c claimer, want int) (taken []uuid.UUID, err error) {
	save, err := w.tx.Begin(w.ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if undo := save.Rollback(w.ctx); err == nil {
			err = undo
		}
	}()
	queues := c.queues
	if len(queues) == 0 {
		if queues, err = w.q.ListReadyQueues(w.ctx, save); err != nil {
			return nil, err
		}
	}
	if !c.suspect {
		rows, err := w.q.ClaimSuspects(w.ctx, save, queues, c.types, 1, 3, c.id, 30)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			taken = append(taken, r.JobID)
		}
	}
	p := dbsqlc.ClaimJobsParams{Types: c.types, MaxJobs: int32(want), WorkerID: c.id, LeaseSeconds: 30}
	for priority := int16(5); priority >= 0; priority-- {
		for _, name := range queues {
			p.Queues, p.Priorities, p.Marks, p.Wants = append(p.Queues, name), append(p.Priorities, priority), append(p.Marks, 0), append(p.Wants, int32(want))
		}
	}
	rows, err := w.q.ClaimJobs(w.ctx, save, p)
	for _, r := range rows {
		taken = append(taken, r.JobID)
	}
	return taken, err
}

// String is the world in a few lines, for the report of a failure.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "paused %v\n", w.paused)
	for _, c := range w.workers {
		fmt.Fprintf(&b, "worker %+v\n", c)
	}
	for _, j := range w.jobs {
		fmt.Fprintf(&b, "job %+v\n", j)
	}
	return b.String()
}
