package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newJobsWatchCommand(a *app) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "watch ID", Short: "Follow a job until it ends; exit code 1 unless it completes", Args: exactly("the id of a job"),
		Long: `Follow a job until it ends: each change of its state, its progress or its attempts is a line. The exit
code is 0 once it has completed, and 1 if it is dead or cancelled. It waits for as long as the job
does, unless --timeout says otherwise; then the exit code is 6, and the job goes on.`,
		Example: `  jobctl jobs watch 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10
  jobctl jobs watch $(jobctl jobs enqueue report -o id) --timeout 10m && echo done`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			if every < watchLeast {
				return usage("Give 100ms or more.", "--interval %s is too short", every)
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.watchJob(cmd.Context(), c, ids[0], every)
		},
	}
	cmd.Flags().DurationVar(&every, "interval", time.Second, "`time` between two looks")
	return cmd
}

// jobChange is what makes two looks at a job differ.
type jobChange struct{ status, attempts, run, progress string }

func changeOf(j wireJob) jobChange {
	c := jobChange{status: j.Status, attempts: j.Attempts.String(), run: j.Run.String()}
	if p := j.Progress; p != nil {
		c.progress = fmt.Sprintf("%s %% %s", p.Percent, oneLine(p.Text, 80))
	}
	return c
}

// ended tells whether a job's state is one that it does not leave by itself.
func (j wireJob) ended() bool {
	return j.Status == "completed" || j.Status == "cancelled" || j.Status == "dead_letter"
}

func (a *app) watchJob(ctx context.Context, c *client, id string, every time.Duration) error {
	began := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last jobChange
	for first := true; ; first = false {
		body, err := c.one(ctx, "/api/v1/jobs/"+id, nil)
		switch {
		case err != nil && (first || exitCode(err) != exitUnreachable || a.timeout > 0 && time.Since(began) > a.timeout):
			return err
		case err != nil:
			a.say("%s  Asking again.", err)
		default:
			var j wireJob
			if err := json.Unmarshal(body, &j); err != nil {
				return fmt.Errorf("read the server's answer: %w", err)
			}
			if now := changeOf(j); now != last {
				last = now
				if err := a.printJobChange(body, j); err != nil {
					return err
				}
			}
			if j.ended() {
				return outcomeOf(j)
			}
			if a.timeout > 0 && time.Since(began) > a.timeout {
				return &failure{exitUnreachable, fmt.Errorf("job %s is %s after %s", id, j.Status, a.timeout), "It goes on. Wait longer with --timeout, or see why it waits: jobctl jobs get " + id}
			}
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-tick.C:
		}
	}
}

// outcomeOf is the exit code of a job's end.
func outcomeOf(j wireJob) error {
	switch j.Status {
	case "dead_letter":
		return &failure{exitFailed, fmt.Errorf("job %s is dead: %s", j.ID, orWord(oneLine(j.LastError.text(), 200), j.DeadReason)), "See: jobctl dlq get " + j.ID}
	case "cancelled":
		return &failure{exitFailed, fmt.Errorf("job %s is cancelled", j.ID), ""}
	}
	return nil
}

func (a *app) printJobChange(body []byte, j wireJob) error {
	switch a.format {
	case formatJSON, formatJSONL:
		return a.writeCompact(body)
	case formatID:
		return a.write([]byte(printable(j.Status) + "\n"))
	}
	line := fmt.Sprintf("%s  %s  attempt %s of %s", time.Now().UTC().Format("15:04:05"), a.colour(printable(j.Status)), j.Attempts, j.MaxAttempts)
	if p := j.Progress; p != nil && !j.ended() {
		line += fmt.Sprintf("  %s %% %s", p.Percent, printable(oneLine(p.Text, 80)))
	}
	if j.Status == "failed" {
		line += fmt.Sprintf("  again %s: %s", ago(j.RunAt), printable(oneLine(j.LastError.text(), 120)))
	}
	return a.write([]byte(line + "\n"))
}
