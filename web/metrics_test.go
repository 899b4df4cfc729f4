package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

func scrape(t *testing.T, m *ops.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape = %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	all := strings.Split(text, "\n")
	for _, line := range lines {
		if !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, line) }) {
			t.Errorf("metrics lack %s", line)
		}
	}
}

func TestMetricsTellWhatTheEngineTells(t *testing.T) {
	t.Parallel()
	m := ops.NewMetrics(ops.Build{Version: "1.2.3", Commit: "abc", Go: "go1.26"})
	m.JobsEnqueued("mail", "email", 3)
	m.EnqueueTook(3 * time.Millisecond)
	m.JobsClaimed("mail", 2)
	m.ClaimTook(time.Millisecond, 2)
	m.RunEnded("mail", "email", engine.OutcomeTimedOut, 20*time.Millisecond, 2*time.Second)
	m.JobDied("mail", "email", engine.ReasonPoison)
	m.LeasesRenewed(5, 1)
	m.LeaseReaped("mail")
	m.WriteRefused("complete")
	m.KeyRepeated("enqueue")
	m.JobReplayed("mail", "email")
	m.ListenerConnected(true)
	m.TaskDone("stats", errors.New("x"))
	m.OperatorAction("replay", "refused")
	m.Request("POST", "/api/v1/jobs", 201, 4*time.Millisecond)
	want(t, scrape(t, m),
		`jobengine_jobs_enqueued_total{queue="mail",type="email"} 3`, `jobengine_enqueue_duration_seconds_bucket{le="0.005"} 1`,
		`jobengine_jobs_claimed_total{queue="mail"} 2`, `jobengine_claim_duration_seconds_count 1`, `jobengine_claim_batch_size_bucket{le="2"} 1`,
		`jobengine_executions_total{outcome="timed_out",queue="mail",type="email"} 1`,
		`jobengine_execution_duration_seconds_bucket{outcome="timed_out",queue="mail",type="email",le="2.5"} 1`,
		`jobengine_execution_duration_seconds_bucket{outcome="timed_out",queue="mail",type="email",le="3600"} 1`,
		`jobengine_queue_wait_seconds_bucket{queue="mail",le="0.025"} 1`, `jobengine_dead_letters_total{queue="mail",reason="poison",type="email"} 1`,
		`jobengine_lease_renewals_total{result="lost"} 1`, `jobengine_lease_renewals_total{result="renewed"} 5`, `jobengine_leases_reaped_total{queue="mail"} 1`,
		`jobengine_stale_writes_refused_total{operation="complete"} 1`, `jobengine_idempotency_replays_total{scope="enqueue"} 1`,
		`jobengine_dlq_replays_total{result="replayed"} 1`, `jobengine_dlq_replays_total{result="refused"} 1`, `jobengine_listener_up 1`,
		`jobengine_maintenance_passes_total{result="failed",task="stats"} 1`, `jobengine_operator_actions_total{action="replay",result="refused"} 1`,
		`http_server_request_duration_seconds_bucket{method="POST",route="/api/v1/jobs",status="201",le="0.005"} 1`,
		`jobengine_build_info{commit="abc",go_version="go1.26",version="1.2.3"} 1`, `go_goroutines`, `process_start_time_seconds`)
	m.ListenerConnected(false)
	want(t, scrape(t, m), `jobengine_listener_up 0`)
}

// TestLabelsAreBounded: callers name queues and types, and each new name would be
// kept for good.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := ops.NewMetrics(ops.Build{})
	for i := range 5000 {
		m.JobsEnqueued(fmt.Sprint("q", i), "email", 1)
	}
	text := scrape(t, m)
	if n := strings.Count(text, "jobengine_jobs_enqueued_total{"); n > 301 {
		t.Errorf("%d series, want 301 at most", n)
	}
	want(t, text, `jobengine_jobs_enqueued_total{queue="_other",type="email"} 4700`)
}

// snapshots are told ones.
type snapshots struct {
	next *inspect.Snapshot
	err  error
}

func (s *snapshots) Snapshot(context.Context, time.Duration) (*inspect.Snapshot, error) {
	return s.next, s.err
}

