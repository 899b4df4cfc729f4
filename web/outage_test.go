package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/network"
)

// TestALostAnswerIs503AndSafeToRepeat loses the answer to a commit: the caller is told
// that the job may exist and what to do, and under a key learns nothing of it at all.
func TestALostAnswerIs503AndSafeToRepeat(t *testing.T) {
	t.Parallel()
	address := dbtest.NewURL(t)
	way := network.New(t, address)
	s := newSiteOn(t, dbtest.OpenURL(t, way.URL(address)))
	way.Cut(network.AfterServer, "INSERT INTO jobs")
	got := s.post(`{"type":"email"}`)
	got.refused("enqueue without a key", http.StatusServiceUnavailable, "unavailable", "")
	if got.header.Get("Retry-After") == "" || !strings.Contains(got.text("detail"), "may or may not") || !strings.Contains(got.text("detail"), "Idempotency-Key") {
		t.Errorf("answer %v %s: it does not say that the outcome is unknown, and how to repeat", got.header, got.body)
	}
	for moment, key := range map[network.Moment]string{network.AfterServer: "k-1", network.BeforeServer: "k-2"} {
		way.Cut(moment, "enqueue_job_keyed")
		headers := []string{"Authorization", "Bearer " + apiToken, "Content-Type", "application/json", "Idempotency-Key", key}
		first := s.send("POST", "/api/v1/jobs", strings.NewReader(`{"type":"email","queue":"keyed"}`), headers...)
		again := s.send("POST", "/api/v1/jobs", strings.NewReader(`{"type":"email","queue":"keyed"}`), headers...)
		if first.status != http.StatusCreated || again.status/100 != 2 || again.text("id") != first.text("id") {
			t.Errorf("under a key: %d %s, then %d %s; want the same job twice", first.status, first.body, again.status, again.body)
		}
	}
	if n := s.count(`SELECT count(*) FROM jobs WHERE queue = 'keyed'`); n != 2 {
		t.Errorf("%d jobs under 2 keys", n)
	}
}
