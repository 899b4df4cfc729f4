package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/ops"
)

const apiToken = "rje_0123456789abcdef0123456789abcdef"

// site is the whole server on a real listener, a real engine client and a real
// database.
type site struct {
	t      testing.TB
	pool   *pgxpool.Pool
	client *engine.Client
	echo   *echo.Echo
	url    string
	log    *logBuffer
}

// newSite starts a site with a token; change may set more.
func newSite(t testing.TB, change ...func(*Config)) *site {
	t.Helper()
	return newSiteOn(t, dbtest.New(t), change...)
}

func newSiteOn(t testing.TB, pool *pgxpool.Pool, change ...func(*Config)) *site {
	t.Helper()
	s := &site{t: t, pool: pool, log: &logBuffer{}}
	metrics := ops.NewMetrics(ops.Build{Version: "1.2.3", Commit: "abc", BuiltAt: "2026-01-01T00:00:00Z", Go: "go1.26"})
	var err error
	s.client, err = engine.NewClient(engine.ClientConfig{Pool: pool, Observer: metrics})
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.client.Close(ctx); err != nil {
			t.Logf("close client: %v", err)
		}
	})
	read := inspect.New(pool)
	c := Config{
		Engine: s.client, Read: read, Metrics: metrics, Addr: "127.0.0.1:0", Token: apiToken,
		Log:   slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Build: ops.Build{Version: "1.2.3", Commit: "abc", BuiltAt: "2026-01-01T00:00:00Z", Go: "go1.26"},
		Ready: []ops.Check{{Name: "database", Run: pool.Ping}},
	}
	for _, f := range change {
		f(&c)
	}
	metrics.AddSnapshot(read, c.Log)
	metrics.AddPool(pool)
	if s.echo, err = newEcho(c); err != nil {
		t.Fatalf("new server: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	srv := httptest.NewUnstartedServer(s.echo)
	if err := srv.Listener.Close(); err != nil {
		t.Fatalf("close listener: %v", err)
	}
	srv.Listener, srv.Config = l, Server("", s.echo)
	srv.Start()
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// logBuffer keeps what many handlers log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// reply is an answer, read whole.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

// do sends a request with the token; headers are name, value, name, value.
func (s *site) do(method, path, body string, headers ...string) reply {
	s.t.Helper()
	return s.send(method, path, strings.NewReader(body), append([]string{"Authorization", "Bearer " + apiToken}, headers...)...)
}

func (s *site) send(method, path string, body io.Reader, headers ...string) reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		s.t.Fatalf("request %s %s: %v", method, path, err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.roundTrip(r)
}

func (s *site) roundTrip(r *http.Request) reply {
	s.t.Helper()
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	defer func() {
		if err := res.Body.Close(); err != nil {
			s.t.Errorf("close body: %v", err)
		}
	}()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: read answer: %v", r.Method, r.URL.Path, err)
	}
	got := reply{s.t, res.StatusCode, res.Header, string(b)}
	s.asDescribed(r, got)
	return got
}

// post enqueues a body.
func (s *site) post(body string, headers ...string) reply {
	s.t.Helper()
	return s.do("POST", "/api/v1/jobs", body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

// enqueue adds a job and returns its id.
func (s *site) enqueue(body string, headers ...string) string {
	s.t.Helper()
	r := s.post(body, headers...)
	if r.status != http.StatusCreated {
		s.t.Fatalf("POST %s = %d %s, want 201", body, r.status, r.body)
	}
	return r.text("id")
}

// field walks into the JSON body; numbers come digit for digit.
func (r reply) field(path ...string) any {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(r.body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		r.t.Fatalf("answer %d is not JSON: %v: %s", r.status, err, r.body)
	}
	for _, name := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			i := int(name[0] - '0')
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (r reply) text(path ...string) string {
	r.t.Helper()
	s, _ := r.field(path...).(string)
	return s
}

// refused checks a problem: its status, code, and the place of its first flaw.
func (r reply) refused(what string, status int, code, place string) {
	r.t.Helper()
	if r.status != status || r.text("code") != code {
		r.t.Errorf("%s = %d %s, want %d %s", what, r.status, r.body, status, code)
		return
	}
	if kind := r.header.Get("Content-Type"); kind != "application/problem+json" {
		r.t.Errorf("%s: content type %q", what, kind)
	}
	if n, _ := r.field("status").(json.Number); n.String() != strconv.Itoa(status) || r.text("request_id") != r.header.Get("X-Request-Id") || r.text("title") == "" {
		r.t.Errorf("%s: problem %s", what, r.body)
	}
	if status == http.StatusServiceUnavailable && r.header.Get("Retry-After") == "" {
		r.t.Errorf("%s: 503 without Retry-After", what)
	}
	got := r.text("errors", "0", "pointer") + r.text("errors", "0", "parameter") + r.text("errors", "0", "header")
	if place != "" && got != place {
		r.t.Errorf("%s names %q, want %q: %s", what, got, place, r.body)
	}
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := s.pool.Exec(ctx, sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// count answers a query for one number.
func (s *site) count(sql string, args ...any) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var n int
	if err := s.pool.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// run leases a ready job under a token.
func (s *site) run(id string, token int64) {
	s.t.Helper()
	s.exec(`WITH d AS (DELETE FROM job_ready WHERE job_id = $1 RETURNING job_id, attempt, crashes)
		INSERT INTO job_claims (id, worker_id, lease_expires_at, job_ids, attempts, crashes) OVERRIDING SYSTEM VALUE
		SELECT $2, 9007199254740993, now() + interval '1 hour', ARRAY[job_id], ARRAY[attempt], ARRAY[crashes] FROM d`, uuid.MustParse(id), token)
}

// tell is what a run that goes on has flushed.
func (s *site) tell(id string, token int64) {
	s.t.Helper()
	s.exec(`INSERT INTO job_live (fencing_token, job_id, progress, progress_text, logs) VALUES ($2, $1, 40, 'page 4 <b>of</b> 10',
		'[{"n": 1, "time": "2026-11-30T02:14:07Z", "level": "INFO", "msg": "page <i>4</i>", "fields": {"rows": "12", "token": "s3cret"}}]')`, uuid.MustParse(id), token)
}

// end closes a run with an outcome.
func (s *site) end(id string, token int64, outcome int) {
	s.t.Helper()
	s.exec(`WITH k AS (DELETE FROM job_claims WHERE id = $2 RETURNING *)
		INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome)
		SELECT $1, $2, k.worker_id, k.claimed_at, k.claimed_at, 1, $3 FROM k`, uuid.MustParse(id), token, outcome)
}

// die makes a dead letter of a ready job.
func (s *site) die(id string, token int64) {
	s.t.Helper()
	s.run(id, token)
	s.end(id, token, 2)
	s.exec(`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, stack, fingerprint)
		SELECT id, $2, 1, queue, type, 'exhausted', 'smtp', 'mailbox full', 'main.go:1', 'fp1' FROM jobs WHERE id = $1`, uuid.MustParse(id), token)
}

// nothingStored checks what must hold after refused requests.
func (s *site) nothingStored() {
	s.t.Helper()
	if n := s.count(`SELECT count(*) FROM jobs`); n != 0 {
		s.t.Errorf("%d jobs stored, want none", n)
	}
}
