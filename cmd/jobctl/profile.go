package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/reliable-job-engine/reliable-job-engine/cmd/internal/config"
)

// profile is one chapter of config.toml: a server and the way to its token. There
// is no place for the token itself.
type profile struct {
	Server       string   `toml:"server"`
	TokenFile    string   `toml:"token_file"`
	TokenCommand []string `toml:"token_command"`
}

// profileFile is config.toml.
type profileFile struct {
	Profile  string             `toml:"profile"` // the one that holds when none is named
	Profiles map[string]profile `toml:"profiles"`
}

const (
	maxProfileFile = 64 << 10
	// tokenPatience is how long a token_command may take: somebody may have to unlock
	// a safe.
	tokenPatience = time.Minute
)

const profileExample = `A profile looks like this:
  [profiles.production]
  server = "https://jobs.example.com"
  token_file = "production.token"`

// useProfile fills in what neither a flag nor the environment gives. A profile's
// token goes to the profile's server alone: whoever names another one gives its
// token too.
func (a *app) useProfile(ctx context.Context, serverGiven bool) error {
	name := a.profile
	if name == "" {
		name = a.cfg.Ctl.Profile
	}
	if a.cfg.Ctl.ConfigDir == "" {
		if name == "" {
			return nil
		}
		return usage("Set HOME, or XDG_CONFIG_HOME.", "there is no place for profile %q", name)
	}
	dir := filepath.Join(a.cfg.Ctl.ConfigDir, "jobctl")
	path := filepath.Join(dir, "config.toml")
	file, err := readProfiles(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && name == "":
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return usage("Write it. "+profileExample, "profile %q is asked for, and there is no file %s", name, path)
	case err != nil:
		return err
	}
	if name == "" {
		name = file.Profile
	}
	if name == "" {
		return nil
	}
	p, ok := file.Profiles[name]
	if !ok {
		return unknownProfile(name, path, file)
	}
	if p.Server == "" {
		return usage(profileExample, "profile %q in %s has no server", name, path)
	}
	if serverGiven && strings.TrimSuffix(a.server, "/") != strings.TrimSuffix(p.Server, "/") {
		return nil
	}
	a.server = strings.TrimSuffix(p.Server, "/")
	if a.cfg.Ctl.Token != "" {
		return nil
	}
	token, err := p.token(ctx, name, dir, a.cfg.Ctl.HomeDir)
	if err != nil {
		return err
	}
	a.cfg.Ctl.Token = config.Secret(token)
	return nil
}

func unknownProfile(name, path string, file profileFile) error {
	known := make([]string, 0, len(file.Profiles))
	for n := range file.Profiles {
		known = append(known, n)
	}
	slices.Sort(known)
	switch near := nearest(name, known); {
	case near != "":
		return usage("Did you mean "+near+"?", "%s has no profile %q", path, name)
	case len(known) == 0:
		return usage(profileExample, "%s has no profile %q", path, name)
	}
	return usage("It has: "+strings.Join(known, ", "), "%s has no profile %q", path, name)
}

// readProfiles reads the file. Others must not be able to write it: it names a
// program to run, and where the token goes.
func readProfiles(path string) (profileFile, error) {
	var file profileFile
	data, err := readOwn(path, 0o022, "be written by others", "chmod go-w "+path)
	if err != nil {
		return file, err
	}
	meta, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&file)
	var syntax toml.ParseError
	switch {
	case errors.As(err, &syntax):
		// The text of the mistake would quote the file; what is in it may be a secret.
		return file, usage(profileExample, "%s, line %d, is not TOML: %s", path, syntax.Position.Line, syntax.Message)
	case err != nil:
		return file, usage(profileExample, "%s is not understood: %v", path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return file, unknownKey(path, unknown[0])
	}
	return file, nil
}

func unknownKey(path string, key toml.Key) error {
	last := key[len(key)-1]
	if strings.Contains(strings.ToLower(last), "token") || strings.Contains(strings.ToLower(last), "password") {
		return usage("Put it into a file that only you can read, and name that as token_file; or name a program that prints it as token_command.",
			"%s: %s: a secret has no place here", path, key)
	}
	next := "A profile has server, token_file and token_command."
	if near := nearest(last, []string{"server", "token_file", "token_command", "profile", "profiles"}); near != "" {
		next = "Did you mean " + near + "?  " + next
	}
	return usage(next, "%s: %s is no setting", path, key)
}

// readOwn reads a file of this person, unless its mode lets others do what they
// must not. The mode is that of what was opened.
func readOwn(path string, forbidden fs.FileMode, what, mend string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, usage("Look at its owner and mode: ls -l "+path, "cannot read %s: %v", path, errors.Unwrap(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", path, err)
	case !info.Mode().IsRegular():
		return nil, usage("Name a file.", "%s is no file", path)
	case info.Mode().Perm()&forbidden != 0 && modesCount:
		return nil, usage("Close it: "+mend, "%s can %s", path, what)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxProfileFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case len(data) > maxProfileFile:
		return nil, usage("Name another.", "%s is larger than 64 KiB", path)
	}
	return data, nil
}

// token reads the file or asks the program. Relative paths are those of dir.
func (p profile) token(ctx context.Context, name, dir, home string) (string, error) {
	var text []byte
	var err error
	switch {
	case p.TokenFile != "" && len(p.TokenCommand) > 0:
		return "", usage("Leave one of them out.", "profile %q has token_file and token_command", name)
	case p.TokenFile != "":
		path := p.TokenFile
		if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
			path = filepath.Join(home, rest)
		} else if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		text, err = readOwn(path, 0o077, "be read by others", "chmod 600 "+path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", usage("Write the token into it: umask 077 && cat >"+path, "profile %q names the token file %s, which is not there", name, path)
		}
	case len(p.TokenCommand) > 0:
		text, err = p.askProgram(ctx, name)
	default:
		return "", nil
	}
	if err != nil {
		return "", err
	}
	token := strings.TrimRight(string(text), "\r\n")
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return "", usage("It must hold the token on one line, and nothing else.", "profile %q: what was read is no token", name)
	}
	return token, nil
}

// askProgram runs token_command. What it says on stderr is shown: it may ask for
// a passphrase.
func (p profile) askProgram(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.TokenCommand[0], p.TokenCommand[1:]...)
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = os.Stdin, os.Stderr, time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, &failure{exitFailed, fmt.Errorf("profile %q: token_command %s: %w", name, p.TokenCommand[0], err),
			"Run it by hand: it must print the token and end with 0."}
	}
	if out.Len() > maxProfileFile {
		return nil, usage("It must print the token alone.", "profile %q: token_command printed more than 64 KiB", name)
	}
	return out.Bytes(), nil
}
