// Stamp prints the build it was linked as.
package main

import (
	"fmt"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo"
)

func main() {
	i := buildinfo.Get()
	fmt.Println(i.Version, i.Commit, i.BuiltAt)
}
