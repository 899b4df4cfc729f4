package web

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// hostileRequest is a valid request with something done to it.
type hostileRequest struct {
	n                   int
	method, route, path string
	did                 string // what was done
	body                string
	chunked             bool
	headers             []string
	want                []int // the statuses that are right; none: any but 5xx
}

func (r hostileRequest) String() string {
	return fmt.Sprintf("request %d, %s %s, %s: %.200q", r.n, r.method, r.path, r.did, r.body)
}

// bodyField is a field of a valid body: its value, and which kinds of JSON value it
// takes, of s(tring), n(umber), b(ool), a(rray) and o(bject).
type bodyField struct{ name, value, kinds string }

var (
	enqueueBody = []bodyField{
		{"type", `"email"`, "s"}, {"payload", `{"to":"a@example.com","n":1}`, "o"}, {"queue", `"mail"`, "s"}, {"priority", `3`, "sn"},
		{"run_at", `"2026-12-01T06:00:00Z"`, "s"}, {"max_attempts", `5`, "n"}, {"timeout_seconds", `1.5`, "n"}, {"tags", `["a","b"]`, "a"},
		{"backoff", `{"policy":"exponential","base_seconds":1,"max_seconds":60}`, "o"}, {"unique", `{"key":"u","states":["waiting"],"window_seconds":60}`, "o"},
		{"idempotency_key", `"k"`, "s"}, {"traceparent", `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, "s"},
		{"copied_from", `"0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10"`, "s"}, {"expires_at", `"2030-01-01T00:00:00Z"`, "s"}, {"delay_seconds", `60`, "n"},
	}
	editBody = []bodyField{
		{"priority", `5`, "sn"}, {"run_at", `"2026-12-01T06:00:00Z"`, "s"}, {"max_attempts", `7`, "n"}, {"queue", `"mail"`, "s"}, {"payload", `{"n":2}`, "o"},
		{"reason", `"wrong queue"`, "s"},
	}
	operationBody = []bodyField{
		{"action", `"replay"`, "s"}, {"queue", `"mail"`, "s"}, {"type", `"email"`, "s"}, {"q", `"queue:mail age:<1h"`, "s"}, {"ids", `["0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10"]`, "a"},
		{"fingerprint", `"fp1"`, "s"}, {"dead_reason", `"exhausted"`, "s"}, {"pace", `"rate"`, "s"}, {"per_minute", `1`, "n"}, {"expected", `1`, "n"}, {"reason", `"mended"`, "s"},
		{"dry_run", `true`, "b"},
	}
	reasonBody = []bodyField{{"reason", `"not needed"`, "s"}}
)

// routeBodies are what the routes take; bulk takes jobs of an enqueue's fields.
var routeBodies = map[string][]bodyField{
	"POST /jobs": enqueueBody, "POST /api/v1/jobs": enqueueBody, "POST /api/v1/jobs/bulk": enqueueBody, "PATCH /api/v1/jobs/:id": editBody,
	"POST /api/v1/operations": operationBody, "POST /api/v1/dlq/replay": operationBody[1:], "POST /api/v1/dlq/discard": operationBody[1:],
	"DELETE /jobs/:id": reasonBody, "DELETE /api/v1/jobs/:id": reasonBody, "POST /api/v1/jobs/:id/stop": reasonBody, "POST /api/v1/jobs/:id/run-now": reasonBody,
	"POST /api/v1/dlq/:id/replay": reasonBody, "POST /api/v1/dlq/:id/discard": reasonBody, "POST /api/v1/dlq/:id/restore": reasonBody,
	"POST /api/v1/operations/:id/pause": reasonBody, "POST /api/v1/operations/:id/continue": reasonBody, "POST /api/v1/operations/:id/stop": reasonBody,
}

// routeParameters are those of the lists. Routes without a line take none.
var routeParameters = map[string][]string{
	"GET /jobs": {"q", "status", "type", "queue", "priority", "limit", "page", "cursor"}, "GET /api/v1/jobs": {"q", "status", "type", "queue", "priority", "limit", "page", "cursor"},
	"GET /jobs/:id": {"include"}, "GET /api/v1/jobs/:id": {"include"}, "GET /api/v1/dlq": {"type", "queue", "reason", "fingerprint", "discarded", "limit", "cursor"},
	"GET /api/v1/operations": {"limit", "cursor"}, "GET /api/v1/audit": {"actor", "action", "source", "target", "since", "until", "limit", "cursor"},
}

// takesAnyQuery are the routes for programs that add parameters of their own.
var takesAnyQuery = []string{"GET /", "GET /healthz", "GET /readyz", "GET /metrics", "GET /api/v1/version"}

// Values that have broken servers before. What is not refused must be kept whole.
var (
	oddNumbers = []string{"1e131071", "-1e131071", "1e400", "-1e400", "1e-400", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		"18446744073709551615", "18446744073709551616", "-0", "0.0", "1E+2", "3.0", "-1", "1e9999999999999999999", "2147483648", "4294967296", "0.30000000000000004"}
	oddStrings = []string{`""`, `" "`, `"\\u0000"`, `"\ud83d\ude00"`, `"\u202e\u0000"`, `"\ud83d"`, `"\ude00\ud83d"`, `"e\u0301"`, `"a/b"`, `"../x"`, `"<script>"`, `"' OR 1=1 --"`, `"%s%n"`,
		`"\u0085"`, `"\ufeffx"`, `"\uffff"`, `"nan"`, `"Infinity"`, `"-infinity"`, `"epoch"`, `"9999-12-31T23:59:59.999999999Z"`, `"0001-01-01T00:00:00Z"`, `"294277-01-01T00:00:00Z"`,
		`"2026-12-01T06:00:60Z"`, `"2026-12-01T06:00:00+24:00"`, `"` + strings.Repeat("x", 5000) + `"`, `"` + strings.Repeat("é", 255) + `"`}
	oddOthers = []string{"null", "true", "[]", "{}", "[null]", `[[]]`, `{"":null}`, `{"key":null}`, `[""]`, `[1,"a",{}]`}

	oddTexts = []string{"", "-1", "0", "1", "101", "10001", "99999999999999999999", "1e9", "+1", " 1", "0x10", "null", "[]", "a,b", "pending,,", "pending,bogus", "true", "TRUE", "' OR 1=1 --",
		`"onmouseover="`, "\u202e", "state:dead queue:", `queue:"x`, "age:>99999999999999999999d", "age:<0s", "id:12", strings.Repeat("a ", 60), strings.Repeat("a", 2000), "2026-12-01T06:00:00Z",
		"attempts,attempts,logs", "AAAA", "eyJvZiI6IiJ9", strings.Repeat("A", 1999), "priority:9x -state:dead", "text:%25 type:* error:\\"}
	badTexts = []string{"%00", "a%00b", "%ff%fe", "%c3%28", "%0d%0aX:1", "%7f", strings.Repeat("a", 2001), strings.Repeat("a", 8<<10)}
	oddIDs   = []string{"0", "-1", "00000000-0000-0000-0000-00000000000", "0193b6a26f1e7c419a572d1f0c9b5e10", "%7B0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10%7D", "urn:uuid:0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10",
		"0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e1g", "%00", "a%00b", "%ff", "%c3%28", "..%2f..%2fetc", "%2e%2e", "null", "'", "%25", strings.Repeat("a", 8<<10), "0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10%20",
		"ffffffff-ffff-ffff-ffff-ffffffffffff", "%e2%80%ae", "1e9", "[]", "*"}
)

// The largest bodies are made once.
var (
	deepValue = sync.OnceValue(func() string { return strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) })
	wideValue = sync.OnceValue(func() string {
		var b strings.Builder
		b.WriteString(`{"a":0`)
		for i := range 100_000 {
			fmt.Fprintf(&b, `,"%d":0`, i)
		}
		return b.String() + "}"
	})
	largeValue = sync.OnceValue(func() string { return `"` + strings.Repeat("x", 10<<20) + `"` })
	packedBomb = sync.OnceValue(func() string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.CopyN(z, &endlessBody{}, 20<<20) // into memory nothing fails
		_ = z.Close()
		return b.String()
	})
)

