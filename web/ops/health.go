// Package ops answers what an orchestrator and a monitor ask: is the process
// alive, can it take work, what do its figures say, which build is it.
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// checkTimeout bounds one check, so that a probe answers before its own timeout.
const checkTimeout = 2 * time.Second

// Build says which build is running.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	BuiltAt string `json:"built_at"`
	Go      string `json:"go"`
}

// Check is one thing that readiness needs.
type Check struct {
	// Name is the key in the answer: database, migrations, draining.
	Name string
	// Run returns nil when all is well. It ends when ctx does.
	Run func(ctx context.Context) error
	// Tell shows the error's text to whoever asks, without a token. Leave it off
	// where the text may hold addresses or names; the log has it always.
	Tell bool
}

// ErrDraining says that the process is stopping and takes no new work.
var ErrDraining = errors.New("draining: the process is stopping")

// Draining is the check that fails while stopping reports true.
func Draining(stopping func() bool) Check {
	return Check{Name: "draining", Tell: true, Run: func(context.Context) error {
		if stopping() {
			return ErrDraining
		}
		return nil
	}}
}

// Health answers the probes. It is safe for many goroutines.
type Health struct {
	build  Build
	checks []Check
	log    *slog.Logger

	mu   sync.Mutex
	last map[string]bool // by check: passed
}

// NewHealth returns the probes for a build; checks decide readiness.
func NewHealth(build Build, checks []Check, log *slog.Logger) *Health {
	return &Health{build: build, checks: checks, log: log, last: map[string]bool{}}
}

type liveJSON struct {
	Status    string `json:"status"`
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	Timestamp string `json:"timestamp"`
}

// Live says that the process answers, whatever becomes of its database: restarting
// it would not bring that back.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, liveJSON{"pass", h.build.Version, h.build.Commit, time.Now().UTC().Format(time.RFC3339)})
}

type checkJSON struct {
	Status   string  `json:"status"`
	Duration float64 `json:"duration_ms"`
	Output   string  `json:"output,omitempty"`
}

type readyJSON struct {
	Status  string               `json:"status"`
	Version string               `json:"version"`
	Checks  map[string]checkJSON `json:"checks"`
}

// Ready runs the checks side by side; 503 if one fails.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	results := make([]checkJSON, len(h.checks))
	var wg sync.WaitGroup
	for i, c := range h.checks {
		wg.Go(func() { results[i] = h.run(ctx, c) })
	}
	wg.Wait()
	out := readyJSON{Status: "pass", Version: h.build.Version, Checks: map[string]checkJSON{}}
	status := http.StatusOK
	for i, c := range h.checks {
		out.Checks[c.Name] = results[i]
		if results[i].Status != "pass" {
			out.Status, status = "fail", http.StatusServiceUnavailable
		}
	}
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "2")
	}
	write(w, status, out)
}

func (h *Health) run(ctx context.Context, c Check) checkJSON {
	start := time.Now()
	err := c.Run(ctx)
	out := checkJSON{Status: "pass", Duration: float64(time.Since(start).Microseconds()) / 1000}
	if err != nil {
		out.Status, out.Output = "fail", "not available"
		if c.Tell {
			out.Output = err.Error()
		}
	}
	h.note(ctx, c.Name, err)
	return out
}

// note logs a check when it changes, since probes come every few seconds.
func (h *Health) note(ctx context.Context, name string, err error) {
	h.mu.Lock()
	before, known := h.last[name]
	h.last[name] = err == nil
	h.mu.Unlock()
	switch {
	case err != nil && (before || !known):
		h.log.WarnContext(ctx, "readiness check fails", "check", name, "error", err)
	case err == nil && known && !before:
		h.log.InfoContext(ctx, "readiness check passes again", "check", name)
	}
}

// Version answers which build is running.
func (h *Health) Version(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, h.build) }

func write(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "internal", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the prober went away; nobody is left to tell
}
