package main

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
)

// exitsOfProblems are what console.md says of the API's problems: 0 to 7, by code.
var exitsOfProblems = map[string]int{
	"malformed-json": exitFailed, "bad-query": exitFailed, "unauthenticated": exitNotAllowed, "forbidden": exitNotAllowed, "not-found": exitNotFound,
	"method-not-allowed": exitFailed, "not-cancellable": exitConflict, "not-running": exitConflict, "not-waiting": exitConflict, "not-dead": exitConflict,
	"already-replayed": exitConflict, "version-conflict": exitConflict, "operation-state": exitConflict, "count-moved": exitConflict,
	"payload-too-large": exitFailed, "unsupported-media-type": exitFailed, "validation-failed": exitFailed, "schema-violation": exitFailed, "idempotency-key-reused": exitConflict,
	"idempotency-key-in-flight": exitConflict, "precondition-required": exitFailed, "precondition-failed": exitConflict, "rate-limited": exitFailed, "unique-conflict": exitConflict, "request-timeout": exitUnreachable, "timeout": exitUnreachable, "unavailable": exitUnreachable, "internal": exitFailed,
}

var helpLine = regexp.MustCompile(`<code[^>]*>([a-z-]+)</code></t[dh]>\s*<td[^>]*>(\d{3})<`)

// Every problem that the server's help page lists has its exit code here, and a
// next step.
func TestEveryProblemHasItsExitCodeAndANextStep(t *testing.T) {
	t.Parallel()
	res, err := http.Get(startServer(t).url + "/console/help")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	listed := helpLine.FindAllStringSubmatch(string(body), -1)
	if len(listed) < 20 {
		t.Fatalf("the help page lists %d problems: this test looks for the wrong thing", len(listed))
	}
	for _, m := range listed {
		status, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		want, ok := exitsOfProblems[m[1]]
		if !ok {
			t.Errorf("%s (%d) has no exit code in this test", m[1], status)
		} else if got := exitFor(status, m[1]); got != want {
			t.Errorf("%s (%d) ends with %d, want %d", m[1], status, got, want)
		}
		if steps[m[1]] == "" {
			t.Errorf("%s (%d) has no next step", m[1], status)
		}
	}
}
