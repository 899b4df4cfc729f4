package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// wireOperation is what jobctl reads of an operation.
type wireOperation struct {
	ID           string     `json:"id"`
	Action       string     `json:"action"`
	Status       string     `json:"status"`
	Pace         string     `json:"pace"`
	PerMinute    int        `json:"per_minute"`
	Total        int        `json:"total"`
	Done         int        `json:"done"`
	PassedOver   int        `json:"passed_over"`
	HaltedReason string     `json:"halted_reason"`
	Actor        string     `json:"actor"`
	Source       string     `json:"source"`
	Reason       string     `json:"reason"`
	CutOff       *time.Time `json:"cut_off"`
	CreatedAt    *time.Time `json:"created_at"`
	EndedAt      *time.Time `json:"ended_at"`
	Select       struct {
		IDs         []string `json:"ids"`
		Query       string   `json:"q"`
		Type        string   `json:"type"`
		Queue       string   `json:"queue"`
		Fingerprint string   `json:"fingerprint"`
		DeadReason  string   `json:"dead_reason"`
	} `json:"select"`
	Outcomes *struct {
		Looked int `json:"looked_at"`
		Ran    int `json:"ran"`
		Failed int `json:"failed"`
	} `json:"outcomes"`
	Failures []struct {
		JobID      string `json:"job_id"`
		PassedOver bool   `json:"passed_over"`
		Outcome    string `json:"outcome"`
		Class      string `json:"class"`
		Message    string `json:"message"`
	} `json:"failures"`
}

func (o wireOperation) progress() string { return fmt.Sprintf("%d/%d", o.Done+o.PassedOver, o.Total) }

func (o wireOperation) pace() string {
	if o.PerMinute > 0 {
		return strconv.Itoa(o.PerMinute) + " a minute"
	}
	return o.Pace
}

// selected tells which jobs it is for.
func (o wireOperation) selected() string {
	var parts []string
	for _, p := range []pair{{"search", o.Select.Query}, {"type", o.Select.Type}, {"queue", o.Select.Queue}, {"fingerprint", o.Select.Fingerprint}, {"died of", o.Select.DeadReason}} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	if n := len(o.Select.IDs); n > 0 {
		parts = append(parts, fmt.Sprintf("%d ids", n))
	}
	return strings.Join(parts, ", ")
}

var operationView = view[wireOperation]{
	id:    func(o wireOperation) string { return o.ID },
	empty: "No operation yet. One begins with: jobctl dlq replay --fingerprint 9f3c1a2b --pace canary --reason 'gateway fixed'",
	columns: []column[wireOperation]{
		{name: "id", value: func(o wireOperation) string { return o.ID }},
		{name: "made", value: func(o wireOperation) string { return ago(o.CreatedAt) }},
		{name: "action", value: func(o wireOperation) string { return o.Action }},
		{name: "status", value: func(o wireOperation) string { return o.Status }},
		{name: "progress", right: true, value: wireOperation.progress},
		{name: "pace", value: wireOperation.pace},
		{name: "by", wide: true, value: func(o wireOperation) string { return o.Actor }},
		{name: "jobs", wide: true, value: wireOperation.selected},
		{name: "reason", value: func(o wireOperation) string { return oneLine(o.Reason, 60) }},
	},
}

func newOperationsCommand(a *app) *cobra.Command {
	cmd := noun("operations", "List, read and steer acts on many jobs", `  jobctl operations list
  jobctl dlq replay --queue billing --pace canary --reason 'gateway fixed'`)
	var l listFlags
	list := &cobra.Command{
		Use: "list", Short: "List operations, the newest first", Args: exactly(),
		Example: "  jobctl operations list -o wide",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, items, err := c.pages(cmd.Context(), "/api/v1/operations", url.Values{}, l)
			if err != nil {
				return err
			}
			return operationView.print(a, body, items)
		},
	}
	l.add(list)
	get := &cobra.Command{
		Use: "get ID", Short: "Show one operation, what came of it, and what failed again", Args: exactly("the id of an operation"),
		Example: "  jobctl operations get 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.connectFor(args[0])
			if err != nil {
				return err
			}
			body, err := c.one(cmd.Context(), "/api/v1/operations/"+id, nil)
			if err != nil {
				return err
			}
			return a.printOperation(body)
		},
	}
	wait := &cobra.Command{
		Use: "wait ID", Short: "Wait until an operation ends; exit code 1 unless it finishes", Args: exactly("the id of an operation"),
		Long:    "Wait until an operation ends, for an hour unless --timeout says otherwise. The exit code is 0 once it has finished, and 1 if it halts itself or is stopped.",
		Example: "  jobctl operations wait 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 --timeout 10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.connectFor(args[0])
			if err != nil {
				return err
			}
			return a.waitForOperation(cmd.Context(), c, id)
		},
	}
	cmd.AddCommand(a.watched(list), a.watched(get), wait,
		newSteerCommand(a, "pause", "Hold an operation before its next step"),
		newSteerCommand(a, "continue", "Go on with an operation that is paused or has halted itself"),
		newSteerCommand(a, "stop", "End an operation; what it has done stays"))
	return cmd
}

