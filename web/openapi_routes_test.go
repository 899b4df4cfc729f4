package web

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// TestEveryRouteIsDescribed, with the scope that it asks for; and the document describes no
// other.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]*describedOperation{}
	if err := d.each(func(method, path string, op *describedOperation) { left[method+" "+path] = op }); err != nil {
		t.Fatal(err)
	}
	for _, r := range newConsoleOn(t, newPool(t)).echo.Routes() {
		if strings.HasPrefix(r.Path, "/console") || r.Method == echo.RouteNotFound {
			continue
		}
		name := r.Method + " " + routeParameter.Replace(r.Path)
		op := left[name]
		if op == nil {
			t.Errorf("the API's document does not describe %s", name)
			continue
		}
		delete(left, name)
		if needs := routeRules[routeKey(r.Method, r.Path)].needs; !allows(op, needs) {
			t.Errorf("%s needs %s; the API's document says otherwise", name, needs)
		}
	}
	for name := range left {
		t.Errorf("the API's document describes %s, and there is no such route", name)
	}
}

// allows tells whether one of an operation's ways in asks for what a route needs, no less.
func allows(op *describedOperation, needs string) bool {
	if len(op.Security) == 0 {
		return needs == isOpen
	}
	for _, way := range op.Security {
		scopes, token := way["token"]
		switch {
		case needs == isOpen && !token, needs == anyToken && token && len(scopes) == 0, slices.Equal(scopes, []string{needs}):
			return true
		}
	}
	return false
}

// TestEveryProblemIsDescribed: the document's problems have the codes of this server and no
// other, each with its status.
func TestEveryProblemIsDescribed(t *testing.T) {
	t.Parallel()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	var all describedProblem
	if err := json.Unmarshal(d.whole.Components.Schemas["Problem"], &all); err != nil {
		t.Fatal(err)
	}
	known := all.Properties.Code.Enum
	slices.Sort(known)
	if want := slices.Sorted(maps.Keys(codes)); !slices.Equal(known, want) {
		t.Errorf("the document's Problem has the codes %v, want %v", known, want)
	}
	for name, r := range d.whole.Components.Responses {
		own, err := d.problem(r)
		if err != nil {
			t.Fatalf("response %s: %v", name, err)
		}
		for _, code := range own.codes() {
			if codes[code].status != own.Status.Const {
				t.Errorf("response %s has %s as %d, which is %d", name, code, own.Status.Const, codes[code].status)
			}
		}
	}
}

