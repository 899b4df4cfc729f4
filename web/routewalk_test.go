package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// What a route asks of its caller, besides a scope or, in the console, a role.
const (
	isOpen   = "open"    // nothing
	anyToken = "a token" // whichever
)

// What a token limited to other queues gets at a route of the API, or a person at one
// of the console.
const (
	getsNever = "403, whatever the queues"
	gets403   = "403"
	gets404   = "404"
	getsEmpty = "an empty list"
	getsAll   = "all of it" // it tells of no queue
)

// routeRule is one route's line: what it needs; what a caller limited to the queue sms
// gets of what is in the queue mail, by query and body if a request needs them.
type routeRule struct {
	needs       string
	foreign     string
	query, body string
}

// routeRules classify every route: a new one fails the walk until it stands here.
// Routes of the console need a role, those of the API a scope.
var routeRules = map[string]routeRule{
	"GET /":               {needs: isOpen},
	"GET /healthz":        {needs: isOpen},
	"GET /readyz":         {needs: isOpen},
	"GET /metrics":        {needs: "jobs:read", foreign: gets403},
	"GET /api/v1/version": {needs: anyToken, foreign: getsAll}, "GET /api/v1/openapi.json": {needs: anyToken, foreign: getsAll},

	"POST /jobs": {needs: "jobs:write", foreign: gets403, body: `{"type":"email","queue":"mail"}`}, "POST /api/v1/jobs": {needs: "jobs:write", foreign: gets403, body: `{"type":"email","queue":"mail"}`},
	"GET /jobs": {needs: "jobs:read", foreign: gets403, query: "?queue=mail"}, "GET /api/v1/jobs": {needs: "jobs:read", foreign: gets403, query: "?queue=mail"},
	"GET /jobs/:id": {needs: "jobs:read", foreign: gets404}, "GET /api/v1/jobs/:id": {needs: "jobs:read", foreign: gets404},
	"DELETE /jobs/:id": {needs: "jobs:write", foreign: gets404}, "DELETE /api/v1/jobs/:id": {needs: "jobs:write", foreign: gets404},
	"POST /api/v1/jobs/:id/stop":    {needs: "jobs:write", foreign: gets404},
	"POST /api/v1/jobs/:id/run-now": {needs: "jobs:write", foreign: gets404},
	"GET /api/v1/jobs/:id/attempts": {needs: "jobs:read", foreign: gets404},
	"GET /api/v1/jobs/:id/logs":     {needs: "jobs:read", foreign: gets404},
	"GET /api/v1/jobs/:id/result":   {needs: "jobs:read", foreign: gets404},
	"GET /api/v1/jobs/:id/explain":  {needs: "jobs:read", foreign: gets404},
	"PATCH /api/v1/jobs/:id":        {needs: "jobs:write", foreign: gets404, body: `{"priority":3}`},
	"POST /api/v1/jobs/bulk":        {needs: "jobs:write", foreign: gets403, body: `{"jobs":[{"type":"email","queue":"mail"}]}`},
	"GET /api/v1/stats":             {needs: "jobs:read", foreign: gets403},

	"GET /api/v1/queues":       {needs: "jobs:read", foreign: getsEmpty},
	"GET /api/v1/queues/:name": {needs: "jobs:read", foreign: gets403},
	"GET /api/v1/workers":      {needs: "jobs:read", foreign: getsEmpty},
	"GET /api/v1/audit":        {needs: "jobs:read", foreign: gets403},

	"GET /api/v1/types/:type/schema":    {needs: "jobs:read", foreign: getsAll},
	"PUT /api/v1/types/:type/schema":    {needs: "admin", foreign: gets403, body: `{"schema":{}}`},
	"DELETE /api/v1/types/:type/schema": {needs: "admin", foreign: gets403},

	"GET /api/v1/dlq":              {needs: "jobs:read", foreign: gets403, query: "?queue=mail"},
	"GET /api/v1/dlq/:id":          {needs: "jobs:read", foreign: gets404},
	"POST /api/v1/dlq/:id/replay":  {needs: "dlq:write", foreign: gets404},
	"POST /api/v1/dlq/:id/discard": {needs: "dlq:write", foreign: gets404},
	"POST /api/v1/dlq/:id/restore": {needs: "dlq:write", foreign: gets404},
	"POST /api/v1/dlq/replay":      {needs: "dlq:write", foreign: gets403, body: `{"queue":"mail","dry_run":true}`},
	"POST /api/v1/dlq/discard":     {needs: "dlq:write", foreign: gets403, body: `{"queue":"mail","dry_run":true}`},

	// These ask for the scope of the act: here it is a replay's.
	"POST /api/v1/operations":              {needs: "dlq:write", foreign: gets403, body: `{"action":"replay","queue":"mail","dry_run":true}`},
	"POST /api/v1/operations/:id/pause":    {needs: "dlq:write", foreign: gets404},
	"POST /api/v1/operations/:id/continue": {needs: "dlq:write", foreign: gets404},
	"POST /api/v1/operations/:id/stop":     {needs: "dlq:write", foreign: gets404},
	"GET /api/v1/operations":               {needs: "jobs:read", foreign: getsEmpty},
	"GET /api/v1/operations/:id":           {needs: "jobs:read", foreign: gets404},

	"GET /console/static/*": {needs: isOpen}, "GET /console/login": {needs: isOpen}, "POST /console/login": {needs: isOpen}, "POST /console/logout": {needs: isOpen},
	"GET /console": {needs: "viewer", foreign: getsAll}, "GET /console/": {needs: "viewer", foreign: getsAll}, "* /console/*": {needs: "viewer", foreign: gets404},
	"GET /console/jobs": {needs: "viewer", foreign: getsAll}, "GET /console/jobs/:id": {needs: "viewer", foreign: gets404}, "GET /console/jobs/:id/payload": {needs: "viewer", foreign: gets404},
	"GET /console/jobs/:id/result": {needs: "viewer", foreign: gets404}, "GET /console/queues": {needs: "viewer", foreign: getsAll}, "GET /console/queues/:name": {needs: "viewer", foreign: gets403},
	"GET /console/types": {needs: "viewer", foreign: getsAll}, "GET /console/types/:type": {needs: "viewer", foreign: gets404},
	"GET /console/dlq": {needs: "viewer", foreign: getsAll}, "GET /console/dlq/groups/:fingerprint": {needs: "viewer", foreign: gets404},
	"GET /console/operations": {needs: "viewer", foreign: getsAll}, "GET /console/operations/:id": {needs: "viewer", foreign: gets404},
	"GET /console/workers": {needs: "viewer", foreign: getsAll}, "GET /console/workers/:id": {needs: "viewer", foreign: gets404},
	"GET /console/audit": {needs: "viewer", foreign: getsNever}, "GET /console/system": {needs: "viewer", foreign: getsNever},
	"GET /console/help": {needs: "viewer", foreign: getsAll}, "GET /console/help/api": {needs: "viewer", foreign: getsAll}, "GET /console/help/api/schemas": {needs: "viewer", foreign: getsAll}, "GET /console/help/problems/:code": {needs: "viewer", foreign: getsAll}, "POST /console/display": {needs: "viewer", foreign: getsAll},
	"GET /console/jobs/new": {needs: "operator", foreign: getsAll}, "POST /console/jobs": {needs: "operator", foreign: gets403, body: "type=email&queue=mail"},
	"POST /console/jobs/:id/run-now": {needs: "operator", foreign: gets404}, "GET /console/jobs/:id/reveal": {needs: "operator", foreign: gets404}, "POST /console/jobs/:id/reveal": {needs: "operator", foreign: gets404},
	"GET /console/jobs/:id/cancel": {needs: "operator", foreign: gets404}, "POST /console/jobs/:id/cancel": {needs: "operator", foreign: gets404},
	"GET /console/jobs/:id/stop": {needs: "operator", foreign: gets404}, "POST /console/jobs/:id/stop": {needs: "operator", foreign: gets404},
	"POST /console/dlq/:id/replay": {needs: "operator", foreign: gets404}, "POST /console/dlq/:id/restore": {needs: "operator", foreign: gets404},
	"GET /console/dlq/:id/discard": {needs: "operator", foreign: gets404}, "POST /console/dlq/:id/discard": {needs: "operator", foreign: gets404},
	"GET /console/operations/new": {needs: "operator", foreign: gets403, query: "?action=replay&queue=mail"},
	"POST /console/operations":    {needs: "operator", foreign: gets403, body: "action=replay&queue=mail&pace=all&expected=1&reason=x"}, "POST /console/operations/:id/pause": {needs: "operator", foreign: gets404},
	"POST /console/operations/:id/continue": {needs: "operator", foreign: gets404}, "POST /console/operations/:id/stop": {needs: "operator", foreign: gets404},

	// What is a person's own has no queue. The one session that a path names here is nobody's.
	"GET /console/account": {needs: "viewer", foreign: getsAll}, "POST /console/account/extend": {needs: "viewer", foreign: getsAll}, "POST /console/account/password": {needs: "viewer", foreign: getsAll},
	"POST /console/account/sessions/end-others": {needs: "viewer", foreign: getsAll}, "POST /console/account/sessions/:id/end": {needs: "viewer", foreign: gets404},

	"GET /console/access": {needs: "admin", foreign: getsNever}, "GET /console/access/users": {needs: "admin", foreign: getsNever}, "POST /console/access/users": {needs: "admin", foreign: getsNever},
	"GET /console/access/new-user": {needs: "admin", foreign: getsNever}, "GET /console/access/users/:name": {needs: "admin", foreign: getsNever},
	"GET /console/access/users/:name/edit": {needs: "admin", foreign: getsNever}, "POST /console/access/users/:name/edit": {needs: "admin", foreign: getsNever},
	"GET /console/access/users/:name/disable": {needs: "admin", foreign: getsNever}, "POST /console/access/users/:name/disable": {needs: "admin", foreign: getsNever},
	"GET /console/access/users/:name/enable": {needs: "admin", foreign: getsNever}, "POST /console/access/users/:name/enable": {needs: "admin", foreign: getsNever},
	"GET /console/access/users/:name/password": {needs: "admin", foreign: getsNever}, "POST /console/access/users/:name/password": {needs: "admin", foreign: getsNever},
	"GET /console/access/users/:name/end-sessions": {needs: "admin", foreign: getsNever}, "POST /console/access/users/:name/end-sessions": {needs: "admin", foreign: getsNever},
	"GET /console/access/tokens": {needs: "admin", foreign: getsNever}, "POST /console/access/tokens": {needs: "admin", foreign: getsNever}, "GET /console/access/new-token": {needs: "admin", foreign: getsNever},
	"GET /console/access/tokens/:id/revoke": {needs: "admin", foreign: getsNever}, "POST /console/access/tokens/:id/revoke": {needs: "admin", foreign: getsNever},
}

