package inspect_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

func (s *stage) job(id uuid.UUID) inspect.Job {
	s.t.Helper()
	j, err := s.r.Job(s.ctx, id)
	if err != nil {
		s.t.Fatalf("Job(%s): %v", id, err)
	}
	return j
}

func TestAJobReadsAsItStandsAllItsLife(t *testing.T) {
	s := newStage(t)
	w := s.worker("w1", 10, 1, nil, 0)
	id := s.enqueue(mail(`, priority => 3, max_attempts => 7, timeout => interval '90 seconds', tags => '{a,b}',
		payload => '{"n": 12345678901234567890123, "f": 1.10}'`))

	j := s.job(id)
	if j.State != engine.StatePending || j.Attempt != 0 || j.Run != 0 || j.FencingToken != 0 || j.Lease != nil || !j.StartedAt.IsZero() {
		t.Errorf("new job = %+v, want pending, never run", j)
	}
	if j.Priority != 3 || j.MaxAttempts != 7 || j.Timeout != 90*time.Second || !slices.Equal(j.Tags, []string{"a", "b"}) || j.Version != 1 {
		t.Errorf("options = %+v, want priority 3, 7 attempts, 90s, tags a b, version 1", j)
	}
	if got, want := string(j.Payload), `{"f": 1.10, "n": 12345678901234567890123}`; got != want {
		t.Errorf("payload = %s, want %s", got, want)
	}

	first := s.claim(id, w)
	j = s.job(id)
	if j.State != engine.StateLeased || j.Attempt != 1 || j.Run != 1 || j.FencingToken != first || j.Lease == nil || j.Lease.WorkerName != "w1" ||
		j.Lease.WorkerID != w || j.Lease.ExpiresAt.IsZero() || j.StartedAt.IsZero() || !j.FinishedAt.IsZero() {
		t.Errorf("leased job = %+v (lease %+v), want run 1 of worker w1", j, j.Lease)
	}

	s.finish(id, first, 2, "smtp down")
	s.retry(id, 1)
	j = s.job(id)
	if j.State != engine.StateFailed || j.Attempt != 1 || j.LastError == nil || j.LastError.Message != "smtp down" || !j.ScheduledAt.After(time.Now()) {
		t.Errorf("failed job = %+v (error %+v), want it to wait after smtp down", j, j.LastError)
	}

	s.exec(`DELETE FROM job_scheduled WHERE job_id = $1`, id)
	s.ready(id, 1)
	second := s.claim(id, w)
	s.finish(id, second, 1, "")
	j = s.job(id)
	if j.State != engine.StateCompleted || j.Run != 2 || j.Attempt != 2 || j.FinishedAt.IsZero() || j.FencingToken != second || j.LastError == nil {
		t.Errorf("completed job = %+v, want run 2 and the last error kept", j)
	}
}

func TestAnUnknownJobIsNotFound(t *testing.T) {
	s := newStage(t)
	id := uuid.Must(uuid.NewV7())
	if _, err := s.r.Job(s.ctx, id); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("Job = %v, want ErrJobNotFound", err)
	}
	if _, err := s.r.Attempts(s.ctx, id); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("Attempts = %v, want ErrJobNotFound", err)
	}
	if _, err := s.r.Result(s.ctx, id); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("Result = %v, want ErrJobNotFound", err)
	}
	if _, err := s.r.DeadLetter(s.ctx, id); !errors.Is(err, engine.ErrJobNotFound) {
		t.Errorf("DeadLetter = %v, want ErrJobNotFound", err)
	}
	if _, err := s.r.Queue(s.ctx, "nobody"); !errors.Is(err, inspect.ErrQueueNotFound) {
		t.Errorf("Queue = %v, want ErrQueueNotFound", err)
	}
	if l, err := s.r.Leader(s.ctx); l != nil || err != nil {
		t.Errorf("Leader = %v, %v, want none", l, err)
	}
}

