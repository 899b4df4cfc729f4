package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	lostWorker  = 5 // place of wrk-bill-3 in the fleet
	noWorker    = 10
	fleetWidth  = noWorker + 1 // tokens that one quantum may use
	workerLease = 30 * time.Second
	slotsEach   = 20
)

// madeWorker is a row of workers. Nobody beats for it: after its last heartbeat it
// ages like any worker whose process is gone, from live over late to lost. Its host
// says what it is.
type madeWorker struct {
	name, build string
	queues      []string
	types       []string
	slots       int
	started     time.Duration // before now
	beat        time.Duration // before now
	stopped     time.Duration // before now; 0: it runs
}

const madeHost = "simulated"

// made lists the fleet of the incident. Its places are fixed: tokens are made of them.
func made() []madeWorker {
	billing, general := crewQueues(billingCrew), crewQueues(generalCrew)
	list := []madeWorker{
		{name: "wrk-bill-1", build: "1.8.1", queues: billing, started: 8 * hour, beat: deployed, stopped: deployed},
		{name: "wrk-bill-2", build: "1.8.1", queues: billing, started: 8 * hour, beat: deployed, stopped: deployed},
		{name: "wrk-bill-3", build: "1.8.1", queues: billing, started: 8 * hour, beat: deployed, stopped: deployed},
		{name: "wrk-bill-1", build: "1.8.2", queues: billing, started: deployed + 4*time.Second, beat: 2 * time.Second},
		{name: "wrk-bill-2", build: "1.8.2", queues: billing, started: deployed + 5*time.Second, beat: 6 * time.Second},
		{name: "wrk-bill-3", build: "1.8.2", queues: billing, started: deployed + 6*time.Second, beat: lostLastBeat},
		{name: "wrk-mail-1", build: "1.8.1", queues: crewQueues(mailCrew), slots: 10, started: 8 * hour, beat: 4 * time.Second},
		{name: "wrk-mail-2", build: "1.8.1", queues: crewQueues(mailCrew), slots: 10, started: 8*hour - minute, beat: 3 * time.Second},
		{name: "wrk-gen-1", build: "1.8.1", queues: general, started: 8 * hour, beat: time.Second},
		{name: "wrk-gen-2", build: "1.8.1", queues: general, started: 8*hour - minute, beat: 7 * time.Second},
	}
	for i := range list {
		w := &list[i]
		if w.slots == 0 {
			w.slots = slotsEach
		}
		for j := range lines {
			for _, q := range w.queues {
				if lines[j].queue == q && lines[j].crew != nobody {
					w.types = append(w.types, lines[j].jobType)
				}
			}
		}
	}
	return list
}

func crewQueues(c crew) (list []string) {
	for i := range lines {
		if lines[i].crew == c && (len(list) == 0 || list[len(list)-1] != lines[i].queue) {
			list = append(list, lines[i].queue)
		}
	}
	return list
}

// fleet is the workers as they stand in the database.
type fleet struct {
	list     []madeWorker
	ids      []int64
	incident bool
}

// pick chooses who claims for a crew at an instant before now.
func (f *fleet) pick(c crew, before time.Duration, number uint32) int {
	n := int(number)
	switch c {
	case billingCrew:
		switch {
		case before > deployed:
			return n % 3
		case before > lostLastBeat+10*time.Second || !f.incident:
			return 3 + n%3
		}
		return 3 + n%2
	case mailCrew:
		return 6 + n%2
	case generalCrew, nobody:
	}
	return 8 + n%2
}

// record writes the workers. busy counts the slots that the plan fills.
func (f *fleet) record(ctx context.Context, pool *pgxpool.Pool, now time.Time, busy []int) error {
	for i := range f.list {
		w := &f.list[i]
		state, beat, stopped := "running", w.beat, any(nil)
		if w.stopped > 0 {
			state, stopped = "stopped", now.Add(-w.stopped)
		} else if i == lostWorker && !f.incident {
			beat = 5 * time.Second
		}
		var id int64
		err := pool.QueryRow(ctx, `INSERT INTO workers AS w (name, hostname, pid, version, queues, types, slots, busy, lease_ms, state, started_at, heartbeat_at, stopped_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING w.id`,
			w.name, madeHost, 7, w.build, w.queues, w.types, w.slots, busy[i], workerLease.Milliseconds(), state, now.Add(-w.started), now.Add(-beat), stopped).Scan(&id)
		if err != nil {
			return err
		}
		f.ids = append(f.ids, id)
	}
	return nil
}

// report fills in what each worker's process would have counted by its last heartbeat.
func (f *fleet) report(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		UPDATE workers AS w SET done_per_minute = x.done, failed_lately = x.failed
		FROM (
		  SELECT o.id, count(*) FILTER (WHERE e.outcome = 1 AND e.finished_at > o.heartbeat_at - interval '1 minute') AS done,
		    count(*) FILTER (WHERE e.outcome IN (2, 9)) AS failed
		  FROM workers AS o JOIN job_executions AS e ON e.worker_id = o.id
		  WHERE o.id = ANY($1) AND e.finished_at BETWEEN o.heartbeat_at - interval '15 minutes' AND o.heartbeat_at GROUP BY o.id) AS x
		WHERE w.id = x.id`, f.ids)
	if err != nil {
		return fmt.Errorf("count what workers did: %w", err)
	}
	return nil
}

// leaseEnds is when a claim of a worker ends unless it is renewed, which it is not.
func (f *fleet) leaseEnds(now time.Time, worker int) time.Time {
	return now.Add(workerLease - f.list[worker].beat)
}
