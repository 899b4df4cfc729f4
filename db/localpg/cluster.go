package localpg

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// place is where a server's files lie and who it runs as.
type place struct {
	dir  string // Options.DataDir, absolute: lock, login, state, log
	home string // folder of data and downloads; dir, unless the server's user can't enter it
	as   identity
}

func (p place) data() string     { return filepath.Join(p.home, "postgres") }
func (p place) fetched() string  { return filepath.Join(p.home, "postgres-binaries") }
func (p place) logFile() string  { return filepath.Join(p.dir, "postgres.log") }
func (p place) pidFile() string  { return filepath.Join(p.data(), "postmaster.pid") }
func (p place) newData() string  { return filepath.Join(p.home, "postgres.new") }
func (p place) password() string { return filepath.Join(p.home, "postgres.password") }

// dataMajor is the major version that wrote the data, 0 if there is none.
func (p place) dataMajor() (int, error) {
	text, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, folderError(p.data(), err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, folderError(p.data(), fmt.Errorf("its PG_VERSION is %q", text))
	}
	return major, nil
}

// login is what a data folder was initialised with, and the port it last had, so
// that an address noted down stays good.
type login struct {
	User     string `json:"user"`
	Password string `json:"password"`
	Port     int    `json:"port,omitempty"`
}

const loginFile = "postgres-login.json"

func readLogin(dir string) (login, error) {
	var l login
	text, err := os.ReadFile(filepath.Join(dir, loginFile))
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	return l, err
}

func (l login) write(dir string) error { return writeJSON(filepath.Join(dir, loginFile), l) }

// ensureCluster initialises the data if there is none. initdb works beside the
// final place, so that one cut off half-way is begun anew.
func ensureCluster(ctx context.Context, o Options, p place, b binaries) (login, error) {
	major, err := p.dataMajor()
	if err != nil {
		return login{}, err
	}
	if major != 0 {
		l, err := readLogin(p.dir)
		if err != nil {
			return login{}, fmt.Errorf("%w: the password of %s can't be read: %w; put %s back, or move the data away to begin anew",
				ErrFolder, p.data(), err, loginFile)
		}
		if p.as.owns(p.data()) {
			return l, nil
		}
		return l, p.as.own(p.data())
	}
	l := login{User: superuser, Password: rand.Text()}
	if err := l.write(p.dir); err != nil {
		return login{}, folderError(p.dir, err)
	}
	o.Log.Info("initialising local postgres", "data", p.data(), "version", b.version)
	if err := initCluster(ctx, o, p, b, l); err != nil {
		return login{}, err
	}
	if err := os.Rename(p.newData(), p.data()); err != nil {
		return login{}, folderError(p.data(), err)
	}
	return l, nil
}

func initCluster(ctx context.Context, o Options, p place, b binaries, l login) error {
	if err := os.RemoveAll(p.newData()); err != nil {
		return folderError(p.newData(), err)
	}
	if err := os.MkdirAll(p.newData(), 0o700); err != nil {
		return folderError(p.newData(), err)
	}
	defer os.Remove(p.password())
	if err := os.WriteFile(p.password(), []byte(l.Password+"\n"), 0o600); err != nil {
		return folderError(p.home, err)
	}
	for _, path := range []string{p.newData(), p.password()} {
		if err := p.as.own(path); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	args := []string{
		"-D", p.newData(), "-U", l.User, "-E", "UTF8", "--locale=C",
		"-A", "scram-sha-256", "--pwfile=" + p.password(),
	}
	if o.NoSync {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, b.initdb(), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.home, serverEnv(), p.as.attr()
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initialise Postgres data in %s with %s: %w: %s", p.data(), b.initdb(), err, lastLines(string(out), 3))
	}
	return nil
}

// serverEnv is this process's environment without what would redirect Postgres.
func serverEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	})
	return append(env, "LC_ALL=C")
}

func serverURL(l login, port int, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(l.User, l.Password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// serverArgs keeps Postgres to itself: loopback only, no unix socket (its path may
// not be longer than 107 bytes, a project's folder may).
func serverArgs(o Options, p place, port int) []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "",
		"log_checkpoints":         "off",
		"logging_collector":       "off",
	}
	if o.NoSync {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	for name, value := range o.Settings {
		settings[name] = value
	}
	args := []string{"-D", p.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}
