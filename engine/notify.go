package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

// The channels. A payload is a queue's name, a worker's id, or nothing: Postgres refuses 8,000
// bytes and more, and with the notification the transaction.
const (
	channelJobs  = "jobs"
	channelLater = "jobs_later"
	channelStop  = "jobs_stop" // with the id of a worker
)

const (
	// Every notifying commit takes a database-wide lock, so that a storm pays
	// for some hundred notifications a second and a lone job for one, at once.
	notifyEvery   = 5 * time.Millisecond
	notifyTxEvery = 10 * time.Millisecond
	notifyTimeout = 2 * time.Second
)

// notifier sends hints outside the enqueuing transactions. One goroutine runs
// while there is something to send; close waits for it.
type notifier struct {
	pool *pgxpool.Pool
	q    *dbsqlc.Queries

	mu        sync.Mutex
	queues    map[string]struct{}
	laterDue  bool
	sending   bool
	closed    bool
	idle      chan struct{} // closed when the sender ends
	txAt      map[string]time.Time
	lastNotes time.Time
}

func newNotifier(pool *pgxpool.Pool, q *dbsqlc.Queries) *notifier {
	return &notifier{pool: pool, q: q, queues: map[string]struct{}{}, txAt: map[string]time.Time{}}
}

// queue hints that a queue has a ready job, at once or with the next batch.
func (n *notifier) queue(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queues[name] = struct{}{}
	n.start()
}

// later hints that a job was scheduled, maybe before all others.
func (n *notifier) later() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.laterDue = true
	n.start()
}

// insideTx tells whether a caller's transaction should notify by itself. One
// that should not is made up for from outside, after it has had time to commit.
func (n *notifier) insideTx(queue string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.txAt[queue]) >= notifyTxEvery {
		if len(n.txAt) > 1000 {
			clear(n.txAt)
		}
		n.txAt[queue] = now
		return true
	}
	if len(n.queues) == 0 {
		n.lastNotes = time.Now().Add(notifyTxEvery - notifyEvery)
	}
	n.queues[queue] = struct{}{}
	n.start()
	return false
}

// start runs the sender; the caller holds mu.
func (n *notifier) start() {
	if n.sending || n.closed {
		return
	}
	n.sending = true
	n.idle = make(chan struct{})
	go n.send(n.idle)
}

func (n *notifier) send(idle chan struct{}) {
	defer close(idle)
	for {
		n.mu.Lock()
		if wait := notifyEvery - time.Since(n.lastNotes); wait > 0 && !n.closed {
			n.mu.Unlock()
			time.Sleep(wait)
			continue
		}
		if len(n.queues) == 0 && !n.laterDue {
			n.sending = false
			n.mu.Unlock()
			return
		}
		queues := make([]string, 0, len(n.queues))
		for q := range n.queues {
			queues = append(queues, q)
		}
		clear(n.queues)
		later := n.laterDue
		n.laterDue = false
		n.lastNotes = time.Now()
		n.mu.Unlock()
		n.post(queues, later)
	}
}

// post loses hints when the database does not answer; polling carries the work.
func (n *notifier) post(queues []string, later bool) {
	ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
	defer cancel()
	if len(queues) > 0 {
		_ = n.q.NotifyQueues(ctx, n.pool, queues)
	}
	if later {
		_ = n.q.Notify(ctx, n.pool, channelLater, "")
	}
}

func (n *notifier) close(ctx context.Context) error {
	n.mu.Lock()
	n.closed = true
	idle, sending := n.idle, n.sending
	n.mu.Unlock()
	if !sending {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close client: %w", ctx.Err())
	}
}
