package samplejobs

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// mailServer is a real SMTP server on loopback that can be told to refuse.
type mailServer struct {
	tls, implicit          bool
	user, password         string
	onMail, onRcpt, onData *smtp.SMTPError
	address                string // listened on; default 127.0.0.1
	greeting               string // said instead of serving
	hangUp, hangUpAfter    bool   // before, or after, the mail is answered

	listener net.Listener
	roots    *x509.CertPool
	mails    chan receivedMail
	signIns  *atomic.Int32
}

type receivedMail struct {
	from, user, data string
	to               []string
	secure           bool
}

func startMailServer(t *testing.T, m mailServer) *mailServer {
	t.Helper()
	m.mails, m.signIns = make(chan receivedMail, 10), new(atomic.Int32)
	if m.address == "" {
		m.address = "127.0.0.1"
	}
	l, err := net.Listen("tcp", m.address+":0")
	if err != nil {
		t.Fatal(err)
	}
	m.listener = l
	if m.greeting != "" {
		m.serveGreeting(t)
		return &m
	}
	s := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &mailSession{server: &m, conn: c}, nil }))
	s.AllowInsecureAuth, s.ErrorLog = true, log.New(io.Discard, "", 0)
	s.ReadTimeout, s.WriteTimeout = 20*time.Second, 20*time.Second
	certificate := m.certificate(t)
	if m.tls {
		s.TLSConfig = certificate
	}
	if m.implicit {
		l = tls.NewListener(l, certificate)
	}
	var wait sync.WaitGroup
	wait.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Close(); wait.Wait() })
	return &m
}

// certificate borrows httptest's, which is for 127.0.0.1 and example.com.
func (m *mailServer) certificate(t *testing.T) *tls.Config {
	h := httptest.NewTLSServer(nil)
	t.Cleanup(h.Close)
	m.roots = x509.NewCertPool()
	m.roots.AddCert(h.Certificate())
	return &tls.Config{Certificates: h.TLS.Certificates}
}

func (m *mailServer) serveGreeting(t *testing.T) {
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := m.listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, m.greeting+"\r\n")
			_, _ = bufio.NewReader(io.LimitReader(c, 1000)).ReadString('\n')
			c.Close()
		}
	})
	t.Cleanup(func() { m.listener.Close(); wait.Wait() })
}

// config points cfg at the server and trusts its certificate.
func (m *mailServer) config(cfg Config) Config {
	cfg.SMTP.Host, cfg.SMTP.Port = m.address, m.listener.Addr().(*net.TCPAddr).Port
	cfg.SMTP.From = "Jobs <jobs@example.com>"
	cfg.SMTP.config = &tls.Config{RootCAs: m.roots}
	return cfg
}

// received waits for n mails.
func (m *mailServer) received(t *testing.T, n int) []receivedMail {
	t.Helper()
	var out []receivedMail
	for range n {
		select {
		case r := <-m.mails:
			out = append(out, r)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d mails arrived, want %d", len(out), n)
		}
	}
	return out
}

type mailSession struct {
	server *mailServer
	conn   *smtp.Conn
	got    receivedMail
}

var _ smtp.AuthSession = (*mailSession)(nil)

func (s *mailSession) AuthMechanisms() []string {
	if s.server.user == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.server.signIns.Add(1)
		if user != s.server.user || password != s.server.password {
			return smtp.ErrAuthFailed
		}
		s.got.user = user
		return nil
	}), nil
}

func (s *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	if s.server.user != "" && s.got.user == "" {
		return smtp.ErrAuthRequired
	}
	s.got.from = from
	return orNil(s.server.onMail)
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.got.to = append(s.got.to, to)
	return orNil(s.server.onRcpt)
}

func (s *mailSession) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if s.server.hangUp {
		s.conn.Conn().Close()
		return errors.New("hung up")
	}
	if s.server.onData != nil {
		return s.server.onData
	}
	_, s.got.secure = s.conn.TLSConnectionState()
	s.got.data = string(data)
	s.server.mails <- s.got
	return nil
}

// Reset follows each mail, before the answer to RSET.
func (s *mailSession) Reset() {
	if s.server.hangUpAfter && s.got.data != "" {
		s.conn.Conn().Close()
	}
	s.got.to, s.got.data = nil, ""
}

func (s *mailSession) Logout() error { return nil }

// orNil keeps a nil *SMTPError from becoming an error that is not nil.
func orNil(e *smtp.SMTPError) error {
	if e == nil {
		return nil
	}
	return e
}
