package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// inTx runs do while a transaction of another client is open that has done what sql says, which then commits.
func (s *site) inTx(sql string, arg any, do func(commit func(more string))) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it has nothing to do
	if _, err := tx.Exec(ctx, sql, arg); err != nil {
		s.t.Fatal(err)
	}
	do(func(more string) {
		if _, err := tx.Exec(ctx, more, arg); err != nil {
			s.t.Error(err)
		}
		if err := tx.Commit(ctx); err != nil {
			s.t.Error(err)
		}
	})
}

// waitsForALock waits until somebody does.
func (s *site) waitsForALock() {
	for deadline := time.Now().Add(20 * time.Second); s.count("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Error("nobody waits for a lock")
			return
		}
	}
}

// TestEveryProblemHasARequestThatMeetsIt, and answers as the table of codes says. What a code needs of the world, it makes.
func TestEveryProblemHasARequestThatMeetsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	job := func() string { return s.enqueue(`{"type":"email"}`) }
	path := func(id string) string { return "/api/v1/jobs/" + id }
	away := func(change ...func(*Config)) *site { return newSite(t, change...) }
	met := map[string]bool{}
	for code, ask := range map[string]func() reply{
		"malformed-json":  func() reply { return s.post(`{"type":`) },
		"bad-query":       func() reply { return s.do("GET", "/api/v1/jobs?colour=red", "") },
		"unauthenticated": func() reply { return s.send("GET", "/api/v1/jobs", nil) },
		"forbidden":       func() reply { return s.do("GET", "/api/v1/jobs", "", "Host", "elsewhere.example") },
		"not-found":       func() reply { return s.do("GET", path(uuid.NewString()), "") },
		"method-not-allowed": func() reply {
			got := s.do("PUT", "/api/v1/jobs", "")
			if got.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			return got
		},
		"not-cancellable": func() reply { id := job(); s.run(id, 1001); return s.do("DELETE", path(id), "") },
		"not-running":     func() reply { return s.do("POST", path(job())+"/stop", "") },
		"not-waiting":     func() reply { id := job(); s.run(id, 1002); return s.do("POST", path(id)+"/run-now", "") },
		"not-dead":        func() reply { return s.do("POST", "/api/v1/dlq/"+job()+"/discard", "") },
		"already-replayed": func() reply {
			id := job()
			s.die(id, 1003)
			s.do("POST", "/api/v1/dlq/"+id+"/replay", "")
			return s.do("POST", "/api/v1/dlq/"+id+"/replay", "")
		},
		"version-conflict": func() (got reply) {
			id := job()
			tag := s.tag(id)
			s.inTx("SELECT FROM job_ready WHERE job_id = $1 FOR UPDATE", uuid.MustParse(id), func(commit func(string)) {
				answered := make(chan reply)
				go func() { answered <- s.patch(id, `{"priority":5}`, "If-Match", tag) }()
				s.waitsForALock()
				commit("UPDATE jobs SET version = version + 1 WHERE id = $1")
				got = <-answered
			})
			return got
		},
		"precondition-required": func() reply { return s.patch(job(), `{"priority":5}`) },
		"precondition-failed":   func() reply { return s.patch(job(), `{"priority":5}`, "If-Match", `"1"`) },
		"operation-state": func() reply {
			s.deadIn("steered", 2)
			id := s.ask("POST", operationsPath, `{"action":"replay","queue":"steered","pace":"rate","per_minute":1}`).text("id")
			return s.ask("POST", operationsPath+"/"+id+"/continue", "")
		},
		"count-moved": func() reply {
			s.deadIn("moved", 2)
			return s.ask("POST", operationsPath, `{"action":"replay","queue":"moved","expected":100}`)
		},
		"payload-too-large": func() reply { return s.post(`{"type":"email","payload":{"x":"` + strings.Repeat("y", 262144) + `"}}`) },
		"request-timeout": func() reply {
			hasty := away(func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
			return hasty.send("POST", "/api/v1/jobs", slowBody{}, "Authorization", "Bearer "+apiToken, "Content-Type", "application/json")
		},
		"unsupported-media-type": func() reply {
			return s.do("POST", "/api/v1/jobs", "type=email", "Content-Type", "application/x-www-form-urlencoded")
		},
		"validation-failed": func() reply { return s.post(`{"typ":"email"}`) },
		"schema-violation": func() reply {
			s.ask("PUT", "/api/v1/types/strict/schema", `{"schema":{"required":["to"]}}`)
			return s.post(`{"type":"strict"}`)
		},
		"idempotency-key-reused": func() reply {
			s.post(`{"type":"email"}`, "Idempotency-Key", "reused")
			return s.post(`{"type":"sms"}`, "Idempotency-Key", "reused")
		},
		"idempotency-key-in-flight": func() (got reply) {
			s.inTx("SELECT enqueue_job(type => 'email', idempotency_key => $1)", "flying", func(func(string)) {
				got = s.post(`{"type":"email"}`, "Idempotency-Key", "flying")
			})
			if got.header.Get("Retry-After") != "1" {
				t.Errorf("a key in flight: Retry-After %q", got.header.Get("Retry-After"))
			}
			return got
		},
		"unique-conflict": func() reply {
			s.post(`{"type":"email","unique":{"key":"u"}}`)
			return s.post(`{"type":"email","unique":{"key":"u","on_conflict":"reject"}}`)
		},
		"rate-limited": func() reply {
			few := away(func(c *Config) { c.RateLimit, c.RateWindow = 1, time.Hour })
			few.do("GET", "/api/v1/queues", "")
			return few.do("GET", "/api/v1/queues", "")
		},
		"timeout": func() (got reply) {
			hasty := away(func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
			id := hasty.enqueue(`{"type":"email"}`)
			hasty.inTx("SELECT FROM job_ready WHERE job_id = $1 FOR UPDATE", uuid.MustParse(id), func(func(string)) {
				got = hasty.do("DELETE", path(id), "")
			})
			return got
		},
		"unavailable": func() reply {
			gone := away()
			gone.pool.Close()
			return gone.post(`{"type":"email"}`)
		},
		"internal": func() reply {
			odd := away()
			odd.exec("ALTER TABLE jobs RENAME COLUMN payload TO cargo")
			return odd.post(`{"type":"email"}`)
		},
	} {
		known, ok := codes[code]
		if !ok {
			t.Errorf("%s is no code of this server", code)
			continue
		}
		got := ask()
		got.refused(code, known.status, code, "")
		if got.text("type") == "" || got.text("instance") == "" || !strings.HasSuffix(got.text("type"), "/help/problems/"+code) || got.text("title") != known.title {
			t.Errorf("%s: %s", code, got.body)
		}
		if wait, err := strconv.Atoi(got.header.Get("Retry-After")); (known.status == 429 || known.status == 503) && (err != nil || wait < 1) {
			t.Errorf("%s: Retry-After %q", code, got.header.Get("Retry-After"))
		}
		if got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", code, got.header)
		}
		met[code] = true
	}
	for code := range codes {
		if !met[code] {
			t.Errorf("no request here meets %s", code)
		}
	}
}