// hostileMaker makes requests; the same seed and number give the same one, but for
// the ids that id hands out.
type hostileMaker struct {
	*rand.Rand
	id func(r *rand.Rand, route string) string
}

func pick[T any](m *hostileMaker, from []T) T { return from[m.IntN(len(from))] }

// request makes request n, of a route.
func (m *hostileMaker) request(n int, method, route string) hostileRequest {
	key := routeKey(method, route)
	r := hostileRequest{n: n, method: method, route: route, did: "nothing", path: strings.NewReplacer(":id", m.id(m.Rand, route), ":name", "mail").Replace(route),
		headers: []string{"Authorization", "Bearer " + apiToken, "If-Match", "*"}}
	fields := m.some(routeBodies[key])
	if fields != nil {
		r.headers = append(r.headers, "Content-Type", "application/json")
		r.body = m.whole(key, fields)
	}
	switch way := m.IntN(12); {
	case way > 9:
		// as it should be
	case fields != nil && way < 6:
		m.spoilBody(&r, key, fields)
	case way < 7 && strings.ContainsRune(route, ':'):
		r.path, r.did = strings.NewReplacer(":id", pick(m, oddIDs), ":name", pick(m, oddIDs), ":type", pick(m, oddIDs)).Replace(route), "an odd path"
		if !strings.Contains(route, ":type") { // which may be of any name that has none of its limits broken
			r.want = []int{http.StatusNotFound}
		}
	case way < 9:
		m.spoilQuery(&r, key)
	default:
		m.spoilHeaders(&r, key)
	}
	r.chunked = m.IntN(20) == 0
	if m.IntN(5) == 0 { // and the worst of both
		m.flip(&r)
	}
	return r
}

