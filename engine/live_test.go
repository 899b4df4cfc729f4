package engine_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// teller logs a numbered line and says how far it is, over and over, until told to end.
func teller(every time.Duration, end <-chan struct{}, then error) handler {
	return func(ctx context.Context, job *work) error {
		for i := 0; ; i++ {
			job.Log().Info(fmt.Sprintf("line %d", i+1), "at", time.Now().UnixMilli())
			job.SetProgress(float64(i%101), fmt.Sprintf("step %d", i))
			select {
			case <-end:
				return then
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(every):
			}
		}
	}
}

const liveRow = "SELECT coalesce((SELECT concat_ws('|', progress >= 0, progress_text LIKE 'step %', logs->0->>'msg', logs->0->>'n') FROM job_live WHERE job_id = $1), '')"

func TestProgressAndLogLinesAreSeenLive(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	end := make(chan struct{})
	e := start(t, pool, hasty(handlers(map[string]handler{"tell": teller(20*time.Millisecond, end, nil)})))
	id := enqueue(t, e, "tell", engine.EnqueueOptions{})
	within(t, 5*time.Second, "it is seen while it runs", func() bool { return one[string](t, pool, liveRow, id) == "t|t|line 1|1" })
	lines := func() int {
		return one[int](t, pool, "SELECT coalesce((SELECT jsonb_array_length(logs) FROM job_live WHERE job_id = $1), 0)", id)
	}
	before := lines()
	within(t, 3*time.Second, "more of it is seen later", func() bool { return lines() > before })
	close(end)
	reaches(t, pool, id, "completed")
	if n := one[int](t, pool, "SELECT count(*) FROM job_live"); n != 0 {
		t.Errorf("%d live rows are left over", n)
	}
	if got := one[string](t, pool, "SELECT concat_ws('|', progress >= 0, progress_text LIKE 'step %', logs->0->>'msg') FROM job_executions WHERE job_id = $1", id); got != "t|t|line 1" {
		t.Errorf("the execution keeps %s", got)
	}
	if got := one[int](t, pool, "SELECT jsonb_array_length(logs) FROM job_executions WHERE job_id = $1", id); got < before {
		t.Errorf("%d lines at the end, %d before", got, before)
	}
	healthy(t, pool, e)
}

