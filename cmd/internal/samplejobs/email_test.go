package samplejobs

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

func mailer(t *testing.T, cfg Config) *emails {
	t.Helper()
	e, err := newEmails(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func readMail(t *testing.T, raw string) *mail.Message {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(raw))
	if err != nil {
		t.Fatalf("read mail: %v\n%s", err, raw)
	}
	return m
}

func decodedSubject(t *testing.T, m *mail.Message) string {
	t.Helper()
	s, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMailArrivesAsWrittenUnderOneMessageID(t *testing.T) {
	t.Parallel()
	server := startMailServer(t, mailServer{tls: true, user: "jobs", password: "pass word"})
	e := mailer(t, server.config(Config{SMTP: SMTP{User: "jobs", Password: "pass word", TLS: "mandatory"}}))
	args := parse[Email](t, `{"to":["Ann Ünal <ann@example.com>","ben@example.com"],"cc":"cy@example.com","bcc":"secret@example.com","reply_to":"help@example.com",
		"subject":"Grüße, 東京 ✓","text":"Zeile 1\n.\nZeile 3 – Ende","html":"<p>Grüße</p>"}`)
	row := run(t, 1)
	for range 2 { // a second try is the same mail
		result, err := e.deliver(within(t, 20*time.Second), row, args)
		if err != nil || result.Recipients != 4 || result.MessageID != "<"+row.ID.String()+"@example.com>" {
			t.Fatalf("deliver = %+v, %v", result, err)
		}
	}
	got := server.received(t, 2)
	if !slices.Equal(got[0].to, []string{"ann@example.com", "ben@example.com", "cy@example.com", "secret@example.com"}) || got[0].from != "jobs@example.com" || !got[0].secure {
		t.Errorf("envelope %+v", got[0])
	}
	if strings.Contains(got[0].data, "secret@") || strings.Contains(strings.ToLower(got[0].data), "bcc:") {
		t.Errorf("the mail tells of its blind copy:\n%s", got[0].data)
	}
	first, second := readMail(t, got[0].data), readMail(t, got[1].data)
	if a, b := first.Header.Get("Message-ID"), second.Header.Get("Message-ID"); a != b || a == "" {
		t.Errorf("message ids %q and %q", a, b)
	}
	if s := decodedSubject(t, first); s != "Grüße, 東京 ✓" {
		t.Errorf("subject %q", s)
	}
	if h := first.Header; h.Get("Reply-To") != "<help@example.com>" || h.Get("Auto-Submitted") != "auto-generated" || h.Get("From") != `"Jobs" <jobs@example.com>` {
		t.Errorf("headers %v", h)
	}
	if want := []string{"Zeile 1\r\n.\r\nZeile 3 – Ende", "<p>Grüße</p>"}; !slices.Equal(parts(t, first), want) {
		t.Errorf("parts %q, want %q", parts(t, first), want)
	}
}

// parts are the alternatives of m, decoded.
func parts(t *testing.T, m *mail.Message) []string {
	t.Helper()
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("content type %s, %v", kind, err)
	}
	var out []string
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			m.Body = strings.NewReader("")
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimRight(string(text), "\r\n"))
	}
}

func TestTLSPolicyIsObeyed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		server     mailServer
		tls        string
		distrusted bool
		secure     bool
		want       string // error; empty means it is sent
	}{
		{"mandatory with STARTTLS", mailServer{tls: true}, "mandatory", false, true, ""},
		{"mandatory without", mailServer{}, "starttls", false, false, "does not support STARTTLS"},
		{"mandatory, unknown certificate", mailServer{tls: true}, "starttls", true, false, "certificate"},
		{"opportunistic with STARTTLS", mailServer{tls: true}, "opportunistic", false, true, ""},
		{"opportunistic without", mailServer{}, "opportunistic", false, false, ""},
		{"opportunistic, unknown certificate", mailServer{tls: true}, "opportunistic", true, false, "certificate"},
		{"none", mailServer{tls: true}, "none", false, false, ""},
		{"implicit", mailServer{implicit: true}, "implicit", false, true, ""},
		{"implicit with sign-in", mailServer{implicit: true, user: "u", password: "p"}, "tls", false, true, ""},
		{"implicit, unknown certificate", mailServer{implicit: true}, "tls", true, false, "certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := startMailServer(t, tt.server)
			cfg := server.config(Config{SMTP: SMTP{TLS: tt.tls, User: tt.server.user, Password: tt.server.password}})
			if tt.distrusted {
				cfg.SMTP.config = nil
			}
			_, err := mailer(t, cfg).deliver(within(t, 20*time.Second), run(t, 1), Email{To: Addresses{"a@example.com"}, Subject: "s", Text: "t"})
			if tt.want != "" {
				wantError(t, err, "retry", tt.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := server.received(t, 1)[0]; got.secure != tt.secure || got.user != tt.server.user {
				t.Errorf("sent encrypted %t by user %q, want %t by %q", got.secure, got.user, tt.secure, tt.server.user)
			}
		})
	}
}

