package engine_test

import (
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/network"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// I5: a network that swallows packets leaves every connection half open. The listener, which only waits, notices within
// 30 s, everybody else by its deadlines; claiming is back within 10 s of the repair.
func TestI5HalfOpenConnectionsAreNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for 20 s of silence")
	}
	address := dbtest.NewURL(t)
	way := network.New(t, address)
	watch := dbtest.OpenURL(t, address)
	pool, err := db.Open(t.Context(), db.PoolConfig{URL: way.URL(address), StatementTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := hasty(handlers(nil))
	c.LeaseDuration, c.HeartbeatInterval, c.DBTimeout = 6*time.Second, time.Second, 2*time.Second
	e := start(t, pool, c)
	eventually(t, "it listens", func() bool { return e.Status().Listening })
	way.Swallow()
	silent := time.Now()
	within(t, 30*time.Second, "it says that it does not listen", func() bool { return !e.Status().Listening })
	t.Logf("noticed after %v", time.Since(silent).Round(time.Millisecond))
	way.Mend()
	mended := time.Now()
	id := one[engine.ID](t, watch, "SELECT enqueue_job(type => 'plain')")
	within(t, 10*time.Second, "a job completes after the repair", func() bool { return stateOf(t, watch, id) == "completed" })
	t.Logf("claiming was back after %v", time.Since(mended).Round(time.Millisecond))
	within(t, 10*time.Second, "it listens again", func() bool { return e.Status().Listening })
	healthy(t, watch, e)
}
