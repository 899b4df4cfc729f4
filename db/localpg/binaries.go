package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// binaries is one installation of Postgres.
type binaries struct {
	dir     string
	version string // "15.13"
	major   int
}

func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres"+exe) }
func (b binaries) initdb() string   { return filepath.Join(b.dir, "initdb"+exe) }

// installed are the folders where packages put Postgres: Debian, Red Hat, Alpine,
// Homebrew, MacPorts, Postgres.app, source, Windows.
var installed = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/opt/local/lib/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/local/pgsql/bin",
	`C:\Program Files\PostgreSQL\*\bin`,
}

// findBinaries picks the installation that can read the data if there is some,
// else the newest. With none on the machine it downloads one.
func findBinaries(ctx context.Context, o Options, p place) (binaries, error) {
	major, err := p.dataMajor()
	if err != nil {
		return binaries{}, err
	}
	found := installations(ctx, o, p)
	if major != 0 {
		return matching(ctx, o, p, found, major)
	}
	if best := newest(found, o.MinMajor); best.dir != "" {
		return best, nil
	}
	switch {
	case o.BinDir != "":
		return binaries{}, fmt.Errorf("%w: %s has no postgres and initdb of version %d or newer that run here; name the folder that has them",
			ErrNoBinaries, o.BinDir, o.MinMajor)
	case o.NoDownload:
		return binaries{}, fmt.Errorf("%w: install PostgreSQL %d or newer (Debian: apt-get install postgresql, macOS: brew install postgresql@17) or put its bin folder on PATH",
			ErrNoBinaries, o.MinMajor)
	}
	return download(ctx, o, p, downloadVersion)
}

// matching finds binaries for existing data, which only its own major version reads.
func matching(ctx context.Context, o Options, p place, found []binaries, major int) (binaries, error) {
	for _, b := range found {
		if b.major == major && major >= o.MinMajor {
			return b, nil
		}
	}
	version, offered := downloads[major]
	if offered && major >= o.MinMajor && o.BinDir == "" && !o.NoDownload {
		b, err := download(ctx, o, p, version)
		if err == nil {
			return b, nil
		}
	}
	if major < o.MinMajor {
		return binaries{}, fmt.Errorf("%w: %s was written by Postgres %d and at least %d is needed; bring it over with pg_upgrade, or move the folder away to begin with an empty database",
			ErrDataVersion, p.data(), major, o.MinMajor)
	}
	has := "none"
	if best := newest(found, 0); best.dir != "" {
		has = best.version
	}
	return binaries{}, fmt.Errorf("%w: %s was written by Postgres %d and this machine has %s; install Postgres %d to keep it, or move the folder away to begin with an empty database",
		ErrDataVersion, p.data(), major, has, major)
}

func newest(found []binaries, min int) binaries {
	var best binaries
	for _, b := range found {
		if b.major >= min && b.major > best.major {
			best = b
		}
	}
	return best
}

// installations lists what runs, those on PATH first.
func installations(ctx context.Context, o Options, p place) []binaries {
	var found []binaries
	for _, dir := range candidates(o, p) {
		if b, err := inspect(ctx, dir, p.as); err == nil {
			found = append(found, b)
		}
	}
	return found
}

func candidates(o Options, p place) []string {
	if o.BinDir != "" {
		return []string{o.BinDir}
	}
	var dirs []string
	add := func(dir string) {
		// A link on PATH points into the folder that has initdb and the rest.
		if real, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	patterns := []string{filepath.Join(p.fetched(), "*", "bin")}
	if o.searchDirs != nil {
		patterns = append(patterns, o.searchDirs...)
	} else {
		for _, name := range []string{"postgres", "pg_ctl"} {
			if path, err := exec.LookPath(name); err == nil {
				if real, err := filepath.EvalSymlinks(path); err == nil {
					add(filepath.Dir(real))
				}
			}
		}
		patterns = append(patterns, installed...)
	}
	for _, pattern := range patterns {
		// The patterns are constants; Glob's one error is a malformed pattern.
		matches, _ := filepath.Glob(pattern)
		for _, dir := range matches {
			add(dir)
		}
	}
	return dirs
}

var versionOutput = regexp.MustCompile(`\(PostgreSQL\) (\d+)([.\w]*)`)

// inspect runs the binaries in dir, as whom the server will run, for their version.
func inspect(ctx context.Context, dir string, as identity) (binaries, error) {
	b := binaries{dir: dir}
	for _, file := range []string{b.postgres(), b.initdb()} {
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			return b, fmt.Errorf("look for %s: %w", file, os.ErrNotExist)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.postgres(), "--version")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, serverEnv(), as.attr()
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return b, fmt.Errorf("run %s: %w", b.postgres(), err)
	}
	m := versionOutput.FindSubmatch(out)
	if m == nil {
		return b, errors.New(b.postgres() + " does not tell its version")
	}
	b.major, _ = strconv.Atoi(string(m[1])) // the pattern has digits only
	b.version = string(m[1]) + string(m[2])
	return b, nil
}

var exe = map[bool]string{true: ".exe"}[runtime.GOOS == "windows"]
