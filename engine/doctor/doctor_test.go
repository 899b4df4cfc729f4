package doctor

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// patient is the time that a check gets on a busy machine.
const patient = 20 * time.Second

// look runs every check over the address of pool.
func look(t *testing.T, pool *pgxpool.Pool) map[string]Check {
	t.Helper()
	return lookAs(t, Config{Pool: pool})
}

func lookAs(t *testing.T, c Config) map[string]Check {
	t.Helper()
	c.Timeout = patient
	if c.Schema == nil {
		c.Schema = func(ctx context.Context) (string, error) { return "", db.CheckSchema(ctx, c.Pool) }
	}
	byCode := map[string]Check{}
	for _, check := range Run(t.Context(), c).Checks {
		if check.Code == "" || check.Evidence == "" || (check.Verdict == OK) != (check.Remedy == "") {
			t.Errorf("a check says too little or too much: %+v", check)
		}
		byCode[check.Code] = check
	}
	return byCode
}

// finds holds a check to its verdict, and to a word of its evidence and remedy.
func finds(t *testing.T, found map[string]Check, code string, v Verdict, evidence, remedy string) {
	t.Helper()
	c := found[code]
	if c.Verdict != v || !strings.Contains(c.Evidence, evidence) || !strings.Contains(c.Remedy, remedy) {
		t.Errorf("%s: %s, %q, do %q; want %s, %q, do %q", code, c.Verdict, c.Evidence, c.Remedy, v, evidence, remedy)
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// signIn opens a pool as another role, which is dropped at the end.
func signIn(t *testing.T, owner *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	exec(t, owner, `CREATE ROLE `+role+` LOGIN PASSWORD 'doctor'`)
	t.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := owner.Exec(context.Background(), sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	u, err := url.Parse(dbtest.URL(t, owner))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "doctor")
	return dbtest.OpenURL(t, u.String())
}

const grants = `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `

func TestASoundDatabaseIsWell(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenURL(t, freshServer(t).URL("jobs"))
	for code, c := range look(t, pool) {
		want := OK
		if code == "upkeep" { // nothing has run yet
			want = Warning
		}
		if c.Verdict != want {
			t.Errorf("%s: %+v, want %s", code, c, want)
		}
	}
}

// freshServer is a server with its usual settings, and the engine's schema.
func freshServer(t *testing.T, settings ...string) *dbtest.Server {
	t.Helper()
	s := dbtest.NewServer(t, settings...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := db.Migrate(ctx, s.URL("jobs"), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// Each setting is really made, on a server that nobody else uses, and taken back.
func TestFaultsOfTheServerAreFound(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenURL(t, freshServer(t, "max_prepared_transactions=4").URL("jobs"))
	for _, tt := range []struct{ code, setting, evidence, remedy string }{
		{"fsync", "fsync", "fsync is off", "ALTER SYSTEM RESET fsync"},
		{"full_page_writes", "full_page_writes", "full_page_writes is off", "ALTER SYSTEM RESET full_page_writes"},
		{"synchronous_commit", "synchronous_commit", "synchronous_commit is off, by", "ALTER SYSTEM RESET synchronous_commit"},
		{"autovacuum", "autovacuum", "autovacuum is off", "ALTER SYSTEM RESET autovacuum"},
		{"autovacuum", "track_counts", "track_counts is off", "ALTER SYSTEM RESET track_counts"},
	} {
		finds(t, look(t, pool), tt.code, OK, "", "")
		exec(t, pool, "ALTER SYSTEM SET "+tt.setting+" = off", "SELECT pg_reload_conf()")
		isSet(t, pool, tt.setting, "off")
		finds(t, look(t, pool), tt.code, Problem, tt.evidence, tt.remedy)
		exec(t, pool, "ALTER SYSTEM RESET "+tt.setting, "SELECT pg_reload_conf()")
		isSet(t, pool, tt.setting, "on")
	}

	exec(t, pool, "SELECT pg_create_physical_replication_slot('forgotten', true)")
	finds(t, look(t, pool), "replication_slots", Warning, "forgotten keeps ", "pg_drop_replication_slot('forgotten')")
	exec(t, pool, "SELECT pg_drop_replication_slot('forgotten')")

	// One that was prepared just now is somebody's work, not an orphan.
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"BEGIN", "SELECT pg_current_xact_id()", "PREPARE TRANSACTION 'half'"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	conn.Release()
	finds(t, look(t, pool), "prepared_transactions", OK, "", "")
	finds(t, lookAs(t, Config{Pool: pool, long: time.Nanosecond}), "prepared_transactions", Problem, `left behind: "half" by `, "ROLLBACK PREPARED 'half'")
	exec(t, pool, "ROLLBACK PREPARED 'half'")
}

// isSet waits until new sessions see a setting: a reload takes its time.
func isSet(t *testing.T, pool *pgxpool.Pool, name, value string) {
	t.Helper()
	for deadline := time.Now().Add(patient); ; time.Sleep(20 * time.Millisecond) {
		pool.Reset()
		var got string
		if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got == value {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %s, want %s", name, got, value)
		}
	}
}

func TestWhatIsSetForRolesAndDatabasesIsFound(t *testing.T) {
	t.Parallel()
	owner := dbtest.New(t)
	var database string
	if err := owner.QueryRow(t.Context(), "SELECT current_database()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	app := signIn(t, owner, "doctor_settings")
	other := signIn(t, owner, "doctor_other")
	for _, tt := range []struct{ set, remedy string }{
		{`ALTER ROLE doctor_settings SET synchronous_commit = off`, `ALTER ROLE "doctor_settings" RESET synchronous_commit`},
		{`ALTER DATABASE "` + database + `" SET synchronous_commit = off`, `ALTER DATABASE "` + database + `" RESET synchronous_commit`},
		{`ALTER ROLE doctor_settings IN DATABASE "` + database + `" SET synchronous_commit = off`, `ALTER ROLE "doctor_settings" IN DATABASE "` + database + `" RESET`},
	} {
		exec(t, owner, tt.set)
		isSet(t, app, "synchronous_commit", "off")
		finds(t, look(t, app), "synchronous_commit", Problem, "off for role doctor_settings in database "+database, tt.remedy)
		if strings.HasPrefix(tt.set, "ALTER ROLE doctor_settings SET") { // who signs in as somebody else is told of it all the same
			finds(t, look(t, other), "synchronous_commit", Warning, "off for doctor_settings", tt.remedy)
		}
		exec(t, owner, strings.Replace(strings.TrimSuffix(tt.set, " = off"), " SET ", " RESET ", 1))
		isSet(t, app, "synchronous_commit", "on")
	}

	exec(t, owner, `ALTER ROLE doctor_settings SET default_transaction_read_only = on`)
	app.Reset()
	finds(t, look(t, app), "standby", Problem, "transactions of doctor_settings are read-only", "RESET default_transaction_read_only")
	exec(t, owner, `ALTER TABLE job_ready SET (autovacuum_enabled = off)`)
	finds(t, look(t, owner), "autovacuum", Problem, "autovacuum is off for job_ready", `ALTER TABLE "job_ready" RESET (autovacuum_enabled)`)

	exec(t, owner, `ALTER ROLE doctor_other CONNECTION LIMIT 8`)
	finds(t, lookAs(t, Config{Pool: other, Connections: 20}), "connections", Problem, "of 8 that role doctor_other allows", `ALTER ROLE "doctor_other" CONNECTION LIMIT -1`)
	exec(t, owner, `ALTER ROLE doctor_other CONNECTION LIMIT -1`, `ALTER DATABASE "`+database+`" CONNECTION LIMIT 9`)
	finds(t, lookAs(t, Config{Pool: other, Connections: 9}), "connections", Warning, "of 9 that database "+database+" allows", `ALTER DATABASE`)
}

// A role with rows' rights alone is enough, and an engine runs as it; each right
// that is taken from it is named, with the statement that gives it back.
func TestRightsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	owner := dbtest.New(t)
	app := signIn(t, owner, "doctor_rights")
	finds(t, look(t, app), "rights", Problem, "role doctor_rights lacks SELECT, INSERT, UPDATE, DELETE on api_tokens",
		`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "public" TO "doctor_rights"`)
	finds(t, look(t, app), "migrations", Unchecked, "permission denied", "Mend the cause")
	exec(t, owner, grants+"doctor_rights")
	finds(t, look(t, app), "rights", OK, "", "")
	runsAJob(t, app)

	exec(t, owner, "REVOKE INSERT, DELETE ON job_ready FROM doctor_rights")
	finds(t, look(t, app), "rights", Problem, "role doctor_rights lacks INSERT, DELETE on job_ready", `GRANT INSERT, DELETE ON "job_ready" TO "doctor_rights"`)
	exec(t, owner, grants+"doctor_rights", "REVOKE EXECUTE ON FUNCTION uuid_v7 FROM PUBLIC")
	finds(t, look(t, app), "rights", Problem, "EXECUTE on uuid_v7", `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "public"`)
	exec(t, owner, "GRANT EXECUTE ON FUNCTION uuid_v7 TO PUBLIC", "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
	finds(t, look(t, app), "rights", Problem, "USAGE on schema public", `GRANT USAGE ON SCHEMA "public" TO "doctor_rights"`)
	exec(t, owner, "GRANT USAGE ON SCHEMA public TO PUBLIC", "ALTER ROLE doctor_rights SET search_path = pg_catalog")
	app.Reset()
	finds(t, look(t, app), "rights", Problem, "not in the search_path", `ALTER ROLE "doctor_rights" SET search_path = "public"`)
}

func runsAJob(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ws := engine.NewWorkers()
	done := make(chan struct{})
	engine.RegisterType(ws, "once", engine.WorkerFunc[engine.RawArgs](func(context.Context, *engine.Job[engine.RawArgs]) error {
		close(done)
		return nil
	}), engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: pool, Workers: ws, PollInterval: 50 * time.Millisecond, ReaperInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client().Enqueue(t.Context(), engine.RawArgs{Type: "once"}, engine.EnqueueOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(patient):
		t.Error("the job did not run")
	}
	for deadline := time.Now().Add(patient); ; time.Sleep(20 * time.Millisecond) {
		if c := look(t, pool)["upkeep"]; c.Verdict == OK && strings.Contains(c.Evidence, "its reaper was by") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("upkeep while an engine runs: %+v", c)
		}
	}
	stop, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	if err := e.Stop(stop); err != nil {
		t.Fatal(err)
	}
	// A dead leader's row stays, and says since when nobody leads.
	if _, err := pool.Exec(t.Context(), "UPDATE leaders SET expires_at = now() - interval '1 min'"); err != nil {
		t.Fatal(err)
	}
	finds(t, look(t, pool), "upkeep", Problem, "nobody leads since", "Start a server or a worker")
}

func TestTheListOfTablesIsTheSchemas(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	rows, err := pool.Query(t.Context(), "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'p', 'm') ORDER BY relname")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var foundTables, foundViews []string
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		switch {
		case kind == "v":
			foundViews = append(foundViews, name)
		case name != migrationsTable:
			foundTables = append(foundTables, name)
		}
	}
	for what, d := range map[string]string{"tables": cmp.Diff(tables, foundTables), "views": cmp.Diff(views, foundViews)} {
		if d != "" {
			t.Errorf("%s of rights.go are not the schema's (-rights.go +schema):\n%s", what, d)
		}
	}
	if !slices.IsSorted(tables) {
		t.Error("tables of rights.go are not in order")
	}
}

// What holds dead rows back is found, and by a role that is not told, said so.
func TestOpenTransactionsAreFound(t *testing.T) {
	t.Parallel()
	owner := dbtest.New(t)
	app := signIn(t, owner, "doctor_watcher")
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM jobs"); err != nil {
		t.Fatal(err)
	}
	finds(t, look(t, owner), "transactions", OK, "none is open for 5m0s", "")
	finds(t, look(t, app), "transactions", Unchecked, "sessions of other roles do is not shown to role doctor_watcher", `GRANT pg_read_all_stats TO "doctor_watcher"`)
	long := lookAs(t, Config{Pool: owner, long: time.Nanosecond})
	finds(t, long, "transactions", Warning, "(reliable-job-engine, process ", "SELECT pg_terminate_backend(")
	finds(t, long, "transactions", Warning, "idle in transaction", "Commit it")
	finds(t, lookAs(t, Config{Pool: owner, long: time.Nanosecond, tooLong: time.Nanosecond}), "transactions", Problem, "dead rows stay as long", "pg_terminate_backend")
	exec(t, owner, "GRANT pg_read_all_stats TO doctor_watcher")
	finds(t, look(t, app), "transactions", OK, "", "")
}
