package simulate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

type payloadKind uint8

const (
	payEmail payloadKind = iota
	payDigest
	payCharge
	payInvoice
	payPayout
	payWebhook
	paySync
	payFile
	payReport
	payRows
)

// payload draws what a job was given, as JSON. A worker of this installation may run
// those of the types that it knows, so webhooks go to a port of this machine that
// refuses them and mails to a domain that nobody reads.
func payload(r *rand.Rand, k payloadKind) []byte {
	tenant := 1 + r.IntN(500)
	switch k {
	case payEmail:
		order := 1000 + r.IntN(900_000)
		subject := fmt.Sprintf([]string{"Receipt %d", "Order %d has shipped", "Your invoice %d", "Reminder for order %d"}[r.IntN(4)], order)
		return fmt.Appendf(nil, `{"to":"customer-%d@example.com","subject":"%s","text":"%s.\n\nThank you.\n"}`, tenant, subject, subject)
	case payDigest:
		return fmt.Appendf(nil, `{"list":"weekly","recipients":%d,"api_token":"tok_%012x","since":"2026-11-23"}`, 100*tenant, r.Uint64N(1<<48))
	case payCharge:
		return fmt.Appendf(nil, `{"order":%d,"amount":%d,"currency":"EUR","customer":{"id":"c_%05d","email":"customer-%d@example.com","card":"4111 1111 1111 %04d"},"lines":[{"sku":"A-%d","n":%d},{"sku":"shipping","n":1}]}`,
			1000+r.IntN(900_000), 100+r.IntN(50_000), r.IntN(100_000), tenant, r.IntN(10_000), 100+r.IntN(900), 1+r.IntN(4))
	case payInvoice:
		return fmt.Appendf(nil, `{"invoice":"INV-2026-%06d","net":"%d.%02d","vat_percent":19,"lines":%d,"due":"2026-12-14"}`, r.IntN(1_000_000), r.IntN(9000), r.IntN(100), 1+r.IntN(9))
	case payPayout:
		// More digits than a float64 holds: what counts digits finds out.
		return fmt.Appendf(nil, `{"ledger_position":%d%04d,"payee":"p_%06d","cents":%d,"iban":"DE00 0000 0000 0000 0000 %02d"}`,
			1234567890123456780+r.Int64N(10), r.IntN(10_000), r.IntN(1_000_000), r.IntN(9_000_000), r.IntN(100))
	case payWebhook:
		return fmt.Appendf(nil, `{"url":"http://127.0.0.1:9/hooks/%d","headers":{"x-event":"order.paid"},"body":{"event":"order.paid","order":%d,"tenant":"tenant-%02d"}}`,
			4000+r.IntN(60), 1000+r.IntN(900_000), tenant%12+1)
	case payFile:
		return fmt.Appendf(nil, `{"bucket":"uploads-eu","key":"tenant-%02d/%08x/%s","width":%d,"overwrite":%t}`, tenant%12+1, r.Uint32(),
			[]string{"summer.jpg", "Übersicht 2026 – Köln.pdf", "顧客一覧.csv", "holiday video (final).mov"}[r.IntN(4)], 160<<r.IntN(4), r.IntN(2) == 0)
	case payReport:
		return fmt.Appendf(nil, `{"kind":"%s","format":"%s"}`, []string{"throughput", "failures", "latencies"}[r.IntN(3)], []string{"csv", "html"}[r.IntN(2)])
	case payRows:
		return rows(r)
	case paySync:
	}
	return fmt.Appendf(nil, `{"entity":"account","id":%d,"changed":["name","address"],"source":"shop","full":false}`, 10_000+r.IntN(90_000))
}

// rows is now and then large: one in thirty has about 150 KB.
func rows(r *rand.Rand) []byte {
	n := 2 + r.IntN(6)
	if r.IntN(30) == 0 {
		n = 2500
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"file":"customers-%04d.csv","upsert":true,"rows":[`, r.IntN(10_000))
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"n":%d,"customer":"c_%05d","country":"DE","total":"%d.%02d"}`, i+1, r.IntN(100_000), r.IntN(900), r.IntN(100))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// result is what a completed run keeps, or nil.
func result(r *rand.Rand, k payloadKind) any {
	switch k {
	case payEmail:
		return fmt.Appendf(nil, `{"message_id":"<%016x@shop.example>","recipients":1}`, r.Uint64())
	case payCharge, payPayout:
		return fmt.Appendf(nil, `{"charge_id":"ch_%012x","captured":true,"balance_after":%d%05d}`, r.Uint64N(1<<48), 987654321098765432, r.IntN(100_000))
	case payWebhook:
		return fmt.Appendf(nil, `{"status":200,"duration_ms":%d,"response":"ok"}`, 20+r.IntN(400))
	case payRows:
		return fmt.Appendf(nil, `{"imported":%d,"skipped":%d}`, r.IntN(120_000), r.IntN(9))
	case payDigest, payInvoice, paySync, payFile, payReport:
	}
	return nil
}

// tags draws what a job is found by.
func tags(r *rand.Rand) []string {
	list := []string{fmt.Sprintf("tenant-%02d", 1+r.IntN(12)), []string{"eu", "us"}[r.IntN(2)]}
	if r.IntN(40) == 0 {
		list = append(list, "vip")
	}
	return list
}

// logs are the lines of a run as the engine keeps them.
func logs(run *run, lines []logLine) any {
	if len(lines) == 0 {
		return nil
	}
	type line struct {
		Time   string            `json:"time"`
		Level  string            `json:"level"`
		Msg    string            `json:"msg"`
		Fields map[string]string `json:"fields,omitempty"`
	}
	list := make([]line, len(lines))
	for i, l := range lines {
		at := run.started.Add(scale(run.finished.Sub(run.started), l.after))
		list[i] = line{at.UTC().Format("2006-01-02T15:04:05.000Z07:00"), l.level, l.msg, l.fields}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil // strings and maps of them always marshal
	}
	return b
}
