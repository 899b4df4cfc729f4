package engine

import (
	"testing"
	"time"
)

// Who did not lead for long has not slept for long: it takes lost jobs back in its first pass as the leader.
func TestALeaderWasNotAsleepWhileAnotherLed(t *testing.T) {
	t.Parallel()
	w := newLife(t)
	for _, verb := range [][]string{{"enqueue", "j1"}, {"claim", "j1", "by=w1"}, {"advance", "1h"}} {
		if _, err := lifeVerbs[verb[0]](w, parseLife(verb[1:])); err != nil {
			t.Fatal(err)
		}
	}
	e, err := w.worker("next")
	if err != nil {
		t.Fatal(err)
	}
	e.cfg.HeartbeatInterval = 500 * time.Millisecond // the database's clock may be later than read by this much
	pass := func(left int) {
		t.Helper()
		if err := e.reapPass(w.ctx); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := w.pool.QueryRow(w.ctx, "SELECT count(*) FROM job_claims").Scan(&n); err != nil || n != left {
			t.Fatalf("%d leases are left (%v), want %d", n, err, left)
		}
	}
	lead := func() {
		t.Helper()
		if err := e.leader.campaign(); err != nil || !e.leader.leading() {
			t.Fatalf("it does not lead (%v)", err)
		}
	}
	lead()
	e.reapedAt = wallClock().Add(-time.Hour) // it reaped then
	e.leader.until.Store(0)
	pass(1)
	time.Sleep(2 * e.cfg.HeartbeatInterval)
	lead()
	pass(0)
}
