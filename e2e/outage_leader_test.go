package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

// leader is who leads, and its program.
func (b *broken) leader(programs []*program) (*program, int) {
	b.t.Helper()
	var pid, term int
	if err := b.pool.QueryRow(b.t.Context(), `SELECT w.pid, l.term FROM leaders AS l JOIN workers AS w ON w.id = l.worker_id
		WHERE l.expires_at > now()`).Scan(&pid, &term); err != nil {
		return nil, 0
	}
	for _, p := range programs {
		if p.cmd.Process.Pid == pid {
			return p, term
		}
	}
	return nil, term
}

// One leads. It is frozen past its term while another takes over, and wakes in the belief that it leads still: nothing is
// done twice. Then it is killed, and the next is in place within 10 s.
func TestAFrozenLeaderWakesAndDoesNothingTwice(t *testing.T) {
	t.Parallel()
	b := &broken{stage: newStage(t, quick...)}
	tg := newTarget(t)
	programs := []*program{b.server}
	for range 2 {
		programs = append(programs, b.start("worker"))
	}
	b.workers(2)
	next := func(not *program, within time.Duration) (*program, time.Duration) {
		began := time.Now()
		var p *program
		b.eventually(within, "one leads", func() bool { p, _ = b.leader(programs); return p != nil && p != not })
		return p, time.Since(began)
	}
	first, _ := next(nil, 10*time.Second)
	if first == b.server { // then a worker is to be frozen
		first.signal(syscall.SIGKILL)
		<-first.done
		var took time.Duration
		first, took = next(first, 10*time.Second)
		t.Logf("the next led %s after the first was killed", took.Round(time.Millisecond))
		b.serve()
		programs = append(programs, b.server)
	}
	_, term := b.leader(programs)
	// Jobs in its own hands, scheduled ones that come due meanwhile, and statistics to fold.
	for range 6 {
		b.webhook(tg.url+"quick", `,"delay_seconds":2`)
	}
	first.signal(syscall.SIGSTOP)
	second, took := next(first, 10*time.Second)
	t.Logf("another led %s after the leader froze", took.Round(time.Millisecond))
	b.eventually(15*time.Second, "the scheduled ones complete without the first", func() bool {
		return b.count("SELECT count(*) FROM job_executions WHERE outcome = 1") == 6
	})
	first.signal(syscall.SIGCONT)
	time.Sleep(2 * time.Second) // every pass of the first has run
	if p, now := b.leader(programs); p != second || now != term+1 {
		t.Errorf("term %d after the first woke, want %d and no change of hands", now, term+1)
	}
	if n := b.count("SELECT count(*) FROM (SELECT FROM job_executions GROUP BY job_id, fencing_token HAVING count(*) > 1) AS x"); n > 0 {
		t.Errorf("%d runs were closed twice", n)
	}
	if n := b.count("SELECT count(*) FROM (SELECT FROM job_executions WHERE outcome = 1 GROUP BY job_id HAVING count(*) > 1) AS x"); n > 0 {
		t.Errorf("%d jobs completed twice", n)
	}
	b.eventually(10*time.Second, "each end is counted once", func() bool {
		return b.count(`SELECT coalesce((SELECT sum(n) FROM job_stats_deltas), 0) + coalesce((SELECT sum(n) FROM job_stats_minutes), 0)`) ==
			b.count("SELECT count(*) FROM job_executions")
	})
	killed := time.Now()
	second.signal(syscall.SIGKILL)
	third, _ := next(second, 10*time.Second)
	t.Logf("%s led %s after the leader was killed", third.name, time.Since(killed).Round(time.Millisecond))
	if second == b.server {
		b.serve()
	}
	id := b.webhook(tg.url, `,"delay_seconds":1`)
	tg.called(t, 10*time.Second).answer <- http.StatusOK
	b.eventually(5*time.Second, "a later job is completed", func() bool { return b.job(id).Status == "completed" })
}