func TestAttemptsAreEveryRunWithTheLiveOneLast(t *testing.T) {
	s := newStage(t)
	w := s.worker("w1", 10, 1, nil, 0)
	id := s.enqueue(mail(""))
	first := s.claim(id, w)
	s.finish(id, first, 6, "lost")
	s.ready(id, 0)
	second := s.claim(id, w)

	list, err := s.r.Attempts(s.ctx, id)
	if err != nil || len(list) != 2 {
		t.Fatalf("Attempts = %d rows, %v, want 2", len(list), err)
	}
	closed, live := list[0], list[1]
	if closed.Run != 1 || closed.FencingToken != first || closed.Outcome != engine.OutcomeLeaseExpired || closed.Build != "1.2.3" ||
		closed.Error != "lost" || !closed.HasWait || closed.Wait != 7*time.Millisecond || closed.FinishedAt.IsZero() {
		t.Errorf("first run = %+v", closed)
	}
	if live.Run != 2 || live.FencingToken != second || live.Outcome != 0 || !live.FinishedAt.IsZero() || live.LeaseExpiresAt.IsZero() || live.WorkerName != "w1" {
		t.Errorf("live run = %+v", live)
	}

	s.finish(id, second, 1, "")
	if list, err = s.r.Attempts(s.ctx, id); err != nil || len(list) != 2 || list[1].Outcome != engine.OutcomeCompleted || list[1].Run != 2 {
		t.Errorf("Attempts after the end = %+v, %v, want run 2 completed", list, err)
	}
}

func TestACancelledWaitingJobHasAClosingRowThatIsNoRun(t *testing.T) {
	s := newStage(t)
	id := s.enqueue(mail(""))
	s.cancel(id)
	if j := s.job(id); j.State != engine.StateCancelled || j.Run != 0 || j.FinishedAt.IsZero() {
		t.Errorf("job = %+v, want cancelled with no run", j)
	}
	list, err := s.r.Attempts(s.ctx, id)
	if err != nil || len(list) != 1 || list[0].Run != 0 || list[0].Outcome != engine.OutcomeCancelled || list[0].WorkerID != 0 {
		t.Errorf("Attempts = %+v, %v, want one closing row", list, err)
	}
}

func TestResultOfTheCompletedRun(t *testing.T) {
	s := newStage(t)
	id := s.enqueue(mail(""))
	if _, err := s.r.Result(s.ctx, id); !errors.Is(err, inspect.ErrNoResult) {
		t.Errorf("Result of a waiting job = %v, want ErrNoResult", err)
	}
	token := s.claim(id, 1)
	s.finish(id, token, 1, "")
	s.exec(`UPDATE job_executions SET result = '{"total": 1970670598291982290}' WHERE job_id = $1`, id)
	got, err := s.r.Result(s.ctx, id)
	if err != nil || string(got.JSON) != `{"total": 1970670598291982290}` || got.FencingToken != token {
		t.Errorf("Result = %s, %v, want the number digit for digit", got.JSON, err)
	}
}

// everyState makes two jobs in each state and returns their ids by state.
func everyState(s *stage) map[engine.State][]uuid.UUID {
	ids := map[engine.State][]uuid.UUID{}
	for range 2 {
		ids[engine.StatePending] = append(ids[engine.StatePending], s.enqueue(mail("")), s.enqueue(mail(", delay => interval '1 hour'")))
		leased := s.enqueue(mail(""))
		s.claim(leased, 1)
		failed := s.enqueue(mail(""))
		s.finish(failed, s.claim(failed, 1), 2, "e")
		s.retry(failed, 1)
		completed := s.enqueue(mail(""))
		s.finish(completed, s.claim(completed, 1), 1, "")
		dead := s.enqueue(mail(""))
		token := s.claim(dead, 1)
		s.finish(dead, token, 2, "e")
		s.bury(dead, token, "exhausted", "e")
		cancelled := s.enqueue(mail(""))
		s.cancel(cancelled)
		for state, id := range map[engine.State]uuid.UUID{
			engine.StateLeased: leased, engine.StateFailed: failed, engine.StateCompleted: completed,
			engine.StateDeadLetter: dead, engine.StateCancelled: cancelled,
		} {
			ids[state] = append(ids[state], id)
		}
	}
	return ids
}