// TestOperationsTellOfTheirProblems: an operation has the codes that it can answer, each under
// its status, and no other.
func TestOperationsTellOfTheirProblems(t *testing.T) {
	t.Parallel()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	for code := range codes {
		if _, ok := answeredAt[code]; !ok {
			t.Errorf("answeredAt does not say which operations answer %s", code)
		}
	}
	err = d.each(func(method, path string, op *describedOperation) {
		name := method + " " + path
		told := map[string]bool{}
		for status, r := range op.Responses {
			if _, ok := r.Content["application/problem+json"]; !ok {
				continue
			}
			own, err := d.problem(r)
			if err != nil {
				t.Fatalf("%s = %s: %v", name, status, err)
			}
			if strconv.Itoa(own.Status.Const) != status {
				t.Errorf("%s has the problem of %d as %s", name, own.Status.Const, status)
			}
			for _, code := range own.codes() {
				told[code] = true
			}
		}
		for code, answers := range answeredAt {
			if told[code] != answers(path, op) {
				t.Errorf("%s tells of %s: %t", name, code, told[code])
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// answeredAt says which operations answer a code.
var answeredAt = map[string]func(path string, op *describedOperation) bool{
	"unauthenticated": asksForToken,
	"forbidden":       asksForToken,
	"timeout":         asksForToken,
	"unavailable":     asksForToken,
	"internal":        func(string, *describedOperation) bool { return true },
	"rate-limited":    func(path string, op *describedOperation) bool { return asksForToken(path, op) && path != "/metrics" },
	"bad-query": func(path string, _ *describedOperation) bool {
		return strings.HasPrefix(path, "/api/") && path != "/api/v1/version" || strings.HasPrefix(path, "/jobs")
	},
	"malformed-json":         takesBody,
	"request-timeout":        takesBody,
	"payload-too-large":      takesBody,
	"unsupported-media-type": takesBody,
	"validation-failed":      takesBody,
	"not-found": func(path string, op *describedOperation) bool {
		return strings.Contains(path, "{") || only("createOperation", "replayDeadLetters", "discardDeadLetters")(path, op)
	},
	"method-not-allowed":        only(), // a path without an operation
	"schema-violation":          only("createJob", "createJobs", "editJob"),
	"idempotency-key-reused":    takesKey,
	"idempotency-key-in-flight": takesKey,
	"unique-conflict":           only("createJob", "createJobs", "replayDeadLetter"),
	"not-cancellable":           only("cancelJob"),
	"not-running":               only("stopJob"),
	"not-waiting":               only("runJobNow", "editJob"),
	"not-dead":                  only("replayDeadLetter", "discardDeadLetter", "restoreDeadLetter"),
	"already-replayed":          only("replayDeadLetter", "discardDeadLetter"),
	"version-conflict":          only("cancelJob", "stopJob", "runJobNow", "editJob", "replayDeadLetter", "discardDeadLetter", "restoreDeadLetter"),
	"precondition-required":     only("editJob"),
	"precondition-failed":       only("editJob"),
	"operation-state":           only("pauseOperation", "continueOperation", "stopOperation"),
	"count-moved":               only("createOperation", "replayDeadLetters", "discardDeadLetters"),
}

var takesKey = only("createJob", "createJobs", "stopJob", "runJobNow", "replayDeadLetter", "discardDeadLetter", "restoreDeadLetter", "replayDeadLetters", "discardDeadLetters", "createOperation",
	"pauseOperation", "continueOperation", "stopOperation")

func asksForToken(_ string, op *describedOperation) bool { return len(op.Security) > 0 }
func takesBody(_ string, op *describedOperation) bool    { return op.RequestBody != nil }

// only is for the operations of these ids, and their twins without a version.
func only(ids ...string) func(string, *describedOperation) bool {
	return func(_ string, op *describedOperation) bool {
		return slices.Contains(ids, strings.TrimSuffix(op.OperationID, "Unversioned"))
	}
}

// TestTheDocumentHoldsAnswersToTheTruth: what it does not describe fails, and what it does
// not.
func TestTheDocumentHoldsAnswersToTheTruth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := "/api/v1/jobs/" + s.enqueue(`{"type":"email"}`)
	good := s.do("GET", path, "")
	change := func(from, to string) string { return strings.Replace(good.body, from, to, 1) }
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		status             int
		header, value, was string
		passes             bool
	}{
		"the answer itself":         {200, "", "", good.body, true},
		"a refusal":                 {404, "Content-Type", problem, `{"type":"t","title":"t","status":404,"code":"not-found","instance":"/","request_id":"r"}`, true},
		"an unknown field":          {200, "", "", change(`{`, `{"surprise":1,`), false},
		"a field that is missing":   {200, "", "", change(`"version":`, `"Version":`), false},
		"a state that is none":      {200, "", "", change(`"pending"`, `"waiting"`), false},
		"a time that is none":       {200, "", "", change(`"created_at":"`, `"created_at":"x`), false},
		"an id that is none":        {200, "", "", change(`"id":"`, `"id":"x`), false},
		"no JSON":                   {200, "", "", good.body + "}", false},
		"another status":            {418, "", "", good.body, false},
		"another kind of content":   {200, "Content-Type", "text/html", good.body, false},
		"a header that is not told": {200, "Retry-After", "1", good.body, false},
		"a code of another route":   {404, "Content-Type", problem, `{"type":"t","title":"t","status":404,"code":"not-waiting","instance":"/","request_id":"r"}`, false},
	} {
		got := reply{t, c.status, good.header.Clone(), c.was}
		if c.status == http.StatusNotFound {
			got.header.Del("ETag")
		}
		if c.header != "" {
			got.header.Set(c.header, c.value)
		}
		if n := s.complaintsOf("GET", path, "", got); n == 0 != c.passes {
			t.Errorf("%s: %d complaints, passes: %t: %s", name, n, c.passes, c.was)
		}
	}
}

// TestTheDocumentHoldsRequestsToTheTruth: nothing is accepted that it does not allow.
func TestTheDocumentHoldsRequestsToTheTruth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.post(`{"type":"email"}`)
	path := "/api/v1/jobs/" + made.text("id")
	read, listed := s.do("GET", path, ""), s.do("GET", "/api/v1/jobs", "")
	edited := s.patch(made.text("id"), `{"priority":2}`, "If-Match", "*")
	ofJSON := []string{"Content-Type", "application/json"}
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		answer             reply
		passes             bool
	}{
		"a job":                     {"POST", "/api/v1/jobs", `{"type":"email","run_at":"2030-01-01T00:00:00Z"}`, ofJSON, made, true},
		"a list":                    {"GET", "/api/v1/jobs?status=pending,running&limit=5", "", nil, listed, true},
		"an edit":                   {"PATCH", path, `{"priority":"high"}`, append(ofJSON, "If-Match", "*"), edited, true},
		"an unknown field":          {"POST", "/api/v1/jobs", `{"type":"email","typ":1}`, ofJSON, made, false},
		"a field too few":           {"POST", "/api/v1/jobs", `{}`, ofJSON, made, false},
		"a time that is none":       {"POST", "/api/v1/jobs", `{"type":"email","run_at":"soon"}`, ofJSON, made, false},
		"no body":                   {"POST", "/api/v1/jobs", ``, ofJSON, made, false},
		"a form":                    {"POST", "/api/v1/jobs", `{"type":"email"}`, []string{"Content-Type", "text/plain"}, made, false},
		"a header that is too long": {"POST", "/api/v1/jobs", `{"type":"email"}`, append(ofJSON, "Idempotency-Key", strings.Repeat("k", 521)), made, false},
		"a header that is missing":  {"PATCH", path, `{"priority":"high"}`, ofJSON, edited, false},
		"an unknown parameter":      {"GET", path + "?surprise=1", "", nil, read, false},
		"a number that is none":     {"GET", "/api/v1/jobs?limit=x", "", nil, listed, false},
		"a number that is too high": {"GET", "/api/v1/jobs?limit=201", "", nil, listed, false},
		"a word that is none":       {"GET", "/api/v1/jobs?status=pending,waiting", "", nil, listed, false},
	} {
		if n := s.complaintsOf(c.method, c.path, c.body, c.answer, c.headers...); n == 0 != c.passes {
			t.Errorf("%s: %d complaints, passes: %t", name, n, c.passes)
		}
	}
}

// complaintsOf counts what the document has against a request and an answer.
func (s *site) complaintsOf(method, path, body string, got reply, headers ...string) int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	c := &complaints{TB: s.t}
	(&site{t: c, echo: s.echo}).asDescribed(r, got)
	return c.n
}

// complaints counts what would fail a test.
type complaints struct {
	testing.TB
	n int
}

func (c *complaints) Errorf(string, ...any) { c.n++ }

// TestTheDocumentIsReadOnce: who has it is not sent it again.
func TestTheDocumentIsReadOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.do("GET", "/api/v1/openapi.json", "")
	tag := first.header.Get("ETag")
	if first.status != http.StatusOK || tag == "" || first.body != string(openapi.Document()) {
		t.Fatalf("the document = %d, ETag %q, %d bytes", first.status, tag, len(first.body))
	}
	for _, given := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if again := s.do("GET", "/api/v1/openapi.json", "", "If-None-Match", given); again.status != http.StatusNotModified || again.body != "" || again.header.Get("ETag") != tag {
			t.Errorf("with If-None-Match %s = %d, %d bytes", given, again.status, len(again.body))
		}
	}
	if other := s.do("GET", "/api/v1/openapi.json", "", "If-None-Match", `"x"`); other.status != http.StatusOK {
		t.Errorf("with another's tag = %d", other.status)
	}
	s.do("GET", "/api/v1/openapi.json?x=1", "").refused("a query", http.StatusBadRequest, "bad-query", "x")
}
