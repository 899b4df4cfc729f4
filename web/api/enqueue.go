package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// enqueueFields are the fields of an enqueue, in the order of the documentation.
var enqueueFields = []string{"type", "payload", "queue", "priority", "run_at", "scheduled_at", "delay_seconds", "max_attempts",
	"timeout_seconds", "expires_at", "tags", "backoff", "idempotency_key", "unique", "callback_url", "copied_from",
	"traceparent"}

// enqueueRequest is an enqueue as far as HTTP knows it.
type enqueueRequest struct {
	args    engine.RawArgs
	options engine.EnqueueOptions
	bad     []Flaw
	given   map[string]bool
}

func (q *enqueueRequest) refuse(pointer, code, detail string) {
	q.bad = append(q.bad, flaw(pointer, code, detail))
}

// readEnqueue decodes a body. What the engine checks is not checked here, except
// where its zero value means "not given": a caller who gives it must be obeyed or
// refused.
func readEnqueue(body []byte) (*enqueueRequest, error) {
	members, err := object(body)
	if err != nil {
		return nil, err
	}
	q := &enqueueRequest{given: map[string]bool{}}
	for _, m := range members {
		q.given[m.name] = true
		q.field(m)
	}
	if !q.given["type"] {
		q.refuse("/type", "required", "the job type")
	}
	switch {
	case q.given["run_at"] && q.given["scheduled_at"]:
		q.refuse("/scheduled_at", "conflict", "the same as run_at; give one of them")
	case q.given["delay_seconds"] && (q.given["run_at"] || q.given["scheduled_at"]):
		q.refuse("/delay_seconds", "conflict", "give run_at or delay_seconds, not both")
	}
	return q, nil
}

func (q *enqueueRequest) field(m member) {
	if m.name != "payload" {
		if fault := brokenText(m.value); fault != "" {
			q.refuse(m.at, "invalid", fault)
			return
		}
	}
	o := &q.options
	switch m.name {
	case "type":
		q.args.Type = q.text(m)
	case "payload":
		q.args.Payload = m.value
	case "queue":
		o.Queue = q.text(m)
	case "priority":
		q.priority(m)
	case "run_at", "scheduled_at":
		o.ScheduledAt = q.instant(m)
	case "delay_seconds":
		o.Delay = q.duration(m, 0)
	case "max_attempts":
		o.MaxAttempts = q.attempts(m)
	case "timeout_seconds":
		o.Timeout = q.duration(m, time.Millisecond)
	case "expires_at":
		o.ExpiresAt = q.instant(m)
	case "tags":
		o.Tags = q.texts(m)
	case "idempotency_key":
		o.IdempotencyKey = q.text(m)
	case "unique":
		q.unique(m)
	case "backoff":
		q.backoff(m)
	case "callback_url":
		o.CallbackURL = q.text(m)
	case "copied_from":
		o.CopiedFrom = q.id(m)
	case "traceparent":
		o.Traceparent = q.text(m)
	default:
		q.refuse(m.at, "unknown-field", unknown(m.name, enqueueFields))
	}
}

// text reads a string that is not empty.
func (q *enqueueRequest) text(m member) string {
	var s string
	if m.value[0] != '"' || json.Unmarshal(m.value, &s) != nil {
		q.refuse(m.at, "invalid", "a string")
		return ""
	}
	if s == "" {
		q.refuse(m.at, "required", "not empty")
	}
	return s
}

func (q *enqueueRequest) texts(m member) []string {
	var list []json.RawMessage
	if m.value[0] != '[' || json.Unmarshal(m.value, &list) != nil {
		q.refuse(m.at, "invalid", "an array of strings")
		return nil
	}
	texts := make([]string, 0, len(list))
	for i, raw := range list {
		if len(q.bad) > 100 {
			return nil
		}
		texts = append(texts, q.text(member{m.name, at(m.name, strconv.Itoa(i)), raw}))
	}
	return texts
}

const priorityRule = "0 to 5, or low, default, high, critical; the higher runs first"

func (q *enqueueRequest) priority(m member) {
	s := string(m.value)
	if s[0] == '"' {
		if json.Unmarshal(m.value, &s) != nil || s == "" || s[0] < 'a' || s[0] > 'z' {
			q.refuse(m.at, "invalid", priorityRule)
			return
		}
	}
	p, err := engine.ParsePriority(s)
	if err != nil || m.value[0] != '"' && (s[0] < '0' || s[0] > '9') {
		code := "invalid"
		if wholeNumber.MatchString(s) {
			code = "out-of-range"
		}
		q.refuse(m.at, code, priorityRule)
		return
	}
	q.options.Priority = p.Ptr()
}

var wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)

