package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
)

// TestLife plays the stories of testdata/life: jobs and workers on Postgres, step by step, through the functions that
// the loops of a started engine call. The clock is in the script's hands: advance moves every stored instant into the
// past, which is the same thing seen from the other side, so that the statements need no argument for it.
func TestLife(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/life",
		Setup: setupLife,
		Cmds:  lifeCommands(),
	})
}

// life is one script's world.
type life struct {
	ctx     context.Context
	pool    *pgxpool.Pool
	workers map[string]*Engine
	refused map[*Engine]*refusals
	names   map[ID]string
	ids     map[string]ID
	runs    []*run
	spoiled bool // by hand: what it left is not the engine's
}

type lifeKey struct{}

// refusals counts what the database did not accept from one worker.
type refusals struct {
	NopObserver
	n atomic.Int64
}

func (r *refusals) WriteRefused(string) { r.n.Add(1) }

func setupLife(env *testscript.Env) error {
	env.Values[lifeKey{}] = newLife(env.T().(testing.TB))
	return nil
}

// LifeOver judges what a script has left. It is set by the outer test package,
// which may import what imports this one.
var LifeOver = func(testing.TB, *pgxpool.Pool) {}

func newLife(t testing.TB) *life {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w := &life{ctx: ctx, pool: dbtest.New(t), workers: map[string]*Engine{}, refused: map[*Engine]*refusals{}, names: map[ID]string{},
		ids: map[string]ID{}}
	if err := moves.Install(ctx, w.pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !w.spoiled {
			LifeOver(t, w.pool)
		}
		for _, e := range w.workers {
			e.endLoops()
			e.endDB()
			e.closePools()
		}
		cancel()
	})
	return w
}

// worker is an engine whose loops do not run: the script calls their passes.
func (w *life) worker(name string) (*Engine, error) {
	if e := w.workers[name]; e != nil {
		return e, nil
	}
	ws := NewWorkers()
	RegisterType(ws, "life", WorkerFunc[RawArgs](func(context.Context, *Job[RawArgs]) error { return nil }), TypeOptions{})
	r := &refusals{}
	// The shortest heartbeat: after a start of the server the reaper waits for one, and the test's has just started.
	e, err := New(Config{Pool: w.pool, Workers: ws, Name: name, Observer: r, HeartbeatInterval: 10 * time.Millisecond,
		Retry: FullJitter{Base: time.Second, Max: 5 * time.Second}})
	if err != nil {
		return nil, err
	}
	if err := e.openPools(w.ctx); err != nil {
		return nil, err
	}
	if err := e.register(w.ctx); err != nil {
		return nil, err
	}
	w.workers[name], w.refused[e] = e, r
	return e, nil
}

// find returns the run of a job under a token, whoever had it.
func (w *life) find(job string, token int64) (*run, error) {
	for _, r := range w.runs {
		if r.row.ID == w.ids[job] && r.row.FencingToken == token {
			return r, nil
		}
	}
	return nil, fmt.Errorf("no worker ever had %s under token %d", job, token)
}

// lifeArgs are a command's words: names, and settings as key=value.
type lifeArgs struct {
	names  []string
	values map[string]string
}

func parseLife(args []string) lifeArgs {
	a := lifeArgs{values: map[string]string{}}
	for _, arg := range args {
		if k, v, ok := strings.Cut(arg, "="); ok {
			a.values[k] = v
		} else {
			a.names = append(a.names, arg)
		}
	}
	return a
}

func (a lifeArgs) number(key string, def int64) (int64, error) {
	if s, ok := a.values[key]; ok {
		return strconv.ParseInt(s, 10, 64)
	}
	return def, nil
}

func (a lifeArgs) duration(key string) (time.Duration, error) {
	if s, ok := a.values[key]; ok {
		return time.ParseDuration(s)
	}
	return 0, nil
}

