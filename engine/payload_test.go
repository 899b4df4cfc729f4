package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

var defaultLimits = payloadLimits{bytes: DefaultPayloadMaxBytes, depth: 64, keys: 10_000}

// payloadSeeds are payloads with the code that check must give; "" is one that must be stored.
var payloadSeeds = map[string]string{
	`{}`: "", `{"a":1}`: "", ` { "a" : [ ] } `: "", "\t\r\n{}\n": "", `{"a":{"b":{"c":[1,2,{"d":null}]}}}`: "",
	`{"a":true,"b":false,"c":null}`: "", `{"":""}`: "", `{"a":"","a":"x"}`: "",
	`{"n":1970670598291982290}`: "", `{"n":12345678901234567890123}`: "", `{"n":-0}`: "", `{"n":-0.0}`: "", `{"n":1E+2}`: "", `{"n":1e-2}`: "",
	`{"n":0.1e1}`: "", `{"n":1e308}`: "", `{"n":1e-308}`: "", `{"n":1.7976931348623157e308}`: "", `{"n":0e0}`: "", `{"n":0E-5}`: "",
	`{"n":1e1000}`: "out-of-range", `{"n":1e131071}`: "out-of-range", `{"n":1e-16383}`: "out-of-range", `{"n":1e99999999999999999999}`: "out-of-range",
	`{"s":"\\u0000"}`: "", `{"s":"\\\\u0000"}`: "", `{"s":"\u0000"}`: "invalid", `{"s":"\\\u0000"}`: "invalid", `{"\u0000":1}`: "invalid", `{"a":{"b\u0000":1}}`: "invalid",
	`{"s":"\ud83d"}`: "invalid", `{"s":"\ude00"}`: "invalid", `{"s":"\ud83d\ude00"}`: "", `{"s":"\uD83D\uDE00"}`: "", `{"s":"\ude00\ud83d"}`: "invalid",
	`{"s":"\ud83dx\ude00"}`: "invalid", `{"s":"\ud83d\n"}`: "invalid", `{"s":"\ud83d\ud83d\ude00"}`: "invalid", `{"s":"\ud83d\\ude00"}`: "invalid",
	`{"\ud83d":1}`: "invalid", `{"s":"\u00e9\u2028\uffff\ufffe"}`: "", "{\"s\":\"\u2028\u00a0😀\"}": "", `{"s":"\"\\\/\b\f\n\r\t"}`: "",
	"": "malformed", " ": "malformed", "x": "malformed", "{": "malformed", `{"a"}`: "malformed", `{"a":1,}`: "malformed", `{a:1}`: "malformed",
	`{'a':1}`: "malformed", `{"a":01}`: "malformed", `{"a":+1}`: "malformed", `{"a":.5}`: "malformed", `{"a":5.}`: "malformed", `{"a":NaN}`: "malformed",
	`{"a":Infinity}`: "malformed", `{"a":1}{}`: "malformed", `{"a":1} x`: "malformed", `{"a":"\x"}`: "malformed", `{"a":"\u12"}`: "malformed",
	`{"a":"\uZZZZ"}`: "malformed", "{\"a\":\"\n\"}": "malformed", "{\"a\":\"\x01\"}": "malformed", "\ufeff{}": "malformed", "{\"a\":\"\xff\"}": "malformed",
	"{\"\xed\xa0\x80\":1}": "malformed", "{\"a\":\x00}": "malformed", "{}\x00": "malformed", "{}\v": "malformed", "\u00a0{}": "malformed",
	`[]`: "invalid", `null`: "invalid", `"x"`: "invalid", `1`: "invalid", `true`: "invalid",
}

