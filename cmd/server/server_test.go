//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/proctest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

const (
	promised   = 10 * time.Second // from a first start to ready, initdb included
	readyLimit = time.Minute      // on a machine that has much else to do
	stopLimit  = 20 * time.Second
	jobLimit   = 20 * time.Second
)

func TestMain(m *testing.M) { os.Exit(proctest.Run(m)) }

type server struct {
	*proctest.Program
	url string
}

// start runs the server on a free port of dir.
func start(t *testing.T, o proctest.Options, env ...string) server {
	t.Helper()
	port := proctest.FreePort(t)
	o.Env = append(append([]string{"SERVER_PORT=" + port}, env...), o.Env...)
	return server{proctest.Start(t, proctest.Build(t, "server"), o), "http://127.0.0.1:" + port}
}

// job is what the tests read of one.
type job struct{ ID, Status string }

func (s server) job(t *testing.T, id string) job {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	res, err := client.Get(s.url + "/api/v1/jobs/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var j job
	if err := json.NewDecoder(res.Body).Decode(&j); err != nil {
		t.Fatal(err)
	}
	return j
}

func (s server) completes(t *testing.T, id string) {
	t.Helper()
	proctest.Until(t, jobLimit, "job "+id+" completes", func() bool { return s.job(t, id).Status == "completed" })
}

// people are those who may run make run: who runs the test and, if that is root,
// an ordinary user too.
func people(t *testing.T) map[string]int {
	t.Helper()
	if os.Geteuid() != 0 {
		return map[string]int{"as the user of the tests": 0}
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]int{"as root": 0, "as an ordinary user": uid}
}

// A first start, initdb included, is ready in the time promised. A machine busy with
// other tests may need longer; three times in a row is too slow.
func TestFirstStartIsReadyInTime(t *testing.T) {
	took := promised
	for try := 0; try < 3 && took >= promised; try++ {
		s := start(t, proctest.Options{Dir: folder(t, 0)})
		took = s.Ready(s.url+"/readyz", readyLimit)
		t.Logf("ready after %s", took.Round(time.Millisecond))
		stops(t, s, os.Interrupt)
	}
	if took >= promised {
		t.Errorf("ready after %s, want less than %s", took, promised)
	}
}

// One command on a fresh machine: ready in time, the line it prints works, Ctrl-C
// leaves nothing running, and the next starts find the data, also after a kill.
func TestFirstStartAndTheNext(t *testing.T) {
	t.Parallel()
	for who, uid := range people(t) {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			firstStartAndTheNext(t, proctest.Options{Dir: folder(t, uid), UID: uid})
		})
	}
}

