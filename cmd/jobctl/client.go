package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo"
)

const (
	usualTimeout = 30 * time.Second
	maxAnswer    = 64 << 20
)

// client talks to one server.
type client struct {
	app  *app
	base *url.URL
	http *http.Client
}

// request is one call of the API. Body is JSON or nil.
type request struct {
	method, path string
	query        url.Values
	body         any
	key          string // Idempotency-Key
}

// connect checks the server's address. It connects nowhere yet.
func (a *app) connect() (*client, error) {
	if err := a.choose(); err != nil {
		return nil, err
	}
	u, err := url.Parse(a.server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, usage("Give an address such as http://127.0.0.1:8080, with --server or JOBCTL_SERVER.", "server %q is no address", a.server)
	case u.User != nil:
		return nil, usage("Set JOBCTL_TOKEN, or JOBCTL_TOKEN_FILE to the path of a file that holds it.",
			"the server's address must not hold a user or password")
	}
	if a.cfg.Ctl.Token != "" && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		a.say("note: the token goes to %s without encryption", u.Host)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &client{app: a, base: u, http: &http.Client{
		Transport: transport,
		// A redirect could carry the token to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// call does one request within --timeout and returns the body of a 2xx answer.
// Every other answer is a *failure.
func (c *client) call(ctx context.Context, r request) ([]byte, error) {
	status, body, err := c.exchange(ctx, r)
	if err != nil {
		return nil, err
	}
	if status < 200 || status > 299 {
		return nil, c.refused(status, body)
	}
	return body, nil
}

// exchange does one request and returns whatever answer came.
func (c *client) exchange(ctx context.Context, r request) (status int, body []byte, err error) {
	limit := c.app.limit(usualTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if c.app.verbose {
			c.app.say("%s %s: no answer after %d ms", r.method, req.URL, time.Since(began).Milliseconds())
		}
		return 0, nil, c.unreachable(r, limit, err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, c.unreachable(r, limit, err)
	}
	if len(body) > maxAnswer {
		return 0, nil, &failure{exitFailed, fmt.Errorf("the answer to %s is larger than 64 MiB", req.URL.Path), "Ask for less with --limit."}
	}
	if c.app.verbose {
		c.app.say("%s %s: %d, %d bytes, %d ms", r.method, req.URL, res.StatusCode, len(body), time.Since(began).Milliseconds())
	}
	return res.StatusCode, body, nil
}

func (c *client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	u := c.base.JoinPath(r.path)
	u.RawQuery = r.query.Encode()
	var body io.Reader
	if r.body != nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(r.body); err != nil {
			return nil, fmt.Errorf("write the request: %w", err)
		}
		body = &b
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "jobctl/"+buildinfo.Get().Version)
	if r.key != "" {
		req.Header.Set("Idempotency-Key", quoteKey(r.key))
	}
	if token := c.app.cfg.Ctl.Token; token != "" {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	return req, nil
}

// quoteKey is a key as RFC 8941 writes a string.
func quoteKey(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// unreachable is an error for an answer that did not come.
func (c *client) unreachable(r request, limit time.Duration, err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		next := "Wait longer with --timeout, or look at: jobctl status"
		if r.method != http.MethodGet {
			next = "It may have been done all the same. Look first, then repeat it (an enqueue under the same --key), or wait longer with --timeout."
		}
		return &failure{exitUnreachable, fmt.Errorf("no answer from %s within %s", c.base, limit), next}
	}
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	var op *net.OpError
	cause := err
	if errors.As(err, &op) {
		cause = op.Err
	} else if u := (*url.Error)(nil); errors.As(err, &u) {
		cause = u.Err
	}
	return &failure{exitUnreachable, fmt.Errorf("cannot reach the server at %s: %w", c.base, cause),
		"Start it (make run), or name another with --server or JOBCTL_SERVER."}
}
