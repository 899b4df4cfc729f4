package samplejobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"unicode"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	gomail "github.com/wneessen/go-mail"
)

// What a mail may hold, beside the payload's own limit.
const (
	recipientsMax = 100
	addressMax    = 254 // RFC 5321 4.5.3.1.3, without the angle brackets
	subjectMax    = 998 // RFC 5322 2.1.1
)

// Email is the payload of a job of type email. To, Subject and one of Text and
// HTML are required; with both, they are alternatives of one mail. Unknown
// fields are refused. If a server refuses one recipient, nobody gets the mail
// and the error names the address.
type Email struct {
	To      Addresses `json:"to"`
	Cc      Addresses `json:"cc,omitempty"`
	Bcc     Addresses `json:"bcc,omitempty"` // never in the mail's headers
	ReplyTo Addresses `json:"reply_to,omitempty"`
	Subject string    `json:"subject"`
	Text    string    `json:"text,omitempty"`
	HTML    string    `json:"html,omitempty"`
}

// JobType implements [engine.Args].
func (Email) JobType() string { return "email" }

// UnmarshalJSON refuses unknown fields by name.
func (e *Email) UnmarshalJSON(b []byte) error {
	type plain Email
	return decode(b, (*plain)(e))
}

// Addresses are mail addresses, each with or without a name: ann@example.com,
// Ann <ann@example.com>. In JSON, a string is a list of one.
type Addresses []string

// UnmarshalJSON takes a string or a list of strings.
func (a *Addresses) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = Addresses{one}
		return nil
	}
	var many []string
	if json.Unmarshal(b, &many) != nil {
		return errors.New("must be an address or a list of addresses")
	}
	*a = many
	return nil
}

// EmailResult is what a sent mail keeps.
type EmailResult struct {
	// MessageID is the same on every try of one job, so that a mail sent twice,
	// its first answer lost, can be told by the receiver.
	MessageID  string `json:"message_id"`
	Recipients int    `json:"recipients"`
	// File is where the mail was written when there is no mail server.
	File string `json:"file,omitempty"`
}

// emails sends or, in development without a server, writes mail. Several
// goroutines may use it.
type emails struct {
	smtp        SMTP
	development bool
	dir         string
	from        *mail.Address
}

func newEmails(cfg Config) (*emails, error) {
	e := &emails{smtp: cfg.SMTP, development: cfg.Development, dir: cfg.MailDir}
	if e.dir == "" {
		e.dir = defaultMailDir
	}
	from := cfg.SMTP.From
	if from == "" && cfg.SMTP.Host == "" {
		from = "jobs@localhost"
	}
	var err error
	if e.from, err = parseAddress(from); err != nil {
		return nil, fmt.Errorf("SMTP_FROM: %w", err)
	}
	return e, e.smtp.complete(cfg.Development)
}

// Work implements [engine.Worker].
func (e *emails) Work(ctx context.Context, job *engine.Job[Email]) error {
	result, err := e.deliver(ctx, job.Row, job.Args)
	if err != nil {
		return err
	}
	if result.File != "" {
		job.Log().Info("mail written to a file, since SMTP_HOST is not set", "path", result.File)
	}
	return job.SetResult(result)
}

// deliver makes one try.
func (e *emails) deliver(ctx context.Context, row engine.Row, args Email) (EmailResult, error) {
	if e.smtp.Host == "" && !e.development {
		return EmailResult{}, engine.Permanent(errors.New("no mail server: set SMTP_HOST and SMTP_FROM, then replay this job"))
	}
	m, n, err := e.compose(row, args)
	if err != nil {
		return EmailResult{}, engine.Permanent(err)
	}
	result := EmailResult{MessageID: m.GetMessageID(), Recipients: n}
	if e.smtp.Host == "" {
		result.File, err = writeMail(e.dir, row.ID.String()+".eml", m)
	} else {
		err = e.smtp.send(ctx, m)
	}
	return result, err
}

// compose builds the mail. Its errors name the payload's field.
func (e *emails) compose(row engine.Row, args Email) (m *gomail.Msg, recipients int, err error) {
	m = gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	for _, f := range []struct {
		name string
		list Addresses
		set  func(...*mail.Address)
	}{
		{"to", args.To, m.ToMailAddress}, {"cc", args.Cc, m.CcMailAddress},
		{"bcc", args.Bcc, m.BccMailAddress}, {"reply_to", args.ReplyTo, m.ReplyToMailAddress},
	} {
		parsed, err := parseAddresses(f.name, f.list)
		if err != nil {
			return nil, 0, err
		}
		f.set(parsed...)
		if f.name != "reply_to" {
			recipients += len(parsed)
		}
	}
	if err := checkContent(args, recipients); err != nil {
		return nil, 0, err
	}
	m.FromMailAddress(e.from)
	m.Subject(args.Subject)
	m.SetDate()
	m.SetMessageIDWithValue(row.ID.String() + "@" + domain(e.from))
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	setBody(m, args)
	return m, recipients, nil
}

func setBody(m *gomail.Msg, args Email) {
	switch {
	case args.HTML == "":
		m.SetBodyString(gomail.TypeTextPlain, args.Text)
	case args.Text == "":
		m.SetBodyString(gomail.TypeTextHTML, args.HTML)
	default:
		m.SetBodyString(gomail.TypeTextPlain, args.Text)
		m.AddAlternativeString(gomail.TypeTextHTML, args.HTML)
	}
}

func checkContent(args Email, recipients int) error {
	switch {
	case len(args.To) == 0:
		return errors.New("to: is missing")
	case recipients > recipientsMax:
		return fmt.Errorf("to, cc, bcc: %d recipients, at most %d", recipients, recipientsMax)
	case args.Subject == "":
		return errors.New("subject: is missing")
	case len(args.Subject) > subjectMax:
		return fmt.Errorf("subject: longer than %d bytes", subjectMax)
	case hasControl(args.Subject):
		return errors.New("subject: holds a line break or another control character")
	case args.Text == "" && args.HTML == "":
		return errors.New("text: is missing, and html too")
	}
	return nil
}

func parseAddresses(field string, list Addresses) ([]*mail.Address, error) {
	parsed := make([]*mail.Address, 0, len(list))
	for _, s := range list {
		a, err := parseAddress(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		parsed = append(parsed, a)
	}
	return parsed, nil
}

// parseAddress takes one address and nothing that could become a second header
// line: net/mail decodes encoded words, so the name is looked at once decoded.
func parseAddress(s string) (*mail.Address, error) {
	shown := fmt.Sprintf("%q", printable(s, 100))
	if hasControl(s) {
		return nil, fmt.Errorf("%s holds a line break or another control character", shown)
	}
	a, err := mail.ParseAddress(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s is no mail address", shown)
	case hasControl(a.Name), hasControl(a.Address):
		return nil, fmt.Errorf("%s holds a line break or another control character", shown)
	case len(a.Address) > addressMax:
		return nil, fmt.Errorf("%s is longer than %d bytes", shown, addressMax)
	case domain(a) == "":
		return nil, fmt.Errorf("%s has no domain", shown)
	}
	return a, nil
}

func domain(a *mail.Address) string { return a.Address[strings.LastIndexByte(a.Address, '@')+1:] }

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }
