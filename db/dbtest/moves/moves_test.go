package moves_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
)

// lives are a job's moves, a transaction each, by SQL alone. j is its id; claimed
// and so on are the words below.
var lives = []struct {
	name  string
	moves []string
	rule  string // "" for a good life
}{
	{"completes", []string{"enqueue", "claim 1", "finish 1 1 completed", "drop 1"}, ""},
	{"fails, is promoted, completes", []string{"enqueue", "claim 1", "fail 1 1", "promote", "claim 2 1", "finish 2 2 completed"}, ""},
	{"is lost and runs again", []string{"enqueue", "claim 1", "reap 1 1", "claim 2 0 1", "finish 2 1 completed"}, ""},
	{"dies, is replayed", []string{"enqueue", "claim 1", "die 1 1", "replay", "claim 2", "finish 2 1 completed"}, ""},
	{"is cancelled while it waits", []string{"enqueue", "cancel 1"}, ""},
	{"completes and is removed", []string{"enqueue", "claim 1", "finish 1 1 completed", "drop 1", "prune"}, ""},

	{"its lease is dropped too early", []string{"enqueue", "claim 1", "drop 1"}, moves.RuleOnePlace},
	{"a second worker gets it", []string{"enqueue", "claim 1", "claim again 2"}, moves.RuleOnePlace},
	{"goes back to line and stays leased", []string{"enqueue", "claim 1", "insert ready"}, moves.RuleOnePlace},
	{"its death is written in two", []string{"enqueue", "claim 1", "finish 1 1 failed", "insert dead 1"}, moves.RuleOnePlace},
	{"a stale worker closes it", []string{"enqueue", "claim 1", "reap 1 1", "finish 1 1 completed"}, moves.RuleClosedOnce},
	{"completes without a lease", []string{"enqueue", "finish 9 1 completed"}, moves.RuleClosedOnce},
	{"a token falls", []string{"enqueue", "claim 2", "reap 2 1", "claim 1 0 1"}, moves.RuleToken},
	{"is replayed by nobody", []string{"enqueue", "claim 1", "die 1 1", "replay quietly"}, moves.RuleExplained},
	{"is taken back without an execution", []string{"enqueue", "claim 1", "drop and insert ready 1"}, moves.RuleExplained},
	{"completed and waits again", []string{"enqueue", "claim 1", "finish 1 1 completed", "insert ready"}, moves.RuleTransition},
	{"a failure uses no attempt", []string{"enqueue", "claim 1", "fail 1 0"}, moves.RuleCarried},
	{"a replay keeps its attempts", []string{"enqueue", "claim 1", "die 1 1", "replay with 1"}, moves.RuleCarried},
	{"is removed while it waits", []string{"enqueue", "prune"}, moves.RuleNeverSeen},
}

// statements of the words; $1 is the job, $2 and on the numbers and outcomes.
var statements = map[string]string{
	"enqueue":               `INSERT INTO jobs (id, type, version) VALUES ($1, 't', 1); ready(0, 0)`,
	"claim":                 `DELETE FROM job_ready; lease($2, $3, $4)`,
	"claim again":           `lease($2, 0, 0)`,
	"finish":                `close($2, $3, $4)`,
	"fail":                  `close($2, 1, 2); INSERT INTO job_scheduled (run_at, job_id, priority, attempt, failed, queue, type) VALUES (now(), $1, 1, $3, true, 'q', 't')`,
	"reap":                  `close($2, $3, 6); DELETE FROM job_claims WHERE id = $2; ready(0, 1)`,
	"die":                   `close($2, $3, 2); dead($2, 1)`,
	"insert dead":           `dead($2, 1)`,
	"insert ready":          `ready(0, 0)`,
	"drop":                  `DELETE FROM job_claims WHERE id = $2`,
	"drop and insert ready": `DELETE FROM job_claims WHERE id = $2; ready(0, 0)`,
	"promote":               `DELETE FROM job_scheduled; ready(1, 0)`,
	"replay":                `DELETE FROM dead_letter_jobs; ready(0, 0); SELECT record_operator_action('ann', 'go', 'replay', 'job', $1::text, NULL, NULL, NULL, 1, NULL, NULL)`,
	"replay with":           `DELETE FROM dead_letter_jobs; ready($2, 0); SELECT record_operator_action('ann', 'go', 'replay', 'job', $1::text, NULL, NULL, NULL, 1, NULL, NULL)`,
	"replay quietly":        `DELETE FROM dead_letter_jobs; ready(0, 0)`,
	"cancel":                `DELETE FROM job_ready; close($2, 0, 5)`,
	"prune":                 `DELETE FROM job_executions; DELETE FROM jobs`,
}

// sql writes out a move's statements.
func sql(t *testing.T, move string, id uuid.UUID) string {
	t.Helper()
	var words, args []string
	for _, w := range strings.Fields(move) {
		switch {
		case w == "completed":
			args = append(args, "1")
		case w == "failed":
			args = append(args, "2")
		case w[0] >= '0' && w[0] <= '9':
			args = append(args, w)
		default:
			words = append(words, w)
		}
	}
	s, known := statements[strings.Join(words, " ")]
	if !known {
		t.Fatalf("no statement for %q", move)
	}
	for _, short := range []struct{ from, to string }{
		{"ready(", "INSERT INTO job_ready (job_id, priority, queue, type, attempt, crashes) VALUES ($1, 1, 'q', 't', "},
		{"lease($2, $3, $4)", "INSERT INTO job_claims (id, worker_id, lease_expires_at, job_ids, attempts, crashes) OVERRIDING SYSTEM VALUE VALUES ($2, 1, now(), ARRAY[$1], ARRAY[$3::smallint], ARRAY[$4::smallint])"},
		{"lease($2, 0, 0)", "INSERT INTO job_claims (id, worker_id, lease_expires_at, job_ids, attempts, crashes) OVERRIDING SYSTEM VALUE VALUES ($2, 1, now(), ARRAY[$1], '{0}', '{0}')"},
		{"close(", "INSERT INTO job_executions (job_id, fencing_token, attempt, outcome) VALUES ($1, "},
		{"dead(", "INSERT INTO dead_letter_jobs (job_id, reason, queue, type, fencing_token, attempt) VALUES ($1, 'exhausted', 'q', 't', "},
	} {
		s = strings.ReplaceAll(s, short.from, short.to)
	}
	for len(args) < 3 {
		args = append(args, "0")
	}
	return strings.NewReplacer("$1", "'"+id.String()+"'::uuid", "$2", args[0], "$3", args[1], "$4", args[2]).Replace(s)
}

func TestLivesAreJudged(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for range 2 { // a second time does no harm
		if err := moves.Install(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	// The key would stop the stale worker before the judge sees it.
	if _, err := pool.Exec(t.Context(), `ALTER TABLE job_executions DROP CONSTRAINT job_executions_pkey`); err != nil {
		t.Fatal(err)
	}
	for _, l := range lives {
		t.Run(l.name, func(t *testing.T) {
			id := uuid.New()
			for _, m := range l.moves {
				if _, err := pool.Exec(t.Context(), sql(t, m, id), pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatalf("%s: %v", m, err)
				}
			}
			bad, err := moves.Check(t.Context(), pool)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case l.rule == "" && len(bad) > 0:
				t.Errorf("%v\n%s", bad, moves.Story(t.Context(), pool, id))
			case l.rule != "" && (len(bad) == 0 || bad[0].Rule != l.rule || bad[0].JobID != id):
				t.Errorf("found %v, want %q", bad, l.rule)
			}
			if _, err := pool.Exec(t.Context(), `TRUNCATE jobs, job_ready, job_scheduled, job_claims, job_executions, dead_letter_jobs, moves.log`); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAStoryTellsEachMove(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	if err := moves.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	id := uuid.New()
	for _, m := range []string{"enqueue", "claim 7", "die 7 1", "replay"} {
		if _, err := pool.Exec(t.Context(), sql(t, m, id), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	story := moves.Story(t.Context(), pool, id)
	for _, want := range []string{"insert job (t)", "insert claim token 7 attempt 0 crashes 0 (worker 1)", "insert execution token 7 outcome failed attempt 1",
		"insert dead token 7 attempt 1 crashes 0 (exhausted)", "insert action (replay by ann)", "delete dead"} {
		if !strings.Contains(story, want) {
			t.Errorf("not told: %s\n%s", want, story)
		}
	}
}
