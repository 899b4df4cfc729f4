//go:build mutants

package mutants

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	source = flag.String("source", root, "the tree to copy and break")
	into   = flag.String("into", "", "where to copy it, which is kept: a second run builds less; a temporary folder if left out")
	least  = flag.Int("least", 14, "how many mutants must be found")
)

// suiteLimit is how long one suite may take on a mutant, its build beside that:
// tests that hang have found it, a machine that is too slow to build has not.
const (
	suiteLimit = 5 * time.Minute
	buildLimit = 10 * time.Minute
)

// TestSuitesPassUnbroken is the control: what fails without a mutant finds none.
func TestSuitesPassUnbroken(t *testing.T) {
	copied := copyTree(t, *source)
	for _, s := range suites() {
		if failed, out := run(t, copied, s); len(failed) > 0 {
			t.Errorf("%s %s fails without any mutant: %v\n%s", s.Package, s.Run, failed, out)
		}
	}
}

// suites are those of all mutants, each once.
func suites() (list []Suite) {
	for _, m := range All {
		for _, s := range m.Suites {
			if !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
	}
	return list
}

// TestMutants breaks a copy of the source in one way after another and runs the
// tests that should see it.
func TestMutants(t *testing.T) {
	copied := copyTree(t, *source)
	caught, tried := 0, 0
	var table strings.Builder
	for _, m := range All {
		t.Run(m.Name, func(t *testing.T) {
			began := time.Now()
			by := broken(t, copied, m)
			tried++
			if by != "" {
				caught++
			} else {
				t.Logf("NOT FOUND: %s", m.What)
				by = "nothing"
			}
			fmt.Fprintf(&table, "%-28s %-70s %s\n", m.Name, by, time.Since(began).Round(time.Second))
		})
	}
	t.Logf("%d of %d mutants found\n%s", caught, tried, &table)
	if tried == len(All) && caught < *least {
		t.Errorf("%d of %d mutants were found, want %d", caught, tried, *least)
	}
}

// broken runs m's suites until one fails, and names its first test that did.
func broken(t *testing.T, copied string, m Mutant) (by string) {
	t.Helper()
	kept := map[string][]byte{}
	for _, e := range m.Edits {
		name := filepath.Join(copied, e.File)
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if kept[name] == nil {
			kept[name] = content
		}
	}
	defer func() {
		for name, content := range kept {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}()
	if err := m.Apply(copied); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.Suites {
		if failed, _ := run(t, copied, s); len(failed) > 0 {
			t.Logf("%s: %v", s.Package, failed)
			return failed[len(failed)-1] // the innermost: a table's own line
		}
	}
	return ""
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run answers the tests of a suite that failed, as go test names them: an outer
// one before its own.
// A build that fails ends the test: such a mutant shows nothing.
func run(t *testing.T, copied string, s Suite) (failed []string, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit+buildLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-vet=off", "-timeout", suiteLimit.String(), "-run", s.Run, s.Package)
	cmd.Dir = copied
	cmd.WaitDelay = 10 * time.Second
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	out = b.String()
	var exit *exec.ExitError
	switch {
	case err == nil:
		if strings.Contains(out, "no tests to run") {
			t.Fatalf("%s has no test for %s", s.Package, s.Run)
		}
		return nil, out
	case ctx.Err() != nil, !errors.As(err, &exit), strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		t.Fatalf("%s: %v\n%s", s.Package, err, out)
	}
	for _, f := range failure.FindAllStringSubmatch(out, -1) {
		failed = append(failed, f[1])
	}
	if strings.Contains(out, "panic: test timed out") {
		failed = append(failed, "timeout of "+s.Run)
	}
	if len(failed) == 0 {
		failed = []string{s.Package + ": " + firstLine(out)}
	}
	return failed, out
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// copyTree copies what the build needs.
func copyTree(t *testing.T, from string) string {
	t.Helper()
	to := *into
	if to == "" {
		to = t.TempDir()
	}
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch base := d.Name(); {
		case d.IsDir() && rel != "." && (base[0] == '.' || base == "bin" || base == "node_modules"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}