// routeKey is a route's line in the table. What the console answers with "no such
// page", whatever the method, is one.
func routeKey(method, path string) string {
	if path == "/console/*" || method == "echo_route_not_found" {
		return "* /console/*"
	}
	return method + " " + path
}

// walk is a server that asks for tokens and for people to sign in, something to act
// on in the queue mail, and a caller of each kind.
type walk struct {
	*site
	tokens           *access.Tokens
	dead, operation  string
	scoped, sessions map[string]string // tokens by scope, cookies by role
	revoked          string
	mail, sms        string // admins limited to one queue
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	people, accounts := newGuarded(t)
	w := &walk{tokens: access.NewTokens(people.pool, nil), scoped: map[string]string{}, sessions: map[string]string{}}
	w.site = newConsoleOn(t, people.pool, func(c *Config) { c.Token, c.Accounts, c.Tokens = apiToken, accounts, w.tokens })
	w.exec("INSERT INTO workers (name, hostname, pid, version, queues, types, slots, lease_ms) VALUES ('w1', 'h', 1, 'v1', '{mail}', '{email}', 4, 30000)")
	w.exec("INSERT INTO job_types (type, schema, version, updated_by) VALUES ('email', '{}', 1, 'test')")
	w.refill()
	w.operation = w.ask("POST", operationsPath, `{"action":"replay","queue":"mail","pace":"rate","per_minute":1}`).text("id")
	for _, s := range access.Scopes() {
		w.scoped[string(s)], _ = w.token(access.TokenSpec{Name: "scope-" + strings.ReplaceAll(string(s), ":", "-"), Scopes: []access.Scope{s}})
	}
	w.mail, _ = w.token(access.TokenSpec{Name: "mail", Scopes: []access.Scope{access.ScopeAdmin}, Queues: []string{"mail"}})
	w.sms, _ = w.token(access.TokenSpec{Name: "sms", Scopes: []access.Scope{access.ScopeAdmin}, Queues: []string{"sms"}})
	var gone access.Token
	w.revoked, gone = w.token(access.TokenSpec{Name: "gone", Scopes: []access.Scope{access.ScopeAdmin}})
	ctx, cancel := shortly()
	defer cancel()
	if err := w.tokens.Revoke(ctx, gone.ID, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, r := range access.Roles() {
		w.sessions[string(r)] = w.signIn("the-" + string(r))
	}
	return w
}

func (w *walk) token(spec access.TokenSpec) (string, access.Token) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	secret, made, err := w.tokens.Create(ctx, spec, engine.Actor{Name: "test"})
	if err != nil {
		w.t.Fatalf("create token %s: %v", spec.Name, err)
	}
	return secret, made
}

