package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

// jobctl runs in this process, against one server.
func jobctl(t *testing.T, server string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append(args, "--server", server), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// A server's refusal as an exit code, whatever server that is.
func TestAnswersHaveTheirExitCodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status     int
		body, says string
		want       int
	}{
		{200, `{"data":[]}`, "", exitOK},
		{400, `{"code":"bad-query","title":"The query was not understood","errors":[{"parameter":"status","detail":"pending, failed"}]}`, "status: pending, failed", exitFailed},
		{401, `{"code":"unauthenticated","title":"A token is needed"}`, "Set JOBCTL_TOKEN", exitNotAllowed},
		{403, `{"code":"forbidden","title":"Not allowed"}`, "Use a token with that right", exitNotAllowed},
		{404, `{"code":"not-found","title":"Nothing is here"}`, "jobctl jobs list", exitNotFound},
		{409, `{"code":"not-dead","title":"Not dead","job_id":"0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10"}`, "jobctl jobs get 0193b6a2", exitConflict},
		{422, `{"code":"idempotency-key-reused","title":"The key was used"}`, "Use another --key", exitConflict},
		{422, `{"code":"validation-failed","title":"Refused","errors":[{"pointer":"/type","detail":"too long"}]}`, "/type: too long", exitFailed},
		{500, `{"code":"internal","title":"Something went wrong here","request_id":"r-1"}`, "(request r-1)", exitFailed},
		{503, `{"code":"unavailable","title":"The database is not available"}`, "Repeat it when the database is back", exitUnreachable},
		{503, `{"code":"timeout","title":"The request took too long"}`, "done once", exitUnreachable},
		{502, `<html>Bad gateway</html>`, "not a job engine's answer", exitUnreachable},
		{200, `<html>`, "read the server's answer", exitFailed},
		{302, ``, "It points elsewhere", exitFailed},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}))
		code, _, errs := jobctl(t, srv.URL, "queues", "list")
		srv.Close()
		if code != tt.want || !strings.Contains(errs, tt.says) {
			t.Errorf("%d %s: exit code %d, want %d; stderr %q, want %q", tt.status, tt.body, code, tt.want, errs, tt.says)
		}
	}
}

// silent takes connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return "http://" + ln.Addr().String()
}

func TestSilentServerIsATimeout(t *testing.T) {
	t.Parallel()
	url := silent(t)
	code, _, errs := jobctl(t, url, "queues", "list", "--timeout", "50ms")
	if code != exitUnreachable || !strings.Contains(errs, "no answer from "+url+" within 50ms") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	// What may have been done must not sound as if it had not.
	code, _, errs = jobctl(t, url, "jobs", "enqueue", "a", "--timeout", "50ms")
	if code != exitUnreachable || !strings.Contains(errs, "It may have been done all the same") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

func TestInterruptEndsWith130(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cmd := exec.CommandContext(ctx, self, "jobs", "list", "--verbose", "--server", "http://"+ln.Addr().String())
	cmd.Args[0] = "jobctl" // TestMain then runs jobctl
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept() // from now on it waits for an answer
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the state says how it ended
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d, want %d; stderr %q", code, exitInterrupted, stderr.String())
	}
}

// The token goes to the server that was named, and to no other.
func TestTokenIsNotCarriedOverARedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	a := &app{server: srv.URL, err: &bytes.Buffer{}, cfg: &config.Config{Ctl: config.CtlSettings{Token: "rje_0123"}}, choose: func() error { return nil }}
	c, err := a.connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.one(t.Context(), "/api/v1/queues", nil); exitCode(err) != exitFailed {
		t.Errorf("err = %v", err)
	}
	if got != "Bearer rje_0123" {
		t.Errorf("Authorization = %q", got)
	}
}
