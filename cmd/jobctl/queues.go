package main

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// wireQueue is what jobctl reads of a queue.
type wireQueue struct {
	Name         string `json:"name"`
	Paused       bool   `json:"paused"`
	PausedReason string `json:"paused_reason"`
	Depth        struct {
		Ready     int64 `json:"ready"`
		Scheduled int64 `json:"scheduled"`
		Running   int64 `json:"running"`
		Retrying  int64 `json:"retrying"`
		Dead      int64 `json:"dead"`
	} `json:"depth"`
	OldestReady *float64 `json:"oldest_ready_seconds"`
	Workers     int      `json:"workers"`
	Slots       struct {
		Busy  int64 `json:"busy"`
		Total int64 `json:"total"`
	} `json:"slots"`
	PerMinute struct {
		Enqueued  float64 `json:"enqueued"`
		Completed float64 `json:"completed"`
		Failed    float64 `json:"failed"`
	} `json:"per_minute"`
}

// oldest is how long the first ready job waits; empty without one.
func (q wireQueue) oldest() string {
	if q.OldestReady == nil || q.Depth.Ready == 0 {
		return ""
	}
	return span(time.Duration(*q.OldestReady * float64(time.Second)))
}

func (q wireQueue) state() string {
	if q.Paused {
		return "paused"
	}
	return "active"
}

func whole(n int64) string          { return strconv.FormatInt(n, 10) }
func perMinute(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }

var queueView = view[wireQueue]{
	id:    func(q wireQueue) string { return q.Name },
	empty: "No queue is known yet: a queue exists once it has a job.",
	columns: []column[wireQueue]{
		{name: "queue", value: func(q wireQueue) string { return q.Name }},
		{name: "state", value: wireQueue.state},
		{name: "ready", right: true, value: func(q wireQueue) string { return whole(q.Depth.Ready) }},
		{name: "oldest", right: true, value: wireQueue.oldest},
		{name: "running", right: true, value: func(q wireQueue) string { return whole(q.Depth.Running) }},
		{name: "scheduled", right: true, value: func(q wireQueue) string { return whole(q.Depth.Scheduled) }},
		{name: "retrying", right: true, value: func(q wireQueue) string { return whole(q.Depth.Retrying) }},
		{name: "dead", right: true, value: func(q wireQueue) string { return whole(q.Depth.Dead) }},
		{name: "workers", right: true, value: func(q wireQueue) string { return strconv.Itoa(q.Workers) }},
		{name: "slots", wide: true, right: true, value: func(q wireQueue) string { return whole(q.Slots.Busy) + "/" + whole(q.Slots.Total) }},
		{name: "in/min", wide: true, right: true, value: func(q wireQueue) string { return perMinute(q.PerMinute.Enqueued) }},
		{name: "done/min", wide: true, right: true, value: func(q wireQueue) string { return perMinute(q.PerMinute.Completed) }},
		{name: "failed/min", wide: true, right: true, value: func(q wireQueue) string { return perMinute(q.PerMinute.Failed) }},
	},
}

func newQueuesCommand(a *app) *cobra.Command {
	cmd := noun("queues", "List and read queues", "  jobctl queues list")
	var l listFlags
	list := &cobra.Command{
		Use: "list", Short: "List queues with their depths", Args: exactly(),
		Example: "  jobctl queues list -o wide\n  jobctl queues list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, items, err := c.whole(cmd.Context(), "/api/v1/queues", l)
			if err != nil {
				return err
			}
			return queueView.print(a, body, items)
		},
	}
	l.add(list)
	get := &cobra.Command{
		Use: "get NAME", Short: "Show one queue", Args: exactly("the name of a queue"),
		Example: "  jobctl queues get mail",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, err := c.one(cmd.Context(), "/api/v1/queues/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return queueView.print(a, body, []json.RawMessage{body})
		},
	}
	cmd.AddCommand(a.watched(list), a.watched(get))
	return cmd
}
