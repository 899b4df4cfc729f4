package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/samplejobs"
	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web"
	"github.com/reliable-job-engine/reliable-job-engine/web/console"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

const waitLimit = 30 * time.Second

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"jobctl": main})
}

// Each script has a server, an engine that runs jobs, and a database of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			testscript.RunT(inPlace{t}, testscript.Params{
				Files: []string{file}, RequireExplicitExec: true, RequireUniqueNames: true,
				Setup: func(env *testscript.Env) error {
					env.Setenv("JOBCTL_SERVER", s.url)
					env.Setenv("GUARDED", s.guarded)
					env.Setenv("URL", s.url)
					env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
					env.Setenv("DATABASE_URL", s.database)
					env.Setenv("EMPTY_URL", s.empty)
					env.Setenv("CLOSED", closedAddress(t))
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits": exits, "becomes": becomes, "capture": capture, "until": s.until, "pause": s.pause, "rowcount": s.rowCount, "sql": runSQL, "upkeep": s.upkeep,
				},
			})
		})
	}
}

// inPlace runs a script inside the test that started its server: as a test of its
// own it would wait until every server was up, all at once.
type inPlace struct{ *testing.T }

func (t inPlace) Run(_ string, script func(testscript.T)) { script(t) }
func (inPlace) Parallel()                                 {}
func (inPlace) Verbose() bool                             { return testing.Verbose() }

// exits N COMMAND... runs a command that must end with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	if code := runCode(ts, args[1:]); code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}

// becomes CODE COMMAND... repeats a command until it ends with that code.
func becomes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: becomes CODE COMMAND...")
	}
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if runCode(ts, args[1:]) == args[0] {
			return
		}
	}
	ts.Fatalf("%s does not end with exit code %s within %s", strings.Join(args[1:], " "), args[0], waitLimit)
}

func runCode(ts *testscript.TestScript, args []string) string {
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "0"
	case !errors.As(err, &exit):
		ts.Fatalf("%v", err)
	}
	return strconv.Itoa(exit.ExitCode())
}

// capture NAME sets a variable to what stands on stdout.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: capture NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// testServer is the API and an engine in this process.
type testServer struct {
	url, database, empty string
	guarded              string // a second listener, which asks for a token
}

func startServer(t *testing.T) testServer {
	t.Helper()
	pool := dbtest.New(t)
	s := testServer{database: dbtest.URL(t, pool), empty: dbtest.NewEmptyURL(t)}
	read := inspect.New(pool)
	reports, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	ws := engine.NewWorkers()
	if err := samplejobs.Register(ws, samplejobs.Config{Development: true, MailDir: t.TempDir(), Source: read, Enqueuer: reports}); err != nil {
		t.Fatal(err)
	}
	engine.RegisterType(ws, "patient", engine.WorkerFunc[engine.RawArgs](func(ctx context.Context, j *engine.Job[engine.RawArgs]) error {
		j.Log().Info("waiting", "for", "ever")
		j.SetProgress(40, "waiting")
		<-ctx.Done()
		return ctx.Err()
	}), engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: pool, Workers: ws, Concurrency: 4, PollInterval: 50 * time.Millisecond, ReaperInterval: 200 * time.Millisecond,
		Retry: engine.FullJitter{Base: time.Millisecond, Max: 10 * time.Millisecond}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(e.Stop(ctx), reports.Close(ctx)); err != nil {
			t.Errorf("stop engine: %v", err)
		}
	})
	for !e.Status().Leader && ctx.Err() == nil { // jobctl status asks who does the upkeep
		time.Sleep(5 * time.Millisecond)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	build := ops.Build{Version: "test"}
	c := web.Config{Engine: e.Client(), Read: read, Metrics: ops.NewMetrics(build), Build: build, Addr: ln.Addr().String(), Development: true, Console: &console.Config{},
		Ready: []ops.Check{{Name: "database", Run: pool.Ping}, {Name: "migrations", Tell: true, Run: func(ctx context.Context) error { return db.CheckSchema(ctx, pool) }}}}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, ln, h)
	s.url = "http://" + ln.Addr().String()

	c.Token, c.Tokens = "rje_bootstrap0123456789abcdef01234567", access.NewTokens(pool, nil)
	if h, err = web.New(c); err != nil {
		t.Fatal(err)
	}
	if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, ln, h)
	s.guarded = "http://" + ln.Addr().String()
	return s
}

func serveUntilEnd(t *testing.T, ln net.Listener, h http.Handler) {
	t.Helper()
	srv := web.Server(ln.Addr().String(), h)
	srv.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
}

// closedAddress is an address at which nothing listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

// until ID STATUS waits until a job has a status.
func (s testServer) until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until ID STATUS")
	}
	client := &http.Client{Timeout: 5 * time.Second}
	var job struct {
		Status string `json:"status"`
	}
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		res, err := client.Get(s.url + "/api/v1/jobs/" + args[0])
		ts.Check(err)
		err = json.NewDecoder(res.Body).Decode(&job)
		res.Body.Close()
		ts.Check(err)
		if job.Status == args[1] {
			return
		}
	}
	ts.Fatalf("job %s is %s after %s, want %s", args[0], job.Status, waitLimit, args[1])
}

func (s testServer) query(ts *testscript.TestScript, do func(ctx context.Context, query func(sql string, args ...any) (int64, error)) error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	pool, err := db.Open(ctx, db.PoolConfig{URL: s.database, MaxConns: 1})
	ts.Check(err)
	defer pool.Close()
	ts.Check(do(ctx, func(sql string, args ...any) (n int64, err error) {
		err = pool.QueryRow(ctx, sql, args...).Scan(&n)
		return n, err
	}))
}

// sql URL SQL runs statements that a script has no command for.
func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql URL SQL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	pool, err := db.Open(ctx, db.PoolConfig{URL: args[0], MaxConns: 1})
	ts.Check(err)
	defer pool.Close()
	_, err = pool.Exec(ctx, args[1])
	ts.Check(err)
}

// rowcount N SQL checks what a counting statement answers.
func (s testServer) rowCount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: rowcount N SQL")
	}
	s.query(ts, func(_ context.Context, query func(string, ...any) (int64, error)) error {
		n, err := query(args[1])
		if err == nil && strconv.FormatInt(n, 10) != args[0] {
			ts.Fatalf("%s = %d, want %s", args[1], n, args[0])
		}
		return err
	})
}

// upkeep waits until the reaper has been by.
func (s testServer) upkeep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: upkeep")
	}
	s.query(ts, func(ctx context.Context, query func(string, ...any) (int64, error)) error {
		for {
			n, err := query("SELECT count(*) FROM maintenance_tasks WHERE task = 'reaper'")
			if n > 0 || err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

// pause QUEUE pauses a queue, as an operator would.
func (s testServer) pause(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pause QUEUE")
	}
	s.query(ts, func(_ context.Context, query func(string, ...any) (int64, error)) error {
		_, err := query(`WITH q AS (INSERT INTO queues (name, paused_at, paused_reason) VALUES ($1, now(), 'gateway outage') RETURNING name) SELECT count(*) FROM q`, args[0])
		return err
	})
}
