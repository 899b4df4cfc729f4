// Package schema checks payloads against the JSON Schema of their type. A schema is
// what an administrator wrote and a payload what anybody sent: neither may make the
// check reach out, fail otherwise than by a finding, or run without end.
package schema

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// MaxBytes bounds a schema as it is written: 64 KiB.
const MaxBytes = 64 << 10

// place is where a schema stands for its own references; nothing is there to load.
const place = "schema:///type"

// Schema is a compiled schema. Many goroutines may use it.
type Schema struct {
	text []byte
	idle chan *checker
}

// spare is how many checkers a schema keeps for those who check at the same time.
const spare = 8

// Compile reads a schema: a JSON object by draft 2020-12, or the earlier draft that
// its $schema names, in which formats are checked. Patterns are those of Go's regexp,
// whose time grows with the text alone. References lead inside the document or to the
// drafts' own schemas. The text must have passed the limits of a payload.
func Compile(text []byte) (*Schema, error) {
	c, err := compile(text)
	if err != nil {
		return nil, err
	}
	s := &Schema{text, make(chan *checker, spare)}
	s.idle <- c
	return s, nil
}

// checker is a compiled schema for one check at a time, since it counts its steps.
type checker struct {
	root *jsonschema.Schema
	left int
}

func compile(text []byte) (*checker, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errors.New("a JSON object")
	}
	if key := dynamic(doc); key != "" {
		return nil, errors.New(key + " is not supported: use $ref")
	}
	c := &checker{}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(nowhere{})
	compiler.UseRegexpEngine(c.pattern)
	if err := compiler.AddResource(place, doc); err != nil {
		return nil, explain(err)
	}
	if c.root, err = compiler.Compile(place); err != nil {
		return nil, explain(err)
	}
	c.meter(c.root, map[*jsonschema.Schema]bool{})
	return c, nil
}

// dynamic finds a reference whose target is only known during a check, where no meter
// could be.
func dynamic(v any) string {
	switch v := v.(type) {
	case map[string]any:
		for key, inside := range v {
			if key == "$dynamicRef" || key == "$recursiveRef" {
				return key
			}
			if found := dynamic(inside); found != "" {
				return found
			}
		}
	case []any:
		for _, inside := range v {
			if found := dynamic(inside); found != "" {
				return found
			}
		}
	}
	return ""
}

// nowhere refuses every document but the drafts', which the library has in itself.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document, which is not loaded", url)
}

// Check holds a payload against the schema; none if it fits. The payload must have
// passed the limits of payloads. Findings come in the order of their places.
func (s *Schema) Check(payload []byte) []Finding {
	var c *checker
	select {
	case c = <-s.idle:
	default:
		var err error
		if c, err = compile(s.text); err != nil {
			return []Finding{{Text: "cannot be checked: " + err.Error()}}
		}
	}
	defer s.giveBack(c)
	return c.check(payload)
}

// giveBack keeps a checker for the next check, if there is room.
func (s *Schema) giveBack(c *checker) {
	select {
	case s.idle <- c:
	default:
	}
}

func (c *checker) check(payload []byte) (found []Finding) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return []Finding{{Text: "is not JSON"}}
	}
	defer func() {
		if r := recover(); r != nil {
			if r != errTooMuch {
				panic(r)
			}
			found = []Finding{{Text: "takes too long to check against the schema of its type"}}
		}
	}()
	c.left = maxSteps
	var invalid *jsonschema.ValidationError
	if err := c.root.Validate(value); errors.As(err, &invalid) {
		return findings(invalid)
	}
	return nil
}