func newSteerCommand(a *app, act, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: act + " ID", Short: short, Args: exactly("the id of an operation"),
		Example: "  jobctl operations " + act + " 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.connectFor(args[0])
			if err != nil {
				return err
			}
			if a.dryRun {
				return a.rehearseSteer(cmd.Context(), c, id, act)
			}
			body, err := c.call(cmd.Context(), request{method: http.MethodPost, path: "/api/v1/operations/" + id + "/" + act, body: reasonBody(reason)})
			if err != nil {
				return err
			}
			return a.printOperation(body)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	a.addDryRun(cmd)
	return cmd
}

// connectFor is connect for a command about one operation.
func (a *app) connectFor(text string) (*client, string, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return nil, "", usage("jobctl operations list -o id prints them.", "%q is no operation's id", text)
	}
	c, err := a.connect()
	return c, id.String(), err
}

func (a *app) printOperation(body []byte) error {
	if a.format != formatTable && a.format != formatWide {
		return operationView.print(a, body, []json.RawMessage{body})
	}
	var o wireOperation
	if err := json.Unmarshal(body, &o); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	came := ""
	if o.Outcomes != nil && o.Action == "replay" {
		came = fmt.Sprintf("%d of the last %d have run since, %d failed again", o.Outcomes.Ran, o.Outcomes.Looked, o.Outcomes.Failed)
	}
	text := a.details([]pair{
		{"id", o.ID}, {"action", o.Action}, {"status", o.Status}, {"halted", o.HaltedReason}, {"progress", o.progress()}, {"passed over", positive(json.Number(strconv.Itoa(o.PassedOver)))},
		{"outcome", came}, {"pace", o.pace()}, {"jobs", o.selected()}, {"as of", instant(o.CutOff)}, {"by", o.Actor + ", " + o.Source}, {"reason", o.Reason},
		{"made at", instant(o.CreatedAt)}, {"ended at", instant(o.EndedAt)},
	})
	for i, f := range o.Failures {
		if i == 0 {
			text += "\nFailed again or passed over\n"
		}
		what := "passed over: it had changed since"
		if !f.PassedOver {
			what = strings.TrimSpace(f.Outcome + " " + f.Class + " " + oneLine(f.Message, 100))
		}
		text += "  " + f.JobID + "  " + printable(what) + "\n"
	}
	if err := a.write([]byte(text)); err != nil {
		return err
	}
	switch o.Status {
	case "running":
		a.say("Follow it with: jobctl operations wait %s", o.ID)
	case "paused", "halted":
		a.say("Go on with: jobctl operations continue %s", o.ID)
	}
	return nil
}

const (
	waitUsually = time.Hour
	waitStep    = time.Second
)

// waitForOperation asks once a second. What came is printed at the end.
func (a *app) waitForOperation(ctx context.Context, c *client, id string) error {
	limit := a.limit(waitUsually)
	ends := time.Now().Add(limit)
	tick := time.NewTicker(waitStep)
	defer tick.Stop()
	last := ""
	for {
		body, err := c.one(ctx, "/api/v1/operations/"+id, nil)
		if err != nil {
			return err
		}
		var o wireOperation
		if err := json.Unmarshal(body, &o); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		if now := o.Status + " " + o.progress(); now != last {
			a.say("%s", now)
			last = now
		}
		switch o.Status {
		case "finished":
			return a.printOperation(body)
		case "halted", "stopped":
			if err := a.printOperation(body); err != nil {
				return err
			}
			return &failure{exitFailed, fmt.Errorf("operation %s is %s", id, o.Status), ""}
		}
		if time.Now().After(ends) {
			return &failure{exitUnreachable, fmt.Errorf("operation %s is %s after %s", id, o.Status, limit), "It goes on. Wait longer with --timeout."}
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-tick.C:
		}
	}
}

