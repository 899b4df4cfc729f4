package samplejobs

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// run is a row as the engine hands it to a handler.
func run(t *testing.T, attempt int) engine.Row {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return engine.Row{ID: id, Queue: "default", Attempt: attempt, MaxAttempts: 5, FencingToken: 1<<53 + 1,
		ReadyAt: time.Date(2026, 12, 1, 9, 30, 20, 0, time.UTC)}
}

// fate is what the engine makes of a handler's error, told by the types that
// engine.Permanent and engine.RetryAfter return.
func fate(err error) string {
	if err == nil {
		return "done"
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch reflect.TypeOf(e) {
		case reflect.TypeOf(engine.Permanent(errors.New(""))):
			return "permanent"
		case reflect.TypeOf(engine.RetryAfter(errors.New(""), 0)):
			return "retry after " + time.Duration(reflect.ValueOf(e).Elem().FieldByName("delay").Int()).String()
		}
	}
	return "retry"
}

func wantError(t *testing.T, err error, wantFate, wantText string) {
	t.Helper()
	if err == nil || fate(err) != wantFate || !strings.Contains(err.Error(), wantText) {
		t.Errorf("error is %v (%s), want one with %q (%s)", err, fate(err), wantText, wantFate)
	}
}

func parse[T any](t *testing.T, payload string) T {
	t.Helper()
	var args T
	if err := json.Unmarshal([]byte(payload), &args); err != nil {
		t.Fatalf("decode %s: %v", payload, err)
	}
	return args
}

func TestUnknownAndMistypedFieldsAreNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		into          any
		payload, want string
	}{
		{&Email{}, `{"to":"a@example.com","subjct":"x"}`, "subjct: unknown field, did you mean subject?"},
		{&Email{}, `{"To":"a@example.com"}`, "To: unknown field, did you mean to?"},
		{&Email{}, `{"attachments":[]}`, "attachments: unknown field, known are bcc, cc, html, reply_to, subject, text, to"},
		{&Email{}, `{"to":[1]}`, "to: must be an address or a list of addresses"},
		{&Email{}, `{"subject":7,"txt":""}`, "subject: number where a string is needed; txt: unknown field, did you mean text?"},
		{&Webhook{}, `{"url":["x"]}`, "url: array where a string is needed"},
		{&Webhook{}, `{"headers":{"a":1}}`, "headers: number where a string is needed"},
		{&Webhook{}, `{"headers":"a"}`, "headers: string where an object is needed"},
		{&Webhook{}, `{"` + strings.Repeat("u", 100000) + `":1}`, "unknown field, known are body, headers, method, url"},
		{&Webhook{}, `[]`, "cannot unmarshal array"},
	} {
		err := json.Unmarshal([]byte(tt.payload), tt.into)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("decode %.60s: %v, want %q", tt.payload, err, tt.want)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("decode %.60s: the error has %d bytes", tt.payload, len(err.Error()))
		}
	}
	if got := parse[Email](t, `{"to":"a@example.com","cc":null,"bcc":["b@example.com","c@example.com"]}`); len(got.To) != 1 || got.Cc != nil || len(got.Bcc) != 2 {
		t.Errorf("decoded %+v", got)
	}
}

func TestPrintableCutsBetweenRunes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"plain", 10, "plain"}, {"plain", 3, "pla"}, {"aé", 2, "a"}, {"é", 1, ""}, {"a\x00b", 9, "a\uFFFDb"}, {"a\xff\xfe", 9, "a\uFFFD"},
	} {
		if got := printable(tt.in, tt.limit); got != tt.want {
			t.Errorf("printable(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestRegisterNamesTheWrongSetting(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{WebhookSigningKeys: []string{"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", "secret"}}, "webhook signing key 2: must begin with whsec_"},
		{Config{WebhookSigningKeys: []string{"whsec_c2hvcnQ="}}, "webhook signing key 1: 5 bytes, must be 24 to 64"},
		{Config{WebhookSigningKeys: []string{"whsec_?"}}, "webhook signing key 1: not base64"},
		{Config{WebhookAllowHosts: []string{"https://example.com"}}, `"https://example.com" is no name`},
		{Config{WebhookAllowHosts: []string{"*"}}, `"*" is no name`},
		{Config{SMTP: SMTP{Host: "mail"}}, "SMTP_FROM"},
		{Config{SMTP: SMTP{Host: "mail", From: "jobs@example.com", TLS: "ssl"}}, `SMTP_TLS: "ssl" is none of`},
		{Config{SMTP: SMTP{Host: "mail", From: "jobs@example.com", User: "u"}}, "one is given without the other"},
	} {
		tt.cfg.Source, tt.cfg.Enqueuer = figures{}, &keyed{}
		if err := Register(engine.NewWorkers(), tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Register = %v, want %q", err, tt.want)
		}
	}
}
