package engine

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// helloWithin is how long a child may take until it can run suspects, and from an
// order to its start.
const helloWithin = 10 * time.Second

// childProcess is a child as its parent sees it.
type childProcess struct {
	cmd     *exec.Cmd
	in, out *os.File
	stderr  *os.File
	said    obituary
	ordered int         // runs so far
	leaving *time.Timer // to its end, while it has no work

	orders  *gob.Encoder
	ready   chan struct{} // closed when it can take orders
	eof     chan struct{} // closed when it can report no more; reports before it were delivered
	died    chan struct{} // closed when it is gone, with all it had started
	current atomic.Pointer[followed]
	unasked func(*childProcess) // called when it dies by itself, between two runs
	repeat  func(scope string)

	mu    sync.Mutex
	ended bool // by its parent
	gone  bool // its number may be another's
}

// followed is the run whose reports somebody reads.
type followed struct {
	token   int64
	reports chan report
	left    chan struct{}
}

// startChild starts this program again, with the same arguments and environment.
func (e *Engine) startChild() (*childProcess, error) {
	path, err := selfPath()
	if err != nil {
		return nil, err
	}
	var files [6]*os.File // read and write ends of orders, reports, stderr
	for i := 0; i < len(files) && err == nil; i += 2 {
		files[i], files[i+1], err = os.Pipe()
	}
	if err != nil {
		closeAll(files[:]...)
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: os.Args, Env: append(os.Environ(), childVar+"="+e.identity()), Stdout: os.Stdout, Stderr: files[5],
		ExtraFiles: []*os.File{files[0], files[3]}}
	bind(cmd)
	p := &childProcess{cmd: cmd, in: files[1], out: files[2], stderr: files[4], orders: gob.NewEncoder(files[1]), ready: make(chan struct{}),
		eof: make(chan struct{}), died: make(chan struct{}), unasked: e.childDiedUnasked, repeat: e.obs.KeyRepeated}
	started := make(chan error)
	go p.own(started, files[0], files[3], files[5])
	return p, <-started
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // an end of a pipe
		}
	}
}

// own starts the child and buries it. On Linux the kernel kills the child when
// the thread that started it ends, so this goroutine keeps it to itself. The child
// is dead when its pipe ends; what it has started is killed before the child is
// reaped, while its number cannot be another's.
func (p *childProcess) own(started chan<- error, theirs ...*os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	closeAll(theirs...)
	if err != nil {
		closeAll(p.in, p.out, p.stderr)
		started <- err
		return
	}
	heard := make(chan struct{})
	go func() { defer close(heard); p.said.listen(p.stderr, os.Stderr) }()
	go p.read()
	started <- nil
	<-p.eof
	p.mu.Lock()
	killGroup(p.cmd)
	_ = p.cmd.Wait() // its state tells
	p.gone = true
	asked := p.ended
	p.mu.Unlock()
	select {
	case <-heard:
	case <-time.After(time.Second): // somebody outside its group holds its stderr
	}
	closeAll(p.in, p.out, p.stderr)
	close(p.died)
	if !asked && p.current.Load() == nil && p.isReady() {
		p.unasked(p)
	}
}

// read passes reports on to whoever follows their run.
func (p *childProcess) read() {
	defer close(p.eof)
	d := gob.NewDecoder(p.out)
	for {
		var r report
		if d.Decode(&r) != nil {
			return
		}
		switch f := p.current.Load(); {
		case r.Repeated != "":
			p.repeat(r.Repeated)
		case r.Token == 0 && !p.isReady():
			close(p.ready)
		case f != nil && f.token == r.Token:
			select {
			case f.reports <- r:
			case <-f.left:
			}
		}
	}
}

func (p *childProcess) isReady() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

func (p *childProcess) alive() bool {
	select {
	case <-p.eof:
		return false
	default:
		return true
	}
}

// isEnded tells whether the child was ended by its parent.
func (p *childProcess) isEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// awaitReady waits for the child's first word. Error: why there is none, or
// ctx's.
func (p *childProcess) awaitReady(ctx context.Context) error {
	t := time.NewTimer(helloWithin)
	defer t.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.eof:
		<-p.died
		return errors.New("the child process ended before it could run anything: " + p.epitaph())
	case <-t.C:
		return fmt.Errorf("the child process was not ready within %s; is Start called before what takes long?", helloWithin)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send gives an order. A child that does not read is as good as dead.
func (p *childProcess) send(o order) error {
	if err := p.in.SetWriteDeadline(time.Now().Add(helloWithin)); err != nil {
		return err
	}
	return p.orders.Encode(o)
}

func (p *childProcess) follow(token int64) *followed {
	f := &followed{token: token, reports: make(chan report), left: make(chan struct{})}
	p.current.Store(f)
	p.said.begin()
	return f
}

func (p *childProcess) leave(f *followed) {
	p.current.Store(nil)
	close(f.left)
}

// kill ends the child and what it has started, at once.
func (p *childProcess) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if !p.gone {
		killGroup(p.cmd)
	}
}

// dismiss lets the child end by itself, and kills it if it has not soon.
func (p *childProcess) dismiss() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	_ = p.in.Close() // its sign to end
	select {
	case <-p.died:
	case <-time.After(stopGoodbye + 100*time.Millisecond):
		p.kill()
		<-p.died
	}
}

// epitaph tells how the child ended, and its last words. Only after died.
func (p *childProcess) epitaph() string {
	how := p.cmd.ProcessState.String()
	if words, _ := p.said.last(); words != "" {
		return how + ": " + words
	}
	return how
}
