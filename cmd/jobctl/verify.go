package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

// exitUnchecked is verify's own: a check that could not look is neither clean
// nor a violation. Nothing that verify asks for can be not found.
const exitUnchecked = 3

func newVerifyCommand(a *app) *cobra.Command {
	var o verify.Options
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the promises on the stored history", Args: exactly(),
		Long: `Check the promises of the engine on what it has stored: where each job stands, how its runs follow
one another, leases, counters, and the audit trail. It asks the database itself, reads one snapshot,
changes nothing and holds up nobody; it is right while jobs run. A million jobs with as many runs
take some 15 seconds.

Exit codes: 0 every rule holds, 1 one is violated, 3 none is seen to be violated but some could not be
checked: the database is away, a right is missing, a question took longer than --statement-timeout.

A row that breaks a rule names its job or lease. jobctl jobs get shows the job's runs; keep the rows
and the server's log of that time before anything is mended by hand.`,
		Example: `  jobctl verify
  jobctl verify --json | jq '.rules[] | select(.verdict != "ok")'
  jobctl verify -o id`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit(databaseTimeout))
			defer cancel()
			return a.verify(ctx, o)
		},
	}
	cmd.Flags().IntVar(&o.Rows, "rows", 20, "how many offending rows are told per rule, at most 1000")
	cmd.Flags().DurationVar(&o.StatementTimeout, "statement-timeout", 30*time.Second, "longest wait for one question")
	cmd.Flags().DurationVar(&o.LeaseGrace, "lease-grace", 0, "how long a lease may stand beyond its end; left out, what the server's lease, heartbeat and reaper settings add up to, at least 1m")
	cmd.Flags().DurationVar(&o.Margin, "margin", time.Second, "how far two transactions' instants may stand in the wrong order")
	return cmd
}

// wireRule is one rule's result, as -o json has it.
type wireRule struct {
	Rule      string         `json:"rule"`
	Promise   string         `json:"promise"`
	Says      string         `json:"says"`
	Verdict   string         `json:"verdict"`
	Problem   string         `json:"problem,omitempty"`
	Offenders []wireOffender `json:"offenders"`
	More      bool           `json:"more"`
}

type wireOffender struct {
	Subject string `json:"subject"`
	Token   string `json:"fencing_token,omitempty"`
	Detail  string `json:"detail"`
}

var ruleView = view[wireRule]{
	id: func(r wireRule) string { return r.Rule },
	columns: []column[wireRule]{
		{name: "rule", value: func(r wireRule) string { return r.Rule }},
		{name: "promise", value: func(r wireRule) string { return r.Promise }},
		{name: "verdict", value: func(r wireRule) string { return r.Verdict }},
		{name: "rows", right: true, value: func(r wireRule) string {
			n := strconv.Itoa(len(r.Offenders))
			if r.More {
				n += "+"
			}
			return n
		}},
		{name: "says", wide: true, value: func(r wireRule) string { return r.Says }},
		{name: "problem", value: func(r wireRule) string { return oneLine(r.Problem, 100) }},
	},
}

// offending is one line below the table.
type offending struct {
	rule string
	wireOffender
}

var offendingView = view[offending]{
	columns: []column[offending]{
		{name: "rule", value: func(o offending) string { return o.rule }},
		{name: "subject", value: func(o offending) string { return o.Subject }},
		{name: "token", right: true, value: func(o offending) string { return o.Token }},
		{name: "detail", value: func(o offending) string { return o.Detail }},
	},
}

func (a *app) verify(ctx context.Context, o verify.Options) error {
	cfg, at, err := a.database()
	if err != nil {
		return unchecked(err)
	}
	settings := boot.VerifyOptions(cfg)
	o.Retention = settings.Retention
	if o.LeaseGrace <= 0 {
		o.LeaseGrace = settings.LeaseGrace
	}
	pool, err := boot.OpenPool(ctx, cfg, at, "jobctl verify")
	if err != nil {
		return unchecked(databaseFailure(err))
	}
	defer pool.Close()
	r, err := verify.Run(ctx, pool, o)
	if perr := a.printReport(r); perr != nil {
		return perr
	}
	switch r.Verdict() {
	case verify.Violated:
		return &failure{exitFailed, fmt.Errorf("%d of %d rules are violated", r.Count(verify.Violated), len(r.Results)), "See: jobctl verify --help"}
	case verify.Unchecked:
		return &failure{exitUnchecked, fmt.Errorf("%d of %d rules could not be checked: %w", r.Count(verify.Unchecked), len(r.Results), err), "This says nothing about the rules. Mend the cause and check again."}
	case verify.OK:
	}
	a.say("Every rule holds: %d rules, checked in %s.", len(r.Results), r.Took.Round(time.Millisecond))
	return nil
}

// unchecked gives the reasons for which nothing was asked their exit code. A
// mistake in the settings keeps its own.
func unchecked(err error) error {
	var f *failure
	if errors.As(err, &f) && f.code != exitUsage {
		return &failure{exitUnchecked, f.err, f.next}
	}
	return err
}

func (a *app) printReport(r verify.Report) error {
	raws := make([]json.RawMessage, 0, len(r.Results))
	var offenders []item[offending]
	for _, res := range r.Results {
		w := wireRule{res.Rule.Name, res.Rule.Promise, res.Rule.Says, string(res.Verdict), res.Problem, []wireOffender{}, res.More}
		for _, o := range res.Offenders {
			x := wireOffender{Subject: o.Subject, Detail: o.Detail}
			if o.Token != 0 {
				x.Token = strconv.FormatInt(o.Token, 10)
			}
			w.Offenders = append(w.Offenders, x)
			offenders = append(offenders, item[offending]{it: offending{w.Rule, x}})
		}
		if a.format == formatID && res.Verdict == verify.OK {
			continue
		}
		raw, err := json.Marshal(w)
		if err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		raws = append(raws, raw)
	}
	body, err := json.Marshal(struct {
		At      time.Time         `json:"at"`
		TookMS  int64             `json:"took_ms"`
		Verdict string            `json:"verdict"`
		Rules   []json.RawMessage `json:"rules"`
	}{r.At.UTC(), r.Took.Milliseconds(), string(r.Verdict()), raws})
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if err := ruleView.print(a, body, raws); err != nil || len(offenders) == 0 || a.format != formatTable && a.format != formatWide {
		return err
	}
	var b strings.Builder
	b.WriteString("\n")
	offendingView.table(&b, a, offenders)
	return a.write([]byte(b.String()))
}
