//go:build unix

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/proctest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

const (
	readyLimit = time.Minute
	stopLimit  = 20 * time.Second
	jobLimit   = 20 * time.Second
)

func TestMain(m *testing.M) { os.Exit(proctest.Run(m)) }

type worker struct {
	*proctest.Program
	url string
}

var metricsAt = regexp.MustCompile(`msg="worker ready".* metrics=(http://[0-9.:]+)/metrics`)

// start runs a worker in a folder of its own, its probes on any port.
func start(t *testing.T, env ...string) worker {
	t.Helper()
	o := proctest.Options{Dir: t.TempDir(), Env: append([]string{"METRICS_ADDR=127.0.0.1:0"}, env...)}
	w := worker{Program: proctest.Start(t, proctest.Build(t, "worker"), o)}
	proctest.Until(t, readyLimit, "the worker is ready", func() bool {
		m := metricsAt.FindStringSubmatch(w.Stderr())
		if m != nil {
			w.url = m[1]
		}
		return m != nil
	})
	w.Ready(w.url+"/readyz", readyLimit)
	return w
}

func newClient(t *testing.T, pool *pgxpool.Pool) *engine.Client {
	t.Helper()
	c, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // hints only
	})
	return c
}

func enqueue(t *testing.T, c *engine.Client, jobType, payload string) engine.ID {
	t.Helper()
	done, err := c.Enqueue(t.Context(), engine.RawArgs{Type: jobType, Payload: json.RawMessage(payload)}, engine.EnqueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return done.ID
}

func becomes(t *testing.T, read *inspect.Reader, id engine.ID, want engine.State) inspect.Job {
	t.Helper()
	var job inspect.Job
	proctest.Until(t, jobLimit, "job "+id.String()+" is "+string(want), func() bool {
		var err error
		if job, err = read.Job(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return job.State == want
	})
	return job
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestWorkerRunsJobsAndAnswersProbes(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	w := start(t, "DATABASE_URL="+dbtest.URL(t, pool))
	id := enqueue(t, newClient(t, pool), "email", `{"to":"ann@example.com","subject":"Hello","text":"It works."}`)
	becomes(t, inspect.New(pool), id, engine.StateCompleted)
	if status, body := get(t, w.url+"/healthz"); status != 200 || !strings.Contains(body, `"status":"pass"`) {
		t.Errorf("/healthz: %d %s", status, body)
	}
	if status, body := get(t, w.url+"/readyz"); status != 200 || !strings.Contains(body, `"worker":{"status":"pass"`) || !strings.Contains(body, `"migrations":{"status":"pass"`) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, body := get(t, w.url+"/metrics"); status != 200 || !strings.Contains(body, `jobengine_executions_total{outcome="completed",queue="default",type="email"} 1`) {
		t.Errorf("/metrics: %d, without the job's run:\n%s", status, body)
	}
	w.Signal(syscall.SIGTERM)
	if code := w.Ended(stopLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWorkerWithoutServerSaysWhatToDo(t *testing.T) {
	t.Parallel()
	w := proctest.Start(t, proctest.Build(t, "worker"), proctest.Options{Dir: t.TempDir(), Env: []string{"METRICS_ADDR=127.0.0.1:0"}})
	if code := w.Ended(stopLimit); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := "no local Postgres is running in .data: start the server first (make run), or set DATABASE_URL"; !strings.Contains(w.Stderr(), want) {
		t.Errorf("stderr %q, want %q", w.Stderr(), want)
	}
}

func TestSecondWorkerIsToldAboutMetricsAddress(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	first := start(t, "DATABASE_URL="+url)
	addr := strings.TrimPrefix(first.url, "http://")
	second := proctest.Start(t, proctest.Build(t, "worker"), proctest.Options{Dir: t.TempDir(), Env: []string{"DATABASE_URL=" + url, "METRICS_ADDR=" + addr}})
	if code := second.Ended(stopLimit); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := "another program listens on " + addr + ": stop that one, or set METRICS_ADDR=:0"; !strings.Contains(second.Stderr(), want) {
		t.Errorf("stderr %q, want %q", second.Stderr(), want)
	}
}

func TestEveryWrongSettingIsListed(t *testing.T) {
	t.Parallel()
	w := proctest.Start(t, proctest.Build(t, "worker"), proctest.Options{Dir: t.TempDir(), Env: []string{"METRICS_ADDR=9090", "WORKER_CONCURRENCY=none"}})
	if code := w.Ended(stopLimit); code != 2 || !strings.Contains(w.Stderr(), "2 mistakes") {
		t.Errorf("exit code %d, stderr %q", code, w.Stderr())
	}
}

// silent is a listener whose connections get no answer.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return "http://" + ln.Addr().String()
}

// A handler that would go on for a minute is cut off at the timeout, and its job
// is ready again at once, its attempt uncounted.
func TestStopHandsARunningJobBackInTime(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	read := inspect.New(pool)
	w := start(t, "DATABASE_URL="+dbtest.URL(t, pool), "WORKER_SHUTDOWN_TIMEOUT=1s")
	id := enqueue(t, newClient(t, pool), "webhook", `{"url":"`+silent(t)+`"}`)
	becomes(t, read, id, engine.StateLeased)
	began := time.Now()
	w.Signal(syscall.SIGTERM)
	if code := w.Ended(3 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("ended after %s: the handler did not get its time", took)
	}
	if job := becomes(t, read, id, engine.StatePending); job.Attempt != 0 {
		t.Errorf("attempt %d is counted", job.Attempt)
	}
}

// The database answers nothing any more, and a job runs whose end cannot be written.
func TestStopWithFrozenDatabaseIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		second bool
		limit  time.Duration
	}{{"one signal", false, 3 * time.Second}, {"a second signal", true, 1500 * time.Millisecond}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pg := dbtest.NewServer(t)
			w := start(t, "DATABASE_URL="+pg.URL("engine"), "WORKER_SHUTDOWN_TIMEOUT=1s")
			pool := dbtest.OpenURL(t, pg.URL("engine"))
			id := enqueue(t, newClient(t, pool), "webhook", `{"url":"`+silent(t)+`"}`)
			becomes(t, inspect.New(pool), id, engine.StateLeased)
			pg.Freeze()
			began := time.Now()
			w.Signal(syscall.SIGTERM)
			if tt.second {
				proctest.Until(t, time.Second, "the first signal is heard", func() bool { return strings.Contains(w.Stderr(), "msg=stopping") })
				w.Signal(os.Interrupt)
			}
			code := w.Ended(tt.limit)
			t.Logf("ended after %s with code %d", time.Since(began).Round(time.Millisecond), code)
			if tt.second && code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			pg.Thaw()
		})
	}
}

