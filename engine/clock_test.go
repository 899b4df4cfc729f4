package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/internal/dbsqlc"
)

func TestTheClockIsHeldAgainstOnesOwn(t *testing.T) {
	t.Parallel()
	const slack = 10 * time.Second
	here, there := time.Now(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) // no two clocks agree
	at := func(now, asked, answered time.Duration) reading {
		return reading{there.Add(now), here.Add(asked), here.Add(answered)}
	}
	for name, c := range map[string]struct {
		second reading
		moved  time.Duration
	}{
		"as it should be":           {at(5*time.Second, 5*time.Second, 5*time.Second), 0},
		"a slow answer":             {at(35*time.Second, 5*time.Second, 35*time.Second), 0},
		"the first answer was slow": {at(time.Second, 5*time.Second, 5*time.Second), 0},
		"a step of the slack":       {at(15*time.Second, 5*time.Second, 5*time.Second), 0},
		"an hour on":                {at(time.Hour+5*time.Second, 5*time.Second, 5*time.Second), time.Hour},
		"an hour back":              {at(5*time.Second-time.Hour, 5*time.Second, 5*time.Second), -time.Hour},
		"back after a slow answer":  {at(-time.Minute, 5*time.Second, 35*time.Second), -65 * time.Second},
	} {
		var w clock
		if moved, first := w.saw(at(0, 0, 0), slack); moved != 0 || !first {
			t.Errorf("%s: the first reading = %v, %v", name, moved, first)
		}
		if moved, first := w.saw(c.second, slack); moved != c.moved || first {
			t.Errorf("%s: moved %v, first %v; want %v", name, moved, first, c.moved)
		}
	}
}

// bare is an engine whose loops do not run.
func bare(t *testing.T) (*Engine, *pgxpool.Pool) {
	t.Helper()
	pool := dbtest.New(t)
	ws := NewWorkers()
	RegisterType(ws, "life", WorkerFunc[RawArgs](nil), TypeOptions{})
	e, err := New(Config{Pool: pool, Workers: ws, LeaseDuration: 600 * time.Millisecond, HeartbeatInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.openPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.closePools)
	if err := e.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, pool
}

// led is such an engine on a database where another leads, and a job in line.
func led(t *testing.T) (*Engine, *pgxpool.Pool, ID) {
	t.Helper()
	e, pool := bare(t)
	done, err := e.client.Enqueue(t.Context(), RawArgs{Type: "life"}, EnqueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.q.Lead(t.Context(), e.beat, leaderRole, e.workerID+1000, 50); err != nil {
		t.Fatal(err)
	}
	return e, pool, done.ID
}

// What a leader looked up before it froze may be long ago. Its statements ask whether it leads still.
func TestAFormerLeadersStatementsDoNothing(t *testing.T) {
	t.Parallel()
	e, pool, id := led(t)
	if held, err := e.q.ParkJobs(t.Context(), e.hot, []string{DefaultQueue}, []int16{1}, []string{"life"}, 10, e.workerID); err != nil || len(held) > 0 {
		t.Errorf("it held %d jobs for a type that nobody ran a while ago: %v", len(held), err)
	}
	if _, err := pool.Exec(t.Context(), `WITH r AS (DELETE FROM job_ready RETURNING *) INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
		SELECT 1, now() - interval '1 min', array_agg(job_id), array_agg(attempt), array_agg(crashes) FROM r`); err != nil {
		t.Fatal(err)
	}
	reap := func(leader int64, notAfter *time.Time) int {
		rows, err := e.q.ReapClaims(t.Context(), e.hot, 0, notAfter, leader, 10, lostRunLimit, false)
		if err != nil {
			t.Fatal(err)
		}
		return len(rows)
	}
	now := time.Now()
	past := now.Add(-time.Minute)
	if n := reap(e.workerID, nil); n != 0 {
		t.Errorf("the former leader reaped %d runs", n)
	}
	if n := reap(e.workerID+1000, &past); n != 0 {
		t.Errorf("%d runs were reaped by a clock that was moved forward", n)
	}
	future := now.Add(time.Minute)
	if n := reap(e.workerID+1000, &future); n != 1 {
		t.Errorf("the leader reaped %d runs of %s, want 1", n, id)
	}
}

// A replay takes expires_at away. Whoever listed the job as expired before may not bury it again.
func TestAReplayedJobIsNotExpiredByAnOldList(t *testing.T) {
	t.Parallel()
	e, pool, id := led(t)
	expire := func() int {
		dead, err := e.q.ExpireWaiting(t.Context(), e.hot, false, []uuid.UUID{id})
		if err != nil {
			t.Fatal(err)
		}
		return len(dead)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE jobs SET expires_at = now() - interval '1 s'"); err != nil {
		t.Fatal(err)
	}
	if n := expire(); n != 1 {
		t.Fatalf("%d jobs expired, want 1", n)
	}
	if err := e.client.Replay(t.Context(), id, Actor{Name: "op"}); err != nil {
		t.Fatal(err)
	}
	if n := expire(); n != 0 {
		t.Errorf("the replayed job expired again")
	}
}

// A leader frozen inside a reap holds what it took for its term, not until it wakes.
func TestALeaderFrozenInsideATransactionLosesIt(t *testing.T) {
	t.Parallel()
	e, _ := bare(t)
	tx, err := e.hot.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.q.AddStats(t.Context(), tx, dbsqlc.AddStatsParams{Queue: "q", Type: "t", Outcome: 1, N: 1}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(e.leader.term() + 500*time.Millisecond)
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("a transaction that was left alone for longer than the leader's term could commit")
	}
}

// Written before the clock was set back, an end lies as far ahead as the jump was.
func TestEndsFromBeforeTheClockWasSetBackAreShortened(t *testing.T) {
	t.Parallel()
	e, pool, _ := led(t)
	const insert = `INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
		VALUES ($1, now() + $2::interval, ARRAY[uuid_v7()], '{0}', '{0}')`
	for _, c := range []struct {
		worker int64
		end    string
	}{{e.workerID, "1 s"}, {e.workerID, "1 h"}, {987654, "1 h"}} {
		if _, err := pool.Exec(t.Context(), insert, c.worker, c.end); err != nil {
			t.Fatal(err)
		}
	}
	n, err := e.q.ShortenLeases(t.Context(), e.hot, 30)
	if err != nil || n != 2 {
		t.Fatalf("%d leases shortened, %v; want the two that end in an hour", n, err)
	}
	var far int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM job_claims WHERE lease_expires_at > now() + interval '31 s'").Scan(&far); err != nil || far != 0 {
		t.Errorf("%d leases end later than one lease from now: %v", far, err)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE leaders SET expires_at = now() + interval '1 h'"); err != nil {
		t.Fatal(err)
	}
	if got, err := e.q.Lead(t.Context(), e.beat, leaderRole, e.workerID, 5); err != nil || got.Term < 2 {
		t.Errorf("leadership that ends in an hour is not taken over: %+v %v", got, err)
	}
}
