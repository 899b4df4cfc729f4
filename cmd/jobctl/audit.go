package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// wireAct is what jobctl reads of an act in the audit trail.
type wireAct struct {
	ID         json.Number     `json:"id"`
	At         *time.Time      `json:"at"`
	Actor      string          `json:"actor"`
	Source     string          `json:"source"`
	Action     string          `json:"action"`
	TargetKind string          `json:"target_kind"`
	Target     string          `json:"target"`
	Reason     string          `json:"reason"`
	Before     json.RawMessage `json:"before"`
	After      json.RawMessage `json:"after"`
	Affected   json.Number     `json:"affected"`
	RequestID  string          `json:"request_id"`
	Address    string          `json:"address"`
}

var actView = view[wireAct]{
	id:    func(x wireAct) string { return x.ID.String() },
	empty: "No act matches.",
	columns: []column[wireAct]{
		{name: "id", right: true, value: func(x wireAct) string { return x.ID.String() }},
		{name: "at", value: func(x wireAct) string { return instant(x.At) }},
		{name: "actor", value: func(x wireAct) string { return x.Actor }},
		{name: "source", value: func(x wireAct) string { return x.Source }},
		{name: "action", value: func(x wireAct) string { return x.Action }},
		{name: "target", value: func(x wireAct) string { return x.TargetKind + " " + oneLine(x.Target, 60) }},
		{name: "before", wide: true, value: func(x wireAct) string { return oneLine(string(x.Before), 60) }},
		{name: "after", wide: true, value: func(x wireAct) string { return oneLine(string(x.After), 60) }},
		{name: "count", wide: true, right: true, value: func(x wireAct) string { return x.Affected.String() }},
		{name: "address", wide: true, value: func(x wireAct) string { return x.Address }},
		{name: "request", wide: true, value: func(x wireAct) string { return x.RequestID }},
		{name: "reason", value: func(x wireAct) string { return oneLine(x.Reason, 60) }},
	},
}

func newAuditCommand(a *app) *cobra.Command {
	cmd := noun("audit", "List, export and verify what was done, and by whom", `  jobctl audit list --actor ann --since 24h
  jobctl audit verify`)
	cmd.AddCommand(a.watched(newAuditListCommand(a)), newAuditExportCommand(a), newAuditVerifyCommand(a))
	return cmd
}

// actFilter are the flags that choose acts.
type actFilter struct{ actor, action, source, target, since, until string }

func (f *actFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.actor, "actor", "", "only acts of `who` has a name that begins so; token: for all tokens")
	cmd.Flags().StringVar(&f.action, "action", "", "only acts of this `kind`, such as replay")
	cmd.Flags().StringVar(&f.source, "source", "", "only acts through this `door`: console, api, cli, go, system")
	cmd.Flags().StringVar(&f.target, "target", "", "only acts on a job, queue, user or other `thing` that begins so")
	cmd.Flags().StringVar(&f.since, "since", "", "only acts from this `time` on: 24h ago, or 2026-12-01T06:00:00Z")
	cmd.Flags().StringVar(&f.until, "until", "", "only acts before this `time`")
}

func (f *actFilter) query(now time.Time) (url.Values, error) {
	query := url.Values{}
	setGiven(query, map[string]string{"actor": f.actor, "action": f.action, "source": f.source, "target": f.target})
	for flag, value := range map[string]string{"since": f.since, "until": f.until} {
		at, err := when(value, now)
		if err != nil {
			return nil, usage("Give how long ago, such as 24h, or a time such as 2026-12-01T06:00:00Z.", "--%s %q is no time", flag, value)
		}
		setGiven(query, map[string]string{flag: at})
	}
	return query, nil
}

// when reads a time, or how long ago it was; empty stays empty.
func when(s string, now time.Time) (string, error) {
	if s == "" {
		return "", nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d).UTC().Format(time.RFC3339Nano), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	return t.Format(time.RFC3339Nano), err
}

