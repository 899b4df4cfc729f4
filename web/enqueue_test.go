package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestA1BrokenUnicodeIsRefusedByName is pitfall A1: 422 with the field, no row, and
// a connection that still works.
func TestA1BrokenUnicodeIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for body, place := range map[string]string{
		`{"type":"email","payload":{"a":{"b":"x\u0000y"}}}`: "/payload/a/b",
		`{"type":"email","payload":{"a":["\ud83d"]}}`:       "/payload/a/0",
		`{"type":"email","payload":{"a":"\ude00\ud83d"}}`:   "/payload/a",
		`{"type":"email","payload":{"k\u0000":1}}`:          "",
		`{"type":"email","payload":{"\udead":1}}`:           "",
		`{"type":"em\u0000ail"}`:                            "/type",
		`{"type":"email","queue":"\ud800"}`:                 "/queue",
		`{"type":"email","idempotency_key":"k\u0000"}`:      "/idempotency_key",
		`{"type":"email","idempotency_key":"\udfff"}`:       "/idempotency_key",
		`{"type":"email","tags":["ok","\u0000"]}`:           "/tags",
		`{"type":"email","traceparent":"\u0000"}`:           "/traceparent",
		`{"type":"email","run_at":"\u0000"}`:                "/run_at",
	} {
		s.post(body).refused(body, http.StatusUnprocessableEntity, "validation-failed", place)
	}
	s.post(`{"type":"email"}`, "Idempotency-Key", "k\u0085").refused("a key with a control character", 422, "validation-failed", "/idempotency_key")
	s.post(`{"type":"email"}`, "Idempotency-Key", "k\xff").refused("a key that is not UTF-8", 422, "validation-failed", "Idempotency-Key")
	s.nothingStored()
	for _, body := range []string{`{"type":"email","payload":{"a":"\\u0000","b":"\\ud83d","c":"\ud83d\ude00","\\u0000":1}}`} {
		id := s.enqueue(body)
		if got := s.do("GET", "/api/v1/jobs/"+id, ""); got.text("payload", "a") != `\u0000` || got.text("payload", "c") != "😀" {
			t.Errorf("payload came back as %s", got.body)
		}
	}
}

// TestA2NumbersComeBackDigitForDigit is pitfall A2.
func TestA2NumbersComeBackDigitForDigit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email","payload":{"a":1970670598291982290,"b":12345678901234567890123,"c":[0.1000],"d":-0.5e3}}`)
	want := []string{`1970670598291982290`, `12345678901234567890123`, `0.1000`, `-500`}
	check := func(where, body string) {
		t.Helper()
		for _, n := range want {
			if !strings.Contains(body, n) {
				t.Errorf("%s lacks %s: %s", where, n, body)
			}
		}
	}
	check("the job", s.do("GET", "/api/v1/jobs/"+id, "").body)
	check("the list", s.do("GET", "/api/v1/jobs", "").body)
	s.die(id, 5)
	check("the dead letter", s.do("GET", "/api/v1/dlq/"+id, "").body)
	check("the replay", s.do("POST", "/api/v1/dlq/"+id+"/replay", "").body)
	done := s.enqueue(`{"type":"email"}`)
	s.run(done, 6)
	s.end(done, 6, 1)
	s.exec(`UPDATE job_executions SET result = '{"a":1970670598291982290,"b":12345678901234567890123,"c":0.1000,"d":-500}' WHERE job_id = $1`, uuid.MustParse(done))
	check("the result", s.do("GET", "/api/v1/jobs/"+done+"/result", "").body)
	check("the included result", s.do("GET", "/api/v1/jobs/"+done+"?include=result,attempts", "").body)
}

