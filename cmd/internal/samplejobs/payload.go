package samplejobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// decode fills into, a pointer to a struct, from a JSON object. It is stricter
// than encoding/json, which takes "Subject" for "subject" and drops what it does
// not know: a misspelt field would be a mail without its copy, found by nobody.
// Null counts as absent. All that is wrong comes back in one error.
func decode(payload []byte, into any) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(payload, &given); err != nil {
		return err
	}
	fields := fieldsByName(reflect.ValueOf(into).Elem())
	var wrong []string
	for _, name := range sortedKeys(given) {
		field, ok := fields[name]
		if !ok {
			wrong = append(wrong, unknownField(name, sortedKeys(fields)))
			continue
		}
		if string(given[name]) == "null" {
			continue
		}
		if err := json.Unmarshal(given[name], field.Addr().Interface()); err != nil {
			wrong = append(wrong, name+": "+mismatch(field.Type(), err))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func fieldsByName(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}
	return fields
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func unknownField(name string, known []string) string {
	nearest := slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
	if distance(name, nearest) <= max(2, len(nearest)/2) {
		return fmt.Sprintf("%s: unknown field, did you mean %s?", printable(name, 64), nearest)
	}
	return fmt.Sprintf("%s: unknown field, known are %s", printable(name, 64), strings.Join(known, ", "))
}

// mismatch says in the payload's words what encoding/json says in Go's.
func mismatch(want reflect.Type, err error) string {
	if want == reflect.TypeFor[time.Time]() {
		return "must be an RFC 3339 time such as 2026-12-01T06:00:00Z"
	}
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return err.Error()
	}
	need := map[reflect.Kind]string{reflect.String: "a string", reflect.Slice: "a list", reflect.Map: "an object"}[e.Type.Kind()]
	return fmt.Sprintf("%s where %s is needed", e.Value, need)
}

// distance is Levenshtein's, cut off where names are too long to be near.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// printable is at most limit bytes of s as text that Postgres, JSON and a page
// can hold: valid UTF-8 without NUL, which jsonb refuses.
func printable(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
