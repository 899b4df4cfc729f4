package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

func newAuditVerifyCommand(a *app) *cobra.Command {
	var o verify.Options
	var anchors []string
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that no act was changed, taken out or added beside the others", Args: exactly(),
		Long: `Check the audit trail's chain of hashes, from its first act to its last: each act's content against its
hash, each hash against the act before, the last against the trail's head. It works on the database itself,
reads one snapshot and holds up nobody.

Whoever may write everything in the database can make the whole chain anew. Keep the anchor that this
command prints elsewhere, and give it the next time: it shows that nothing before it was touched.

Exit codes: 0 the trail is whole, 1 it is not, and the first broken act is named, 3 it could not be checked.`,
		Example: `  jobctl audit verify
  jobctl audit verify -o id >anchor.txt
  jobctl audit verify --anchor "$(cat anchor.txt)"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kept := make([]verify.Anchor, len(anchors))
			for i, s := range anchors {
				var ok bool
				if kept[i], ok = readAnchor(s); !ok {
					return usage("Give what jobctl audit verify -o id printed, such as 812:9f3c…", "--anchor %q is none", s)
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit(databaseTimeout))
			defer cancel()
			return a.verifyTrail(ctx, o, kept)
		},
	}
	cmd.Flags().StringArrayVar(&anchors, "anchor", nil, "an `act:hash` that was kept elsewhere, which must still be in the trail, once or more")
	cmd.Flags().IntVar(&o.Rows, "rows", 20, "how many broken acts are told, at most 1000")
	cmd.Flags().DurationVar(&o.StatementTimeout, "statement-timeout", 5*time.Minute, "longest wait for the answer")
	return cmd
}

// anchorOf is an act and its hash on one line.
func anchorOf(a verify.Anchor) string { return fmt.Sprintf("%d:%x", a.ID, a.Hash) }

func readAnchor(s string) (verify.Anchor, bool) {
	id, hash, _ := strings.Cut(strings.TrimSpace(s), ":")
	n, err := strconv.ParseInt(id, 10, 64)
	b, bad := hex.DecodeString(hash)
	return verify.Anchor{ID: n, Hash: b}, err == nil && bad == nil && n > 0 && len(b) == 32
}

// wireTrail is the check of the trail, as -o json has it.
type wireTrail struct {
	At      time.Time      `json:"at"`
	TookMS  int64          `json:"took_ms"`
	Verdict string         `json:"verdict"`
	Acts    int64          `json:"acts"`
	Anchor  string         `json:"anchor,omitempty"`
	Problem string         `json:"problem,omitempty"`
	Broken  []wireOffender `json:"broken"`
	More    bool           `json:"more"`
}

var trailView = view[wireTrail]{
	id: func(t wireTrail) string { return t.Anchor },
	columns: []column[wireTrail]{
		{name: "verdict", value: func(t wireTrail) string { return t.Verdict }},
		{name: "acts", right: true, value: func(t wireTrail) string { return whole(t.Acts) }},
		{name: "anchor", value: func(t wireTrail) string { return t.Anchor }},
		{name: "problem", value: func(t wireTrail) string { return oneLine(t.Problem, 100) }},
	},
}

func (a *app) verifyTrail(ctx context.Context, o verify.Options, anchors []verify.Anchor) error {
	cfg, at, err := a.database()
	if err != nil {
		return unchecked(err)
	}
	pool, err := boot.OpenPool(ctx, cfg, at, "jobctl audit")
	if err != nil {
		return unchecked(databaseFailure(err))
	}
	defer pool.Close()
	r, err := verify.Trail(ctx, pool, o, anchors...)
	if perr := a.printTrail(r); perr != nil {
		return perr
	}
	switch r.Result.Verdict {
	case verify.Violated:
		first := r.Result.Offenders[0]
		return &failure{exitFailed, fmt.Errorf("the trail is broken, first at %s: %s", first.Subject, first.Detail), "Keep the database as it is: a copy of it, and the server's log, are evidence."}
	case verify.Unchecked:
		return &failure{exitUnchecked, fmt.Errorf("the trail could not be checked: %w", err), "This says nothing about the trail. Mend the cause and check again."}
	case verify.OK:
	}
	a.say("The trail is whole: %d acts, checked in %s.", r.Acts, r.Took.Round(time.Millisecond))
	return nil
}

func (a *app) printTrail(r verify.TrailReport) error {
	w := wireTrail{At: r.At.UTC(), TookMS: r.Took.Milliseconds(), Verdict: string(r.Result.Verdict), Acts: r.Acts, Problem: r.Result.Problem,
		Broken: []wireOffender{}, More: r.Result.More}
	var broken []item[offending]
	for _, o := range r.Result.Offenders {
		x := wireOffender{Subject: o.Subject, Detail: o.Detail}
		w.Broken = append(w.Broken, x)
		broken = append(broken, item[offending]{it: offending{r.Result.Rule.Name, x}})
	}
	if r.Last.ID > 0 && r.Result.Verdict == verify.OK {
		w.Anchor = anchorOf(r.Last)
	}
	raw, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("print the check: %w", err)
	}
	if a.format == formatID && w.Anchor == "" {
		return nil
	}
	if err := trailView.print(a, raw, []json.RawMessage{raw}); err != nil || len(broken) == 0 || a.format != formatTable && a.format != formatWide {
		return err
	}
	var b strings.Builder
	b.WriteString("\n")
	brokenView.table(&b, a, broken)
	return a.write([]byte(b.String()))
}

var brokenView = view[offending]{
	columns: []column[offending]{
		{name: "act", value: func(o offending) string { return strings.TrimPrefix(o.Subject, "act ") }},
		{name: "what is wrong", value: func(o offending) string { return o.Detail }},
	},
}
