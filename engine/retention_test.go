package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestRetentionGoesOnWhereItStopped: the walk over jobs keeps its place in the database, so that a new leader goes on there;
// what it passed over, since it had not ended, is seen again with the next day's walk.
func TestRetentionGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	w := newLife(t)
	must := func(out string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	verb := func(name string, names ...string) { t.Helper(); must(lifeVerbs[name](w, parseLife(names))) }
	cursor := func() ID {
		t.Helper()
		var id *ID
		if err := w.pool.QueryRow(w.ctx, "SELECT (SELECT resume_after FROM maintenance_tasks WHERE task = 'retention')").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if id == nil {
			return uuid.Nil
		}
		return *id
	}
	// An id carries its instant, which retention reads: these were made ten days ago.
	old := func(name string) {
		t.Helper()
		verb("enqueue", name)
		id, err := uuid.NewV7()
		if err != nil {
			t.Fatal(err)
		}
		ms := time.Now().Add(-10 * 24 * time.Hour).UnixMilli()
		for i := range 6 {
			id[i] = byte(ms >> (8 * (5 - i)))
		}
		for _, sql := range []string{"UPDATE jobs SET id = $2 WHERE id = $1", "UPDATE job_ready SET job_id = $2 WHERE job_id = $1"} {
			if _, err := w.pool.Exec(w.ctx, sql, w.ids[name], id); err != nil {
				t.Fatal(err)
			}
		}
		w.ids[name], w.names[id] = id, name
	}
	exists := func(name string) (there bool) {
		t.Helper()
		if err := w.pool.QueryRow(w.ctx, "SELECT EXISTS (SELECT FROM jobs WHERE id = $1)", w.ids[name]).Scan(&there); err != nil {
			t.Fatal(err)
		}
		return there
	}
	for i := range 3 {
		old(fmt.Sprint("j", i))
	}
	verb("claim", "j0", "j1", "j2", "by=w1")
	verb("complete", "j0", "token=1")
	verb("complete", "j1", "token=1")
	verb("advance", "169h")
	verb("heartbeat", "by=w1")
	verb("fail", "j2", "token=1", "after=1h")
	verb("prune")
	if exists("j0") || exists("j1") || !exists("j2") {
		t.Errorf("after the first walk: j0 %v, j1 %v, j2 %v", exists("j0"), exists("j1"), exists("j2"))
	}
	if at := cursor(); at != w.ids["j2"] {
		t.Errorf("the walk stands at %s, want the last job %s", at, w.ids["j2"])
	}
	verb("cancel", "j2")
	verb("advance", "169h")
	e, err := w.worker("leader")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.pruneOnce(w.ctx); err != nil { // the same day
		t.Fatal(err)
	}
	if !exists("j2") {
		t.Error("a walk that goes on went back")
	}
	verb("prune") // the next day
	if exists("j2") {
		t.Error("the next day's walk did not come back for what had not ended")
	}
}

// TestTheTrailLosesItsOldestActsOnly: what remains is a chain from where the head says, and a job whose act is gone by
// right breaks no rule (the rules are asked when the test ends).
func TestTheTrailLosesItsOldestActsOnly(t *testing.T) {
	t.Parallel()
	w := newLife(t)
	for _, verb := range [][]string{{"enqueue", "j1", "j2"}, {"cancel", "j1"}} {
		if _, err := lifeVerbs[verb[0]](w, parseLife(verb[1:])); err != nil {
			t.Fatal(err)
		}
	}
	e, err := w.worker("leader")
	if err != nil {
		t.Fatal(err)
	}
	acts := func(n int) {
		t.Helper()
		if _, err := w.pool.Exec(w.ctx, `SELECT record_operator_action('ann', 'api', 'test', 'queue', 'mail', NULL, NULL, NULL, 1, NULL, NULL)
			FROM generate_series(1, $1)`, n); err != nil {
			t.Fatal(err)
		}
	}
	state := func() (left int, first, removed, last int64) {
		t.Helper()
		if err := w.pool.QueryRow(w.ctx, `SELECT (SELECT count(*) FROM operator_actions), (SELECT min(id) FROM operator_actions), removed_id, id
			FROM operator_action_head`).Scan(&left, &first, &removed, &last); err != nil {
			t.Fatal(err)
		}
		return left, first, removed, last
	}
	acts(2 * auditBatch)
	before, _, _, _ := state()
	e.cfg.Retention.Audit = time.Hour
	if err := e.pruneRest(); err != nil {
		t.Fatal(err)
	}
	if left, _, removed, _ := state(); left != before || removed != 0 {
		t.Fatalf("young acts: %d of %d left, %d removed", left, before, removed)
	}
	time.Sleep(300 * time.Millisecond)
	acts(3)
	e.cfg.Retention.Audit = 300 * time.Millisecond
	for range 3 { // who does not lead takes one step in a pass
		if err := e.pruneRest(); err != nil {
			t.Fatal(err)
		}
	}
	left, first, removed, last := state()
	if left != 3 || first != removed+1 || last != removed+3 {
		t.Errorf("%d acts left from %d, %d removed, the last is %d", left, first, removed, last)
	}
	if _, err := lifeVerbs["cancel"](w, parseLife([]string{"j2"})); err != nil {
		t.Errorf("an act after the removal: %v", err)
	}
}
