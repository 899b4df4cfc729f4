package samplejobs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// What a webhook's answer may cost.
const (
	answerRead       = 16 << 10        // bytes of the body that are read
	answerKept       = 1 << 10         // bytes of it that are kept
	answerHeadersMax = 64 << 10        // bytes of headers; more is a failure
	answerBodyWait   = 5 * time.Second // from the headers until reading stops
	urlMax           = 2048
)

// Webhook is the payload of a job of type webhook: one HTTP request, signed as
// Standard Webhooks asks. Unknown fields are refused.
type Webhook struct {
	// URL is absolute, http or https, at most 2,048 bytes, without user and
	// password: an authorization header is masked in the console, a URL is not.
	URL string `json:"url"`
	// Method is POST (the default), GET, PUT, PATCH or DELETE.
	Method string `json:"method,omitempty"`
	// Headers are sent as well. They may not replace those the engine sets
	// (webhook-*, rje-*, user-agent) nor those of the connection.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is any JSON value, sent as application/json. A JSON string is sent as
	// the text it holds, as text/plain. A content-type header wins over both. GET
	// has no body.
	Body json.RawMessage `json:"body,omitempty"`
}

// JobType implements [engine.Args].
func (Webhook) JobType() string { return "webhook" }

// UnmarshalJSON refuses unknown fields by name.
func (w *Webhook) UnmarshalJSON(b []byte) error {
	type plain Webhook
	return decode(b, (*plain)(w))
}

// WebhookResult is what a delivered webhook keeps.
type WebhookResult struct {
	Status     int   `json:"status"`
	DurationMS int64 `json:"duration_ms"`
	// Response is the first KiB of the answer's body, as valid UTF-8.
	Response string `json:"response,omitempty"`
}

// webhooks sends webhooks. Several goroutines may use it; they share its
// connections.
type webhooks struct {
	client  *http.Client
	targets *targets
	keys    []*standardwebhooks.Webhook
	agent   string
	// bodyWait is answerBodyWait; tests shorten it.
	bodyWait time.Duration
}

func newWebhooks(cfg Config) (*webhooks, error) {
	t, err := newTargets(cfg.WebhookAllowHosts, cfg.Development)
	if err != nil {
		return nil, err
	}
	keys, err := signingKeys(cfg.WebhookSigningKeys)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		// No Proxy: a proxy would connect for us, past the check of the address.
		DialContext:            t.dial,
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: answerHeadersMax,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true, // 16 KiB read stay 16 KiB
	}
	return &webhooks{
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		targets: t, keys: keys, agent: "reliable-job-engine/" + buildinfo.Get().Version, bodyWait: answerBodyWait,
	}, nil
}

// Work implements [engine.Worker].
func (h *webhooks) Work(ctx context.Context, job *engine.Job[Webhook]) error {
	result, err := h.send(ctx, job.Row, job.Args)
	if err != nil {
		return err
	}
	return job.SetResult(result)
}

// send makes one try. The status decides as soon as the headers are there; a
// body that does not end is read for a few seconds at most.
func (h *webhooks) send(ctx context.Context, row engine.Row, args Webhook) (WebhookResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := h.request(ctx, row, args, time.Now())
	if err != nil {
		return WebhookResult{}, engine.Permanent(err)
	}
	start := time.Now()
	resp, err := h.client.Do(req)
	if err != nil {
		return WebhookResult{}, sendError(ctx, req, err)
	}
	defer resp.Body.Close() // read-only: its error loses nothing
	defer time.AfterFunc(h.bodyWait, cancel).Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, answerRead)) // what came until an error is the answer
	a := answer{status: resp.StatusCode, header: resp.Header, text: printable(string(body), answerKept)}
	if err := a.verdict(req, time.Now()); err != nil {
		return WebhookResult{}, err
	}
	return WebhookResult{Status: a.status, DurationMS: time.Since(start).Milliseconds(), Response: a.text}, nil
}

// sendError leaves out what url.Error adds, the whole URL: its query may hold a
// secret, and errors are shown to many.
func sendError(ctx context.Context, req *http.Request, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%s: %w", place(req), cause)
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		return engine.Permanent(fmt.Errorf("%s: %w", place(req), refused))
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("%s: %w", place(req), err)
}

func place(req *http.Request) string { return req.Method + " " + req.URL.Scheme + "://" + req.URL.Host }

// request builds the signed request. Its errors name the payload's field.
func (h *webhooks) request(ctx context.Context, row engine.Row, args Webhook, now time.Time) (*http.Request, error) {
	target, err := parseTarget(args.URL)
	if err != nil {
		return nil, err
	}
	method, err := parseMethod(args.Method)
	if err != nil {
		return nil, err
	}
	body, contentType, err := encodeBody(args.Body)
	if err != nil {
		return nil, err
	}
	if method == http.MethodGet && len(body) > 0 {
		return nil, errors.New("body: a GET has none")
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if err := addHeaders(req.Header, args.Headers); err != nil {
		return nil, err
	}
	id := row.ID.String()
	req.Header.Set("User-Agent", h.agent)
	req.Header.Set(standardwebhooks.HeaderWebhookID, id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("rje-attempt", strconv.Itoa(row.Attempt))
	req.Header.Set("rje-fencing-token", strconv.FormatInt(row.FencingToken, 10))
	return req, h.sign(req.Header, id, now, body)
}

func parseTarget(s string) (string, error) {
	if s == "" {
		return "", errors.New("url: is missing")
	}
	if len(s) > urlMax {
		return "", fmt.Errorf("url: longer than %d bytes", urlMax)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return "", fmt.Errorf("url: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("url: must begin with http:// or https://")
	case u.Hostname() == "":
		return "", errors.New("url: has no host")
	case u.User != nil:
		return "", errors.New("url: must not hold a user or password; send an authorization header")
	}
	u.Fragment = ""
	return u.String(), nil
}

func parseMethod(s string) (string, error) {
	allowed := []string{http.MethodPost, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete}
	if s == "" {
		return allowed[0], nil
	}
	if m := strings.ToUpper(s); slices.Contains(allowed, m) {
		return m, nil
	}
	return "", fmt.Errorf("method: %q is none of %s", printable(s, 32), strings.Join(allowed, ", "))
}

func encodeBody(raw json.RawMessage) (body []byte, contentType string, err error) {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || string(raw) == "null":
		return nil, "", nil
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, "", fmt.Errorf("body: %w", err)
		}
		return []byte(text), "text/plain; charset=utf-8", nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, "", fmt.Errorf("body: %w", err)
	}
	return compact.Bytes(), "application/json", nil
}
