package web

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/console"
)

// withConsole lets everybody use console and API, as in development on one machine.
func withConsole(c *Config) {
	c.Token, c.Development, c.Addr = "", true, "127.0.0.1:0"
	c.Console = &console.Config{
		Settings:  []console.Setting{{Name: "DB_PASSWORD", Value: "hidden"}, {Name: "POLL_INTERVAL", Value: "1s"}},
		Retention: []console.Setting{{Name: "RETENTION_COMPLETED", Value: "7 days"}},
	}
}

// newConsole starts a site with a console that asks nobody to sign in.
func newConsole(t testing.TB, change ...func(*Config)) *site {
	t.Helper()
	return newConsoleOn(t, dbtest.New(t), change...)
}

func newConsoleOn(t testing.TB, pool *pgxpool.Pool, change ...func(*Config)) *site {
	t.Helper()
	return newSiteOn(t, pool, append([]func(*Config){withConsole}, change...)...)
}

// get reads a page of the console.
func (s *site) get(path string, headers ...string) reply {
	s.t.Helper()
	return s.send("GET", "/console"+path, nil, headers...)
}

// submit sends a form as a browser does.
func (s *site) submit(path string, form url.Values, headers ...string) reply {
	s.t.Helper()
	return s.send("POST", "/console"+path, strings.NewReader(form.Encode()),
		append([]string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin", "Origin", s.url}, headers...)...)
}

// fragment are the headers of a request that the script makes for an element.
func fragment(target string) []string { return []string{"HX-Request", "true", "HX-Target", target} }

// shows checks that a page was answered and holds some texts.
func (r reply) shows(what string, status int, texts ...string) {
	r.t.Helper()
	if r.status != status {
		r.t.Errorf("%s = %d, want %d: %.600s", what, r.status, status, plainText(r.body))
		return
	}
	for _, text := range texts {
		if !strings.Contains(r.body, text) && !strings.Contains(plainText(r.body), text) {
			r.t.Errorf("%s does not show %q: %.1500s", what, text, plainText(r.body))
		}
	}
}

// plainText is a page without its tags, spaces run together.
func plainText(body string) string {
	var b strings.Builder
	in := false
	for _, r := range body {
		switch {
		case r == '<':
			in = true
			b.WriteByte(' ')
		case r == '>':
			in = false
		case !in:
			b.WriteRune(r)
		}
	}
	return strings.Join(strings.Fields(strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(b.String())), " ")
}

// work runs an engine whose handlers fail, panic, wait and keep results.
func (s *site) work() {
	s.t.Helper()
	ws := engine.NewWorkers()
	handle := func(jobType string, f func(context.Context, *engine.Job[engine.RawArgs]) error) {
		engine.RegisterType(ws, jobType, engine.WorkerFunc[engine.RawArgs](f), engine.TypeOptions{})
	}
	handle("email", func(_ context.Context, j *engine.Job[engine.RawArgs]) error {
		j.Log().Info("sending", "to", "customer@example.com", "token", "s3cret")
		return j.SetResult(map[string]any{"message_id": "m-1", "number": 1970670598291982290})
	})
	handle("charge", func(_ context.Context, j *engine.Job[engine.RawArgs]) error {
		j.Log().Warn("slow gateway")
		return errors.New("gateway timeout after 10 s (POST https://pay.example.net/v2/charges)")
	})
	handle("broken", func(context.Context, *engine.Job[engine.RawArgs]) error { panic("nil map in handler") })
	handle("block", func(ctx context.Context, _ *engine.Job[engine.RawArgs]) error { <-ctx.Done(); return ctx.Err() })
	e, err := engine.New(engine.Config{Pool: s.pool, Workers: ws, Name: "w-test", Version: "1.8.2", Concurrency: 4, PollInterval: 50 * time.Millisecond, ReaperInterval: 100 * time.Millisecond,
		Retry: engine.RetryFunc(func(int) time.Duration { return time.Hour })})
	if err != nil {
		s.t.Fatalf("new engine: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := e.Start(ctx); err != nil {
		s.t.Fatalf("start engine: %v", err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.t.Logf("stop engine: %v", err)
		}
	})
}

// until waits for a query to count n.
func (s *site) until(n int, sql string, args ...any) {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for s.count(sql, args...) != n {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s never counts %d, it is %d", sql, n, s.count(sql, args...))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// scene is a site with a job in every state, made by a running engine.
type scene struct {
	*site
	ready, scheduled, running, retrying, completed, cancelled, dead, panicked, discarded string
}

func newScene(t testing.TB, change ...func(*Config)) *scene {
	t.Helper()
	s := &scene{site: newConsole(t, change...)}
	s.work()
	s.completed = s.enqueue(`{"type":"email","queue":"mail","tags":["eu","vip"],"payload":{"to":"customer@example.com","card":"4111","big":12345678901234567890123}}`)
	s.retrying = s.enqueue(`{"type":"charge","queue":"billing","priority":3}`)
	s.dead = s.enqueue(`{"type":"charge","queue":"billing","max_attempts":1}`)
	s.panicked = s.enqueue(`{"type":"broken","queue":"billing","max_attempts":1}`)
	s.discarded = s.enqueue(`{"type":"charge","queue":"billing","max_attempts":1}`)
	s.running = s.enqueue(`{"type":"block","queue":"slow"}`)
	s.scheduled = s.enqueue(`{"type":"email","queue":"mail","delay_seconds":3600}`)
	s.cancelled = s.enqueue(`{"type":"email","queue":"mail","delay_seconds":3600}`)
	s.until(3, `SELECT count(*) FROM dead_letter_jobs`)
	s.until(1, `SELECT count(*) FROM maintenance_tasks WHERE task = 'reaper'`)
	s.until(1, `SELECT count(*) FROM job_executions WHERE outcome = 1`)
	s.until(1, `SELECT count(*) FROM job_scheduled WHERE failed`)
	s.until(1, `SELECT count(*) FROM job_claims AS k CROSS JOIN unnest(k.job_ids) AS j(id) WHERE j.id = $1
		AND NOT EXISTS (SELECT FROM job_executions AS e WHERE e.job_id = j.id AND e.fencing_token = k.id)`, s.running)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.client.Cancel(ctx, parse(s.cancelled), engine.Actor{Name: "ann", Reason: "not wanted"}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Discard(ctx, parse(s.discarded), engine.Actor{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	// What waits for a worker: the queue has none, so that the job stays.
	s.exec(`INSERT INTO queues (name, paused_at, paused_reason) VALUES ('held', now(), 'INC-204')`)
	s.ready = s.enqueue(`{"type":"email","queue":"held"}`)
	return s
}

func parse(id string) engine.ID {
	var out engine.ID
	if err := out.UnmarshalText([]byte(id)); err != nil {
		panic(err)
	}
	return out
}

// worker is the id of the one worker of a scene.
func (s *scene) worker() string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	list, err := inspect.New(s.pool).Workers(ctx)
	if err != nil || len(list) == 0 {
		s.t.Fatalf("workers: %v, %v", list, err)
	}
	return strconv.FormatInt(list[0].ID, 10)
}

// group is the address of the error of a dead job.
func (s *scene) group(id string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := inspect.New(s.pool).DeadLetter(ctx, parse(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return "/dlq/groups/" + url.PathEscape(d.Error.Fingerprint)
}

func shortly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func consoleReads(pool *pgxpool.Pool) *inspect.Reader { return inspect.New(pool) }

func encodeCookie(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// long is exec for what fills tables: the pool's statement timeout is for pages.
func (s *site) long(sql string, args ...any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		s.t.Fatalf("acquire: %v", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		s.t.Fatalf("lift the statement timeout: %v", err)
	}
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		s.t.Fatalf("%.80s: %v", sql, err)
	}
	if _, err := conn.Exec(ctx, "RESET statement_timeout"); err != nil {
		s.t.Fatalf("set the statement timeout again: %v", err)
	}
}
