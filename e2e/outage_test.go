package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/network"
)

var outages = flag.String("outages", "few", "which outages of the database to go through: few, or all (make outages)")

func allOutages(t *testing.T) {
	t.Helper()
	if *outages != "all" {
		t.Skip("long: make outages runs it")
	}
}

// outage is one way for the database to go away.
type outage struct {
	begin, repair func(*broken)
	few           bool // also where only few are gone through
	writes        bool // goes on taking writes, slowly
	settings      []string
}

// broken is a stage whose programs reach the database through a network of the test's.
type broken struct {
	*stage
	way     *network.Proxy
	hogs    []*pgx.Conn
	ballast string
}

func newBroken(t *testing.T, settings ...string) *broken {
	t.Helper()
	pg := dbtest.NewServer(t, settings...)
	address := pg.URL("jobs")
	if err := db.Migrate(t.Context(), address, nil); err != nil {
		t.Fatal(err)
	}
	return brokenOn(t, pg, address)
}

func brokenOn(t *testing.T, pg *dbtest.Server, address string) *broken {
	t.Helper()
	b := &broken{way: network.New(t, address)}
	env := append([]string{"REQUEST_TIMEOUT=3s", "DB_TIMEOUT=2s", "DB_MAX_CONNS=6"}, quick...)
	b.stage = &stage{t: t, pg: pg, url: b.way.URL(address), pool: dbtest.OpenURL(t, address), env: env, port: freePort(t)}
	b.api = "http://127.0.0.1:" + strconv.Itoa(b.port)
	b.serve()
	return b
}

func (b *broken) exec(sql string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// kinds are the outages. Each is longer than a lease of 3 s, so that a reaper that
// believed what it finds afterwards would take jobs from living workers.
var kinds = map[string]outage{
	"restart":   {begin: func(b *broken) { b.pg.Stop() }, repair: func(b *broken) { b.pg.Start() }},
	"crash":     {few: true, begin: func(b *broken) { b.pg.StopImmediate() }, repair: func(b *broken) { b.pg.Start() }},
	"blackhole": {few: true, begin: func(b *broken) { b.way.Swallow() }, repair: func(b *broken) { b.way.Mend() }},
	"read-only": {begin: func(b *broken) {
		b.exec("ALTER SYSTEM SET default_transaction_read_only = on")
		b.exec("SELECT pg_reload_conf()")
		b.eventually(5*time.Second, "the server has read its settings", func() bool { return b.status("/readyz") == http.StatusServiceUnavailable })
		time.Sleep(200 * time.Millisecond) // so that every session has
	}, repair: func(b *broken) {
		b.exec("ALTER SYSTEM RESET default_transaction_read_only")
		b.exec("SELECT pg_reload_conf()")
	}},
	"no connection left": {settings: []string{"max_connections=40"}, begin: (*broken).hog, repair: (*broken).letGo},
	"slow":               {writes: true, begin: func(b *broken) { b.way.Delay(150 * time.Millisecond) }, repair: func(b *broken) { b.way.Mend() }},
}

// hog takes every connection, those of the programs included, which race it for each
// that they lose.
func (b *broken) hog() {
	b.eventually(20*time.Second, "no program has a connection, and none is left", func() bool {
		b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN ('server', 'worker')")
		for {
			c, err := pgx.Connect(b.t.Context(), b.pg.URL("jobs"))
			if err != nil {
				break
			}
			b.hogs = append(b.hogs, c)
		}
		return b.count("SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('server', 'worker')") == 0
	})
}

func (b *broken) letGo() {
	for _, c := range b.hogs {
		_ = c.Close(b.t.Context()) // the server ends the session either way
	}
}

// answer is what the API said to an enqueue during an outage.
type answer struct {
	status     int
	took       time.Duration
	retryAfter string
	code, id   string
}

func (b *broken) tryPost(body string) answer {
	began := time.Now()
	r, err := client.Post(b.api+"/api/v1/jobs", "application/json", strings.NewReader(body))
	if err != nil {
		return answer{took: time.Since(began), code: err.Error()}
	}
	defer r.Body.Close()
	a := answer{status: r.StatusCode, took: time.Since(began), retryAfter: r.Header.Get("Retry-After")}
	var said struct{ ID, Code string }
	if text, err := io.ReadAll(r.Body); err == nil && json.Unmarshal(text, &said) == nil {
		a.id, a.code = said.ID, said.Code
	}
	return a
}

// TestOutages lets the database go away in every way, for longer than a lease, under running programs: nothing hangs,
// lies, spins or floods the log meanwhile; everything comes back by itself; and nobody is blamed.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			if !kind.few {
				allOutages(t)
			}
			t.Parallel()
			goThrough(newBroken(t, kind.settings...), kind)
		})
	}
}

