//go:build linux

package main

import (
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/proctest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// lose makes of a waiting job one whose run was lost with its process.
func lose(t *testing.T, pool *pgxpool.Pool, id engine.ID) {
	t.Helper()
	tag, err := pool.Exec(t.Context(), `WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id, attempt, crashes)
		INSERT INTO job_claims (worker_id, claimed_at, lease_expires_at, job_ids, attempts, crashes)
		SELECT 987654, now() - interval '1 min', now() - interval '1 s', ARRAY[job_id], ARRAY[attempt], ARRAY[crashes] FROM d`, id)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%d leases, %v", tag.RowsAffected(), err)
	}
}

// A job whose run was lost runs in a child of the worker. The child takes no port, and its death harms nobody.
func TestASuspectRunsInAChildOfTheWorker(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	read := inspect.New(pool)
	asked, answer := make(chan struct{}, 9), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(target.Close)
	id := enqueue(t, newClient(t, pool), "webhook", `{"url":"`+target.URL+`"}`)
	lose(t, pool, id)
	w := start(t, "DATABASE_URL="+dbtest.URL(t, pool), "WORKER_LEASE_DURATION=3s", "WORKER_HEARTBEAT_INTERVAL=500ms", "REAPER_INTERVAL=100ms")
	<-asked
	children := w.Children()
	if len(children) != 1 {
		t.Fatalf("the worker has the children %v, want one", children)
	}
	if status, _ := get(t, w.url+"/readyz"); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
	if err := syscall.Kill(children[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-asked // in another child
	close(answer)
	becomes(t, read, id, engine.StateCompleted)
	var got string
	if err := pool.QueryRow(t.Context(), "SELECT string_agg(outcome::text, ' ' ORDER BY fencing_token) FROM job_executions WHERE job_id = $1", id).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "6 7 1"; got != want {
		t.Errorf("its runs: %s, want %s: lease_expired, crashed, completed", got, want)
	}
	left := w.Children()
	w.Signal(syscall.SIGTERM)
	if code := w.Ended(stopLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, pid := range left {
		proctest.Gone(t, pid, stopLimit)
	}
}
