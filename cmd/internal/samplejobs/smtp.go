package samplejobs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	gomail "github.com/wneessen/go-mail"
)

// The ways a mail server's connection is encrypted, as SMTP_TLS names them.
// mandatory and implicit are other words for starttls and tls.
const (
	tlsNone          = "none"
	tlsOpportunistic = "opportunistic"
	tlsStart         = "starttls"
	tlsImplicit      = "tls"
)

// smtpTimeout bounds one mail, from name lookup to the server's last word. The
// job's own deadline comes on top.
const smtpTimeout = time.Minute

// SMTP says how to reach the mail server. An empty Host is none.
type SMTP struct {
	Host string
	// Port has as default 465 with TLS from the first byte, else 587.
	Port int
	// User and Password are both given or both empty. Without encryption the
	// password is sent in the clear to this machine only.
	User, Password string
	// From is the sender, with or without a name; required with Host.
	From string
	// TLS is starttls or mandatory (refuse a server without STARTTLS), tls or
	// implicit (from the first byte), opportunistic (STARTTLS if offered), none.
	// Default opportunistic in development, else starttls. A certificate that
	// does not verify is refused by each of them.
	TLS string

	config *tls.Config // nil verifies against the system's roots
}

// complete checks s and fills in defaults.
func (s *SMTP) complete(development bool) error {
	switch s.TLS {
	case "":
		s.TLS = tlsStart
		if development {
			s.TLS = tlsOpportunistic
		}
	case "mandatory":
		s.TLS = tlsStart
	case "implicit":
		s.TLS = tlsImplicit
	case tlsNone, tlsOpportunistic, tlsStart, tlsImplicit:
	default:
		return fmt.Errorf("SMTP_TLS: %q is none of starttls, tls, opportunistic, none", s.TLS)
	}
	if (s.User == "") != (s.Password == "") {
		return errors.New("SMTP_USER and SMTP_PASSWORD: one is given without the other")
	}
	if s.Port == 0 {
		s.Port = 587
		if s.TLS == tlsImplicit {
			s.Port = 465
		}
	}
	return nil
}

// send delivers m over a connection of its own. A 5xx reply to the sender, a
// recipient or the mail is permanent; a refused greeting, TLS or sign-in is not,
// since that is about this installation and not about the mail, and a wrong
// password for an hour must not bury an hour's mail. Once the server has taken
// the mail, nothing that follows counts as failure.
func (s *SMTP) send(ctx context.Context, m *gomail.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, smtpTimeout)
	defer cancel()
	line := &smtpLine{smtp: s}
	defer line.close()
	defer context.AfterFunc(ctx, line.close)()
	client, err := gomail.NewClient(s.Host, s.options(line.dial)...)
	if err != nil {
		return fmt.Errorf("mail server %s: %w", s.address(), err)
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return s.failed(ctx, "connect to", err)
	}
	err = client.SendWithSMTPClient(session, m)
	if m.IsDelivered() {
		_ = client.CloseWithSMTPClient(session) // QUIT is a courtesy; the mail is theirs now
		return nil
	}
	err = s.failed(ctx, "send mail through", err)
	var refused *gomail.SendError
	if errors.As(err, &refused) && refused.ErrorCode() >= 500 {
		return engine.Permanent(err)
	}
	return err
}

// failed names the server and, if the time was over, says that instead of the
// closed connection that came of it.
func (s *SMTP) failed(ctx context.Context, act string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%s mail server %s: %w", act, s.address(), cause)
	}
	return fmt.Errorf("%s mail server %s: %w", act, s.address(), err)
}

func (s *SMTP) address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

func (s *SMTP) tlsConfig() *tls.Config {
	c := s.config.Clone()
	if c == nil {
		c = &tls.Config{}
	}
	c.ServerName, c.MinVersion = s.Host, tls.VersionTLS12
	return c
}

func (s *SMTP) options(dial gomail.DialContextFunc) []gomail.Option {
	o := []gomail.Option{
		gomail.WithPort(s.Port), gomail.WithTimeout(smtpTimeout), gomail.WithTLSConfig(s.tlsConfig()),
		gomail.WithDialContextFunc(dial), gomail.WithoutNoop(),
	}
	switch s.TLS {
	case tlsImplicit:
		o = append(o, gomail.WithSSL())
	case tlsOpportunistic:
		o = append(o, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	case tlsNone:
		o = append(o, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		o = append(o, gomail.WithTLSPolicy(gomail.TLSMandatory))
	}
	if s.User != "" {
		// PLAIN and LOGIN refuse by themselves to run unencrypted off this machine.
		o = append(o, gomail.WithUsername(s.User), gomail.WithPassword(s.Password), gomail.WithOpportunisticSMTPAuth(
			gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin, gomail.SMTPAuthCramMD5))
	}
	return o
}

// smtpLine is the connection of one mail. go-mail leaves it open when sign-in
// fails and does not watch the context after dialling, so it is kept here.
type smtpLine struct {
	smtp *SMTP

	mu     sync.Mutex
	conn   net.Conn
	closed bool
}

func (l *smtpLine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.keep(conn)
	if l.smtp.TLS != tlsImplicit {
		return conn, nil
	}
	secure := tls.Client(conn, l.smtp.tlsConfig())
	return secure, secure.HandshakeContext(ctx)
}

func (l *smtpLine) keep(conn net.Conn) {
	l.mu.Lock()
	l.conn = conn
	closed := l.closed
	l.mu.Unlock()
	if closed {
		l.close()
	}
}

func (l *smtpLine) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		_ = l.conn.Close() // after QUIT it is closed already
	}
}
