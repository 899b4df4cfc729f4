package schema

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSteps bounds one check. References can make a schema of a few lines ask the same
// question more often than there are atoms; a step is some ten nanoseconds, so that a
// check ends within about a second, and a usual one takes some thousand steps.
const maxSteps = 20_000_000

// What a step of ten nanoseconds is not: a visit of a schema, and a comparison with a
// value of the schema, which reads numbers digit by digit.
const perVisit, perComparison = 100, 20

// errTooMuch leaves a check that used up its steps. The library knows no way to stop.
var errTooMuch = errors.New("too many steps")

// meter makes each schema that can be reached count its steps before it looks at a
// value. The format is what the library asks first, whatever the value is.
func (c *checker) meter(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	if s.Bool != nil {
		return // costs what the schema around it was charged
	}
	parts := partsOf(s)
	weight := 1 + len(parts) + len(s.Required) + len(s.DependentRequired) + weightOf(s.Enum, s.Const)
	inner := s.Format
	name := ""
	if inner != nil {
		name = inner.Name
	}
	s.Format = &jsonschema.Format{Name: name, Validate: func(v any) error {
		c.spend(perVisit, 1)
		c.spend(weight, sizeOf(v))
		if inner == nil {
			return nil
		}
		return inner.Validate(v)
	}}
	for _, part := range parts {
		c.meter(part, seen)
	}
}

// pattern counts the steps of a regular expression, which grow with its own size and
// that of the text.
type pattern struct {
	*regexp.Regexp
	size int
	c    *checker
}

func (c *checker) pattern(text string) (jsonschema.Regexp, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{compiled, len(program.Inst), c}, nil
}

func (p *pattern) MatchString(s string) bool {
	p.c.spend(p.size, 1+len(s)/4)
	return p.Regexp.MatchString(s)
}

func (c *checker) spend(weight, size int) {
	if weight > maxSteps/size {
		panic(errTooMuch)
	}
	if c.left -= weight * size; c.left < 0 {
		panic(errTooMuch)
	}
}

// sizeOf is how much of a value a schema may have to look at, without what is inside.
func sizeOf(v any) int {
	switch v := v.(type) {
	case map[string]any:
		return 1 + len(v)
	case []any:
		return 1 + len(v)
	case string:
		return 1 + len(v)/64
	}
	return 1
}

// weightOf counts what a value is compared with.
func weightOf(enum *jsonschema.Enum, constant *any) (n int) {
	if enum != nil {
		n += perComparison * nodes(enum.Values)
	}
	if constant != nil {
		n += perComparison * nodes(*constant)
	}
	return n
}

func nodes(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, inside := range v {
			n += nodes(inside)
		}
	case []any:
		for _, inside := range v {
			n += nodes(inside)
		}
	}
	return n
}

// partsOf are the schemas that a schema asks.
func partsOf(s *jsonschema.Schema) []*jsonschema.Schema {
	parts := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains,
		s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	if s.DynamicRef != nil {
		parts = append(parts, s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		parts = append(parts, list...)
	}
	for _, named := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, part := range named {
			parts = append(parts, part)
		}
	}
	for _, part := range s.PatternProperties {
		parts = append(parts, part)
	}
	for _, dependency := range s.Dependencies {
		if part, ok := dependency.(*jsonschema.Schema); ok {
			parts = append(parts, part)
		}
	}
	for _, either := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch part := either.(type) {
		case *jsonschema.Schema:
			parts = append(parts, part)
		case []*jsonschema.Schema:
			parts = append(parts, part...)
		}
	}
	given := parts[:0]
	for _, part := range parts {
		if part != nil {
			given = append(given, part)
		}
	}
	return given
}
