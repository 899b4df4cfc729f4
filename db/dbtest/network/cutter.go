package network

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
)

// Where an exchange is cut off.
const (
	// BeforeServer loses what was asked: the server sees the connection end.
	BeforeServer Moment = iota
	// AfterServer loses the answer: the server has done it all, committed included.
	AfterServer
)

// Moment is where an exchange is cut off.
type Moment int

// cut is an exchange to be lost.
type cut struct {
	at    Moment
	match func(sql string) bool
	done  chan struct{}
}

// Cut loses the next exchange in which a statement with this text is committed: by
// itself, or by COMMIT, for which text is "commit". The connection ends with it. It
// returns a channel that is closed once that has happened.
func (p *Proxy) Cut(at Moment, text string) <-chan struct{} {
	c := &cut{at: at, done: make(chan struct{}), match: func(sql string) bool {
		if text == "commit" {
			return strings.EqualFold(strings.TrimRight(strings.TrimSpace(sql), ";"), text) // and no setting of synchronous_commit
		}
		return strings.Contains(sql, text)
	}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c.done
}

// take finds the cut for a group of statements, and keeps it from happening twice.
func (p *Proxy) take(statements []string) *cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.cuts {
		for _, s := range statements {
			if c.match(s) {
				p.cuts = append(p.cuts[:i], p.cuts[i+1:]...)
				return c
			}
		}
	}
	return nil
}

// session is one connection, whose messages are read on their way.
type session struct {
	p              *Proxy
	client, server net.Conn

	mu       sync.Mutex
	status   byte // of the transaction, as the server last told
	losing   *cut // what the server answers next is lost
	prepared map[string]string
	group    []string // statements since the last Sync
}

func (s *session) close() {
	_ = s.client.Close() // either may be closed already
	_ = s.server.Close()
}

// up passes on what the client says.
func (s *session) up() {
	defer s.close()
	if startup, err := message(s.client, false); err != nil || !s.send(s.server, startup) {
		return
	}
	for {
		m, err := message(s.client, true)
		if err != nil {
			return
		}
		c := s.note(m)
		if c != nil && c.at == BeforeServer {
			close(c.done)
			return
		}
		if !s.send(s.server, m) {
			return
		}
	}
}

// note keeps in mind what is asked, and answers the cut that begins with m.
func (s *session) note(m []byte) *cut {
	s.mu.Lock()
	defer s.mu.Unlock()
	body := m[5:]
	switch m[0] {
	case 'P':
		name, rest := text(body)
		s.prepared[name], _ = text(rest)
		return nil
	case 'B':
		_, rest := text(body)
		name, _ := text(rest)
		s.group = append(s.group, s.prepared[name])
		return nil
	case 'Q':
		sql, _ := text(body)
		s.group = append(s.group, sql)
	case 'S':
		if s.status != 'I' {
			s.group = nil // inside a transaction nothing is committed yet
		}
	default:
		return nil
	}
	c := s.p.take(s.group)
	s.group = nil
	if c != nil && c.at == AfterServer {
		s.losing = c
	}
	return c
}

// down passes on what the server says.
func (s *session) down() {
	defer s.close()
	for {
		m, err := message(s.server, true)
		if err != nil {
			return
		}
		s.mu.Lock()
		losing := s.losing
		if m[0] == 'Z' {
			s.status = m[5]
		}
		s.mu.Unlock()
		if losing != nil && m[0] == 'Z' {
			close(losing.done)
			return
		}
		if losing == nil && !s.send(s.client, m) {
			return
		}
	}
}

func (s *session) send(to net.Conn, m []byte) bool {
	_, err := to.Write(m)
	return err == nil
}

// message reads one message whole; the first of a client has no type.
func message(r io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 4, 512)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
	if n < 0 || n > 1<<30 {
		return nil, io.ErrUnexpectedEOF
	}
	m := append(head, make([]byte, n)...)
	_, err := io.ReadFull(r, m[len(head):])
	return m, err
}

// text reads a string that ends with a zero, and what comes after it.
func text(b []byte) (string, []byte) {
	s, rest, _ := bytes.Cut(b, []byte{0})
	return string(s), rest
}
