//go:build unix

package localpg

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const nobody = 65534

// TestAnOrdinaryUserHasItAll runs the tests of this package again in which it matters
// who runs them, as a user who is not root, if this one is.
func TestAnOrdinaryUserHasItAll(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // that is what all tests have just shown
	}
	dir := openFolder(t)
	binary := filepath.Join(dir, "localpg.test")
	copyFile(t, os.Args[0], binary, 0o755)
	temp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(temp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limit(t, 2*time.Minute), binary, "-test.v", "-test.timeout=100s",
		"-test.run=KilledOwner$|SameData|LeftAlone|Bounded|FindsTheData|GetsIn|TellsOther|CtrlC|WithWhatToDo|Unwritable")
	cmd.Dir = temp
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "HOME="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
	if n := strings.Count(string(out), "--- PASS: Test"); n < 10 {
		t.Errorf("as user %d only %d tests ran", nobody, n)
	}
}

// TestRootWithoutNamespacesUsesAnUnprivilegedUser is about machines that refuse
// user namespaces, as containers often do.
func TestRootWithoutNamespacesUsesAnUnprivilegedUser(t *testing.T) {
	t.Parallel()
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"open folder": filepath.Join(openFolder(t), ".data"), "private folder": filepath.Join(private, ".data")} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Options{DataDir: dir, noNamespace: true})
			t.Cleanup(func() {
				stop(t, s)
				os.RemoveAll(s.where.home)
			})
			ask(t, s.URL(), "CREATE TABLE kept AS SELECT 'still here' AS words")
			if uid := ownerOf(t, "/proc/"+strconv.Itoa(s.PID())); uid == 0 {
				t.Error("Postgres runs as root")
			}
			if (name == "open folder" || os.Geteuid() != 0) != (s.where.home == dir) {
				t.Errorf("the data of %s lies in %s", dir, s.where.home)
			}
			stop(t, s)
			again := start(t, Options{DataDir: dir, noNamespace: true})
			if got := ask(t, again.URL(), "SELECT words FROM kept"); got != "still here" {
				t.Errorf("after a restart the row says %q", got)
			}
		})
	}
}

// TestTheDataStaysTheUsersWhenRootStartsIt: `sudo make run` once must not lock its
// user out.
func TestTheDataStaysTheUsersWhenRootStartsIt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openFolder(t), ".data")
	first := start(t, Options{DataDir: dir, noNamespace: true})
	before := ownerOf(t, filepath.Join(dir, "postgres"))
	stop(t, first)
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, before, before); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, start(t, Options{DataDir: dir}))
	for _, name := range []string{"postgres", loginFile} {
		if uid := ownerOf(t, filepath.Join(dir, name)); uid != before {
			t.Errorf("owner of %s = %d, want %d as before", name, uid, before)
		}
	}
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// openFolder is a temporary folder that every user may enter; t.TempDir's is not.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpg-open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