// TestA4ExtremeDates is pitfall A4: the horizon is ten years ahead.
func TestA4ExtremeDates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for field, place := range map[string]string{
		`"run_at":"0001-01-01T00:00:00Z"`: "/run_at", `"run_at":"9999-12-31T23:59:59Z"`: "/run_at", `"run_at":"294277-01-01T00:00:00Z"`: "/run_at",
		`"run_at":"2026-12-01T06:00:00"`: "/run_at", `"run_at":"2026-12-01"`: "/run_at", `"run_at":1764568800`: "/run_at", `"run_at":""`: "/run_at",
		`"run_at":null`: "/run_at", `"run_at":"2026-13-01T00:00:00Z"`: "/run_at", `"run_at":"1969-12-31T23:59:59Z"`: "/run_at", `"run_at":"-infinity"`: "/run_at",
		`"scheduled_at":"0000-00-00T00:00:00Z"`: "/scheduled_at", `"delay_seconds":-1`: "/delay_seconds", `"delay_seconds":9223372036854775807`: "/delay_seconds",
		`"delay_seconds":1e18`: "/delay_seconds", `"delay_seconds":1e400`: "/delay_seconds", `"delay_seconds":-1e400`: "/delay_seconds", `"delay_seconds":400000000`: "/delay_seconds",
		`"delay_seconds":"60"`: "/delay_seconds", `"delay_seconds":null`: "/delay_seconds", `"expires_at":"0001-01-01T00:00:00Z"`: "/expires_at",
		`"expires_at":"9999-01-01T00:00:00Z"`: "/expires_at", `"expires_at":"2001-01-01T00:00:00Z"`: "/expires_at", `"timeout_seconds":0`: "/timeout_seconds",
		`"timeout_seconds":-5`: "/timeout_seconds", `"timeout_seconds":1e30`: "/timeout_seconds", `"timeout_seconds":604801`: "/timeout_seconds", `"timeout_seconds":0.0001`: "/timeout_seconds",
		`"run_at":"2026-12-01T06:00:00Z","delay_seconds":5`: "/delay_seconds", `"run_at":"2026-12-01T06:00:00Z","scheduled_at":"2026-12-01T06:00:00Z"`: "/scheduled_at",
	} {
		s.post(`{"type":"email",`+field+`}`).refused(field, http.StatusUnprocessableEntity, "validation-failed", place)
	}
	s.nothingStored()
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	got := s.post(`{"type":"email","scheduled_at":"` + soon.In(time.FixedZone("", -7*3600)).Format(time.RFC3339) + `"}`)
	if got.status != 201 || got.text("run_at") != soon.Format(time.RFC3339) {
		t.Errorf("scheduled_at with an offset = %d %s, want run_at %s", got.status, got.body, soon.Format(time.RFC3339))
	}
	for _, field := range []string{`"run_at":"1970-01-01T00:00:00Z"`, `"delay_seconds":0`, `"delay_seconds":315000000`, `"timeout_seconds":604800`} {
		if got := s.post(`{"type":"email",` + field + `}`); got.status != 201 {
			t.Errorf("%s = %d %s, want 201", field, got.status, got.body)
		}
	}
}

// TestA5LargeBodies is pitfall A5.
func TestA5LargeBodies(t *testing.T) {
	t.Parallel()
	const limit = 4096
	pool := newPool(t)
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool, PayloadMaxBytes: limit})
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	s := newSiteOn(t, pool, func(c *Config) { c.Engine, c.PayloadMaxBytes = client, limit })
	sized := func(n int) string { return `{"x":"` + strings.Repeat("y", n-8) + `"}` }
	for _, n := range []int{limit - 1, limit} {
		s.enqueue(`{"type":"email","payload":` + sized(n) + `}`)
	}
	tooLarge := func(what string, r reply) { r.refused(what, http.StatusRequestEntityTooLarge, "payload-too-large", "") }
	tooLarge("limit+1", s.post(`{"type":"email","payload":`+sized(limit+1)+`}`))
	tooLarge("10 MB", s.post(`{"type":"email","payload":`+sized(10<<20)+`}`))

	endless := &endlessBody{}
	tooLarge("an endless body", s.send("POST", "/api/v1/jobs", endless, "Authorization", "Bearer "+apiToken, "Content-Type", "application/json"))
	if n := endless.read(); n > 4<<20 {
		t.Errorf("%d bytes of an endless body were taken", n)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.CopyN(z, &endlessBody{}, 20<<20); err != nil || z.Close() != nil {
		t.Fatalf("pack: %v", err)
	}
	s.send("POST", "/api/v1/jobs", &packed, "Authorization", "Bearer "+apiToken, "Content-Type", "application/json", "Content-Encoding", "gzip").
		refused("a packed bomb", http.StatusUnsupportedMediaType, "unsupported-media-type", "")
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	s.post(`{"type":"email","payload":`+nested(65)+`}`).refused("65 levels", 422, "validation-failed", "/payload")
	s.enqueue(`{"type":"email","payload":` + nested(64) + `}`)
	s.post(`{"type":"email","payload":{"a":1e131071}}`).refused("a number of 131,072 digits", 422, "validation-failed", "/payload/a")
}

