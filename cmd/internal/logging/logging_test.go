package logging_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/logging"
)

func TestEveryJSONLineCarriesTheSameKeys(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := logging.New(&out, logging.Options{Format: "json", Service: "worker", Version: "0.2.0"})
	log.Debug("job locked")
	log.Info("job started", "job_id", "0193b6a2", "fencing_token", int64(1)<<60)
	log.With("queue", "mail").WithGroup("http").Warn("job failed, retrying", "error", errors.New("timeout"))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2: debug is below the default level\n%s", len(lines), out.String())
	}
	for _, line := range lines {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, key := range []string{"time", "level", "msg", "source", "service", "version"} {
			if s, ok := got[key].(string); !ok || s == "" {
				t.Errorf("%s: %s = %v, want a text", line, key, got[key])
			}
		}
		if at, err := time.Parse(time.RFC3339Nano, got["time"].(string)); err != nil || at.Location() != time.UTC {
			t.Errorf("time = %v (%v), want RFC 3339 in UTC", got["time"], err)
		}
		if s := got["source"].(string); !regexp.MustCompile(`^cmd/internal/logging/logging_test\.go:\d+$`).MatchString(s) {
			t.Errorf("source = %s", s)
		}
	}
	if !strings.Contains(lines[0], `"fencing_token":1152921504606846976`) || !strings.Contains(lines[1], `"http":{"error":"timeout"}`) {
		t.Errorf("attributes are lost or changed:\n%s", out.String())
	}
}

func TestTextLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := logging.New(&out, logging.Options{Level: slog.LevelDebug, Format: "text", Service: "server", Version: "0.2.0"})
	func() { log.Debug("job locked", "queue", "mail") }()
	want := regexp.MustCompile(`^time=\S+Z level=DEBUG source=cmd/internal/logging/logging_test\.go:\d+ msg="job locked" service=server version=0\.2\.0 queue=mail\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("line is %s, want %s", out.String(), want)
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	const (
		apiToken = "rje_0123456789abcdef0123456789abcdef"
		key      = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
		password = "correct-horse"
	)
	for _, format := range []string{"json", "text"} {
		var out strings.Builder
		log := logging.New(&out, logging.Options{Format: format})
		log.Info("refused "+apiToken, "password", password, "token", 5, "Authorization", []string{password}, "payload", map[string]string{"x": password})
		log.Warn("x", "error", fmt.Errorf("dial postgres://jobs:%s@db:5432/jobs: refused", password), "header", "Bearer "+apiToken)
		log.WithGroup("g").With("url", "https://a:"+password+"@b/c", "dsn", password).Error("x", "keys", key, "text", "host=db password="+password+" user=x",
			slog.Group("in", "secret", password))
		for _, s := range []string{apiToken, key[6:], password} {
			if strings.Contains(out.String(), s) {
				t.Errorf("%s log holds %s:\n%s", format, s, out.String())
			}
		}
		if n := strings.Count(out.String(), "[redacted]"); n < 11 || !strings.Contains(out.String(), "postgres://jobs:[redacted]@db:5432/jobs: refused") {
			t.Errorf("%s log has %d redactions, or lost what is no secret:\n%s", format, n, out.String())
		}
	}
}

func TestOrdinaryTextStays(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	logging.New(&out, logging.Options{Format: "json"}).Info("request", "path", "/api/v1/jobs?q=rje_", "address", "http://localhost:8080/a@b", "current_token", "7")
	if strings.Contains(out.String(), "redacted") {
		t.Errorf("an ordinary text is cut: %s", out.String())
	}
}
