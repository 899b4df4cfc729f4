// Command jobctl operates a job engine from a shell: data on stdout, talk on
// stderr, and an exit code that scripts can rely on.
package main

import (
	"context"
	"os"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