// TestA5DeepAndWideBodies is pitfall A5 at the default limits.
func TestA5DeepAndWideBodies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.post(`{"type":"email","payload":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`).refused("100,000 levels", 422, "validation-failed", "/payload")
	s.post(strings.Repeat("[", 200_000)).refused("brackets alone", 422, "validation-failed", "")
	wide := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%d":0,`, i)
		}
		return `{"type":"email","payload":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}
	s.post(wide(10_001)).refused("10,001 keys", 422, "validation-failed", "/payload")
	if got := s.post(wide(100_000)); got.status != 413 && got.status != 422 {
		t.Errorf("100,000 keys = %d %s, want 413 or 422", got.status, got.body)
	}
	s.nothingStored()
	s.enqueue(wide(10_000))
}

// endlessBody is JSON text that never ends. It counts what was taken.
type endlessBody struct {
	mu sync.Mutex
	n  int
}

func (e *endlessBody) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n += len(p)
	if e.n > 100<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

func (e *endlessBody) read() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}

func TestMalformedAndMisshapenBodies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for body, code := range map[string]string{
		"": "malformed-json", "{": "malformed-json", `{"type":"email"} x`: "malformed-json", `{"type":"email",}`: "malformed-json", "\xff": "malformed-json",
		"{\"type\":\"\xc3\x28\"}": "malformed-json", `{"type":"a` + "\x00" + `"}`: "malformed-json", `{'type':'email'}`: "malformed-json", `{"type":"email","payload":{"a":01}}`: "malformed-json",
	} {
		s.post(body).refused(fmt.Sprintf("%q", body), http.StatusBadRequest, code, "")
	}
	for body, place := range map[string]string{
		`[]`: "", `null`: "", `"email"`: "", `5`: "", `{}`: "/type", `{"type":null}`: "/type", `{"type":5}`: "/type", `{"type":""}`: "/type", `{"type":"a b"}`: "/type",
		`{"type":"-x"}`: "/type", `{"type":"` + strings.Repeat("a", 101) + `"}`: "/type", `{"type":"email","queue":""}`: "/queue", `{"type":"email","queue":"a/b"}`: "/queue",
		`{"type":"email","payload":[]}`: "/payload", `{"type":"email","payload":null}`: "/payload", `{"type":"email","payload":"x"}`: "/payload",
		`{"type":"email","type":"email"}`: "/type", `{"type":"email","priorty":1}`: "/priorty", `{"type":"email","Type":"x"}`: "/Type", `{"type":"email","a.b/c~d":1}`: "/a.b~1c~0d",
		`{"type":"email","max_attempts":0}`: "/max_attempts", `{"type":"email","max_attempts":101}`: "/max_attempts", `{"type":"email","max_attempts":1.5}`: "/max_attempts",
		`{"type":"email","max_attempts":"5"}`: "/max_attempts", `{"type":"email","tags":"x"}`: "/tags", `{"type":"email","tags":[""]}`: "/tags/0", `{"type":"email","tags":["a",null]}`: "/tags/1",
		`{"type":"email","idempotency_key":""}`: "/idempotency_key", `{"type":"email","traceparent":"00-x"}`: "/traceparent", `{"type":"email","callback_url":"example.com"}`: "/callback_url",
		`{"type":"email","callback_url":""}`: "/callback_url", `{"type":"email","callback_url":null}`: "/callback_url", `{"type":"email","after":[]}`: "/after",
	} {
		s.post(body).refused(body, http.StatusUnprocessableEntity, "validation-failed", place)
	}
	if got := s.post(`{"type":"email","priorty":1}`).text("errors", "0", "detail"); got != "did you mean priority?" {
		t.Errorf("detail of priorty = %q", got)
	}
	s.nothingStored()
}

// TestA6EveryOptionIsStored is pitfall A6.
func TestA6EveryOptionIsStored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, base := range []string{"/api/v1/jobs", "/jobs"} {
		r := s.do("POST", base, `{"type":"email","queue":"mail","priority":"high","payload":{"to":"a@example.com"},"max_attempts":7,"delay_seconds":3600.5,
			"timeout_seconds":1.5,"expires_at":"`+time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)+`","tags":["a","b"],"idempotency_key":"k`+base+`"}`,
			"Content-Type", "application/json; charset=UTF-8", "traceparent", trace)
		if r.status != 201 || r.header.Get("Location") != "/api/v1/jobs/"+r.text("id") || r.text("status") != "pending" {
			t.Fatalf("POST %s = %d %s, Location %q", base, r.status, r.body, r.header.Get("Location"))
		}
		j := s.do("GET", base+"/"+r.text("id"), "")
		for path, want := range map[string]string{
			"queue": "mail", "priority": "3", "max_attempts": "7", "timeout_seconds": "1.5", "traceparent": trace, "trace_id": "0af7651916cd43dd8448eb211c80319c",
			"attempts": "0", "version": "1", "run": "0", "crashes": "0", "replays": "0", "run_at": r.text("run_at"), "created_at": r.text("created_at"),
		} {
			if got := fmt.Sprint(j.field(path)); got != want {
				t.Errorf("%s: %s = %s, want %s", base, path, got, want)
			}
		}
		if j.text("tags", "1") != "b" || j.text("payload", "to") != "a@example.com" || j.text("expires_at") == "" {
			t.Errorf("%s: job = %s", base, j.body)
		}
		at, err := time.Parse(time.RFC3339, j.text("run_at"))
		if err != nil || time.Until(at) < 59*time.Minute || time.Until(at) > 61*time.Minute {
			t.Errorf("%s: run_at = %s, want an hour ahead", base, j.text("run_at"))
		}
	}
	body := s.enqueue(`{"type":"email","traceparent":"`+trace+`"}`, "traceparent", "00-ffffffffffffffffffffffffffffffff-b7ad6b7169203331-01")
	if got := s.do("GET", "/jobs/"+body, "").text("traceparent"); got != trace {
		t.Errorf("traceparent = %q, want the body's", got)
	}
	if got := s.do("GET", "/jobs/"+s.enqueue(`{"type":"email"}`, "traceparent", "garbage"), "").field("traceparent"); got != nil {
		t.Errorf("a header that is no traceparent was kept: %v", got)
	}
}

// TestA7IdsAndTokensAreStrings is pitfall A7.
func TestA7IdsAndTokensAreStrings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const token = 9007199254740993
	id := s.enqueue(`{"type":"email"}`)
	s.run(id, token)
	j := s.do("GET", "/api/v1/jobs/"+id+"?include=attempts", "")
	if j.text("status") != "leased" || j.text("lease", "fencing_token") != "9007199254740993" || j.text("lease", "worker_id") != "9007199254740993" ||
		j.text("executions", "0", "fencing_token") != "9007199254740993" || fmt.Sprint(j.field("run")) != "1" {
		t.Errorf("running job = %s", j.body)
	}
	s.end(id, token, 1)
	if got := s.do("GET", "/api/v1/jobs/"+id+"/attempts", ""); got.text("data", "0", "fencing_token") != "9007199254740993" || got.text("data", "0", "outcome") != "completed" {
		t.Errorf("attempts = %s", got.body)
	}
	small := s.enqueue(`{"type":"email"}`)
	s.run(small, 100000000)
	if got := s.do("GET", "/api/v1/jobs/"+small, "").body; !strings.Contains(got, `"100000000"`) || strings.Contains(got, "e+") {
		t.Errorf("job = %s", got)
	}
}

// TestA8Priorities is pitfall A8 at the door.
func TestA8Priorities(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, p := range []string{`-1`, `6`, `1.5`, `1.0`, `1e0`, `null`, `"urgent"`, `"3"`, `""`, `"High"`, `true`, `[1]`, `{}`, `99999999999999999999`, `-0`} {
		s.post(`{"type":"email","priority":`+p+`}`).refused("priority "+p, 422, "validation-failed", "/priority")
	}
	s.nothingStored()
	for p, want := range map[string]string{`0`: "0", `5`: "5", `"low"`: "0", `"default"`: "1", `"high"`: "3", `"critical"`: "5"} {
		if got := fmt.Sprint(s.post(`{"type":"email","priority":` + p + `}`).field("priority")); got != want {
			t.Errorf("priority %s = %s, want %s", p, got, want)
		}
	}
	if got := fmt.Sprint(s.post(`{"type":"email"}`).field("priority")); got != "1" {
		t.Errorf("default priority = %s, want 1", got)
	}
	for _, p := range []string{"5", "critical"} {
		if got := s.do("GET", "/jobs?priority="+p, ""); !strings.Contains(got.body, `"priority":5`) || strings.Contains(got.body, `"priority":0`) {
			t.Errorf("jobs of priority %s = %s", p, got.body)
		}
	}
}

// TestE1ADuplicateOfSomethingRolledBack is pitfall E1 at the HTTP level.
func TestE1ADuplicateOfSomethingRolledBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begin := func(key string) (pgx.Tx, string) {
		t.Helper()
		tx, err := s.pool.Begin(ctx)
		if err != nil {
			t.Fatalf("begin: %v", err)
		}
		done, err := s.client.EnqueueTx(ctx, tx, engine.RawArgs{Type: "email"}, engine.EnqueueOptions{IdempotencyKey: key})
		if err != nil {
			t.Fatalf("EnqueueTx: %v", err)
		}
		return tx, done.ID.String()
	}
	second := func(key string) chan reply {
		c := make(chan reply, 1)
		go func() { c <- s.post(`{"type":"email"}`, "Idempotency-Key", `"`+key+`"`) }()
		time.Sleep(200 * time.Millisecond) // it waits on the first by now; earlier it is as right
		return c
	}

	tx, first := begin("rolled-back")
	c := second("rolled-back")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatalf("rollback: %v", err)
	}
	if got := <-c; got.status != 201 || got.text("id") == first || s.count(`SELECT count(*) FROM jobs`) != 1 {
		t.Errorf("after a rollback = %d %s, want 201 and one job", got.status, got.body)
	}

	tx, first = begin("committed")
	c = second("committed")
	if err := tx.Commit(ctx); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if got := <-c; got.status != 200 || got.text("id") != first || got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("after a commit = %d %s, want 200 and job %s", got.status, got.body, first)
	}

	tx, _ = begin("unfinished")
	got := <-second("unfinished")
	got.refused("an unfinished first", http.StatusConflict, "idempotency-key-in-flight", "")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After = %q, want 1", got.header.Get("Retry-After"))
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatalf("rollback: %v", err)
	}
}

// TestE2ManyCallersWithOneKey is pitfall E2.
func TestE2ManyCallersWithOneKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const callers = 64
	replies := make([]reply, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { replies[i] = s.post(`{"type":"email","payload":{"n":1}}`, "Idempotency-Key", "one") })
	}
	wg.Wait()
	created, id := 0, replies[0].text("id")
	for _, r := range replies {
		if r.status == 201 {
			created++
		}
		if r.status != 201 && r.status != 200 || r.text("id") != id || id == "" || (r.status == 200) != (r.header.Get("Idempotency-Replayed") == "true") {
			t.Errorf("answer = %d %s, want job %s", r.status, r.body, id)
		}
	}
	if created != 1 || s.count(`SELECT count(*) FROM jobs`) != 1 {
		t.Errorf("%d answers of 201, %d jobs, want one of each", created, s.count(`SELECT count(*) FROM jobs`))
	}
}

// TestE3AKeyOutlivesItsJobUntilThatIsRemoved is pitfall E3: the key is kept for its
// time whatever becomes of the job, and held by nothing once the job is gone.
func TestE3AKeyOutlivesItsJobUntilThatIsRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	again := func(key string) reply { return s.post(`{"type":"email"}`, "Idempotency-Key", key) }
	for i, key := range []string{"cancelled", "completed", "dead", "discarded"} {
		id := s.enqueue(`{"type":"email"}`, "Idempotency-Key", key)
		switch key {
		case "cancelled":
			s.do("DELETE", "/jobs/"+id, "")
		case "completed":
			s.run(id, int64(i+1))
			s.end(id, int64(i+1), 1)
		case "dead", "discarded":
			s.die(id, int64(i+1))
		}
		if key == "discarded" {
			s.do("POST", "/api/v1/dlq/"+id+"/discard", "")
		}
		if got := again(key); got.status != 200 || got.text("id") != id {
			t.Errorf("the key of a job %s = %d %s, want 200 and its id", key, got.status, got.body)
		}
	}
	id := again("cancelled").text("id")
	s.exec(`DELETE FROM job_executions WHERE job_id = $1`, uuid.MustParse(id))
	s.exec(`DELETE FROM jobs WHERE id = $1`, uuid.MustParse(id))
	if got := again("cancelled"); got.status != 201 || got.text("id") == id {
		t.Errorf("the key of a removed job = %d %s, want a new job", got.status, got.body)
	}
}

// TestE6TheSameKeyWithOtherContent is pitfall E6.
func TestE6TheSameKeyWithOtherContent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email","queue":"mail","payload":{"a":1,"b":[2]}}`, "Idempotency-Key", `"k"`)
	for _, body := range []string{
		`{"type":"sms","queue":"mail","payload":{"a":1,"b":[2]}}`, `{"type":"email","queue":"bulk","payload":{"a":1,"b":[2]}}`,
		`{"type":"email","queue":"mail","payload":{"a":1}}`, `{"type":"email","queue":"mail","payload":{"a":1,"b":[2]},"priority":5}`,
		`{"type":"email","queue":"mail","payload":{"a":1,"b":[2]},"max_attempts":9}`,
	} {
		got := s.post(body, "Idempotency-Key", "k")
		got.refused(body, http.StatusUnprocessableEntity, "idempotency-key-reused", "")
		if got.text("job_id") != id {
			t.Errorf("%s names job %q, want %s", body, got.text("job_id"), id)
		}
	}
	for _, body := range []string{`{ "payload": {"b": [2], "a": 1}, "queue":"mail", "type":"email" }`, `{"type":"email","queue":"mail","payload":{"a":1,"b":[2]},"idempotency_key":"k"}`} {
		if got := s.post(body, "Idempotency-Key", "k"); got.status != 200 || got.text("id") != id {
			t.Errorf("%s = %d %s, want the first job", body, got.status, got.body)
		}
	}
	s.post(`{"type":"email","idempotency_key":"other"}`, "Idempotency-Key", "k").refused("two keys", 422, "validation-failed", "Idempotency-Key")
	s.post(`{"type":"email"}`, "Idempotency-Key", `""`).refused("an empty key", 422, "validation-failed", "Idempotency-Key")
	s.post(`{"type":"email"}`, "Idempotency-Key", strings.Repeat("k", 256)).refused("a long key", 422, "validation-failed", "/idempotency_key")
	if got := s.post(`{"type":"email"}`, "Idempotency-Key", "K"); got.status != 201 {
		t.Errorf("a key in another case = %d, want a new job", got.status)
	}
	s.enqueue(`{"type":"email"}`, "Idempotency-Key", strings.Repeat("k", 255))
}

