package boot

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

func TestProbeIsHealthyOnlyOn200(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	status.Store(http.StatusOK)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(int(status.Load()))
	}))
	defer s.Close()
	at := s.Listener.Addr().String()
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{at, ":" + port, "0.0.0.0:" + port, "[::]:" + port, "localhost:" + port} {
		if err := probe(addr, time.Second); err != nil {
			t.Errorf("probe %s: %v", addr, err)
		}
	}
	for _, code := range []int32{204, 302, 500, 503} {
		status.Store(code)
		if err := probe(at, time.Second); err == nil || !strings.Contains(err.Error(), "it answers") {
			t.Errorf("%d: %v, want its status", code, err)
		}
	}
}

func TestProbeOfWhatDoesNotAnswerIsBounded(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	began := time.Now()
	if err := probe(silent.Addr().String(), 100*time.Millisecond); err == nil {
		t.Error("a listener that never answers is healthy")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %s, want about 100ms", took)
	}
	for _, addr := range []string{"127.0.0.1:1", "127.0.0.1:0", "nonsense"} {
		if err := probe(addr, time.Second); err == nil || !strings.Contains(err.Error(), addr) {
			t.Errorf("probe %s: %v, want an error that names it", addr, err)
		}
	}
}

func TestUnknownArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"health"}, {"healthcheck", "now"}, {"--help"}, {""}} {
		var stderr bytes.Buffer
		code := Main(args, config.Server, "server", &stderr, &stderr, func(*Process) error { panic("started") })
		if code != exitSettings || !strings.Contains(stderr.String(), "usage: server [healthcheck]") {
			t.Errorf("%q: code %d, %q", args, code, stderr.String())
		}
	}
}

// Not parallel: Healthcheck reads this process's environment.
func TestHealthcheckAsksWhereTheSettingsListen(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SERVER_HOST", host)
	t.Setenv("SERVER_PORT", port)
	t.Setenv("METRICS_ADDR", "127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var stderr bytes.Buffer
	if code := Healthcheck(config.Server, &stderr); code != exitOK {
		t.Errorf("server: code %d, %s", code, stderr.String())
	}
	if code := Healthcheck(config.Worker, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "127.0.0.1:1/healthz") {
		t.Errorf("worker: code %d, %s", code, stderr.String())
	}
	stderr.Reset()
	t.Setenv("SERVER_PORT", "none")
	if code := Healthcheck(config.Server, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "SERVER_PORT") {
		t.Errorf("wrong settings: code %d, %s", code, stderr.String())
	}
}
