package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// standing is all that jobctl status reads of a server.
type standing struct {
	server  string
	version wireVersion
	ready   readiness
	queues  []item[wireQueue]
	workers []item[wireWorker]
	newest  []item[wireDead] // the last to die
}

// readiness is the answer of /readyz.
type readiness struct {
	Status string `json:"status"`
	Checks map[string]struct {
		Status string `json:"status"`
		Output string `json:"output"`
	} `json:"checks"`

	raw json.RawMessage
}

// failing lists what is not well, in words.
func (r readiness) failing() []string {
	var list []string
	for name, c := range r.Checks {
		if c.Status != "pass" {
			list = append(list, strings.TrimSuffix(name+": "+c.Output, ": "))
		}
	}
	return list
}

// wireWorker is what jobctl reads of a worker.
type wireWorker struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Build  string   `json:"build"`
	Queues []string `json:"queues"`
	Status string   `json:"status"`
	Leader bool     `json:"leader"`
	Slots  struct {
		Busy  int64 `json:"busy"`
		Total int64 `json:"total"`
		Stuck int64 `json:"stuck"`
	} `json:"slots"`
	HeartbeatAge float64 `json:"heartbeat_age_seconds"`
}

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say whether work flows, and what stands in its way", Args: exactly(),
		Long: `Say whether work flows: database, workers, queues, dead letters, and a verdict.

Healthy, and exit code 0: nothing below holds. Degraded, 1: a queue is paused, its oldest ready job
waits over 60 s, over 5 % of at least 20 runs failed in 5 min, or a job died in the last 5 min.
Critical, 1: the database is away or not migrated, or a queue has ready jobs and no live worker, or
nobody does the upkeep. Unreachable, 6: the server does not answer.`,
		Example: `  jobctl status
  jobctl status --json | jq -r .verdict`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			s, err := c.standing(cmd.Context())
			if err != nil {
				return err
			}
			v := judge(s)
			if err := a.printStatus(s, v); err != nil {
				return err
			}
			if v.word != healthy {
				return &failure{exitFailed, errSilent, ""}
			}
			return nil
		},
	}
}

// standing asks the server. Without its database it answers readiness alone.
func (c *client) standing(ctx context.Context) (standing, error) {
	s := standing{server: c.base.String()}
	status, body, err := c.exchange(ctx, request{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return s, err
	}
	if json.Unmarshal(body, &s.ready) != nil || s.ready.Status == "" {
		return s, c.stranger(status)
	}
	s.ready.raw = body
	if body, err = c.one(ctx, "/api/v1/version", nil); err != nil {
		return s, err
	}
	if err := json.Unmarshal(body, &s.version); err != nil {
		return s, fmt.Errorf("read the server's answer: %w", err)
	}
	if s.queues, err = readList[wireQueue](ctx, c, "/api/v1/queues", nil); err == nil {
		if s.workers, err = readList[wireWorker](ctx, c, "/api/v1/workers", nil); err == nil {
			s.newest, err = readList[wireDead](ctx, c, "/api/v1/dlq", url.Values{"limit": {"1"}})
		}
	}
	if err != nil && status != http.StatusOK && exitCode(err) == exitUnreachable {
		return s, nil // readiness has said why
	}
	return s, err
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
func (a *app) printStatus(s standing, v verdict) error {
	if a.format == formatJSON || a.format == formatJSONL {
		return a.printStatusJSON(s, v)
	}
	if a.format == formatID {
		return a.write([]byte(v.word + "\n"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", a.colour(v.word), printable(strings.Join(v.reasons, "; ")))
	live, busy, slots := fleet(s.workers)
	b.WriteString(a.details([]pair{
		{"server", s.server + ", version " + s.version.Version},
		{"database", databaseWord(s.ready)},
		{"workers", fmt.Sprintf("%d live, %d of %d slots busy", live, busy, slots)},
		{"dead letters", whole(dead(s.queues))},
	}))
	if len(s.queues) > 0 {
		b.WriteString("\n")
		queueView.table(&b, a, s.queues)
	}
	return a.write([]byte(b.String()))
}

func databaseWord(r readiness) string {
	if bad := r.failing(); len(bad) > 0 {
		return "not ready, " + strings.Join(bad, "; ")
	}
	return "ready"
}

// statusJSON is jobctl's own: no one answer of the API has all of it.
type statusJSON struct {
	Verdict string          `json:"verdict"`
	Reasons []string        `json:"reasons"`
	Server  string          `json:"server"`
	Version string          `json:"version"`
	Ready   json.RawMessage `json:"ready"`
	Workers struct {
		Live      int   `json:"live"`
		SlotsBusy int64 `json:"slots_busy"`
		Slots     int64 `json:"slots"`
	} `json:"workers"`
	DeadLetters int64             `json:"dead_letters"`
	Queues      []json.RawMessage `json:"queues"`
}

func (a *app) printStatusJSON(s standing, v verdict) error {
	out := statusJSON{Verdict: v.word, Reasons: v.reasons, Server: s.server, Version: s.version.Version, Ready: s.ready.raw,
		DeadLetters: dead(s.queues), Queues: rawOf(s.queues)}
	out.Workers.Live, out.Workers.SlotsBusy, out.Workers.Slots = fleet(s.workers)
	body, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	return a.write(append(body, '\n'))
}

func rawOf[T any](items []item[T]) []json.RawMessage {
	raws := make([]json.RawMessage, len(items))
	for i, it := range items {
		raws[i] = it.raw
	}
	return raws
}
