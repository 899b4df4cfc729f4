package config

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite .env.example from the table")

const root = "../../.."

func TestExampleFileListsEverySetting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(root, ".env.example")
	if *update {
		if err := os.WriteFile(path, []byte(Example()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Example(), string(data)); d != "" {
		t.Errorf(".env.example is not what the table says; go test ./cmd/internal/config -update rewrites it (-want +got):\n%s", d)
	}
}

var exampleLine = regexp.MustCompile(`^(#?)([A-Z][A-Z0-9_]*)=(.*)$`)

// Uncommenting a line must change nothing, and the database lines start out commented.
func TestExampleFileIsWhatThePlainStartDoes(t *testing.T) {
	t.Parallel()
	var names, shown, lines []string
	for s := bufio.NewScanner(strings.NewReader(Example())); s.Scan(); {
		m := exampleLine.FindStringSubmatch(s.Text())
		if m == nil {
			continue
		}
		names = append(names, m[2])
		if m[1] == "" {
			shown = append(shown, m[2]+"="+m[3])
		}
		if m[2] != "DB_HOST" { // which asks for a server of one's own
			lines = append(lines, m[2]+"="+m[3])
		}
	}
	if !slices.Equal(shown, []string{"APP_ENV=development"}) {
		t.Errorf("uncommented: %q, want APP_ENV alone", shown)
	}
	for _, n := range knownNames() {
		second := slices.ContainsFunc(groups, func(g group) bool {
			return slices.ContainsFunc(g.settings, func(s setting) bool { return slices.Contains(s.also, n) })
		})
		if !second && !strings.HasSuffix(n, "_FILE") && !slices.Contains(names, n) {
			t.Errorf("%s is not in the example", n)
		}
	}
	plain, all := mustLoad(t, Server), mustLoad(t, Server, lines...)
	plain.given, all.given, plain.effective, all.effective = nil, nil, nil, nil
	if d := cmp.Diff(plain, all, cmp.AllowUnexported(Config{})); d != "" {
		t.Errorf("the example's values are not the defaults (-default +example):\n%s", d)
	}
}

func TestHelpNamesEverySetting(t *testing.T) {
	t.Parallel()
	help := Help()
	for _, g := range groups {
		for _, s := range g.settings {
			if !strings.Contains(help, "  "+s.name) || !strings.Contains(help, s.help) {
				t.Errorf("help lacks %s", s.name)
			}
		}
	}
}

// The Makefile runs what needs settings under tools/withenv with .env.
func TestMakefileLoadsDotEnv(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dot env")
	content := "# a comment\n\nAPP_ENV=staging\nDB_PASSWORD='p#a $HOME \"b\"'\nSMTP_FROM=\"Jobs <jobs@example.com>\"\nexport SMTP_USER=a=b#c d\r\n" +
		"EMPTY=\n  INDENTED=yes\nSET_ALREADY=file\nnot a setting\nBAD-NAME=$(touch nothing)\nLAST=`x`"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-s", "with-env", "ENV_FILE="+file, "CMD=env")
	cmd.Dir = root
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(l string) bool { return strings.HasPrefix(l, "MAKE") || strings.HasPrefix(l, "APP_ENV=") }),
		"SET_ALREADY=environment")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make with-env: %v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	for _, want := range []string{"APP_ENV=staging", `DB_PASSWORD=p#a $HOME "b"`, "SMTP_FROM=Jobs <jobs@example.com>", "SMTP_USER=a=b#c d",
		"INDENTED=yes", "SET_ALREADY=environment", "LAST=`x`"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in:\n%s", want, out)
		}
	}
	if slices.Contains(lines, "EMPTY=") || strings.Contains(string(out), "BAD-NAME") {
		t.Errorf("an empty or impossible name is exported:\n%s", out)
	}
	dry, err := exec.CommandContext(t.Context(), "make", "-C", root, "-n", "run", "migrate-up", "simulate").CombinedOutput()
	if err != nil || strings.Count(string(dry), "tools/withenv") < 3 {
		t.Errorf("run, migrate-up and simulate do not go through tools/withenv: %v\n%s", err, dry)
	}
}
