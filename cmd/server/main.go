// Command server is the API. In development, with no database configured, it
// starts its own Postgres and runs the workers too.
package main

import (
	"os"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/boot"
	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

func main() {
	os.Exit(boot.Main(os.Args[1:], config.Server, "server", os.Stdout, os.Stderr, serve))
}