// refill makes a dead letter for the routes that act on one.
func (w *walk) refill() { w.dead = w.deadIn("mail", 1)[0] }

func (w *walk) path(route string) string {
	id := w.dead
	if strings.Contains(route, "/operations/:id") {
		id = w.operation
	}
	return fill(route, id)
}

// call sends a request to a route of the API; token may be empty.
func (w *walk) call(method, route, token string) reply {
	w.t.Helper()
	rule := routeRules[routeKey(method, route)]
	headers := []string{"Content-Type", "application/json", "If-Match", "*"}
	if token != "" {
		headers = append(headers, "Authorization", "Bearer "+token)
	}
	return w.send(method, w.path(route)+rule.query, strings.NewReader(rule.body), headers...)
}

// eachRoute walks the router's own table.
func (w *walk) eachRoute(console bool, do func(method, path string, rule routeRule)) {
	w.t.Helper()
	walked, left := 0, maps.Clone(routeRules)
	for _, r := range w.echo.Routes() {
		rule, classified := routeRules[routeKey(r.Method, r.Path)]
		delete(left, routeKey(r.Method, r.Path))
		switch {
		case !classified:
			w.t.Errorf("%s %s is not classified: say in routeRules what it needs", r.Method, r.Path)
		case strings.HasPrefix(r.Path, "/console") == console && r.Method != "echo_route_not_found" && r.Method != http.MethodConnect:
			walked++
			do(r.Method, r.Path, rule)
		}
	}
	if walked < 25 || len(left) > 0 {
		w.t.Errorf("only %d routes walked; classified, but no route: %v", walked, slices.Collect(maps.Keys(left)))
	}
}

