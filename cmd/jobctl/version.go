package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/buildinfo"
)

// wireVersion is a build, in the words of /api/v1/version.
type wireVersion struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	BuiltAt string `json:"built_at"`
	Go      string `json:"go"`
}

var versionView = view[wireVersion]{
	id: func(v wireVersion) string { return v.Version },
	columns: []column[wireVersion]{
		{name: "version", value: func(v wireVersion) string { return v.Version }},
		{name: "commit", value: func(v wireVersion) string { return v.Commit }},
		{name: "built at", value: func(v wireVersion) string { return v.BuiltAt }},
		{name: "go", value: func(v wireVersion) string { return v.Go }},
	},
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print which jobctl this is", Args: exactly(),
		Example: "  jobctl version\n  jobctl version --json",
		RunE: func(*cobra.Command, []string) error {
			b := buildinfo.Get()
			body, err := json.Marshal(wireVersion{b.Version, b.Commit, b.BuiltAt, b.Go})
			if err != nil {
				return fmt.Errorf("print the version: %w", err)
			}
			return versionView.print(a, body, []json.RawMessage{body})
		},
	}
}
