package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// wireDead is what jobctl reads of a dead letter.
type wireDead struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Queue        string          `json:"queue"`
	Reason       string          `json:"reason"`
	Attempts     json.Number     `json:"attempts"`
	MaxAttempts  json.Number     `json:"max_attempts"`
	Crashes      json.Number     `json:"crashes"`
	Replays      json.Number     `json:"replays"`
	FencingToken string          `json:"fencing_token"`
	CreatedAt    *time.Time      `json:"created_at"`
	DiedAt       *time.Time      `json:"died_at"`
	DiscardedAt  *time.Time      `json:"discarded_at"`
	Error        *wireError      `json:"error"`
	Stack        string          `json:"stack"`
	Worker       json.RawMessage `json:"worker"`
	Payload      json.RawMessage `json:"payload"`
	Tags         []string        `json:"tags"`
}

var deadView = view[wireDead]{
	id:    func(d wireDead) string { return d.ID },
	empty: "No dead letter matches. Jobs land here when their attempts are used up, or at once after an error that no retry can mend.",
	columns: []column[wireDead]{
		{name: "id", value: func(d wireDead) string { return d.ID }},
		{name: "died", value: func(d wireDead) string { return ago(d.DiedAt) }},
		{name: "reason", value: func(d wireDead) string { return d.Reason }},
		{name: "type", value: func(d wireDead) string { return d.Type }},
		{name: "queue", value: func(d wireDead) string { return d.Queue }},
		{name: "attempt", right: true, value: func(d wireDead) string { return d.Attempts.String() + "/" + d.MaxAttempts.String() }},
		{name: "replays", wide: true, right: true, value: func(d wireDead) string { return d.Replays.String() }},
		{name: "died at", wide: true, value: func(d wireDead) string { return instant(d.DiedAt) }},
		{name: "fingerprint", wide: true, value: func(d wireDead) string { return d.Error.fingerprint() }},
		{name: "error", value: func(d wireDead) string { return oneLine(d.Error.text(), 80) }},
	},
}

func (e *wireError) fingerprint() string {
	if e == nil {
		return ""
	}
	return e.Fingerprint
}

var deadReasons = []string{"exhausted", "permanent", "poison", "expired"}

func newDLQCommand(a *app) *cobra.Command {
	cmd := noun("dlq", "List, read, replay, discard and restore dead letters", `  jobctl dlq list
  jobctl dlq replay --id 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10`)
	cmd.AddCommand(a.watched(newDLQListCommand(a)), a.watched(newDLQGroupsCommand(a)), a.watched(newDLQGetCommand(a)),
		newDLQAct(a, deadAct{verb: "replay", done: "replayed", short: "Put dead letters back into their queue, attempts at 0, history kept",
			example: `  jobctl dlq replay --id 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10
  jobctl dlq replay --queue billing --pace canary --reason 'gateway fixed, INC-204' --dry-run
  jobctl dlq replay --type charge --pace rate --per-minute 120 --reason 'gateway fixed' --wait`, many: true, paced: true}),
		newDLQAct(a, deadAct{verb: "discard", done: "discarded", harm: "Discarding", short: "Take dead letters off the list; restorable for 7 days",
			example: `  jobctl dlq discard 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 --reason 'customer is gone' --yes
  jobctl dlq discard --type newsletter --reason 'sent by hand' --yes`, many: true}),
		newDLQAct(a, deadAct{verb: "restore", done: "restored", short: "Put discarded dead letters back on the list",
			example: `  jobctl dlq restore 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10
  jobctl dlq list --discarded -o id | xargs jobctl dlq restore`, discarded: true}))
	return cmd
}