// TestEveryRouteOfTheAPIAsksForItsScope walks the router's own table with no token, one
// that is unknown, one that was revoked, and one of each scope.
func TestEveryRouteOfTheAPIAsksForItsScope(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.eachRoute(false, func(method, path string, rule routeRule) {
		for name, token := range map[string]string{"no token": "", "an unknown token": "rje_" + strings.Repeat("0", 40), "a revoked token": w.revoked} {
			got := w.call(method, path, token)
			if (got.status == http.StatusUnauthorized) != (rule.needs != isOpen) {
				t.Errorf("%s %s with %s = %d, it needs %s", method, path, name, got.status, rule.needs)
			}
			if rule.needs == isOpen {
				continue
			}
			got.refused(method+" "+path, http.StatusUnauthorized, "unauthenticated", "")
			challenge := got.header.Get("WWW-Authenticate")
			if !strings.HasPrefix(challenge, "Bearer ") || strings.Contains(challenge, "invalid_token") != (token != "") {
				t.Errorf("%s %s with %s challenges with %q", method, path, name, challenge)
			}
		}
		for scope, token := range w.scoped {
			w.refill()
			got := w.call(method, path, token)
			if rule.needs == isOpen || rule.needs == anyToken || access.Scope(scope).Allows(access.Scope(rule.needs)) {
				if got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
					t.Errorf("%s %s with %s = %d %s, want to be let in", method, path, scope, got.status, got.body)
				}
				continue
			}
			got.refused(method+" "+path+" with "+scope, http.StatusForbidden, "forbidden", "")
			if got.text("scope") != rule.needs || !strings.Contains(got.text("detail"), rule.needs) ||
				!strings.Contains(got.header.Get("WWW-Authenticate"), `error="insufficient_scope", scope="`+rule.needs+`"`) {
				t.Errorf("%s %s with %s does not name the scope %s: %s %v", method, path, scope, rule.needs, got.body, got.header)
			}
		}
	})
}

