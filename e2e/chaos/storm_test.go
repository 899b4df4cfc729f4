//go:build linux || darwin || freebsd

// Package chaos runs the real programs on a real Postgres, breaks everything at
// once by a plan that one seed gives, and judges what is left from journals that
// the faults cannot reach.
package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

var (
	sizeFlag = flag.String("chaos", "", "run chaos of this size: short, full")
	seedFlag = flag.Uint64("seed", 0, "seed of the faults; 0 takes one from the clock")
	onlyFlag = flag.String("faults", "", "kinds of faults to keep, separated by commas; all by default")
	jobsFlag = flag.Int("jobs", 0, "so many jobs instead of the size's own, for a machine that is slow or shared")
	keepFlag = flag.Bool("keep", false, "keep the journals of a run that passed, too")
)

// sizes are the runs there are. The pace of kills is that of the full run.
var sizes = map[string]size{
	"short": {Length: 35 * time.Second, Workers: 4, Jobs: 8_000, Kills: 50, Terms: 5, Freezes: 7, Crashes: 2, Cuts: 10, Resets: 4, Slowdowns: 2, Pills: 1},
	"full":  {Length: 270 * time.Second, Workers: 4, Jobs: 100_000, Kills: 540, Terms: 30, Freezes: 80, Crashes: 12, Cuts: 80, Resets: 25, Slowdowns: 12, Pills: 4},
}

// The settings of every program of a storm.
const (
	lease     = 1500 * time.Millisecond
	heartbeat = 400 * time.Millisecond
	reaper    = 300 * time.Millisecond
)

// storm is one run.
type storm struct {
	t     testing.TB
	size  size
	seed  uint64
	plan  []fault
	dir   string // journals and logs
	begun time.Time

	pg       *dbtest.Server // of the goroutine that crashes it
	url      string
	pool     *pgxpool.Pool // straight to Postgres
	networks [proxies]*network
	fleet    []*program // workers, then the server
	api      string
	requests *journal
	events   *journal
	samples  *journal

	counts map[string]*atomic.Int64
}

func TestChaos(t *testing.T) {
	if *sizeFlag == "" {
		t.Skip("give -chaos short or full, or use make chaos")
	}
	z, known := sizes[*sizeFlag]
	if !known {
		t.Fatalf("-chaos %s: use short or full", *sizeFlag)
	}
	if *jobsFlag > 0 {
		z.Jobs = *jobsFlag
	}
	began := time.Now()
	s := newStorm(t, z, seedOf(t))
	s.run()
	s.judge()
	s.report(time.Since(began))
}

// seedOf prints the seed, so that a run can be had again.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	t.Logf("seed %d", seed)
	return seed
}

func newStorm(t testing.TB, z size, seed uint64) *storm {
	t.Helper()
	s := &storm{t: t, size: z, seed: seed, plan: schedule(seed, z, lease), counts: map[string]*atomic.Int64{}}
	for _, k := range []string{kill, term, freeze, crash, cut, reset, slowdown} {
		s.counts[k] = &atomic.Int64{}
	}
	if *onlyFlag != "" {
		s.plan = only(s.plan, strings.Split(*onlyFlag, ","))
	}
	s.dir = journals(t, fmt.Sprintf("chaos-seed-%d-", seed))
	s.requests, s.events = newJournal(t, filepath.Join(s.dir, requestsFile)), newJournal(t, filepath.Join(s.dir, eventsFile))
	s.samples = newJournal(t, filepath.Join(s.dir, leadersFile))
	s.pg = dbtest.NewServer(t, "max_connections=300", "shared_buffers=128MB", "max_wal_size=1GB")
	s.url = s.pg.URL("chaos")
	s.pool = newDatabase(t, s.url)
	for i, name := range []string{"producers", "workers"} {
		s.networks[i] = newNetwork(t, name, "127.0.0.1:"+strconv.Itoa(s.pg.Port()), func(how string) {
			s.events.write(happened{At: time.Now(), What: "cut", Who: name, How: how})
		})
	}
	s.recruit()
	return s
}

// journals is a folder that stays if t fails.
func journals(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || *keepFlag {
			t.Logf("journals and logs: %s", dir)
			return
		}
		_ = os.RemoveAll(dir) // the system's temporary folder is cleaned anyway
	})
	return dir
}

