package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

var canaryDead = flag.Int("canary.dead", 150, "dead letters that TestACanaryOverTheCommandLine mends; make canary has 10000")

// gateway is what webhooks are sent to, by path; it counts each message, and answers 422
// while it is broken, so that one run is a death.
type gateway struct {
	*httptest.Server
	broken atomic.Bool
	mu     sync.Mutex
	taken  map[string]int // by webhook-id
	failed int
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{taken: map[string]int{}}
	g.broken.Store(true)
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.broken.Load() {
			g.failed++
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		g.taken[r.Header.Get("webhook-id")]++
	}))
	t.Cleanup(g.Close)
	return g
}

// counts are the messages taken, those that were taken more than once, and those refused.
func (g *gateway) counts() (taken, twice, failed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.taken {
		if n > 1 {
			twice++
		}
	}
	return len(g.taken), twice, g.failed
}

// plantWebhooks writes n dead letters of webhooks to a path, of one cause, as the engine
// leaves them.
func plantWebhooks(t *testing.T, pool *pgxpool.Pool, n int, url, cause string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		WITH j AS (
		  INSERT INTO jobs (id, type, queue, version, max_attempts, payload) SELECT uuid_v7(), 'webhook', 'billing', 1, 1, jsonb_build_object('url', $2::text) FROM generate_series(1, $1) RETURNING id),
		e AS (
		  INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome, error_class, error, fingerprint)
		  SELECT j.id, nextval('job_claims_id_seq'), 1, now(), now(), 1, 2, 'answer', $3, $3 FROM j RETURNING job_id, fencing_token),
		s AS (INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms) VALUES ('billing', 'webhook', 2, $1, 0))
		INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, fingerprint)
		SELECT e.job_id, e.fencing_token, 1, 'billing', 'webhook', 'exhausted', 'answer', $3, $3 FROM e`, n, url, cause)
	if err != nil {
		t.Fatal(err)
	}
}

// operation is one as jobctl tells it.
type operation struct {
	ID, Status string
	Total      int
	Done       int
	PassedOver int    `json:"passed_over"`
	Halted     string `json:"halted_reason"`
}

func (s testServer) operation(t *testing.T, id string) (o operation) {
	t.Helper()
	code, out, errs := jobctl(t, s.url, "operations", "get", id, "--json")
	if err := json.Unmarshal([]byte(out), &o); code != 0 || err != nil {
		t.Fatalf("operations get = %d %s%s (%v)", code, out, errs, err)
	}
	return o
}

func (s testServer) ends(t *testing.T, id string) operation {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if o := s.operation(t, id); o.Status != "running" || time.Now().After(deadline) {
			return o
		}
	}
}

// TestACanaryOverTheCommandLine has dead webhooks of three causes. One group is replayed
// by canary while its target is still broken, which halts itself; then mended, which
// goes through, twenty callers at once for the next, and never a message twice.
func TestACanaryOverTheCommandLine(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	pool := dbtest.OpenURL(t, s.database)
	g := newGateway(t)
	half := *canaryDead / 2
	rest := (*canaryDead - half) / 2
	for cause, n := range map[string]int{"pay": half, "ship": rest, "mail": *canaryDead - half - rest} {
		plantWebhooks(t, pool, n, g.URL+"/"+cause, cause)
	}
	one := func(sql string) (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	code, out, errs := jobctl(t, s.url, "dlq", "replay", "--fingerprint", "pay", "--pace", "canary", "--reason", "gateway mended", "-o", "id")
	id := strings.TrimSpace(out)
	if code != 0 || len(id) != 36 {
		t.Fatalf("replay = %d %s%s", code, out, errs)
	}
	// Against a broken target it looks at its first step, or at most at the one that came after.
	o := s.ends(t, id)
	if o.Status != "halted" || o.Total != half || o.Done < 5 || o.Done > 15 || !strings.Contains(o.Halted, "failed again") {
		t.Fatalf("against a broken target: %+v", o)
	}
	if _, _, failed := g.counts(); failed != o.Done || one("SELECT count(*) FROM jobs WHERE replays > 0") != o.Done {
		t.Errorf("the target was asked %d times, and %d jobs were replayed, by an operation that says %d", failed, one("SELECT count(*) FROM jobs WHERE replays > 0"), o.Done)
	}
	again := o.Done

	g.broken.Store(false)
	if code, out, errs := jobctl(t, s.url, "operations", "continue", id, "--reason", "now it is"); code != 0 {
		t.Fatalf("continue = %d %s%s", code, out, errs)
	}
	if o = s.ends(t, id); o.Status != "finished" || o.Done != half || o.PassedOver != 0 {
		t.Errorf("against a mended target: %+v, want all %d", o, half)
	}
	if taken, twice, _ := g.counts(); taken != half-again || twice != 0 {
		t.Errorf("the target took %d messages, %d of them twice; want %d", taken, twice, half-again)
	}
	if dead := one("SELECT count(*) FROM dead_letter_jobs"); dead != *canaryDead-half+again {
		t.Errorf("%d are still dead, want the %d of other causes and the %d that were sent too early", dead, *canaryDead-half, again)
	}

	s.twentyAtOnce(t, rest, "--fingerprint", "ship")
	s.twentyAtOnce(t, *canaryDead-half-rest, "--fingerprint", "mail")
	s.twentyAtOnce(t, again, "--queue", "billing") // what died again has a cause of its own
	for deadline := time.Now().Add(2 * time.Minute); one("SELECT count(*) FROM job_ready")+one("SELECT count(*) FROM job_claims") > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the replayed jobs do not end")
		}
	}
	if taken, twice, _ := g.counts(); taken != *canaryDead || twice != 0 {
		t.Errorf("the target took %d messages, %d of them twice; want each of %d once", taken, twice, *canaryDead)
	}
	if n := one("SELECT count(*) FROM dead_letter_jobs"); n != 0 {
		t.Errorf("%d are still dead", n)
	}
	report, err := verify.Run(t.Context(), pool, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Verdict != verify.OK {
			t.Errorf("verify: %s is %s: %v", r.Rule.Name, r.Verdict, r.Offenders)
		}
	}
}

// twentyAtOnce has twenty clients replay the same group at the same time: what one has
// done another passes over, or finds nothing to do.
func (s testServer) twentyAtOnce(t *testing.T, n int, group ...string) {
	t.Helper()
	ids := make([]string, 20)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			code, out, errs := jobctl(t, s.url, append([]string{"dlq", "replay", "--reason", fmt.Sprint("client ", i), "-o", "id"}, group...)...)
			// Whoever comes late is told so: there is nothing left, or less than it was shown.
			late := strings.Contains(errs, "No job fits the selection") || strings.Contains(errs, "no longer what its preview told")
			if code != 0 && !late {
				t.Errorf("%s, client %d: %d %s", group, i, code, errs)
			}
			ids[i] = strings.TrimSpace(out)
		})
	}
	all.Wait()
	done := 0
	for _, id := range ids {
		if id == "" {
			continue
		}
		o := s.ends(t, id)
		if o.Status != "finished" || o.Done+o.PassedOver != o.Total {
			t.Errorf("%s: %+v", group, o)
		}
		done += o.Done
	}
	if done != n {
		t.Errorf("%s: twenty clients replayed %d jobs, want each of %d once", group, done, n)
	}
}
