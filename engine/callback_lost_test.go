package engine

import "testing"

// A claim whose answer was lost is given back. What was asked to stop meanwhile ends there, and calls back.
func TestAStoppedJobOfALostClaimCallsBack(t *testing.T) {
	t.Parallel()
	w := newLife(t)
	w.spoiled = true // the stop is in no trail
	e, err := w.worker("w1")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := e.client.Enqueue(w.ctx, RawArgs{Type: "life"}, EnqueueOptions{CallbackURL: "https://example.com/"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.pool.Exec(w.ctx, `WITH d AS (DELETE FROM job_ready RETURNING job_id)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes, stops)
		SELECT $1, now() + interval '1 h', array_agg(job_id), '{0,0}', '{0,0}', ARRAY[(array_agg(job_id))[1]] FROM d`, e.workerID); err != nil {
		t.Fatal(err)
	}
	if err := e.releaseUnknown(w.ctx); err != nil {
		t.Fatal(err)
	}
	var made, owed int
	if err := w.pool.QueryRow(w.ctx, `SELECT (SELECT count(*) FROM jobs AS c JOIN job_states AS s ON s.id = c.callback_of WHERE s.state = 'cancelled'),
		(SELECT count(*) FROM owed_callbacks AS o JOIN job_states AS s ON s.id = o.job_id WHERE s.state = 'pending')`).Scan(&made, &owed); err != nil {
		t.Fatal(err)
	}
	if made != 1 || owed != 1 {
		t.Errorf("%d callbacks are made, %d owed, want 1 of each", made, owed)
	}
}
