//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// inNamespace marks the run of this binary that may mount.
const inNamespace = "RJE_TEST_MOUNTS"

// TestOutageOfAFullDisk puts the database on a small file system of its own and fills that. It runs itself again in a mount
// namespace, so that nothing is mounted for anybody else.
func TestOutageOfAFullDisk(t *testing.T) {
	allOutages(t)
	if os.Getenv(inNamespace) == "" {
		t.Parallel()
		if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
			t.Skipf("a test may not mount here: %v %s", err, out)
		}
		again := exec.Command("unshare", "-m", os.Args[0], "-test.run=^TestOutageOfAFullDisk$", "-test.v", "-outages=all")
		again.Env = append(os.Environ(), inNamespace+"=1")
		out, err := again.CombinedOutput()
		t.Logf("%s", out)
		if err != nil || !strings.Contains(string(out), "--- PASS: TestOutageOfAFullDisk") {
			t.Fatal("it failed in its namespace: ", err)
		}
		return
	}
	disk, err := os.MkdirTemp("", "disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=40m"); err != nil {
		t.Skipf("a test may not mount here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH); _ = os.Remove(disk) }) // goes with the namespace otherwise
	pg := dbtest.NewServer(t)
	space := filepath.Join(disk, "space")
	if err := os.Mkdir(space, 0o700); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join("/proc", "self")); err == nil { // as whom Postgres runs
		owner := info.Sys().(*syscall.Stat_t)
		_ = os.Chown(space, int(owner.Uid), int(owner.Gid)) // it is ours already
	}
	admin := dbtest.OpenURL(t, pg.URL("postgres"))
	for _, sql := range []string{"CREATE TABLESPACE small LOCATION '" + space + "'", "CREATE DATABASE jobs TABLESPACE small"} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := db.Migrate(t.Context(), pg.URL("jobs"), nil); err != nil {
		t.Fatal(err)
	}
	b := brokenOn(t, pg, pg.URL("jobs"))
	b.ballast = filepath.Join(disk, "ballast")
	goThrough(b, outage{begin: (*broken).fill, repair: func(b *broken) { _ = os.Remove(b.ballast) }})
}

// fill leaves no room on the disk, nor in the pages that are there already.
func (b *broken) fill() {
	f, err := os.Create(b.ballast)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	body := `{"type":"webhook","queue":"later","payload":{"url":"http://127.0.0.1:1/","body":"` + strings.Repeat("x", 900) + `"}}`
	b.eventually(20*time.Second, "a write is refused", func() bool { return b.tryPost(body).status/100 != 2 })
	for range 50 { // what is left in this page or that
		b.tryPost(body)
	}
}
