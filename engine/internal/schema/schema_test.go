package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// check is what a schema finds, as "place: text" lines.
func check(t *testing.T, text, payload string) string {
	t.Helper()
	s, err := Compile([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var lines []string
	for _, f := range s.Check([]byte(payload)) {
		lines = append(lines, pointer(f.Path)+": "+f.Text)
	}
	return strings.Join(lines, "\n")
}

func TestFindingsNamePlaceAndRuleAndNeverTheValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, payload, want string }{
		{`{}`, `{"a":1}`, ""},
		{`{"type":"object"}`, `{}`, ""},
		{`{"required":["to","from"]}`, `{"to":1}`, "/from: is required"},
		{`{"properties":{"a":{"properties":{"b/c":{"type":"integer"}}}}}`, `{"a":{"b/c":"secret"}}`, "/a/b~1c: is of type string, must be integer"},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":1.0}`, ""},
		{`{"properties":{"n":{"minimum":9007199254740993}}}`, `{"n":9007199254740992}`, "/n: must be at least 9007199254740993"},
		{`{"properties":{"n":{"multipleOf":0.01}}}`, `{"n":19.99}`, ""},
		{`{"properties":{"n":{"multipleOf":0.01}}}`, `{"n":19.999}`, "/n: must be a multiple of 0.01"},
		{`{"properties":{"n":{"exclusiveMaximum":5,"exclusiveMinimum":5}}}`, `{"n":5}`, "/n: must be less than 5\n/n: must be more than 5"},
		{`{"properties":{"to":{"format":"email"}}}`, `{"to":"secret"}`, "/to: is no valid email"},
		{`{"properties":{"to":{"pattern":"^a+$"}}}`, `{"to":"secret"}`, "/to: does not match the pattern ^a+$"},
		{`{"properties":{"to":{"enum":["x","y"]}}}`, `{"to":"secret"}`, "/to: value must be one of 'x', 'y'"},
		{`{"properties":{"to":{"const":7}}}`, `{"to":"secret"}`, "/to: value must be 7"},
		{`{"properties":{"to":{"minLength":9}}}`, `{"to":"secret"}`, "/to: minLength: got 6, want 9"},
		{`{"properties":{"to":{}},"additionalProperties":false}`, `{"to":1,"cc":2,"bcc":3}`, "/bcc: is none of the properties allowed here\n/cc: is none of the properties allowed here"},
		{`{"properties":{"l":{"items":{"type":"string"},"uniqueItems":true}}}`, `{"l":["a",1,"a"]}`, "/l: has the same item at 0 and 2\n/l/1: is of type number, must be string"},
		{`{"properties":{"l":{"contains":{"type":"string"}}}}`, `{"l":[1]}`, "/l: has too few items of the kind asked for (contains)"},
		{`{"properties":{"v":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, `{"v":1}`, "/v: fits none of the alternatives (anyOf)"},
		{`{"properties":{"v":{"oneOf":[{"minimum":0},{"minimum":1}]}}}`, `{"v":1}`, "/v: fits more than one of the alternatives (oneOf)"},
		{`{"properties":{"v":{"oneOf":[{"type":"string"},{"type":"null"}]}}}`, `{"v":1}`, "/v: fits none of the alternatives (oneOf)"},
		{`{"properties":{"v":{"not":{"type":"string"}}}}`, `{"v":"secret"}`, "/v: is what the schema excludes (not)"},
		{`{"properties":{"v":false}}`, `{"v":"secret"}`, "/v: is not allowed here"},
		{`{"propertyNames":{"pattern":"^[a-z]+$"}}`, `{"A":1}`, "/A: is no name allowed here"},
		{`{"dependentRequired":{"card":["cvc"]}}`, `{"card":1}`, `/cvc: is required where "card" is given`},
		{`{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"}}}`, `{"a":"secret"}`, "/a: is of type string, must be integer"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, "/b: is required"},
		{`{"properties":{"a":{}},"unevaluatedProperties":false}`, `{"b":1}`, "/b: is not allowed here"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"]}}`, `{"a":1}`, `/b: is required where "a" is given`},
	} {
		got := check(t, c.schema, c.payload)
		if got != c.want {
			t.Errorf("%s on %s:\n%s\nwant:\n%s", c.schema, c.payload, got, c.want)
		}
		if strings.Contains(got, "secret") {
			t.Errorf("%s tells what stands in the payload: %s", c.schema, got)
		}
	}
}

func TestFindingsAreFewAndShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	got := check(t, `{"items":{"type":"string"},"properties":{"l":{"items":{"pattern":"^`+long+`$"}}}}`, `{"l":[`+strings.TrimSuffix(strings.Repeat(`"a",`, 500), ",")+`]}`)
	if lines := strings.Split(got, "\n"); len(lines) != maxFindings || len(lines[0]) > 300 {
		t.Errorf("%d findings, the first of %d bytes", len(lines), len(lines[0]))
	}
}

func TestSchemasThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                        "a JSON object",
		`true`:                      "a JSON object",
		`{"type":"strin"}`:          "/type: ",
		`{"properties":{"a":7}}`:    "/properties/a: ",
		`{"required":"to"}`:         "/required: is of type string, must be array",
		`{"minimum":"1"}`:           "/minimum: is of type string, must be number",
		`{"pattern":"(?=a)"}`:       "regex",
		`{"pattern":"(a{999}){9}"}`: "regex",
		`{"$ref":"#/$defs/none"}`:   "none",
		`{"$ref":"http://127.0.0.1:1/schema.json"}`:     "another document",
		`{"$ref":"file:///etc/passwd"}`:                 "another document",
		`{"$ref":"other.json"}`:                         "another document",
		`{"$schema":"http://127.0.0.1:1/meta"}`:         "another document",
		`{"properties":{"a":{"$dynamicRef":"#x"}}}`:     "$dynamicRef is not supported: use $ref",
		`{"items":[{"allOf":[{"$recursiveRef":"#"}]}]}`: "$recursiveRef is not supported: use $ref",
	} {
		s, err := Compile([]byte(text))
		if err == nil {
			t.Errorf("%s: compiled to %v", text, s)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, want it to say %q", text, err, want)
		}
	}
}

