package inspect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

func (s *stage) explain(id uuid.UUID) inspect.Explanation {
	s.t.Helper()
	x, err := s.r.Explain(s.ctx, id, time.Time{})
	if err != nil {
		s.t.Fatalf("Explain(%s): %v", id, err)
	}
	return x
}

// says checks the headline: its code, how its sentence goes, and what can be done.
func (s *stage) says(id uuid.UUID, code inspect.CheckCode, text string, help inspect.HelpCode) inspect.Check {
	s.t.Helper()
	x := s.explain(id)
	head := x.Headline()
	if head.Code != code || !strings.Contains(head.Text, text) || head.Help.Code != help {
		s.t.Errorf("headline = %s %q, help %q; want %s %q, help %q", head.Code, head.Text, head.Help.Code, code, text, help)
	}
	return head
}

func evidence(c inspect.Check, name string) any {
	for _, e := range c.Evidence {
		if e.Name == name {
			return e.Value
		}
	}
	return nil
}

// TestTheHeadlineIsTheFirstThingInTheWay takes them away one by one.
func TestTheHeadlineIsTheFirstThingInTheWay(t *testing.T) {
	s := newStage(t)
	id := s.enqueue(mail(", delay => interval '1 hour'"))
	s.exec(`INSERT INTO queues (name, paused_at, paused_reason, resume_at) VALUES ('mail', now() - interval '3 min', 'gateway outage', now() + interval '1 hour')`)

	head := s.says(id, inspect.CheckPaused, "Its queue mail was paused 3 min ago.", inspect.HelpQueue)
	if evidence(head, "reason") != "gateway outage" || evidence(head, "paused_by") != nil || evidence(head, "resume_at") == nil || head.Help.Target != "mail" {
		t.Errorf("evidence of a pause by SQL = %+v", head)
	}
	s.exec(`SELECT record_operator_action('ann', 'cli', 'pause', 'queue', 'mail', 'gateway outage', NULL, NULL, 1, NULL, NULL)`)
	s.exec(`UPDATE queues SET paused_at = now() - interval '100 ms'`)
	s.says(id, inspect.CheckPaused, "ago by ann.", inspect.HelpQueue)
	s.exec(`UPDATE queues SET paused_at = NULL`)

	s.says(id, inspect.CheckNotDue, "It is not due yet: in 59 min.", inspect.HelpRunNow)
	s.exec(`UPDATE job_scheduled SET run_at = now() - interval '5 s'`)
	s.says(id, inspect.CheckNotDue, "no process leads the upkeep", inspect.HelpSystem)
	s.exec(`INSERT INTO leaders (role, worker_id, expires_at) VALUES ('maintenance', 1, now() + interval '1 hour')`)
	s.says(id, inspect.CheckNotDue, "is put in line within 1 s", inspect.HelpRunNow)
	s.exec(`DELETE FROM job_scheduled`)
	s.ready(id, 0)

	s.says(id, inspect.CheckWorker, "No worker is alive.", inspect.HelpWorkers)
	s.worker("gone", 5, 0, nil, 31*time.Second)
	s.says(id, inspect.CheckWorker, "No worker is alive.", inspect.HelpWorkers)
	draining := s.worker("draining", 5, 0, nil, 0)
	s.exec(`UPDATE workers SET state = 'draining' WHERE id = $1`, draining)
	s.says(id, inspect.CheckWorker, "No worker takes jobs: 1 is draining.", inspect.HelpWorkers)
	s.worker("other queue", 5, 0, []string{"billing"}, 0)
	s.says(id, inspect.CheckWorker, "No live worker serves its queue mail.", inspect.HelpWorkers)
	other := s.worker("other type", 5, 0, nil, 0)
	s.exec(`UPDATE workers SET types = '{charge}' WHERE id = $1`, other)
	head = s.says(id, inspect.CheckWorker, "No live worker both serves its queue mail and has a handler for its type email.", inspect.HelpWorkers)
	if got := fmt.Sprint(evidence(head, "queues_served"), evidence(head, "types_known"), evidence(head, "workers")); got != "[* billing] [charge email] 2" {
		t.Errorf("evidence = %s", got)
	}
	s.exec(`UPDATE workers SET types = '{charge}'`)
	s.says(id, inspect.CheckWorker, "No live worker has a handler for its type email.", inspect.HelpWorkers)

	fit := s.worker("fit", 1, 0, []string{"mail"}, 0)
	long := s.enqueue(mail(""))
	s.exec(`UPDATE job_ready SET seq = DEFAULT WHERE job_id = $1`, id) // long came first
	s.claim(long, fit)
	s.exec(`UPDATE job_claims SET claimed_at = now() - interval '4 min'`)
	head = s.says(id, inspect.CheckSlots, "The one slot for it is taken, the longest run began 4 min ago.", inspect.HelpWorkers)
	if evidence(head, "longest_job_id") != long || evidence(head, "busy") != int64(1) {
		t.Errorf("evidence = %+v, want %s", head.Evidence, long)
	}
	s.exec(`UPDATE workers SET slots = 2 WHERE id = $1`, fit)

	first := s.enqueue(mail(", priority => 3"))
	s.says(id, inspect.CheckAhead, "1 job is ahead of it; no run of this queue has ended within 5 min.", inspect.HelpQueue)
	s.exec(`INSERT INTO job_stats_minutes (minute, queue, type, outcome, n, run_ms) VALUES (date_trunc('minute', now() - interval '4 min'), 'mail', 'email', 1, 290, 1), (date_trunc('minute', now()), 'other', 'email', 1, 290, 1)`)
	s.exec(`INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms) VALUES ('mail', 'email', 2, 10, 1), ('mail', 'email', 4, 1000, 1)`)
	head = s.says(id, inspect.CheckAhead, "/s.", inspect.HelpQueue)
	if rate, _ := evidence(head, "per_second").(float64); rate < 0.8 || rate > 1.01 {
		t.Errorf("per_second = %v, want 300 in five to six minutes", rate)
	}
	x := s.explain(id)
	if last := x.Checks[len(x.Checks)-1]; !x.Claimable || x.Ahead != 1 || last.Verdict != inspect.Passed || last.Text != "Nothing else is in the way: it starts once those ahead of it are taken." {
		t.Errorf("with one ahead: claimable %t, %d ahead, %+v", x.Claimable, x.Ahead, last)
	}
	s.cancel(first)

	s.says(id, inspect.CheckStart, "Nothing is in the way: it should start within 1 s.", "")
	s.exec(`UPDATE job_ready SET ready_at = now() - interval '1 min'`)
	s.says(id, inspect.CheckStart, "Nothing is in the way: it should start within 1 s.", "") // the worker has only just come
	s.exec(`UPDATE workers SET started_at = now() - interval '30 s'`)
	s.says(id, inspect.CheckStart, "yet no worker has taken it for 30 s", inspect.HelpWorkers)
	if x := s.explain(id); !x.Claimable {
		t.Error("a job that is late is not claimable")
	}
	s.exec(`UPDATE job_claims SET claimed_at = now()`)
	s.says(id, inspect.CheckStart, "it should start within 1 s", "") // others were claimed a moment ago
	s.exec(`UPDATE jobs SET expires_at = now() - interval '3 s' WHERE id = $1`, id)
	s.says(id, inspect.CheckStart, "It expired 3", "")
}