// TestAnOperationAsksForTheScopeOfItsAct, when it is made and when it is steered.
func TestAnOperationAsksForTheScopeOfItsAct(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	as := func(scope, path, body string) reply {
		return w.send("POST", operationsPath+path, strings.NewReader(body), "Content-Type", "application/json", "Authorization", "Bearer "+w.scoped[scope])
	}
	for action, needs := range map[string]string{"replay": "dlq:write", "discard": "dlq:write", "cancel": "jobs:write", "run_now": "jobs:write"} {
		w.enqueue(`{"type":"` + action + `","queue":"mail","delay_seconds":3600}`)
		if needs == "dlq:write" {
			w.refill()
		}
		var id string
		for _, scope := range []string{"jobs:read", "jobs:write", "queues:write", "dlq:write"} {
			got := as(scope, "", `{"action":"`+action+`","queue":"mail","pace":"rate","per_minute":1}`)
			if scope == needs {
				id = got.text("id")
				if got.status != http.StatusAccepted {
					t.Errorf("%s with %s = %d %s", action, scope, got.status, got.body)
				}
				continue
			}
			if got.refused(action+" with "+scope, http.StatusForbidden, "forbidden", ""); got.text("scope") != needs {
				t.Errorf("%s with %s asks for the scope %s, want %s", action, scope, got.text("scope"), needs)
			}
		}
		for _, scope := range []string{"jobs:read", "jobs:write", "queues:write", "dlq:write"} {
			if got := as(scope, "/"+id+"/pause", ""); (got.status == http.StatusForbidden) != (scope != needs) {
				t.Errorf("pause of a %s with %s = %d %s", action, scope, got.status, got.body)
			}
		}
	}
}

// TestATokenOfOtherQueuesTouchesNothing walks the same table with a token that may do
// everything, in another queue.
func TestATokenOfOtherQueuesTouchesNothing(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	before := w.fingerprint() + fmt.Sprint(w.count("SELECT count(*) FROM operations WHERE state <> 'running'"))
	w.eachRoute(false, func(method, path string, rule routeRule) {
		if rule.needs == isOpen {
			return
		}
		got := w.call(method, path, w.sms)
		switch rule.foreign {
		case gets403, gets404:
			want, code := http.StatusForbidden, "forbidden"
			if rule.foreign == gets404 {
				want, code = http.StatusNotFound, "not-found"
			}
			got.refused(method+" "+path, want, code, "")
			if want == http.StatusForbidden && !strings.Contains(got.text("detail"), "limited to: sms.") {
				t.Errorf("%s %s does not tell the token's queues: %s", method, path, got.body)
			}
		case getsEmpty:
			if list, ok := got.field("data").([]any); got.status != http.StatusOK || !ok || len(list) != 0 {
				t.Errorf("%s %s = %d %s, want an empty list", method, path, got.status, got.body)
			}
		case getsAll:
			if got.status != http.StatusOK {
				t.Errorf("%s %s = %d %s", method, path, got.status, got.body)
			}
		default:
			t.Errorf("%s %s: routeRules does not say what a token of other queues gets", method, path)
		}
		if strings.Contains(got.body, w.dead) && rule.foreign != gets404 {
			t.Errorf("%s %s tells of a job of another queue: %s", method, path, got.body)
		}
	})
	if after := w.fingerprint() + fmt.Sprint(w.count("SELECT count(*) FROM operations WHERE state <> 'running'")); after != before {
		t.Errorf("walking with a token of other queues changed %q to %q", before, after)
	}
	// In its own queue the same token is let in, and sees what is there.
	w.eachRoute(false, func(method, path string, rule routeRule) {
		if rule.needs == isOpen || path == "/metrics" || path == "/api/v1/audit" || path == "/api/v1/stats" || rule.needs == "admin" { // they tell of every queue
			return
		}
		w.refill()
		got := w.call(method, path, w.mail)
		ok := got.status < 300 || got.status == http.StatusConflict || strings.Contains(got.text("detail"), "kept no result")
		if list, isList := got.field("data").([]any); !ok || isList && len(list) == 0 && !strings.HasSuffix(path, "/attempts") && !strings.HasSuffix(path, "/logs") {
			t.Errorf("%s %s in the token's own queue = %d %s", method, path, got.status, got.body)
		}
	})
}

