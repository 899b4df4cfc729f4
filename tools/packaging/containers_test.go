//go:build linux

package packaging

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// container is what a service's container would be: the image's file system with the
// service's secrets and mounts, closed to writing, and the service's environment. As
// root, a command is locked into it and runs as the image's user; else it runs as the
// user of the test, and paths are those of this machine.
type container struct {
	t       *testing.T
	name    string
	root    string
	service types.ServiceConfig
	env     []string
}

// newContainer makes one. own is what replaces the service's variables: the addresses,
// since a test must not listen on all of them, and shares the machine with others.
func newContainer(t *testing.T, p *types.Project, service, secrets string, own ...string) *container {
	t.Helper()
	c := &container{t: t, name: service, root: shortDir(t), service: p.Services[service]}
	from := image(t)
	err := fs.WalkDir(os.DirFS(from), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if err := os.MkdirAll(filepath.Join(c.root, path.Dir(name)), 0o755); err != nil {
			return err
		}
		return os.Link(filepath.Join(from, name), filepath.Join(c.root, name))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.service.Secrets {
		if err := copyFile(filepath.Join(secrets, s.Source), filepath.Join(c.root, "run/secrets", s.Source)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(c.socket(), 0o755); err != nil {
		t.Fatal(err)
	}
	vars := env(readDockerfile(t).image)
	for name, v := range c.service.Environment {
		vars[name] = *v
	}
	for _, line := range own {
		name, v, _ := strings.Cut(line, "=")
		vars[name] = v
	}
	for name, v := range vars {
		if !locked() && (strings.HasSuffix(name, "_FILE") || name == "DB_HOST" || name == "ZONEINFO") {
			v = filepath.Join(c.root, v)
		}
		c.env = append(c.env, name+"="+v)
	}
	return c
}

// locked says whether commands can be locked into their container.
func locked() bool { return os.Geteuid() == 0 }

// socket is where this machine finds the folder of Postgres's socket.
func (c *container) socket() string { return filepath.Join(c.root, value(c.service, "DB_HOST")) }

func (c *container) command(line ...string) *exec.Cmd {
	program := line[0]
	if !path.IsAbs(program) {
		program = path.Join("/usr/local/bin", program)
	}
	cmd := &exec.Cmd{Path: program, Args: line, Env: c.env, Dir: "/", WaitDelay: time.Second, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if locked() {
		cmd.SysProcAttr.Chroot = c.root
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	} else {
		cmd.Path, cmd.Dir = filepath.Join(c.root, program), c.root
	}
	return cmd
}

// exec runs a command in the container and returns its exit code and what it prints.
func (c *container) exec(line ...string) (code int, printed string) {
	c.t.Helper()
	var out bytes.Buffer
	cmd := c.command(line...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.t.Fatalf("%s: %q: %v", c.name, line, err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait() // the state says how it ended
	return cmd.ProcessState.ExitCode(), out.String()
}

// running is a container whose command was started.
type running struct {
	*container
	cmd *exec.Cmd
	log *buffer
}

// start runs the service's command until the test ends, or stops it.
func (c *container) start() *running {
	c.t.Helper()
	r := &running{c, c.command(c.service.Command...), &buffer{}}
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
	c.t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = end(r.cmd, os.Kill, stopLimit) // the test has failed already
		}
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", c.name, r.log)
		}
	})
	return r
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// freePort is a port of 127.0.0.1 that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

// send asks the server, with a token if it isn't empty.
func send(t *testing.T, method, url, token, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
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

// healthy runs a check until it succeeds.
func (r *running) healthy(check []string) {
	r.t.Helper()
	until(r.t, startLimit, r.name+" is healthy", func() bool {
		code, _ := r.exec(check...)
		return code == 0
	})
}

// The whole of docker-compose.yml, as far as it goes without an engine: migrate, then
// the server and two workers, take the environment, secrets and user of their services;
// their health checks answer; a job goes from the API to its end; they drain.
func TestContainersStartAreHealthyAndRunAJob(t *testing.T) {
	t.Parallel()
	p, secrets := loadCompose(t), newSecrets(t)
	serverPort := freePort(t)
	url := "http://127.0.0.1:" + serverPort
	migrate := newContainer(t, p, "migrate", secrets)
	server := newContainer(t, p, "server", secrets, "SERVER_HOST=127.0.0.1", "SERVER_PORT="+serverPort, "JOBCTL_SERVER="+url)
	all := []*container{migrate, server}
	for range *p.Services["worker"].Deploy.Replicas {
		all = append(all, newContainer(t, p, "worker", secrets, "METRICS_ADDR=127.0.0.1:"+freePort(t)))
	}
	var sockets []string
	before := map[*container][]string{}
	for _, c := range all {
		sockets = append(sockets, c.socket())
		before[c] = files(t, c.root)
	}
	startPostgres(t, p.Services["postgres"], openSecret(t, secrets, "db_password"), sockets...)

	for range 2 { // a second start finds nothing to do
		if code, out := migrate.exec(migrate.service.Command...); code != 0 || !strings.Contains(out, "The schema is up to date.") {
			t.Fatalf("migrate: code %d\n%s", code, out)
		}
	}
	health := one[*instructions.HealthCheckCommand](t, readDockerfile(t).image).Health.Test[1:]
	if code, out := server.exec(health...); code != 1 || !strings.Contains(out, "/healthz") {
		t.Errorf("before the start, %q: code %d\n%s", health, code, out)
	}
	started := []*running{server.start()}
	started[0].healthy(health)
	for _, c := range all[2:] {
		w := c.start()
		w.healthy(c.service.HealthCheck.Test[1:])
		started = append(started, w)
	}
	until(t, startLimit, "the server is ready", func() bool { s, _ := send(t, "GET", url+"/readyz", "", ""); return s == 200 })

	token, err := os.ReadFile(filepath.Join(secrets, "bootstrap_token"))
	if err != nil {
		t.Fatal(err)
	}
	runAJob(t, url, strings.TrimSpace(string(token)))
	if code, out := server.exec("jobctl", "status"); code != 0 {
		t.Errorf("jobctl status in the server's container: code %d\n%s", code, out)
	}
	for _, r := range started {
		r.unprivileged()
		r.noteFree()
		if err := end(r.cmd, syscall.SIGTERM, stopLimit); err != nil {
			t.Errorf("%s: stop: %v", r.name, err)
		}
	}
	for c, want := range before {
		if got := files(t, c.root); !slices.Equal(got, want) {
			t.Errorf("%s has written to its file system: %q, was %q", c.name, got, want)
		}
	}
}

// runAJob enqueues a report, which needs no mail server, and waits for its end.
func runAJob(t *testing.T, url, token string) {
	t.Helper()
	const body = `{"type":"report","payload":{"kind":"throughput"}}`
	if status, _ := send(t, "POST", url+"/api/v1/jobs", "", body); status != 401 {
		t.Errorf("without the token: %d, want 401", status)
	}
	status, answer := send(t, "POST", url+"/api/v1/jobs", token, body)
	var job struct{ ID, Status string }
	if err := json.Unmarshal([]byte(answer), &job); err != nil || status != 201 {
		t.Fatalf("enqueue: %d %s", status, answer)
	}
	until(t, startLimit, "the job completes", func() bool {
		_, answer := send(t, "GET", url+"/api/v1/jobs/"+job.ID, token, "")
		return json.Unmarshal([]byte(answer), &job) == nil && job.Status == "completed"
	})
}

// unprivileged checks whose the process is.
func (r *running) unprivileged() {
	r.t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(r.cmd.Process.Pid) + "/status")
	if err != nil {
		r.t.Fatal(err)
	}
	id := strconv.Itoa(os.Geteuid())
	if locked() {
		id = strconv.Itoa(uid)
	}
	if want := "\nUid:\t" + strings.Join([]string{id, id, id, id}, "\t") + "\n"; !strings.Contains(string(status), want) {
		r.t.Errorf("%s does not run as %s:\n%s", r.name, id, status)
	}
}

// noteFree checks that every line of the log is JSON and none complains of a setting.
func (r *running) noteFree() {
	r.t.Helper()
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	for _, line := range lines {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			r.t.Errorf("%s logs no JSON: %q", r.name, line)
			continue
		}
		if message, _ := entry["msg"].(string); strings.HasPrefix(message, "settings: ") || entry["level"] == "ERROR" {
			r.t.Errorf("%s logs %s", r.name, line)
		}
	}
}

// files are all below dir but the sockets, which are Postgres's.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !strings.HasPrefix(d.Name(), ".s.PGSQL") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