// A worker in the server's folder finds the Postgres that the server runs, and
// takes the jobs that the server's API accepts.
func TestWorkerFindsTheServersPostgres(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), proctest.FreePort(t)
	server := proctest.Start(t, proctest.Build(t, "server"), proctest.Options{Dir: dir, Env: []string{"SERVER_PORT=" + port, "SERVER_WORKERS=false"}})
	server.Ready("http://127.0.0.1:"+port+"/readyz", readyLimit)
	w := proctest.Start(t, proctest.Build(t, "worker"), proctest.Options{Dir: dir, Env: []string{"METRICS_ADDR=127.0.0.1:0"}})
	client := &http.Client{Timeout: 5 * time.Second}
	res, err := client.Post("http://127.0.0.1:"+port+"/api/v1/jobs", "application/json",
		strings.NewReader(`{"type":"email","payload":{"to":"ann@example.com","subject":"Hello","text":"It works."}}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	location := "http://127.0.0.1:" + port + res.Header.Get("Location")
	proctest.Until(t, readyLimit, "the worker completes the job", func() bool {
		_, body := get(t, location)
		return strings.Contains(body, `"status":"completed"`)
	})
	for _, p := range []*proctest.Program{w, server} {
		p.Signal(os.Interrupt)
		if code := p.Ended(stopLimit); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}
