package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

type causeID uint8

const (
	noCause causeID = iota
	gatewayTimeout
	endpointGone
	mailboxUnavailable
	crashed
	invalidPayload
	importRejected
	syncDeadline
	connectionReset
	mailThrottled
	nilThumbnail
	transcodeTimeout
)

// cause is a way to fail.
type cause struct {
	class   string
	message func(r *rand.Rand) string
	// cleaned is the message as the engine's fingerprints see it.
	cleaned string
	outcome engine.Outcome
	reason  engine.Reason // of a job that ends of it
	took    time.Duration // 0: as long as a good run
	frames  []frame       // the handler's own, the innermost first
	panics  bool
	logs    []logLine // between the first and the last
}

// frame is a function and where it stands.
type frame struct{ fn, at string }

type logLine struct {
	after  float64 // share of the run that had passed
	level  string
	msg    string
	fields map[string]string
}

func fixed(s string) func(*rand.Rand) string { return func(*rand.Rand) string { return s } }

const gatewayURL = "https://pay.example.net/v2/charges"

var causes = [...]cause{
	gatewayTimeout: {
		class: "GatewayTimeout", message: fixed("charge: gateway timeout after 10 s (POST " + gatewayURL + "): context deadline exceeded"),
		cleaned: "charge: gateway timeout after <n> s (POST https://pay.example.net/v<n>/charges): context deadline exceeded",
		outcome: engine.OutcomeFailed, reason: engine.ReasonExhausted, took: 10 * time.Second,
		frames: []frame{
			{"example.com/shop/billing.(*Gateway).Charge", "/srv/shop/billing/gateway.go:118"},
			{"example.com/shop/billing.ChargeWorker.Work", "/srv/shop/billing/charge.go:64"},
		},
		logs: []logLine{
			{0.001, "INFO", "charging", map[string]string{"gateway": "pay.example.net", "timeout": "10s"}},
			{0.2, "WARN", "slow gateway, no response headers after 2 s", nil},
			{0.999, "ERROR", "POST " + gatewayURL + ": context deadline exceeded", map[string]string{"sent_bytes": "412"}},
		},
	},
	endpointGone: {
		class: "EndpointGone", message: func(r *rand.Rand) string {
			return fmt.Sprintf("webhook: endpoint answered 410 Gone (POST http://127.0.0.1:9/hooks/%d)", 4000+r.IntN(3))
		},
		cleaned: "webhook: endpoint answered <n> Gone (POST http://<address>/hooks/<n>)",
		outcome: engine.OutcomeFailed, reason: engine.ReasonPermanent, took: 90 * time.Millisecond,
		logs: []logLine{{0.9, "WARN", "the receiver says that this address is gone for good", map[string]string{"status": "410"}}},
	},
	mailboxUnavailable: {
		class: "MailboxUnavailable", message: func(r *rand.Rand) string {
			return fmt.Sprintf("smtp: 550 5.1.1 <customer-%d@example.com>: mailbox unavailable", 1+r.IntN(500))
		},
		cleaned: "smtp: <n> <n>.<n> <customer<n>@example.com>: mailbox unavailable",
		outcome: engine.OutcomeFailed, reason: engine.ReasonPermanent, took: 240 * time.Millisecond,
		logs: []logLine{{0.5, "INFO", "RCPT TO refused", map[string]string{"server": "mx.example.com", "code": "550"}}},
	},
	crashed: {
		class: "crash", message: fixed("the worker's process ended while the job ran: signal: killed"),
		cleaned: "the worker's process ended while the job ran: signal: killed", outcome: engine.OutcomeCrashed, reason: engine.ReasonPoison, took: 3 * time.Second,
	},
	invalidPayload: {
		class: "InvalidPayload", message: fixed(`invoice: field "currency" is missing`), cleaned: "invoice: field <text> is missing",
		outcome: engine.OutcomeFailed, reason: engine.ReasonPermanent, took: 4 * time.Millisecond,
	},
	importRejected: {
		class: "ImportRejected", message: importMessage, cleaned: "import: lines rejected",
		outcome: engine.OutcomeFailed, reason: engine.ReasonPermanent, took: 7 * time.Second,
		logs: []logLine{{0.4, "INFO", "rows read", map[string]string{"rows": "120000"}}, {0.8, "WARN", "rows rejected", map[string]string{"rows": "9", "limit": "0"}}},
	},
	syncDeadline: {
		class: "DeadlineExceeded", message: func(r *rand.Rand) string {
			return fmt.Sprintf("crm: context deadline exceeded (GET https://crm.example.net/accounts/%d)", 10_000+r.IntN(90_000))
		},
		cleaned: "crm: context deadline exceeded (GET https://crm.example.net/accounts/<n>)",
		outcome: engine.OutcomeFailed, reason: engine.ReasonExhausted, took: 5 * time.Second,
		frames: []frame{{"example.com/shop/crm.(*Client).get", "/srv/shop/crm/client.go:77"}, {"example.com/shop/crm.SyncWorker.Work", "/srv/shop/crm/sync.go:31"}},
	},
	connectionReset: {
		class: "net.OpError", message: func(r *rand.Rand) string {
			return fmt.Sprintf("webhook: read tcp 10.4.1.41:%d->203.0.113.9:443: connection reset by peer", 30_000+r.IntN(20_000))
		},
		cleaned: "webhook: read tcp <address>-><address>: connection reset by peer",
		outcome: engine.OutcomeFailed, reason: engine.ReasonExhausted,
	},
	mailThrottled: {
		class: "textproto.Error", message: fixed("smtp: 451 4.7.1 try again later, too many mails from this sender"),
		cleaned: "smtp: <n> <n>.<n> try again later, too many mails from this sender",
		outcome: engine.OutcomeFailed, reason: engine.ReasonExhausted,
	},
	nilThumbnail: {
		class: "panic", message: fixed("panic: runtime error: invalid memory address or nil pointer dereference"),
		cleaned: "panic: runtime error: invalid memory address or nil pointer dereference",
		outcome: engine.OutcomeFailed, reason: engine.ReasonExhausted, panics: true,
		frames: []frame{
			{"example.com/shop/media.(*Image).Bounds", "/srv/shop/media/image.go:203"}, {"example.com/shop/media.scale", "/srv/shop/media/scale.go:58"},
			{"example.com/shop/media.ThumbnailWorker.Work", "/srv/shop/media/thumbnail.go:40"},
		},
	},
	transcodeTimeout: {
		class: "timeout", message: fixed("the handler went on after its timeout of 1m0s: timeout"), cleaned: "the handler went on after its timeout of <n>m<n>s: timeout",
		outcome: engine.OutcomeTimedOut, reason: engine.ReasonExhausted, took: time.Minute,
		logs: []logLine{{0.3, "INFO", "transcoded", map[string]string{"percent": "31"}}, {0.98, "WARN", "still at it", map[string]string{"percent": "84"}}},
	},
}

