package schema

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Finding is one thing in a payload that its schema does not allow. Text never repeats
// what stands in the payload: findings are logged, payloads are not.
type Finding struct {
	Path []string
	Text string
}

// maxFindings bounds what is told of one payload.
const maxFindings = 20

// maxText bounds what a finding quotes of the schema.
const maxText = 200

var english = message.NewPrinter(language.English)

// findings are the things at the ends of the library's tree of errors.
func findings(e *jsonschema.ValidationError) []Finding {
	var found []Finding
	collect(e, &found)
	slices.SortStableFunc(found, func(a, b Finding) int {
		if n := slices.Compare(a.Path, b.Path); n != 0 {
			return n
		}
		return strings.Compare(a.Text, b.Text)
	})
	found = slices.CompactFunc(found, func(a, b Finding) bool { return slices.Equal(a.Path, b.Path) && a.Text == b.Text })
	return found[:min(len(found), maxFindings)]
}

func collect(e *jsonschema.ValidationError, found *[]Finding) {
	add := func(text string, more ...string) {
		*found = append(*found, Finding{slices.Concat(e.InstanceLocation, more), brief(text)})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			add("is required", name)
		}
	case *kind.DependentRequired:
		for _, name := range k.Missing {
			add("is required where "+strconv.Quote(k.Prop)+" is given", name)
		}
	case *kind.Dependency:
		for _, name := range k.Missing {
			add("is required where "+strconv.Quote(k.Prop)+" is given", name)
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			add("is none of the properties allowed here", name)
		}
	case *kind.PropertyNames:
		add("is no name allowed here", k.Property)
	case *kind.FalseSchema:
		add("is not allowed here")
	case *kind.AnyOf:
		add("fits none of the alternatives (anyOf)")
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			add("fits more than one of the alternatives (oneOf)")
			return
		}
		add("fits none of the alternatives (oneOf)")
	case *kind.Not:
		add("is what the schema excludes (not)")
	case *kind.Contains, *kind.MinContains:
		add("has too few items of the kind asked for (contains)")
	case *kind.MaxContains:
		add("has too many items of the kind asked for (contains)")
	default:
		if len(e.Causes) == 0 {
			add(text(k))
		}
		for _, cause := range e.Causes {
			collect(cause, found)
		}
	}
}

// text is a finding about one value, in words that do not repeat it.
func text(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "is of type " + k.Got + ", must be " + strings.Join(k.Want, " or ")
	case *kind.Format:
		return "is no valid " + k.Want
	case *kind.Pattern:
		return "does not match the pattern " + k.Want
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("has the same item at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.RefCycle:
		return "cannot be checked: the schema refers to itself in a circle"
	}
	return k.LocalizedString(english) // of sizes, and of what the schema names
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(10), "0")
}

func brief(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// explain says of a schema what is wrong with it, and where.
func explain(err error) error {
	var meta *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	if errors.As(err, &meta) && errors.As(meta.Err, &invalid) {
		for _, f := range findings(invalid) {
			return fmt.Errorf("%s: %s", pointer(f.Path), f.Text)
		}
	}
	return errors.New(brief(strings.ReplaceAll(err.Error(), place, "")))
}

func pointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	}
	return brief(b.String())
}