// some takes a part of the fields that go together.
func (m *hostileMaker) some(all []bodyField) []bodyField {
	if len(all) < 2 {
		return all
	}
	if all[0].name == "priority" {
		return []bodyField{pick(m, all[:5]), all[5]}
	}
	var out []bodyField
	for i, f := range all {
		// An enqueue needs its type; an operation its action and, unless it may act, a dry run.
		if i == 0 || f.name == "dry_run" && m.IntN(50) > 0 || m.IntN(3) == 0 && f.name != "delay_seconds" && f.name != "expires_at" {
			out = append(out, f)
		}
	}
	return out
}

// whole writes a body of fields.
func (m *hostileMaker) whole(key string, fields []bodyField) string {
	var b strings.Builder
	for i, f := range fields {
		if f.name == "idempotency_key" || f.name == "unique" {
			f.value = strings.Replace(strings.Replace(f.value, `"k"`, fmt.Sprintf(`"k%d"`, m.IntN(50)), 1), `"u"`, fmt.Sprintf(`"u%d"`, m.IntN(50)), 1)
		}
		fmt.Fprintf(&b, `%s%q:%s`, strings.Repeat(",", min(i, 1)), f.name, f.value)
	}
	body := "{" + b.String() + "}"
	if strings.HasSuffix(key, "/bulk") {
		return `{"jobs":[` + body + `],"atomic":true}`
	}
	return body
}

