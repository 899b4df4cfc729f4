package doctor

import (
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// In the mode for it, a transaction pooler costs notifications and nothing else.
func TestATransactionPoolerIsFoundByWhatGetsLost(t *testing.T) {
	t.Parallel()
	direct := dbtest.NewURL(t)
	finds(t, look(t, dbtest.OpenURL(t, direct)), "pooler", OK, "the server answers itself", "")

	moded, err := db.Open(t.Context(), db.PoolConfig{URL: dbtest.Pooler(t, direct) + "&default_query_exec_mode=cache_describe", MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moded.Close)
	found := look(t, moded)
	finds(t, found, "pooler", OK, "no statement is prepared", "")
	finds(t, found, "notifications", Warning, "LISTEN succeeds and nothing arrives", "an address past the pooler")
	finds(t, found, "rights", OK, "", "")
}

// A pooler that lets the settings of a session pass unheard looks like a server,
// until a prepared statement is not there. (PgBouncer keeps none before 1.21.)
func TestAPoolerThatLosesPreparedStatementsIsAProblem(t *testing.T) {
	t.Parallel()
	address := dbtest.Pooler(t, dbtest.NewURL(t), "ignore_startup_parameters = statement_timeout,idle_in_transaction_session_timeout")
	pool, err := db.Open(t.Context(), db.PoolConfig{URL: address, MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	finds(t, look(t, pool), "pooler", Problem, "prepared statements get lost in it", "default_query_exec_mode=cache_describe")
}

// This machine's clock is moved by the test; the database's is what it is.
func TestAClockThatIsOffIsFound(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for _, tt := range []struct {
		by   time.Duration
		want Verdict
		says string
	}{
		{0, OK, "give or take"},
		{-10 * time.Second, Warning, "ahead of this machine's"},
		{10 * time.Second, Warning, "behind this machine's"},
		{-time.Hour, Problem, "ahead of this machine's"},
		{time.Hour, Problem, "behind this machine's"},
	} {
		c := Config{Pool: pool, now: func() time.Time { return time.Now().Add(tt.by) }}
		remedy := "Let NTP set both clocks"
		if tt.want == OK {
			remedy = ""
		}
		finds(t, lookAs(t, c), "clock", tt.want, tt.says, remedy)
	}
}

// A slow answer is no clock that is off.
func TestASlowAnswerIsNoOffset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		offset, unsure time.Duration
		want           Verdict
	}{
		{1500 * time.Millisecond, 100 * time.Millisecond, Warning},
		{1500 * time.Millisecond, 600 * time.Millisecond, OK},
		{-31 * time.Second, time.Second, Problem},
		{-31 * time.Second, 2 * time.Second, Warning},
	} {
		if c, _ := judgeClock(tt.offset, tt.unsure); c.Verdict != tt.want {
			t.Errorf("judgeClock(%s, %s) = %+v, want %s", tt.offset, tt.unsure, c, tt.want)
		}
	}
}

func TestOldVersionsAreTold(t *testing.T) {
	t.Parallel()
	in := func(year int) time.Time { return time.Date(year, 12, 1, 0, 0, 0, 0, time.UTC) }
	for _, tt := range []struct {
		major int
		now   time.Time
		want  Verdict
	}{{14, in(2026), Problem}, {15, in(2026), OK}, {15, in(2027), Warning}, {18, in(2026), OK}, {19, in(2040), OK}} {
		if c, _ := judgeVersion(tt.major, "x", tt.now); c.Verdict != tt.want {
			t.Errorf("PostgreSQL %d in %d: %+v, want %s", tt.major, tt.now.Year(), c, tt.want)
		}
	}
}

func TestTheTightestLimitDecides(t *testing.T) {
	t.Parallel()
	server, role := limit{"the server", 97, 10, "raise"}, limit{"role app", 30, 5, "alter"}
	for _, tt := range []struct {
		limits []limit
		each   int
		want   Verdict
	}{
		{[]limit{server}, 26, OK}, {[]limit{server}, 88, Warning}, {[]limit{server}, 98, Problem},
		{[]limit{server, role}, 25, OK}, {[]limit{server, role}, 26, Warning}, {[]limit{server, role}, 31, Problem},
	} {
		if c, _ := judgeConnections(tt.limits, tt.each); c.Verdict != tt.want {
			t.Errorf("%v for %d: %+v, want %s", tt.limits, tt.each, c, tt.want)
		}
	}
}

func TestASlotThatKeepsMuchIsAProblem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		slot slot
		want Verdict
	}{{slot{"a", false, 1 << 20}, Warning}, {slot{"a", true, 0}, Problem}, {slot{"a", false, 1 << 30}, Problem}} {
		if c, _ := judgeSlots([]slot{tt.slot}); c.Verdict != tt.want {
			t.Errorf("%+v: %+v, want %s", tt.slot, c, tt.want)
		}
	}
}

func TestASilentReaperIsAProblem(t *testing.T) {
	t.Parallel()
	leader := &inspect.Leader{WorkerName: "w-1", Live: true, AcquiredAt: time.Now().Add(-time.Hour)}
	new := &inspect.Leader{WorkerName: "w-1", Live: true, AcquiredAt: time.Now()}
	reaper := func(age time.Duration) []inspect.Task {
		return []inspect.Task{{Name: "reaper", LastSuccessAt: time.Now().Add(-age), Age: age}}
	}
	for _, tt := range []struct {
		leader *inspect.Leader
		tasks  []inspect.Task
		want   Verdict
	}{
		{nil, nil, Warning}, {leader, nil, Problem}, {new, nil, OK}, {leader, reaper(15 * time.Second), OK}, {leader, reaper(16 * time.Second), Problem},
	} {
		if c, _ := judgeUpkeep(tt.leader, tt.tasks, 5*time.Second); c.Verdict != tt.want {
			t.Errorf("%+v, %+v: %+v, want %s", tt.leader, tt.tasks, c, tt.want)
		}
	}
}

// Without its database every check says that it could not look.
func TestAnAbsentDatabaseLeavesEverythingUnchecked(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	pool.Close()
	r := Run(t.Context(), Config{Pool: pool})
	// What opens connections of its own still finds the server.
	for _, c := range r.Checks {
		if c.Code != "notifications" && c.Code != "pooler" && c.Verdict != Unchecked {
			t.Errorf("%+v", c)
		}
	}
	if r.Verdict() != Unchecked {
		t.Errorf("verdict %s", r.Verdict())
	}
}
