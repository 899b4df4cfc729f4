package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

const buildinfo = "github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo"

// full has the tests try all they know instead of a part that takes a third of the time.
var full = flag.Bool("full", false, "read every hostile text everywhere, stop Postgres ten times")

// binaries holds the real programs, built once for all tests.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "e2e")
	if err == nil {
		binaries = dir
		build := exec.Command("go", "build", "-ldflags", "-X "+buildinfo+".version=0.2.0", "-o", dir+string(filepath.Separator), "../cmd/server", "../cmd/worker", "../cmd/jobctl")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		os.Exit(1)
	}
	code := m.Run()
	stopBrowser()
	_ = os.RemoveAll(dir) // the system's temporary folder is cleaned anyway
	os.Exit(code)
}

// stage is one database with the programs that run on it.
type stage struct {
	t    *testing.T
	pg   *dbtest.Server
	url  string
	pool *pgxpool.Pool
	api  string
	port int
	env  []string

	server *program
}

// newStage starts a durable Postgres and a server without workers. env is set
// for every program.
func newStage(t *testing.T, env ...string) *stage {
	t.Helper()
	pg := dbtest.NewServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := db.Migrate(ctx, pg.URL("jobs"), nil); err != nil {
		t.Fatal(err)
	}
	s := stageOn(t, pg.URL("jobs"), env...)
	s.pg = pg
	return s
}

// stageOn starts a server without workers on a database.
func stageOn(t *testing.T, url string, env ...string) *stage {
	t.Helper()
	s := &stage{t: t, url: url, pool: dbtest.OpenURL(t, url), env: env, port: freePort(t)}
	s.api = "http://127.0.0.1:" + strconv.Itoa(s.port)
	s.serve()
	return s
}

// serve starts the server, at the same address each time.
func (s *stage) serve() *program {
	s.t.Helper()
	p := s.start("server", "SERVER_WORKERS=false", "SERVER_PORT="+strconv.Itoa(s.port))
	s.eventually(20*time.Second, "the server is ready", func() bool { return s.status("/readyz") == http.StatusOK })
	s.server = p
	return p
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// program is one running process of ours.
type program struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{}
	err  error
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a program until the test ends, at the latest.
func (s *stage) start(name string, env ...string) *program {
	s.t.Helper()
	p := &program{t: s.t, name: name, log: &logBuffer{}, done: make(chan struct{})}
	path := name // of a program built otherwise
	if !filepath.IsAbs(path) {
		path = filepath.Join(binaries, name)
	}
	p.cmd = exec.Command(path)
	p.cmd.Dir = s.t.TempDir()
	p.cmd.Env = append(os.Environ(), "DATABASE_URL="+s.url, "METRICS_ADDR=127.0.0.1:0", "LOG_FORMAT=json", "APP_DEBUG=false")
	p.cmd.Env = append(append(p.cmd.Env, s.env...), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	s.t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if s.t.Failed() {
			s.t.Logf("%s %d said:\n%s", name, p.cmd.Process.Pid, tail(p.log.String(), 12))
		}
	})
	return p
}

// workers waits until so many processes take jobs.
func (s *stage) workers(n int) {
	s.t.Helper()
	s.eventually(15*time.Second, fmt.Sprintf("%d workers have started", n), func() bool {
		var live int
		return s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM workers WHERE slots > 0").Scan(&live) == nil && live == n
	})
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *program) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // one that has ended is no fault

// ends waits for the process and tells how long it took.
func (p *program) ends(within time.Duration) time.Duration {
	p.t.Helper()
	began := time.Now()
	select {
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("%s still runs after %s", p.name, within)
	}
	return time.Since(began)
}

// eventually waits for a condition that another process brings about.
func (s *stage) eventually(within time.Duration, what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within %s: %s", within, what)
		}
	}
}

var client = &http.Client{Timeout: 10 * time.Second}

func (s *stage) status(path string) int {
	r, err := client.Get(s.api + path)
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	return r.StatusCode
}

// post enqueues and answers the id; ok only for a 2xx.
func (s *stage) post(body, key string) (id string, ok bool) {
	req, err := http.NewRequest(http.MethodPost, s.api+"/api/v1/jobs", strings.NewReader(body))
	if err != nil {
		return "", false
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	r, err := client.Do(req)
	if err != nil {
		return "", false
	}
	defer r.Body.Close()
	var job struct{ ID string }
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode/100 != 2 || json.Unmarshal(b, &job) != nil {
		return "", false
	}
	return job.ID, true
}

// webhook enqueues a job that calls target.
func (s *stage) webhook(target, more string) string {
	s.t.Helper()
	id, ok := s.post(fmt.Sprintf(`{"type":"webhook","payload":{"url":%q}%s}`, target, more), "")
	if !ok {
		s.t.Fatal("enqueue was refused")
	}
	return id
}

// attempt is a run as the API shows it.
type attempt struct {
	Run          int     `json:"run"`
	Attempt      int     `json:"attempt"`
	Outcome      *string `json:"outcome"`
	FencingToken string  `json:"fencing_token"`
	WorkerID     *string `json:"worker_id"`
}

func (s *stage) attempts(id string) []attempt {
	s.t.Helper()
	var list struct{ Data []attempt }
	s.get("/api/v1/jobs/"+id+"/attempts", &list)
	return list.Data
}

type job struct {
	Status   string
	Attempts int
	Crashes  int
}

func (s *stage) job(id string) (j job) {
	s.t.Helper()
	s.get("/api/v1/jobs/"+id, &j)
	return j
}

func (s *stage) get(path string, into any) {
	s.t.Helper()
	r, err := client.Get(s.api + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s %v", path, r.StatusCode, b, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		s.t.Fatalf("GET %s: %v in %s", path, err, b)
	}
}

// target is an HTTP server that jobs call: it tells of each call and answers
// when it is let go.
type target struct {
	url   string
	calls chan call
}

type call struct {
	at      time.Time
	attempt string
	token   string
	answer  chan int // send the status to answer with
}

func newTarget(t *testing.T) *target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tg := &target{url: "http://" + l.Addr().String() + "/", calls: make(chan call, 10_000)}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/quick" {
			return
		}
		c := call{time.Now(), r.Header.Get("rje-attempt"), r.Header.Get("rje-fencing-token"), make(chan int, 1)}
		tg.calls <- c
		select {
		case status := <-c.answer:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	})}
	go server.Serve(l)
	t.Cleanup(func() { _ = server.Close() })
	return tg
}

// called waits for the next call.
func (tg *target) called(t *testing.T, within time.Duration) call {
	t.Helper()
	select {
	case c := <-tg.calls:
		return c
	case <-time.After(within):
		t.Fatalf("no job called within %s", within)
		return call{}
	}
}