// TestProgressIsKeptAsGiven: cut to its bounds, one line, what Postgres can store.
func TestProgressIsKeptAsGiven(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	told := map[string]func(*work){
		"whole": func(j *work) { j.SetProgress(33.3, "a third") }, "low": func(j *work) { j.SetProgress(-5, "") },
		"high": func(j *work) { j.SetProgress(1e300, "\x00\xff") }, "zero": func(j *work) { j.SetProgress(0/zero, strings.Repeat("é", 300)) }, "none": func(*work) {},
	}
	byType := map[string]handler{}
	for name, tell := range told {
		byType[name] = func(_ context.Context, j *work) error { tell(j); return nil }
	}
	e := start(t, pool, hasty(handlers(byType)))
	for name, want := range map[string]string{"whole": "33.3|a third", "low": "0", "high": "100|\uFFFD\uFFFD", "zero": "0|" + strings.Repeat("é", 95) + "… (cut)", "none": ""} {
		id := enqueue(t, e, name, engine.EnqueueOptions{})
		reaches(t, pool, id, "completed")
		if got := one[string](t, pool, "SELECT concat_ws('|', progress, progress_text) FROM job_executions WHERE job_id = $1", id); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

var zero float64

// childTeller runs jobs that tell of themselves until it is killed.
func childTeller() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("RJE_TEST_URL"))
	if err == nil {
		c := hasty(handlers(map[string]handler{"tell": teller(20*time.Millisecond, nil, nil)}))
		c.Pool = pool
		var e *engine.Engine
		if e, err = engine.New(c); err == nil {
			err = e.Start(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	time.Sleep(time.Minute)
}

// TestLogLinesOutliveTheProcess: what a run told up to a second before its process was killed stands in its execution.
func TestLogLinesOutliveTheProcess(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	pool := dbtest.OpenURL(t, url)
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	done, err := client.Enqueue(t.Context(), engine.RawArgs{Type: "tell"}, engine.EnqueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := child(ctx, "teller", []string{"RJE_TEST_URL=" + url})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it tells", func() bool { return one[string](t, pool, liveRow, done.ID) != "" })
	time.Sleep(1700 * time.Millisecond) // between two flushes
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	_ = cmd.Wait() // killed
	end := make(chan struct{})
	close(end)
	e := start(t, pool, hasty(handlers(map[string]handler{"tell": teller(0, end, nil)})))
	reaches(t, pool, done.ID, "completed")
	const last = "SELECT (logs->-1->'fields'->>'at')::bigint FROM job_executions WHERE job_id = $1 AND outcome = 6"
	at := time.UnixMilli(one[int64](t, pool, last, done.ID))
	t.Logf("the last line kept is %v older than the death", died.Sub(at).Round(time.Millisecond))
	if age := died.Sub(at); age > 1500*time.Millisecond {
		t.Errorf("the last line kept is %v older than the death", age)
	}
	if got := one[string](t, pool, "SELECT coalesce(progress_text, '') FROM job_executions WHERE job_id = $1 AND outcome = 6", done.ID); !strings.HasPrefix(got, "step ") {
		t.Errorf("progress = %q", got)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM job_live"); n != 0 {
		t.Errorf("%d live rows are left over", n)
	}
	healthy(t, pool, e)
}

// TestFlushOfALostRunIsRefused: the first flush after the lease is lost tells the handler, and is kept as evidence once.
func TestFlushOfALostRunIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	seen := newWatcher()
	causes := make(chan error, 1)
	var runs atomic.Int64
	c := calm(handlers(map[string]handler{"tell": func(ctx context.Context, job *work) error {
		if runs.Add(1) > 1 {
			return nil
		}
		for ctx.Err() == nil {
			job.Log().Info("line")
			time.Sleep(10 * time.Millisecond)
		}
		causes <- context.Cause(ctx)
		return ctx.Err()
	}}))
	c.Observer = seen
	e := start(t, pool, c)
	id := enqueue(t, e, "tell", engine.EnqueueOptions{})
	eventually(t, "it tells", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_live") == 1 })
	run(t, pool, `WITH d AS (DELETE FROM job_claims RETURNING id, worker_id, claimed_at, job_ids[1] AS job_id),
		x AS (INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, attempt, outcome) SELECT job_id, id, worker_id, claimed_at, 1, 6 FROM d)
		INSERT INTO job_ready (job_id, queue, type, priority) SELECT j.id, j.queue, j.type, j.priority FROM d JOIN jobs j ON j.id = d.job_id`) // as the reaper does
	reaches(t, pool, id, "completed")
	if cause := <-causes; cause != engine.ErrLeaseLost {
		t.Errorf("cause = %v", cause)
	}
	eventually(t, "the refusal is kept", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM refused_writes WHERE job_id = $1 AND operation = 'progress'", id) == 1
	})
	eventually(t, "it is counted", func() bool { return seen.refusals()["progress"] == 1 })
	healthy(t, pool, e)
}

// counter counts statements by their text.
type counter struct {
	mu    sync.Mutex
	texts map[string]int
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.count(d.SQL)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	c.count(d.SQL)
}
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *counter) count(sql string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts[sql]++
}

// mentioning is how many statements had a text.
func (c *counter) mentioning(text string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sql, times := range c.texts {
		if strings.Contains(sql, text) {
			n += times
		}
	}
	return n
}

// TestShortJobsSayNothingLive: a thousand jobs that log and end at once, and a thousand that do nothing, issue no
// statement on behalf of what only long runs need.
func TestShortJobsSayNothingLive(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	seen := &counter{texts: map[string]int{}}
	config.ConnConfig.Tracer = seen
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	e := launch(t, pool, calm(handlers(map[string]handler{"lines": func(_ context.Context, j *work) error {
		j.Log().Info("quick")
		j.SetProgress(100, "done")
		return nil
	}})))
	items := make([]engine.EnqueueItem, 2000)
	for i := range items {
		items[i].Args = engine.RawArgs{Type: []string{"plain", "lines"}[i%2]}
	}
	if _, err := e.Client().EnqueueMany(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are completed", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_executions") == len(items) })
	if _, err := stopIn(e, time.Second); err != nil {
		t.Fatal(err)
	}
	if n := seen.mentioning("CompleteJobs"); n == 0 {
		t.Error("the tracer saw no statement that ends jobs")
	}
	for _, name := range []string{"FlushLive", "DropLive", "MarkStop", "RevokeJob", "DropStopRequest", "RefuseWrites"} {
		if n := seen.mentioning("name: " + name + " "); n > 0 {
			t.Errorf("%s was sent %d times", name, n)
		}
	}
}