// lifeVerbs is what can happen to jobs.
var lifeVerbs = map[string]func(*life, lifeArgs) (string, error){
	"enqueue": (*life).enqueue, "claim": (*life).claim, "heartbeat": (*life).heartbeat, "reap": (*life).reap,
	"promote": (*life).promote, "expire": (*life).expire, "prune": (*life).prune, "advance": (*life).advance,
	"status": (*life).status, "trail": (*life).trail, "dead": (*life).dead, "spoil": (*life).spoil, "leases": (*life).leases,
	"complete": finishing(func(r *run, _ lifeArgs) error { return nil }),
	"fail":     finishing(func(r *run, a lifeArgs) error { return failure(a) }),
	"snooze": finishing(func(r *run, a lifeArgs) error {
		d, _ := a.duration("for")
		return Snooze(d)
	}),
	"handback": (*life).handback, "crash": (*life).crash,
	"cancel": acting((*Client).Cancel), "replay": acting((*Client).Replay), "discard": acting((*Client).Discard), "run-now": acting((*Client).RunNow),
	"restore": acting((*Client).Restore), "edit": (*life).edit,
}

// lifeCommands makes testscript commands of the verbs: "! complete j1 token=1" wants a failure, whose text stands in
// stderr.
func lifeCommands() map[string]func(*testscript.TestScript, bool, []string) {
	commands := map[string]func(*testscript.TestScript, bool, []string){}
	for name, do := range lifeVerbs {
		commands[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			out, err := do(ts.Value(lifeKey{}).(*life), parseLife(args))
			fmt.Fprint(ts.Stdout(), out)
			if err != nil {
				fmt.Fprintln(ts.Stderr(), err)
			}
			switch {
			case err != nil && !neg:
				ts.Fatalf("%s: %v", name, err)
			case err == nil && neg:
				ts.Fatalf("%s succeeded, which was not wanted", name)
			}
		}
	}
	return commands
}

func failure(a lifeArgs) error {
	err := errors.New("it broke")
	if _, ok := a.values["permanent"]; ok {
		return Permanent(err)
	}
	if d, _ := a.duration("after"); d > 0 {
		return RetryAfter(err, d)
	}
	return err
}

// enqueue j1 [priority=5] [delay=1m] [max=5] [expires=1m] [queue=mail] [type=life]
func (w *life) enqueue(a lifeArgs) (string, error) {
	e, err := w.worker("door")
	if err != nil {
		return "", err
	}
	var o EnqueueOptions
	priority, err1 := a.number("priority", int64(PriorityDefault))
	most, err2 := a.number("max", 0)
	delay, err3 := a.duration("delay")
	expires, err4 := a.duration("expires")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return "", err
	}
	o.Priority, o.MaxAttempts, o.Delay, o.Queue = Priority(priority).Ptr(), int(most), delay, a.values["queue"]
	if expires > 0 {
		o.ExpiresAt = time.Now().Add(expires)
	}
	jobType := "life"
	if s, ok := a.values["type"]; ok {
		jobType = s
	}
	for _, name := range a.names {
		done, err := e.client.Enqueue(w.ctx, RawArgs{Type: jobType}, o)
		if err != nil {
			return "", err
		}
		w.ids[name], w.names[done.ID] = done.ID, name
	}
	return "", nil
}

// claim [j1 j2] by=w1 [max=2]: claims as an idle worker with that many slots would, and prints what it got. With names
// it must be these, in this order.
func (w *life) claim(a lifeArgs) (string, error) {
	e, err := w.worker(a.values["by"])
	if err != nil {
		return "", err
	}
	most, err := a.number("max", int64(max(1, len(a.names))))
	if err != nil {
		return "", err
	}
	// What the claimer remembers are shortcuts with a time limit in real time, which the script's clock does not move.
	e.claimer.queuesAt, e.claimer.rescanAt, e.claimer.suspectAt = time.Time{}, time.Time{}, time.Time{}
	if _, err := e.claimer.claimOnce(int(most)); err != nil {
		return "", err
	}
	runs := e.buffer.drain()
	w.runs = append(w.runs, runs...)
	got, lines := []string{}, ""
	for _, r := range runs {
		e.inFlight.Add(-1)
		if r.suspect {
			e.suspects.Add(-1)
		}
		got = append(got, w.names[r.row.ID])
		line, err := w.status(lifeArgs{names: []string{w.names[r.row.ID]}})
		if err != nil {
			return "", err
		}
		lines += line
	}
	if want := strings.Join(a.names, " "); len(a.names) > 0 && strings.Join(got, " ") != want {
		return lines, fmt.Errorf("claimed [%s], want [%s]", strings.Join(got, " "), want)
	}
	if len(runs) == 0 {
		return "nothing\n", nil
	}
	return lines, nil
}