var refusals = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// spoilBody does one thing to the body.
func (m *hostileMaker) spoilBody(r *hostileRequest, key string, fields []bodyField) {
	i := m.IntN(len(fields))
	set := func(value string) {
		changed := slices.Clone(fields)
		changed[i].value = value
		r.body = m.whole(key, changed)
		if kind := kindOf(value); !strings.Contains(fields[i].kinds, kind) {
			r.want = []int{http.StatusUnprocessableEntity}
			if r.method == http.MethodPatch { // a payload is looked at once the job may be edited
				r.want = append(r.want, http.StatusConflict)
			}
		}
		r.did = fields[i].name + " is " + value[:min(len(value), 30)]
	}
	insert := func(what string) {
		at := m.IntN(len(r.body) + 1)
		r.body = r.body[:at] + what + r.body[at:]
		r.want = []int{http.StatusBadRequest}
	}
	switch m.IntN(22) {
	case 0:
		insert("\x00")
		r.did = "a NUL"
	case 1:
		insert(pick(m, []string{"\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"}))
		r.did = "no UTF-8"
	case 2:
		r.body, r.did, r.want = "\ufeff"+r.body, "a byte order mark", []int{http.StatusBadRequest}
	case 3:
		r.body, r.did, r.want = m.whole(key, append(slices.Clone(fields), fields[i])), "a field twice", []int{http.StatusUnprocessableEntity}
	case 4:
		r.body, r.did, r.want = r.body+pick(m, []string{"x", "{}", "]", "}", ",", "\x00", "null", "\ufeff"}), "something behind it", []int{http.StatusBadRequest}
	case 5:
		r.body, r.did, r.want = r.body[:1+m.IntN(len(r.body)-1)], "cut off", []int{http.StatusBadRequest}
	case 6:
		r.body, r.did = pick(m, []string{"", " ", "\n"}), "empty"
	case 7:
		r.body, r.did, r.want = pick(m, []string{"[]", "null", `"x"`, "1", "true", "[{}]"}), "no object", []int{http.StatusUnprocessableEntity}
	case 8, 9, 10:
		set(pick(m, oddNumbers))
	case 11, 12, 13:
		set(pick(m, oddStrings))
	case 14, 15:
		set(pick(m, oddOthers))
	case 16:
		changed := append(slices.Clone(fields), bodyField{name: pick(m, []string{"", "Type", "__proto__", "a.b/c~d", "\u202e"}), value: "1"})
		r.body, r.did, r.want = m.whole(key, changed), "an unknown field", []int{http.StatusUnprocessableEntity}
	case 17:
		r.body = strings.Replace(r.body, `"`, pick(m, []string{`"\ud83d`, `"\u0000`}), 1)
		r.did, r.want = "half a character in a name", []int{http.StatusUnprocessableEntity}
	case 18:
		r.did, r.want = "another kind of body", []int{http.StatusUnsupportedMediaType}
		r.headers[len(r.headers)-1] = pick(m, []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", ";;", "multipart/form-data; boundary=x", "application/jsonx"})
	case 19:
		r.did, r.want = "packed", []int{http.StatusUnsupportedMediaType}
		r.body, r.headers = packedBomb(), append(r.headers, "Content-Encoding", pick(m, []string{"gzip", "br", "gzip, gzip", "deflate"}))
	default:
		m.edges(r, set)
	}
}

// edges are the values that cost most, which come rarely, and the payload's own.
func (m *hostileMaker) edges(r *hostileRequest, set func(string)) {
	value, did := `{"a":`+pick(m, oddNumbers)+`,"b":`+pick(m, oddStrings)+`,"c":`+pick(m, oddOthers)+`}`, "an odd object"
	switch m.IntN(40) {
	case 0:
		value, did = deepValue(), "100,000 levels"
	case 1:
		value, did = wideValue(), "100,000 names"
	case 2:
		value, did = largeValue(), "10 MB"
	}
	set(value)
	if r.did = did; did != "an odd object" {
		r.want = refusals
	}
}

func kindOf(value string) string {
	switch value[0] {
	case '"':
		return "s"
	case '[':
		return "a"
	case '{':
		return "o"
	case 't', 'f':
		return "b"
	case 'n':
		return "null"
	}
	return "n"
}

// spoilQuery asks with parameters that are odd, or that the route has not.
func (m *hostileMaker) spoilQuery(r *hostileRequest, key string) {
	known := routeParameters[key]
	refused := []int{http.StatusBadRequest}
	if slices.Contains(takesAnyQuery, key) {
		refused = nil
	}
	name := "colour"
	if len(known) > 0 {
		name = pick(m, known)
	}
	switch way := m.IntN(6); {
	case way == 0:
		r.path, r.did, r.want = r.path+"?a%zz=1", "a broken query", refused
	case way == 1:
		r.path, r.did, r.want = r.path+"?"+name+"="+pick(m, badTexts), "a query with what no text has", refused
	case way == 2 || len(known) == 0:
		r.path, r.did, r.want = r.path+"?"+pick(m, []string{"colour", "Limit", "%00", "%ff", "a[]", ""})+"=1", "an unknown parameter", refused
	default:
		r.path, r.did = r.path+"?"+name+"="+url.QueryEscape(pick(m, oddTexts)), "an odd "+name
		for range m.IntN(3) {
			r.path += "&" + pick(m, known) + "=" + url.QueryEscape(pick(m, oddTexts))
		}
	}
}

func (m *hostileMaker) spoilHeaders(r *hostileRequest, key string) {
	texts := []string{"", `""`, `"`, `"a\"b"`, "k", strings.Repeat("k", 255), strings.Repeat("k", 256), "\xff", "é", "k\u0085", "*", `W/"1"`, `"1-2-3"`, "W/*", ",,,", strings.Repeat(`"x",`, 1000),
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-x", strings.Repeat("0", 8<<10)}
	name := pick(m, []string{"Idempotency-Key", "If-Match", "If-None-Match", "Traceparent", "X-Request-Id", "Accept", "Range", "X-HTTP-Method-Override", "X-Forwarded-For", "Expect", "User-Agent", "Cookie", "Authorization", ""})
	r.headers, r.did = append(r.headers, name, pick(m, texts)), "an odd "+name
	switch name {
	case "":
		r.headers, r.did = r.headers[:len(r.headers)-2], "another method"
		r.method = pick(m, []string{"PUT", "PATCH", "DELETE", "POST", "GET", "HEAD", "OPTIONS", "TRACE", "FROB", "get"})
	case "Expect": // net/http answers for us
		r.headers = r.headers[:len(r.headers)-2]
	case "Authorization":
		if r.want = []int{http.StatusUnauthorized}; routeRules[key].needs == isOpen {
			r.want = nil
		}
	}
}

// flip changes bytes of the body or the query anyhow; of what comes of that nothing
// is known but that it is no 5xx.
func (m *hostileMaker) flip(r *hostileRequest) {
	if len(r.body) == 0 || len(r.body) > 1<<16 {
		return
	}
	b := []byte(r.body)
	for range 1 + m.IntN(3) {
		at := m.IntN(len(b))
		switch m.IntN(3) {
		case 0:
			b[at] ^= 1 << m.IntN(8)
		case 1:
			b = slices.Delete(b, at, min(at+1+m.IntN(4), len(b)))
		default:
			b = slices.Insert(b, at, b[at:min(at+m.IntN(8), len(b))]...)
		}
		if len(b) == 0 {
			break
		}
	}
	r.body, r.did, r.want = string(b), r.did+", bytes changed", nil
}
