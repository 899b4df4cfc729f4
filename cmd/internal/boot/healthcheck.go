package boot

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

// healthcheckLimit is how long a probe waits for its answer. It is less than the 5 s
// after which the container image's HEALTHCHECK gives up, so that the reason is told.
const healthcheckLimit = 3 * time.Second

// Main is a program's whole run: [Run] without arguments, [Healthcheck] with the
// word healthcheck, and for anything else a line on how to use it and code 2.
func Main(args []string, which config.Binary, service string, stdout, stderr io.Writer, open func(*Process) error) int {
	switch {
	case len(args) == 0:
		return Run(which, service, stdout, stderr, open)
	case len(args) == 1 && args[0] == "healthcheck":
		return Healthcheck(which, stderr)
	}
	fmt.Fprintf(stderr, "usage: %s [healthcheck]\nSettings come from the environment; .env.example lists them.\n", service)
	return exitSettings
}

// Healthcheck asks the program that runs with the same settings for /healthz, as a
// container image without a shell or curl must do by itself. It returns 0 for an
// answer of 200 within 3 s, else 1 with the reason on stderr. It does not ask for
// readiness: a database that is away is no reason to restart a program.
func Healthcheck(which config.Binary, stderr io.Writer) int {
	cfg, _, err := config.FromEnvironment(which)
	if err != nil {
		fmt.Fprintf(stderr, "%v\n", err)
		return exitFailed
	}
	addr := cfg.Server.Addr()
	if which == config.Worker {
		addr = cfg.Metrics.Addr
	}
	if err := probe(addr, healthcheckLimit); err != nil {
		fmt.Fprintf(stderr, "%v\n", err)
		return exitFailed
	}
	return exitOK
}

// probe asks the listener at addr, as the settings name it, on this machine.
func probe(addr string, limit time.Duration) error {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return fmt.Errorf("probe %q: %w", addr, err)
	case port == "0":
		return fmt.Errorf("probe %q: port 0 is any free port; name one", addr)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	url := "http://" + net.JoinHostPort(host, port) + "/healthz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("probe %q: %w", addr, err)
	}
	// A transport of its own: the usual one would go through HTTP_PROXY.
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("probe %s: it answers %s", url, res.Status)
	}
	return nil
}