func goThrough(b *broken, kind outage) {
	t, tg := b.t, newTarget(b.t)
	metrics := "127.0.0.1:" + strconv.Itoa(freePort(t))
	w := b.start("worker", "METRICS_ADDR="+metrics)
	for range 20 {
		b.webhook(tg.url+"quick", "")
	}
	running := b.webhook(tg.url, "")
	held := tg.called(t, 20*time.Second)
	b.eventually(10*time.Second, "the quick ones complete", func() bool { return b.count("SELECT count(*) FROM job_executions WHERE outcome = 1") == 20 })
	if code := b.status("/console/"); code != http.StatusOK {
		t.Fatalf("/console/ = %d before the outage", code)
	}
	before := b.footprint(metrics)

	kind.begin(b)
	began := time.Now()
	said := map[*program]int{w: len(w.log.String()), b.server: len(b.server.log.String())}
	answers := b.during(kind, w)
	held.answer <- http.StatusOK // the handler ends while nobody can be told
	time.Sleep(time.Until(began.Add(6 * time.Second)))
	lasted := time.Since(began)
	for p, from := range said {
		p.quietLog(from, lasted, kind.writes)
	}
	kind.repair(b)
	b.recovers(tg, running, answers)
	b.leavesNothing(before, metrics)
}

// during asks for everything while the database is away.
func (b *broken) during(kind outage, w *program) (accepted []string) {
	t := b.t
	var mu sync.Mutex
	var wg sync.WaitGroup
	for caller := range 3 {
		wg.Go(func() {
			for n := range 3 {
				a := b.tryPost(fmt.Sprintf(`{"type":"webhook","queue":"later","payload":{"url":"http://127.0.0.1:1/","body":"%d-%d"}}`, caller, n))
				mu.Lock()
				if a.status/100 == 2 {
					accepted = append(accepted, a.id)
				}
				mu.Unlock()
				refused := a.status == http.StatusServiceUnavailable && a.retryAfter != "" && (a.code == "unavailable" || a.code == "timeout")
				if !refused && !((kind.writes || b.ballast != "") && a.status == http.StatusCreated) {
					t.Errorf("enqueue during the outage: %+v; want 503 with Retry-After and its code", a)
				}
				if a.took > 5*time.Second {
					t.Errorf("enqueue took %s; REQUEST_TIMEOUT is 3s", a.took)
				}
			}
		})
	}
	wg.Wait()
	if kind.writes {
		return accepted
	}
	if ready := b.status("/readyz"); ready != http.StatusServiceUnavailable && b.ballast == "" { // a full disk answers, and takes the one write or other
		t.Errorf("/readyz = %d, want 503", ready)
	}
	if live := b.status("/healthz"); live != http.StatusOK {
		t.Errorf("/healthz = %d, want 200: a restart would not mend the database", live)
	}
	console := b.status("/console/")
	if console != http.StatusOK && console != http.StatusServiceUnavailable {
		t.Errorf("/console/ = %d, want its last data or an honest 503", console)
	}
	cpu := map[*program]time.Duration{w: w.cpuTime(), b.server: b.server.cpuTime()}
	const quiet = 2 * time.Second
	time.Sleep(quiet)
	for p, from := range cpu {
		if used := p.cpuTime() - from; used > quiet/20 {
			t.Errorf("%s used %s of CPU in %s without a database, want less than 5 %%", p.name, used, quiet)
		}
	}
	return accepted
}

