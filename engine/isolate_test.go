package engine_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// patience is for processes that start processes, on a machine that has much else to do.
const patience = 2 * time.Minute

func comes(t *testing.T, pool *pgxpool.Pool, id engine.ID, state string) {
	t.Helper()
	within(t, patience, fmt.Sprintf("job %s is %s", id, state), func() bool { return stateOf(t, pool, id) == state })
}

// lost enqueues jobs, given as types or type:how, which then have been in one lease that was lost with its process.
func lost(t *testing.T, pool *pgxpool.Pool, jobs ...string) []engine.ID {
	t.Helper()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]engine.ID, len(jobs))
	for i, job := range jobs {
		jobType, how, _ := strings.Cut(job, ":")
		done, err := client.Enqueue(t.Context(), engine.RawArgs{Type: jobType, Payload: json.RawMessage(`{"How":"` + how + `"}`)},
			engine.EnqueueOptions{MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = done.ID
	}
	lose(t, pool, ids...)
	return ids
}

func probed(t *testing.T, pool *pgxpool.Pool, what string) int {
	t.Helper()
	return one[int](t, pool, "SELECT count(*) FROM probe WHERE what = $1", what)
}

// noted waits for what a handler wrote, and returns the process it ran in.
func noted(t *testing.T, pool *pgxpool.Pool, what string) int {
	t.Helper()
	within(t, patience, "a handler wrote "+what, func() bool { return probed(t, pool, what) > 0 })
	return one[int](t, pool, "SELECT pid FROM probe WHERE what = $1 ORDER BY at DESC LIMIT 1", what)
}

// startedRuns are the outcomes without the hand-backs: on a machine that is busy enough a child does not come up in time.
func startedRuns(t *testing.T, pool *pgxpool.Pool, id engine.ID) string {
	t.Helper()
	return strings.ReplaceAll(outcomes(t, pool, id), " handed_back", "")
}

// TestADeathNamesItsCulprit: seven jobs were lost with one process, one of them deadly. The worker that gets them lives on,
// the deadly one is quarantined at the third loss, and none of the others ever runs in a process that dies.
func TestADeathNamesItsCulprit(t *testing.T) {
	t.Parallel()
	for way, says := range map[string]string{"exit": "exit status 3", "stack": "fatal error: stack overflow", "map": "fatal error: concurrent map writes",
		"hoard": "out of memory|failed to allocate|cannot allocate memory|pthread_create failed", "routine": "panic: in a goroutine of the handler's own", "signal": "signal: killed"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			ids := lost(t, pool, "neighbour", "neighbour", "kill:"+way, "neighbour", "neighbour", "neighbour", "neighbour")
			h := startHost(t, pool, hostOptions{Memory: 256 << 20})
			killer := ids[2]
			within(t, patience, "the killer is dead", func() bool { h.lives(); return stateOf(t, pool, killer) == "dead_letter" })
			if got, want := startedRuns(t, pool, killer), "lease_expired crashed crashed"; got != want {
				t.Errorf("the killer's runs: %s, want %s", got, want)
			}
			reason := one[string](t, pool, "SELECT concat_ws(' ', reason, crashes, error) FROM dead_letter_jobs WHERE job_id = $1", killer)
			if !strings.HasPrefix(reason, "poison 3 quarantined: 3 runs in a row were lost with their process.") || !regexp.MustCompile(says).MatchString(reason) {
				t.Errorf("it died of: %s, want %s", reason, says)
			}
			if told := one[string](t, pool, `SELECT coalesce(string_agg(format('error: %s; logs: %s; started: %s', error, logs, started_at), E'\n'), '') FROM job_executions
				WHERE job_id = $1 AND outcome = 7 AND NOT coalesce(error ~ $2 AND logs::text LIKE '%about to die%' AND started_at IS NOT NULL, false)`, killer, says); told != "" {
				t.Errorf("a death is not told with its cause and log:\n%s", told)
			}
			for i, id := range ids {
				if id == killer {
					continue
				}
				comes(t, pool, id, "completed")
				if got := startedRuns(t, pool, id); got != "lease_expired completed" {
					t.Errorf("neighbour %d: %s", i, got)
				}
			}
			h.lives()
		})
	}
}

// TestALoopThatIgnoresItsContextIsNoCrash: a run that does not end at its deadline is killed and timed out.
func TestALoopThatIgnoresItsContextIsNoCrash(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	id := lost(t, pool, "loop")[0]
	h := startHost(t, pool, hostOptions{Timeout: 5 * time.Second})
	pid := noted(t, pool, "looping")
	comes(t, pool, id, "dead_letter")
	if got := outcomes(t, pool, id); got != "lease_expired timed_out" {
		t.Errorf("its runs: %s", got)
	}
	if got := one[string](t, pool, "SELECT concat_ws(' ', reason, crashes) FROM dead_letter_jobs WHERE job_id = $1", id); got != "exhausted 0" {
		t.Errorf("it died of: %s", got)
	}
	within(t, patience, "the loop has ended", func() bool { return gone(t, pid) })
	h.lives()
}

