package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// payloadLimits is what a payload may be. The schema's SQL door has the same
// limits; they stand here for the better message and for what jsonb cannot say.
type payloadLimits struct{ bytes, depth, keys int }

// maxDigits bounds one number written out. jsonb stores 1e131071 as 131,072
// digits; every double fits in 1,000.
const maxDigits = 1000

// check names what jsonb would refuse or store differently: bytes that are no
// JSON object, NUL, lone surrogates, and sizes.
func (l payloadLimits) check(payload []byte) []FieldError {
	if fault := l.checkValue(payload); fault != nil {
		return []FieldError{*fault}
	}
	if bytes.TrimLeft(payload, " \t\r\n")[0] != '{' {
		return []FieldError{{"payload", "invalid", "a JSON object"}}
	}
	return nil
}

// checkValue is check for any JSON value. It walks it twice, bounded by its
// size.
func (l payloadLimits) checkValue(value []byte) *FieldError {
	fault := func(code, detail string) *FieldError { return &FieldError{"payload", code, detail} }
	if len(value) > l.bytes {
		return fault("too-large", fmt.Sprintf("at most %d bytes", l.bytes))
	}
	if !utf8.Valid(value) {
		return fault("malformed", "is not UTF-8")
	}
	w := walker{limits: l, in: value}
	// Depth first: encoding/json gives up at 10,000 levels with another error.
	if w.tooDeep() {
		return fault("too-deep", fmt.Sprintf("nested at most %d deep", l.depth))
	}
	if !json.Valid(value) {
		return fault("malformed", "is not JSON")
	}
	w.value()
	switch {
	case w.fault != nil:
		return w.fault
	case w.keys > l.keys:
		return fault("too-many", fmt.Sprintf("at most %d keys", l.keys))
	case len(value)+w.grown > l.bytes:
		return fault("too-large", fmt.Sprintf("at most %d bytes as stored, with its numbers written out", l.bytes))
	}
	return nil
}

// walker goes through JSON that is known to be valid.
type walker struct {
	limits payloadLimits
	in     []byte
	at     int
	path   []string
	keys   int
	grown  int
	fault  *FieldError
}

func (w *walker) tooDeep() bool {
	depth, inString := 0, false
	for i := 0; i < len(w.in); i++ {
		switch c := w.in[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > w.limits.depth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func (w *walker) skipSpace() {
	for w.at < len(w.in) && strings.IndexByte(" \t\r\n", w.in[w.at]) >= 0 {
		w.at++
	}
}

func (w *walker) value() {
	if w.skipSpace(); w.fault != nil {
		return
	}
	switch c := w.in[w.at]; c {
	case '{':
		w.object()
	case '[':
		w.array()
	case '"':
		w.text()
	case 't', 'n':
		w.at += 4
	case 'f':
		w.at += 5
	default:
		w.number()
	}
}

func (w *walker) object() {
	w.at++
	for w.skipSpace(); w.in[w.at] != '}' && w.fault == nil; w.skipSpace() {
		if w.in[w.at] == ',' {
			w.at++
			w.skipSpace()
		}
		start := w.at
		w.text()
		w.keys++
		if w.fault != nil {
			return
		}
		w.path = append(w.path, string(w.in[start+1:w.at-1]))
		w.skipSpace()
		w.at++ // the colon
		w.value()
		w.path = w.path[:len(w.path)-1]
	}
	w.at++
}

func (w *walker) array() {
	w.at++
	for i := 0; w.fault == nil; i++ {
		w.skipSpace()
		if w.in[w.at] == ']' {
			break
		}
		if w.in[w.at] == ',' {
			w.at++
		}
		w.path = append(w.path, strconv.Itoa(i))
		w.value()
		w.path = w.path[:len(w.path)-1]
	}
	w.at++
}

// text passes a string and finds the escapes that jsonb refuses.
func (w *walker) text() {
	for w.at++; w.in[w.at] != '"'; w.at++ {
		if w.in[w.at] != '\\' {
			continue
		}
		w.at++
		if w.in[w.at] != 'u' {
			continue
		}
		code := w.hex(w.at + 1)
		w.at += 4
		switch {
		case code == 0:
			w.refuse("invalid", `may not hold the character \u0000`)
		case code >= 0xdc00 && code < 0xe000:
			w.refuse("invalid", "has a lone surrogate; write the character itself")
		case code >= 0xd800 && code < 0xdc00:
			low := -1
			if w.at+2 < len(w.in) && w.in[w.at+1] == '\\' && w.in[w.at+2] == 'u' {
				low = w.hex(w.at + 3)
			}
			if low < 0xdc00 || low >= 0xe000 {
				w.refuse("invalid", "has a lone surrogate; write the character itself")
				continue
			}
			w.at += 6
		}
	}
	w.at++
}

func (w *walker) hex(at int) int {
	n, err := strconv.ParseUint(string(w.in[at:at+4]), 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}

func (w *walker) number() {
	start := w.at
	for w.at < len(w.in) && strings.IndexByte("+-.eE0123456789", w.in[w.at]) >= 0 {
		w.at++
	}
	literal := string(w.in[start:w.at])
	mantissa, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	size := len(mantissa)
	if exponent != "" {
		e, err := strconv.Atoi(exponent)
		if err != nil || e > maxDigits || e < -maxDigits {
			size = maxDigits + 1
		} else {
			size += max(e, -e)
		}
	}
	if size > maxDigits {
		w.refuse("out-of-range", fmt.Sprintf("a number may have %d digits when written out", maxDigits))
		return
	}
	w.grown += size - len(literal)
}

func (w *walker) refuse(code, detail string) {
	if w.fault == nil {
		w.fault = &FieldError{fieldPath("payload", w.path), code, detail}
	}
}
