package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// act of the state machine: a line of commands as in testdata/life, on j1 and its current token.
type stateAct struct{ name, commands string }

// wayTo puts j1 into a state by the product's own statements.
var wayTo = map[State]string{
	StatePending:    "enqueue j1 expires=1h",
	StateLeased:     "enqueue j1 expires=1h; claim j1 by=w1",
	StateFailed:     "enqueue j1 expires=1h; claim j1 by=w1; fail j1 after=10m",
	StateCompleted:  "enqueue j1 expires=1h; claim j1 by=w1; complete j1",
	StateDeadLetter: "enqueue j1 expires=1h; claim j1 by=w1; fail j1 permanent=yes",
	StateCancelled:  "enqueue j1 expires=1h; cancel j1",
}

// stateActs are all that is ever done to a job. Those of a worker carry the token it last had.
var stateActs = []stateAct{
	{"claim", "claim by=w2"}, {"complete", "complete j1"}, {"fail", "fail j1 after=10m"}, {"fail for good", "fail j1 permanent=yes"},
	{"snooze", "snooze j1 for=10m"}, {"hand back", "handback j1"}, {"crash", "crash j1"}, {"reap", "advance 31s; reap"},
	{"reap in time", "reap"}, {"promote", "promote"}, {"promote when due", "advance 11m; promote"}, {"expire", "advance 61m; expire"},
	{"expire in time", "expire"}, {"cancel", "cancel j1"}, {"run now", "run-now j1"}, {"edit", "edit j1 in=0s"}, {"edit to what it is", "edit j1 priority=1 max=5"},
	{"replay", "replay j1"}, {"discard", "discard j1"}, {"restore", "restore j1"},
}

// unreached are the pairs of the table that no statement makes yet: nothing waits for other jobs so far.
var unreached = map[State][]State{
	StateBlocked: {StatePending, StateCancelled, StateDeadLetter},
	StateLeased:  {StateCancelled}, // the stop of a running job
}

// TestEveryActFollowsTheTableOfStates puts a job into each state and tries everything on it: what comes of it must be in
// the table, everything in the table must come of something, and what is refused must leave no trace.
func TestEveryActFollowsTheTableOfStates(t *testing.T) {
	t.Parallel()
	reached := map[State]map[State]bool{}
	for from, way := range wayTo {
		t.Run(string(from), func(t *testing.T) {
			w := newLife(t)
			for _, act := range stateActs {
				w.forget(t)
				w.do(t, way, true)
				if s := w.stateOf(t); s != from {
					t.Fatalf("%q leads to %s, want %s", way, s, from)
				}
				before := w.rows(t)
				w.do(t, act.commands, false)
				to, after := w.stateOf(t), w.rows(t)
				if to == from {
					marked := from == StateDeadLetter && act.name == "discard"
					if diff := cmp.Diff(before, after); diff != "" && !marked {
						t.Errorf("%s of a job that is %s leaves it so, and changed:\n%s", act.name, from, diff)
					}
					continue
				}
				if !from.CanBecome(to) {
					t.Errorf("%s makes a job that is %s %s, against the table", act.name, from, to)
				}
				if reached[from] == nil {
					reached[from] = map[State]bool{}
				}
				reached[from][to] = true
			}
		})
	}
	for from, tos := range transitions {
		for _, to := range tos {
			if slices.Contains(unreached[from], to) == reached[from][to] {
				t.Errorf("%s to %s: in the table, reached by an act: %v", from, to, reached[from][to])
			}
		}
	}
}

// forget empties the tables; workers stay.
func (w *life) forget(t *testing.T) {
	t.Helper()
	for _, e := range w.workers {
		e.leases.remove(e.leases.tokens())
	}
	w.runs = nil
	// Unseen by triggers, and quicker than TRUNCATE. The trail's head too, or the trail would seem cut off.
	if _, err := w.pool.Exec(w.ctx, `SET session_replication_role = replica; DELETE FROM jobs; DELETE FROM job_ready; DELETE FROM job_scheduled;
		DELETE FROM job_held; DELETE FROM job_claims; DELETE FROM job_executions; DELETE FROM dead_letter_jobs; DELETE FROM operator_actions;
		RESET session_replication_role; UPDATE operator_action_head SET id = 0, hash = '\x'`); err != nil {
		t.Fatal(err)
	}
}