func newDLQListCommand(a *app) *cobra.Command {
	var l listFlags
	var jobType, queue, reason, fingerprint string
	var discarded bool
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, the last to die first", Args: exactly(),
		Example: `  jobctl dlq list --queue billing -o wide
  jobctl dlq list --discarded`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if reason != "" {
				if err := oneOf("--reason", reason, deadReasons); err != nil {
					return err
				}
			}
			setGiven(query, map[string]string{"type": jobType, "queue": queue, "reason": reason, "fingerprint": fingerprint})
			if discarded {
				query.Set("discarded", "true")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, items, err := c.pages(cmd.Context(), "/api/v1/dlq", query, l)
			if err != nil {
				return err
			}
			return deadView.print(a, body, items)
		},
	}
	l.add(cmd)
	cmd.Flags().StringVar(&jobType, "type", "", "only jobs of this `type`")
	cmd.Flags().StringVar(&queue, "queue", "", "only jobs of this `queue`")
	cmd.Flags().StringVar(&reason, "reason", "", "only jobs that died of this `cause`: "+strings.Join(deadReasons, ", "))
	cmd.Flags().StringVar(&fingerprint, "fingerprint", "", "only jobs with this error's `fingerprint`")
	cmd.Flags().BoolVar(&discarded, "discarded", false, "those that were discarded instead")
	return cmd
}

// wireDeadGroup is what jobctl reads of the dead letters with one cause.
type wireDeadGroup struct {
	Fingerprint string      `json:"fingerprint"`
	Count       json.Number `json:"count"`
	Error       *wireError  `json:"error"`
	Types       []string    `json:"types"`
	Queues      []string    `json:"queues"`
	Reasons     []string    `json:"reasons"`
	FirstDiedAt *time.Time  `json:"first_died_at"`
	LastDiedAt  *time.Time  `json:"last_died_at"`
	Build       string      `json:"build"`
	Sample      string      `json:"sample_id"`
}

var deadGroupView = view[wireDeadGroup]{
	id:    func(g wireDeadGroup) string { return g.Fingerprint },
	empty: "No dead letter matches. Jobs land here when their attempts are used up, or at once after an error that no retry can mend.",
	columns: []column[wireDeadGroup]{
		{name: "fingerprint", value: func(g wireDeadGroup) string { return g.Fingerprint }},
		{name: "jobs", right: true, value: func(g wireDeadGroup) string { return g.Count.String() }},
		{name: "last died", value: func(g wireDeadGroup) string { return ago(g.LastDiedAt) }},
		{name: "first died", value: func(g wireDeadGroup) string { return ago(g.FirstDiedAt) }},
		{name: "types", value: func(g wireDeadGroup) string { return strings.Join(g.Types, ", ") }},
		{name: "queues", value: func(g wireDeadGroup) string { return strings.Join(g.Queues, ", ") }},
		{name: "reasons", wide: true, value: func(g wireDeadGroup) string { return strings.Join(g.Reasons, ", ") }},
		{name: "build", wide: true, value: func(g wireDeadGroup) string { return g.Build }},
		{name: "newest", wide: true, value: func(g wireDeadGroup) string { return g.Sample }},
		{name: "error", value: func(g wireDeadGroup) string { return oneLine(g.Error.text(), 80) }},
	},
}

func newDLQGroupsCommand(a *app) *cobra.Command {
	var jobType, queue string
	var limit int
	cmd := &cobra.Command{
		Use: "groups", Short: "List dead letters by cause, the last to die first", Args: exactly(),
		Example: `  jobctl dlq groups --queue billing
  jobctl dlq replay --fingerprint "$(jobctl dlq groups --limit 1 -o id)" --pace canary --dry-run`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 200 {
				return usage("Ask for fewer with --type or --queue.", "--limit is from 1 to 200, not %d", limit)
			}
			query := url.Values{"group": {"fingerprint"}}
			setGiven(query, map[string]string{"type": jobType, "queue": queue})
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, items, err := c.pages(cmd.Context(), "/api/v1/dlq", query, listFlags{limit: limit})
			if err != nil {
				return err
			}
			return deadGroupView.print(a, body, items)
		},
	}
	cmd.Flags().StringVar(&jobType, "type", "", "only jobs of this `type`")
	cmd.Flags().StringVar(&queue, "queue", "", "only jobs of this `queue`")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many `groups`, 1 to 200")
	return cmd
}

func newDLQGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one dead letter with its error, stack and payload", Args: exactly("the id of a job"),
		Example: "  jobctl dlq get 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10",
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, err := c.one(cmd.Context(), "/api/v1/dlq/"+ids[0], nil)
			if err != nil {
				return err
			}
			if a.format != formatTable && a.format != formatWide {
				return deadView.print(a, body, []json.RawMessage{body})
			}
			return a.printDead(body)
		},
	}
}

func (a *app) printDead(body []byte) error {
	var d wireDead
	if err := json.Unmarshal(body, &d); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	var b strings.Builder
	b.WriteString(a.details([]pair{
		{"id", d.ID}, {"reason", d.Reason}, {"type", d.Type}, {"queue", d.Queue}, {"attempt", d.Attempts.String() + " of " + d.MaxAttempts.String()},
		{"crashes", positive(d.Crashes)}, {"replays", positive(d.Replays)}, {"tags", strings.Join(d.Tags, ", ")},
		{"created at", instant(d.CreatedAt)}, {"died at", instant(d.DiedAt)}, {"discarded at", instant(d.DiscardedAt)},
		{"last token", d.FencingToken}, {"fingerprint", d.Error.fingerprint()},
	}))
	fmt.Fprintf(&b, "\nError\n  %s\n", indentText(printable(d.Error.text())))
	if d.Stack != "" {
		fmt.Fprintf(&b, "\nStack\n  %s\n", indentText(printable(strings.TrimRight(d.Stack, "\n"))))
	}
	for _, part := range []struct {
		title string
		raw   json.RawMessage
	}{{"Worker", d.Worker}, {"Payload", d.Payload}} {
		if text := indented(part.raw); text != "" {
			fmt.Fprintf(&b, "\n%s\n%s\n", part.title, printable(text))
		}
	}
	if err := a.write([]byte(b.String())); err != nil {
		return err
	}
	if d.DiscardedAt != nil {
		a.say("Put it back with: jobctl dlq restore %s", d.ID)
	} else {
		a.say("Replay it with: jobctl dlq replay %s", d.ID)
	}
	return nil
}

func indentText(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }

// deadAct is what can be done to dead letters. Without harm it is done unasked.
// One with many takes a selection too, and makes an operation of it.
type deadAct struct {
	verb, done, harm, short, example string
	many, paced, discarded           bool
}

func newDLQAct(a *app, act deadAct) *cobra.Command {
	var flagged []string
	var reason string
	var selected selection
	cmd := &cobra.Command{
		Use: act.verb + " ID...", Short: act.short, Example: act.example, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if selected.given() {
				if len(args)+len(flagged) > 0 {
					return usage("Give either.", "%s takes ids or a selection, not both", cmd.CommandPath())
				}
				return a.operate(cmd.Context(), act, &selected, nil, reason)
			}
			if selected.pace != "" || selected.perMinute != 0 || selected.wait {
				return usage("Say which: --query, --type, --queue, --fingerprint or --cause.", "--pace, --per-minute and --wait go with a selection")
			}
			ids, err := jobIDs(cmd, args, flagged)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if act.harm != "" {
				if err := a.confirm(cmd.Context(), act.harm+" "+many(ids)); err != nil {
					return err
				}
			}
			return a.actOnJobs(cmd.Context(), c, ids, jobAct{method: http.MethodPost, path: "/api/v1/dlq/ID/" + act.verb, done: act.done,
				states: []string{"dead_letter"}, discarded: act.discarded}, reason)
		},
	}
	cmd.Flags().StringArrayVar(&flagged, "id", nil, "`id` of a job; may be repeated")
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	a.addDryRun(cmd)
	if act.many {
		selected.add(cmd, act.paced)
	}
	return cmd
}
