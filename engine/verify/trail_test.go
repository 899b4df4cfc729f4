package verify_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

const disarm = "ALTER TABLE operator_actions DISABLE TRIGGER USER; "

// forge appends an act as one would who knows how hashes are made.
const forge = `INSERT INTO operator_actions SELECT 6, now(), 'eve', 'cli', 'cancel', 'job', 'x', NULL, NULL, NULL, 1, NULL, NULL, a.hash,
	operator_action_hash(a.hash, 6, now(), 'eve', 'cli', 'cancel', 'job', 'x', NULL, NULL, NULL, 1, NULL, NULL) FROM operator_actions AS a WHERE a.id = 5`

// rehash makes every hash anew from act 3 on, and the head: a chain that is whole.
const rehash = `DO $$ DECLARE a operator_actions; p bytea; BEGIN
	SELECT hash INTO p FROM operator_actions WHERE id = 2;
	FOR a IN SELECT * FROM operator_actions WHERE id > 2 ORDER BY id LOOP
		UPDATE operator_actions AS o SET previous_hash = p, hash = operator_action_hash(p, o.id, o.at, o.actor, o.source, o.action, o.target_kind, o.target,
			o.reason, o.before, o.after, o.affected, o.request_id, o.address) WHERE o.id = a.id RETURNING o.hash INTO p;
	END LOOP;
	UPDATE operator_action_head SET hash = p; END $$`

