package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// wireJob is what jobctl reads of a job. -o json prints what came instead.
type wireJob struct {
	ID          string          `json:"id"`
	Status      string          `json:"status"`
	Type        string          `json:"type"`
	Queue       string          `json:"queue"`
	Priority    json.Number     `json:"priority"`
	Attempts    json.Number     `json:"attempts"`
	MaxAttempts json.Number     `json:"max_attempts"`
	Run         json.Number     `json:"run"`
	Crashes     json.Number     `json:"crashes"`
	Replays     json.Number     `json:"replays"`
	RunAt       *time.Time      `json:"run_at"`
	CreatedAt   *time.Time      `json:"created_at"`
	StartedAt   *time.Time      `json:"started_at"`
	FinishedAt  *time.Time      `json:"finished_at"`
	ExpiresAt   *time.Time      `json:"expires_at"`
	Duration    *float64        `json:"duration_seconds"`
	Tags        []string        `json:"tags"`
	Payload     json.RawMessage `json:"payload"`
	Result      json.RawMessage `json:"result"`
	LastError   *wireError      `json:"last_error"`
	// UniqueOutcome is held or replaced, in the answer to an enqueue.
	UniqueOutcome string `json:"unique_outcome"`
	Lease         *struct {
		WorkerID     string     `json:"worker_id"`
		FencingToken string     `json:"fencing_token"`
		ExpiresAt    *time.Time `json:"expires_at"`
	} `json:"lease"`
	DeadReason  string        `json:"dead_reason"`
	DiscardedAt *time.Time    `json:"discarded_at"`
	HeldReason  string        `json:"held_reason"`
	Runs        []wireAttempt `json:"executions"`
	CallbackOf  string        `json:"callback_of"`
	Callback    *struct {
		URL    string `json:"url"`
		JobID  string `json:"job_id"`
		Status string `json:"status"`
		Error  string `json:"error"`
	} `json:"callback"`
	Progress *struct {
		Percent json.Number `json:"percent"`
		Text    string      `json:"text"`
	} `json:"progress"`
	Stop *struct {
		RequestedAt *time.Time `json:"requested_at"`
		Actor       string     `json:"actor"`
	} `json:"stop_request"`
}

type wireError struct {
	Class       string `json:"class"`
	Message     string `json:"message"`
	Fingerprint string `json:"fingerprint"`
	Stack       string `json:"stack"`
}

func (e *wireError) text() string {
	if e == nil {
		return ""
	}
	if e.Class == "" {
		return e.Message
	}
	return e.Class + ": " + e.Message
}

func seconds(s *float64) string {
	if s == nil {
		return ""
	}
	return strconv.FormatFloat(*s, 'f', 3, 64) + "s"
}

var jobView = view[wireJob]{
	id:    func(j wireJob) string { return j.ID },
	empty: "No job matches.",
	columns: []column[wireJob]{
		{name: "id", value: func(j wireJob) string { return j.ID }},
		{name: "status", value: func(j wireJob) string { return j.Status }},
		{name: "type", value: func(j wireJob) string { return j.Type }},
		{name: "queue", value: func(j wireJob) string { return j.Queue }},
		{name: "prio", right: true, value: func(j wireJob) string { return j.Priority.String() }},
		{name: "attempt", right: true, value: func(j wireJob) string { return j.Attempts.String() + "/" + j.MaxAttempts.String() }},
		{name: "created", value: func(j wireJob) string { return ago(j.CreatedAt) }},
		{name: "run at", wide: true, value: func(j wireJob) string { return instant(j.RunAt) }},
		{name: "finished at", wide: true, value: func(j wireJob) string { return instant(j.FinishedAt) }},
		{name: "took", wide: true, right: true, value: func(j wireJob) string { return seconds(j.Duration) }},
		{name: "last error", wide: true, value: func(j wireJob) string { return oneLine(j.LastError.text(), 80) }},
	},
}

// statuses are what --status takes: the states, and running for leased.
var statuses = []string{"pending", "blocked", "leased", "running", "failed", "completed", "dead_letter", "cancelled"}

