package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// addDryRun gives a command that acts a way to tell what it would do.
func (a *app) addDryRun(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "tell what would be done, and do nothing")
}

// would tells what a dry run has left undone.
func (a *app) would(format string, args ...any) error {
	a.say("%s. Nothing was done.", fmt.Sprintf(format, args...))
	return nil
}

// jobAct is something that is done to jobs, one by one.
type jobAct struct {
	method, path string // path has the job's id in place of ID
	done         string // in a word
	// states are those of a job that it applies to.
	states []string
	// discarded says of a dead letter whether it must be discarded.
	discarded bool
}

// actOnJobs does something to each of ids or, in a dry run, tells by each job's
// state whether it would. The exit code is the one that the act would end with.
func (a *app) actOnJobs(ctx context.Context, c *client, ids []string, act jobAct, reason string) error {
	if !a.dryRun {
		return a.act(ctx, ids, jobView, act.done, func(id string) ([]byte, error) {
			return c.call(ctx, request{method: act.method, path: strings.Replace(act.path, "ID", id, 1), body: reasonBody(reason)})
		})
	}
	err := a.act(ctx, ids, jobView, "would be "+act.done, func(id string) ([]byte, error) {
		body, err := c.one(ctx, "/api/v1/jobs/"+id, nil)
		if err != nil {
			return nil, err
		}
		var j wireJob
		if err := json.Unmarshal(body, &j); err != nil {
			return nil, fmt.Errorf("read the server's answer: %w", err)
		}
		return body, act.judge(j)
	})
	a.say("Nothing was done.")
	return err
}

func (act jobAct) judge(j wireJob) error {
	const format = "job %s would not be %s: it is %s"
	switch {
	case !slices.Contains(act.states, j.Status):
		return &failure{exitConflict, fmt.Errorf(format, j.ID, act.done, j.Status), "See where it stands with: jobctl jobs get " + j.ID}
	case j.Status != "dead_letter" || act.discarded == (j.DiscardedAt != nil):
		return nil
	case act.discarded:
		return &failure{exitConflict, fmt.Errorf(format, j.ID, act.done, "not discarded"), "See: jobctl dlq list --discarded"}
	}
	return &failure{exitConflict, fmt.Errorf(format, j.ID, act.done, "discarded"), "Put it back first: jobctl dlq restore " + j.ID}
}

// operationActs are the states of an operation that each act applies to.
var operationActs = map[string][]string{"pause": {"running"}, "continue": {"paused", "halted"}, "stop": {"running", "paused", "halted"}}

func (a *app) rehearseSteer(ctx context.Context, c *client, id, act string) error {
	body, err := c.call(ctx, request{method: http.MethodGet, path: "/api/v1/operations/" + id})
	if err != nil {
		return err
	}
	var o wireOperation
	if err := json.Unmarshal(body, &o); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if !slices.Contains(operationActs[act], o.Status) {
		return &failure{exitConflict, fmt.Errorf("%s would not do: the operation is %s", act, o.Status), "It applies to one that is " + strings.Join(operationActs[act], " or ") + "."}
	}
	if err := operationView.print(a, body, []json.RawMessage{body}); err != nil {
		return err
	}
	return a.would("%s would do: the operation is %s", act, o.Status)
}
