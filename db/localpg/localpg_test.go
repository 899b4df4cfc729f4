//go:build unix

package localpg

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestASecondStartFindsTheData has a folder that only this user may enter, with a
// path longer than a unix socket's may be and characters that shells mind.
func TestASecondStartFindsTheData(t *testing.T) {
	t.Parallel()
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(private, "it's a \"long\" one "+strings.Repeat("x", 100), ".data")
	first := start(t, Options{DataDir: dir})
	ask(t, first.URL(), "CREATE TABLE kept AS SELECT 'still here' AS words")
	stop(t, first)

	begun := time.Now()
	second := start(t, Options{DataDir: dir})
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the second start took %v, want less than 5s", took)
	}
	if got := ask(t, second.URL(), "SELECT words FROM kept"); got != "still here" {
		t.Errorf("after a restart the row says %q", got)
	}
	if second.URL() != first.URL() {
		t.Errorf("the address changed from %s to %s", first.URL(), second.URL())
	}
	for setting, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "listen_addresses": "127.0.0.1",
		"unix_socket_directories": "", "server_encoding": "UTF8", "lc_collate": "C",
	} {
		if got := ask(t, second.URL(), "SHOW "+setting); got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
}

func TestNobodyGetsInWithoutThePassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, Options{DataDir: dir})
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("postgres", "guess")
	if err := ping(limit(t, 5*time.Second), u.String()); err == nil {
		t.Error("a wrong password was let in")
	}
	for _, name := range []string{stateFile, loginFile, "postgres.log", "postgres.lock"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", name, info.Mode().Perm())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "postgres.password")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("initdb's password file is still there: %v", err)
	}
}

func TestFindTellsOtherProcessesTheAddress(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	if _, err := Find(dir); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "make run") {
		t.Errorf("before: %v, want ErrNotRunning and what to do", err)
	}
	s := start(t, Options{DataDir: dir, Database: "mine"})
	got, err := Find(dir)
	if err != nil || got != s.URL() {
		t.Errorf("Find = %q, %v, want %q", got, err, s.URL())
	}
	if got := ask(t, got, "SELECT current_database()"); got != "mine" {
		t.Errorf("database = %q, want mine", got)
	}
	stop(t, s)
	if _, err := Find(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after: %v, want ErrNotRunning", err)
	}
	stale := state{URL: s.URL(), PID: s.PID(), OwnerPID: os.Getpid()}
	if err := stale.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), strconv.Itoa(s.PID())) {
		t.Errorf("with a file left behind: %v, want ErrNotRunning and the process", err)
	}
}

func TestAServerThatFallsIsNoticed(t *testing.T) {
	t.Parallel()
	dir := initialised(t)
	s := start(t, Options{DataDir: dir})
	if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("Done is still open after 10s")
	}
	if _, err := Find(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Find: %v, want ErrNotRunning", err)
	}
	stop(t, s)
	if got := ask(t, start(t, Options{DataDir: dir}).URL(), "SELECT 'again'"); got != "again" {
		t.Errorf("after the fall: %q", got)
	}
}

// TestCtrlCDoesNotReachPostgres: a terminal sends its signal to the process group.
func TestCtrlCDoesNotReachPostgres(t *testing.T) {
	t.Parallel()
	s := start(t, Options{DataDir: initialised(t)})
	group, err := syscall.Getpgid(s.PID())
	if err != nil || group == syscall.Getpgrp() {
		t.Errorf("process group of Postgres = %d, %v; this program's is %d", group, err, syscall.Getpgrp())
	}
}

func TestAStartIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	temp := t.TempDir()
	file := filepath.Join(temp, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := dataOf(t, "14")
	future := dataOf(t, "99")
	noLogin := dataOf(t, "15")
	running := initialised(t)
	s := start(t, Options{DataDir: running})
	for name, c := range map[string]struct {
		options Options
		want    error
		words   []string
	}{
		"port taken":      {Options{Port: port}, ErrPortTaken, []string{strconv.Itoa(port), "choose another port"}},
		"no binaries":     {Options{searchDirs: []string{}}, ErrNoBinaries, []string{"install PostgreSQL 15", "PATH"}},
		"too old":         {Options{MinMajor: 99}, ErrNoBinaries, []string{"install PostgreSQL 99"}},
		"empty BinDir":    {Options{BinDir: temp}, ErrNoBinaries, []string{temp, "name the folder"}},
		"old data":        {Options{DataDir: old}, ErrDataVersion, []string{"Postgres 14", "pg_upgrade", "move the folder away"}},
		"data to come":    {Options{DataDir: future}, ErrDataVersion, []string{"install Postgres 99"}},
		"lost password":   {Options{DataDir: noLogin}, ErrFolder, []string{loginFile, "begin anew"}},
		"file in the way": {Options{DataDir: filepath.Join(file, ".data")}, ErrFolder, []string{file, "choose another folder"}},
		"already running": {Options{DataDir: running}, ErrAlreadyRunning, []string{strconv.Itoa(os.Getpid()), strconv.Itoa(s.Port()), "stop that one first"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.options.DataDir == "" {
				c.options.DataDir = t.TempDir()
			}
			c.options.NoDownload = true
			s, err := Start(limit(t, time.Minute), c.options)
			if err == nil {
				stop(t, s)
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("err = %v, want %v", err, c.want)
			}
			t.Log(err)
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q lacks %q", err, word)
				}
			}
		})
	}
}

// TestAnUnwritableFolderIsRefused is root's only where even root may not write.
func TestAnUnwritableFolderIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		dir = "/proc/self" // no file can be made there
	}
	_, err := Start(limit(t, time.Minute), Options{DataDir: dir, NoDownload: true})
	if !errors.Is(err, ErrFolder) || !strings.Contains(err.Error(), "make it writable") {
		t.Errorf("err = %v, want ErrFolder and what to do", err)
	}
}

// TestInitdbCutOffIsBegunAnew has what such an initdb leaves.
func TestInitdbCutOffIsBegunAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	half := filepath.Join(dir, "postgres.new", "base")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, start(t, Options{DataDir: dir}).URL(), "SELECT 'whole'"); got != "whole" {
		t.Errorf("after a cut-off initdb: %q", got)
	}
}

func dataOf(t *testing.T, major string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
