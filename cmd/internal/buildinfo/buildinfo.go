// Package buildinfo says which build is running: stamped by the Makefile, else
// as far as the Go toolchain recorded it.
package buildinfo

import (
	"runtime/debug"
	"strings"
)

// Stamped with -ldflags -X by the Makefile's build targets.
var version, commit, builtAt string

// Info is one build. No field is empty; what nobody recorded is "unknown".
type Info struct {
	Version string // such as 0.2.0, without a leading v
	Commit  string // full Git hash, with -dirty behind it if the tree had changes
	BuiltAt string // RFC 3339 in UTC; for a build without a stamp, the time of its commit
	Go      string // toolchain, such as go1.26.0
}

// Get is the build that is running. It may be called from several goroutines.
func Get() Info {
	recorded, _ := debug.ReadBuildInfo()
	return from(Info{Version: version, Commit: commit, BuiltAt: builtAt}, recorded)
}

// from fills in what stamped lacks. recorded is nil in a binary without modules.
func from(stamped Info, recorded *debug.BuildInfo) Info {
	info := stamped
	if recorded != nil {
		info.Go = recorded.GoVersion
		if info.Version == "" && recorded.Main.Version != "(devel)" {
			info.Version = strings.TrimPrefix(recorded.Main.Version, "v")
		}
		fromVersionControl(&info, recorded.Settings)
	}
	for _, field := range []*string{&info.Version, &info.Commit, &info.BuiltAt, &info.Go} {
		if *field == "" {
			*field = "unknown"
		}
	}
	return info
}

func fromVersionControl(info *Info, settings []debug.BuildSetting) {
	vcs := map[string]string{}
	for _, s := range settings {
		vcs[s.Key] = s.Value
	}
	if info.Commit == "" {
		info.Commit = vcs["vcs.revision"]
		if info.Commit != "" && vcs["vcs.modified"] == "true" {
			info.Commit += "-dirty"
		}
	}
	if info.BuiltAt == "" {
		info.BuiltAt = vcs["vcs.time"]
	}
}
