//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// kinds are the ordinary job types and how often each comes, in thousandths.
var kinds = []struct {
	name  string
	share int
}{{"ok", 660}, {"flaky", 80}, {"slow", 50}, {"long", 12}, {"tx", 90}, {"once", 60}, {"snooze", 20}, {"hopeless", 10}, {"doomed", 10}, {"deaf", 1}, {"later", 7}}

// pillKinds end their process, all but the last, which never ends.
var pillKinds = []string{"pill.exit", "pill.stack", "pill.map", "pill.memory", "pill.panic", "pill.loop"}

var queues = []string{"default", "mail", "reports"}

const plenty = 50 // attempts, of jobs that outages make fail

// order is a job to enqueue, however it is said at each door.
type order struct {
	wanted
	queue       string
	priority    int
	maxAttempts int
}

// maker makes orders, each with a name of its own.
type maker struct {
	r    *rand.Rand
	name string
	n    int
}

func newMaker(seed uint64, name string) *maker {
	var h uint64
	for _, c := range name {
		h = h*31 + uint64(c)
	}
	return &maker{r: rand.New(rand.NewPCG(seed, h)), name: name}
}

func (m *maker) next() order {
	at := m.r.IntN(1000)
	for _, k := range kinds {
		if at -= k.share; at < 0 {
			return m.of(k.name)
		}
	}
	return m.of("ok")
}

func (m *maker) of(kind string) order {
	m.n++
	o := order{queue: queues[m.r.IntN(len(queues))], priority: m.r.IntN(6), maxAttempts: plenty}
	o.Ref, o.Type = fmt.Sprintf("%s-%d", m.name, m.n), kind
	fields := map[string]any{"ref": o.Ref, "note": "Grüße, 世界 \"😀\"\n", "big": json.Number("12345678901234567890"), "list": []any{1, 2.5, nil, true}}
	switch kind {
	case "flaky":
		fields["fail"] = 1 + m.r.IntN(3)
	case "slow", "long":
		fields["work"] = 20 + m.r.IntN(200)
	case "lengthy": // enough to be flushed while it runs
		o.Type, fields["work"] = "long", 1800
	case "sluggish": // longer than the lease of a zombie
		o.Type, fields["work"] = "slow", 300+m.r.IntN(300)
	case "tx":
		fields["work"] = m.r.IntN(8)
	case "snooze":
		fields["until"] = time.Now().Add(time.Duration(200+m.r.IntN(1500)) * time.Millisecond).UnixMilli()
	case "hopeless", "pill.loop":
		o.maxAttempts = 2
	case "later": // most of them are cancelled before
		o.Type, o.After = "ok", time.Duration(3000+m.r.IntN(3000))*time.Millisecond
	}
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err) // of constants
	}
	o.Payload = b
	return o
}

// load is what all producers share.
type load struct {
	seed     uint64
	api      string
	requests *journal
	pool     *pgxpool.Pool // through the producers' network
	client   *engine.Client
	begun    time.Time
	spread   time.Duration // over which the jobs are made
	made     atomic.Int64
	cancels  chan string
	failed   func(error) // what no fault explains
}

// paced calls once until it has made n jobs that were acknowledged, evenly over
// the run.
func (l *load) paced(ctx context.Context, n int, once func() int) {
	for done := 0; done < n && ctx.Err() == nil; {
		due := l.begun.Add(time.Duration(float64(l.spread) * float64(done) / float64(n)))
		pause(ctx, time.Until(due))
		k := once()
		done += k
		l.made.Add(int64(k))
	}
}

func (l *load) note(r request, err error) {
	r.Done = time.Now()
	if err != nil {
		r.Err = err.Error()
	}
	l.requests.write(r)
	if r.Outcome != acknowledged || r.Door == "cancel" {
		return
	}
	for _, w := range r.Jobs {
		if w.After > 0 && w.ID != "" {
			select {
			case l.cancels <- w.ID:
			default:
			}
		}
	}
}

var http4s = &http.Client{Timeout: 4 * time.Second}

// byHTTP posts one job. Two of three have a key and are repeated until the answer
// is known; the third stays unknown if its answer is lost.
func (l *load) byHTTP(ctx context.Context, m *maker) int {
	o := m.next()
	if m.n%3 != 0 {
		o.Key = "key-" + o.Ref
	}
	made := 0
	for ctx.Err() == nil {
		r := request{Door: "http", Sent: time.Now()}
		id, status, err := l.post(ctx, o)
		switch {
		case err == nil && status/100 == 2:
			o.ID, r.Outcome, made = id, acknowledged, 1
		case err == nil && status != http.StatusServiceUnavailable && status != http.StatusInternalServerError && status != http.StatusConflict:
			r.Outcome = refused
			l.failed(fmt.Errorf("POST of %s: status %d", o.Ref, status))
		default:
			r.Outcome = unknown
		}
		r.Jobs = []wanted{o.wanted}
		l.note(r, err)
		if r.Outcome != unknown || o.Key == "" {
			break
		}
		pause(ctx, 100*time.Millisecond)
	}
	return made
}