// doubling is a schema of n lines that asks one question 2^n times.
func doubling(n int, keyword string) string {
	var defs []string
	for i := range n {
		next := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		defs = append(defs, fmt.Sprintf(`"d%d":{%q:[%s,%s]}`, i, keyword, next, next))
	}
	return fmt.Sprintf(`{"$defs":{%s,"d%d":{"required":["none"]}},"$ref":"#/$defs/d0"}`, strings.Join(defs, ","), n)
}

// Each of these would run for minutes at least, if it ran.
func TestNoSchemaChecksForLong(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	numbers := make([]int, 100_000)
	for i := range numbers {
		numbers[i] = i
	}
	array, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	enum, err := json.Marshal(numbers[:10_000])
	if err != nil {
		t.Fatal(err)
	}
	dependents := func(n int) string {
		var defs []string
		for i := range n {
			defs = append(defs, fmt.Sprintf(`"d%d":{"dependentSchemas":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}}`, i, i+1, i+1))
		}
		return fmt.Sprintf(`{"not":{"$ref":"#/$defs/d0"},"$defs":{%s,"d%d":{"required":["none"]}}}`, strings.Join(defs, ","), n)
	}
	for name, c := range map[string]struct{ schema, payload string }{
		"allOf doubling":             {doubling(60, "allOf"), `{}`},
		"anyOf doubling":             {doubling(60, "anyOf"), `{}`},
		"oneOf doubling":             {doubling(60, "oneOf"), `{}`},
		"dependents under not":       {dependents(60), `{"a":1,"b":2}`},
		"recursion by depth":         {`{"$defs":{"n":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"}`, deep},
		"a large enum for each item": {`{"properties":{"l":{"items":{"enum":` + string(enum) + `}}}}`, `{"l":` + string(array) + `}`},
		"a large pattern":            {`{"properties":{"s":{"pattern":"(x?){900}(y?){900}z"}}}`, `{"s":"` + strings.Repeat("x", 250_000) + `"}`},
		"many rules for each item":   {`{"properties":{"l":{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{"items":true},`, 4000), ",") + `]}}}`, `{"l":` + string(array) + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			if got := check(t, c.schema, c.payload); got != ": takes too long to check against the schema of its type" {
				t.Errorf("found %.200q", got)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestAUsualPayloadIsFarFromTheLimit(t *testing.T) {
	t.Parallel()
	item := `{"sku":"abc-1","quantity":3,"price":19.99,"tags":["a","b"]}`
	schema := `{"type":"object","required":["items"],"properties":{"items":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["sku"],
		"properties":{"sku":{"type":"string","pattern":"^[a-z]+-[0-9]+$"},"quantity":{"type":"integer","minimum":1},"price":{"multipleOf":0.01},"tags":{"type":"array","uniqueItems":true,"items":{"type":"string"}}}}}}}`
	payload := `{"items":[` + strings.TrimSuffix(strings.Repeat(item+",", 3000), ",") + `]}`
	c, err := compile([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	if found := c.check([]byte(payload)); found != nil {
		t.Fatalf("%v", found)
	}
	if used := maxSteps - c.left; used > maxSteps/2 {
		t.Errorf("%d bytes took %d of %d steps", len(payload), used, maxSteps)
	}
}

func TestManyCheckAtTheSameTime(t *testing.T) {
	t.Parallel()
	s, err := Compile([]byte(`{"required":["to"],"properties":{"n":{"pattern":"^[0-9]+$"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 * spare {
		all.Go(func() {
			for range 50 {
				if f := s.Check([]byte(`{"to":1,"n":"12"}`)); f != nil {
					t.Errorf("a payload that fits: %v", f)
				}
				if f := s.Check([]byte(`{"n":"x"}`)); len(f) != 2 {
					t.Errorf("one that does not: %v", f)
				}
			}
		})
	}
	all.Wait()
}

// FuzzSchema looks for a schema or a payload that ends the process, or a finding that
// is not there the second time.
func FuzzSchema(f *testing.F) {
	f.Add(`{"required":["to"],"properties":{"to":{"format":"email"}}}`, `{"to":"x"}`)
	f.Add(`{"$ref":"#"}`, `{}`)
	f.Add(`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{"$ref":"#/$defs/a"}}}}`, `{"a":[1e999,-0.0]}`)
	f.Add(`{"$id":"http://x/","$anchor":"a","items":{"$ref":"#a"}}`, `{"a":[[],[[]]]}`)
	f.Add(doubling(30, "oneOf"), `{}`)
	f.Add(`{"properties":{"d":{"format":"date-time"},"u":{"format":"uri"},"r":{"format":"regex"},"h":{"format":"idn-hostname"}}}`, `{"d":"2026-11-30T00:00:60Z","u":"http://[::1]","r":"(","h":"xn--a"}`)
	f.Fuzz(func(t *testing.T, text, payload string) {
		if len(text) > MaxBytes || len(payload) > MaxBytes || !json.Valid([]byte(payload)) || strings.ContainsAny(text+payload, "eE") && strings.Contains(strings.ToLower(text+payload), "e9999") {
			return // what the limits of payloads refuse before
		}
		s, err := Compile([]byte(text))
		if err != nil {
			return
		}
		once, again := fmt.Sprint(s.Check([]byte(payload))), fmt.Sprint(s.Check([]byte(payload)))
		if once != again {
			t.Errorf("%s on %s: first %s, then %s", text, payload, once, again)
		}
	})
}