// folder is an empty one that only its user may enter.
func folder(t *testing.T, uid int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "project")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if uid != 0 {
		for d, mode := range map[string]os.FileMode{filepath.Dir(filepath.Dir(dir)): 0o755, filepath.Dir(dir): 0o755} {
			if err := os.Chmod(d, mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func firstStartAndTheNext(t *testing.T, o proctest.Options) {
	s := start(t, o)
	s.Ready(s.url+"/readyz", readyLimit)
	proctest.Until(t, jobLimit, "the greeting is printed", func() bool { return strings.Contains(s.Stdout(), "Ctrl-C") })
	id := runPrinted(t, s)
	s.completes(t, id)
	if mail, err := os.ReadFile(filepath.Join(o.Dir, ".data", "mail", id+".eml")); err != nil || !bytes.Contains(mail, []byte("It works.")) {
		t.Errorf("mail of job %s: %v\n%s", id, err, mail)
	}
	stops(t, s, os.Interrupt)

	s = start(t, o)
	s.Ready(s.url+"/readyz", readyLimit)
	if got := s.job(t, id).Status; got != "completed" {
		t.Errorf("after a second start job %s is %q", id, got)
	}
	pg := s.Postgres()
	s.Signal(os.Kill)
	s.Ended(stopLimit)
	proctest.Gone(t, pg, stopLimit)

	s = start(t, o)
	s.Ready(s.url+"/readyz", readyLimit) // it recovers from the log
	if got := s.job(t, id).Status; got != "completed" {
		t.Errorf("after a kill job %s is %q", id, got)
	}
	stops(t, s, syscall.SIGTERM)
}

// stops ends s with a signal, in order, and its Postgres with it.
func stops(t *testing.T, s server, signal os.Signal) {
	t.Helper()
	pg := s.Postgres()
	began := time.Now()
	s.Signal(signal)
	if code := s.Ended(stopLimit); code != 0 {
		t.Errorf("exit code %d after %v, want 0", code, signal)
	}
	t.Logf("ended %s after %v", time.Since(began).Round(time.Millisecond), signal)
	proctest.Gone(t, pg, 2*time.Second)
}

// runPrinted runs the line that the server prints and returns the job's id. With
// no curl on this machine, net/http sends what curl would.
func runPrinted(t *testing.T, s server) string {
	t.Helper()
	_, line, found := strings.Cut(s.Stdout(), "\n  curl ")
	if !found {
		t.Fatalf("no curl line in:\n%s", s.Stdout())
	}
	line, _, _ = strings.Cut(line, "\n")
	var answer []byte
	if _, err := exec.LookPath("curl"); err == nil {
		if answer, err = exec.CommandContext(t.Context(), "sh", "-c", "curl --max-time 5 "+line).Output(); err != nil {
			t.Fatalf("curl %s: %v", line, err)
		}
	} else {
		answer = send(t, line)
	}
	var j job
	if err := json.Unmarshal(answer, &j); err != nil || j.Status != "pending" {
		t.Fatalf("curl %s answers %s", line, answer)
	}
	return j.ID
}

func send(t *testing.T, line string) []byte {
	t.Helper()
	words := strings.Fields(line)
	_, body, _ := strings.Cut(line, " -d '")
	client := &http.Client{Timeout: 5 * time.Second}
	res, err := client.Post(words[1], "application/json", strings.NewReader(strings.TrimSuffix(body, "'")))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestTakenPortSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, proctest.Options{Dir: dir})
	first.Ready(first.url+"/readyz", readyLimit)
	port := strings.TrimPrefix(first.url, "http://127.0.0.1:")
	second := proctest.Start(t, proctest.Build(t, "server"), proctest.Options{Dir: dir, Env: []string{"SERVER_PORT=" + port}})
	if code := second.Ended(stopLimit); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := "another program listens on 127.0.0.1:" + port + ": stop that one, or set SERVER_PORT to another port"; !strings.Contains(second.Stderr(), want) {
		t.Errorf("stderr %q, want %q", second.Stderr(), want)
	}

	// With a port of its own, the folder's Postgres is taken.
	third := start(t, proctest.Options{Dir: dir})
	if code := third.Ended(stopLimit); code != 1 || !strings.Contains(third.Stderr(), "a Postgres is already running on this data") {
		t.Errorf("exit code %d, stderr %q", code, third.Stderr())
	}
	stops(t, first, os.Interrupt)
}

func TestEveryWrongSettingIsListed(t *testing.T) {
	t.Parallel()
	s := proctest.Start(t, proctest.Build(t, "server"), proctest.Options{Dir: t.TempDir(),
		Env: []string{"SERVER_PORT=0", "JOB_TIMEOUT=soon", "WORKER_HEARTBEAT_INTERVAL=20s", "SERVER_HOST=0.0.0.0"}})
	if code := s.Ended(stopLimit); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	for _, want := range []string{"4 mistakes", `SERVER_PORT="0"`, `JOB_TIMEOUT="soon"`, "WORKER_HEARTBEAT_INTERVAL", "set BOOTSTRAP_TOKEN"} {
		if !strings.Contains(s.Stderr(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, s.Stderr())
		}
	}
}

func TestWithoutDatabaseAddressProductionDoesNotStart(t *testing.T) {
	t.Parallel()
	s := proctest.Start(t, proctest.Build(t, "server"), proctest.Options{Dir: t.TempDir(), Env: []string{"APP_ENV=production"}})
	if code := s.Ended(stopLimit); code != 2 || !strings.Contains(s.Stderr(), "DATABASE_URL: must be set in production") {
		t.Errorf("exit code %d, stderr %q", code, s.Stderr())
	}
}

func TestUnreachableDatabaseIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	s := start(t, proctest.Options{Dir: t.TempDir()}, "DATABASE_URL=postgres://me:s3cret@127.0.0.1:1/none")
	if code := s.Ended(stopLimit); code != 1 || !strings.Contains(s.Stderr(), `connect to database "none" at 127.0.0.1:1`) ||
		!strings.Contains(s.Stderr(), "DATABASE_URL") || strings.Contains(s.Stderr(), "s3cret") {
		t.Errorf("exit code %d, stderr %q", code, s.Stderr())
	}
}

func TestServerWithoutWorkersLeavesJobsToWorkers(t *testing.T) {
	t.Parallel()
	s := start(t, proctest.Options{Dir: t.TempDir()}, "SERVER_WORKERS=false", "DATABASE_URL="+dbtest.NewURL(t))
	s.Ready(s.url+"/readyz", readyLimit)
	proctest.Until(t, jobLimit, "the greeting is printed", func() bool { return strings.Contains(s.Stdout(), "waits for a worker") })
	id := runPrinted(t, s)
	time.Sleep(300 * time.Millisecond)
	if got := s.job(t, id).Status; got != "pending" {
		t.Errorf("job is %q, want pending", got)
	}
	s.Signal(os.Interrupt)
	if code := s.Ended(stopLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A process without its Postgres would look alive and do nothing.
func TestServerEndsWithItsPostgres(t *testing.T) {
	t.Parallel()
	s := start(t, proctest.Options{Dir: t.TempDir()}, "WORKER_SHUTDOWN_TIMEOUT=1s")
	s.Ready(s.url+"/readyz", readyLimit)
	if err := syscall.Kill(s.Postgres(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if code := s.Ended(stopLimit); code != 1 || !strings.Contains(s.Stderr(), "a part ended for good") {
		t.Errorf("exit code %d, want 1", code)
	}
}

// The database answers nothing any more: a stop still takes no longer than its
// timeout and 2 s, and a second signal ends it at once.
func TestStopWithFrozenDatabaseIsBounded(t *testing.T) {
	t.Parallel()
	pg := dbtest.NewServer(t)
	for _, tt := range []struct {
		name   string
		second bool
		limit  time.Duration
	}{{"one signal", false, 3 * time.Second}, {"a second signal", true, time.Second}} {
		s := start(t, proctest.Options{Dir: t.TempDir()}, "WORKER_SHUTDOWN_TIMEOUT=1s", "DATABASE_URL="+pg.URL("engine"), "SERVER_WORKERS=true")
		s.Ready(s.url+"/readyz", readyLimit)
		pg.Freeze()
		began := time.Now()
		s.Signal(syscall.SIGTERM)
		if tt.second {
			proctest.Until(t, time.Second, "the first signal is heard", func() bool { return strings.Contains(s.Stderr(), "msg=stopping") })
			s.Signal(syscall.SIGTERM)
		}
		s.Ended(tt.limit)
		t.Logf("%s: ended after %s", tt.name, time.Since(began).Round(time.Millisecond))
		pg.Thaw()
	}
}

// A start that waits for a database that says nothing can be broken off.
func TestSignalEndsAStartThatWaits(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := start(t, proctest.Options{Dir: t.TempDir()}, "DATABASE_URL=postgres://me@"+ln.Addr().String()+"/none?connect_timeout=60")
	conn, err := ln.Accept() // it has asked, and waits from now on
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.Signal(syscall.SIGTERM)
	if code := s.Ended(2 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0: it was asked to end", code)
	}
}
