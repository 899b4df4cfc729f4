package buildinfo

import (
	"os/exec"
	"regexp"
	"runtime/debug"
	"testing"
)

func TestStampWinsOverWhatGoRecorded(t *testing.T) {
	t.Parallel()
	recorded := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "4f2a"}, {Key: "vcs.time", Value: "2026-11-01T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}}}
	devel := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}}
	for _, tt := range []struct {
		name     string
		stamped  Info
		recorded *debug.BuildInfo
		want     Info
	}{
		{"stamped", Info{Version: "0.2.0", Commit: "9b1c", BuiltAt: "2026-12-01T00:00:00Z"}, recorded, Info{"0.2.0", "9b1c", "2026-12-01T00:00:00Z", "go1.26.0"}},
		{"recorded", Info{}, recorded, Info{"0.1.0", "4f2a-dirty", "2026-11-01T00:00:00Z", "go1.26.0"}},
		{"go run", Info{}, devel, Info{"unknown", "unknown", "unknown", "go1.26.0"}},
		{"nothing", Info{}, nil, Info{"unknown", "unknown", "unknown", "unknown"}},
	} {
		if got := from(tt.stamped, tt.recorded); got != tt.want {
			t.Errorf("%s: from = %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The Makefile's -X flags name this package's variables; a wrong name would go unnoticed by the linker.
func TestMakefileStampsTheBuild(t *testing.T) {
	t.Parallel()
	plan, err := exec.CommandContext(t.Context(), "make", "-C", "../../..", "-n", "build-cli",
		"VERSION=1.2.3", "COMMIT=4f2a", "BUILT_AT=2026-12-01T00:00:00Z").CombinedOutput()
	if err != nil {
		t.Fatalf("make -n build-cli: %v\n%s", err, plan)
	}
	flags := regexp.MustCompile(`-ldflags '([^']+)'`).FindSubmatch(plan)
	if flags == nil {
		t.Fatalf("make build-cli has no -ldflags:\n%s", plan)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", "-ldflags", string(flags[1]), "./testdata/stamp").CombinedOutput()
	if want := "1.2.3 4f2a 2026-12-01T00:00:00Z\n"; err != nil || string(out) != want {
		t.Errorf("the program prints %q (%v), want %q", out, err, want)
	}
}