// TestARunInAChildKeepsWhatItTells: log, progress, result, middleware and hooks are those of any run, and consecutive
// suspects share a process that is not the worker's.
func TestARunInAChildKeepsWhatItTells(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ids := lost(t, pool, "told", "told", "told")
	h := startHost(t, pool, hostOptions{})
	pids := map[int]bool{}
	for _, id := range ids {
		comes(t, pool, id, "completed")
		if got := outcomes(t, pool, id); got != "lease_expired completed" {
			t.Errorf("its runs: %s", got)
		}
		got := one[string](t, pool, `SELECT concat_ws(' ', result->>'trace', result->>'crashes', logs->0->>'msg', logs->0->>'level', logs->0->'fields'->>'step',
			progress, progress_text) FROM job_executions WHERE job_id = $1 AND outcome = 1`, id)
		if want := "trace of told 1 half way WARN 2 50 half"; got != want {
			t.Errorf("kept of it: %q, want %q", got, want)
		}
		pids[one[int](t, pool, "SELECT (result->>'pid')::int FROM job_executions WHERE job_id = $1 AND outcome = 1", id)] = true
	}
	if pids[h.cmd.Process.Pid] || len(pids) != 1 {
		t.Errorf("the suspects ran in processes %v, the worker in %d", pids, h.cmd.Process.Pid)
	}
	if !strings.Contains(h.stderr.String(), `level=WARN msg="half way" job_id=`+ids[0].String()) {
		t.Error("its lines are missing in the worker's log")
	}
	if n := one[int](t, pool, "SELECT count(*) FROM workers"); n != 1 {
		t.Errorf("%d workers are registered, want 1: a child registers none", n)
	}
}

// TestTransactionsInAChild: CompleteTx holds once its transaction has committed, whatever becomes of the process then.
func TestTransactionsInAChild(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{"": "lease_expired completed", "after": "lease_expired completed", "before": "lease_expired crashed crashed"} {
		t.Run("dies "+how, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			id := lost(t, pool, "tx:"+how)[0]
			h := startHost(t, pool, hostOptions{})
			within(t, patience, "the job has ended", func() bool {
				s := stateOf(t, pool, id)
				return s == "completed" || s == "dead_letter"
			})
			if got := outcomes(t, pool, id); got != want {
				t.Errorf("its runs: %s, want %s", got, want)
			}
			effects := probed(t, pool, "effect")
			if completed := strings.HasSuffix(want, "completed"); completed && effects != 1 || !completed && effects != 0 {
				t.Errorf("%d effects", effects)
			}
			h.lives()
		})
	}
}

// TestAChildThatDoesNotComeUpIsNotTheJobsFault: the suspect is handed back as it was and, when no child comes up, runs in the
// worker, alone in its lease.
func TestAChildThatDoesNotComeUpIsNotTheJobsFault(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	id := lost(t, pool, "told")[0]
	h := startHost(t, pool, hostOptions{Broken: "exit"})
	within(t, patience, "it completes", func() bool { return stateOf(t, pool, id) == "completed" })
	if got, want := outcomes(t, pool, id), "lease_expired handed_back handed_back handed_back completed"; got != want {
		t.Errorf("its runs: %s, want %s", got, want)
	}
	got := one[string](t, pool, "SELECT concat_ws(' ', result->>'pid', result->>'crashes') FROM job_executions WHERE job_id = $1 AND outcome = 1", id)
	if want := fmt.Sprint(h.cmd.Process.Pid, 1); got != want {
		t.Errorf("it ran in process and with crashes %q, want %q", got, want)
	}
	log := h.stderr.String()
	if n := strings.Count(log, "its child process did not come up"); n < 1 || n > 3 || !strings.Contains(log, "exit status 5: no room here") {
		t.Errorf("told %d times", n)
	}
	if !strings.Contains(log, "a suspect runs in the worker's own process") {
		t.Error("no warning that it runs in the worker's process")
	}
}

func TestAChildThatHangsAtItsStartIsGivenUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits ten seconds for a child's first word")
	}
	pool := dbtest.New(t)
	id := lost(t, pool, "told")[0]
	h := startHost(t, pool, hostOptions{Broken: "hang"})
	within(t, patience, "it is handed back", func() bool { return outcomes(t, pool, id) == "lease_expired handed_back" })
	if n := one[int](t, pool, "SELECT coalesce((SELECT crashes FROM job_ready WHERE job_id = $1), (SELECT crashes[1] FROM job_claims WHERE job_ids = ARRAY[$1::uuid]))", id); n != 1 {
		t.Errorf("crashes = %d, want 1", n)
	}
	h.lives()
}