func newAuditListCommand(a *app) *cobra.Command {
	var l listFlags
	var f actFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List acts, the newest first", Args: exactly(),
		Example: `  jobctl audit list --since 1h
  jobctl audit list --target 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 -o wide`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := f.query(time.Now())
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			body, items, err := c.pages(cmd.Context(), auditPath, query, l)
			if err != nil {
				return err
			}
			return actView.print(a, body, items)
		},
	}
	l.add(cmd)
	f.add(cmd)
	return cmd
}

const auditPath = "/api/v1/audit"

func newAuditExportCommand(a *app) *cobra.Command {
	var f actFilter
	var form string
	cmd := &cobra.Command{
		Use: "export", Short: "Write every act, page by page, as CSV or lines of JSON", Args: exactly(),
		Long: `Write every act that matches, the newest first, page by page, so that a long trail needs no memory.

ndjson is the API's own answer, an act a line. csv is for spreadsheets: a cell that one would take for a
formula begins with an apostrophe.`,
		Example: `  jobctl audit export --format csv --since 720h >audit.csv
  jobctl audit export --format ndjson | jq -r .actor | sort | uniq -c`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("--format", form, []string{"csv", "ndjson"}); err != nil {
				return err
			}
			query, err := f.query(time.Now())
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.exportActs(cmd.Context(), c, query, form)
		},
	}
	cmd.Flags().StringVar(&form, "format", "ndjson", "`form` of the data: csv, ndjson")
	f.add(cmd)
	return cmd
}

// exportActs writes each page as it comes. A page that fails ends it: what was
// written is whole lines.
func (a *app) exportActs(ctx context.Context, c *client, query url.Values, form string) error {
	write := a.actLines
	if form == "csv" {
		write = a.actCells
		if err := a.write([]byte(strings.Join(actCellNames, ",") + "\r\n")); err != nil {
			return err
		}
	}
	query.Set("limit", strconv.Itoa(pageLimit))
	for n := 0; ; {
		body, err := c.call(ctx, request{method: http.MethodGet, path: auditPath, query: query})
		if err != nil {
			if n > 0 {
				a.say("The export is not whole: it ends after %d acts.", n)
			}
			return err
		}
		var p page
		if err := json.Unmarshal(body, &p); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		if err := write(p.Data); err != nil {
			return err
		}
		if n += len(p.Data); p.NextCursor == "" {
			a.say("Wrote %d acts.", n)
			return nil
		}
		query.Set("cursor", p.NextCursor)
	}
}

func (a *app) actLines(raws []json.RawMessage) error {
	var b bytes.Buffer
	for _, raw := range raws {
		if err := json.Compact(&b, raw); err != nil {
			return fmt.Errorf("read the server's answer: %w", err)
		}
		b.WriteByte('\n')
	}
	return a.write(b.Bytes())
}

var actCellNames = []string{"id", "at", "actor", "source", "action", "target_kind", "target", "reason", "before", "after", "affected", "request_id", "address"}

func (a *app) actCells(raws []json.RawMessage) error {
	items, err := decodeItems[wireAct](raws)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	for _, i := range items {
		x, at := i.it, ""
		if x.At != nil {
			at = x.At.UTC().Format(time.RFC3339Nano)
		}
		cells := []string{x.ID.String(), at, x.Actor, x.Source, x.Action, x.TargetKind, x.Target, x.Reason, string(x.Before), string(x.After), x.Affected.String(), x.RequestID, x.Address}
		for n := range cells {
			cells[n] = plainCell(cells[n])
		}
		if err := w.Write(cells); err != nil {
			return fmt.Errorf("write the acts: %w", err)
		}
	}
	if w.Flush(); w.Error() != nil {
		return fmt.Errorf("write the acts: %w", w.Error())
	}
	return a.write(b.Bytes())
}

// plainCell keeps a spreadsheet from taking what somebody wrote for a formula.
func plainCell(s string) string {
	for _, start := range []string{"=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"} {
		if strings.HasPrefix(s, start) {
			return "'" + s
		}
	}
	return s
}