func (l *load) post(ctx context.Context, o order) (id string, status int, err error) {
	body := map[string]any{"type": o.Type, "payload": o.Payload, "queue": o.queue, "priority": o.priority, "max_attempts": o.maxAttempts}
	if o.After > 0 {
		body["delay_seconds"] = o.After.Seconds()
	}
	b, err := json.Marshal(body)
	if err != nil {
		return "", 0, err
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, l.api+"/api/v1/jobs", strings.NewReader(string(b)))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if o.Key != "" {
		req.Header.Set("Idempotency-Key", o.Key)
	}
	res, err := http4s.Do(req)
	if err != nil {
		pause(ctx, 50*time.Millisecond)
		return "", 0, err
	}
	defer res.Body.Close()
	var answer struct{ ID string }
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 == 2 {
		err = json.Unmarshal(text, &answer)
	}
	return answer.ID, res.StatusCode, err
}

var errChanged = errors.New("the business changed its mind")

// bySQL writes orders of a business and their jobs in one transaction, through the
// schema's function; one in ten is rolled back.
func (l *load) bySQL(ctx context.Context, m *maker) int {
	orders := []order{m.next()}
	for m.r.IntN(3) == 0 {
		orders = append(orders, m.next())
	}
	r, back := request{Door: "sql", Sent: time.Now()}, m.r.IntN(10) == 0
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
	defer cancel()
	committing := false
	err := pgx.BeginFunc(call, l.pool, func(tx pgx.Tx) error {
		for i := range orders {
			if err := enqueueInTx(call, tx, &orders[i]); err != nil {
				return err
			}
		}
		if back {
			return errChanged
		}
		committing = true
		return nil
	})
	switch {
	case err == nil:
		r.Outcome = acknowledged
	case committing:
		r.Outcome = unknown
	default:
		r.Outcome = rolledBack
	}
	for _, o := range orders {
		if r.Outcome != acknowledged {
			o.ID = ""
		}
		r.Jobs = append(r.Jobs, o.wanted)
	}
	l.note(r, err)
	if err != nil {
		if !errors.Is(err, errChanged) {
			pause(ctx, 50*time.Millisecond)
		}
		return 0
	}
	return len(orders)
}

func enqueueInTx(ctx context.Context, tx pgx.Tx, o *order) error {
	if _, err := tx.Exec(ctx, "INSERT INTO chaos.orders (ref) VALUES ($1)", o.Ref); err != nil {
		return err
	}
	var delay *string
	if o.After > 0 {
		s := fmt.Sprintf("%d milliseconds", o.After.Milliseconds())
		delay = &s
	}
	return tx.QueryRow(ctx, `SELECT enqueue_job(type => $1, payload => $2::jsonb, queue => $3, priority => $4, delay => $5::text::interval,
		max_attempts => $6)::text`, o.Type, string(o.Payload), o.queue, o.priority, delay, o.maxAttempts).Scan(&o.ID)
}

// byBulk writes a batch through the Go door, all or none.
func (l *load) byBulk(ctx context.Context, m *maker) int {
	orders := make([]order, 20+m.r.IntN(180))
	items := make([]engine.EnqueueItem, len(orders))
	for i := range orders {
		o := m.next()
		orders[i] = o
		items[i] = engine.EnqueueItem{Args: engine.RawArgs{Type: o.Type, Payload: o.Payload}, Options: engine.EnqueueOptions{
			Queue: o.queue, Priority: engine.Priority(o.priority).Ptr(), MaxAttempts: o.maxAttempts, Delay: o.After}}
	}
	r := request{Door: "bulk", Outcome: acknowledged, Sent: time.Now()}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
	defer cancel()
	done, err := l.client.EnqueueMany(call, items)
	if err != nil {
		r.Outcome = unknown
	}
	for i, o := range orders {
		if err == nil {
			o.ID = done[i].ID.String()
		}
		r.Jobs = append(r.Jobs, o.wanted)
	}
	l.note(r, err)
	if err != nil {
		pause(ctx, 100*time.Millisecond)
		return 0
	}
	return len(orders)
}

// cancel takes back jobs that are not due yet, until ctx ends.
func (l *load) cancel(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-l.cancels:
			r := request{Door: "cancel", Sent: time.Now(), Jobs: []wanted{{ID: id}}}
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
			err := l.client.Cancel(call, mustID(id), engine.Actor{Name: "chaos"})
			cancel()
			var state *engine.StateError
			switch {
			case err == nil:
				r.Outcome = acknowledged
			case errors.As(err, &state):
				r.Outcome = refused
			default:
				r.Outcome = unknown
			}
			l.note(r, err)
		}
	}
}