// TestALimitedTokenCannotReachAroundItsQueues tries what names no queue.
func TestALimitedTokenCannotReachAroundItsQueues(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	both, _ := w.token(access.TokenSpec{Name: "both", Scopes: []access.Scope{access.ScopeAdmin}, Queues: []string{"mail", "sms"}})
	held := w.enqueue(`{"type":"email","queue":"mail","unique":{"key":"k","scope":"global"}}`)
	w.exec("INSERT INTO workers (name, hostname, pid, version, queues, types, slots, lease_ms) VALUES ('w2', 'h', 2, 'v1', '{mail,billing}', '{email}', 4, 30000)")
	before := w.fingerprint()
	as := func(token, method, path, body string) reply {
		return w.send(method, path, strings.NewReader(body), "Content-Type", "application/json", "Authorization", "Bearer "+token)
	}
	for _, c := range []struct{ token, method, path, body, says string }{
		{w.sms, "POST", "/api/v1/jobs", `{"type":"email"}`, "Queue default is another's."},
		{w.sms, "POST", "/api/v1/jobs", `{"type":"email","queue":"sms","unique":{"key":"k","scope":"global","on_conflict":"replace"}}`, `the scope \"queue\"`},
		{w.sms, "POST", "/api/v1/jobs", `{"type":"email","queue":"sms","unique":{"key":"k"}}`, `the scope \"queue\"`},
		{both, "GET", "/api/v1/jobs", "", "Give queue="},
		{both, "GET", "/api/v1/dlq", "", "Give queue="},
		{both, "GET", "/api/v1/jobs?type=email", "", "Give queue="},
		{both, "GET", "/api/v1/jobs?q=type:email", "", "Give queue="},
		{both, "GET", "/jobs?q=queue:mail", "", "Give queue="},
		{w.sms, "GET", "/api/v1/jobs?queue=mail&queue=sms", "", "Queue mail is another's."},
		{w.sms, "POST", operationsPath, `{"action":"cancel","type":"email"}`, "Select by queue"},
		{w.sms, "POST", operationsPath, `{"action":"discard","ids":["` + w.dead + `"]}`, "Select by queue"},
		{w.sms, "POST", "/api/v1/dlq/discard", `{"ids":["` + w.dead + `"]}`, "Select by queue"},
	} {
		got := as(c.token, c.method, c.path, c.body)
		got.refused(c.method+" "+c.path+" "+c.body, http.StatusForbidden, "forbidden", "")
		if !strings.Contains(got.body, c.says) {
			t.Errorf("%s %s %s says %s, want %q in it", c.method, c.path, c.body, got.body, c.says)
		}
	}
	w.unchanged("reaching around", before)
	as(both, "GET", "/api/v1/jobs?queue=sms&queue=mail", "").refused("a queue beside another", http.StatusBadRequest, "bad-query", "queue")
	as(both, "GET", "/api/v1/jobs?queue=sms&q=queue:billing", "").refused("a search beside a queue", http.StatusBadRequest, "bad-query", "")
	// Keys are of one name space; another queue is other content, so that its job is not the answer.
	w.enqueue(`{"type":"email","queue":"mail"}`, "Idempotency-Key", "of-mail")
	before = w.fingerprint()
	keyed := w.send("POST", "/api/v1/jobs", strings.NewReader(`{"type":"email","queue":"sms"}`), "Content-Type", "application/json", "Authorization", "Bearer "+w.sms, "Idempotency-Key", "of-mail")
	keyed.refused("a key of another queue's job", http.StatusUnprocessableEntity, "idempotency-key-reused", "")
	// Ids of others' jobs beside a queue of its own select nothing.
	as(w.sms, "POST", operationsPath, `{"action":"discard","queue":"sms","ids":["`+w.dead+`"]}`).refused("foreign ids", http.StatusNotFound, "not-found", "")
	w.unchanged("keys and ids of another queue's jobs", before)
	mine := as(w.sms, "POST", "/api/v1/jobs", `{"type":"email","queue":"sms","unique":{"key":"k","scope":"queue"}}`)
	if mine.status != http.StatusCreated || mine.text("id") == held {
		t.Errorf("a key of its own queue = %d %s", mine.status, mine.body)
	}
	workers := as(w.mail, "GET", "/api/v1/workers", "")
	if strings.Contains(workers.body, "billing") || strings.Count(workers.body, `"queues":["mail"]`) != 2 {
		t.Errorf("workers tell of other queues: %s", workers.body)
	}
	if got := as(both, "GET", "/api/v1/jobs?queue=sms", ""); got.text("data", "0", "id") != mine.text("id") {
		t.Errorf("its own queue lists %s", got.body)
	}
	if n := w.count("SELECT count(*) FROM operator_actions WHERE actor = 'token:sms' AND target_kind <> 'token'"); n != 0 {
		t.Errorf("%d acts", n)
	}
	as(w.sms, "DELETE", "/api/v1/jobs/"+mine.text("id"), "")
	if n := w.count("SELECT count(*) FROM operator_actions WHERE actor = 'token:sms' AND action = 'cancel' AND source = 'api'"); n != 1 {
		t.Errorf("%d acts of the token in the trail, want its one", n)
	}
}

