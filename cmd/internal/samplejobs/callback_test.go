package samplejobs

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// TestACallbackIsDelivered signed, under one id however often it is tried, and like every job it is a dead letter in the
// end; the job it tells of stays as it ended.
func TestACallbackIsDelivered(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	in := start(t, secret)
	key, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	type told struct {
		Type string
		Data struct {
			ID, Status, Type, Queue string
			Attempts                int
			Result                  json.RawMessage
			LastError               struct{ Message string } `json:"last_error"`
		}
	}
	var mu sync.Mutex
	tries, bodies := map[string]int{}, map[string]told{} // by webhook-id
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var x told
		if err := key.Verify(body, r.Header); err != nil || json.Unmarshal(body, &x) != nil || r.Method != http.MethodPost {
			t.Errorf("%s: %v in %s", r.Method, err, body)
		}
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("webhook-id")
		tries[id]++
		bodies[id] = x
		switch {
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusGone)
		case tries[id] == 1:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	enqueue := func(payload, path string) engine.ID {
		done, err := in.client.Enqueue(t.Context(), engine.RawArgs{Type: "email", Payload: json.RawMessage(payload)}, engine.EnqueueOptions{CallbackURL: s.URL + path})
		if err != nil {
			t.Fatal(err)
		}
		return done.ID
	}
	const mail = `{"to":"ann@example.com","subject":"Receipt 8123","text":"Thank you."}`
	for _, x := range []struct {
		what, payload, path string
		ends, callbackEnds  engine.State
		tries               int
	}{
		{"completed", mail, "/in", engine.StateCompleted, engine.StateCompleted, 2},
		{"dead", `{"tos":1}`, "/in", engine.StateDeadLetter, engine.StateCompleted, 2},
		{"nobody listens", mail, "/gone", engine.StateCompleted, engine.StateDeadLetter, 1},
	} {
		id := enqueue(x.payload, x.path)
		in.await(t, id, x.ends)
		j, err := in.reader.Job(t.Context(), id)
		if err != nil || j.Callback == nil || !j.Callback.Made() {
			t.Fatalf("%s: the job %+v, %v", x.what, j.Callback, err)
		}
		in.await(t, j.Callback.JobID, x.callbackEnds)
		mu.Lock()
		n, got := tries[j.Callback.JobID.String()], bodies[j.Callback.JobID.String()]
		mu.Unlock()
		if n != x.tries || got.Type != "job."+string(x.ends) || got.Data.ID != id.String() || got.Data.Status != string(x.ends) || got.Data.Attempts != 1 || got.Data.Queue != "default" {
			t.Errorf("%s: %d tries of %+v", x.what, n, got)
		}
		if dead := x.ends == engine.StateDeadLetter; dead != strings.Contains(got.Data.LastError.Message, "tos") {
			t.Errorf("%s: last error %q", x.what, got.Data.LastError.Message)
		}
		in.await(t, id, x.ends)
	}
}

// TestAnAddressIsCheckedAsFarAsItCanBe before anything is sent.
func TestAnAddressIsCheckedAsFarAsItCanBe(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		url         string
		development bool
		refusal     string
	}{
		{"https://example.com/in", false, ""},
		{"http://8.8.8.8:80/", false, ""},
		{"https://[2606:4700:4700::1111]/", false, ""},
		{"http://10.1.2.3/", false, ""}, // allowed below
		{"http://10.2.0.1/", false, "WEBHOOK_ALLOW_HOSTS"},
		{"http://169.254.169.254/latest/meta-data/", true, "not public"},
		{"http://[::ffff:10.2.0.1]/", false, "not public"},
		{"http://[fe80::1%25eth0]/", false, "not public"},
		{"http://127.0.0.1:8080/", false, "not public"},
		{"http://127.0.0.1:8080/", true, ""},
		{"http://LOCALHOST./", false, "not public"},
		{"http://a.localhost/", false, "not public"},
		{"http://localhost:3000/", true, ""},
		{"ftp://example.com/", false, "must begin with http:// or https://"},
		{"http://ann@example.com/", false, "must not hold a user"},
	} {
		check, err := CheckTarget(Config{Development: x.development, WebhookAllowHosts: []string{"10.1.0.0/16"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := check(x.url); (err == nil) != (x.refusal == "") || err != nil && (!strings.Contains(err.Error(), x.refusal) || strings.HasPrefix(err.Error(), "url:")) {
			t.Errorf("%s (development %v): %v, want %q", x.url, x.development, err, x.refusal)
		}
	}
	if _, err := CheckTarget(Config{WebhookAllowHosts: []string{"http://x"}}); err == nil {
		t.Error("a wrong allow list is taken")
	}
}