// TestHeadAndOptions: HEAD is GET without its body, OPTIONS lists the methods.
func TestHeadAndOptions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	for _, path := range []string{"/api/v1/jobs", "/api/v1/jobs/" + id, "/jobs/" + id, "/api/v1/queues", "/api/v1/version", "/healthz", "/readyz"} {
		get, head := s.do("GET", path, ""), s.do("HEAD", path, "")
		if head.status != 200 || head.body != "" || head.header.Get("Content-Type") != get.header.Get("Content-Type") || head.header.Get("ETag") != get.header.Get("ETag") {
			t.Errorf("HEAD %s = %d %q %v, GET has %v", path, head.status, head.body, head.header, get.header)
		}
	}
	if got := s.do("HEAD", "/api/v1/jobs/"+uuid.NewString(), ""); got.status != 404 || got.body != "" {
		t.Errorf("HEAD of no job = %d %q", got.status, got.body)
	}
	if got := s.do("HEAD", "/api/v1/jobs/"+id+"/run-now", ""); got.status != 405 || got.header.Get("Allow") == "" {
		t.Errorf("HEAD of an act = %d, Allow %q", got.status, got.header.Get("Allow"))
	}
	if log := s.log.String(); !strings.Contains(log, `"method":"HEAD"`) {
		t.Error("the log does not tell HEAD from GET")
	}
	got := s.do("OPTIONS", "/api/v1/jobs/"+id, "")
	if got.status != http.StatusNoContent || got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS = %d %v", got.status, got.header)
	}
	for _, m := range []string{"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"} {
		if !strings.Contains(got.header.Get("Allow"), m) {
			t.Errorf("OPTIONS: Allow is %q, want %s in it", got.header.Get("Allow"), m)
		}
	}
	s.send("OPTIONS", "/api/v1/jobs", nil).refused("OPTIONS without a token", 401, "unauthenticated", "")
}

// TestConditionalReads follows RFC 9110: lists of tags, weak ones, and any.
func TestConditionalReads(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	tag := s.tag(id)
	for given, status := range map[string]int{
		tag: 304, "W/" + tag: 304, "*": 304, `"other", ` + tag: 304, `"other",W/` + tag + ` , "more"`: 304,
		`"other"`: 200, strings.Trim(tag, `"`): 200, "": 200, `W/"other"`: 200, strings.ToUpper(tag): 200,
	} {
		got := s.do("GET", "/api/v1/jobs/"+id, "", "If-None-Match", given)
		if got.status != status || got.header.Get("ETag") != tag || (got.body == "") != (status == 304) {
			t.Errorf("If-None-Match %s = %d %q, want %d", given, got.status, got.body, status)
		}
	}
	// What is included has no tag of its own to be sure of.
	if got := s.do("GET", "/api/v1/jobs/"+id+"?include=attempts", "", "If-None-Match", "*"); got.status != 200 {
		t.Errorf("with attempts = %d", got.status)
	}
}

// TestCursorsAreSignedAndShared: what one server has signed another takes, and nobody else signs.
func TestCursorsAreSignedAndShared(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := newSiteOn(t, s.pool)
	var want []string
	for range 5 {
		want = append(want, s.enqueue(`{"type":"email"}`))
	}
	first := s.do("GET", "/api/v1/jobs?limit=2", "")
	cursor := first.text("next_cursor")
	second := other.do("GET", "/api/v1/jobs?limit=2&cursor="+url.QueryEscape(cursor), "")
	if second.status != 200 || second.text("data", "0", "id") != want[2] {
		t.Errorf("the next page of another server = %d %s", second.status, second.body)
	}
	for _, forged := range []string{cursor[:len(cursor)-2] + "AA", "eyJvZiI6IiJ9", "AAAA"} {
		if forged == cursor {
			continue
		}
		got := s.do("GET", "/api/v1/jobs?limit=2&cursor="+forged, "")
		got.refused("a forged cursor", 400, "bad-query", "cursor")
	}
	s.exec("UPDATE signing_secrets SET secret = sha256(secret)")
	if got := newSiteOn(t, s.pool).do("GET", "/api/v1/jobs?limit=2&cursor="+cursor, ""); got.status != 400 {
		t.Errorf("a cursor of the secret before = %d", got.status)
	}
	if log := s.log.String(); strings.Contains(log, cursor) {
		t.Error("the log has a cursor")
	}
}
