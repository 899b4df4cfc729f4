// Package e2e drives the real programs on a real PostgreSQL.
package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	lease     = 3 * time.Second
	heartbeat = time.Second
	reaper    = time.Second
)

// quick makes crashes show within seconds.
var quick = []string{"WORKER_LEASE_DURATION=3s", "WORKER_HEARTBEAT_INTERVAL=1s", "REAPER_INTERVAL=1s", "WORKER_CONCURRENCY=4",
	"WORKER_SHUTDOWN_TIMEOUT=2s", "RETRY_BASE_BACKOFF=100ms", "RETRY_MAX_BACKOFF=500ms"}

func outcomes(runs []attempt) (list []string) {
	for _, r := range runs {
		if r.Outcome == nil {
			list = append(list, "running")
			continue
		}
		list = append(list, *r.Outcome)
	}
	return list
}

func equal(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// P4: a killed worker's job is finished by another within lease + REAPER_INTERVAL
// + 1 s, and both runs stand in the trail.
func TestKilledWorkersJobIsFinishedByAnother(t *testing.T) {
	t.Parallel()
	s, tg := newStage(t, quick...), newTarget(t)
	first := s.start("worker")
	id := s.webhook(tg.url, "")
	lost := tg.called(t, 10*time.Second)
	s.start("worker")
	s.workers(2)
	killed := time.Now()
	first.signal(syscall.SIGKILL)
	again := tg.called(t, lease+reaper+5*time.Second)
	again.answer <- http.StatusOK
	took := again.at.Sub(killed)
	t.Logf("the second run began %s after the kill (lease %s, reaper %s)", took.Round(time.Millisecond), lease, reaper)
	if limit := lease + reaper + time.Second; took > limit {
		t.Errorf("the second run began %s after the kill, want at most %s", took, limit)
	}
	if lost.token == again.token || lost.attempt != "1" || again.attempt != "1" {
		t.Errorf("runs had tokens %s and %s, attempts %s and %s; want other tokens, and no attempt used by the crash",
			lost.token, again.token, lost.attempt, again.attempt)
	}
	s.eventually(5*time.Second, "the job is completed", func() bool { return s.job(id).Status == "completed" })
	if got := outcomes(s.attempts(id)); !equal(got, []string{"lease_expired", "completed"}) {
		t.Errorf("runs ended %v, want lease_expired, completed", got)
	}
}

// P3: a worker frozen past its lease finds its result refused, and the refusal is
// kept.
func TestFrozenWorkersLateResultIsRefusedAndRecorded(t *testing.T) {
	t.Parallel()
	s, tg := newStage(t, quick...), newTarget(t)
	frozen := s.start("worker")
	id := s.webhook(tg.url, "")
	late := tg.called(t, 10*time.Second)
	s.start("worker")
	s.workers(2)
	frozen.signal(syscall.SIGSTOP)
	current := tg.called(t, lease+reaper+5*time.Second)
	current.answer <- http.StatusOK
	s.eventually(5*time.Second, "the job is completed", func() bool { return s.job(id).Status == "completed" })
	late.answer <- http.StatusOK // waits in the frozen worker's socket
	frozen.signal(syscall.SIGCONT)
	var held, now int64
	var operation string
	s.eventually(10*time.Second, "the refused write is kept", func() bool {
		return s.pool.QueryRow(t.Context(), "SELECT token_held, token_current, operation FROM refused_writes WHERE job_id = $1", id).
			Scan(&held, &now, &operation) == nil
	})
	if fmt.Sprint(held) != late.token || fmt.Sprint(now) != current.token {
		t.Errorf("refused: token %d while %d was current, want %s and %s", held, now, late.token, current.token)
	}
	if got := outcomes(s.attempts(id)); !equal(got, []string{"lease_expired", "completed"}) {
		t.Errorf("runs ended %v, want lease_expired, completed: the late result may change nothing", got)
	}
	// It goes on as a worker.
	again := s.webhook(tg.url, "")
	tg.called(t, 5*time.Second).answer <- http.StatusOK
	s.eventually(5*time.Second, "a later job is completed", func() bool { return s.job(again).Status == "completed" })
}

// P10: a busy worker that is told to stop hands its jobs back at once, and no
// attempt is used.
func TestTerminatedWorkerHandsItsJobsBackAtOnce(t *testing.T) {
	t.Parallel()
	s, tg := newStage(t, quick...), newTarget(t)
	w := s.start("worker")
	var ids []string
	for range 6 { // four run, two wait
		ids = append(ids, s.webhook(tg.url, ""))
	}
	for range 4 {
		tg.called(t, 10*time.Second)
	}
	w.signal(syscall.SIGTERM)
	took := w.ends(5 * time.Second)
	if took > 3*time.Second {
		t.Errorf("the worker ended after %s, want WORKER_SHUTDOWN_TIMEOUT (2s) and at most 1s more", took)
	}
	ended := time.Now()
	s.eventually(time.Second, "all jobs are pending within 1 s of the exit", func() bool {
		for _, id := range ids {
			if j := s.job(id); j.Status != "pending" || j.Attempts != 0 || j.Crashes != 0 {
				return false
			}
		}
		return true
	})
	t.Logf("ended %s after SIGTERM; pending %s later", took.Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
	s.start("worker")
	for range 6 {
		c := tg.called(t, 5*time.Second)
		if c.attempt != "1" {
			t.Errorf("attempt %s after a hand-back, want 1", c.attempt)
		}
		c.answer <- http.StatusOK
	}
	for _, id := range ids {
		s.eventually(5*time.Second, "the job is completed", func() bool { return s.job(id).Status == "completed" })
	}
}

// P1: Postgres is stopped hard three times under load, ten times in full. No
// acknowledged job is lost, and work resumes within 10 s of each start.
func TestNoAcknowledgedJobIsLostWhenPostgresDies(t *testing.T) {
	t.Parallel()
	s, tg := newStage(t, quick...), newTarget(t)
	s.start("worker")
	s.start("worker")
	s.workers(2)
	rounds := 3
	if *full {
		rounds = 10
	}
	stop := make(chan struct{})
	var mu sync.Mutex
	accepted := map[string]bool{}
	var wg sync.WaitGroup
	for caller := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// Keyed, as a caller does who repeats an unknown outcome.
				body := fmt.Sprintf(`{"type":"webhook","payload":{"url":%q,"body":"%d-%d"}}`, tg.url+"quick", caller, n)
				id, ok := s.post(body, fmt.Sprintf("load-%d-%d", caller, n))
				if !ok {
					n--
					time.Sleep(20 * time.Millisecond)
					continue
				}
				mu.Lock()
				accepted[id] = true
				mu.Unlock()
			}
		})
	}
	count := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		return len(accepted)
	}
	var slowest time.Duration
	for round := range rounds {
		before := count()
		s.eventually(10*time.Second, "jobs are accepted", func() bool { return count() > before+20 })
		s.pg.StopImmediate()
		time.Sleep(time.Duration(100+round*150) * time.Millisecond) // outages of different lengths
		s.pg.Start()
		up := time.Now()
		var done int
		_ = s.pool.QueryRow(t.Context(), "SELECT count(*) FROM job_executions WHERE outcome = 1").Scan(&done)
		s.eventually(10*time.Second, "jobs complete again after the restart", func() bool {
			var now int
			return s.pool.QueryRow(t.Context(), "SELECT count(*) FROM job_executions WHERE outcome = 1").Scan(&now) == nil && now > done
		})
		slowest = max(slowest, time.Since(up))
	}
	close(stop)
	wg.Wait()
	t.Logf("%d jobs accepted over %d hard stops; work resumed within %s", count(), rounds, slowest.Round(time.Millisecond))
	var left []string
	s.eventually(60*time.Second, "every accepted job is completed", func() bool {
		left = left[:0]
		rows, err := s.pool.Query(t.Context(), "SELECT id::text FROM job_states WHERE state IS DISTINCT FROM 'completed'")
		if err != nil {
			return false
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if rows.Scan(&id) == nil {
				left = append(left, id)
			}
		}
		return rows.Err() == nil && len(left) == 0
	})
	for id := range accepted {
		var state string
		if err := s.pool.QueryRow(t.Context(), "SELECT coalesce(state, 'nowhere') FROM job_states WHERE id = $1", id).Scan(&state); err != nil || state != "completed" {
			t.Errorf("accepted job %s: %s %v, want completed", id, state, err)
		}
	}
	var twice int
	if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM (SELECT job_id FROM job_executions WHERE outcome = 1 GROUP BY job_id HAVING count(*) > 1) AS x").
		Scan(&twice); err != nil || twice != 0 {
		t.Errorf("%d jobs completed twice (%v), want none", twice, err)
	}
	for _, table := range []string{"job_claims", "job_ready"} {
		s.eventually(10*time.Second, table+" is empty", func() bool {
			var n int
			return s.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n) == nil && n == 0
		})
	}
}

// Server and worker stop in time with the database gone, however it went.
func TestProgramsStopInTimeWithoutADatabase(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*stage) (restore func()){
		"stopped": func(s *stage) func() { s.pg.StopImmediate(); return func() { s.pg.Start() } },
		"frozen":  func(s *stage) func() { s.pg.Freeze(); return s.pg.Thaw },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tg := newStage(t, quick...), newTarget(t)
			w := s.start("worker")
			s.webhook(tg.url, "")
			tg.called(t, 10*time.Second) // the worker is busy
			server := s.start("server", "SERVER_WORKERS=true", fmt.Sprintf("SERVER_PORT=%d", freePort(t)))
			s.workers(2)
			restore := lose(s)
			defer restore()
			w.signal(syscall.SIGTERM)
			server.signal(syscall.SIGTERM)
			const limit = 4 * time.Second // WORKER_SHUTDOWN_TIMEOUT and 2 s
			t.Logf("worker ended after %s", w.ends(limit).Round(time.Millisecond))
			t.Logf("server ended after %s", server.ends(limit).Round(time.Millisecond))
		})
	}
}
