package engine_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

var deathWays = flag.String("deaths", "one", "ways in which TestB7 has processes die: one, or all (make poison)")

// childMode names what this binary does instead of its tests: processes that die are not started by fork.
const childMode = "RJE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childMode) {
	case "":
		// Tests wait for the database and for leases to end, more than they compute.
		flag.Parse()
		together := max(8, runtime.GOMAXPROCS(0))
		if testing.Short() {
			together = 4 // with the race detector they compute more than they wait
		}
		if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	case "delays":
		for range 5 {
			fmt.Println(engine.FullJitter{Base: time.Second, Max: time.Hour}.Delay(10))
		}
	case "worker":
		childWorker()
	case "teller":
		childTeller()
	case "hooks":
		childHooks()
	case "host":
		childHost()
	}
	os.Exit(0)
}

func child(ctx context.Context, mode string, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), childMode+"="+mode, "GOTRACEBACK=none"), env...)
	return cmd
}

// runChild returns what a child printed; it must end well.
func runChild(t *testing.T, mode string, env []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := child(ctx, mode, env)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child %s: %v\n%s", mode, err, errs.String())
	}
	return string(out)
}

// deaths are what a handler may do to its process.
var deaths = map[string]func(){
	"exit":    func() { os.Exit(3) },
	"stack":   func() { debug.SetMaxStack(16 << 20); overflow(0) }, // the default, 1 GB, takes seconds to fill
	"map":     concurrentMapWrite,
	"memory":  exhaustMemory,
	"hoard":   hoard,
	"signal":  func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); time.Sleep(time.Second) },
	"routine": func() { go func() { panic("in a goroutine of the handler's own") }(); time.Sleep(time.Second) },
}

// deepest keeps the compiler from seeing that the recursion has no end.
var deepest int

//go:noinline
func overflow(n int) int {
	if deepest = n; n < 0 {
		return n
	}
	return overflow(n+1) + deepest
}

func concurrentMapWrite() {
	m := map[int]int{}
	for range 8 {
		go func() {
			for i := 0; ; i++ {
				m[i&7] = i
			}
		}()
	}
	time.Sleep(5 * time.Second)
	os.Exit(3) // the runtime may have looked away all the time
}

// exhaustMemory leaves the process 64 MiB more of address space and then asks for more.
func exhaustMemory() {
	var pages uint64
	statm, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(statm), &pages)
	}
	if err != nil {
		os.Exit(3)
	}
	most := pages*uint64(os.Getpagesize()) + 64<<20
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		os.Exit(3)
	}
	hoard()
}

// hoard asks for memory until it gets none, or has 4 GiB, which is a limit that nobody set.
func hoard() {
	var all [][]byte
	for range 512 {
		b := make([]byte, 8<<20)
		for i := range b {
			b[i] = 1
		}
		all = append(all, b)
	}
	fmt.Fprintln(os.Stderr, "got all of it", len(all))
	os.Exit(3)
}

// childWorker runs jobs of type kill, which end the process, and neighbours that take a while, until it dies.
func childWorker() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("RJE_TEST_URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	ws := handlers(map[string]handler{
		"kill":      func(context.Context, *work) error { deaths[os.Getenv("RJE_TEST_DEATH")](); return nil },
		"neighbour": func(context.Context, *work) error { time.Sleep(300 * time.Millisecond); return nil },
	})
	c := hasty(ws)
	c.Pool, c.Queues = pool, []string{"shared"}
	e, err := engine.New(c)
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	time.Sleep(time.Minute)
}

