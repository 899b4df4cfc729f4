package engine_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// TestALargeLossIsTakenBackHoweverSlowTheDatabase: thousands of jobs lost their workers at once, and to write them all down
// takes the database longer than one call may. The reaper must get on in steps that fit, not try the same again for ever.
func TestALargeLossIsTakenBackHoweverSlowTheDatabase(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	const leases, jobs = 60, 40
	if _, err := pool.Exec(t.Context(), `CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END $$;
		CREATE TRIGGER slowly BEFORE INSERT ON job_executions FOR EACH ROW EXECUTE FUNCTION slowly()`); err != nil {
		t.Fatal(err)
	}
	loseMany(t, pool, leases, jobs)
	c := hasty(nil)
	c.MaintenanceOnly, c.DBTimeout = true, time.Second
	start(t, pool, c)
	within(t, time.Minute, "every lost job stands in line again", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_ready") == leases*jobs
	})
	if n := one[int](t, pool, "SELECT count(*) FROM job_claims"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestALargeLossIsTakenBackInStepsThatStay: leases of hundreds of jobs each ran out together. Each step of the reaper commits
// a few hundred jobs, so that a leader who leads for a second only has done something for good.
func TestALargeLossIsTakenBackInStepsThatStay(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	const leases, jobs, step = 10, 300, 500
	loseMany(t, pool, leases, jobs)
	c := hasty(nil)
	c.MaintenanceOnly = true
	start(t, pool, c)
	within(t, time.Minute, "every lost job stands in line again", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_ready") == leases*jobs
	})
	if n := one[int](t, pool, "SELECT max(n) FROM (SELECT count(*) AS n FROM job_executions GROUP BY xmin) AS x"); n > step+jobs {
		t.Errorf("one transaction took back %d jobs; want %d, and the rest of a lease", n, step)
	}
}

// loseMany makes leases that ran out, each with some jobs.
func loseMany(t testing.TB, pool *pgxpool.Pool, leases, jobs int) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `WITH j AS (
		  INSERT INTO jobs (id, type, queue, version) SELECT uuid_v7(), 'lost', 'default', 1 FROM generate_series(1, $1::int * $2::int) RETURNING id),
		n AS (SELECT id, row_number() OVER () % $1 AS lease FROM j)
		INSERT INTO job_claims (worker_id, lease_expires_at, job_ids, attempts, crashes)
		SELECT 987654, now() - interval '1 s', array_agg(id), array_fill(0::smallint, ARRAY[count(*)::int]), array_fill(0::smallint, ARRAY[count(*)::int]) FROM n GROUP BY lease`,
		leases, jobs); err != nil {
		t.Fatal(err)
	}
}

// TestALargeLeaseIsTakenBackHoweverSlowTheDatabase: one lease's jobs alone take longer than one call may, and a lease is taken
// back whole. The reaper must give it the time.
func TestALargeLeaseIsTakenBackHoweverSlowTheDatabase(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	const jobs = 800
	if _, err := pool.Exec(t.Context(), `CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$;
		CREATE TRIGGER slowly BEFORE INSERT ON job_executions FOR EACH ROW EXECUTE FUNCTION slowly()`); err != nil {
		t.Fatal(err)
	}
	loseMany(t, pool, 1, jobs)
	c := hasty(nil)
	c.MaintenanceOnly, c.DBTimeout = true, time.Second
	start(t, pool, c)
	within(t, time.Minute, "every lost job stands in line again", func() bool {
		return one[int](t, pool, "SELECT count(*) FROM job_ready") == jobs
	})
}