// do plays commands; must tells whether a refusal fails the test.
func (w *life) do(t *testing.T, commands string, must bool) {
	t.Helper()
	for line := range strings.SplitSeq(commands, "; ") {
		words := strings.Fields(line)
		a := parseLife(words[1:])
		if _, given := a.values["token"]; !given {
			a.values["token"] = fmt.Sprint(w.lastTokenOf("j1"))
		}
		if len(w.runs) == 0 && slices.Contains([]string{"complete", "fail", "snooze", "handback", "crash"}, words[0]) {
			continue // no worker ever had it
		}
		if _, err := lifeVerbs[words[0]](w, a); err != nil && must {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// lastTokenOf is the token under which a worker last had the job.
func (w *life) lastTokenOf(name string) (token int64) {
	for _, r := range w.runs {
		if r.row.ID == w.ids[name] {
			token = max(token, r.row.FencingToken)
		}
	}
	return token
}

func (w *life) stateOf(t *testing.T) State {
	t.Helper()
	var s string
	if err := w.pool.QueryRow(w.ctx, "SELECT coalesce(state, 'nowhere') FROM job_states WHERE id = $1", w.ids["j1"]).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return State(s)
}

// rows are all that is stored of jobs, but for instants, which advance moves.
func (w *life) rows(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for table, columns := range instants {
		if table == "workers" || table == "leaders" {
			continue
		}
		var text string
		if err := w.pool.QueryRow(w.ctx, "SELECT coalesce(jsonb_agg(to_jsonb(x) - $1::text[])::text, '') FROM "+table+" AS x", columns).Scan(&text); err != nil {
			t.Fatal(err)
		}
		out[table] = text
	}
	var acts string
	if err := w.pool.QueryRow(w.ctx, "SELECT count(*)::text FROM operator_actions").Scan(&acts); err != nil {
		t.Fatal(err)
	}
	out["operator_actions"] = acts
	return out
}

// TestB3LeasedWithoutExpiryTokenOrOwnerIsImpossible tries to write what must not exist, as a hand with full rights would.
func TestB3LeasedWithoutExpiryTokenOrOwnerIsImpossible(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	id := uuid.Must(uuid.NewV7())
	const claim = "INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes) VALUES "
	if _, err := pool.Exec(t.Context(), claim+"(1, now(), ARRAY[$1::uuid], '{0}', '{0}')", id); err != nil {
		t.Fatal(err)
	}
	const ready = "INSERT INTO job_ready (job_id, queue, type, priority) VALUES ($1::uuid, 'q', 't', 1)"
	if _, err := pool.Exec(t.Context(), ready, id); err != nil {
		t.Fatal(err)
	}
	const execution = "INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) VALUES ($1::uuid, 1, 1, 1)"
	if _, err := pool.Exec(t.Context(), execution, id); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ sql, state string }{
		"no owner":                    {claim + "(NULL, now(), ARRAY[$1::uuid], '{0}', '{0}')", "23502"},
		"no expiry":                   {claim + "(1, NULL, ARRAY[$1::uuid], '{0}', '{0}')", "23502"},
		"owner taken away":            {"UPDATE job_claims SET worker_id = NULL WHERE $1 = ANY (job_ids)", "23502"},
		"expiry taken away":           {"UPDATE job_claims SET lease_expires_at = NULL WHERE $1 = ANY (job_ids)", "23502"},
		"token taken away":            {"UPDATE job_claims SET id = NULL WHERE $1 = ANY (job_ids)", "428C9"},
		"token of one's own choice":   {"INSERT INTO job_claims (id, worker_id, lease_expires_at, job_ids, attempts, crashes) VALUES (7, 1, now(), ARRAY[$1::uuid], '{0}', '{0}')", "428C9"},
		"no job":                      {claim + "(1, now(), '{}', '{}', '{}') -- $1", "23514"},
		"no attempts":                 {claim + "(1, now(), ARRAY[$1::uuid], '{}', '{0}')", "23514"},
		"no crashes":                  {claim + "(1, now(), ARRAY[$1::uuid], '{0}', '{0,0}')", "23514"},
		"twice in line":               {ready, "23505"},
		"priority 6":                  {"INSERT INTO job_ready (job_id, queue, type, priority) VALUES (uuid_v7(), 'q', 't', 6) -- $1", "23514"},
		"attempt -1":                  {"UPDATE job_ready SET attempt = -1 WHERE job_id = $1", "23514"},
		"crashes -1":                  {"UPDATE job_ready SET crashes = -1 WHERE job_id = $1", "23514"},
		"closed twice under a token":  {execution, "23505"},
		"an outcome nobody knows":     {"INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) VALUES ($1, 2, 1, 10)", "23514"},
		"dead without a reason":       {"INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason) VALUES ($1, 1, 1, 'q', 't', 'tired')", "23514"},
		"a job by a bare insert":      {"INSERT INTO jobs (id, type) VALUES ($1, 't')", "42501"},
		"an audit row that changes":   {"UPDATE operator_actions SET actor = $1::uuid::text", "42501"},
		"a claim of 1,001 jobs":       {claim + "(1, now(), array_fill($1::uuid, ARRAY[1001]), array_fill(0::smallint, ARRAY[1001]), array_fill(0::smallint, ARRAY[1001]))", "23514"},
		"a payload that is no object": {"INSERT INTO jobs (id, type, version, payload) VALUES ($1, 't', 1, '[]')", "23514"},
	} {
		sql, args := c.sql, []any{id}
		if before, _, comment := strings.Cut(sql, " -- $1"); comment {
			sql, args = before, nil
		}
		if _, err := pool.Exec(t.Context(), sql, args...); sqlState(err) != c.state {
			t.Errorf("%s: %v, want SQLSTATE %s", name, err, c.state)
		}
	}
}
