package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// wireExplanation is why a job is not running.
type wireExplanation struct {
	JobID    string `json:"job_id"`
	Headline struct {
		Text string `json:"text"`
	} `json:"headline"`
	Checks []wireWhy `json:"checks"`
}

type wireWhy struct {
	Code     string                     `json:"code"`
	Verdict  string                     `json:"verdict"`
	Text     string                     `json:"text"`
	Evidence map[string]json.RawMessage `json:"evidence"`
	Action   *struct {
		Code string `json:"code"`
		Href string `json:"href"`
	} `json:"action"`
}

var explanationView = view[wireExplanation]{id: func(x wireExplanation) string { return x.JobID }}

// verdictMarks are how a check came out, at a glance.
var verdictMarks = map[string]string{"passed": "✓", "failed": "✗"}

func newJobsExplainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Say why a job is not running", Args: exactly("the id of a job"),
		Long: "Say why a job is not running: the first thing that is in its way, then every check in order, ✓ clear, ✗ in the way, - not asked. The evidence stands below what is in the way; -o wide shows all of it.",
		Example: `  jobctl jobs explain 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10
  jobctl jobs explain 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 --json | jq -r .headline.code`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, err := c.one(cmd.Context(), "/api/v1/jobs/"+ids[0]+"/explain", nil)
			if err != nil {
				return err
			}
			if a.format != formatTable && a.format != formatWide {
				return explanationView.print(a, body, []json.RawMessage{body})
			}
			return a.printExplanation(body)
		},
	}
}

func (a *app) printExplanation(body []byte) error {
	var x wireExplanation
	if err := json.Unmarshal(body, &x); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", printable(oneLine(x.Headline.Text, 1000)))
	next := ""
	for _, c := range x.Checks {
		mark, known := verdictMarks[c.Verdict]
		if !known {
			mark = "-"
		}
		fmt.Fprintf(&b, "%s %s\n", a.colour(mark), printable(oneLine(c.Text, 1000)))
		if c.Verdict == "failed" || a.format == formatWide {
			for _, name := range slices.Sorted(maps.Keys(c.Evidence)) {
				fmt.Fprintf(&b, "    %s: %s\n", printable(name), printable(plainValue(c.Evidence[name])))
			}
		}
		if c.Verdict == "failed" && next == "" {
			next = c.command(x.JobID)
		}
	}
	if next != "" {
		defer a.say("%s", next)
	}
	return a.write([]byte(b.String()))
}

// command is what helps, where this program has it.
func (c wireWhy) command(id string) string {
	if c.Action == nil {
		return ""
	}
	switch c.Action.Code {
	case "run_now":
		return "Bring it forward with: jobctl jobs run-now " + id
	case "replay":
		return "Replay it with: jobctl dlq replay " + id
	case "restore":
		return "Restore it with: jobctl dlq restore " + id
	case "view_queue":
		return "Look at its queue with: jobctl queues get " + c.text("queue")
	}
	return ""
}

func (c wireWhy) text(name string) string { return plainValue(c.Evidence[name]) }

// plainValue is a piece of evidence for reading: text without its quotes, on one
// line; the rest as it came.
func plainValue(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return oneLine(s, 500)
	}
	return string(raw)
}
