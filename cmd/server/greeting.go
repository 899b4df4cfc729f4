package main

import (
	"fmt"
	"strings"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

// greeting tells a developer where the server is and gives a line to paste, whose
// job completes with nothing else set up.
func greeting(cfg *config.Config, url string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe server is ready at %s\n", url)
	if cfg.LocalPostgres {
		fmt.Fprintf(&b, "Its Postgres keeps its data in %s; a second start finds it there.\n", boot.DataDir)
	}
	what, body := try(cfg)
	fmt.Fprintf(&b, "\n%s\n\n  %s\n\n", what, curl(cfg, url, body))
	if !cfg.Server.Workers {
		b.WriteString("SERVER_WORKERS is false, so that the job waits for a worker: make build-worker && bin/worker\n")
	}
	b.WriteString("Follow it with: make build-cli && bin/jobctl jobs list\nCtrl-C stops the server; jobs that run may finish first.\n\n")
	return b.String()
}

// try is a job that needs no mail server, or that sends no mail where there is one.
func try(cfg *config.Config) (what, body string) {
	if cfg.SMTP.Host == "" {
		return "Try it: this line enqueues a mail, which a worker writes to " + boot.DataDir + "/mail, since no mail server is set.",
			`{"type":"email","payload":{"to":"you@example.com","subject":"Hello","text":"It works."}}`
	}
	return "Try it: this line enqueues a report on the last day, kept as the job's result.", `{"type":"report","payload":{"kind":"throughput"}}`
}

func curl(cfg *config.Config, url, body string) string {
	token := ""
	if cfg.Bootstrap.Token != "" {
		token = ` -H "Authorization: Bearer $BOOTSTRAP_TOKEN"`
	}
	return fmt.Sprintf("curl -sS %s/api/v1/jobs -H 'Content-Type: application/json'%s -d '%s'", url, token, body)
}