// newTrail is a trail of n acts.
func newTrail(t *testing.T, n int) *pgxpool.Pool {
	t.Helper()
	t.Parallel()
	pool := dbtest.New(t)
	for i := range n {
		if _, err := pool.Exec(t.Context(), `SELECT record_operator_action('ann', 'api', 'cancel', 'job', $1, 'why', '{"a": 1}', NULL, 1, NULL, '::1')`, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

func TestTheFirstBrokenActIsNamed(t *testing.T) {
	for name, c := range map[string]struct{ sql, subject, detail string }{
		"changed":              {disarm + `UPDATE operator_actions SET actor = 'eve' WHERE id IN (3, 5)`, "act 3", "its content is not what was hashed"},
		"a reason added":       {disarm + `UPDATE operator_actions SET request_id = '' WHERE id = 5`, "act 5", "its content is not what was hashed"},
		"changed and hashed":   {disarm + `UPDATE operator_actions AS o SET actor = 'eve', hash = operator_action_hash(o.previous_hash, o.id, o.at, 'eve', o.source, o.action, o.target_kind, o.target, o.reason, o.before, o.after, o.affected, o.request_id, o.address) WHERE id = 3`, "act 4", "it was not made after act 3 as that stands now"},
		"the last one, hashed": {disarm + `UPDATE operator_actions AS o SET actor = 'eve', hash = operator_action_hash(o.previous_hash, o.id, o.at, 'eve', o.source, o.action, o.target_kind, o.target, o.reason, o.before, o.after, o.affected, o.request_id, o.address) WHERE id = 5`, "act 5", "it is the last, and not the one that the head names"},
		"the first deleted":    {`DELETE FROM operator_actions WHERE id = 1`, "act 2", "act 1 before it is missing"},
		"one deleted":          {`DELETE FROM operator_actions WHERE id = 3`, "act 4", "act 3 before it is missing"},
		"some deleted":         {`DELETE FROM operator_actions WHERE id IN (2, 3)`, "act 4", "acts 2 to 3 before it are missing"},
		"the last deleted":     {`DELETE FROM operator_actions WHERE id = 5`, "act 5", "the trail ends before act 5, which its head names"},
		"all deleted":          {`DELETE FROM operator_actions`, "act 1", "the trail ends before act 5, which its head names"},
		"a forged tail":        {forge, "act 6", "the trail ends with act 5 by its head: this one was added beside it"},
		"the head turned back": {`UPDATE operator_action_head SET id = 4, hash = (SELECT hash FROM operator_actions WHERE id = 4)`, "act 5", "the trail ends with act 4 by its head: this one was added beside it"},
		"the head taken out":   {`DELETE FROM operator_action_head`, "act 0", "the trail has no head"},
		"the beginning moved":  {`DELETE FROM operator_actions WHERE id = 1; UPDATE operator_action_head SET removed_id = 1`, "act 2", "it was not made after act 1 as that stands now"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newTrail(t, 5)
			if _, err := pool.Exec(t.Context(), c.sql); err != nil {
				t.Fatal(err)
			}
			r, err := verify.Trail(t.Context(), pool, verify.Options{})
			if err != nil || r.Result.Verdict != verify.Violated {
				t.Fatalf("verdict %s, error %v, want a violation", r.Result.Verdict, err)
			}
			if got := r.Result.Offenders[0]; got.Subject != c.subject || got.Detail != c.detail {
				t.Errorf("first broken: %s %q, want %s %q", got.Subject, got.Detail, c.subject, c.detail)
			}
			full, err := verify.Run(t.Context(), pool, verify.Options{})
			if err != nil || full.Verdict() != verify.Violated {
				t.Errorf("verify: verdict %s, error %v: the two differ", full.Verdict(), err)
			}
		})
	}
}

func TestAWholeTrail(t *testing.T) {
	pool := newTrail(t, 5)
	r, err := verify.Trail(t.Context(), pool, verify.Options{})
	if err != nil || r.Result.Verdict != verify.OK || r.Acts != 5 || r.Last.ID != 5 || len(r.Last.Hash) != 32 {
		t.Fatalf("%+v, %v", r, err)
	}
	// What retention removes from the beginning, and says so, is no breach.
	if _, err := pool.Exec(t.Context(), `UPDATE operator_action_head SET removed_id = 2, removed_hash = (SELECT hash FROM operator_actions WHERE id = 2);
		DELETE FROM operator_actions WHERE id <= 2`); err != nil {
		t.Fatal(err)
	}
	if r, err = verify.Trail(t.Context(), pool, verify.Options{}, r.Last); err != nil || r.Result.Verdict != verify.OK || r.Acts != 3 {
		t.Errorf("after retention: %+v, %v", r.Result, err)
	}
	if r, err = verify.Trail(t.Context(), pool, verify.Options{}, verify.Anchor{ID: 2}); err == nil || r.Result.Verdict != verify.Unchecked {
		t.Errorf("an anchor that retention has removed: %+v, %v, want unchecked", r.Result, err)
	}
	empty := dbtest.New(t)
	if r, err = verify.Trail(t.Context(), empty, verify.Options{}); err != nil || r.Result.Verdict != verify.OK || r.Acts != 0 || r.Last.ID != 0 {
		t.Errorf("no acts: %+v, %v", r, err)
	}
}

// Who may write everything can make a chain that is whole. An anchor tells.
func TestATrailThatWasMadeAnewIsFoundByItsAnchor(t *testing.T) {
	pool := newTrail(t, 5)
	kept, err := verify.Trail(t.Context(), pool, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), disarm+`UPDATE operator_actions SET actor = 'eve' WHERE id = 3; `+rehash); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Trail(t.Context(), pool, verify.Options{}); err != nil || r.Result.Verdict != verify.OK {
		t.Fatalf("without an anchor: %+v, %v, want a chain that is whole", r.Result, err)
	}
	r, err := verify.Trail(t.Context(), pool, verify.Options{}, kept.Last)
	if err != nil || r.Result.Verdict != verify.Violated || r.Result.Offenders[0].Subject != "act 5" {
		t.Errorf("with its anchor: %+v, %v", r.Result, err)
	}
	r, err = verify.Trail(t.Context(), pool, verify.Options{}, verify.Anchor{ID: 6, Hash: kept.Last.Hash})
	if err != nil || r.Result.Verdict != verify.Violated || r.Result.Offenders[0].Subject != "act 6" {
		t.Errorf("with an anchor beyond its end: %+v, %v", r.Result, err)
	}
}

func TestATrailThatCannotBeReadIsUnchecked(t *testing.T) {
	pool := newTrail(t, 1)
	if _, err := pool.Exec(t.Context(), `ALTER TABLE operator_actions RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Trail(t.Context(), pool, verify.Options{}); err == nil || r.Result.Verdict != verify.Unchecked || r.Result.Problem == "" {
		t.Errorf("without its table: %+v, %v", r.Result, err)
	}
	pool.Close()
	if r, err := verify.Trail(t.Context(), pool, verify.Options{}); err == nil || r.Result.Verdict != verify.Unchecked {
		t.Errorf("without a database: %+v, %v", r.Result, err)
	}
}