func TestARunIsExplainedByItsLease(t *testing.T) {
	s := newStage(t)
	s.r.Pace = inspect.Pace{Reaper: 10 * time.Second}
	w := s.worker("w1", 10, 1, nil, 2*time.Second)
	id := s.enqueue(mail(""))
	token := s.claim(id, w)
	s.exec(`INSERT INTO queues (name, paused_at) VALUES ('mail', now())`) // too late for this run
	head := s.says(id, inspect.CheckLeased, fmt.Sprintf("It runs on w1 under token %d, for", token), inspect.HelpWorker)
	if evidence(head, "fencing_token") != inspect.Token(token) || evidence(head, "worker_id") != inspect.Token(w) || evidence(head, "heartbeat_at") == nil || head.Help.Target != fmt.Sprint(w) {
		t.Errorf("evidence = %+v", head)
	}
	if x := s.explain(id); x.Claimable || x.Ahead != -1 || len(x.Checks) != 9 || x.Checks[0].Verdict != inspect.NotApplicable {
		t.Errorf("a run = %+v", x)
	}
	s.exec(`UPDATE job_claims SET lease_expires_at = now() - interval '3 s'`)
	s.says(id, inspect.CheckLeased, "no process leads the upkeep", inspect.HelpSystem)
	s.exec(`INSERT INTO leaders (role, worker_id, expires_at) VALUES ('maintenance', 1, now() + interval '1 hour')`)
	s.says(id, inspect.CheckLeased, "is silent", inspect.HelpSystem)
	s.exec(`INSERT INTO maintenance_tasks (task, last_success_at) VALUES ('reaper', now() - interval '4 s')`)
	s.says(id, inspect.CheckLeased, "the reaper takes it back with its next pass, in about ", inspect.HelpWorker)
	s.exec(`UPDATE maintenance_tasks SET last_success_at = now() - interval '31 s'`)
	s.says(id, inspect.CheckLeased, "is silent", inspect.HelpSystem)
	s.exec(`DELETE FROM workers`)
	s.says(id, inspect.CheckLeased, fmt.Sprintf("worker %d held it", w), inspect.HelpSystem)
}

