// Command worker runs jobs, and answers probes and /metrics beside them.
package main

import (
	"os"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

func main() {
	os.Exit(boot.Main(os.Args[1:], config.Worker, "worker", os.Stdout, os.Stderr, work))
}