// newDatabase migrates a database and makes the tables of the business beside it.
func newDatabase(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.Migrate(ctx, url, nil); err != nil {
		t.Fatal(err)
	}
	pool := dbtest.OpenURL(t, url+"&application_name=judge")
	if err := moves.Install(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE SCHEMA chaos;
		CREATE TABLE chaos.orders (ref text NOT NULL);
		CREATE TABLE chaos.effects (job_id uuid NOT NULL, fencing_token bigint NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return pool
}

// through is the database's address by way of a proxy.
func through(t testing.TB, address, proxy string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy
	return u.String()
}

// recruit makes the workers and the server; nobody starts yet.
func (s *storm) recruit() {
	address := through(s.t, s.url, s.networks[workersProxy].addr())
	for i := range s.size.Workers {
		name := "worker-" + strconv.Itoa(i)
		s.fleet = append(s.fleet, newProgram(s.t, s.dir, name, build(s.t, "e2e/chaos/worker"), nil, "-url", address, "-name", name,
			"-effects", filepath.Join(s.dir, effectsFile), "-lease", lease.String(), "-heartbeat", heartbeat.String(), "-reaper", reaper.String()))
	}
	port := freePort(s.t)
	s.api = "http://127.0.0.1:" + port
	s.fleet = append(s.fleet, newProgram(s.t, s.dir, "server", build(s.t, "cmd/server"), []string{"DATABASE_URL=" + address, "SERVER_PORT=" + port,
		"SERVER_WORKERS=false", "METRICS_ADDR=127.0.0.1:0", "LOG_FORMAT=json", "LOG_LEVEL=warn", "DB_TIMEOUT=3s", "WORKER_LEASE_DURATION=" + lease.String(),
		"WORKER_HEARTBEAT_INTERVAL=" + heartbeat.String(), "REAPER_INTERVAL=" + reaper.String(), "POLL_INTERVAL=200ms", "WORKER_SHUTDOWN_TIMEOUT=2s"}))
	for _, p := range s.fleet {
		p.note = func(h happened) { s.events.write(h) }
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// run breaks things while jobs come in, then lets everybody finish.
func (s *storm) run() {
	t := s.t
	alive, endFleet := context.WithCancel(context.Background())
	var fleet sync.WaitGroup
	defer func() { endFleet(); fleet.Wait() }()
	for _, p := range s.fleet {
		fleet.Go(func() { p.watch(alive, func(err error) { t.Error(err) }) })
	}
	fleet.Go(func() { s.sampleLeaders(alive) })
	s.eventually(60*time.Second, "the server is ready", func() bool { return s.ready() })
	s.begun = time.Now()
	faults := s.breakThings()
	s.produce()
	faults.Wait()
	if err := errors.Join(s.requests.broken(), s.events.broken(), s.samples.broken()); err != nil {
		t.Fatalf("could not keep the journals: %v", err)
	}
	s.drain()
	s.freeTheStuck()
	endFleet()
	fleet.Wait()
	s.dismiss()
}

func (s *storm) ready() bool {
	res, err := http4s.Get(s.api + "/readyz")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (s *storm) eventually(within time.Duration, what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// breakThings runs the plan, one line of it for each target, so that faults of
// different targets overlap. Crashes are done by whoever waits.
func (s *storm) breakThings() interface{ Wait() } {
	lines := map[string][]fault{}
	for _, f := range s.plan {
		on := f.Kind
		switch f.Kind {
		case kill, term, freeze:
			on = "program" + strconv.Itoa(f.On)
		case reset, slowdown:
			on = "network" + strconv.Itoa(f.On)
		}
		lines[on] = append(lines[on], f)
	}
	wg := &sync.WaitGroup{}
	for _, line := range lines {
		wg.Go(func() {
			for _, f := range line {
				time.Sleep(time.Until(s.begun.Add(f.At)))
				if err := s.do(f); err != nil {
					s.t.Errorf("%s: %v", f, err)
				}
			}
		})
	}
	return wg
}

// patience is how long a fault waits for its victim to be there.
const patience = 30 * time.Second

func (s *storm) do(f fault) error {
	switch f.Kind {
	case kill, term, freeze:
		p := s.fleet[f.On]
		for end := time.Now().Add(patience); !s.hit(p, f); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("%s did not run for %s", p.name, patience)
			}
		}
	case crash:
		s.crash(f)
	case cut:
		s.networks[f.On].cutter.armed <- f.How
		return nil // counted when it meets a commit
	case reset:
		s.tell("reset", f)
		if err := s.networks[f.On].reset(context.Background(), f.For); err != nil {
			return err
		}
		s.tell("healed", f)
	case slowdown:
		s.tell("slow", f)
		if err := s.networks[f.On].slow(context.Background(), f.For); err != nil {
			return err
		}
		s.tell("healed", f)
	}
	s.counts[f.Kind].Add(1)
	return nil
}

func (s *storm) tell(what string, f fault) {
	s.events.write(happened{At: time.Now(), What: what, Who: []string{"producers", "workers"}[f.On], How: f.How})
}

func (s *storm) hit(p *program, f fault) bool {
	switch f.Kind {
	case kill:
		return p.kill(f.For)
	case freeze:
		return p.freeze(context.Background(), f.For)
	}
	_, ended, ok := p.signal(syscall.SIGTERM, false)
	if !ok {
		return false
	}
	p.tell("term", 0, "")
	select {
	case <-ended:
	case <-time.After(8 * time.Second): // 3 s for handlers, 2 s more, and a slow machine
		s.t.Errorf("%s still ran 8s after SIGTERM", p.name)
		p.kill(0)
	}
	return true
}

// crash ends Postgres and starts it again after an outage.
func (s *storm) crash(f fault) {
	s.events.write(happened{At: time.Now(), What: "down", Who: "postgres", How: f.How})
	switch f.How {
	case "immediate":
		s.pg.StopImmediate()
	case "kill":
		s.pg.Kill()
	default:
		s.pg.KillAll()
	}
	time.Sleep(f.For)
	s.pg.Start()
	s.events.write(happened{At: time.Now(), What: "up", Who: "postgres"})
}

// produce makes the jobs at three doors, and the pills one by one.
func (s *storm) produce() {
	address := through(s.t, s.url, s.networks[producersProxy].addr())
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	pool := s.open(ctx, address)
	defer pool.Close()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool, MaxAttempts: plenty})
	if err != nil {
		s.t.Fatal(err)
	}
	l := &load{seed: s.seed, api: s.api, requests: s.requests, pool: pool, client: client, begun: s.begun, spread: s.size.Length,
		cancels: make(chan string, 100), failed: func(err error) { s.t.Error(err) }}
	var cancels, doors sync.WaitGroup
	cancels.Go(func() { l.cancel(ctx) })
	doors.Go(func() { l.swallow(ctx, s.size) })
	for door, share := range map[string]struct {
		n, share int
		once     func(context.Context, *maker) int
	}{"http": {3, 15, l.byHTTP}, "sql": {2, 15, l.bySQL}, "bulk": {1, 70, l.byBulk}} {
		for i := range share.n {
			m := newMaker(s.seed, door+strconv.Itoa(i))
			doors.Go(func() {
				l.paced(ctx, s.size.Jobs*share.share/100/share.n, func() int { return share.once(ctx, m) })
			})
		}
	}
	doors.Wait()
	cancel()
	cancels.Wait()
	bye, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = client.Close(bye) // hints only
}

// open tries until the pool stands, over any outage.
func (s *storm) open(ctx context.Context, address string) (pool *pgxpool.Pool) {
	s.eventually(patience, "the producers are connected", func() (ok bool) {
		p, err := db.Open(ctx, db.PoolConfig{URL: address, MaxConns: 8, ApplicationName: "producers"})
		pool = p
		return err == nil
	})
	return pool
}

// swallow enqueues the pills over the first half of the run, under keys until
// each is acknowledged.
func (l *load) swallow(ctx context.Context, z size) {
	m := newMaker(l.seed, "pill")
	for i := range z.Pills * len(pillKinds) {
		pause(ctx, time.Until(l.begun.Add(z.Length/2*time.Duration(i)/time.Duration(z.Pills*len(pillKinds)))))
		o := m.of(pillKinds[i%len(pillKinds)])
		for ctx.Err() == nil {
			r := request{Door: "pill", Outcome: unknown, Sent: time.Now()}
			o.Key = "key-" + o.Ref
			id, status, err := l.post(ctx, o)
			if err == nil && status/100 == 2 {
				o.ID, r.Outcome = id, acknowledged
			}
			r.Jobs = []wanted{o.wanted}
			l.note(r, err)
			if r.Outcome == acknowledged {
				break
			}
			pause(ctx, 200*time.Millisecond)
		}
	}
}

// sampleLeaders keeps who led when, for the judgement of recoveries.
func (s *storm) sampleLeaders(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		l := leader{At: time.Now()}
		call, cancel := context.WithTimeout(ctx, time.Second)
		err := s.pool.QueryRow(call, `SELECT l.worker_id, l.acquired_at, l.expires_at, coalesce(w.pid, 0) FROM leaders AS l
			LEFT JOIN workers AS w ON w.id = l.worker_id`).Scan(&l.Worker, &l.Acquired, &l.Expires, &l.PID)
		cancel()
		if err == nil {
			s.samples.write(l)
		}
	}
}

// leader is one look at who leads.
type leader struct {
	At       time.Time `json:"at"`
	Worker   int64     `json:"worker"`
	PID      int       `json:"pid"`
	Acquired time.Time `json:"acquired"`
	Expires  time.Time `json:"expires"`
}

// drainLimit is for the work that is left when the faults end: the pills'
// ten crashes, retries, and what the machine is behind.
const drainLimit = 4 * time.Minute

// drain waits until no job has anything to come.
func (s *storm) drain() {
	s.t.Helper()
	began := time.Now()
	var left int
	for ; ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM job_ready) + (SELECT count(*) FROM job_scheduled) + (SELECT count(*) FROM job_held)
			+ (SELECT count(*) FROM job_claims)`).Scan(&left)
		cancel()
		if err == nil && left == 0 {
			s.t.Logf("drained within %s of the last fault", time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > drainLimit {
			s.t.Errorf("%d jobs are unfinished %s after the last fault (%v)", left, drainLimit, err)
			return
		}
	}
}

// dismiss ends the programs in order and looks whether they clean up.
func (s *storm) dismiss() {
	for _, p := range s.fleet {
		if !p.stop(10 * time.Second) {
			s.t.Errorf("%s did not end within 10s of SIGTERM", p.name)
		}
		if exit := p.lastExit(); exit != "exit status 0" {
			s.t.Errorf("%s ended with %s, want exit status 0", p.name, exit)
		}
	}
	for _, p := range s.fleet[:s.size.Workers] {
		p.leftNothing(s.t)
	}
	s.orphans()
}

// freeTheStuck ends workers in which a pill that never returns still holds a slot:
// they are right to say so at their end, and the new ones are asked instead.
func (s *storm) freeTheStuck() {
	traces, err := readJournal[trace](filepath.Join(s.dir, effectsFile))
	if err != nil {
		s.t.Errorf("could not find who is stuck: %v", err)
	}
	held := map[int]bool{}
	for _, t := range traces {
		held[t.PID] = held[t.PID] || t.Type == "pill.loop"
	}
	for _, p := range s.fleet[:s.size.Workers] {
		if pid, _, ok := p.signal(0, false); ok && held[pid] {
			p.kill(0)
		}
	}
	// By process: the row of one that was killed just now looks alive for a while.
	s.eventually(patience, "every worker's process is there", func() bool {
		for _, p := range s.fleet[:s.size.Workers] {
			pid, _, ok := p.signal(0, false)
			var there bool
			if !ok || s.pool.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM workers WHERE pid = $1 AND slots > 0 AND state <> 'stopped')", pid).Scan(&there) != nil || !there {
				return false
			}
		}
		return true
	})
}

var goroutines = regexp.MustCompile(`(?m)^goroutines (\d+) of (\d+)$`)

// leftNothing asks that the program's engine took its goroutines along.
func (p *program) leftNothing(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		t.Errorf("could not check what %s left behind: %v", p.name, err)
		return
	}
	all := goroutines.FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		t.Errorf("could not check what %s left behind: it did not say", p.name)
		return
	}
	last := all[len(all)-1]
	left, _ := strconv.Atoi(last[1]) // digits only
	base, _ := strconv.Atoi(last[2])
	if left > base {
		t.Errorf("VIOLATION goroutines are back to what they were: %s has %d, began with %d", p.name, left, base)
	}
}

// orphans looks for processes of the workers that outlived them. Where there is
// no /proc it finds none.
func (s *storm) orphans() {
	worker := build(s.t, "e2e/chaos/worker")
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // a constant pattern is well formed
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && exe == worker {
			s.t.Errorf("VIOLATION no child outlives its worker: process %s", filepath.Base(filepath.Dir(link)))
		}
	}
}
