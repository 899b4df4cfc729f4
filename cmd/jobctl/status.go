package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// The verdicts, from well to worst, as people read them.
const (
	healthy  = "Healthy"
	degraded = "Degraded"
	critical = "Critical"
)

var verdictWords = map[string]string{"healthy": healthy, "degraded": degraded, "critical": critical}

// standing is all that jobctl status reads of a server.
type standing struct {
	server  string
	version wireVersion
	stats   wireStats
	body    []byte // of stats
	queues  []item[wireQueue]
}

// readiness is the answer of /readyz.
type readiness struct {
	Status string `json:"status"`
	Checks map[string]struct {
		Status string `json:"status"`
		Output string `json:"output"`
	} `json:"checks"`
}

// failing lists what is not well, in words.
func (r readiness) failing() []string {
	var list []string
	for name, c := range r.Checks {
		if c.Status != "pass" {
			list = append(list, strings.TrimSuffix(name+": "+c.Output, ": "))
		}
	}
	slices.Sort(list)
	return list
}

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Give the verdict and the five answers of the overview", Args: exactly(),
		Long: `Give the verdict and the five answers of the console's overview: is work flowing, what is failing,
where is it stuck, are the workers alive, what changed.

Healthy, and exit code 0: nothing below holds. Degraded, 1: over 5 % of at least 20 runs failed in
5 min, a job died or a run was lost with its worker in 5 min, the oldest ready job waits longer than
the server's target, a queue is paused. Critical, 1: the database is away or not migrated, a queue
has ready jobs and no live worker, the reaper is silent for three of its intervals. Unreachable, 6:
the server does not answer. With -o wide all queues stand below.`,
		Example: `  jobctl status
  jobctl status --watch
  jobctl status --json | jq -r .verdict.level`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			s, err := c.standing(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.printStatus(s); err != nil {
				return err
			}
			if s.stats.Verdict.Level != "healthy" {
				return &failure{exitFailed, errSilent, ""}
			}
			return nil
		},
	}
}

// standing asks the server. One that is not ready gives no answers but why.
func (c *client) standing(ctx context.Context) (standing, error) {
	s := standing{server: c.base.String()}
	status, body, err := c.exchange(ctx, request{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return s, err
	}
	var ready readiness
	if json.Unmarshal(body, &ready) != nil || ready.Status == "" {
		return s, c.stranger(status)
	}
	version, err := c.one(ctx, "/api/v1/version", nil)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(version, &s.version); err != nil {
		return s, fmt.Errorf("read the server's answer: %w", err)
	}
	if bad := ready.failing(); len(bad) > 0 || ready.Status != "pass" {
		return s, s.notReady(body, bad)
	}
	if s.body, err = c.one(ctx, "/api/v1/stats", nil); err != nil {
		return s, err
	}
	if err := json.Unmarshal(s.body, &s.stats); err != nil {
		return s, fmt.Errorf("read the server's answer: %w", err)
	}
	if c.app.format == formatWide {
		s.queues, err = readList[wireQueue](ctx, c, "/api/v1/queues", nil)
	}
	return s, err
}

// notReady is a verdict that no figures are needed for.
func (s *standing) notReady(ready []byte, bad []string) error {
	s.stats.Verdict = wireVerdict{Level: "critical", Text: strings.TrimSuffix("the server is not ready: "+strings.Join(bad, "; "), ": "), Also: []string{}}
	body, err := json.Marshal(struct {
		Verdict wireVerdict     `json:"verdict"`
		Ready   json.RawMessage `json:"ready"`
	}{s.stats.Verdict, ready})
	if err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	s.body = append(body, '\n')
	return nil
}

func readList[T any](ctx context.Context, c *client, path string, query url.Values) ([]item[T], error) {
	body, err := c.one(ctx, path, query)
	if err != nil {
		return nil, err
	}
	raws, err := listOf(body)
	if err != nil {
		return nil, err
	}
	return decodeItems[T](raws)
}

// printStatus writes the verdict first: it is what one looks for at three in the morning.
func (a *app) printStatus(s standing) error {
	word := orWord(verdictWords[s.stats.Verdict.Level], s.stats.Verdict.Level)
	switch a.format {
	case formatJSON:
		return a.write(s.body)
	case formatJSONL:
		return a.writeCompact(s.body)
	case formatID:
		return a.write([]byte(printable(word) + "\n"))
	}
	v := s.stats.Verdict
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", a.colour(word), printable(v.sentence()))
	if len(v.Also) > 0 {
		fmt.Fprintf(&b, "Also: %s\n", printable(strings.Join(v.Also, ", ")))
	}
	fmt.Fprintf(&b, "\n%s, version %s\n", s.server, printable(s.version.Version))
	if s.stats.At != nil {
		s.stats.answers(&b, a)
	}
	if len(s.queues) > 0 {
		b.WriteString("\n")
		queueView.table(&b, a, s.queues)
	}
	if err := a.write([]byte(b.String())); err != nil {
		return err
	}
	if next := s.stats.next(); next != "" {
		a.say("%s", next)
	}
	return nil
}

// sentence is the verdict with what it points to.
func (v wireVerdict) sentence() string {
	s := v.Text
	if v.Cause != "" && !strings.Contains(s, v.Cause) && v.Since != nil {
		s += fmt.Sprintf(" (%s, since %s)", v.Cause, clockTime(v.Since))
	}
	return s
}

// clockTime is t for somebody who looks back over hours.
func clockTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	if time.Since(*t) > 20*time.Hour {
		return t.UTC().Format("2 Jan 15:04 UTC")
	}
	return t.UTC().Format("15:04 UTC")
}
