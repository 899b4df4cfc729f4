package inspect_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/engine/search"
)

func (s *stage) search(text string, limit int) []uuid.UUID {
	s.t.Helper()
	q, err := search.Parse(text, time.Now())
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	var ids []uuid.UUID
	f := inspect.SearchFilter{Query: q, Limit: limit}
	for range 500 {
		page, err := s.r.Search(s.ctx, f)
		if err != nil {
			s.t.Fatalf("%s: %v", text, err)
		}
		if len(page.Jobs) > limit {
			s.t.Fatalf("%s gave %d jobs", text, len(page.Jobs))
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if page.Next == uuid.Nil {
			return ids
		}
		f.Before = page.Next
	}
	s.t.Fatalf("%s never ends", text)
	return nil
}

// TestSearchFindsByEverything: each word against a job of which all is known, and its neighbours of which it is not.
func TestSearchFindsByEverything(t *testing.T) {
	s := newStage(t)
	w := s.worker("billing-1", 10, 0, nil, 0)
	one := s.enqueue(`type => 'charge', queue => 'billing', priority => 3, tags => '{orders,vip}', idempotency_key => 'receipt-8123',
		payload => '{"customer": {"id": 123, "name": "Ada"}, "lines": [{"sku": "x1"}], "big": 12345678901234567890}'`)
	for _, error := range []string{"first error", "gateway timeout after 5 s"} {
		s.finish(one, s.claim(one, w), 2, error)
		s.retry(one, 1)
		if error == "first error" {
			s.exec("DELETE FROM job_scheduled WHERE job_id = $1", one)
			s.ready(one, 1)
		}
	}
	s.exec("UPDATE job_scheduled SET attempt = 2 WHERE job_id = $1", one)
	s.exec("UPDATE job_executions SET started_at = finished_at - interval '6 s', wait_ms = 90000 WHERE job_id = $1", one)
	s.exec("UPDATE jobs SET created_at = created_at - interval '9 minutes' WHERE id = $1", one) // as far as ids may be off
	other := s.enqueue(mail(""))
	dead := s.enqueue(`type => 'charge', queue => 'billing2'`)
	token := s.claim(dead, w)
	s.finish(dead, token, 2, "e")
	s.bury(dead, token, "exhausted", "e")
	discarded := s.enqueue(`type => 'charge', queue => 'billing3'`)
	token = s.claim(discarded, w)
	s.finish(discarded, token, 2, "e")
	s.bury(discarded, token, "exhausted", "e")
	s.exec("UPDATE dead_letter_jobs SET discarded_at = now() WHERE job_id = $1", discarded)
	running := s.enqueue(`type => 'render', queue => 'images'`)
	s.claim(running, w)
	s.exec("UPDATE job_claims SET claimed_at = now() - interval '1 hour' WHERE job_ids = ARRAY[$1::uuid]", running)
	for text, want := range map[string][]uuid.UUID{
		"state:failed": {one}, "queue:billing": {one}, "queue:billing*": {one, dead, discarded}, "charge -state:dead": {one}, "charge": {one, dead, discarded}, "priority:high": {one},
		"tag:vip": {one}, "worker:billing-1": {one, dead, discarded, running}, "worker:billing-1 state:running": {running}, fmt.Sprintf("worker:%d queue:billing", w): {one},
		"build:1.2.3 queue:billing": {one}, "key:receipt-8123": {one}, "key:receipt-8124": nil, "key:receipt-8124,receipt-8123": {one}, "-key:receipt-8123 type:charge": {dead, discarded},
		`error:"GATEWAY timeout"`: {one}, `error:"first error"`: nil, "fp:gateway": {one}, "fp:e": {dead, discarded}, "fp:nothing": nil, "attempt:>=2": {one},
		"duration:>5s duration:<1m": {one}, "duration:>30m": {running}, "wait:>1m": {one}, "age:>8m": {one}, "created:-10m..-8m": {one},
		"finished:-1h.. type:charge": {one, dead, discarded}, "payload.customer.id:123": {one}, "payload.customer.name:Ad*": {one}, "payload.lines.0.sku:x1": {one},
		"payload.big:12345678901234567890": {one}, "payload.customer.id:124": nil, "payload.nothing:*": nil, "mail": {other}, one.String(): {one},
		one.String() + " queue:mail": nil, "state:ready": {other}, "state:ready,running": {other, running}, "-state:ready,running": {one, dead}, "state:held": nil, "state:dead": {dead},
	} {
		if diff := cmp.Diff(newestFirst(want), s.search(text, 50)); diff != "" && len(want)+len(s.search(text, 50)) > 0 {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestSearchLeavesNothingOut holds pages of random queries, of which indexes and places narrow the look, against every job
// held against the query one by one.
func TestSearchLeavesNothingOut(t *testing.T) {
	s := newStage(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	w := []int64{s.worker("w-1", 10, 0, nil, 0), s.worker("w-2", 10, 0, nil, 0)}
	all := map[uuid.UUID]string{} // to the place
	for range 120 {
		id := s.enqueue(fmt.Sprintf(`type => '%s', queue => '%s', priority => %d, tags => '{%s}', payload => '{"n": %d}', idempotency_key => %s`,
			pick("a", "b", "ab"), pick("q", "r"), r.IntN(6), pick("x", "y", "x,y", ""), r.IntN(3), pick("NULL", "NULL", "'k"+uuid.NewString()+"'")))
		place := pick("ready", "scheduled", "held", "running", "retrying", "completed", "dead", "cancelled", "discarded")
		switch place {
		case "scheduled":
			s.exec("WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING *) INSERT INTO job_scheduled (run_at, job_id, priority, queue, type) SELECT now() + interval '1 h', job_id, priority, queue, type FROM d", id)
		case "held":
			s.exec("WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING *) INSERT INTO job_held (job_id, priority, attempt, crashes, queue, type, reason, hold_key) SELECT job_id, priority, 0, 0, queue, type, 'no_worker', type FROM d", id)
		case "running":
			s.claim(id, w[r.IntN(2)])
		case "retrying":
			s.finish(id, s.claim(id, w[r.IntN(2)]), 2, pick("refused", "timed out"))
			s.retry(id, 1)
		case "completed":
			s.finish(id, s.claim(id, w[r.IntN(2)]), 1, "")
		case "dead", "discarded":
			token := s.claim(id, w[r.IntN(2)])
			s.finish(id, token, 2, pick("refused", "timed out"))
			s.bury(id, token, "exhausted", "e")
			if place == "discarded" {
				s.exec("UPDATE dead_letter_jobs SET discarded_at = now() WHERE job_id = $1", id)
			}
		case "cancelled":
			s.cancel(id)
		}
		all[id] = place
	}
	terms := []string{"state:failed", "state:ready,dead", "-state:completed", "state:waiting", "state:finished", "type:a", "type:a*", "-type:b", "queue:q", "queue:q,r", "priority:3",
		"priority:>=2", "-priority:0,1", "tag:x", "tag:x tag:y", "-tag:x", "worker:w-1", "-worker:w-1", "build:1.2.3", "error:refused", "fp:refused", "-fp:refused", "fp:e",
		"attempt:>=1", "attempt:0", "finished:-1h..", "finished:..-1h", "created:-1h..", "created:..-1h", "age:<1h", "payload.n:1", "-payload.n:1,2", "x", "q", "-a", "-key:k", "wait:<1m", "duration:<1m"}
	found, rounds := 0, 200
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		var parts []string
		for range 1 + r.IntN(3) {
			parts = append(parts, pick(terms...))
		}
		text := strings.Join(parts, " ")
		q, err := search.Parse(text, time.Now())
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var want []uuid.UUID
		for id, place := range all {
			if s.matches(id, place, q) {
				want = append(want, id)
			}
		}
		found += len(want)
		if diff := cmp.Diff(newestFirst(want), append([]uuid.UUID{}, s.search(text, 1+r.IntN(40))...)); diff != "" && len(want) > 0 {
			t.Fatalf("%s (-want +got):\n%s", text, diff)
		} else if len(want) == 0 && len(s.search(text, 50)) > 0 {
			t.Fatalf("%s finds what does not match", text)
		}
	}
	if found < 5*rounds {
		t.Errorf("%d matches in all: the queries were too narrow to tell anything", found)
	}
}

// matches holds one job against a query by what the plain reads tell of it.
func (s *stage) matches(id uuid.UUID, place string, q search.Query) bool {
	s.t.Helper()
	j, ok := s.known()[id]
	if !ok {
		s.t.Fatalf("job %s is not there", id)
	}
	states, all := q.States()
	if !all && !slices.Contains(states, place) {
		return false
	}
	j.Place = place
	m := search.NewMatcher(q, time.Now())
	j.Payload, j.Absent = nil, nil
	for range m.Needs.Paths { // they are all n
		j.Payload, j.Absent = append(j.Payload, s.payload[id]), append(j.Absent, false)
	}
	return m.Matches(&j)
}

// known reads every job as the job's page does.
func (s *stage) known() map[uuid.UUID]search.Facts {
	if s.facts != nil {
		return s.facts
	}
	s.facts, s.payload = map[uuid.UUID]search.Facts{}, map[uuid.UUID]string{}
	page, err := s.r.Jobs(s.ctx, inspect.JobFilter{Limit: inspect.MaxLimit})
	if err != nil || page.Next != uuid.Nil {
		s.t.Fatalf("every job: %v", err)
	}
	for _, j := range page.Jobs {
		f := search.Facts{ID: j.ID, Type: j.Type, Queue: j.Queue, Priority: int64(j.Priority), Tags: j.Tags, CreatedAt: j.CreatedAt, Attempt: int64(j.Attempt),
			Duration: -1, Wait: -1}
		runs, err := s.r.Attempts(s.ctx, j.ID)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, a := range runs {
			if a.WorkerID != 0 {
				f.Workers, f.Builds = append(f.Workers, a.WorkerName, fmt.Sprint(a.WorkerID)), append(f.Builds, a.Build)
			}
			if f.FinishedAt = a.FinishedAt; !a.FinishedAt.IsZero() && !a.StartedAt.IsZero() {
				f.Duration, f.Wait = a.FinishedAt.Sub(a.StartedAt), 7*time.Millisecond
			} else if a.FinishedAt.IsZero() {
				f.Duration = time.Second
			}
		}
		if j.LastError != nil {
			f.Error, f.Fingerprint = j.LastError.Class+": "+j.LastError.Message, j.LastError.Fingerprint
		}
		if j.State == engine.StatePending && j.HeldReason == "" && j.ScheduledAt.Before(time.Now()) {
			f.Wait = time.Second
		}
		s.facts[j.ID] = f
		s.payload[j.ID] = strings.Trim(strings.TrimPrefix(string(j.Payload), `{"n":`), " }")
	}
	rows, err := s.pool.Query(s.ctx, "SELECT job_id, key FROM idempotency_keys")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var key string
		if err := rows.Scan(&id, &key); err != nil {
			s.t.Fatal(err)
		}
		f := s.facts[id]
		f.Keys = append(f.Keys, key)
		s.facts[id] = f
	}
	return s.facts
}
