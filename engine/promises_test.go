package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// errand is a job that takes some milliseconds, or fails as often as it says.
type errand struct {
	Name  string `json:"name"`
	MS    int    `json:"ms"`
	Fails int    `json:"fails"`
}

func (errand) JobType() string { return "errand" }

func runErrand(ctx context.Context, job *engine.Job[errand]) error {
	time.Sleep(time.Duration(job.Args.MS) * time.Millisecond)
	if job.Attempt <= job.Args.Fails {
		return engine.RetryAfter(errors.New("not yet"), 10*time.Millisecond)
	}
	return nil
}

func startErrands(t *testing.T, pool *pgxpool.Pool, c engine.Config) *engine.Engine {
	t.Helper()
	ws := engine.NewWorkers()
	engine.Register(ws, engine.WorkerFunc[errand](runErrand), engine.TypeOptions{})
	c.Pool, c.Workers, c.PollInterval = pool, ws, 20*time.Millisecond
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

// holds waits until a statement answers true.
func holds(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var ok bool
		if err := pool.QueryRow(t.Context(), sql, args...).Scan(&ok); err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s %v", sql, args)
		}
	}
}

// What was answered is on the disk: no write of the engine's asks the server not
// to wait for it. Triggers write down the setting that each one ran with.
func TestEveryWriteWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	if _, err := pool.Exec(t.Context(), `
		CREATE TABLE written (at_table text, setting text, n bigint NOT NULL DEFAULT 1, PRIMARY KEY (at_table, setting));
		CREATE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO written AS w VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')) ON CONFLICT (at_table, setting) DO UPDATE SET n = w.n + 1;
			RETURN NULL;
		END $$;
		DO $$ DECLARE t text; BEGIN
			FOREACH t IN ARRAY '{jobs,job_ready,job_scheduled,job_claims,job_executions,dead_letter_jobs,operator_actions}'::text[] LOOP
				EXECUTE format('CREATE TRIGGER note_setting AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH STATEMENT EXECUTE FUNCTION note_setting()', t);
			END LOOP;
		END $$`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	e := startErrands(t, pool, engine.Config{HeartbeatInterval: 20 * time.Millisecond})
	c := e.Client()
	for _, o := range []engine.EnqueueOptions{{}, {Delay: 20 * time.Millisecond}, {IdempotencyKey: "k"}} {
		if _, err := c.Enqueue(t.Context(), errand{MS: 50, Fails: 1}, o); err != nil {
			t.Fatal(err)
		}
	}
	dead, err := c.EnqueueMany(t.Context(), []engine.EnqueueItem{{Args: errand{Fails: 9}, Options: engine.EnqueueOptions{MaxAttempts: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, pool, `SELECT count(*) = 3 FROM job_executions WHERE outcome = 1`)
	holds(t, pool, `SELECT count(*) = 1 FROM dead_letter_jobs`)
	if err := c.Replay(t.Context(), dead[0].ID, engine.Actor{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `SELECT w.at_table, w.setting FROM written AS w`)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var table, setting string
	if _, err := pgx.ForEachRow(rows, []any{&table, &setting}, func() error {
		seen[table] = true
		if setting != "on" {
			t.Errorf("%s was written with synchronous_commit = %s", table, setting)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 7 {
		t.Errorf("only %v were seen to be written", seen)
	}
}

// skewed gives a database whose clock is off from this process's: its statements
// and defaults find another now().
func skewed(t *testing.T, by time.Duration) *pgxpool.Pool {
	t.Helper()
	plain := dbtest.New(t)
	if _, err := plain.Exec(t.Context(), fmt.Sprintf(`
		CREATE SCHEMA skew;
		CREATE FUNCTION skew.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT pg_catalog.now() + interval '%[1]d s' $$;
		CREATE FUNCTION skew.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT pg_catalog.statement_timestamp() + interval '%[1]d s' $$;
		CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT pg_catalog.clock_timestamp() + interval '%[1]d s' $$;
		DO $$ DECLARE d record; BEGIN
			FOR d IN SELECT a.attrelid::regclass AS tab, a.attname, pg_get_expr(x.adbin, x.adrelid) AS expr FROM pg_attrdef AS x JOIN pg_attribute AS a ON a.attrelid = x.adrelid AND a.attnum = x.adnum
				WHERE pg_get_expr(x.adbin, x.adrelid) IN ('now()', 'statement_timestamp()') LOOP
				EXECUTE format('ALTER TABLE %%s ALTER %%I SET DEFAULT skew.%%s', d.tab, d.attname, d.expr);
			END LOOP;
		END $$`, int(by.Seconds())), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	c := plain.Config()
	c.ConnConfig.RuntimeParams["search_path"] = "skew, pg_catalog, public"
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// The database's clock decides what is due, expired or late. A worker's own may
// be an hour off, either way: leases hold, delays last as long as asked, and
// nothing is lost.
func TestTheWorkersClockDecidesNothing(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			pool := skewed(t, by)
			e := startErrands(t, pool, engine.Config{Concurrency: 4, LeaseDuration: 30 * time.Second, HeartbeatInterval: 20 * time.Millisecond,
				ReaperInterval: 20 * time.Millisecond, NoPrefetch: true})
			for range 4 {
				if _, err := e.Client().Enqueue(t.Context(), errand{MS: 400, Fails: 1}, engine.EnqueueOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			asked := time.Now()
			later, err := e.Client().Enqueue(t.Context(), errand{}, engine.EnqueueOptions{Delay: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			holds(t, pool, `SELECT count(*) > 0 FROM job_claims`)
			for range 10 { // claimed, and renewed again and again
				var off string
				err := pool.QueryRow(t.Context(), `SELECT format('%s from now', k.lease_expires_at - now()) FROM job_claims AS k
					WHERE k.lease_expires_at - now() NOT BETWEEN interval '5 s' AND interval '31 s' LIMIT 1`).Scan(&off)
				if !errors.Is(err, pgx.ErrNoRows) {
					t.Fatalf("a lease ends %s (%v)", off, err)
				}
				time.Sleep(25 * time.Millisecond)
			}
			holds(t, pool, `SELECT count(*) = 1 FROM job_executions WHERE job_id = $1 AND outcome = 1`, later.ID)
			if waited := time.Since(asked); waited < 300*time.Millisecond {
				t.Errorf("a job with a delay of 300ms ran after %s", waited)
			}
			holds(t, pool, `SELECT count(*) = 5 FROM job_executions WHERE outcome = 1`)
			holds(t, pool, `SELECT count(*) = 0 FROM job_executions WHERE outcome NOT IN (1, 2)`)
		})
	}
}

// An answer comes after the commit: others see the job at once.
func TestAnAnswerComesAfterTheCommit(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), dbtest.URL(t, pool))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	for i := range 20 {
		one, err := client.Enqueue(t.Context(), errand{}, engine.EnqueueOptions{})
		if err != nil {
			t.Fatal(err)
		}
		many, err := client.EnqueueMany(t.Context(), []engine.EnqueueItem{{Args: errand{}}, {Args: errand{}, Options: engine.EnqueueOptions{Delay: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
		keyed, err := client.Enqueue(t.Context(), errand{}, engine.EnqueueOptions{IdempotencyKey: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := other.QueryRow(t.Context(), `SELECT count(*) FROM job_states AS s WHERE s.id = ANY($1) AND s.state = 'pending'`,
			[]engine.ID{one.ID, many[0].ID, many[1].ID, keyed.ID}).Scan(&n); err != nil || n != 4 {
			t.Fatalf("%d of 4 acknowledged jobs are there (%v)", n, err)
		}
	}
}

// cutter breaks connections at a chosen message: before the server gets it, or
// after the server has answered and before this process has read the answer.
type cutter struct {
	mark   []byte
	before bool
	cuts   atomic.Int32
}

// pool is one whose connections are in the cutter's hands.
func (c *cutter) pool(t *testing.T, plain *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := plain.Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, c: c}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

type cutConn struct {
	net.Conn
	c    *cutter
	over atomic.Bool // the answer that comes next is not read
}

var errCut = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.c.mark) && c.c.cuts.CompareAndSwap(0, 1) {
		if c.c.before {
			c.Close()
			return 0, errCut
		}
		c.over.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.over.Load() { // the server has answered, so that it has committed
		c.Close()
		return 0, errCut
	}
	return n, err
}

// A commit whose answer is lost is no success and is not done again: the caller
// gets an error, and the job is there once or not at all.
func TestACommitWithoutAnAnswerIsNeither(t *testing.T) {
	t.Parallel()
	for _, many := range []bool{false, true} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("many %v, before %v", many, before), func(t *testing.T) {
				t.Parallel()
				plain := dbtest.New(t)
				c := &cutter{mark: []byte("mark-of-this-job"), before: before}
				if many {
					c.mark = []byte("commit\x00") // the statement, not a word in another
				}
				client, err := engine.NewClient(engine.ClientConfig{Pool: c.pool(t, plain)})
				if err != nil {
					t.Fatal(err)
				}
				if many {
					_, err = client.EnqueueMany(t.Context(), []engine.EnqueueItem{{Args: errand{Name: "mark-of-this-job"}}})
				} else {
					_, err = client.Enqueue(t.Context(), errand{Name: "mark-of-this-job"}, engine.EnqueueOptions{})
				}
				if err == nil {
					t.Error("the enqueue was answered with success")
				}
				if c.cuts.Load() != 1 {
					t.Fatal("nothing was cut")
				}
				var n int
				if err := plain.QueryRow(t.Context(), `SELECT count(*) FROM jobs`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				if want := map[bool]int{false: 1, true: 0}[before]; n != want {
					t.Errorf("%d jobs are there, want %d", n, want)
				}
			})
		}
	}
}

// A finish whose answer is lost is written once: one execution, one count, and
// the job stands where it belongs.
func TestAFinishWithoutAnAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	for _, fails := range []int{0, 1} {
		t.Run(fmt.Sprintf("fails %d times", fails), func(t *testing.T) {
			t.Parallel()
			plain := dbtest.New(t)
			moves.Log(t, plain)
			client, err := engine.NewClient(engine.ClientConfig{Pool: plain})
			if err != nil {
				t.Fatal(err)
			}
			job, err := client.Enqueue(t.Context(), errand{MS: 20, Fails: fails}, engine.EnqueueOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c := &cutter{mark: job.ID[:]} // the claim's answer has it too, but no message of this side's before the finish
			startErrands(t, c.pool(t, plain), engine.Config{})
			holds(t, plain, `SELECT count(*) = 1 FROM job_executions WHERE job_id = $1 AND outcome = 1`, job.ID)
			if c.cuts.Load() != 1 {
				t.Fatal("nothing was cut")
			}
			holds(t, plain, `SELECT coalesce(sum(d.n), 0) + (SELECT coalesce(sum(m.n), 0) FROM job_stats_minutes AS m) = (SELECT count(*) FROM job_executions)
				FROM job_stats_deltas AS d`)
			holds(t, plain, `SELECT count(*) = 0 FROM refused_writes`)
			r, err := verify.Run(t.Context(), plain, verify.Options{})
			if err != nil || r.Verdict() != verify.OK {
				t.Errorf("verify: %v %+v", err, r.Results)
			}
		})
	}
}

// A lease that is being renewed when the reaper comes is not taken: it is
// renewed by then, or the next pass sees that it was not.
func TestALeaseThatIsBeingRenewedIsLeftAlone(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO jobs (id, type, version) VALUES ('0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10', 'elsewhere', 1);
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
		VALUES (1000, now() - interval '1 s', ARRAY['0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10'::uuid], '{0}', '{0}')`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // after a commit it has nothing to do
	if _, err := tx.Exec(t.Context(), `UPDATE job_claims SET lease_expires_at = now() + interval '30 s'`); err != nil {
		t.Fatal(err)
	}
	startErrands(t, pool, engine.Config{HeartbeatInterval: 20 * time.Millisecond, ReaperInterval: 20 * time.Millisecond})
	holds(t, pool, `SELECT count(*) = 1 FROM leaders WHERE expires_at > now()`)
	time.Sleep(300 * time.Millisecond) // some passes of the reaper, or one that waits
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	holds(t, pool, `SELECT count(*) = 1 FROM maintenance_tasks WHERE task = 'reaper' AND last_success_at > clock_timestamp() - interval '100 ms'`)
	holds(t, pool, `SELECT count(*) = 1 FROM job_claims`)
	var runs int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM job_executions`).Scan(&runs); err != nil || runs != 0 {
		t.Errorf("%d runs were closed (%v), want none: the lease was renewed", runs, err)
	}
}
