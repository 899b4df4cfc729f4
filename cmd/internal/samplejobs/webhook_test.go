package samplejobs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func hooks(t *testing.T, cfg Config) *webhooks {
	t.Helper()
	h, err := newWebhooks(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what tests ask for
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, engine.ErrTimeout)
	t.Cleanup(cancel)
	return ctx
}

func TestWebhookIsSignedByEveryKeyAndNamesItsRun(t *testing.T) {
	t.Parallel()
	secrets := []string{"whsec_" + base64.StdEncoding.EncodeToString([]byte("the old key, twenty-four and more")),
		"whsec_" + base64.StdEncoding.EncodeToString([]byte("the new key, twenty-four and more"))}
	type request struct {
		proto, method, path string
		header              http.Header
		body                []byte
	}
	got := make(chan request, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Proto, r.Method, r.URL.String(), r.Header, body}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "taken")
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	h := hooks(t, Config{Development: true, WebhookSigningKeys: secrets})
	trust(h, s)

	row := run(t, 2)
	result, err := h.send(within(t, 10*time.Second), row, parse[Webhook](t, `{"url":"`+s.URL+`/in?a=1#frag","method":"put",
		"headers":{"X-Tenant":"7","Content-Type":"application/vnd.example+json"},"body":{"n": 12345678901234567890123, "html": "<b>"}}`))
	if err != nil || result.Status != 202 || result.Response != "taken" || result.DurationMS < 0 {
		t.Fatalf("send = %+v, %v", result, err)
	}
	r := <-got
	if r.proto != "HTTP/2.0" || r.method != "PUT" || r.path != "/in?a=1" || string(r.body) != `{"n":12345678901234567890123,"html":"<b>"}` {
		t.Errorf("the server saw %s %s %s with %s", r.proto, r.method, r.path, r.body)
	}
	for name, want := range map[string]string{"webhook-id": row.ID.String(), "rje-attempt": "2", "rje-fencing-token": "9007199254740993",
		"X-Tenant": "7", "Content-Type": "application/vnd.example+json"} {
		if v := r.header.Get(name); v != want {
			t.Errorf("header %s = %q, want %q", name, v, want)
		}
	}
	if !strings.HasPrefix(r.header.Get("User-Agent"), "reliable-job-engine/") {
		t.Errorf("user-agent is %q", r.header.Get("User-Agent"))
	}
	for _, secret := range secrets {
		wh, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := wh.Verify(r.body, r.header); err != nil {
			t.Errorf("verify: %v", err)
		}
		if err := wh.Verify(append(r.body, ' '), r.header); err == nil {
			t.Error("a changed body verifies")
		}
	}
}

func trust(h *webhooks, s *httptest.Server) {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	h.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
}

func TestWebhookRefusesACertificateItCannotVerify(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	_, err := hooks(t, Config{Development: true}).send(within(t, 10*time.Second), run(t, 1), Webhook{URL: s.URL})
	wantError(t, err, "retry", "certificate")
}

func TestWebhookPayloadIsCheckedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	s := serve(t, func(http.ResponseWriter, *http.Request) { seen.Add(1) })
	h := hooks(t, Config{Development: true})
	header := func(name, value string) Webhook {
		return Webhook{URL: s.URL, Headers: map[string]string{name: value}}
	}
	many := map[string]string{}
	for i := range headersMax + 1 {
		many[fmt.Sprintf("x-%d", i)] = ""
	}
	for _, tt := range []struct {
		args Webhook
		want string
	}{
		{Webhook{}, "url: is missing"},
		{Webhook{URL: "ftp://example.com"}, "url: must begin with http"},
		{Webhook{URL: "file:///etc/passwd"}, "url: must begin with http"},
		{Webhook{URL: "//example.com/x"}, "url: must begin with http"},
		{Webhook{URL: "http:///x"}, "url: has no host"},
		{Webhook{URL: "http://:80/x"}, "url: has no host"},
		{Webhook{URL: "http://me:hunter2@example.com"}, "url: must not hold a user"},
		{Webhook{URL: "http://exa mple.com"}, "url: "},
		{Webhook{URL: "http://example.com/\r\nX: 1"}, "url: "},
		{Webhook{URL: "http://example.com/" + strings.Repeat("a", urlMax)}, "url: longer than 2048"},
		{Webhook{URL: s.URL, Method: "TRACE"}, `method: "TRACE" is none of`},
		{Webhook{URL: s.URL, Method: "GET", Body: []byte(`{}`)}, "body: a GET has none"},
		{header("webhook-id", "1"), "headers.webhook-id: is set by the engine"},
		{header("Webhook-Signature", "v1,x"), "headers.Webhook-Signature: is set by the engine"},
		{header("RJE-Fencing-Token", "1"), "headers.RJE-Fencing-Token: is set"},
		{header("User-Agent", "x"), "headers.User-Agent: is set"},
		{header("host", "internal"), "headers.host: is set"},
		{header("Content-Length", "1"), "headers.Content-Length: is set"},
		{header("Transfer-Encoding", "chunked"), "headers.Transfer-Encoding: is set"},
		{header("Connection", "close"), "headers.Connection: is set"},
		{header("Proxy-Authorization", "x"), "headers.Proxy-Authorization: is set"},
		{header("Upgrade", "h2c"), "headers.Upgrade: is set"},
		{header("X-A", "1\r\nX-B: 2"), "headers.X-A: the value holds a line break"},
		{header("X-A\r\nX-B", "1"), "no valid header name"},
		{header("", "1"), "no valid header name"},
		{header("X-Big", strings.Repeat("a", headersMaxBytes)), "headers: larger than"},
		{Webhook{URL: s.URL, Headers: many}, "headers: more than 50"},
		{Webhook{URL: s.URL, Headers: map[string]string{"X-A": "1", "x-a": "2"}}, "headers.x-a: given twice"},
	} {
		_, err := h.send(within(t, 10*time.Second), run(t, 1), tt.args)
		wantError(t, err, "permanent", tt.want)
	}
	if seen.Load() != 0 {
		t.Errorf("%d requests were sent", seen.Load())
	}
}

func TestWebhookBodyHasTheTypeItIs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ body, wantBody, wantType string }{
		{`{ "a" : [1, 2] }`, `{"a":[1,2]}`, "application/json"},
		{`"plain \u00e9\n"`, "plain é\n", "text/plain; charset=utf-8"},
		{`7`, `7`, "application/json"},
		{`null`, "", ""},
		{``, "", ""},
	} {
		body, contentType, err := encodeBody([]byte(tt.body))
		if err != nil || string(body) != tt.wantBody || contentType != tt.wantType {
			t.Errorf("encodeBody(%s) = %q, %q, %v", tt.body, body, contentType, err)
		}
	}
}

func TestWebhookAnswerDecides(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		var after string
		fmt.Sscan(r.URL.Query().Get("status"), &status)
		if after = r.URL.Query().Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
	})
	h := hooks(t, Config{Development: true})
	for _, tt := range []struct {
		status      int
		after, want string
	}{
		{200, "", "done"}, {204, "", "done"}, {299, "", "done"},
		{300, "", "retry"}, {304, "", "retry"}, {399, "", "retry"},
		{400, "", "permanent"}, {401, "", "permanent"}, {404, "", "permanent"}, {408, "", "retry"}, {409, "", "permanent"},
		{410, "", "permanent"}, {422, "", "permanent"}, {425, "", "retry"}, {499, "", "permanent"},
		{429, "", "retry"}, {429, "30", "retry after 30s"}, {429, "0", "retry after 1s"}, {429, "soon", "retry"},
		{500, "", "retry"}, {500, "30", "retry"}, {502, "", "retry"}, {503, "86400", "retry after 1h0m0s"}, {503, "", "retry"},
		{599, "", "retry"}, {999, "", "retry"},
	} {
		_, err := h.send(within(t, 10*time.Second), run(t, 1), Webhook{URL: fmt.Sprintf("%s/?status=%d&after=%s&token=hunter2", s.URL, tt.status, tt.after)})
		if got := fate(err); got != tt.want {
			t.Errorf("%d with Retry-After %q: %s, want %s", tt.status, tt.after, got, tt.want)
		}
		if err != nil && (!strings.Contains(err.Error(), fmt.Sprint("answered ", tt.status)) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%d: the error says %q", tt.status, err)
		}
	}
}