func newestFirst(ids []uuid.UUID) []uuid.UUID {
	out := slices.Clone(ids)
	slices.SortFunc(out, func(a, b uuid.UUID) int { return strings.Compare(b.String(), a.String()) })
	return out
}

func (s *stage) walk(f inspect.JobFilter) []uuid.UUID {
	s.t.Helper()
	var ids []uuid.UUID
	for range 100 {
		page, err := s.r.Jobs(s.ctx, f)
		if err != nil {
			s.t.Fatalf("Jobs(%+v): %v", f, err)
		}
		if len(page.Jobs) > f.Limit {
			s.t.Fatalf("Jobs(%+v) gave %d jobs", f, len(page.Jobs))
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if page.Next == uuid.Nil {
			return ids
		}
		f.Before = page.Next
	}
	s.t.Fatalf("Jobs(%+v) never ends", f)
	return nil
}

func TestJobsOfEachStateAreListedInPages(t *testing.T) {
	s := newStage(t)
	ids := everyState(s)
	var all []uuid.UUID
	for _, state := range engine.States {
		all = append(all, ids[state]...)
		for _, limit := range []int{1, 2, 50} {
			got := s.walk(inspect.JobFilter{States: []engine.State{state}, Limit: limit})
			if diff := cmp.Diff(newestFirst(ids[state]), got); diff != "" && len(got)+len(ids[state]) > 0 {
				t.Errorf("%s by %d (-want +got):\n%s", state, limit, diff)
			}
		}
	}
	for _, limit := range []int{1, 3, 50} {
		if diff := cmp.Diff(newestFirst(all), s.walk(inspect.JobFilter{Limit: limit})); diff != "" {
			t.Errorf("all by %d (-want +got):\n%s", limit, diff)
		}
		several := []engine.State{engine.StateCompleted, engine.StateLeased, engine.StatePending}
		want := newestFirst(slices.Concat(ids[several[0]], ids[several[1]], ids[several[2]]))
		if diff := cmp.Diff(want, s.walk(inspect.JobFilter{States: several, Limit: limit})); diff != "" {
			t.Errorf("three states by %d (-want +got):\n%s", limit, diff)
		}
	}
}

func TestJobsAreFilteredByTypeQueueAndPriority(t *testing.T) {
	s := newStage(t)
	everyState(s)
	for _, state := range append([]engine.State{""}, engine.States...) {
		f := inspect.JobFilter{Limit: 50}
		if state != "" {
			f.States = []engine.State{state}
		}
		whole := s.walk(f)
		high := engine.PriorityHigh
		for name, change := range map[string]func(*inspect.JobFilter){
			"type": func(f *inspect.JobFilter) { f.Type = "other" }, "queue": func(f *inspect.JobFilter) { f.Queue = "other" },
			"priority": func(f *inspect.JobFilter) { f.Priority = &high },
		} {
			g := f
			change(&g)
			if got := s.walk(g); len(got) != 0 {
				t.Errorf("%q with another %s gave %d jobs", state, name, len(got))
			}
		}
		def := engine.PriorityDefault
		f.Type, f.Queue, f.Priority = "email", "mail", &def
		if diff := cmp.Diff(whole, s.walk(f)); diff != "" {
			t.Errorf("%q filtered to all (-want +got):\n%s", state, diff)
		}
	}
	one := s.enqueue("type => 'rare', queue => 'mail', priority => 3")
	if got := s.walk(inspect.JobFilter{Type: "rare", Limit: 2}); !slices.Equal(got, []uuid.UUID{one}) {
		t.Errorf("rare = %v, want %s alone", got, one)
	}
}

func TestJobsByOffset(t *testing.T) {
	s := newStage(t)
	var ids []uuid.UUID
	for range 5 {
		ids = append(ids, s.enqueue(mail("")))
	}
	page, err := s.r.Jobs(s.ctx, inspect.JobFilter{Offset: 2, Limit: 2})
	if err != nil || len(page.Jobs) != 2 || page.Jobs[0].ID != newestFirst(ids)[2] || page.Next != page.Jobs[1].ID {
		t.Errorf("page = %+v, %v, want the third and fourth", page, err)
	}
	page, err = s.r.Jobs(s.ctx, inspect.JobFilter{Offset: 10, Limit: 2})
	if err != nil || len(page.Jobs) != 0 || page.Next != uuid.Nil {
		t.Errorf("page past the end = %+v, %v, want nothing", page, err)
	}
}

func TestAListLeavesLargePayloadsOut(t *testing.T) {
	s := newStage(t)
	s.enqueue(mail(`, payload => jsonb_build_object('x', repeat('y', 3000))`))
	s.enqueue(mail(`, payload => jsonb_build_object('x', 1e100000)`)) // small as stored, large as text
	small := s.enqueue(mail(`, payload => '{"x": 1}'`))
	page, err := s.r.Jobs(s.ctx, inspect.JobFilter{})
	if err != nil || len(page.Jobs) != 3 {
		t.Fatalf("Jobs = %d, %v, want 3", len(page.Jobs), err)
	}
	for _, j := range page.Jobs {
		if (j.Payload != nil) != (j.ID == small) {
			t.Errorf("job %s carries %d bytes of payload", j.ID, len(j.Payload))
		}
	}
}

func TestDeadLettersByDeathAndGroup(t *testing.T) {
	s := newStage(t)
	var ids []uuid.UUID
	for range 3 {
		id := s.enqueue(mail(`, payload => '{"n": 9007199254740993}'`))
		token := s.claim(id, 1)
		s.finish(id, token, 2, "boom")
		s.bury(id, token, "permanent", strings.Repeat("boom", 1000))
		ids = append(ids, id)
	}
	s.exec(`UPDATE dead_letter_jobs SET discarded_at = now() WHERE job_id = $1`, ids[0])

	var got []uuid.UUID
	f := inspect.DeadFilter{Limit: 1, Fingerprint: "fp", Type: "email", Queue: "mail", Reason: engine.ReasonPermanent}
	for {
		page, err := s.r.DeadLetters(s.ctx, f)
		if err != nil || len(page.Letters) == 0 {
			t.Fatalf("DeadLetters = %+v, %v", page, err)
		}
		if len(page.Letters[0].Error.Message) > 500 {
			t.Errorf("a list carries %d bytes of error", len(page.Letters[0].Error.Message))
		}
		got = append(got, page.Letters[0].JobID)
		if page.Next == nil {
			break
		}
		f.After = page.Next
	}
	if want := []uuid.UUID{ids[2], ids[1]}; !slices.Equal(got, want) {
		t.Errorf("dead letters = %v, want %v", got, want)
	}
	page, err := s.r.DeadLetters(s.ctx, inspect.DeadFilter{Discarded: true})
	if err != nil || len(page.Letters) != 1 || page.Letters[0].JobID != ids[0] || page.Letters[0].DiscardedAt.IsZero() {
		t.Errorf("discarded = %+v, %v, want the first alone", page, err)
	}
	d, err := s.r.DeadLetter(s.ctx, ids[1])
	if err != nil || d.Stack != "main.go:1" || string(d.Worker) != `{"id": "9007199254740993"}` || string(d.Job.Payload) != `{"n": 9007199254740993}` ||
		d.Reason != engine.ReasonPermanent || len(d.Error.Message) != 4000 {
		t.Errorf("DeadLetter = %+v, %v", d, err)
	}
}

func TestQueuesTellDepthWorkersAndRates(t *testing.T) {
	s := newStage(t)
	everyState(s)
	s.worker("all", 10, 2, []string{}, 0)
	s.worker("mail", 5, 1, []string{"mail", "quiet"}, 25*time.Second)
	s.worker("lost", 100, 50, []string{"mail"}, time.Minute)
	s.exec(`INSERT INTO queues (name, paused_at, paused_reason) VALUES ('paused', now(), 'outage')`)
	s.exec(`INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms) VALUES ('mail', 'email', 1, 50, 100), ('mail', 'email', 9, 5, 100), ('old', 'email', 1, 5, 1)`)
	s.exec(`UPDATE job_stats_deltas SET at = now() - interval '30 minutes' WHERE queue = 'old'`)
	s.exec(`UPDATE job_ready SET ready_at = now() - interval '90 seconds' WHERE job_id = (SELECT job_id FROM job_ready ORDER BY seq LIMIT 1)`)

	queues, err := s.r.Queues(s.ctx)
	if err != nil {
		t.Fatalf("Queues: %v", err)
	}
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
	}
	if want := []string{"mail", "old", "paused", "quiet"}; !slices.Equal(names, want) {
		t.Fatalf("queues = %v, want %v", names, want)
	}
	q, err := s.r.Queue(s.ctx, "mail")
	if err != nil {
		t.Fatalf("Queue: %v", err)
	}
	if diff := cmp.Diff(inspect.Depth{Ready: 2, Scheduled: 2, Running: 2, Retrying: 2, Dead: 2}, q.Depth); diff != "" {
		t.Errorf("depth (-want +got):\n%s", diff)
	}
	if q.Workers != 2 || q.Slots != 15 || q.Busy != 2 {
		t.Errorf("mail has %d workers, %d slots, %d busy, want 2, 15, 2", q.Workers, q.Slots, q.Busy)
	}
	if q.OldestReady < 90*time.Second || q.OldestReady > 2*time.Minute {
		t.Errorf("oldest ready = %s, want 90s", q.OldestReady)
	}
	if q.PerMinute.Enqueued < 2 || q.PerMinute.Completed < 8 || q.PerMinute.Completed > 10 || q.PerMinute.Failed < 0.8 || q.PerMinute.Failed > 1 {
		t.Errorf("per minute = %+v, want about 2.8 in, 50 and 5 out of 5 to 6 minutes", q.PerMinute)
	}
	if p, err := s.r.Queue(s.ctx, "paused"); err != nil || !p.Paused || p.PausedReason != "outage" {
		t.Errorf("paused = %+v, %v", p, err)
	}
	snap, err := s.r.Snapshot(s.ctx, time.Hour)
	if err != nil {
		t.Fatalf("Snapshot: %v", err)
	}
	wantFleet := inspect.Fleet{Slots: 15, Busy: 3, ByStatus: map[inspect.WorkerStatus]int{inspect.WorkerLive: 1, inspect.WorkerLate: 1, inspect.WorkerLost: 1}}
	if diff := cmp.Diff(wantFleet, snap.Fleet); diff != "" {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]inspect.DeadCount{{Queue: "mail", Type: "email", N: 2}}, snap.Dead); diff != "" {
		t.Errorf("dead (-want +got):\n%s", diff)
	}
}