// TestJ1GaugesDoNotFreeze is pitfall J1: a queue that is gone and a snapshot that
// fails leave no old numbers behind.
func TestJ1GaugesDoNotFreeze(t *testing.T) {
	t.Parallel()
	m := ops.NewMetrics(ops.Build{})
	s := &snapshots{next: &inspect.Snapshot{
		At: time.Now(), Queues: []inspect.Queue{{Name: "mail", Depth: inspect.Depth{Ready: 4}, OldestReady: 90 * time.Second}, {Name: "gone", Paused: true}},
		Dead:  []inspect.DeadCount{{Queue: "mail", Type: "email", N: 2}},
		Fleet: inspect.Fleet{ByStatus: map[inspect.WorkerStatus]int{inspect.WorkerLive: 2}, Slots: 20, Busy: 3, Stuck: 1},
		Tasks: []inspect.Task{{Name: "reaper", LastSuccessAt: time.Unix(1700000000, 0)}},
		Integrity: &inspect.Integrity{Verdict: "violated", Violated: []string{"one_place", "tokens_rise"}, Unchecked: []string{"trail_is_whole"},
			CompleteAt: time.Unix(1700000000, 0)},
	}}
	m.AddSnapshot(s, slog.New(slog.DiscardHandler))
	want(t, scrape(t, m), `jobengine_jobs{queue="mail",state="ready"} 4`, `jobengine_jobs{queue="gone",state="ready"} 0`, `jobengine_oldest_ready_age_seconds{queue="mail"} 90`,
		`jobengine_queue_paused{queue="gone"} 1`, `jobengine_dead_letter_jobs{queue="mail",type="email"} 2`, `jobengine_workers{state="live"} 2`, `jobengine_workers{state="lost"} 0`,
		`jobengine_worker_slots 20`, `jobengine_worker_slots_busy 3`, `jobengine_worker_slots_stuck 1`, `jobengine_reaper_last_success_timestamp_seconds 1.7e+09`, `jobengine_snapshot_errors_total 0`,
		`jobengine_integrity_violations 2`, `jobengine_integrity_unchecked 1`, `jobengine_integrity_last_success_timestamp_seconds 1.7e+09`)

	s.next = &inspect.Snapshot{At: time.Now(), Queues: s.next.Queues[:1]}
	if text := scrape(t, m); strings.Contains(text, `"gone"`) || strings.Contains(text, "dead_letter_jobs{") {
		t.Error("a queue that is gone is still told")
	}
	s.err = errors.New("no database")
	text := scrape(t, m)
	if strings.Contains(text, "jobengine_jobs{") || strings.Contains(text, "jobengine_worker_slots ") {
		t.Error("a failed snapshot leaves gauges behind")
	}
	want(t, text, `jobengine_listener_up`, `jobengine_snapshot_errors_total 1`)
}

func TestMetricsOfARunningServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(`{"type":"email","queue":"mail"}`)
	s.enqueue(`{"type":"email","queue":"mail"}`, "Idempotency-Key", "k")
	s.post(`{"type":"email","queue":"mail"}`, "Idempotency-Key", "k")
	s.do("GET", "/api/v1/jobs/0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10", "")
	s.do("GET", "/made/up", "")
	s.do("FROB", "/made/up", "")
	text := s.do("GET", "/metrics", "").body
	want(t, text, `jobengine_jobs_enqueued_total{queue="mail",type="email"} 2`, `jobengine_idempotency_replays_total{scope="enqueue"} 1`,
		`jobengine_jobs{queue="mail",state="ready"} 2`, `jobengine_db_pool_connections{state="max"} 10`,
		`http_server_request_duration_seconds_count{method="GET",route="/api/v1/jobs/:id",status="404"} 1`,
		`http_server_request_duration_seconds_count{method="GET",route="unmatched",status="404"} 1`,
		`http_server_request_duration_seconds_count{method="OTHER",route="unmatched",status="404"} 1`)
	if strings.Contains(text, "0193b6a2") || strings.Contains(text, "FROB") {
		t.Error("an id or a made-up method became a label")
	}
}

func TestTheWorkersListener(t *testing.T) {
	t.Parallel()
	m := ops.NewMetrics(ops.Build{Version: "1"})
	h := ops.WorkerHandler(ops.NewHealth(ops.Build{Version: "1"}, []ops.Check{ops.Draining(func() bool { return true })}, slog.New(slog.DiscardHandler)), m, "scrape")
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/healthz", "", 200}, {"GET", "/readyz", "", 503}, {"GET", "/metrics", "", 401}, {"GET", "/metrics", "Bearer other", 401},
		{"GET", "/metrics", "Bearer scrape", 200}, {"POST", "/metrics", "Bearer scrape", 405}, {"GET", "/jobs", "", 404},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		if c.token != "" {
			r.Header.Set("Authorization", c.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s %s with %q = %d, want %d", c.method, c.path, c.token, w.Code, c.status)
		}
	}
}
