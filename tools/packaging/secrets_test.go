package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// scripts is a copy of the scripts, so that they make nothing in the tree.
func scripts(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"deploy/new-secrets", "deploy/withdb", "tools/withenv", "Makefile"} {
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// newSecrets makes all secrets and returns their folder.
func newSecrets(t *testing.T) string {
	t.Helper()
	dir := scripts(t)
	if out, err := run(t, dir, os.Environ(), "deploy/new-secrets"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "deploy/secrets")
}

// openSecret is the file of a secret of a folder where any user can read it, as in a
// container.
func openSecret(t *testing.T, folder, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // in the system's folder for what is temporary
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	if err := copyFile(filepath.Join(folder, name), file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestNewSecretsAreRandomClosedAndKept(t *testing.T) {
	t.Parallel()
	dir := scripts(t)
	folder := filepath.Join(dir, "deploy/secrets")
	all := map[string]string{}
	for name := range loadCompose(t).Secrets {
		all[name] = ""
	}
	first, err := run(t, dir, os.Environ(), "deploy/new-secrets")
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v, want mode 0700", info.Mode(), err)
	}
	seen := map[string]bool{}
	for name := range all {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o444 {
			t.Errorf("%s has mode %v, want 0444: the container's user reads it, the folder keeps others out", name, info.Mode())
		}
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
		if m := regexp.MustCompile(`^(rje_)?([0-9a-f]{64})\n$`).FindStringSubmatch(string(text)); m == nil || seen[m[2]] || (m[1] != "") != (name == "bootstrap_token") {
			t.Errorf("%s is %q, want 64 digits of its own, rje_ before those of the token", name, text)
		} else {
			seen[m[2]] = true
		}
		if strings.Contains(first, strings.TrimSpace(string(text))) {
			t.Errorf("%s is printed: %s", name, first)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != len(all) {
		t.Errorf("%d files for %d secrets: %v, %v", len(entries), len(all), entries, err)
	}

	// One is missing: it is made, the others stay.
	if err := os.Remove(filepath.Join(folder, "bootstrap_token")); err != nil {
		t.Fatal(err)
	}
	again, err := run(t, dir, os.Environ(), "deploy/new-secrets")
	if err != nil || again != "made deploy/secrets/bootstrap_token\n" {
		t.Errorf("%v, %q", err, again)
	}
	for name, before := range all {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || (string(text) == before) != (name != "bootstrap_token") {
			t.Errorf("%s: was %q, is %q, %v", name, before, text, err)
		}
	}
}

func TestSecretsAreNotCommitted(t *testing.T) {
	t.Parallel()
	out, err := run(t, root, os.Environ(), "git", "check-ignore", "deploy/secrets/db_password", "deploy/secrets/postgres.env")
	if err != nil || strings.Count(out, "\n") != 2 {
		t.Errorf("git does not ignore both: %v\n%s", err, out)
	}
	tracked, err := run(t, root, os.Environ(), "git", "ls-files", "deploy/secrets")
	if err != nil || tracked != "" {
		t.Errorf("committed: %v %s", err, tracked)
	}
}

// After make docker-up, make migrate-up works on that Postgres; a database that the
// settings name goes before it.
func TestCommandsFindThePostgresInAContainer(t *testing.T) {
	t.Parallel()
	dir := scripts(t)
	const address = "postgres://postgres:p@127.0.0.1:5432/reliable_job_engine?sslmode=disable"
	call := func(env ...string) string {
		t.Helper()
		out, err := run(t, dir, append([]string{"PATH=" + os.Getenv("PATH")}, env...), "make", "--no-print-directory", "-s", "with-env", "CMD=printenv DATABASE_URL || :")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(out)
	}
	if got := call(); got != "" {
		t.Errorf("without one, DATABASE_URL is %q", got)
	}
	if err := os.MkdirAll(filepath.Join(dir, "deploy/secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "deploy/secrets/postgres.env"), []byte("DATABASE_URL="+address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := call(); got != address {
		t.Errorf("DATABASE_URL is %q, want that of the container", got)
	}
	for named, want := range map[string]string{"DATABASE_URL=postgres://other/x": "postgres://other/x", "DATABASE_URL_FILE=/x": "", "DB_HOST=other": ""} {
		if got := call(named); got != want {
			t.Errorf("with %s, DATABASE_URL is %q, want %q", named, got, want)
		}
		if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(named+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := call(); got != want {
			t.Errorf("with %s in .env, DATABASE_URL is %q, want %q", named, got, want)
		}
		if err := os.Remove(filepath.Join(dir, ".env")); err != nil {
			t.Fatal(err)
		}
	}
}