func TestManyViewersShareOneSnapshot(t *testing.T) {
	s := newStage(t)
	first, err := s.r.Snapshot(s.ctx, time.Hour)
	if err != nil {
		t.Fatalf("Snapshot: %v", err)
	}
	done := make(chan *inspect.Snapshot)
	for range 30 {
		go func() {
			got, _ := s.r.Snapshot(s.ctx, time.Hour)
			done <- got
		}()
	}
	for range 30 {
		if got := <-done; got != first {
			t.Error("a viewer read a snapshot of its own")
		}
	}
	if again, err := s.r.Snapshot(s.ctx, 0); err != nil || again == first {
		t.Errorf("Snapshot(0) = the old one, %v, want a new one", err)
	}
}

func TestWorkersLeaderTasksAndEvidence(t *testing.T) {
	s := newStage(t)
	w := s.worker("w1", 10, 1, []string{"mail"}, 0)
	s.worker("gone", 10, 1, []string{}, time.Hour)
	id := s.enqueue(mail(""))
	token := s.claim(id, w)
	s.exec(`INSERT INTO leaders (role, worker_id, expires_at) VALUES ('maintenance', $1, now() + interval '10 seconds')`, w)
	s.exec(`INSERT INTO maintenance_tasks (task, last_success_at) VALUES ('reap', now() - interval '3 seconds'), ('never', NULL)`)
	s.exec(`INSERT INTO refused_writes (job_id, token_held, token_current, worker_id, operation, tried) VALUES ($1, 1, $2, $3, 'complete', '{"outcome":"completed"}')`, id, token, w)
	s.exec(`SELECT record_operator_action('alice', 'api', 'cancel', 'job', $1::text, 'wrong', '{"state":"pending"}', '{"state":"cancelled"}', 1, 'req-1', '127.0.0.1')`, id.String())

	workers, err := s.r.Workers(s.ctx)
	if err != nil || len(workers) != 2 || workers[0].ID != w || workers[0].Running != 1 || workers[0].Status != inspect.WorkerLive ||
		workers[0].Lease != 30*time.Second || workers[1].Status != inspect.WorkerLost || workers[1].HeartbeatAge < time.Hour {
		t.Errorf("Workers = %+v, %v", workers, err)
	}
	if l, err := s.r.Leader(s.ctx); err != nil || l == nil || l.WorkerID != w || l.WorkerName != "w1" || !l.Live {
		t.Errorf("Leader = %+v, %v", l, err)
	}
	tasks, err := s.r.Tasks(s.ctx)
	if err != nil || len(tasks) != 2 || tasks[0].Name != "never" || !tasks[0].LastSuccessAt.IsZero() || tasks[1].Age < 3*time.Second {
		t.Errorf("Tasks = %+v, %v", tasks, err)
	}
	refused, err := s.r.RefusedWrites(s.ctx, id)
	if err != nil || len(refused) != 1 || refused[0].TokenCurrent != token || refused[0].Operation != "complete" || string(refused[0].Tried) == "" {
		t.Errorf("RefusedWrites = %+v, %v", refused, err)
	}
	acts, err := s.r.Actions(s.ctx, id)
	if err != nil || len(acts) != 1 || acts[0].Actor != "alice" || acts[0].Reason != "wrong" || string(acts[0].After) != `{"state": "cancelled"}` {
		t.Errorf("Actions = %+v, %v", acts, err)
	}
}

