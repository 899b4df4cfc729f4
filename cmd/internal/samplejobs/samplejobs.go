// Package samplejobs holds the job types that come with the product: webhook
// sends a signed HTTP request, email sends mail, report counts what the engine
// did. They are ordinary workers on the engine's public surface, so a team may
// read them as examples of its own.
//
// All three refuse payload fields they do not know, and a wrong payload is
// permanent: no retry mends it. Each may run twice after a crash, as every job;
// the receiver can tell by webhook-id, Message-ID, or, for the mail of a report,
// need not, since it is enqueued under a key.
package samplejobs

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// Config is what the built-in job types need.
type Config struct {
	// Development allows webhooks to this machine, and mail without a server,
	// which is then written to MailDir.
	Development bool
	SMTP        SMTP
	// WebhookAllowHosts are targets allowed although their addresses are private:
	// names, *.suffix for all names below one, addresses, ranges. A name allows
	// whatever address it has.
	WebhookAllowHosts []string
	// WebhookSigningKeys are whsec_ and base64; each signs every webhook. None
	// leaves webhooks unsigned.
	WebhookSigningKeys []string
	// MailDir is made when the first mail is written. Default .data/mail.
	MailDir string
	// Source and Enqueuer are for reports: what they count, and what mails them.
	// An *inspect.Reader and an *engine.Client serve. Required.
	Source   Source
	Enqueuer Enqueuer
	// Log hears of doubtful settings at [Register]. Default none; runs log
	// through their job.
	Log *slog.Logger
}

// Register adds the job types to ws. Its error names the setting that is wrong;
// like [engine.Register] it panics if ws has a worker for one of them. Nothing
// connects anywhere before a job runs.
func Register(ws *engine.Workers, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	hooks, hooksErr := newWebhooks(cfg)
	mails, mailsErr := newEmails(cfg)
	tables, tablesErr := newReports(cfg)
	if err := errors.Join(hooksErr, mailsErr, tablesErr); err != nil {
		return fmt.Errorf("register built-in jobs: %w", err)
	}
	if len(cfg.WebhookSigningKeys) == 0 && !cfg.Development {
		cfg.Log.Warn("webhooks are sent unsigned, since WEBHOOK_SIGNING_KEYS is not set")
	}
	engine.Register(ws, hooks, engine.TypeOptions{Fingerprint: webhookFingerprint})
	engine.Register(ws, mails, engine.TypeOptions{})
	engine.Register(ws, tables, engine.TypeOptions{})
	return nil
}