func TestMailServersReplyDecides(t *testing.T) {
	t.Parallel()
	say := func(code int) *smtp.SMTPError {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "says the server"}
	}
	for _, tt := range []struct {
		name       string
		server     mailServer
		want, text string
	}{
		{"sender refused", mailServer{onMail: say(550)}, "permanent", "550"},
		{"sender later", mailServer{onMail: say(451)}, "retry", "451"},
		{"recipient unknown", mailServer{onRcpt: say(550)}, "permanent", "a@example.com"},
		{"recipient later", mailServer{onRcpt: say(450)}, "retry", "450"},
		{"content refused", mailServer{onData: say(554)}, "permanent", "554"},
		{"content later", mailServer{onData: say(452)}, "retry", "452"},
		{"shutting down", mailServer{onData: say(421)}, "retry", "421"},
		{"wrong password", mailServer{tls: true, user: "jobs", password: "other"}, "retry", "535"},
		{"greeting refused", mailServer{greeting: "554 no service here"}, "retry", "no service here"},
		{"hangs up after the mail", mailServer{hangUp: true}, "retry", "send mail through"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := startMailServer(t, tt.server)
			cfg := server.config(Config{Development: true})
			if tt.server.user != "" {
				cfg.SMTP.User, cfg.SMTP.Password = "jobs", "hunter2"
			}
			_, err := mailer(t, cfg).deliver(within(t, 20*time.Second), run(t, 1), Email{To: Addresses{"a@example.com"}, Subject: "s", Text: "t"})
			wantError(t, err, tt.want, tt.text)
			if err != nil && (!strings.Contains(err.Error(), cfg.SMTP.Host) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("the error says %q", err)
			}
		})
	}
}

// A QUIT that goes wrong comes after the mail was taken; a retry would send it
// twice.
func TestMailTakenIsSentWhateverFollows(t *testing.T) {
	t.Parallel()
	server := startMailServer(t, mailServer{hangUpAfter: true})
	if _, err := mailer(t, server.config(Config{Development: true})).deliver(within(t, 20*time.Second), run(t, 1),
		Email{To: Addresses{"a@example.com"}, Subject: "s", Text: "t"}); err != nil {
		t.Error(err)
	}
	server.received(t, 1)
}

func TestPasswordIsNotSentUnencryptedToAnotherMachine(t *testing.T) {
	t.Parallel()
	// 127.0.0.2 is not one of the names that go-mail takes for this machine.
	server := startMailServer(t, mailServer{address: "127.0.0.2", user: "jobs", password: "hunter2"})
	cfg := server.config(Config{Development: true, SMTP: SMTP{User: "jobs", Password: "hunter2"}})
	_, err := mailer(t, cfg).deliver(within(t, 20*time.Second), run(t, 1), Email{To: Addresses{"a@example.com"}, Subject: "s", Text: "t"})
	wantError(t, err, "retry", "unencrypted connection")
	if server.signIns.Load() != 0 {
		t.Error("the password went over the wire")
	}
}