func newJobsCommand(a *app) *cobra.Command {
	cmd := noun("jobs", "List, read, enqueue, cancel and stop jobs", `  jobctl jobs list --status failed
  jobctl jobs get 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10`)
	cmd.AddCommand(a.watched(newJobsListCommand(a)), a.watched(newJobsGetCommand(a)), newJobsEnqueueCommand(a), newJobsCancelCommand(a), newJobsStopCommand(a), newJobsRunNowCommand(a),
		newJobsExplainCommand(a), newJobsLogsCommand(a), newJobsWatchCommand(a))
	return cmd
}

func newJobsListCommand(a *app) *cobra.Command {
	var l listFlags
	var status, jobType, queue, priority, search string
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first", Args: exactly(),
		Example: `  jobctl jobs list --status failed --queue mail
  jobctl jobs list --type webhook --all -o jsonl
  jobctl jobs list --status dead_letter -o id --limit 100
  jobctl jobs list --query 'state:failed queue:billing attempt:>=3 error:"gateway timeout"'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if status != "" {
				if err := oneOf("--status", status, statuses); err != nil {
					return err
				}
			}
			if search != "" && status+jobType+queue+priority != "" {
				return usage(`Write them into it, as in --query "queue:mail state:failed"`, "--query says it all: leave out --status, --type, --queue and --priority")
			}
			setGiven(query, map[string]string{"status": status, "type": jobType, "queue": queue, "priority": priority, "q": search})
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, items, err := c.pages(cmd.Context(), "/api/v1/jobs", query, l)
			if err != nil {
				return err
			}
			return jobView.print(a, body, items)
		},
	}
	l.add(cmd)
	cmd.Flags().StringVar(&status, "status", "", "only jobs in this `state`")
	cmd.Flags().StringVar(&jobType, "type", "", "only jobs of this `type`")
	cmd.Flags().StringVar(&queue, "queue", "", "only jobs of this `queue`")
	cmd.Flags().StringVar(&priority, "priority", "", "only jobs of this `priority`")
	cmd.Flags().StringVar(&search, "query", "", "a `search`, as in the console; see its help page for the words")
	return cmd
}

func setGiven(query url.Values, values map[string]string) {
	for name, value := range values {
		if value != "" {
			query.Set(name, value)
		}
	}
}

func newJobsGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one job with its payload, runs and last error", Args: exactly("the id of a job"),
		Example: `  jobctl jobs get 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10
  jobctl jobs get 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 --json | jq .payload`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, err := c.one(cmd.Context(), "/api/v1/jobs/"+ids[0], url.Values{"include": {"attempts,result"}})
			if err != nil {
				return err
			}
			if a.format != formatTable && a.format != formatWide {
				return jobView.print(a, body, []json.RawMessage{body})
			}
			return a.printJob(body)
		},
	}
}

func newJobsCancelCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cancel ID...", Short: "Cancel jobs that wait", Args: cobra.ArbitraryArgs,
		Example: `  jobctl jobs cancel 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 --reason 'ordered twice'
  jobctl jobs list --queue mail --status pending -o id --all | xargs jobctl jobs cancel --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), "Cancelling "+many(ids)); err != nil {
				return err
			}
			return a.actOnJobs(cmd.Context(), c, ids, jobAct{method: http.MethodDelete, path: "/api/v1/jobs/ID", done: "cancelled", states: []string{"pending", "blocked", "failed"}}, reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	a.addDryRun(cmd)
	return cmd
}

// many names one job, or says how many.
func many(ids []string) string {
	if len(ids) == 1 {
		return "job " + ids[0]
	}
	return fmt.Sprintf("%d jobs", len(ids))
}

// indented is JSON for reading: keys sorted, numbers digit for digit.
func indented(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return ""
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("  ", "  ")
	if e.Encode(v) != nil {
		return ""
	}
	return "  " + strings.TrimRight(b.String(), "\n")
}