// finishing ends a run as its handler's return would.
func finishing(answer func(*run, lifeArgs) error) func(*life, lifeArgs) (string, error) {
	return func(w *life, a lifeArgs) (string, error) {
		return w.end(a, func(r *run) { r.finish(answer(r, a), nil) })
	}
}

// end settles a run and writes it, as the finisher's loop does.
func (w *life) end(a lifeArgs, settle func(*run)) (string, error) {
	token, err := a.number("token", 0)
	if err != nil {
		return "", err
	}
	r, err := w.find(a.names[0], token)
	if err != nil {
		return "", err
	}
	e := r.engine
	before := w.refused[e].n.Load()
	r.state.Store(runRunning) // a worker may try to write the same end again
	r.began = time.Now()
	r.lease.seenAt = r.began.Add(-time.Millisecond)
	settle(r)
	if err := e.finisher.write(e.finisher.next()); err != nil {
		return "", err
	}
	if w.refused[e].n.Load() > before {
		return "", fmt.Errorf("finish job %s under token %d: %w", a.names[0], token, ErrLeaseLost)
	}
	return w.status(a)
}

func (w *life) handback(a lifeArgs) (string, error) {
	return w.end(a, func(r *run) { r.settle(handedBack(r.row)) })
}

// crash j1 token=1: a living parent saw the run's process die.
func (w *life) crash(a lifeArgs) (string, error) {
	return w.end(a, func(r *run) { r.settle(crashed(r.row, r.engine.cfg.CrashLimit, "signal: killed", "")) })
}

func (w *life) heartbeat(a lifeArgs) (string, error) {
	e, err := w.worker(a.values["by"])
	if err != nil {
		return "", err
	}
	held := len(e.leases.tokens())
	if err := e.beatOnce(w.ctx); err != nil {
		return "", err
	}
	if kept := len(e.leases.tokens()); kept < held {
		return "", fmt.Errorf("heartbeat of %s: %d of %d: %w", a.values["by"], held-kept, held, ErrLeaseLost)
	}
	return fmt.Sprintf("renewed %d\n", held), nil
}

func (w *life) reap(lifeArgs) (string, error) {
	e, err := w.worker("leader")
	if err != nil {
		return "", err
	}
	return "", e.reapOnce(w.ctx)
}

func (w *life) promote(lifeArgs) (string, error) {
	e, err := w.worker("leader")
	if err != nil {
		return "", err
	}
	_, err = e.promoter.promoteOnce()
	return "", err
}

func (w *life) expire(lifeArgs) (string, error) {
	e, err := w.worker("leader")
	if err != nil {
		return "", err
	}
	return "", e.expireWaiting()
}

func (w *life) prune(lifeArgs) (string, error) {
	e, err := w.worker("leader")
	if err != nil {
		return "", err
	}
	e.walkedAt = time.Time{} // a new day
	return "", e.pruneOnce(w.ctx)
}

func acting(act func(*Client, context.Context, ID, Actor) error) func(*life, lifeArgs) (string, error) {
	return func(w *life, a lifeArgs) (string, error) {
		e, err := w.worker("door")
		if err != nil {
			return "", err
		}
		if err := act(e.client, w.ctx, w.ids[a.names[0]], Actor{Name: "script"}); err != nil {
			return "", err
		}
		return w.status(a)
	}
}

// instants are the columns that advance moves.
var instants = map[string][]string{
	"jobs": {"created_at", "scheduled_at", "expires_at"}, "job_ready": {"ready_at"}, "job_scheduled": {"run_at"}, "job_held": {"held_at"},
	"job_claims": {"claimed_at", "lease_expires_at"}, "job_executions": {"claimed_at", "started_at", "finished_at"},
	"dead_letter_jobs": {"died_at", "discarded_at"}, "idempotency_keys": {"created_at", "expires_at"},
	"leaders": {"acquired_at", "expires_at"}, "workers": {"started_at", "heartbeat_at", "stopped_at"},
	"job_stats_deltas": {"at"},
}

