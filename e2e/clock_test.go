package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/localpg"
)

// movable is a Postgres whose clock a test can move.
type movable struct {
	t    *testing.T
	file string // what the clock is off by
	pg   *localpg.Server
}

func newMovable(t *testing.T) *movable {
	t.Helper()
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1") // a constant pattern is well formed
	if len(libraries) == 0 {
		t.Fatal("libfaketime is not installed: apt-get install libfaketime")
	}
	dir, err := os.MkdirTemp("", "clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &movable{t: t, file: filepath.Join(dir, "offset")}
	m.move(0)
	for path, mode := range map[string]os.FileMode{dir: 0o755, m.file: 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	m.wrap(filepath.Join(dir, "bin"), libraries[0])
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if m.pg, err = localpg.Start(ctx, localpg.Options{DataDir: filepath.Join(dir, "data"), BinDir: filepath.Join(dir, "bin"), Database: "jobs",
		NoDownload: true, Settings: map[string]string{"shared_buffers": "64MB"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.pg.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := db.Migrate(ctx, m.pg.URL(), nil); err != nil {
		t.Fatal(err)
	}
	return m
}

// wrap puts commands in dir that start Postgres's own, the server with a clock from the file.
func (m *movable) wrap(dir, library string) {
	m.t.Helper()
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(installed) == 0 {
		m.t.Fatal("no Postgres in /usr/lib/postgresql to be wrapped: apt-get install postgresql")
	}
	bin := filepath.Dir(installed[len(installed)-1])
	clock := fmt.Sprintf("LD_PRELOAD=%s FAKETIME_TIMESTAMP_FILE=%s FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 ", library, m.file)
	for name, env := range map[string]string{"postgres": clock, "initdb": ""} {
		script := fmt.Sprintf("#!/bin/sh\n%sexec %s/%s \"$@\"\n", env, bin, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			m.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
}

// move sets how far the clock is off.
func (m *movable) move(by time.Duration) {
	m.t.Helper()
	if err := os.WriteFile(m.file+".new", []byte(fmt.Sprintf("%+d\n", int(by.Seconds()))), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(m.file+".new", m.file); err != nil {
		m.t.Fatal(err)
	}
}

// The database's clock is moved under running jobs. By it no job starts before its time; a living worker keeps its jobs,
// a dead one's are recovered soon, and nothing waits for the jump to be made up for.
func TestTheDatabasesClockIsMoved(t *testing.T) {
	t.Parallel()
	allOutages(t)
	for _, by := range []time.Duration{time.Hour, -time.Hour, 10 * time.Minute, -10 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			m := newMovable(t)
			moveUnder(t, m, by)
		})
	}
}

func moveUnder(t *testing.T, m *movable, by time.Duration) {
	b := &broken{stage: stageOn(t, m.pg.URL(), quick...)}
	tg, later := newTarget(t), newTarget(t)
	doomed := b.start("worker", "WORKER_QUEUES=two")
	lost := b.webhook(tg.url, `,"queue":"two"`)
	tg.called(t, 20*time.Second)
	b.start("worker")
	kept := b.webhook(tg.url, `,"queue":"one"`)
	held := tg.called(t, 20*time.Second)
	const ahead = 4 * time.Second
	due := b.webhook(later.url, fmt.Sprintf(`,"queue":"one","delay_seconds":%d`, int(ahead.Seconds())))
	doomed.signal(syscall.SIGKILL) // so that nobody renews its lease after the jump
	m.move(by)
	moved := time.Now()
	b.eventually(5*time.Second, "the clock has moved", func() bool {
		var off float64
		if b.pool.QueryRow(t.Context(), "SELECT extract(epoch FROM clock_timestamp() - to_timestamp($1))::float8", float64(time.Now().Unix())).Scan(&off) != nil {
			return false
		}
		return off-by.Seconds() < 5 && off-by.Seconds() > -5
	})
	if by > 0 {
		later.called(t, 5*time.Second).answer <- http.StatusOK
	}
	again := tg.called(t, 4*lease+reaper+2*heartbeat)
	t.Logf("the dead worker's job ran again %s after the jump", again.at.Sub(moved).Round(time.Millisecond))
	again.answer <- http.StatusOK
	fresh := b.webhook(tg.url, `,"queue":"one"`)
	tg.called(t, 5*time.Second).answer <- http.StatusOK
	time.Sleep(time.Until(moved.Add(lease + 2*heartbeat))) // past any lease that was not renewed
	held.answer <- http.StatusOK
	// By SQL: a statement under way while the clock jumps is over its time at once, which HTTP answers with 503.
	b.eventually(10*time.Second, "all are completed", func() bool {
		var n int
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM job_states WHERE id = ANY($1) AND state = 'completed'", []string{kept, lost, fresh}).Scan(&n)
		return err == nil && n == 3
	})
	if got := outcomes(b.attempts(kept)); !equal(got, []string{"completed"}) {
		t.Errorf("the living worker's run: %v, want completed at once", got)
	}
	if got := outcomes(b.attempts(lost)); !equal(got, []string{"lease_expired", "completed"}) {
		t.Errorf("the dead worker's runs: %v", got)
	}
	if n := b.count(`SELECT count(*) FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id WHERE e.claimed_at < j.scheduled_at`); n > 0 {
		t.Errorf("%d runs began before their time", n)
	}
	if by < 0 {
		select {
		case <-later.calls:
			t.Error("a job ran before its time by the database's clock")
		case <-time.After(time.Until(moved.Add(2 * ahead))):
		}
		if s := b.job(due).Status; s != "pending" && s != "scheduled" {
			t.Errorf("the scheduled job is %s", s)
		}
	}
}

// A worker's own clock paces waits only. Its program is built with a clock that is ten minutes off, since Go asks the
// kernel itself and no library in between.
func TestAWorkersClockIsOff(t *testing.T) {
	t.Parallel()
	allOutages(t)
	for _, by := range []string{"+600", "-600"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			b := newBroken(t)
			tg := newTarget(t)
			b.start(buildWithClock(t, by))
			held := b.webhook(tg.url, "")
			running := tg.called(t, 20*time.Second)
			const ahead = 3 * time.Second
			asked := time.Now()
			id := b.webhook(tg.url, fmt.Sprintf(`,"delay_seconds":%d`, int(ahead.Seconds())))
			c := tg.called(t, ahead+5*time.Second)
			c.answer <- http.StatusOK
			if waited := c.at.Sub(asked); waited < ahead || waited > ahead+2*time.Second {
				t.Errorf("a job scheduled in %s ran after %s", ahead, waited)
			}
			time.Sleep(lease)
			running.answer <- http.StatusOK
			for _, id := range []string{held, id} {
				b.eventually(10*time.Second, "it is completed", func() bool { return b.job(id).Status == "completed" })
				if got := outcomes(b.attempts(id)); !equal(got, []string{"completed"}) {
					t.Errorf("runs: %v", got)
				}
			}
			if n := b.count("SELECT count(*) FROM job_executions WHERE abs(extract(epoch FROM now() - started_at)) > 120"); n > 0 {
				t.Errorf("%d runs say that they began by the worker's clock", n)
			}
		})
	}
}

// buildWithClock builds the worker with a package time whose Now is off.
func buildWithClock(t *testing.T, seconds string) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	now := regexp.MustCompile(`(sec, nsec, mono := (?:now|runtimeNow)\(\)\n)`)
	if !now.Match(text) {
		t.Fatal("this Go's package time is another one: mend the overlay")
	}
	dir := t.TempDir()
	off, overlay, program := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "worker")
	changed := now.ReplaceAllString(string(text), "$1\tsec += "+seconds+"\n")
	for path, content := range map[string]string{off: changed, overlay: fmt.Sprintf(`{"Replace": {%q: %q}}`, source, off)} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "../cmd/worker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// Eight busy processes on whatever the machine has, with the default lease: late maybe, but neither early nor twice.
func TestEightBusyProcessesRunNothingEarlyOrTwice(t *testing.T) {
	t.Parallel()
	allOutages(t)
	pg := dbtest.NewServer(t)
	if err := db.Migrate(t.Context(), pg.URL("jobs"), nil); err != nil {
		t.Fatal(err)
	}
	b := &broken{stage: stageOn(t, pg.URL("jobs"), "WORKER_CONCURRENCY=10", "WORKER_SHUTDOWN_TIMEOUT=2s")}
	tg := newTarget(t)
	for range 8 {
		b.start("worker")
	}
	b.workers(8)
	b.exec(fmt.Sprintf(`SELECT enqueue_job(type => 'webhook', payload => '{"url": "%squick"}', scheduled_at => now() + (i %% 10) * interval '1 s')
		FROM generate_series(1, 4000) AS i`, tg.url))
	b.eventually(30*time.Second, "4000 jobs are completed", func() bool { return b.count("SELECT count(*) FROM job_executions WHERE outcome = 1") == 4000 })
	if n := b.count("SELECT count(*) FROM job_executions WHERE outcome <> 1 AND NOT (outcome = 4 AND started_at IS NULL)"); n > 0 {
		t.Errorf("%d runs beside the one of each job", n)
	}
	if n := b.count("SELECT count(*) FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id WHERE e.claimed_at < j.scheduled_at"); n > 0 {
		t.Errorf("%d runs began before their time", n)
	}
}
