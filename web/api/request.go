package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// RequestError is a request that was not understood or not accepted. Code is one
// of the problem codes.
type RequestError struct {
	Code, Detail string
	Flaws        []Flaw
}

func (e *RequestError) Error() string { return e.Code + ": " + e.Detail }

// Flaw is one thing wrong with a request: Pointer says where in the body (RFC
// 6901), Parameter which one of the query, Header which header.
type Flaw struct {
	Pointer   *string `json:"pointer,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Header    string  `json:"header,omitempty"`
	Code      string  `json:"code"`
	Detail    string  `json:"detail"`
	// Mark says where in a text, in its bytes.
	Mark *mark `json:"mark,omitempty"`
}

type mark struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// FieldsError maps the engine's fields to pointers: payload.a.b is /payload/a/b.
func FieldsError(fields []engine.FieldError) *RequestError {
	flaws := make([]Flaw, len(fields))
	for i, f := range fields {
		flaws[i] = flaw(strings.ToValidUTF8(at(f.Path()...), "\ufffd"), f.Code, f.Detail)
	}
	return flawed(flaws...)
}

func flawed(flaws ...Flaw) *RequestError {
	detail := "1 field needs attention."
	if len(flaws) != 1 {
		detail = fmt.Sprintf("%d fields need attention.", len(flaws))
	}
	code := "validation-failed"
	if !slices.ContainsFunc(flaws, func(f Flaw) bool { return f.Code != "schema" }) {
		code = "schema-violation"
	}
	return &RequestError{Code: code, Detail: detail, Flaws: flaws}
}

func flaw(pointer, code, detail string) Flaw {
	return Flaw{Pointer: &pointer, Code: code, Detail: detail}
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// at makes a pointer of steps; none is the whole body.
func at(steps ...string) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("/" + pointerEscape.Replace(cut(s)))
	}
	return b.String()
}

// body reads a JSON body of at most a.bodyMax bytes.
func (a *API) body(c echo.Context) ([]byte, error) {
	return readBody(c, a.bodyMax, fmt.Sprintf("A body may have %d bytes, its payload %d.", a.bodyMax, a.PayloadMaxBytes))
}

// readBody reads a JSON body. What says that it is larger than most bytes, packed,
// or not JSON is refused before it is read.
func readBody(c echo.Context, most int64, rule string) ([]byte, error) {
	r := c.Request()
	kind, params, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	if err != nil || kind != echo.MIMEApplicationJSON || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return nil, &RequestError{Code: "unsupported-media-type", Detail: "Send Content-Type: application/json, in UTF-8."}
	}
	if coding := r.Header.Get(echo.HeaderContentEncoding); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &RequestError{Code: "unsupported-media-type", Detail: "Send the body without Content-Encoding."}
	}
	tooLarge := &RequestError{Code: "payload-too-large", Detail: rule}
	if r.ContentLength > most {
		// The rest is not worth reading, so that the connection cannot go on.
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), r.Body, most))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge
	}
	if err != nil {
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, auth.ReadError(err, "malformed-json")
	}
	return body, nil
}

// member is one field of the top object, its value as sent.
type member struct {
	name  string
	at    string // its pointer
	value json.RawMessage
}

// object splits a body into its fields. Only the top level is looked at: what is
// inside a payload is the engine's to judge.
func object(body []byte) ([]member, error) { return objectWithin(body, maxDepth) }

// objectWithin is object for a body that may be nested so deep.
func objectWithin(body []byte, levels int) ([]member, error) {
	if !utf8.Valid(body) {
		return nil, &RequestError{Code: "malformed-json", Detail: "The body is not UTF-8."}
	}
	if field, deep := tooDeep(body, levels); deep {
		return nil, flawed(flaw(field, "too-deep", "nested at most 64 deep"))
	}
	if err := syntax(body); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	start, err := d.Token()
	if err != nil || start != json.Delim('{') {
		return nil, flawed(flaw("", "invalid", "a JSON object"))
	}
	var members []member
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, &RequestError{Code: "malformed-json", Detail: "The body is not JSON."}
		}
		m := member{name: name.(string), at: at(name.(string))}
		if err := d.Decode(&m.value); err != nil {
			return nil, &RequestError{Code: "malformed-json", Detail: "The body is not JSON."}
		}
		if seen[m.name] {
			return nil, flawed(flaw(m.at, "duplicate", "given twice"))
		}
		seen[m.name] = true
		if members = append(members, m); len(members) > 100 {
			return nil, flawed(flaw("", "too-many", "at most 100 fields"))
		}
	}
	return members, nil
}

func cut(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

func syntax(body []byte) error {
	if json.Valid(body) {
		return nil
	}
	var at *json.SyntaxError
	var v json.RawMessage
	if err := json.Unmarshal(body, &v); errors.As(err, &at) {
		return &RequestError{Code: "malformed-json", Detail: fmt.Sprintf("At byte %d: %s.", at.Offset, at)}
	}
	return &RequestError{Code: "malformed-json", Detail: "The body is not JSON."}
}

// maxDepth is the engine's 64 levels and the object around the payload.
const maxDepth = 65

// tooDeep looks for the depth before anything recurses, and names the top field it
// is in.
func tooDeep(body []byte, levels int) (pointer string, deep bool) {
	depth, inString, start := 0, false, 0
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			if inString = !inString; inString {
				start = i
			} else if depth == 1 && nextIsColon(body[i+1:]) {
				pointer = at(string(body[start+1 : i]))
			}
		case inString:
		case b == '{' || b == '[':
			if depth++; depth > levels {
				return pointer, true
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return "", false
}

func nextIsColon(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// brokenText names what Postgres cannot store in a JSON string: NUL, or half of a
// surrogate pair, which Go would replace silently.
func brokenText(raw []byte) string {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if i >= len(raw) || raw[i] != 'u' {
			continue
		}
		code := hex4(raw, i+1)
		i += 4
		switch {
		case code == 0:
			return `may not hold the character \u0000`
		case code >= 0xdc00 && code < 0xe000:
			return "has a lone surrogate; write the character itself"
		case code >= 0xd800 && code < 0xdc00:
			if i+2 >= len(raw) || raw[i+1] != '\\' || raw[i+2] != 'u' {
				return "has a lone surrogate; write the character itself"
			}
			if low := hex4(raw, i+3); low < 0xdc00 || low >= 0xe000 {
				return "has a lone surrogate; write the character itself"
			}
			i += 6
		}
	}
	return ""
}

func hex4(raw []byte, at int) int64 {
	if at+4 > len(raw) {
		return -1
	}
	n, err := strconv.ParseInt(string(raw[at:at+4]), 16, 32)
	if err != nil {
		return -1
	}
	return n
}

// jobID reads the id of a path. Only the usual form is one; others name no job.
func jobID(c echo.Context) (engine.ID, error) {
	s := c.Param("id")
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return engine.ID{}, engine.ErrJobNotFound
	}
	return id, nil
}