func TestABackoffIsExplainedWithItsBounds(t *testing.T) {
	s := newStage(t)
	id := s.enqueue(mail(""))
	token := s.claim(id, 1)
	s.finish(id, token, 2, "GatewayTimeout")
	s.retry(id, 1)
	s.exec(`UPDATE job_scheduled SET run_at = (SELECT finished_at FROM job_executions) + interval '1500 ms'`)
	s.exec(`UPDATE job_executions SET finished_at = finished_at + interval '1 hour'`)
	s.exec(`UPDATE job_scheduled SET run_at = run_at + interval '1 hour'`)
	head := s.says(id, inspect.CheckNotDue, "It waits out its backoff after attempt 1 of 5 failed with GatewayTimeout: due in 60 min. The delay is 1.5 s, drawn between 0 s and 2 s.", inspect.HelpRunNow)
	if evidence(head, "delay") != 1500*time.Millisecond || evidence(head, "delay_most") != 2*time.Second {
		t.Errorf("evidence = %+v", head.Evidence)
	}
	s.r.Pace.Retry = engine.Exponential{Base: 10 * time.Second, Max: time.Minute}
	s.says(id, inspect.CheckNotDue, "The delay is 1.5 s.", inspect.HelpRunNow) // another policy drew it
	s.r.Pace.Retry = engine.RetryFunc(func(int) time.Duration { return time.Second })
	s.says(id, inspect.CheckNotDue, "The delay is 1.5 s.", inspect.HelpRunNow)
}

