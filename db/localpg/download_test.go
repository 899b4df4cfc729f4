//go:build unix

package localpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The tests here take turns: the library downloads under a lock of the whole
// process, so that one of them hanging would hold up the others.

func TestWithoutBinariesPostgresIsDownloadedOnce(t *testing.T) {
	m := newMirror(t)
	dir := t.TempDir()
	o := Options{DataDir: dir, MirrorURL: m.URL + "/", searchDirs: []string{}}
	s := start(t, o)
	ask(t, s.URL(), "CREATE TABLE kept AS SELECT 'still here' AS words")
	stop(t, s)
	if n := m.jars.Load(); n != 1 {
		t.Errorf("the archive was fetched %d times, want 1", n)
	}
	m.Close()
	if got := ask(t, start(t, o).URL(), "SELECT words FROM kept"); got != "still here" {
		t.Errorf("without the mirror the row says %q", got)
	}
	left, err := filepath.Glob(filepath.Join(dir, "postgres-binaries", "fetch-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the download left %v, %v", left, err)
	}
}

func TestADownloadThatFailsSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		spoil    func(*mirror)
		path     string
		patience time.Duration
		word     string
	}{
		"tampered": {func(m *mirror) { m.sum = strings.Repeat("0", 64) }, "", 30 * time.Second, "checksums do not match"},
		"hanging":  {func(m *mirror) { m.hang = true }, "", 2 * time.Second, "took too long"},
		"absent":   {func(m *mirror) { m.Close() }, "", 30 * time.Second, "unable to connect"},
		"unknown":  {func(*mirror) {}, "/elsewhere", 30 * time.Second, "no version found"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			c.spoil(m)
			dir := t.TempDir()
			s, err := Start(limit(t, c.patience), Options{DataDir: dir, MirrorURL: m.URL + c.path, searchDirs: []string{}})
			if err == nil {
				stop(t, s)
			}
			if !errors.Is(err, ErrNoBinaries) {
				t.Fatalf("err = %v, want ErrNoBinaries", err)
			}
			t.Log(err)
			for _, word := range []string{c.word, "install PostgreSQL 15", "DATABASE_URL"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q lacks %q", err, word)
				}
			}
			if got, _ := filepath.Glob(filepath.Join(dir, "postgres-binaries", "*", "bin")); len(got) > 0 {
				t.Errorf("it left %v", got)
			}
		})
	}
}

// mirror serves one archive in a Maven repository's layout.
type mirror struct {
	*httptest.Server
	jars atomic.Int32
	sum  string // instead of the archive's
	hang bool
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{}
	jar := jarOf(t)
	over := make(chan struct{})
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.hang {
			<-over
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/io/zonky/test/postgres/embedded-postgres-binaries-") ||
			!strings.Contains(r.URL.Path, "/"+string(downloadVersion)+"/") {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			sum := m.sum
			if sum == "" {
				sum = fmt.Sprintf("%x", sha256.Sum256(jar))
			}
			fmt.Fprint(w, sum)
			return
		}
		m.jars.Add(1)
		w.Write(jar)
	}))
	t.Cleanup(m.Close)
	t.Cleanup(func() { close(over) })
	return m
}

// jarOf packs commands that call this machine's Postgres: what matters is the way
// from the mirror to a running server.
func jarOf(t *testing.T) []byte {
	t.Helper()
	o := withDefaults(Options{NoDownload: true, DataDir: t.TempDir()})
	p, err := newPlace(o.DataDir, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := findBinaries(limit(t, 10*time.Second), o, p)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	files := tar.NewWriter(&archive)
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		text := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", filepath.Join(b.dir, name))
		if err := files.WriteHeader(&tar.Header{Name: "bin/" + name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	zipped := zip.NewWriter(&jar)
	w, err := zipped.Create("postgres-test.txz")
	if err == nil {
		_, err = w.Write(xzOf(archive.Bytes()))
	}
	if err == nil {
		err = zipped.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return jar.Bytes()
}

// xzOf wraps data in an xz stream of one block, stored and not compressed, as the
// format's specification 1.2 has it; the standard library has no xz.
func xzOf(data []byte) []byte {
	withCRC := func(b []byte) []byte {
		return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	}
	pad := func(b []byte) []byte {
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	flags := []byte{0, 1} // check: CRC32
	header := withCRC([]byte{2, 0, 0x21, 1, 22, 0, 0, 0})
	var chunks []byte
	for rest, control := data, byte(1); len(rest) > 0; control = 2 {
		n := min(len(rest), 1<<16)
		chunks = append(chunks, control, byte((n-1)>>8), byte(n-1))
		chunks = append(chunks, rest[:n]...)
		rest = rest[n:]
	}
	chunks = append(chunks, 0)
	unpadded := len(header) + len(chunks) + 4
	index := binary.AppendUvarint([]byte{0, 1}, uint64(unpadded))
	index = withCRC(pad(binary.AppendUvarint(index, uint64(len(data)))))

	out := append([]byte{0xfd, '7', 'z', 'X', 'Z', 0}, withCRC(flags)[:]...)
	out = append(out, header...)
	out = append(out, pad(chunks)...)
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(data))
	out = append(out, index...)
	tail := append(binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1)), flags...)
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(tail))
	return append(append(out, tail...), 'Y', 'Z')
}
