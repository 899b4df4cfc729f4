package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// listenSilence is how long a silent listener is believed before it is tried.
	listenSilence = 15 * time.Second
	// Between two tries where notifications were found not to arrive.
	deafRetry    = 30 * time.Second
	deafRetryMax = 10 * time.Minute
)

// errUnheard says that LISTEN succeeded and a notification sent on another connection
// did not come: so it is behind a pooler that lends out its connections by the
// transaction.
var errUnheard = errors.New("notifications do not arrive")

// pooled tells the mode for a transaction pooler, which default_query_exec_mode in
// the address chooses: no prepared statements, and no settings of a session.
func pooled(c *pgx.ConnConfig) bool {
	return c.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
}

// listener is one connection that hears, and its proof that it does.
type listener struct {
	e     *Engine
	conn  *pgx.Conn
	proof string // the channel of the proof, of this worker alone
	sent  int
}

// listen turns notifications into wake-ups. They are hints: without them the poll
// carries the work.
func (e *Engine) listen(ctx context.Context) {
	failures, deaf := 0, 0
	for ctx.Err() == nil {
		heard, err := e.listenOnce(ctx)
		if e.listening.Swap(false) {
			e.obs.ListenerConnected(false)
		}
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures, deaf = 0, 0
		}
		if errors.Is(err, errUnheard) {
			if deaf++; deaf == 1 {
				e.obs.ListenerConnected(false)
				e.log.Warn(LogNotificationsDead, "worker_id", e.workerID, "poll_interval", e.cfg.PollInterval.String())
			}
			e.sleep(ctx, jitter(min(deafRetry<<min(deaf-1, 8), deafRetryMax)))
			continue
		}
		failures++
		e.trouble("listener", err)
		e.sleep(ctx, backoffAfter(failures, 2*time.Second))
	}
}

func (e *Engine) listenOnce(ctx context.Context) (heard bool, err error) {
	call, cancel := context.WithTimeout(ctx, e.cfg.DBTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(call, e.cfg.Pool.Config().ConnConfig)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = conn.Close(closing)
	}()
	l := &listener{e: e, conn: conn, proof: "jobs_proof_" + strconv.FormatInt(e.workerID, 10)}
	// The proof first: what a pooler is told to listen to stays with its connections.
	if _, err := conn.Exec(call, "LISTEN "+l.proof); err != nil {
		return false, err
	}
	if err := l.prove(ctx); err != nil {
		return false, err
	}
	if _, err := conn.Exec(call, "LISTEN "+channelJobs+"; LISTEN "+channelLater+"; LISTEN "+channelStop); err != nil {
		return false, err
	}
	e.listening.Store(true)
	e.obs.ListenerConnected(true)
	e.claimer.wake("") // whatever was announced while nobody listened
	e.promoter.wake()
	for {
		if silent, err := l.hear(ctx, listenSilence, ""); err != nil {
			return true, err
		} else if !silent {
			continue
		}
		if err := l.prove(ctx); err != nil {
			return true, err
		}
	}
}

// prove sends itself a notification by another connection and waits for it: a
// connection that answers can still be one that nothing arrives on.
func (l *listener) prove(ctx context.Context) error {
	l.sent++
	token := strconv.Itoa(l.sent)
	call, cancel := context.WithTimeout(ctx, l.e.cfg.DBTimeout)
	defer cancel()
	if err := l.e.q.Notify(call, l.e.hot, l.proof, token); err != nil {
		return err
	}
	silent, err := l.hear(ctx, l.e.cfg.DBTimeout, token)
	if err != nil || !silent {
		return err
	}
	// If the connection is dead altogether, that says nothing of notifications.
	alive, cancel := context.WithTimeout(ctx, l.e.cfg.DBTimeout)
	defer cancel()
	if err := l.conn.Ping(alive); err != nil {
		return err
	}
	return errUnheard
}

// hear takes notifications until one of them is the proof, or any if that is "",
// or none came for so long.
func (l *listener) hear(ctx context.Context, patience time.Duration, proof string) (silent bool, err error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n, err := l.conn.WaitForNotification(wait)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil && wait.Err() != nil:
			return true, nil
		case err != nil:
			return false, err
		case n.Channel == l.proof:
			if n.Payload == proof {
				return false, nil
			}
			continue
		case n.Channel == channelStop:
			l.e.hintStop(n.Payload)
		case n.Channel == channelLater:
			l.e.promoter.wake()
		default:
			l.e.claimer.wake(n.Payload)
		}
		if proof == "" {
			return false, nil
		}
	}
}
