package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// wireWorker is what jobctl reads of a worker.
type wireWorker struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Hostname string   `json:"hostname"`
	PID      int      `json:"pid"`
	Build    string   `json:"build"`
	Queues   []string `json:"queues"`
	Types    []string `json:"types"`
	Status   string   `json:"status"`
	Leader   bool     `json:"leader"`
	Slots    struct {
		Busy  int64 `json:"busy"`
		Total int64 `json:"total"`
		Stuck int64 `json:"stuck"`
	} `json:"slots"`
	StartedAt    *time.Time `json:"started_at"`
	HeartbeatAt  *time.Time `json:"heartbeat_at"`
	HeartbeatAge float64    `json:"heartbeat_age_seconds"`
	DoneMinute   int64      `json:"completed_per_minute"`
	Failed       int64      `json:"failed_15_minutes"`
}

func (w wireWorker) beat() string {
	return span(time.Duration(w.HeartbeatAge*float64(time.Second))) + " ago"
}

func (w wireWorker) serves() string {
	if len(w.Queues) == 0 {
		return "all"
	}
	return strings.Join(w.Queues, ", ")
}

func (w wireWorker) leads() string {
	if w.Leader {
		return "yes"
	}
	return ""
}

var workerView = view[wireWorker]{
	id:    func(w wireWorker) string { return w.ID },
	empty: "No worker has run within the last days. Start one with: make run",
	columns: []column[wireWorker]{
		{name: "id", right: true, value: func(w wireWorker) string { return w.ID }},
		{name: "name", value: func(w wireWorker) string { return w.Name }},
		{name: "status", value: func(w wireWorker) string { return w.Status }},
		{name: "slots", right: true, value: func(w wireWorker) string { return whole(w.Slots.Busy) + "/" + whole(w.Slots.Total) }},
		{name: "queues", value: func(w wireWorker) string { return oneLine(w.serves(), 60) }},
		{name: "build", value: func(w wireWorker) string { return w.Build }},
		{name: "heartbeat", value: wireWorker.beat},
		{name: "leads", value: wireWorker.leads},
		{name: "done/min", wide: true, right: true, value: func(w wireWorker) string { return whole(w.DoneMinute) }},
		{name: "failed 15 min", wide: true, right: true, value: func(w wireWorker) string { return whole(w.Failed) }},
		{name: "host", wide: true, value: func(w wireWorker) string { return w.Hostname + ":" + strconv.Itoa(w.PID) }},
		{name: "started at", wide: true, value: func(w wireWorker) string { return instant(w.StartedAt) }},
	},
}

func newWorkersCommand(a *app) *cobra.Command {
	cmd := noun("workers", "List and read workers", "  jobctl workers list")
	var l listFlags
	list := &cobra.Command{
		Use: "list", Short: "List workers with their slots and heartbeats", Args: exactly(),
		Example: "  jobctl workers list -o wide\n  jobctl workers list --watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, items, err := c.whole(cmd.Context(), "/api/v1/workers", l)
			if err != nil {
				return err
			}
			return workerView.print(a, body, items)
		},
	}
	l.add(list)
	get := &cobra.Command{
		Use: "get ID", Short: "Show one worker", Args: exactly("the id or the name of a worker"),
		Example: "  jobctl workers get 7\n  jobctl workers get w-billing-1 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			items, err := readList[wireWorker](cmd.Context(), c, "/api/v1/workers", nil)
			if err != nil {
				return err
			}
			for _, w := range items { // the living come first
				if w.it.ID == args[0] || w.it.Name == args[0] {
					return a.printWorker(w)
				}
			}
			return &failure{exitNotFound, fmt.Errorf("no worker has the id or name %q", args[0]), "See: jobctl workers list"}
		},
	}
	cmd.AddCommand(a.watched(list), a.watched(get))
	return cmd
}

func (a *app) printWorker(w item[wireWorker]) error {
	if a.format != formatTable && a.format != formatWide {
		return workerView.print(a, w.raw, []json.RawMessage{w.raw})
	}
	x := w.it
	return a.write([]byte(a.details([]pair{
		{"id", x.ID}, {"name", x.Name}, {"status", x.Status}, {"leads", x.leads()}, {"host", x.Hostname}, {"process", strconv.Itoa(x.PID)}, {"build", x.Build},
		{"queues", x.serves()}, {"types", strings.Join(x.Types, ", ")}, {"slots", fmt.Sprintf("%d of %d busy, %d stuck", x.Slots.Busy, x.Slots.Total, x.Slots.Stuck)},
		{"completed", whole(x.DoneMinute) + " a minute"}, {"failed", whole(x.Failed) + " in 15 min"},
		{"started at", instant(x.StartedAt)}, {"heartbeat", instant(x.HeartbeatAt) + ", " + x.beat()},
	})))
}