func TestSuspectsAndHeldJobsAreExplained(t *testing.T) {
	s := newStage(t)
	w := s.worker("w1", 3, 0, nil, 0)
	first, second := s.enqueue(mail("")), s.enqueue(mail(""))
	s.exec(`UPDATE job_ready SET crashes = 2`)
	x := s.explain(first)
	if head := x.Headline(); head.Code != inspect.CheckStart || !x.Claimable || x.Ahead != -1 || x.Checks[5].Text != "Suspect after 2 lost runs: it is the next to run alone, in a process of its own." {
		t.Errorf("the first suspect = %+v", x)
	}
	head := s.says(second, inspect.CheckSuspect, "Suspect after 2 lost runs: 1 other is ahead", "")
	if evidence(head, "suspects_ahead") != int64(1) || s.explain(second).Claimable {
		t.Errorf("the second suspect = %+v", head)
	}
	s.claim(first, w)
	s.says(second, inspect.CheckSuspect, "waits until the suspects that run now have ended or take long", inspect.HelpWorkers)

	held := s.enqueue(mail(""))
	s.exec(`WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING *)
		INSERT INTO job_held (job_id, priority, attempt, crashes, queue, type, reason, hold_key) SELECT job_id, priority, attempt, crashes, queue, type, 'no_worker', type FROM d`, held)
	s.says(held, inspect.CheckHeld, "it is put back in line within seconds of one", inspect.HelpWorkers)
	s.exec(`UPDATE job_held SET reason = 'type_paused'`)
	s.says(held, inspect.CheckHeld, "its type is paused", "")
	s.exec(`UPDATE job_held SET reason = 'dependency'`)
	s.says(held, inspect.CheckHeld, "what it depends on does not answer", "")
}

func TestAJobThatHasEndedIsExplainedByItsEnd(t *testing.T) {
	s := newStage(t)
	done, cancelled, dead, nowhere := s.enqueue(mail("")), s.enqueue(mail("")), s.enqueue(mail("")), s.enqueue(mail(""))
	s.finish(done, s.claim(done, 1), 1, "")
	s.cancel(cancelled)
	token := s.claim(dead, 1)
	s.finish(dead, token, 2, "no")
	s.bury(dead, token, "exhausted", "no")
	s.exec(`DELETE FROM job_ready WHERE job_id = $1`, nowhere)
	s.says(done, inspect.CheckEnded, "It completed", "")
	s.says(cancelled, inspect.CheckEnded, "It was cancelled", "")
	s.says(dead, inspect.CheckEnded, "exhausted, and will not run again by itself", inspect.HelpReplay)
	s.exec(`UPDATE dead_letter_jobs SET discarded_at = now()`)
	s.says(dead, inspect.CheckEnded, "It died, and was discarded", inspect.HelpRestore)
	s.says(nowhere, inspect.CheckNoPlace, "jobctl verify", "")
	for _, id := range []uuid.UUID{done, cancelled, dead, nowhere} {
		if x := s.explain(id); len(x.Checks) != 1 || x.Claimable || x.Ahead != -1 {
			t.Errorf("%s = %+v, want one check", x.State, x)
		}
	}
	if _, err := s.r.Explain(s.ctx, uuid.Must(uuid.NewV7()), time.Time{}); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("Explain of no job: %v, want ErrJobNotFound", err)
	}
}

// TestTheJobsAheadAreCountedUpToALimit: what is told costs the same however long the
// line is, and never more than there is.
func TestTheJobsAheadAreCountedUpToALimit(t *testing.T) {
	s := newStage(t)
	s.worker("w1", 3, 0, nil, 0)
	s.exec(`INSERT INTO jobs (id, type, queue, version) SELECT uuid_v7(), 'email', 'mail', 1 FROM generate_series(1, $1)`, inspect.AheadCap+500)
	s.exec(`INSERT INTO job_ready (job_id, priority, queue, type) SELECT id, 1, queue, type FROM jobs`)
	id := s.enqueue(mail(", priority => 0"))
	x := s.explain(id)
	if head := x.Headline(); x.Ahead != inspect.AheadCap || !x.AheadMore || !strings.HasPrefix(head.Text, "At least 10,000 jobs are ahead of it") {
		t.Errorf("%d ahead, more: %t, %q", x.Ahead, x.AheadMore, x.Headline().Text)
	}
	s.exec(`UPDATE job_ready SET type = 'other' WHERE priority = 1`) // whom no such worker takes
	if x := s.explain(id); x.Ahead != 0 || !x.AheadMore || x.Headline().Code != inspect.CheckStart || !x.Claimable {
		t.Errorf("behind jobs of another type = %+v", x)
	}
}