// TestEveryPageAsksForItsRole walks the console's routes with no session, with a token of
// the API, and with a session of each role.
func TestEveryPageAsksForItsRole(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	roles := []string{"viewer", "operator", "admin"}
	w.eachRoute(true, func(method, path string, rule routeRule) {
		form := func(headers ...string) reply {
			return w.send(method, w.path(path), strings.NewReader("reason=x"), append([]string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}, headers...)...)
		}
		if rule.needs == isOpen {
			if got := form(); path != "/console/login" && got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
				t.Errorf("%s %s without a session = %d, want to be let in", method, path, got.status)
			}
			return
		}
		for name, headers := range map[string][]string{"no session": nil, "a token of the API": {"Authorization", "Bearer " + w.scoped["admin"]}, "a forged session": {"Cookie", "session=forged"}} {
			if got := form(headers...); got.status != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Location"), "/console/login") {
				t.Errorf("%s %s with %s = %d to %q, want the page to sign in", method, path, name, got.status, got.header.Get("Location"))
			}
		}
		for rank, role := range roles {
			w.refill()
			got := form("Cookie", w.sessions[role])
			if got.status == http.StatusForbidden && !strings.Contains(got.body, "needs the role "+rule.needs) {
				t.Errorf("%s %s as %s does not name the role %s: %.300s", method, path, role, rule.needs, plainText(got.body))
			}
			refused := got.status == http.StatusUnauthorized || got.status == http.StatusForbidden || strings.HasPrefix(got.header.Get("Location"), "/console/login")
			if may := rank >= slices.Index(roles, rule.needs); refused == may {
				t.Errorf("%s %s as %s = %d, it needs %s", method, path, role, got.status, rule.needs)
			}
		}
	})
}

// TestTokensWithoutABootstrapToken: once people sign in, the API asks for a token, and one
// of the database is enough. The metrics' own token is the only one there.
func TestTokensWithoutABootstrapToken(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	w := &walk{tokens: access.NewTokens(pool, nil)}
	accounts := access.New(access.Config{Pool: pool})
	w.site = newConsoleOn(t, pool, func(c *Config) { c.Accounts, c.Tokens, c.MetricsToken = accounts, w.tokens, "of-the-metrics-alone" })
	if got := w.call("GET", "/api/v1/queues", ""); got.status != http.StatusOK {
		t.Errorf("while nobody has an account = %d %s", got.status, got.body)
	}
	if _, err := accounts.Create(t.Context(), access.UserSpec{Name: "ann", Password: password, Role: access.RoleAdmin}, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	token, _ := w.token(access.TokenSpec{Name: "ci", Scopes: []access.Scope{access.ScopeAdmin}})
	w.call("GET", "/api/v1/queues", "").refused("without a token", http.StatusUnauthorized, "unauthenticated", "")
	w.call("GET", "/api/v1/queues", apiToken).refused("with a token that was never made", http.StatusUnauthorized, "unauthenticated", "")
	if got := w.call("GET", "/api/v1/queues", token); got.status != http.StatusOK {
		t.Errorf("with a token of the database = %d %s", got.status, got.body)
	}
	w.call("GET", "/metrics", token).refused("the metrics with another's token", http.StatusUnauthorized, "unauthenticated", "")
	if got := w.call("GET", "/metrics", "of-the-metrics-alone"); got.status != http.StatusOK {
		t.Errorf("the metrics with their own token = %d", got.status)
	}
	w.call("GET", "/api/v1/queues", "of-the-metrics-alone").refused("the metrics' token elsewhere", http.StatusUnauthorized, "unauthenticated", "")
}

// TestATokenIsNotJudgedWithoutADatabase: who cannot be asked for is no stranger.
func TestATokenIsNotJudgedWithoutADatabase(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.pool.Close()
	for name, token := range map[string]string{"a token": w.scoped["jobs:read"], "an unknown token": "rje_" + strings.Repeat("0", 40)} {
		got := w.call("GET", "/api/v1/jobs/:id", token)
		got.refused(name, http.StatusServiceUnavailable, "unavailable", "")
	}
}
