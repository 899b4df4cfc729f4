package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// targets are those of the two documents that the product was founded on, and what each
// one is said to do there, as its recipe shows. Their names and meanings stay.
var targets = map[string]string{
	"up":               "docker compose up --build -d",
	"down":             "docker compose down",
	"logs":             "docker compose logs --follow",
	"restart":          "docker compose down; docker compose up --build -d",
	"clean":            "clean-docker", // containers, volumes, images
	"simulate":         "bin/jobctl simulate",
	"docker-build":     "docker compose build",
	"docker-up":        "docker compose up -d --wait postgres", // Postgres alone
	"docker-down":      "docker compose down --volumes",
	"migrate-up":       "bin/jobctl migrate up",
	"all":              "go vet ./...; go build",
	"build-server":     "-o bin/server ./cmd/server",
	"build-worker":     "-o bin/worker ./cmd/worker",
	"build-cli":        "-o bin/jobctl ./cmd/jobctl",
	"test-unit":        "go test",
	"test-race":        "go test -race",
	"test-integration": "go test",
	// What this module's tests check is part of what CI runs.
	"check":        "cd tools && go test",
	"clean-docker": "docker compose down --volumes --rmi all",
}

// noCompose is an environment in which docker is there and Compose is not, so that what
// a recipe asks for is shown or refused, never done.
func noCompose(t *testing.T) []string {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte("#!/bin/sh\necho \"docker: unknown command: docker $1\" >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); name != "PATH" && !strings.HasPrefix(name, "MAKE") && name != "MFLAGS" && name != "GO" {
			env = append(env, line)
		}
	}
	return append(env, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestMakeTargetsMeanWhatTheFoundingDocumentsSay(t *testing.T) {
	t.Parallel()
	env := noCompose(t)
	for target, want := range targets {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, root, env, "make", "--dry-run", target)
			if err != nil {
				t.Fatalf("make -n %s: %v\n%s", target, err, out)
			}
			rest := out
			for _, step := range strings.Split(want, "; ") {
				i := strings.Index(rest, step)
				if i < 0 {
					t.Fatalf("no %q, in this order, in\n%s", want, out)
				}
				rest = rest[i+len(step):]
			}
		})
	}
}

func TestWithoutComposeMakeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir, env := scripts(t), noCompose(t)
	for _, target := range []string{"up", "down", "restart", "logs", "docker-build", "docker-up", "docker-down"} {
		out, err := run(t, dir, env, "make", "--no-print-directory", target)
		if err == nil || !strings.Contains(out, "this needs Docker with Compose, which is not here; make run and make start do without") {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "deploy/secrets")); err == nil {
		t.Error("secrets were made for nothing")
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, dir, env, "make", "--no-print-directory", "clean")
	if err != nil || !strings.Contains(out, "no containers to remove") {
		t.Errorf("make clean: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "bin")); err == nil {
		t.Error("make clean leaves bin")
	}
}

func TestMakeAloneListsTheTargets(t *testing.T) {
	t.Parallel()
	out, err := run(t, root, noCompose(t), "make")
	if err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	for target := range targets {
		if target != "clean-docker" && !strings.Contains(out, "\n  "+target+" ") {
			t.Errorf("make lists no %s:\n%s", target, out)
		}
	}
}
