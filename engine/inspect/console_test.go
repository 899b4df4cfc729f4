package inspect_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

func TestJobListTellsReadyScheduledAndHeldApart(t *testing.T) {
	s := newStage(t)
	ready := s.enqueue(mail(", tags => '{eu,vip}'"))
	later := s.enqueue(mail(", delay => interval '1 hour'"))
	held := s.enqueue(mail(""))
	s.exec(`WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING *)
		INSERT INTO job_held (job_id, priority, attempt, crashes, queue, type, reason, hold_key)
		SELECT job_id, priority, attempt, crashes, queue, type, 'no_worker', type FROM d`, held)
	running := s.enqueue(mail(""))
	s.claim(running, s.worker("w1", 10, 1, nil, 0))
	dead := s.enqueue(mail(""))
	s.bury(dead, s.closed(dead, 2), "exhausted", "boom")
	discarded := s.enqueue(mail(""))
	s.bury(discarded, s.closed(discarded, 2), "exhausted", "boom")
	s.exec(`UPDATE dead_letter_jobs SET discarded_at = now() WHERE job_id = $1`, discarded)
	done := s.enqueue(mail(""))
	s.closed(done, 1)
	cancelled := s.enqueue(mail(""))
	s.cancel(cancelled)

	for place, want := range map[inspect.Place]uuid.UUID{
		inspect.PlaceReady: ready, inspect.PlaceScheduled: later, inspect.PlaceHeld: held, inspect.PlaceRunning: running,
		inspect.PlaceDead: dead, inspect.PlaceCompleted: done, inspect.PlaceCancelled: cancelled,
	} {
		page, err := s.r.JobList(s.ctx, inspect.ListFilter{Place: place})
		if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != want {
			t.Errorf("JobList(%s) = %v, %v, want job %s", place, page.Jobs, err, want)
			continue
		}
		if got := page.Jobs[0].Place(time.Now()); got != place {
			t.Errorf("Place of a %s job = %s", place, got)
		}
	}
	if got := s.search("tag:vip", 50); len(got) != 1 || got[0] != ready {
		t.Errorf("tag:vip = %v, want the tagged job", got)
	}
}

func TestSearchPagesThroughTaggedJobs(t *testing.T) {
	s := newStage(t)
	s.exec(`SELECT enqueue_job(type => 'email', queue => 'mail', tags => CASE WHEN i % 3 = 0 THEN '{third}'::text[] END, notify => false)
		FROM generate_series(1, 300) AS i`)
	found := s.search("tag:third", 30)
	if len(found) != 100 || len(slices.Compact(stringsOf(found))) != 100 {
		t.Errorf("paged through %d tagged jobs, want 100, each once", len(found))
	}
}

func stringsOf(ids []uuid.UUID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	slices.Sort(out)
	return out
}

func TestNextReadyIsTheOrderOfClaiming(t *testing.T) {
	s := newStage(t)
	plain := s.enqueue(mail(""))
	urgent := s.enqueue(mail(", priority => 5"))
	jobs, err := s.r.NextReady(s.ctx, "mail", 10)
	if err != nil || len(jobs) != 2 || jobs[0].ID != urgent || jobs[1].ID != plain {
		t.Errorf("NextReady = %v, %v, want the critical job first", jobs, err)
	}
}