// bigPayloads are those that would be tedious to write down.
func bigPayloads() map[string]string {
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":0`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	nested := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "}" }
	fill := func(n int) string { return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}` }
	return map[string]string{
		keys(10_000): "", keys(10_001): "too-many", nested(64): "", nested(65): "too-deep", nested(100_000): "too-deep",
		fill(DefaultPayloadMaxBytes - 1): "", fill(DefaultPayloadMaxBytes): "", fill(DefaultPayloadMaxBytes + 1): "too-large",
		fill(10 << 20): "too-large", `{"a":[` + strings.Repeat("1e999,", 400) + `0]}`: "too-large",
		`{"a":[` + strings.Repeat("1e99,", 2000) + `0]}`: "", `{"n":` + strings.Repeat("9", 1000) + "}": "",
		`{"n":` + strings.Repeat("9", 1001) + "}": "out-of-range", `{"a":"` + strings.Repeat(`\\u0000`, 10_000) + `"}`: "",
		strings.Repeat("[", 100_000): "too-deep", `{"a":` + strings.Repeat(`{"a":`, 100): "too-deep",
	}
}

func TestPayloadsAreRefusedByNameOrStoredEqual(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	for _, set := range []map[string]string{payloadSeeds, bigPayloads()} {
		for payload, want := range set {
			code := ""
			if faults := defaultLimits.check([]byte(payload)); len(faults) > 0 {
				code = faults[0].Code
				if !strings.HasPrefix(faults[0].Field, "payload") {
					t.Errorf("%.60q: names %q", payload, faults[0].Field)
				}
			}
			if code != want {
				t.Errorf("%.60q (%d bytes): %q, want %q", payload, len(payload), code, want)
			}
			if code == "" {
				if fault := storedEqual(t.Context(), pool, []byte(payload)); fault != "" {
					t.Errorf("%.60q: %s", payload, fault)
				}
			}
		}
	}
	faults := defaultLimits.check([]byte(`{"a":{"b":[0,"\u0000"]}}`))
	if len(faults) != 1 || faults[0].Field != "payload.a.b.1" {
		t.Errorf("faults = %+v, want the path payload.a.b.1", faults)
	}
}

// storedEqual keeps a payload as a job's and reads it back. "" is all well; a payload that Postgres takes for jsonb comes back
// as Postgres reads it, and its numbers are the same to the last digit as an independent reading of the text.
func storedEqual(ctx context.Context, pool *pgxpool.Pool, payload []byte) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var stored []byte
	var equal bool
	err := pool.QueryRow(ctx, `WITH j AS (INSERT INTO jobs (id, type, version, payload) VALUES (uuid_v7(), 't', 1, $1) RETURNING payload)
		SELECT payload::text, payload = $2::text::jsonb FROM j`, payload, string(payload)).Scan(&stored, &equal)
	switch {
	case err != nil:
		return "the database refused what check let through: " + err.Error()
	case !equal:
		return "stored otherwise"
	}
	want, got := canonical(payload), canonical(stored)
	if want != got {
		return fmt.Sprintf("read back as %.200s, want %.200s", got, want)
	}
	return ""
}

// canonical writes JSON with sorted keys, the last of equal ones, and numbers as fractions.
func canonical(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "no JSON: " + err.Error()
	}
	return fmt.Sprint(exact(v))
}

// exact makes numbers comparable however they are written: 1e2, 100 and 100.0 are one.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return "no number: " + v.String()
		}
		return "#" + r.RatString()
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	case string:
		return strconv.Quote(v)
	}
	return v
}

var (
	fuzzPool     *pgxpool.Pool
	fuzzPoolOnce sync.Once
)

// FuzzPayload: whatever check lets through is stored and comes back equal; what it refuses has a name; and what it refuses
// as malformed, Postgres would not have taken either.
func FuzzPayload(f *testing.F) {
	for payload := range payloadSeeds {
		f.Add([]byte(payload))
	}
	fuzzPoolOnce.Do(func() { fuzzPool = dbtest.New(f) })
	f.Fuzz(func(t *testing.T, payload []byte) {
		faults := defaultLimits.check(payload)
		if len(faults) == 0 {
			if fault := storedEqual(t.Context(), fuzzPool, payload); fault != "" {
				t.Errorf("%q: %s", payload, fault)
			}
			return
		}
		if faults[0].Code == "" || faults[0].Detail == "" {
			t.Errorf("%q is refused without a reason: %+v", payload, faults[0])
		}
		if faults[0].Code == "malformed" && json.Valid(payload) && !bytes.ContainsFunc(payload, func(r rune) bool { return r == '\uFFFD' }) {
			t.Errorf("%q is refused as malformed, but is JSON", payload)
		}
	})
}