// TestAChildDiesWithItsParent: the worker is killed while a suspect runs. The child dies too, and writes nothing.
func TestAChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	id := lost(t, pool, "slow")[0]
	first := startHost(t, pool, hostOptions{Lease: time.Second})
	pid := noted(t, pool, "began")
	if pid == first.cmd.Process.Pid {
		t.Fatal("the suspect runs in the worker")
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the child is gone", func() bool { return gone(t, pid) })
	second := startHost(t, pool, hostOptions{})
	comes(t, pool, id, "completed")
	if got, want := outcomes(t, pool, id), "lease_expired lease_expired completed"; got != want {
		t.Errorf("its runs: %s, want %s", got, want)
	}
	if n := probed(t, pool, "ended"); n != 1 {
		t.Errorf("%d of its runs came to their end, want 1", n)
	}
	second.lives()
}

// TestAChildThatLoopsDiesWithItsParent: nothing in it looks at the pipe in time.
func TestAChildThatLoopsDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the child must find out by itself")
	}
	pool := dbtest.New(t)
	lost(t, pool, "loop")
	h := startHost(t, pool, hostOptions{})
	pid := noted(t, pool, "looping")
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the child is gone", func() bool { return gone(t, pid) })
}

// TestStopWhileASuspectRuns: the job is handed back in time, its crashes as they were, and no child is left. The signal goes
// to the child as well, as an init system sends it to everything in the unit.
func TestStopWhileASuspectRuns(t *testing.T) {
	t.Parallel()
	for _, jobType := range []string{"slow", "polite"} {
		t.Run(jobType, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			id := lost(t, pool, jobType)[0]
			h := startHost(t, pool, hostOptions{StopWithin: 400 * time.Millisecond})
			pid := noted(t, pool, "began")
			began := time.Now()
			for _, p := range []int{h.cmd.Process.Pid, pid} {
				if err := syscall.Kill(p, syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-h.ended:
			case <-time.After(5 * time.Second):
				t.Fatal("it does not stop")
			}
			if took := time.Since(began); took > 2400*time.Millisecond || took < 400*time.Millisecond {
				t.Errorf("it stopped after %s", took)
			}
			if code := h.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("it ended with %s: %s", h.cmd.ProcessState, h.stderr)
			}
			if !gone(t, pid) {
				t.Error("the child is left")
			}
			if got, want := outcomes(t, pool, id), "lease_expired handed_back"; got != want {
				t.Errorf("its runs: %s, want %s", got, want)
			}
			if got := one[string](t, pool, "SELECT concat_ws(' ', attempt, crashes) FROM job_ready WHERE job_id = $1", id); got != "0 1" {
				t.Errorf("attempt and crashes = %s, want 0 1", got)
			}
			if jobType == "polite" && probed(t, pool, engine.ErrStopping.Error()) != 1 {
				t.Error("the handler was not told why")
			}
		})
	}
}

// TestALostLeaseEndsTheRunInTheChild: who lost the lease stops working on it.
func TestALostLeaseEndsTheRunInTheChild(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	id := lost(t, pool, "polite")[0]
	h := startHost(t, pool, hostOptions{})
	pid := noted(t, pool, "began")
	if _, err := pool.Exec(t.Context(), "DELETE FROM job_claims WHERE job_ids = ARRAY[$1::uuid]", id); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "the handler was told", func() bool { return probed(t, pool, engine.ErrLeaseLost.Error()) == 1 })
	if gone(t, pid) {
		t.Error("the child has ended")
	}
	h.lives()
}

// TestAStopRequestReachesTheChild: a suspect is asked to stop like any running job, and killed when it does not listen.
func TestAStopRequestReachesTheChild(t *testing.T) {
	t.Parallel()
	for jobType, told := range map[string]int{"polite": 1, "loop": 0} {
		t.Run(jobType, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			id := lost(t, pool, jobType)[0]
			h := startHost(t, pool, hostOptions{StopGrace: 500 * time.Millisecond})
			pid := noted(t, pool, map[string]string{"polite": "began", "loop": "looping"}[jobType])
			client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			if err := client.RequestStop(t.Context(), id, engine.Actor{Name: "test"}); err != nil {
				t.Fatal(err)
			}
			comes(t, pool, id, "cancelled")
			if got, want := outcomes(t, pool, id), "lease_expired cancelled"; got != want {
				t.Errorf("its runs: %s, want %s", got, want)
			}
			if n := probed(t, pool, engine.ErrStopRequested.Error()); n != told {
				t.Errorf("its handler was told %d times, want %d", n, told)
			}
			if jobType == "loop" {
				within(t, patience, "the loop has ended", func() bool { return gone(t, pid) })
			}
			h.lives()
		})
	}
}

