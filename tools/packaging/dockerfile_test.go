package packaging

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// uid is appuser's.
const uid = 10001

// dockerfile is the Dockerfile as BuildKit understands it.
type dockerfile struct {
	build, image instructions.Stage
}

func readDockerfile(t *testing.T) dockerfile {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("Dockerfile: %s", w.Short)
	}
	lint := linter.New(&linter.Config{ReturnAsError: true, Warn: func(name, _, _, message string, _ []parser.Range) {
		t.Errorf("Dockerfile: %s: %s", name, message)
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	if len(stages) != 2 {
		t.Fatalf("%d stages, want a build and an image", len(stages))
	}
	return dockerfile{stages[0], stages[1]}
}

// all are a stage's instructions of one kind.
func all[T instructions.Command](s instructions.Stage) []T {
	var list []T
	for _, c := range s.Commands {
		if c, ok := c.(T); ok {
			list = append(list, c)
		}
	}
	return list
}

// one is the only instruction of its kind.
func one[T instructions.Command](t *testing.T, s instructions.Stage) T {
	t.Helper()
	list := all[T](s)
	if len(list) != 1 {
		t.Fatalf("%d instructions %T, want 1", len(list), *new(T))
	}
	return list[0]
}

// env is what a stage's ENV instructions set.
func env(s instructions.Stage) map[string]string {
	vars := map[string]string{}
	for _, c := range all[*instructions.EnvCommand](s) {
		for _, kv := range c.Env {
			vars[kv.Key] = kv.Value
		}
	}
	return vars
}

func TestImageIsBuiltFromScratchForAnUnprivilegedUser(t *testing.T) {
	t.Parallel()
	d := readDockerfile(t)
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	if goVersion == nil || d.build.BaseName != "golang:"+goVersion[1] {
		t.Errorf("the build's base is %s, want the Go of go.mod, %v", d.build.BaseName, goVersion)
	}
	if got := env(d.build)["CGO_ENABLED"]; got != "0" {
		t.Errorf("CGO_ENABLED=%s, want 0", got)
	}
	if d.image.BaseName != "scratch" {
		t.Errorf("the image's base is %s, want scratch", d.image.BaseName)
	}
	if user := one[*instructions.UserCommand](t, d.image).User; user != "10001:10001" {
		t.Errorf("USER %s, want 10001:10001", user)
	}
	if !strings.Contains(read(t, "deploy/passwd"), "appuser:x:10001:10001:") || !strings.Contains(read(t, "deploy/group"), "appuser:x:10001:") {
		t.Error("10001 is not appuser in deploy/passwd and deploy/group")
	}
	if got := one[*instructions.StopSignalCommand](t, d.image).Signal; got != "SIGTERM" {
		t.Errorf("STOPSIGNAL %s, want SIGTERM, at which the programs drain", got)
	}
	if cmd := one[*instructions.CmdCommand](t, d.image); cmd.PrependShell || !slices.Equal(cmd.CmdLine, []string{"server"}) {
		t.Errorf("CMD %q, in a shell: %t; want server, without", cmd.CmdLine, cmd.PrependShell)
	}
	if n := len(all[*instructions.RunCommand](d.image)) + len(all[*instructions.AddCommand](d.image)); n != 0 {
		t.Errorf("%d RUN or ADD in the image's stage, want none: there is nothing to run, and nothing to fetch", n)
	}
}

func TestImageChecksItsHealthByItself(t *testing.T) {
	t.Parallel()
	h := one[*instructions.HealthCheckCommand](t, readDockerfile(t).image).Health
	if want := []string{"CMD", "/usr/local/bin/server", "healthcheck"}; !slices.Equal(h.Test, want) {
		t.Errorf("HEALTHCHECK %q, want %q", h.Test, want)
	}
	if h.Timeout <= 3*time.Second {
		t.Errorf("gives up after %s, before the program tells why, which takes up to 3 s", h.Timeout)
	}
	if h.Interval == 0 || h.StartPeriod == 0 || h.Retries == 0 {
		t.Errorf("interval %s, start period %s, retries %d: want all set", h.Interval, h.StartPeriod, h.Retries)
	}
}