// recovers waits for work to go on, and for what the outage may not have done.
func (b *broken) recovers(tg *target, running string, accepted []string) {
	t := b.t
	up := time.Now()
	var fresh string
	b.eventually(10*time.Second, "an enqueue succeeds again", func() bool {
		a := b.tryPost(fmt.Sprintf(`{"type":"webhook","payload":{"url":%q}}`, tg.url+"quick"))
		fresh = a.id
		return a.status == http.StatusCreated
	})
	b.eventually(10*time.Second-time.Since(up), "a fresh job completes within 10 s of the repair", func() bool {
		return b.count("SELECT count(*) FROM job_states WHERE state = 'completed' AND id = $1", fresh) == 1
	})
	t.Logf("a fresh job was completed %s after the repair", time.Since(up).Round(time.Millisecond))
	b.eventually(10*time.Second, "readiness recovers", func() bool { return b.status("/readyz") == http.StatusOK })
	b.eventually(15*time.Second, "the job that ran through the outage is completed", func() bool { return b.job(running).Status == "completed" })
	if n := b.count("SELECT count(*) FROM job_executions WHERE outcome IN (6, 7)"); n > 0 {
		t.Errorf("%d runs count as lost with their process; no process was", n)
	}
	if n := b.count("SELECT count(*) FROM (SELECT FROM job_executions WHERE outcome = 1 GROUP BY job_id HAVING count(*) > 1) AS x"); n > 0 {
		t.Errorf("%d jobs completed twice", n)
	}
	for _, id := range accepted {
		if n := b.count("SELECT count(*) FROM jobs WHERE id = $1", id); n != 1 {
			t.Errorf("job %s was answered with 2xx and does not exist", id)
		}
	}
}

func (b *broken) count(sql string, args ...any) int {
	b.t.Helper()
	n := -1
	_ = b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n) // -1 while the database is on its way up
	return n
}

// footprint is what the programs hold: goroutines of each, and connections.
func (b *broken) footprint(worker string) map[string]int {
	b.t.Helper()
	return map[string]int{
		"goroutines of the server": b.goroutines(b.api + "/metrics"), "goroutines of the worker": b.goroutines("http://" + worker + "/metrics"),
		"connections": b.count("SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('server', 'worker')"),
	}
}

func (b *broken) goroutines(url string) int {
	r, err := client.Get(url)
	if err != nil {
		return -1
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "go_goroutines "); found {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err == nil {
				return n
			}
		}
	}
	return -1
}

func (b *broken) leavesNothing(before map[string]int, worker string) {
	b.t.Helper()
	var after map[string]int
	client.CloseIdleConnections()
	spare := map[string]int{"connections": 8, "goroutines of the server": 15, "goroutines of the worker": 10} // idle in the pools
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		after = b.footprint(worker)
		more := ""
		for what, n := range after {
			if n < 0 || n > before[what]+spare[what] {
				more += fmt.Sprintf("%s: %d before, %d after; ", what, before[what], n)
			}
		}
		if n := b.count("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND state_change < now() - interval '2 s'"); n != 0 {
			more += fmt.Sprintf("%d idle transactions; ", n)
		}
		if n := b.count("SELECT count(*) FROM job_claims WHERE lease_expires_at < now()"); n != 0 {
			more += fmt.Sprintf("%d expired leases; ", n)
		}
		if more == "" {
			return
		}
		if time.Now().After(end) {
			b.t.Errorf("left over: %s", more)
			return
		}
	}
}

// quietLog holds a program to one line a second and component since an offset. Where
// work goes on, what became of a job has its lines.
func (p *program) quietLog(from int, lasted time.Duration, works bool) {
	p.t.Helper()
	perComponent := map[string]int{}
	for line := range strings.Lines(p.log.String()[from:]) {
		var l struct {
			Msg, Component, Check string
			Job                   string `json:"job_id"`
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg != "request" && !(works && l.Job != "") { // one line for each request is its own limit
			perComponent[l.Msg+" "+l.Component+l.Check]++
		}
	}
	for what, n := range perComponent {
		if n > int(lasted/time.Second)+2 {
			p.t.Errorf("%s: %d lines %q in %s", p.name, n, what, lasted.Round(time.Second))
		}
	}
}

// cpuTime is what the process has used of the processors, by the kernel.
func (p *program) cpuTime() time.Duration {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Skip("no /proc to read the CPU time from")
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		p.t.Fatal(err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
}