func TestRetryAfterIsReadAndClamped(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"120", 2 * time.Minute, true}, {" 120 ", 2 * time.Minute, true}, {"0", time.Second, true}, {"3600", time.Hour, true}, {"3601", time.Hour, true},
		{"99999999999999999999999", time.Hour, true}, {"9223372036854775807", time.Hour, true},
		{"Tue, 01 Dec 2026 12:05:00 GMT", 5 * time.Minute, true}, {"Tuesday, 01-Dec-26 12:05:00 GMT", 5 * time.Minute, true}, {"Tue Dec  1 12:05:00 2026", 5 * time.Minute, true},
		{"Tue, 01 Dec 2026 11:00:00 GMT", time.Second, true}, {"Fri, 31 Dec 9999 23:59:59 GMT", time.Hour, true},
		{"", 0, false}, {"-1", 0, false}, {"1.5", 0, false}, {"soon", 0, false}, {"٣", 0, false},
	} {
		if got, ok := retryAfter(tt.value, now); got != tt.want || ok != tt.ok {
			t.Errorf("retryAfter(%q) = %s, %t, want %s, %t", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func TestRedirectIsAFailureAndNeverFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			followed.Add(1)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	_, err := hooks(t, Config{Development: true}).send(within(t, 10*time.Second), run(t, 1), Webhook{URL: s.URL, Body: []byte(`{}`)})
	wantError(t, err, "retry", `answered 307 Temporary Redirect: redirects are not followed; it points to "/elsewhere"`)
	if followed.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

func TestEndlessBodyIsCutAndEndsTheConnection(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("é", 4096)); err != nil {
				return
			}
		}
	})
	h := hooks(t, Config{Development: true})
	h.bodyWait = time.Hour // so that it is the size that ends it
	result, err := h.send(within(t, 10*time.Second), run(t, 1), Webhook{URL: s.URL})
	if err != nil || len(result.Response) != answerKept || !utf8.ValidString(result.Response) || result.DurationMS > 5000 {
		t.Errorf("send = %d bytes in %d ms, %v", len(result.Response), result.DurationMS, err)
	}
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the server still writes")
	}
}

func TestSlowBodyDoesNotHoldTheJob(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, "wait\x00\xff")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	h := hooks(t, Config{Development: true})
	h.bodyWait = 50 * time.Millisecond
	began := time.Now()
	_, err := h.send(within(t, 20*time.Second), run(t, 1), Webhook{URL: s.URL})
	wantError(t, err, "retry", "answered 429 Too Many Requests: wait\uFFFD\uFFFD")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestHugeHeadersAreAFailure(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Big", strings.Repeat("a", 2*answerHeadersMax))
	})
	_, err := hooks(t, Config{Development: true}).send(within(t, 10*time.Second), run(t, 1), Webhook{URL: s.URL})
	wantError(t, err, "retry", "server response headers exceeded")
}

func TestSilentServerEndsWithTheJobsDeadline(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := hooks(t, Config{Development: true}).send(within(t, 50*time.Millisecond), run(t, 1), Webhook{URL: s.URL + "/?token=hunter2"})
	if !errors.Is(err, engine.ErrTimeout) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("send = %v, want the context's cause without the query", err)
	}
}

func TestNobodyListeningIsRetriedWithoutTheQuery(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, err = hooks(t, Config{Development: true}).send(within(t, 10*time.Second), run(t, 1), Webhook{URL: "http://" + address + "/?token=hunter2"})
	wantError(t, err, "retry", "POST http://"+address+": dial tcp")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the query: %v", err)
	}
}

func TestConnectionsAreReusedAndNoProxyIsAsked(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	h := hooks(t, Config{Development: true})
	for range 5 {
		if _, err := h.send(within(t, 10*time.Second), run(t, 1), Webhook{URL: s.URL, Body: []byte(`{"a":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if opened.Load() != 1 {
		t.Errorf("5 requests took %d connections, want 1", opened.Load())
	}
	if h.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

func TestWebhookFailuresGroupByTargetAndStatus(t *testing.T) {
	t.Parallel()
	a := engine.Permanent(&answerError{place: "POST http://a", status: 404, detail: "request 81c2"})
	b := &answerError{place: "POST http://a", status: 404, detail: "request 97aa"}
	if x, y := webhookFingerprint(a), webhookFingerprint(b); x != y || x == "" {
		t.Errorf("fingerprints %q and %q", x, y)
	}
	if got := webhookFingerprint(io.EOF); got != "" {
		t.Errorf("fingerprint of another error is %q, want the engine's own", got)
	}
}
