package main

import (
	"net/http"

	"github.com/spf13/cobra"
)

func newJobsStopCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "stop ID...", Short: "Ask running jobs to stop", Args: cobra.ArbitraryArgs,
		Long: "Ask running jobs to stop. A job that completes first has completed; otherwise it is cancelled, at the latest STOP_GRACE after its worker has learned of it. What it does outside may be half done.",
		Example: `  jobctl jobs stop 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10 --reason 'wrong customer'
  jobctl jobs list --status running --queue mail -o id --all | xargs jobctl jobs stop --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), "Stopping "+many(ids)); err != nil {
				return err
			}
			return a.actOnJobs(cmd.Context(), c, ids, jobAct{method: http.MethodPost, path: "/api/v1/jobs/ID/stop", done: "asked to stop", states: []string{"leased"}}, reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	a.addDryRun(cmd)
	return cmd
}
