package engine_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestTheSQLDoorFromPython: a program in another language enqueues in its own transaction.
// The job is there if its row is, and only then, and a worker in Go runs it.
func TestTheSQLDoorFromPython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine: the SQL door is not called from another language here")
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import ctypes, ctypes.util; ctypes.CDLL(ctypes.util.find_library('pq') or 'libpq.so.5')").CombinedOutput(); err != nil {
		t.Skipf("python3 finds no libpq on this machine (install libpq5): %s", out)
	}
	pool := dbtest.New(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE orders (id bigint PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), python, "testdata/door.py", dbtest.URL(t, pool))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("door.py: %v\n%s", err, &stderr)
	}
	var said struct{ Kept, Again, Refused string }
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("door.py says %q: %v", out, err)
	}
	if said.Kept == "" || said.Again != said.Kept {
		t.Errorf("the repeated call got job %q, want %q", said.Again, said.Kept)
	}
	if !strings.Contains(said.Refused, "queue") {
		t.Errorf("a queue that cannot be is refused with %q", said.Refused)
	}
	if orders, jobs := one[string](t, pool, "SELECT string_agg(id::text, ' ') FROM orders"), one[string](t, pool, "SELECT string_agg(id::text, ' ') FROM jobs"); orders != "8123" ||
		jobs != said.Kept {
		t.Errorf("orders %s and jobs %s, want 8123 and %s", orders, jobs, said.Kept)
	}
	ran := make(chan SendReceipt, 2)
	ws := engine.NewWorkers()
	engine.Register(ws, engine.WorkerFunc[SendReceipt](func(_ context.Context, job *engine.Job[SendReceipt]) error {
		ran <- job.Args
		return nil
	}), engine.TypeOptions{})
	start(t, pool, engine.Config{Workers: ws})
	eventually(t, "the job completed", func() bool { return one[int](t, pool, "SELECT count(*) FROM job_executions WHERE outcome = 1") == 1 })
	if got, want := <-ran, (SendReceipt{OrderID: 8123, To: `é"@example.com`}); got != want {
		t.Errorf("the worker got %+v, want %+v", got, want)
	}
}
