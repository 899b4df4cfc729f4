// Package packaging checks how the product is shipped: the image, the containers, the
// make targets and scripts around them. There is no Docker engine where it runs, so it
// reads the Dockerfile and docker-compose.yml with the libraries that Docker reads them
// with, and runs the commands that stand in them: the build, in a copy of what an engine
// would be sent; the programs, on the image's file system, as the image's user, with the
// environment and secrets of their services, against a real Postgres with its service's
// own flags.
package packaging

import (
	"bufio"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// root is the repository.
const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs a command for at most a minute and returns all that it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ignored reads .dockerignore.
func ignored(t *testing.T) *patternmatcher.PatternMatcher {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, ".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sendContext copies to dir what an engine would be sent.
func sendContext(t *testing.T, dir string) {
	t.Helper()
	m := ignored(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == ".data" || d.Name() == "node_modules" {
				return filepath.SkipDir // large, and TestNothingPrivateIsSent knows about them
			}
			return nil
		}
		out, err := m.MatchesOrParentMatches(name)
		if err != nil || out || !d.Type().IsRegular() {
			return err
		}
		return copyFile(path, filepath.Join(dir, name))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copyFile copies one file and its permissions, and makes the folders it needs.
func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

func TestNothingPrivateIsSent(t *testing.T) {
	t.Parallel()
	m := ignored(t)
	for name, want := range map[string]bool{
		".env": true, ".env.local": true, ".git/config": true, ".data/postgres/PG_VERSION": true, "bin/server": true,
		"deploy/secrets/db_password": true, "deploy/secrets/postgres.env": true, "tls.key": true, "cmd/server/.env": true,
		"web/tls.pem": true, "web/tls.key": true, "e2e/node_modules/x.js": true, "engine/claim_test.go": true, "engine/testdata/life/x.txtar": true,
		"go.mod": false, "go.sum": false, "cmd/server/main.go": false, "deploy/passwd": false, "deploy/group": false,
	} {
		got, err := m.MatchesOrParentMatches(name)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: left out is %t, want %t", name, got, want)
		}
	}
}

// setting is a variable of .env.example.
type setting struct{ secret bool }

var exampleLine = regexp.MustCompile(`^#?([A-Z][A-Z0-9_]*)=`)

// settings are the variables that the programs know. A test beside the table they are
// read by keeps .env.example equal to it.
func settings(t *testing.T) map[string]setting {
	t.Helper()
	known, comment := map[string]setting{}, ""
	for s := bufio.NewScanner(strings.NewReader(read(t, ".env.example"))); s.Scan(); {
		if m := exampleLine.FindStringSubmatch(s.Text()); m != nil {
			known[m[1]] = setting{secret: strings.Contains(comment, "; secret")}
		}
		comment = s.Text()
	}
	if len(known) < 40 || !known["DB_PASSWORD"].secret || known["DB_HOST"].secret {
		t.Fatalf(".env.example is not read right: %v", known)
	}
	return known
}