// selection are the flags that say which dead letters an act is for.
type selection struct {
	query, jobType, queue, fingerprint, cause string
	pace                                      string
	perMinute                                 int
	wait                                      bool
}

func (s *selection) add(cmd *cobra.Command, paced bool) {
	f := cmd.Flags()
	f.StringVar(&s.query, "query", "", "all dead letters that match this `search`, as one operation")
	f.StringVar(&s.jobType, "type", "", "all dead letters of this `type`, as one operation")
	f.StringVar(&s.queue, "queue", "", "all dead letters of this `queue`, as one operation")
	f.StringVar(&s.fingerprint, "fingerprint", "", "all dead letters with this error's `fingerprint`, as one operation")
	f.StringVar(&s.cause, "cause", "", "all that died of this `cause`: "+strings.Join(deadReasons, ", "))
	f.BoolVar(&s.wait, "wait", false, "wait until the operation ends")
	if paced {
		f.StringVar(&s.pace, "pace", "", "of an operation: all (the default), rate, or canary: 5, watch, then double")
		f.IntVar(&s.perMinute, "per-minute", 0, "jobs a minute, with --pace rate")
	}
}

func (s *selection) given() bool {
	return s.query != "" || s.jobType != "" || s.queue != "" || s.fingerprint != "" || s.cause != ""
}

// body is the request of an operation; ids may be empty.
func (s *selection) body(action string, ids []string, reason string) map[string]any {
	b := map[string]any{"action": action}
	for name, value := range map[string]string{"q": s.query, "type": s.jobType, "queue": s.queue, "fingerprint": s.fingerprint, "dead_reason": s.cause, "pace": s.pace, "reason": reason} {
		if value != "" {
			b[name] = value
		}
	}
	if s.perMinute != 0 {
		b["per_minute"] = s.perMinute
	}
	if len(ids) > 0 {
		b["ids"] = ids
	}
	return b
}

// wirePreview is what jobctl reads of a dry run.
type wirePreview struct {
	Total  int `json:"total"`
	Groups []struct {
		Queue    string     `json:"queue"`
		Type     string     `json:"type"`
		Jobs     int        `json:"jobs"`
		OldestAt *time.Time `json:"oldest_at"`
	} `json:"groups"`
}

// operate looks first, asks if act does harm, and makes the operation for the
// number that it saw.
func (a *app) operate(ctx context.Context, act deadAct, s *selection, ids []string, reason string) error {
	if s.cause != "" {
		if err := oneOf("--cause", s.cause, deadReasons); err != nil {
			return err
		}
	}
	if !a.dryRun && reason == "" {
		return usage("Add --reason 'why': it stands in the audit trail and on the operation.", "an act on many jobs needs a reason")
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	ask := s.body(act.verb, ids, reason)
	ask["dry_run"] = true
	body, err := c.call(ctx, request{method: http.MethodPost, path: "/api/v1/operations", body: ask})
	if err != nil {
		return err
	}
	var p wirePreview
	if err := json.Unmarshal(body, &p); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if a.dryRun {
		return a.printPreview(body, p, act)
	}
	if act.harm != "" {
		if err := a.confirm(ctx, act.harm+" "+strconv.Itoa(p.Total)+" dead letters"); err != nil {
			return err
		}
	}
	delete(ask, "dry_run")
	ask["expected"] = p.Total
	body, err = c.call(ctx, request{method: http.MethodPost, path: "/api/v1/operations", body: ask})
	if err != nil {
		return err
	}
	if !s.wait {
		return a.printOperation(body)
	}
	var o wireOperation
	if err := json.Unmarshal(body, &o); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	return a.waitForOperation(ctx, c, o.ID)
}

func (a *app) printPreview(body []byte, p wirePreview, act deadAct) error {
	if a.format != formatTable && a.format != formatWide {
		return a.write(append(body, '\n'))
	}
	lines := [][]string{{"JOBS", "TYPE", "QUEUE", "OLDEST"}}
	for _, g := range p.Groups {
		lines = append(lines, []string{strconv.Itoa(g.Jobs), printable(g.Type), printable(g.Queue), ago(g.OldestAt)})
	}
	var b strings.Builder
	writeAligned(&b, lines, func(i int) bool { return i == 0 }, a.colour)
	if err := a.write([]byte(b.String())); err != nil {
		return err
	}
	a.say("%d dead letters would be %s. Nothing was done.", p.Total, act.done)
	return nil
}
