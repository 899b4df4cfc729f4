//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/proctest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

const repository = "../.."

// block is a fenced piece of a document in a language that runs.
type block struct {
	file, tag, text string
	line            int
}

func (b block) where() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// notRun are the blocks tagged norun, by their first line, and why.
var notRun = map[string]string{
	"make run":                       "starts the server that these tests start themselves, see TestFirstStartAndTheNext",
	"workers := engine.NewWorkers()": "a piece of a program: the whole of it is the package's first example, which runs",
}

var runs = map[string]string{"sh": "sh", "python": "python3", "js": "node", "go": "go"}

// expected is what a block says of its own output.
var expected = regexp.MustCompile(`(?m)(?:#|//)=> (.*)$`)

// TestTheDocumentsRun runs every block of README.md and docs/*.md: each file's shell blocks
// as one session, so that they may build on each other, other languages alone.
func TestTheDocumentsRun(t *testing.T) {
	t.Parallel()
	url := dbtest.NewURL(t)
	jobctl := filepath.Dir(proctest.Build(t, "jobctl"))
	const token = "rje_0123456789abcdef0123456789abcdef"
	open := start(t, proctest.Options{Dir: t.TempDir(), Env: []string{"DATABASE_URL=" + url, "LOG_LEVEL=warn"}})
	guarded := start(t, proctest.Options{Dir: t.TempDir(), Env: []string{"DATABASE_URL=" + url, "BOOTSTRAP_TOKEN=" + token, "LOG_LEVEL=warn", "AUTH_MODE=local"}})
	for _, s := range []server{open, guarded} {
		s.Ready(s.url+"/readyz", readyLimit)
	}
	environment := func(s server, more ...string) []string {
		return append(os.Environ(), append(more, "JOBS="+s.url, "JOBCTL_SERVER="+s.url, "DATABASE_URL="+url, "PATH="+jobctl+":"+os.Getenv("PATH"))...)
	}
	sessions, left := map[string][]block{}, maps.Clone(notRun)
	for _, b := range blocks(t) {
		language, how, _ := strings.Cut(b.tag, " ")
		switch {
		case how == "norun":
			first, _, _ := strings.Cut(b.text, "\n")
			if notRun[first] == "" {
				t.Errorf("%s is tagged norun: say why in notRun", b.where())
			}
			delete(left, first)
		case language == "sh":
			sessions[b.file+" "+how] = append(sessions[b.file+" "+how], b)
		default:
			t.Run(b.file+"/"+language, func(t *testing.T) {
				t.Parallel()
				runBlocks(t, language, []block{b}, environment(open))
			})
		}
	}
	for first := range left {
		t.Errorf("notRun tells of %q, which no document has", first)
	}
	for name, list := range sessions {
		t.Run(strings.TrimSpace(name), func(t *testing.T) {
			t.Parallel()
			if strings.HasSuffix(name, "guarded") {
				runBlocks(t, "sh", list, environment(guarded, "JOBCTL_TOKEN="+token))
				return
			}
			runBlocks(t, "sh", list, environment(open))
		})
	}
}

// blocks are all of them, in the order of the documents.
func blocks(t *testing.T) []block {
	t.Helper()
	files, err := filepath.Glob(repository + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []block
	for _, file := range append(files, repository+"/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var in *block
		for i, line := range strings.Split(string(text), "\n") {
			switch tag, fence := strings.CutPrefix(line, "```"); {
			case fence && in == nil:
				in = &block{file: filepath.Base(file), tag: tag, line: i + 1}
			case fence:
				if language, _, _ := strings.Cut(in.tag, " "); runs[language] != "" {
					list = append(list, *in)
				}
				in = nil
			case in != nil:
				in.text += line + "\n"
			}
		}
	}
	if !slices.ContainsFunc(list, func(b block) bool { return b.file == "api.md" }) {
		t.Fatal("no block of docs/api.md is found")
	}
	return list
}

// runBlocks runs blocks as one program and looks for what each says it prints.
func runBlocks(t *testing.T, language string, list []block, env []string) {
	t.Helper()
	program, err := exec.LookPath(runs[language])
	if err != nil {
		t.Skipf("no %s on this machine: %s is not run", runs[language], list[0].where())
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "main."+map[string]string{"sh": "sh", "python": "py", "js": "js", "go": "go"}[language])
	script := ""
	for i, b := range list {
		if language == "sh" {
			script += fmt.Sprintf("printf '\\n%s\\n'\n", mark(i))
		}
		script += b.text
	}
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	args := map[string][]string{"sh": {"-eu", file}, "go": {"run", file}}[language]
	if args == nil {
		args = []string{file}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s\n%s", list[0].where(), err, out, &stderr)
	}
	rest := string(out)
	for i, b := range list {
		said := rest
		if language == "sh" {
			_, said, _ = strings.Cut(rest, mark(i)+"\n")
			said, _, _ = strings.Cut(said, mark(i+1)+"\n")
		}
		for _, want := range expected.FindAllStringSubmatch(b.text, -1) {
			_, after, found := strings.Cut(said, want[1])
			if !found {
				t.Errorf("%s: prints no %s in the rest of its output:\n%s", b.where(), want[1], said)
				break
			}
			said = after
		}
	}
}

func mark(i int) string { return fmt.Sprintf("-- block %d --", i) }
