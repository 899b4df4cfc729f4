package cmd_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// aProduct is a program that takes the library and what is for its tests, and nothing
// else of this module.
const aProduct = `package main

import (
	"fmt"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/enginetest"
)

var _ engine.Enqueuer = new(enginetest.Recorder)

func main() {
	_, err := engine.New(engine.Config{})
	fmt.Println(err)
}
`

// linked is what a product's binary may get from elsewhere: the database driver and
// what it needs, ids, and the checker of schemas.
var linked = []string{"github.com/google/uuid", "github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "github.com/jackc/pgx/v5",
	"github.com/jackc/puddle/v2", "github.com/santhosh-tekuri/jsonschema/v6", "golang.org/x/sync", "golang.org/x/text"}

// A product's module that imports the library gets neither the web nor the migrations
// nor a command line: what is linked is what go list -deps says, seen from outside.
func TestTheLibraryComesAlone(t *testing.T) {
	t.Parallel()
	dir := productModule(t)
	if out := goTool(t, dir, "run", "."); !strings.Contains(out, "Pool is nil") {
		t.Errorf("the product says %q, want what New refuses", out)
	}
	deps := strings.Fields(goTool(t, dir, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
	slices.Sort(deps)
	for _, dep := range slices.Compact(deps) {
		if dep != "shop" && dep != strings.TrimSuffix(module, "/") && !slices.Contains(linked, dep) {
			t.Errorf("a product that imports engine links %s", dep)
		}
	}
	packages := strings.Fields(goTool(t, dir, "list", "-deps", "."))
	if !slices.Contains(packages, module+"engine") {
		t.Error("engine is not among what is linked: this test looks at the wrong program")
	}
	for _, p := range packages {
		if ours, ok := within(p); ok && ours != "engine" && !strings.HasPrefix(ours, "engine/") {
			t.Errorf("a product that imports engine links %s", ours)
		}
		if p == "net/http" {
			t.Error("a product that imports engine links net/http")
		}
	}
}

// productModule is a module of its own beside this one, which stands in for a release.
func productModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSuffix(module, "/")
	// The requirements stand as they do here, so that nothing is asked of the network.
	mod := bytes.Replace(ours, []byte("module "+name), []byte("module shop"), 1)
	mod = append(mod, "\nrequire "+name+" v0.0.0\n\nreplace "+name+" => "+here+"\n"...)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{"go.mod": mod, "go.sum": sum, "main.go": []byte(aProduct)} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}