func TestMinutesAddUpWhatIsNotFoldedYet(t *testing.T) {
	s := newStage(t)
	from := time.Now().Truncate(time.Minute)
	if len(inspect.BucketBounds) != 17 {
		t.Fatalf("%d bucket bounds, want 17", len(inspect.BucketBounds))
	}
	s.exec(`INSERT INTO job_stats_minutes VALUES ($1, 'mail', 'email', 1, 10, 100, '{1,2}', '{3}')`, from)
	s.exec(`INSERT INTO job_stats_deltas (at, queue, type, outcome, n, run_ms, wait_buckets, run_buckets)
		VALUES ($1, 'mail', 'email', 1, 4, 40, '{1,0,7}', '{2}'), ($1, 'mail', 'email', 1, 1, 10, NULL, NULL), ($1, 'bulk', 'email', 2, 1, 1, NULL, NULL)`, from.Add(time.Second))
	got, err := s.r.Minutes(s.ctx, inspect.MinutesFilter{From: from, To: from.Add(2 * time.Minute), Queue: "mail"})
	if err != nil {
		t.Fatalf("Minutes: %v", err)
	}
	var n, ms, wait int64
	for _, m := range got {
		if m.Queue != "mail" || len(m.WaitBuckets) != 18 || len(m.RunBuckets) != 18 || m.Outcome != engine.OutcomeCompleted {
			t.Errorf("minute = %+v", m)
		}
		n, ms, wait = n+m.N, ms+m.RunMS, wait+m.WaitBuckets[0]+m.WaitBuckets[1]+m.WaitBuckets[2]
	}
	if n != 15 || ms != 150 || wait != 11 || len(got) != 1 {
		t.Errorf("sums = %d, %d, %d in %d rows, want 15, 150, 11 in one", n, ms, wait, len(got))
	}
}