// FuzzEnqueueBody: whatever is sent, the answer is no 5xx, and a plain job still
// gets in.
func FuzzEnqueueBody(f *testing.F) {
	for _, seed := range []string{
		`{"type":"email","payload":{"a":1}}`, `{"type":"email","priority":"high","run_at":"2026-12-01T06:00:00Z","tags":["x"]}`, `{"type":"email","payload":{"a":"\u0000"}}`,
		`{"type":"email","payload":{"\ud83d":1e400}}`, `{"delay_seconds":1e308}`, `[[[[`, `{"type":"email","payload":{"a":-0.0e-9999}}`, `{"type":"email","idempotency_key":"k"}`,
		"\x00", `{"type":"email","expires_at":"9999-12-31T23:59:59.999999999Z"}`, `{"type":"email","payload":{"a":9e999999999999999999999}}`, `{"type":"email","tags":[1,"",null]}`,
		`{"type":"email","timeout_seconds":1e-300}`, `{"type":"email","payload":{"":{"":""}}}`, `{"type":"email","payload":{"a":"` + strings.Repeat("x", 5000) + `"}}`,
	} {
		f.Add([]byte(seed))
	}
	shared := newSite(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		s := *shared
		s.t = t
		r := s.post(string(body))
		if r.status >= 500 || r.status < 200 {
			t.Errorf("%q = %d %s", body, r.status, r.body)
		}
		if r.status == 201 && s.do("GET", "/jobs/"+r.text("id"), "").status != 200 {
			t.Errorf("%q: the job cannot be read", body)
		}
	})
}
