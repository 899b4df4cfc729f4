package simulate

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// batch is rows that are written in one transaction.
type batch struct {
	jobs, executions, ready, scheduled, held, dead, refused [][]any

	claims  map[int64]*madeClaim
	minutes map[minuteKey]*minuteSum
	acts    []act
}

func newBatch() *batch {
	return &batch{claims: map[int64]*madeClaim{}, minutes: map[minuteKey]*minuteSum{}}
}

// Columns of the tables that a batch fills, in the order of its rows.
var (
	jobColumns = []string{"id", "type", "queue", "priority", "max_attempts", "version", "created_at", "payload", "scheduled_at", "expires_at", "timeout_ms",
		"tags", "traceparent", "replays"}
	executionColumns = []string{"job_id", "fencing_token", "worker_id", "claimed_at", "started_at", "finished_at", "wait_ms", "attempt", "outcome",
		"error_class", "error", "stack", "fingerprint", "logs", "result"}
	readyColumns     = []string{"job_id", "ready_at", "priority", "attempt", "crashes", "queue", "type"}
	scheduledColumns = []string{"run_at", "job_id", "priority", "attempt", "crashes", "failed", "queue", "type"}
	heldColumns      = []string{"job_id", "held_at", "priority", "attempt", "crashes", "queue", "type", "reason", "hold_key"}
	deadColumns      = []string{"job_id", "fencing_token", "died_at", "discarded_at", "attempt", "crashes", "queue", "type", "reason", "error_class", "error",
		"stack", "fingerprint", "worker"}
	refusedColumns = []string{"at", "job_id", "token_held", "token_current", "worker_id", "operation", "tried"}
	claimColumns   = []string{"id", "worker_id", "claimed_at", "lease_expires_at", "job_ids", "attempts", "crashes"}
	minuteColumns  = []string{"minute", "queue", "type", "outcome", "n", "run_ms", "wait_buckets", "run_buckets"}
)

// madeClaim is a lease that still holds jobs.
type madeClaim struct {
	worker   int
	at       time.Time
	ids      []uuid.UUID
	attempts []int16
	crashes  []int16
}

// jobRow is what the rows of one job share.
type jobRow struct {
	id       uuid.UUID
	created  time.Time
	priority int16
	run      any // scheduled_at
	expires  any
	used     int
	replays  any
}

// add draws one job and everything that belongs to it.
func (w *world) add(b *batch, l lot) {
	r := rand.New(rand.NewPCG(w.seed, jobStream+uint64(l.number)))
	f := life{w: w, r: r, lot: l, line: &lines[l.line], max: 5}
	if l.cause == gatewayTimeout {
		f.max = 3
		if l.anchor < 290*time.Second && !l.lost && !l.replayed {
			f.max = 3 + r.IntN(3)
		}
	}
	f.build()
	j := jobRow{priority: drawPriority(r), used: f.settle(), created: w.now.Add(-l.anchor)}
	if l.place == scheduled || l.place == cancelled && len(f.runs) == 0 {
		at := w.now.Add(time.Duration(5+r.IntN(3600)) * time.Second)
		if r.IntN(4) == 0 {
			at = at.Add(time.Duration(r.IntN(48)) * time.Hour)
		}
		j.run = at
		if l.place == cancelled {
			j.created = j.created.Add(-time.Duration(1+r.IntN(120)) * time.Minute)
		} else if l.line == lineOf("invoice") && r.IntN(4) == 0 {
			j.expires = at.Add(time.Hour)
		}
	}
	if len(f.runs) > 0 {
		j.created = f.runs[0].due
	}
	if l.replayed {
		j.replays = int16(1)
	}
	j.id = drawID(r, j.created)
	w.addJob(b, &f, &j)
	w.addRuns(b, &f, &j)
	w.addPlace(b, &f, &j)
}

func drawPriority(r *rand.Rand) int16 {
	switch roll := r.IntN(100); {
	case roll < 4:
		return int16(engine.PriorityCritical)
	case roll < 16:
		return int16(engine.PriorityHigh)
	case roll < 30:
		return int16(engine.PriorityLow)
	}
	return int16(engine.PriorityDefault)
}

// drawID is a version 7 UUID of an instant whose random bits come from the seed.
func drawID(r *rand.Rand, at time.Time) (id uuid.UUID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	binary.BigEndian.PutUint16(id[6:], uint16(r.Uint32())&0x0fff|0x7000)
	binary.BigEndian.PutUint64(id[8:], r.Uint64()&(1<<62-1)|1<<63)
	return id
}

func (w *world) addJob(b *batch, f *life, j *jobRow) {
	var timeout, trace any
	switch f.line.jobType {
	case "charge":
		timeout = int32(10_000)
	case "video.transcode":
		timeout = int32(60_000)
	}
	if f.r.IntN(8) == 0 {
		trace = fmt.Sprintf("00-%016x%016x-%016x-01", f.r.Uint64()|1, f.r.Uint64(), f.r.Uint64()|1)
	}
	b.jobs = append(b.jobs, []any{j.id, f.line.jobType, f.line.queue, j.priority, int16(f.max), int32(1), j.created, payload(f.r, f.line.payload),
		j.run, j.expires, timeout, tags(f.r), trace, j.replays})
}