// TestNobodyIsAChildByAccident: a program that gets the variable from somewhere says so instead of waiting for ever.
func TestNobodyIsAChildByAccident(t *testing.T) {
	pool := dbtest.New(t)
	t.Setenv("RJE_SUSPECTS_OF", "0123456789abcdef")
	h := startHost(t, pool, hostOptions{})
	select {
	case <-h.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
	if !strings.Contains(h.stderr.String(), "RJE_SUSPECTS_OF is set, but this is no child of an engine") {
		t.Errorf("it says: %s", h.stderr)
	}
}

// TestManyInnocentSuspectsAreClearedFast: a worker died with hundreds of jobs claimed ahead. They run one after the other in
// one child, a few to a lease, and the deadly one among them is still named exactly.
func TestManyInnocentSuspectsAreClearedFast(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	jobs := make([]string, 300)
	for i := range jobs {
		jobs[i] = "neighbour"
	}
	jobs[150] = "kill:exit"
	ids := lost(t, pool, jobs...)
	h := startHost(t, pool, hostOptions{})
	within(t, patience, "all have ended", func() bool {
		h.lives()
		return one[int](t, pool, "SELECT count(*) FROM job_states WHERE state IN ('completed', 'dead_letter')") == len(ids)
	})
	if got := one[string](t, pool, "SELECT string_agg(concat_ws(' ', job_id = $1, reason, crashes), ', ') FROM dead_letter_jobs", ids[150]); got != "t poison 3" {
		t.Errorf("the dead: %s", got)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 7 AND job_id <> $1", ids[150]); n != 0 {
		t.Errorf("%d neighbours were blamed for a crash", n)
	}
	leases := one[int](t, pool, "SELECT count(DISTINCT fencing_token) FROM job_executions WHERE outcome = 1")
	if leases > len(ids)/4 {
		t.Errorf("%d leases for %d suspects; want a few in each", leases, len(ids))
	}
}

// TestNobodyWaitsForLongBehindASuspect: those that share a lease with a slow one are handed back after a second, and at once
// when the worker stops.
func TestNobodyWaitsForLongBehindASuspect(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprintf("stops=%v", stops), func(t *testing.T) {
			t.Parallel()
			pool := dbtest.New(t)
			quick := lost(t, pool, "neighbour", "neighbour", "neighbour") // so that a lease takes several
			h := startHost(t, pool, hostOptions{StopWithin: 20 * time.Second})
			for _, id := range quick {
				comes(t, pool, id, "completed")
			}
			// In one statement, so that the worker that lives has no hand in it.
			slow := one[engine.ID](t, pool, `WITH j AS (
				  INSERT INTO jobs (id, type, queue, priority, payload, version)
				  SELECT uuid_v7(), CASE WHEN n = 1 THEN 'polite' ELSE 'neighbour' END, 'default', CASE WHEN n = 1 THEN 5 ELSE 1 END, '{"How": ""}', 1
				  FROM generate_series(1, 4) AS n RETURNING id, type),
				k AS (INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
				  SELECT 987654, now() - interval '1 s', array_agg(j.id ORDER BY j.id), '{0,0,0,0}', '{0,0,0,0}' FROM j)
				SELECT id FROM j WHERE type = 'polite'`)
			noted(t, pool, "began")
			if stops {
				if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			within(t, patience, "those behind it are handed back", func() bool {
				return one[int](t, pool, "SELECT count(DISTINCT job_id) FROM job_executions WHERE outcome = 4 AND job_id <> $1", slow) == 3
			})
			if stops {
				return
			}
			if got := stateOf(t, pool, slow); got != "leased" {
				t.Errorf("the slow one is %s", got)
			}
		})
	}
}

// TestSlowSuspectsRunBesideEachOther: while those that run take long, others begin, each in a process of its own.
func TestSlowSuspectsRunBesideEachOther(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	ids := lost(t, pool, "polite", "polite", "polite", "kill:exit", "polite")
	h := startHost(t, pool, hostOptions{StopWithin: 20 * time.Second})
	within(t, patience, "the slow ones run at the same time", func() bool {
		return one[int](t, pool, "SELECT count(DISTINCT pid) FROM probe WHERE what = 'began'") >= 4 &&
			one[int](t, pool, "SELECT count(*) FROM job_states WHERE type = 'polite' AND state = 'leased'") == 4
	})
	within(t, patience, "the killer beside them is dead", func() bool { h.lives(); return stateOf(t, pool, ids[3]) == "dead_letter" })
	if n := one[int](t, pool, "SELECT count(*) FROM job_states WHERE type = 'polite' AND state = 'leased'"); n != 4 {
		t.Errorf("%d of the slow ones run on; want 4", n)
	}
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, pid := range one[[]int](t, pool, "SELECT array_agg(DISTINCT pid) FROM probe") {
		within(t, patience, "no child is left", func() bool { return gone(t, pid) })
	}
}