func TestSilentMailServerEndsWithTheJobsDeadline(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	e := mailer(t, Config{Development: true, SMTP: SMTP{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, From: "jobs@example.com"}})
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(engine.ErrStopping) })
	began := time.Now()
	_, err = e.deliver(ctx, run(t, 1), Email{To: Addresses{"a@example.com"}, Subject: "s", Text: "t"})
	if !errors.Is(err, engine.ErrStopping) || time.Since(began) > 5*time.Second {
		t.Errorf("deliver = %v after %s", err, time.Since(began))
	}
}

func TestMailIsCheckedFieldByField(t *testing.T) {
	t.Parallel()
	e := mailer(t, Config{Development: true, MailDir: t.TempDir()})
	good := func(change func(*Email)) Email {
		m := Email{To: Addresses{"a@example.com"}, Subject: "s", Text: "t"}
		change(&m)
		return m
	}
	many := slices.Repeat(Addresses{"a@example.com"}, 60)
	for _, tt := range []struct {
		args Email
		want string
	}{
		{good(func(m *Email) { m.To = nil }), "to: is missing"},
		{good(func(m *Email) { m.To = Addresses{""} }), `to: "" is no mail address`},
		{good(func(m *Email) { m.To = Addresses{"nobody"} }), `to: "nobody" is no mail address`},
		{good(func(m *Email) { m.To = Addresses{"a@example.com, b@example.com"} }), "to: "},
		{good(func(m *Email) { m.Cc = Addresses{"a@example.com\r\nBcc: x@example.com"} }), "cc: "},
		{good(func(m *Email) { m.Bcc = Addresses{"x"} }), "bcc: "},
		{good(func(m *Email) { m.ReplyTo = Addresses{"=?utf-8?q?a=0D=0ABcc=3A_x?= <a@example.com>"} }), "reply_to: \"=?utf-8?q?a=0D=0ABcc=3A_x?= <a@example.com>\" holds a line break"},
		{good(func(m *Email) { m.To = Addresses{strings.Repeat("a", 250) + "@example.com"} }), "is longer than 254 bytes"},
		{good(func(m *Email) { m.To, m.Bcc = many, many }), "120 recipients, at most 100"},
		{good(func(m *Email) { m.Subject = "" }), "subject: is missing"},
		{good(func(m *Email) { m.Subject = "a\r\nBcc: x@example.com" }), "subject: holds a line break"},
		{good(func(m *Email) { m.Subject = "a\u0085b" }), "subject: holds a line break"},
		{good(func(m *Email) { m.Subject = strings.Repeat("a", 999) }), "subject: longer than 998"},
		{good(func(m *Email) { m.Text = "" }), "text: is missing"},
	} {
		_, err := e.deliver(t.Context(), run(t, 1), tt.args)
		wantError(t, err, "permanent", tt.want)
	}
}

func TestWithoutAServerDevelopmentWritesMailAndProductionSaysWhatToSet(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data", "mail")
	args := Email{To: Addresses{"Ann <ann@example.com>"}, Bcc: Addresses{"secret@example.com"}, Subject: "Grüße", Text: "Hallo"}
	row := run(t, 1)
	e := mailer(t, Config{Development: true, MailDir: dir})
	for range 2 { // the second try replaces the first
		result, err := e.deliver(t.Context(), row, args)
		if err != nil || result.File != filepath.Join(dir, row.ID.String()+".eml") {
			t.Fatalf("deliver = %+v, %v", result, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the folder holds %v, %v", entries, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, entries[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	m := readMail(t, string(raw))
	if decodedSubject(t, m) != "Grüße" || m.Header.Get("Message-ID") != "<"+row.ID.String()+"@localhost>" || strings.Contains(string(raw), "secret@") {
		t.Errorf("the file holds\n%s", raw)
	}
	_, err = mailer(t, Config{MailDir: dir}).deliver(t.Context(), row, args)
	wantError(t, err, "permanent", "set SMTP_HOST")
}

func TestMailThatCannotBeWrittenLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	row := run(t, 1)
	if err := os.MkdirAll(filepath.Join(dir, row.ID.String()+".eml", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := mailer(t, Config{Development: true, MailDir: dir}).deliver(t.Context(), row, Email{To: Addresses{"a@example.com"}, Subject: "s", Text: "t"})
	wantError(t, err, "retry", "write mail")
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
