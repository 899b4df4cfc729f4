//go:build linux

package packaging

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

const buildLimit = 5 * time.Minute

// What the image is stamped with.
const (
	version = "9.8.7"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	builtAt = "2026-11-30T00:00:00Z"
)

var built struct {
	sync.Once
	dir string // holds what was sent, /src of the build, and the image's root
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // in the system's folder for what is temporary
	}
	os.Exit(code)
}

// image is the file system of the image: the Dockerfile's own commands have built it,
// once per test process, in a copy of what an engine would be sent.
func image(t *testing.T) string {
	t.Helper()
	built.Do(func() { built.err = buildImage(t) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "image")
}

func buildImage(t *testing.T) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	built.dir = dir
	if err := os.Chmod(dir, 0o755); err != nil { // any user may run what is in it
		return err
	}
	sent, src := filepath.Join(dir, "sent"), filepath.Join(dir, "src")
	sendContext(t, sent)
	if err := os.CopyFS(src, os.DirFS(sent)); err != nil {
		return err
	}
	d := readDockerfile(t)
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	for _, c := range all[*instructions.RunCommand](d.build) {
		cmd := exec.CommandContext(ctx, "sh", "-c", strings.Join(c.CmdLine, " "))
		cmd.Dir, cmd.Env, cmd.WaitDelay = src, buildEnvironment(d.build), time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("RUN %s: %w\n%s", strings.Join(c.CmdLine, " "), err, out)
		}
	}
	for _, c := range all[*instructions.CopyCommand](d.image) {
		if err := layer(c, sent, src, filepath.Join(dir, "image")); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// buildEnvironment is that of this process, for the caches, with what the stage sets and
// what an engine and make docker-build give its arguments.
func buildEnvironment(s instructions.Stage) []string {
	list := os.Environ()
	for k, v := range env(s) {
		list = append(list, k+"="+v)
	}
	given := map[string]string{"TARGETOS": "linux", "TARGETARCH": runtime.GOARCH, "VERSION": version, "COMMIT": commit, "BUILT_AT": builtAt}
	for _, c := range all[*instructions.ArgCommand](s) {
		for _, arg := range c.Args {
			list = append(list, arg.Key+"="+given[arg.Key])
		}
	}
	return list
}

// layer copies what a COPY of the image's stage names to the image.
func layer(c *instructions.CopyCommand, sent, src, to string) error {
	for _, path := range c.SourcePaths {
		from := filepath.Join(sent, path)
		if c.From == "build" {
			from = inBuilder(path, src)
		}
		target := filepath.Join(to, c.DestPath)
		info, err := os.Stat(from)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			err = os.CopyFS(target, os.DirFS(from))
		case strings.HasSuffix(c.DestPath, "/"):
			err = copyFile(from, filepath.Join(target, filepath.Base(path)))
		default:
			err = copyFile(from, target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inBuilder is where a file of the builder is on this machine.
func inBuilder(path, src string) string {
	if rest, ok := strings.CutPrefix(path, "/src/"); ok {
		return filepath.Join(src, rest)
	}
	if rest, ok := strings.CutPrefix(path, "/usr/local/go/"); ok {
		goroot, err := exec.Command("go", "env", "GOROOT").Output()
		if err == nil {
			return filepath.Join(strings.TrimSpace(string(goroot)), rest)
		}
	}
	return path
}

func TestImageHoldsThreeStaticProgramsAndWhatTheyNeed(t *testing.T) {
	t.Parallel()
	dir := image(t)
	want := map[string]bool{"etc/passwd": true, "etc/group": true, "etc/ssl/certs/ca-certificates.crt": true, "usr/share/zoneinfo.zip": true,
		"usr/local/bin/server": true, "usr/local/bin/worker": true, "usr/local/bin/jobctl": true}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if !want[name] {
				t.Errorf("/%s is in the image", name)
			}
			delete(want, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		t.Errorf("/%s is not in the image", name)
	}
	for _, name := range []string{"server", "worker", "jobctl"} {
		static(t, filepath.Join(dir, "usr/local/bin", name))
	}
	if text, err := os.ReadFile(filepath.Join(dir, "etc/ssl/certs/ca-certificates.crt")); err != nil || !bytes.Contains(text, []byte("BEGIN CERTIFICATE")) {
		t.Errorf("no certificates: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "usr/share/zoneinfo.zip")); err != nil || !bytes.Contains(text, []byte("Europe/Berlin")) {
		t.Errorf("no time zones: %v", err)
	}
	if got := env(readDockerfile(t).image)["ZONEINFO"]; got != "/usr/share/zoneinfo.zip" {
		t.Errorf("ZONEINFO=%s, where Go looks for them", got)
	}
}

// static fails the test unless a program needs neither a loader nor a library.
func static(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a %s segment", path, p.Type)
		}
	}
	for _, s := range f.Sections {
		if s.Type == elf.SHT_DYNAMIC || s.Type == elf.SHT_SYMTAB || strings.HasPrefix(s.Name, ".debug_") {
			t.Errorf("%s has a section %s", path, s.Name)
		}
	}
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte(built.dir)) {
		t.Errorf("%s names the folder it was built in: %v", path, err)
	}
}

func TestImageIsStampedWithItsVersion(t *testing.T) {
	t.Parallel()
	out, err := run(t, "/", nil, filepath.Join(image(t), "usr/local/bin/jobctl"), "version")
	if err != nil {
		t.Fatalf("jobctl version: %v\n%s", err, out)
	}
	for _, want := range []string{version, commit, builtAt} {
		if !strings.Contains(out, want) {
			t.Errorf("jobctl version prints no %s:\n%s", want, out)
		}
	}
}
