package samplejobs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// installation is an engine that runs the built-in types on a database.
type installation struct {
	pool   *pgxpool.Pool
	reader *inspect.Reader
	client *engine.Client
	mail   string // folder
}

func start(t *testing.T, signingKeys ...string) *installation {
	t.Helper()
	in := &installation{pool: dbtest.New(t), mail: t.TempDir()}
	in.reader = inspect.New(in.pool)
	client, err := engine.NewClient(engine.ClientConfig{Pool: in.pool})
	if err != nil {
		t.Fatal(err)
	}
	in.client = client
	ws := engine.NewWorkers()
	if err := Register(ws, Config{Development: true, WebhookSigningKeys: signingKeys, MailDir: in.mail, Source: in.reader, Enqueuer: client}); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Pool: in.pool, Workers: ws, PollInterval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(e.Stop(ctx), client.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return in
}

func (in *installation) enqueue(t *testing.T, jobType, payload string) engine.ID {
	t.Helper()
	done, err := in.client.Enqueue(t.Context(), engine.RawArgs{Type: jobType, Payload: json.RawMessage(payload)}, engine.EnqueueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return done.ID
}

// await waits until the job stands in a state.
func (in *installation) await(t *testing.T, id engine.ID, want engine.State) {
	t.Helper()
	var state, message string
	for end := time.Now().Add(20 * time.Second); state != string(want); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("job %s is %s after 20 s (%s), want %s", id, state, message, want)
		}
		err := in.pool.QueryRow(t.Context(), `SELECT coalesce(s.state, ''), coalesce((SELECT x.error FROM job_executions AS x
			WHERE x.job_id = s.id ORDER BY x.fencing_token DESC LIMIT 1), '') FROM job_states AS s WHERE s.id = $1`, id).Scan(&state, &message)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func resultOf[T any](t *testing.T, in *installation, id engine.ID) T {
	t.Helper()
	r, err := in.reader.Result(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(r.JSON, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBuiltInJobsRunOnTheEngine(t *testing.T) {
	t.Parallel()
	in := start(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/busy":
			w.Header().Set("Retry-After", "1800")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		default:
			w.Write([]byte("got " + r.Header.Get("webhook-id") + " \x00\xff"))
		}
	})
	sent := in.enqueue(t, "webhook", `{"url":"`+s.URL+`","body":{"a":1}}`)
	gone := in.enqueue(t, "webhook", `{"url":"`+s.URL+`/gone"}`)
	busy := in.enqueue(t, "webhook", `{"url":"`+s.URL+`/busy"}`)
	misspelt := in.enqueue(t, "webhook", `{"ulr":"`+s.URL+`"}`)
	private := in.enqueue(t, "webhook", `{"url":"http://10.0.0.1/"}`)
	mailed := in.enqueue(t, "email", `{"to":"ann@example.com","subject":"Receipt 8123","text":"Thank you."}`)

	in.await(t, sent, engine.StateCompleted)
	if r := resultOf[WebhookResult](t, in, sent); r.Status != 200 || r.Response != "got "+sent.String()+" \uFFFD\uFFFD" {
		t.Errorf("webhook result %+v", r)
	}
	for id, want := range map[engine.ID]string{gone: "answered 410 Gone", misspelt: "ulr: unknown field, did you mean url?", private: "WEBHOOK_ALLOW_HOSTS"} {
		in.await(t, id, engine.StateDeadLetter)
		var reason, message string
		if err := in.pool.QueryRow(t.Context(), "SELECT d.reason, d.error FROM dead_letter_jobs AS d WHERE d.job_id = $1", id).Scan(&reason, &message); err != nil {
			t.Fatal(err)
		}
		if reason != string(engine.ReasonPermanent) || !strings.Contains(message, want) {
			t.Errorf("dead letter: %s, %q, want permanent, %q", reason, message, want)
		}
	}
	in.await(t, busy, engine.StateFailed)
	var wait time.Duration
	if err := in.pool.QueryRow(t.Context(), "SELECT s.scheduled_at - now() FROM job_states AS s WHERE s.id = $1", busy).Scan(&wait); err != nil {
		t.Fatal(err)
	}
	if wait < 29*time.Minute || wait > 30*time.Minute {
		t.Errorf("the busy target is tried again in %s, want half an hour", wait)
	}
	in.await(t, mailed, engine.StateCompleted)
	if r := resultOf[EmailResult](t, in, mailed); r.File != filepath.Join(in.mail, mailed.String()+".eml") {
		t.Errorf("email result %+v", r)
	}
	in.reportOnThem(t)
}

func (in *installation) reportOnThem(t *testing.T) {
	t.Helper()
	span := `"from":"` + stamp(time.Now().Add(-time.Hour)) + `","to":"` + stamp(time.Now().Add(time.Hour)) + `"`
	id := in.enqueue(t, "report", `{"kind":"failures","type":"webhook","email_to":"ops@example.com",`+span+`}`)
	in.await(t, id, engine.StateCompleted)
	r := resultOf[ReportResult](t, in, id)
	if got := lines(t, r.Data); len(got) != 2 || strings.Join(got[1][:4], " ") != "default webhook 5 4" {
		t.Errorf("report %s", r.Data)
	}
	mail, err := uuid.Parse(r.EmailJob)
	if err != nil {
		t.Fatal(err)
	}
	in.await(t, mail, engine.StateCompleted)
	raw, err := os.ReadFile(filepath.Join(in.mail, r.EmailJob+".eml"))
	if err != nil || !strings.Contains(string(raw), "Subject: Failures, ") {
		t.Errorf("the mail is %s, %v", raw, err)
	}
}
