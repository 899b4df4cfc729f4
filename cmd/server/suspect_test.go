//go:build linux

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/proctest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/localpg"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// A job whose run was lost runs in a child of the server, which finds the server's own Postgres, takes no port and greets
// nobody.
func TestASuspectRunsInAChildOfTheServer(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}, 9), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(target.Close)
	dir := t.TempDir()
	s := start(t, proctest.Options{Dir: dir}, "REAPER_INTERVAL=100ms")
	s.Ready(s.url+"/readyz", readyLimit)
	url, err := localpg.Find(filepath.Join(dir, ".data"))
	if err != nil {
		t.Fatal(err)
	}
	pool := dbtest.OpenURL(t, url)
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	var id engine.ID
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { // before any worker can claim it
		done, err := client.EnqueueTx(t.Context(), tx, engine.RawArgs{Type: "webhook", Payload: []byte(`{"url":"` + target.URL + `"}`)}, engine.EnqueueOptions{})
		if err != nil {
			return err
		}
		id = done.ID
		_, err = tx.Exec(t.Context(), `WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id, attempt, crashes)
			INSERT INTO job_claims (worker_id, claimed_at, lease_expires_at, job_ids, attempts, crashes)
			SELECT 987654, now() - interval '1 min', now() - interval '1 s', ARRAY[job_id], ARRAY[attempt], ARRAY[crashes] FROM d`, id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	suspects := 0
	for _, pid := range s.Children() { // Postgres is one too
		if exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err == nil && filepath.Base(exe) == "server" {
			suspects++
		}
	}
	if suspects != 1 {
		t.Errorf("the server has %d children of its own kind, want 1", suspects)
	}
	close(answer)
	s.completes(t, id.String())
	s.Signal(os.Interrupt)
	if code := s.Ended(stopLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