// addRuns writes the trail and counts each run into its minute.
func (w *world) addRuns(b *batch, f *life, j *jobRow) {
	for i := range f.runs {
		x := &f.runs[i]
		if f.open && i == len(f.runs)-1 {
			w.addClaim(b, x, j)
			return
		}
		var started, waited any
		if !x.started.IsZero() {
			started, waited = x.started, int32(x.wait().Milliseconds())
		}
		row := []any{j.id, x.token, w.fleet.ids[x.worker], x.claimed, started, x.finished, waited, int16(x.attempt), int16(x.outcome), nil, nil, nil, nil, nil, nil}
		switch {
		case x.cause != noCause:
			c := &causes[x.cause]
			row[9], row[10], row[11], row[12] = c.class, c.message(f.r), c.stack(f.r), c.fingerprint(f.line.jobType)
			row[13] = logs(x, c.logs)
		case x.outcome == engine.OutcomeLeaseExpired:
			row[9], row[10] = "lease_expired", "the worker stopped renewing the lease"
		case x.outcome == engine.OutcomeCompleted:
			row[14] = result(f.r, f.line.payload)
			if f.r.IntN(12) == 0 {
				row[13] = logs(x, goodLogs)
			}
		}
		b.executions = append(b.executions, row)
		b.count(f.line, x)
	}
}

var goodLogs = []logLine{{0.01, "INFO", "started", map[string]string{"source": "shop"}}, {0.98, "INFO", "done", nil}}

func (w *world) addClaim(b *batch, x *run, j *jobRow) {
	c := b.claims[x.token]
	if c == nil {
		c = &madeClaim{worker: x.worker, at: x.claimed}
		b.claims[x.token] = c
	}
	c.ids, c.attempts, c.crashes = append(c.ids, j.id), append(c.attempts, int16(j.used)), append(c.crashes, 0)
}

// addPlace puts the job where it stands, and says who did it where somebody did.
func (w *world) addPlace(b *batch, f *life, j *jobRow) {
	at, queue, jobType := w.now.Add(-f.lot.anchor), f.line.queue, f.line.jobType
	used := int16(j.used)
	switch f.lot.place {
	case ready:
		b.ready = append(b.ready, []any{j.id, at, j.priority, used, int16(0), queue, jobType})
	case held:
		b.held = append(b.held, []any{j.id, at.Add(2 * time.Second), j.priority, used, int16(0), queue, jobType, "no_worker", jobType})
	case scheduled:
		b.scheduled = append(b.scheduled, []any{j.run, j.id, j.priority, used, int16(0), false, queue, jobType})
	case retrying:
		due := w.now.Add(time.Second + scale(40*time.Second, f.r.Float64()))
		b.scheduled = append(b.scheduled, []any{due, j.id, j.priority, used, int16(0), true, queue, jobType})
	case cancelled:
		n := int64(at.Sub(w.start) / quantum)
		b.executions = append(b.executions, []any{j.id, w.token(n, noWorker), nil, nil, nil, at, nil, used, int16(engine.OutcomeCancelled), nil, nil, nil, nil, nil, nil})
		b.acts = append(b.acts, act{at: at, actor: "oncall-eu", action: "cancel", kind: "job", target: j.id.String(), reason: "the customer called", after: `{"state": "cancelled"}`})
	case dead, discarded:
		w.addDead(b, f, j)
	case completed, running:
	}
	if f.lot.lost && len(f.runs) > 1 && f.lot.number%4 == 0 {
		b.refused = append(b.refused, []any{w.now.Add(-lateWrite), j.id, f.runs[0].token, f.runs[1].token, w.fleet.ids[lostWorker], "fail",
			[]byte(`{"outcome":"failed","error_class":"GatewayTimeout","error":"charge: gateway timeout after 10 s (POST ` + gatewayURL + `): context deadline exceeded","took_ms":10004}`)})
	}
}

func (w *world) addDead(b *batch, f *life, j *jobRow) {
	last, c := &f.runs[len(f.runs)-1], &causes[f.lot.cause]
	row := b.executions[len(b.executions)-1]
	var gone any
	if f.lot.place == discarded {
		at := last.finished.Add(scale(w.now.Sub(last.finished), 0.2+0.6*f.r.Float64()))
		gone = at
		b.acts = append(b.acts, act{at: at, actor: "oncall-us", action: "discard", kind: "job", target: j.id.String(), reason: "known bad addresses", after: `{"state": "discarded"}`})
	}
	if f.lot.replayed {
		b.acts = append(b.acts, act{at: f.runs[len(f.runs)/2].due, actor: "oncall-us", action: "replay", kind: "job", target: j.id.String(),
			reason: "canary: is the gateway back?", after: `{"state": "pending"}`})
	}
	m := &w.fleet.list[last.worker]
	b.dead = append(b.dead, []any{j.id, last.token, last.finished, gone, int16(j.used), int16(f.crash), f.line.queue, f.line.jobType, string(c.reason),
		row[9], row[10], row[11], row[12],
		fmt.Appendf(nil, `{"id":"%d","name":"%s","hostname":"%s","pid":7,"version":"%s"}`, w.fleet.ids[last.worker], m.name, madeHost, m.build)})
}

type minuteKey struct {
	minute         int64
	queue, jobType string
	outcome        engine.Outcome
}

type minuteSum struct {
	n, ms      int64
	waits, run []int64
}

var bounds = engine.BucketBounds()

func bucketOf(d time.Duration) int {
	for i, b := range bounds {
		if d <= b {
			return i
		}
	}
	return len(bounds)
}

// count does what the engine does when it has written a run.
func (b *batch) count(l *line, x *run) {
	k := minuteKey{x.finished.Truncate(time.Minute).Unix(), l.queue, l.jobType, x.outcome}
	s := b.minutes[k]
	if s == nil {
		s = &minuteSum{waits: make([]int64, len(bounds)+1), run: make([]int64, len(bounds)+1)}
		b.minutes[k] = s
	}
	s.n++
	if x.started.IsZero() {
		return
	}
	took := x.finished.Sub(x.started)
	s.ms += took.Milliseconds()
	s.waits[bucketOf(x.wait())]++
	s.run[bucketOf(took)]++
}
