//go:build linux || darwin || freebsd

package chaos

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cutter is a proxy before Postgres that reads what clients say, and cuts a
// connection right before a commit (Postgres never sees it) or right after
// (Postgres has done it, and the client never hears).
type cutter struct {
	listener net.Listener
	upstream string
	armed    chan string // before, after
	done     atomic.Int64
	told     func(how string) // of each cut; nil for nobody
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newCutter(t testing.TB, upstream string, told func(how string)) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, upstream: upstream, told: told, armed: make(chan string, 1000), conns: map[net.Conn]struct{}{}}
	c.wg.Go(c.accept)
	t.Cleanup(c.close)
	return c
}

func (c *cutter) addr() string { return c.listener.Addr().String() }

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.wg.Go(func() { c.serve(client) })
	}
}

func (c *cutter) close() {
	c.listener.Close()
	c.mu.Lock()
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

func (c *cutter) track(conn net.Conn) func() {
	c.mu.Lock()
	c.conns[conn] = struct{}{}
	c.mu.Unlock()
	return func() {
		conn.Close()
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
	}
}

func (c *cutter) serve(client net.Conn) {
	defer c.track(client)()
	server, err := net.DialTimeout("tcp", c.upstream, 2*time.Second)
	if err != nil {
		return
	}
	defer c.track(server)()
	p := &pipe{cutter: c, client: client, server: server, writes: map[string]bool{}}
	c.wg.Go(func() { p.answers(); client.Close(); server.Close() })
	p.questions()
	server.Close()
}

// pipe is one connection.
type pipe struct {
	cutter         *cutter
	client, server net.Conn
	deaf           atomic.Bool // the client is to hear no more
	heard          atomic.Int64

	writes   map[string]bool // prepared statements that write
	inTx     bool
	changing bool // since the last sync, something was executed that writes
}

func (p *pipe) answers() {
	b := make([]byte, 64<<10)
	for {
		n, err := p.server.Read(b)
		if n > 0 {
			p.heard.Add(int64(n))
			if !p.deaf.Load() {
				if _, err := p.client.Write(b[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// questions forwards message by message. Packets without a type (the startup)
// come first; there is no TLS here.
func (p *pipe) questions() {
	if err := p.startup(); err != nil {
		return
	}
	for {
		m, err := readMessage(p.client)
		if err != nil {
			return
		}
		if p.commits(m) {
			select {
			case how := <-p.cutter.armed:
				p.cut(m, how)
				return
			default:
			}
		}
		if _, err := p.server.Write(m); err != nil {
			return
		}
	}
}

func (p *pipe) startup() error {
	size := make([]byte, 4)
	if _, err := io.ReadFull(p.client, size); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size)
	if n < 8 || n > 10_000 {
		return errors.New("no startup packet")
	}
	rest := make([]byte, n-4)
	if _, err := io.ReadFull(p.client, rest); err != nil {
		return err
	}
	_, err := p.server.Write(append(size, rest...))
	return err
}

func readMessage(r io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > 256<<20 {
		return nil, errors.New("no message of this protocol")
	}
	m := make([]byte, 1+n)
	copy(m, head)
	_, err := io.ReadFull(r, m[5:])
	return m, err
}

// cut ends the connection around the commit that m asks for.
func (p *pipe) cut(m []byte, how string) {
	p.cutter.done.Add(1)
	if p.cutter.told != nil {
		p.cutter.told(how)
	}
	if how == "after" {
		p.deaf.Store(true)
		before := p.heard.Load()
		if _, err := p.server.Write(m); err == nil {
			// The first answer comes with the commit done, or refused.
			for end := time.Now().Add(2 * time.Second); p.heard.Load() == before && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
	}
	if tcp, ok := p.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset, as from a machine that is gone
	}
	p.client.Close()
}

var (
	writing = regexp.MustCompile(`(?is)\b(insert|update|delete|enqueue_job)\b`)
	begins  = regexp.MustCompile(`(?i)^\s*(begin|start\s+transaction)\b`)
	commit  = regexp.MustCompile(`(?i)^\s*(commit|end)\b`)
	ends    = regexp.MustCompile(`(?i)^\s*(rollback|abort)\b`)
)

// commits tells whether m makes Postgres commit something written: COMMIT, a
// writing statement by itself, or the end of a pipeline that had one.
func (p *pipe) commits(m []byte) bool {
	body := m[5:]
	switch m[0] {
	case 'Q':
		return p.simple(text(body))
	case 'P': // name, statement
		name, rest, _ := bytes.Cut(body, []byte{0})
		p.writes[string(name)] = writing.MatchString(text(rest))
	case 'B': // portal, name of the statement
		_, rest, _ := bytes.Cut(body, []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		p.changing = p.changing || p.writes[string(name)]
	case 'S':
		did := p.changing && !p.inTx
		p.changing = false
		return did
	}
	return false
}

func (p *pipe) simple(sql string) bool {
	switch {
	case begins.MatchString(sql):
		p.inTx = true
	case ends.MatchString(sql):
		p.inTx, p.changing = false, false
	case commit.MatchString(sql):
		p.inTx = false
		return true
	default:
		return !p.inTx && writing.MatchString(sql)
	}
	return false
}

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func message(kind byte, body string) []byte {
	m := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(m, body...)
}

func TestTheCutterKnowsACommit(t *testing.T) {
	t.Parallel()
	type step struct {
		m    []byte
		want bool
	}
	for name, steps := range map[string][]step{
		"transaction": {{message('Q', "begin\x00"), false}, {message('P', "s1\x00insert into a values (1)\x00"), false}, {message('B', "\x00s1\x00"), false},
			{message('S', ""), false}, {message('Q', "commit\x00"), true}},
		"rolled back":   {{message('Q', "BEGIN\x00"), false}, {message('Q', "insert into a values (1)\x00"), false}, {message('Q', "rollback\x00"), false}},
		"statement":     {{message('Q', "SELECT enqueue_job('a')\x00"), true}},
		"pipeline":      {{message('P', "s1\x00WITH x AS (DELETE FROM a) SELECT 1\x00"), false}, {message('B', "\x00s1\x00"), false}, {message('S', ""), true}, {message('S', ""), false}},
		"reading":       {{message('P', "s1\x00SELECT 1\x00"), false}, {message('B', "\x00s1\x00"), false}, {message('S', ""), false}, {message('Q', "select 2\x00"), false}},
		"prepared once": {{message('P', "s1\x00UPDATE a SET b = 1\x00"), false}, {message('S', ""), false}, {message('B', "\x00s1\x00"), false}, {message('S', ""), true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pipe{writes: map[string]bool{}}
			for i, s := range steps {
				if got := p.commits(s.m); got != s.want {
					t.Errorf("message %d %q: commits = %v, want %v", i, s.m, got, s.want)
				}
			}
		})
	}
}