// advance 31s
func (w *life) advance(a lifeArgs) (string, error) {
	d, err := time.ParseDuration(a.names[0])
	if err != nil {
		return "", err
	}
	tx, err := w.pool.Begin(w.ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback(w.ctx) }() // after a commit it has nothing to do
	for table, columns := range instants {
		sets := make([]string, len(columns))
		for i, c := range columns {
			sets[i] = c + " = " + c + " - make_interval(secs => $1::float8)"
		}
		if _, err := tx.Exec(w.ctx, "UPDATE "+table+" SET "+strings.Join(sets, ", "), d.Seconds()); err != nil {
			return "", err
		}
	}
	if err := tx.Commit(w.ctx); err != nil {
		return "", err
	}
	w.remember(d)
	return "", nil
}

// remember moves what workers remember of the database's clock.
func (w *life) remember(d time.Duration) {
	for _, e := range w.workers {
		if !e.promoter.mark.IsZero() {
			e.promoter.mark = e.promoter.mark.Add(-d)
		}
		if !e.expired.at.IsZero() {
			e.expired.at = e.expired.at.Add(-d)
		}
	}
	leases := map[*lease]bool{}
	for _, r := range w.runs {
		r.row.ReadyAt = r.row.ReadyAt.Add(-d)
		leases[r.lease] = true
	}
	for l := range leases {
		l.claimedAt = l.claimedAt.Add(-d)
	}
}

// status j1 prints where it stands: j1 leased token=2 attempt=1 crashes=0
func (w *life) status(a lifeArgs) (string, error) {
	out := ""
	for _, name := range a.names {
		var state string
		var token int64
		var attempt, crashes int
		err := w.pool.QueryRow(w.ctx, `SELECT coalesce(max(CASE WHEN discarded_at IS NOT NULL THEN 'discarded' ELSE coalesce(state, 'nowhere') END), 'gone'),
			coalesce(max(fencing_token), 0), coalesce(max(attempt), 0), coalesce(max(crashes), 0) FROM job_states WHERE id = $1`,
			w.ids[name]).Scan(&state, &token, &attempt, &crashes)
		if err != nil {
			return "", err
		}
		out += fmt.Sprintf("%s %s token=%d attempt=%d crashes=%d\n", name, state, token, attempt, crashes)
	}
	return out, nil
}

// trail j1 prints its runs: token=1 attempt=1 lease_expired
func (w *life) trail(a lifeArgs) (string, error) {
	rows, err := w.pool.Query(w.ctx, "SELECT fencing_token, attempt, outcome FROM job_executions WHERE job_id = $1 ORDER BY fencing_token",
		w.ids[a.names[0]])
	if err != nil {
		return "", err
	}
	defer rows.Close()
	out := ""
	for rows.Next() {
		var token int64
		var attempt int
		var outcome Outcome
		if err := rows.Scan(&token, &attempt, &outcome); err != nil {
			return "", err
		}
		out += fmt.Sprintf("token=%d attempt=%d %s\n", token, attempt, outcome)
	}
	return out, rows.Err()
}

// leases prints how many there are.
func (w *life) leases(lifeArgs) (string, error) {
	var n int
	err := w.pool.QueryRow(w.ctx, "SELECT count(*) FROM job_claims").Scan(&n)
	return fmt.Sprintf("%d leases\n", n), err
}

// spoil j1 attempt=7 makes of a waiting job what no statement makes of it: one with more attempts than it may have.
func (w *life) spoil(a lifeArgs) (string, error) {
	n, err := a.number("attempt", 0)
	if err != nil {
		return "", err
	}
	w.spoiled = true
	_, err = w.pool.Exec(w.ctx, "UPDATE job_ready SET attempt = $2 WHERE job_id = $1", w.ids[a.names[0]], n)
	return "", err
}

// dead j1 prints why it died: j1 poison crashes=10
func (w *life) dead(a lifeArgs) (string, error) {
	var reason string
	var attempt, crashes int
	err := w.pool.QueryRow(w.ctx, "SELECT reason, attempt, crashes FROM dead_letter_jobs WHERE job_id = $1", w.ids[a.names[0]]).
		Scan(&reason, &attempt, &crashes)
	return fmt.Sprintf("%s %s attempt=%d crashes=%d\n", a.names[0], reason, attempt, crashes), err
}