func (q *enqueueRequest) attempts(m member) int {
	s := string(m.value)
	if !wholeNumber.MatchString(s) {
		q.refuse(m.at, "invalid", "a whole number from 1 to 100")
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 100 {
		q.refuse(m.at, "out-of-range", "1 to 100")
		return 0
	}
	return n
}

// maxSeconds is above every limit of the engine and far below what a Duration holds.
const maxSeconds = 1e9

// duration reads seconds. The engine has the upper limits; here only what no
// Duration holds is refused.
func (q *enqueueRequest) duration(m member, least time.Duration) time.Duration {
	if m.value[0] != '-' && (m.value[0] < '0' || m.value[0] > '9') {
		q.refuse(m.at, "invalid", "a number of seconds")
		return 0
	}
	s, err := strconv.ParseFloat(string(m.value), 64)
	switch {
	case s < least.Seconds():
		detail := "not negative"
		if least > 0 {
			detail = "0.001 to 604800 (7 days)"
		}
		q.refuse(m.at, "out-of-range", detail)
		return 0
	case err != nil || s > maxSeconds:
		detail := "at most 10 years ahead"
		code := "too-far"
		if least > 0 {
			code, detail = "out-of-range", "0.001 to 604800 (7 days)"
		}
		q.refuse(m.at, code, detail)
		return 0
	}
	return time.Duration(math.Round(s*1e6)) * time.Microsecond
}

// instant reads RFC 3339 with its zone.
func (q *enqueueRequest) instant(m member) time.Time {
	var s string
	if m.value[0] != '"' || json.Unmarshal(m.value, &s) != nil {
		q.refuse(m.at, "invalid", "a time as RFC 3339, such as 2026-12-01T06:00:00Z")
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	switch {
	case err != nil || strings.Contains(s, ","):
		q.refuse(m.at, "invalid", "a time as RFC 3339 with its zone, such as 2026-12-01T06:00:00Z")
		return time.Time{}
	case t.Year() < 1970:
		q.refuse(m.at, "out-of-range", "not before 1970")
		return time.Time{}
	}
	return t.UTC()
}

// asGiven is an error of the engine's, which has one name for what callers may call
// run_at or scheduled_at, under the name they gave. prefix is the job's place.
func (q *enqueueRequest) asGiven(prefix string, err error) error {
	var invalid *engine.ValidationError
	if !q.given["scheduled_at"] || !errors.As(err, &invalid) {
		return err
	}
	fields := slices.Clone(invalid.Fields)
	for i, f := range fields {
		if f.Field == prefix+"run_at" {
			fields[i].Field = prefix + "scheduled_at"
		}
	}
	return &engine.ValidationError{Fields: fields}
}

// idempotencyKey takes the header's key and holds it against the body's.
func (q *enqueueRequest) idempotencyKey(c echo.Context) error {
	key, err := idempotencyHeader(c)
	switch {
	case err != nil:
		return err
	case key == "":
		return nil
	case q.given["idempotency_key"] && q.options.IdempotencyKey != key:
		return refuseKey("conflict", "differs from idempotency_key in the body")
	}
	q.options.IdempotencyKey = key
	return nil
}

func refuseKey(code, detail string) error {
	return &RequestError{Code: "validation-failed", Detail: "The header Idempotency-Key needs attention.",
		Flaws: []Flaw{{Header: "Idempotency-Key", Code: code, Detail: detail}}}
}

// idempotencyHeader reads the key, quoted or bare; empty if there is none.
func idempotencyHeader(c echo.Context) (string, error) {
	values := c.Request().Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := strings.Trim(values[0], " \t")
	if len(values) > 1 {
		return "", refuseKey("duplicate", "given twice")
	}
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = unquote.Replace(key[1 : len(key)-1])
	}
	switch {
	case key == "":
		return "", refuseKey("required", "1 to 255 characters")
	case strings.ToValidUTF8(key, "") != key:
		return "", refuseKey("invalid", "is not UTF-8")
	}
	return key, nil
}

// actKey is the key of an operator's act. A DELETE may be repeated without.
func actKey(c echo.Context) (string, error) {
	if c.Request().Method != http.MethodPost {
		return "", nil
	}
	key, err := idempotencyHeader(c)
	if err == nil && utf8.RuneCountInString(key) > 255 {
		err = refuseKey("too-long", "1 to 255 characters")
	}
	return key, err
}

// repeated answers the error of an act that was done before under its key, nil for
// any other, and marks the answer.
func repeated(c echo.Context, err error) *engine.RepeatedError {
	var first *engine.RepeatedError
	if errors.As(err, &first) {
		c.Response().Header().Set("Idempotency-Replayed", "true")
	}
	return first
}

// unquote undoes the escapes of a structured-field string (RFC 8941).
var unquote = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// traceContext takes the caller's trace from the header, unless the body names one.
// A header that is not one is passed over, as Trace Context asks.
func (q *enqueueRequest) traceContext(c echo.Context) {
	header := c.Request().Header.Get("Traceparent")
	if !q.given["traceparent"] && traceparent.MatchString(header) {
		q.options.Traceparent = header
	}
}

var traceparent = regexp.MustCompile(`^[0-9a-e][0-9a-f]-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$|^f[0-9a-e]-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// reason reads the optional body of an act: {"reason": "..."}.
func (a *API) reason(c echo.Context) (string, error) {
	if c.Request().ContentLength == 0 {
		return "", nil
	}
	body, err := a.body(c)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return "", err
	}
	members, err := object(body)
	if err != nil {
		return "", err
	}
	q := &enqueueRequest{}
	var reason string
	for _, m := range members {
		if m.name != "reason" {
			q.refuse(m.at, "unknown-field", unknown(m.name, []string{"reason"}))
			continue
		}
		reason = q.reason(m)
	}
	if len(q.bad) > 0 {
		return "", flawed(q.bad...)
	}
	return reason, nil
}

// reason reads why somebody acts.
func (q *enqueueRequest) reason(m member) string {
	if fault := brokenText(m.value); fault != "" {
		q.refuse(m.at, "invalid", fault)
		return ""
	}
	reason := q.text(m)
	if len(reason) > 1000 {
		q.refuse(m.at, "too-long", "at most 1000 bytes")
	}
	return reason
}

// inOrder sorts complaints as the documentation lists the fields.
func inOrder(bad []Flaw) []Flaw {
	rank := func(f Flaw) int {
		top, _, _ := strings.Cut(strings.TrimPrefix(*f.Pointer, "/"), "/")
		if i := slices.Index(enqueueFields, top); i >= 0 {
			return i
		}
		return len(enqueueFields)
	}
	slices.SortStableFunc(bad, func(x, y Flaw) int { return rank(x) - rank(y) })
	return bad
}
