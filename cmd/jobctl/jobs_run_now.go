package main

import (
	"net/http"

	"github.com/spf13/cobra"
)

func newJobsRunNowCommand(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "run-now ID...", Short: "Bring forward jobs that wait for their time or back off", Args: cobra.ArbitraryArgs,
		Long: "Bring forward jobs that wait for their time or back off: they stand in line at once, with the attempts that they had. A job that is due already is left as it is.",
		Example: `  jobctl jobs run-now 0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10
  jobctl jobs list --status failed --queue billing -o id --all | xargs jobctl jobs run-now --reason 'gateway fixed'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(cmd, args, nil)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.actOnJobs(cmd.Context(), c, ids, jobAct{method: http.MethodPost, path: "/api/v1/jobs/ID/run-now", done: "brought forward", states: []string{"pending", "failed"}}, reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit trail")
	a.addDryRun(cmd)
	return cmd
}
