package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// wireAttempt is one run of a job.
type wireAttempt struct {
	Run          json.Number `json:"run"`
	Attempt      json.Number `json:"attempt"`
	FencingToken string      `json:"fencing_token"`
	Outcome      string      `json:"outcome"`
	Worker       string      `json:"worker"`
	Build        string      `json:"build"`
	StartedAt    *time.Time  `json:"started_at"`
	Wait         *float64    `json:"wait_seconds"`
	Duration     *float64    `json:"duration_seconds"`
	Error        *wireError  `json:"error"`
	Stack        string      `json:"stack"`
}

var runView = view[wireAttempt]{
	columns: []column[wireAttempt]{
		{name: "run", right: true, value: func(r wireAttempt) string { return r.Run.String() }},
		{name: "attempt", right: true, value: func(r wireAttempt) string { return r.Attempt.String() }},
		{name: "outcome", value: func(r wireAttempt) string { return orWord(r.Outcome, "running") }},
		{name: "started", value: func(r wireAttempt) string { return instant(r.StartedAt) }},
		{name: "took", right: true, value: func(r wireAttempt) string { return seconds(r.Duration) }},
		{name: "waited", wide: true, right: true, value: func(r wireAttempt) string { return seconds(r.Wait) }},
		{name: "worker", wide: true, value: func(r wireAttempt) string { return r.Worker }},
		{name: "build", wide: true, value: func(r wireAttempt) string { return r.Build }},
		{name: "token", wide: true, right: true, value: func(r wireAttempt) string { return r.FencingToken }},
		{name: "error", value: func(r wireAttempt) string { return oneLine(r.Error.text(), 80) }},
	},
}

// printJob shows one job to a person: what it is, its runs, its payload.
func (a *app) printJob(body []byte) error {
	var j wireJob
	if err := json.Unmarshal(body, &j); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	var b strings.Builder
	b.WriteString(a.details(jobPairs(j)))
	if len(j.Runs) > 0 {
		items := make([]item[wireAttempt], len(j.Runs))
		for i, r := range j.Runs {
			items[i].it = r
		}
		b.WriteString("\nRuns\n")
		runView.table(&b, a, items)
	}
	for _, part := range []struct {
		title string
		raw   json.RawMessage
	}{{"Payload", j.Payload}, {"Result", j.Result}} {
		if text := indented(part.raw); text != "" {
			fmt.Fprintf(&b, "\n%s\n%s\n", part.title, printable(text))
		}
	}
	if next := nextForJob(j); next != "" {
		defer a.say("%s", next)
	}
	return a.write([]byte(b.String()))
}

func jobPairs(j wireJob) []pair {
	pairs := []pair{
		{"id", j.ID}, {"status", j.Status}, {"reason", j.DeadReason + j.HeldReason}, {"type", j.Type}, {"queue", j.Queue},
		{"priority", j.Priority.String()}, {"attempt", fmt.Sprintf("%s of %s (run %s)", j.Attempts, j.MaxAttempts, orWord(j.Run.String(), "0"))},
		{"crashes", positive(j.Crashes)}, {"replays", positive(j.Replays)}, {"tags", strings.Join(j.Tags, ", ")},
		{"created at", instant(j.CreatedAt)}, {"run at", instant(j.RunAt)}, {"started at", instant(j.StartedAt)},
		{"finished at", instant(j.FinishedAt)}, {"expires at", instant(j.ExpiresAt)}, {"took", seconds(j.Duration)},
	}
	if l := j.Lease; l != nil {
		pairs = append(pairs, pair{"lease", fmt.Sprintf("worker %s, token %s, until %s", l.WorkerID, l.FencingToken, instant(l.ExpiresAt))})
	}
	if c := j.Callback; c != nil {
		pairs = append(pairs, pair{"callback to", oneLine(c.URL, 200)}, pair{"callback", strings.TrimSpace(c.JobID + " " + c.Status)}, pair{"callback error", oneLine(c.Error, 200)})
	}
	pairs = append(pairs, pair{"callback of", j.CallbackOf})
	if p := j.Progress; p != nil {
		pairs = append(pairs, pair{"progress", strings.TrimSuffix(p.Percent.String()+" %, "+oneLine(p.Text, 200), ", ")})
	}
	if s := j.Stop; s != nil {
		pairs = append(pairs, pair{"stop requested", instant(s.RequestedAt) + " by " + oneLine(s.Actor, 80)})
	}
	if e := j.LastError; e != nil {
		pairs = append(pairs, pair{"last error", oneLine(e.text(), 200)}, pair{"fingerprint", e.Fingerprint})
	}
	return pairs
}

func positive(n json.Number) string {
	if n == "0" {
		return ""
	}
	return n.String()
}

func nextForJob(j wireJob) string {
	switch j.Status {
	case "dead_letter":
		return "Replay it with: jobctl dlq replay " + j.ID
	case "leased":
		if j.Stop == nil {
			return "Ask it to stop with: jobctl jobs stop " + j.ID
		}
	case "pending", "failed":
		return "Cancel it with: jobctl jobs cancel " + j.ID
	}
	return ""
}
