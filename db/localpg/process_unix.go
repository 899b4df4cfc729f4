//go:build unix

package localpg

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// interrupt asks for a fast shutdown; an error means that the process has ended.
func (p *process) interrupt(place) { _ = p.handle.Signal(syscall.SIGINT) }

// quit asks for an immediate shutdown.
func (p *process) quit() { _ = p.handle.Signal(syscall.SIGQUIT) }

func quitPID(pid int) { _ = syscall.Kill(pid, syscall.SIGQUIT) }

// exists tells whether there is a process pid, be it another user's or one that has
// ended and waits for its parent to notice.
func exists(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

var errLocked = errors.New("locked by another process")

// fileLock lasts until release or the end of the process, however that ends.
type fileLock struct{ file *os.File }

func lockFile(path string) (*fileLock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	keepOwner(path)
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &fileLock{file: file}, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, err
}

// release unlocks before it closes: a process that is being forked at this moment
// has a copy of the descriptor, and the lock would live on in it until its exec.
func (l *fileLock) release() {
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN) // closing does it too, but for such copies
	l.file.Close()
}

// identity is who Postgres runs as; it refuses to run as root.
type identity struct {
	uid, gid int  // whose the files are, as seen from here
	inside   *ids // who root becomes in a user namespace; nil without one
	change   bool // run as uid and gid instead of this process's
}

type ids struct{ uid, gid int }

// newPlace decides who runs Postgres for the data in dir, and where that lies.
func newPlace(dir string, noNamespace bool) (place, error) {
	p := place{dir: dir, home: dir}
	if os.Geteuid() != 0 {
		p.as = identity{uid: os.Geteuid(), gid: os.Getegid()}
		return p, nil
	}
	// Data that an ordinary user's start has made stays that user's.
	if info, err := os.Stat(p.data()); err == nil {
		owner := info.Sys().(*syscall.Stat_t)
		as := identity{uid: int(owner.Uid), gid: int(owner.Gid), change: true}
		if as.uid != 0 && as.canEnter(dir) {
			p.as = as
			return p, nil
		}
	}
	who, err := unprivileged()
	if err != nil {
		return p, err
	}
	if !noNamespace && namespaceWorks(who) {
		p.as = identity{inside: &who}
		return p, nil
	}
	p.as = identity{uid: who.uid, gid: who.gid, change: true}
	if !p.as.canEnter(dir) {
		p.home, err = p.as.ownFolder(dir)
	}
	return p, err
}

// unprivileged is an account to run as: Postgres's own or one that every system has.
// initdb asks for the account's name, so an id without one won't do.
func unprivileged() (ids, error) {
	for _, name := range []string{"postgres", "nobody", "daemon"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(account.Uid)
		gid, err2 := strconv.Atoi(account.Gid)
		if err1 == nil && err2 == nil && uid > 0 {
			return ids{uid, gid}, nil
		}
	}
	return ids{}, errors.New("no account to run Postgres as, which refuses to be root: this system has neither postgres nor nobody nor daemon; add a user named postgres, or run this program as an ordinary user")
}

// canEnter tells whether the identity may pass through path and all above it.
func (a identity) canEnter(path string) bool {
	for {
		info, err := os.Stat(path)
		if err != nil {
			return false
		}
		stat := info.Sys().(*syscall.Stat_t)
		mask := fs.FileMode(0o001)
		switch {
		case int(stat.Uid) == a.uid:
			mask = 0o100
		case int(stat.Gid) == a.gid:
			mask = 0o010
		}
		if info.Mode()&mask == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}

// ownFolder makes a folder that the identity may enter, one per data folder.
func (a identity) ownFolder(dir string) (string, error) {
	sum := sha256.Sum256([]byte(dir))
	var errs []error
	for _, base := range []string{"/var/lib", "/var/tmp", os.TempDir()} {
		folder := filepath.Join(base, "reliable-job-engine", fmt.Sprintf("%x", sum[:6]))
		err := os.MkdirAll(folder, 0o755)
		if err == nil && a.canEnter(folder) {
			return folder, nil
		}
		errs = append(errs, err)
	}
	return "", folderError(dir, fmt.Errorf("user %d, who is to run Postgres, may not enter it and gets no other: %w", a.uid, errors.Join(errs...)))
}

// own gives path and all in it to the identity.
func (a identity) own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	err := filepath.WalkDir(path, func(inner string, _ fs.DirEntry, err error) error {
		if err != nil || inner == path {
			return err
		}
		return os.Lchown(inner, a.uid, a.gid)
	})
	if err == nil {
		err = os.Lchown(path, a.uid, a.gid) // last, so that owns is true of all in it
	}
	if err != nil {
		return folderError(path, err)
	}
	return nil
}

// owns tells whether path is the identity's.
func (a identity) owns(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == a.uid
}

// keepOwner gives a file that root made to the folder's owner, who may start the
// server next time. It is a courtesy: where it can't be had, root goes on.
func keepOwner(path string) {
	if os.Geteuid() != 0 {
		return
	}
	if info, err := os.Stat(filepath.Dir(path)); err == nil {
		owner := info.Sys().(*syscall.Stat_t)
		_ = os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}
}