// TestB7AJobThatKillsItsProcess starts a worker anew each time the job has ended it, as an init system would. It must find an
// end, and the jobs that ran beside it must complete elsewhere.
func TestB7AJobThatKillsItsProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("ten processes die of each way: make test has one without the race detector, make poison all")
	}
	t.Parallel()
	ways := []string{"exit"}
	if *deathWays == "all" {
		ways = []string{"exit", "stack", "map", "memory", "routine"}
	}
	for _, how := range ways {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			url := dbtest.NewURL(t)
			pool := dbtest.OpenURL(t, url)
			client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			add := func(jobType string) engine.ID {
				done, err := client.Enqueue(t.Context(), engine.RawArgs{Type: jobType}, engine.EnqueueOptions{Queue: "shared", MaxAttempts: 1})
				if err != nil {
					t.Fatal(err)
				}
				return done.ID
			}
			neighbours := []engine.ID{add("neighbour"), add("neighbour"), add("neighbour")}
			killer := add("kill")
			died, reason := superviseUntilDead(t, url, how, pool, killer)
			if reason != "poison" {
				t.Errorf("reason = %s, want poison", reason)
			}
			// Ten lost runs bury; a death in which the job was not running costs no run.
			if died > 12 {
				t.Errorf("%d processes died of it", died)
			}
			t.Logf("%d processes died of it", died)
			ws := handlers(map[string]handler{"neighbour": func(context.Context, *work) error { return nil }})
			c := hasty(ws)
			c.Queues = []string{"shared", "default"}
			e := start(t, pool, c)
			for _, id := range neighbours {
				reaches(t, pool, id, "completed")
			}
			healthy(t, pool, e)
		})
	}
}

func superviseUntilDead(t *testing.T, url, how string, pool *pgxpool.Pool, id engine.ID) (died int, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for stateOf(t, pool, id) != "dead_letter" {
		cmd := child(ctx, "worker", []string{"RJE_TEST_URL=" + url, "RJE_TEST_DEATH=" + how})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for alive := true; alive; {
			select {
			case err := <-ended:
				var exit *exec.ExitError
				if ctx.Err() != nil || !errors.As(err, &exit) || exit.ExitCode() == 9 {
					t.Fatalf("worker: %v, %v", err, ctx.Err())
				}
				died, alive = died+1, false
			case <-time.After(20 * time.Millisecond):
				if stateOf(t, pool, id) == "dead_letter" {
					_ = cmd.Process.Kill() // it has nothing left to die of
					<-ended
					alive = false
				}
			}
		}
	}
	return died, one[string](t, pool, "SELECT reason FROM dead_letter_jobs WHERE job_id = $1", id)
}

// badError panics when it is read, as an error does that is a nil pointer.
type badError struct{}

func (*badError) Error() string { panic("reading this error") }

// childHooks runs jobs whose product team's own hooks panic while the engine asks them.
func childHooks() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
	}
	pool, err := pgxpool.New(ctx, os.Getenv("RJE_TEST_URL"))
	fail(err)
	ws := handlers(map[string]handler{"error": func(context.Context, *work) error { return &badError{} }})
	engine.RegisterType(ws, "retry", handler(func(context.Context, *work) error { return errors.New("x") }),
		engine.TypeOptions{Retry: engine.RetryFunc(func(int) time.Duration { panic("in the policy") })})
	engine.RegisterType(ws, "fingerprint", handler(func(context.Context, *work) error { return errors.New("x") }),
		engine.TypeOptions{Fingerprint: func(error) string { panic("in the fingerprint") }})
	c := hasty(ws)
	c.Pool = pool
	e, err := engine.New(c)
	fail(err)
	fail(e.Start(ctx))
	for _, name := range strings.Fields(os.Getenv("RJE_TEST_TYPES")) {
		_, err := e.Client().Enqueue(ctx, engine.RawArgs{Type: name}, engine.EnqueueOptions{MaxAttempts: 2})
		fail(err)
	}
	for n := 0; n < len(strings.Fields(os.Getenv("RJE_TEST_TYPES"))) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		fail(pool.QueryRow(ctx, "SELECT count(*) FROM dead_letter_jobs").Scan(&n))
	}
	fail(e.Stop(ctx))
	fmt.Println("alive")
}

// TestB9APanicInAHookIsTheJobsOwn: what a product team gives the engine to ask, about an error or a delay, may panic like
// a handler. The process lives on and the job fails by it.
func TestB9APanicInAHookIsTheJobsOwn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"error": "reading this error", "retry": "in the policy", "fingerprint": "in the fingerprint"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.NewURL(t)
			if out := runChild(t, "hooks", []string{"RJE_TEST_URL=" + url, "RJE_TEST_TYPES=" + name}); out != "alive\n" {
				t.Fatalf("the worker printed %q", out)
			}
			pool := dbtest.OpenURL(t, url)
			texts := one[string](t, pool, "SELECT string_agg(concat_ws(' ', error, stack), ' ') FROM job_executions")
			if !strings.Contains(texts, want) || !strings.Contains(texts, filepath.Base("pitfalls_child_test.go")) {
				t.Errorf("what is kept of it: %s", texts)
			}
		})
	}
}