func TestPulseCountsTheLastHour(t *testing.T) {
	s := newStage(t)
	w := s.worker("w1", 10, 1, nil, 0)
	for range 3 {
		id := s.enqueue(mail(""))
		s.finish(id, s.claim(id, w), 2, "gateway timeout")
	}
	dead := s.enqueue(mail(""))
	s.bury(dead, s.closed(dead, 2), "exhausted", "boom")
	s.exec(`INSERT INTO job_stats_deltas (at, queue, type, outcome, n, run_ms) VALUES (now(), 'mail', 'email', 1, 7, 70)`)
	s.exec(`SELECT record_operator_action('ann', 'console', 'replay', 'job', $1, 'why', NULL, NULL, 1, NULL, NULL)`, dead.String())

	p, err := s.r.Pulse(s.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Enqueued[59] + p.Enqueued[58]; len(p.Enqueued) != 60 || n != 4 {
		t.Errorf("Enqueued = %v, want 4 in the last minutes", p.Enqueued)
	}
	if len(p.Minutes) != 1 || p.Minutes[0].N != 7 {
		t.Errorf("Minutes = %+v, want one of 7 runs", p.Minutes)
	}
	if len(p.Failures) != 1 || p.Failures[0].N != 3 || p.Failures[0].Recent != 3 || p.Failures[0].Class != "gateway timeout" || p.Failures[0].Type != "email" {
		t.Errorf("Failures = %+v, want one group of 3", p.Failures)
	}
	if p.Deaths.N != 1 || p.Deaths.Recent != 1 || p.Deaths.TopN != 1 || p.Deaths.Top.Fingerprint != "fp" {
		t.Errorf("Deaths = %+v, want one", p.Deaths)
	}
	if len(p.Actions) != 1 || p.Actions[0].Actor != "ann" || len(p.Builds) != 1 || p.Builds[0].Version != "1.2.3" || p.Jobs != 4 {
		t.Errorf("Actions %v, Builds %v, Jobs %d", p.Actions, p.Builds, p.Jobs)
	}

	again, err := s.r.Pulse(s.ctx, p)
	if err != nil || again.Enqueued[59]+again.Enqueued[58] != 4 {
		t.Errorf("a second pulse = %v, %v, want the same counts", again.Enqueued, err)
	}
}

func TestDeadGroupsLeaveDiscardedOnesOut(t *testing.T) {
	s := newStage(t)
	for range 3 {
		id := s.enqueue(mail(""))
		s.bury(id, s.closed(id, 2), "exhausted", "boom")
	}
	gone := s.enqueue(mail(""))
	s.bury(gone, s.closed(gone, 2), "exhausted", "boom")
	s.exec(`UPDATE dead_letter_jobs SET discarded_at = now() WHERE job_id = $1`, gone)
	for _, sort := range []inspect.GroupSort{"", inspect.GroupsByLast, inspect.GroupsByFirst, inspect.GroupsByCount} {
		list, err := s.r.DeadGroups(s.ctx, inspect.GroupFilter{Sort: sort})
		if err != nil || len(list) != 1 || list[0].N != 3 || list[0].Fingerprint != "fp" || list[0].Hours[23] != 3 || list[0].Message != "boom" ||
			len(list[0].Types) != 1 || list[0].Reasons[0] != engine.ReasonExhausted {
			t.Errorf("DeadGroups(%s) = %+v, %v, want one group of 3", sort, list, err)
		}
	}
	if list, err := s.r.DeadGroups(s.ctx, inspect.GroupFilter{Fingerprint: "other"}); err != nil || len(list) != 0 {
		t.Errorf("DeadGroups(other) = %v, %v, want none", list, err)
	}
}

func TestWorkerWithItsRuns(t *testing.T) {
	s := newStage(t)
	w := s.worker("w1", 10, 1, []string{"mail"}, 0)
	done := s.enqueue(mail(""))
	s.finish(done, s.claim(done, w), 1, "")
	running := s.enqueue(mail(""))
	token := s.claim(running, w)
	got, err := s.r.Worker(s.ctx, w)
	if err != nil || got.Name != "w1" || got.Status != inspect.WorkerLive {
		t.Errorf("Worker = %+v, %v", got, err)
	}
	if _, err := s.r.Worker(s.ctx, w+1); !errors.Is(err, inspect.ErrWorkerNotFound) {
		t.Errorf("Worker of an unknown id = %v, want ErrWorkerNotFound", err)
	}
	runs, err := s.r.WorkerRunning(s.ctx, w, 10)
	if err != nil || len(runs) != 1 || runs[0].JobID != running || runs[0].FencingToken != token || runs[0].Attempt != 1 {
		t.Errorf("WorkerRunning = %+v, %v, want the running job", runs, err)
	}
	runs, err = s.r.WorkerRecent(s.ctx, w, 10)
	if err != nil || len(runs) != 1 || runs[0].JobID != done || runs[0].Outcome != engine.OutcomeCompleted {
		t.Errorf("WorkerRecent = %+v, %v, want the finished job", runs, err)
	}
}

func TestDatabaseFacts(t *testing.T) {
	s := newStage(t)
	d, err := s.r.Database(s.ctx)
	if err != nil || d.Version == "" || d.SizeBytes == 0 || len(d.Tables) == 0 || time.Since(d.At).Abs() > time.Minute || d.MaxConnections == 0 {
		t.Errorf("Database = %+v, %v", d, err)
	}
}

// closed runs a ready job to an outcome and returns its token.
func (s *stage) closed(id uuid.UUID, outcome int) int64 {
	s.t.Helper()
	token := s.claim(id, 1)
	s.finish(id, token, outcome, "")
	return token
}
