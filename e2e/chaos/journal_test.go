//go:build linux || darwin || freebsd

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The outcomes of a request, as its caller knows them.
const (
	acknowledged = "acknowledged"
	rolledBack   = "rolled back"
	unknown      = "unknown" // the answer was lost
	refused      = "refused" // the engine said no: nothing was written
)

// request is one try to enqueue jobs that live or die together, or to cancel one.
type request struct {
	Door    string    `json:"door"` // http, sql, bulk, cancel
	Outcome string    `json:"outcome"`
	Jobs    []wanted  `json:"jobs"`
	Err     string    `json:"err,omitempty"`
	Sent    time.Time `json:"sent"`
	Done    time.Time `json:"done"`
}

// wanted is a job as it was asked for.
type wanted struct {
	ID      string          `json:"id,omitempty"` // told by the answer
	Ref     string          `json:"ref"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
	// After is the least wait before a run, 0 for none.
	After time.Duration `json:"after,omitempty"`
	Key   string        `json:"key,omitempty"`
}

// journal is a file of JSON lines. It is what the run is judged by.
type journal struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

func newJournal(t testing.TB, path string) *journal {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Errorf("close journal: %v", err)
		}
	})
	return &journal{file: file}
}

// write keeps the first error; the checkers ask for it.
func (j *journal) write(v any) {
	line, err := json.Marshal(v)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("write %s: %w", filepath.Base(j.file.Name()), err)
	}
}

func (j *journal) broken() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// readJournal reads a file of JSON lines. A line that is no JSON is an error: a
// checker that cannot read all must not judge.
func readJournal[T any](path string) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []T
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", filepath.Base(path), n, err)
		}
		all = append(all, v)
	}
	return all, lines.Err()
}

func TestAJournalIsReadBackAsWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "requests.jsonl")
	j := newJournal(t, path)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	want := []request{
		{Door: "sql", Outcome: rolledBack, Jobs: []wanted{{Ref: "s-1", Type: "ok", Payload: json.RawMessage(`{"ref":"s-1"}`)}}, Sent: at, Done: at},
		{Door: "bulk", Outcome: unknown, Jobs: []wanted{{Ref: "b-1", Type: "ok", Payload: json.RawMessage(`{}`), After: time.Second}}, Err: "EOF", Sent: at, Done: at},
	}
	for _, r := range want {
		j.write(r)
	}
	got, err := readJournal[request](path)
	if err != nil || j.broken() != nil {
		t.Fatal(err, j.broken())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestAJournalWithALineCutShortIsNotJudged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "requests.jsonl")
	if err := os.WriteFile(path, []byte("{\"door\":\"sql\"}\n{\"door\":\"ht"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readJournal[request](path); err == nil {
		t.Error("half a line was read without an error")
	}
}