// passing are the causes that a second attempt got over, by type.
var passing = map[string]causeID{
	"webhook": connectionReset, "crm.sync": syncDeadline, "email": mailThrottled, "thumbnail": nilThumbnail, "video.transcode": transcodeTimeout,
}

// importMessage has ten lines.
func importMessage(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString("import: 9 lines of customers.csv were rejected, nothing was imported")
	for i := range 9 {
		fmt.Fprintf(&b, "\nline %d: column %d: %q is no ISO 3166 country code; the row was %q", 1000*i+r.IntN(1000), 7, "XK?", "c_4711;2026-11-30;…;12,90;EUR")
	}
	return b.String()
}

// fingerprint groups failures as the engine does: its formula, over a message that
// stands here cleaned already.
func (c *cause) fingerprint(jobType string) string {
	top := ""
	if len(c.frames) > 0 {
		top = c.frames[0].fn
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{jobType, c.class, c.cleaned, top}, "\x00")))
	return "v1:" + hex.EncodeToString(sum[:8])
}

var below = []frame{
	{"github.com/reliable-job-engine/reliable-job-engine/engine.(*typedWorker[...]).work", "/go/pkg/mod/github.com/reliable-job-engine/reliable-job-engine/engine/register.go:141"},
	{"github.com/reliable-job-engine/reliable-job-engine/engine.(*Engine).call", "/go/pkg/mod/github.com/reliable-job-engine/reliable-job-engine/engine/execute.go:118"},
	{"github.com/reliable-job-engine/reliable-job-engine/engine.(*Engine).execute", "/go/pkg/mod/github.com/reliable-job-engine/reliable-job-engine/engine/execute.go:62"},
	{"runtime.goexit", "/usr/local/go/src/runtime/asm_amd64.s:1700"},
}

// stack is written as the runtime writes one.
func (c *cause) stack(r *rand.Rand) any {
	if len(c.frames) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "goroutine %d [running]:\n", 100+r.IntN(9000))
	write := func(f frame) {
		fmt.Fprintf(&b, "%s(0xc000%06x)\n\t%s +0x%x\n", f.fn, r.IntN(1<<24), f.at, 16+r.IntN(900))
	}
	write(frame{"runtime/debug.Stack", "/usr/local/go/src/runtime/debug/stack.go:26"})
	if c.panics {
		fmt.Fprintf(&b, "panic({0x%x, 0x%x})\n\t/usr/local/go/src/runtime/panic.go:792 +0x132\n", r.IntN(1<<24), r.IntN(1<<24))
	}
	for _, f := range c.frames {
		write(f)
	}
	for _, f := range below {
		write(f)
	}
	return b.String()
}
