package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// helpAPI is the API's document, to read.
func (k *Console) helpAPI(c echo.Context) error {
	if _, err := query(c); err != nil {
		return err
	}
	m, err := reference()
	if err != nil {
		return err
	}
	v := k.visit(c)
	m.Frame = v.frame("API", "help", false)
	return v.render(http.StatusOK, views.APIPage(m))
}

// apiDocument is as much of OpenAPI 3.1 as the API's document uses.
type apiDocument struct {
	Info struct{ Description string }
	Tags []struct{ Name, Description string }

	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Parameters map[string]apiParameter
		Responses  map[string]apiResponse
		Schemas    map[string]apiSchema
	}
}

type apiOperation struct {
	OperationID, Summary, Description string
	Deprecated                        bool
	Tags                              []string
	Security                          []map[string][]string
	Parameters                        []apiParameter
	RequestBody                       *struct {
		Description string
		Required    bool
		Content     map[string]struct {
			Schema  apiSchema
			Example json.RawMessage
		}
	}
	Responses map[string]apiResponse
}

type apiParameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                apiSchema
	Example               any
}

type apiResponse struct {
	Ref         string `json:"$ref"`
	Description string
	Headers     map[string]struct{}
	Content     map[string]struct{ Schema apiSchema }
}

// apiSchema is a schema's own words. What is left out says nothing.
type apiSchema struct {
	Ref                                string `json:"$ref"`
	Type, Const, Default               any
	Format, Pattern, Description       string
	Enum                               []any
	Minimum, Maximum, ExclusiveMinimum *json.Number
	MinLength, MaxLength               *int
	MinItems, MaxItems                 *int
	Required                           []string
	Properties                         map[string]apiSchema
	Items                              *apiSchema
	AnyOf, AllOf                       []apiSchema
}

var methods = []string{"get", "post", "patch", "delete"}

// reference is the document as the page draws it; it does not change.
var reference = sync.OnceValues(func() (views.API, error) {
	var d apiDocument
	if err := json.Unmarshal(openapi.Document(), &d); err != nil {
		return views.API{}, fmt.Errorf("read the API's document: %w", err)
	}
	m := views.API{Document: "/api/v1/openapi.json", Text: paragraphs(d.Info.Description)}
	for _, t := range d.Tags {
		m.Groups = append(m.Groups, views.APIGroup{ID: strings.ReplaceAll(t.Name, " ", "-"), Name: strings.ToUpper(t.Name[:1]) + t.Name[1:], Text: t.Description})
	}
	for _, path := range sortedKeys(d.Paths) {
		var shared []apiParameter
		if text, ok := d.Paths[path]["parameters"]; ok {
			if err := json.Unmarshal(text, &shared); err != nil {
				return views.API{}, fmt.Errorf("read the API's document at %s: %w", path, err)
			}
		}
		for _, method := range methods {
			text, ok := d.Paths[path][method]
			if !ok {
				continue
			}
			var op apiOperation
			if err := json.Unmarshal(text, &op); err != nil {
				return views.API{}, fmt.Errorf("read the API's document at %s %s: %w", method, path, err)
			}
			op.Parameters = slices.Concat(shared, op.Parameters)
			for i, t := range d.Tags {
				if slices.Contains(op.Tags, t.Name) {
					m.Groups[i].Operations = append(m.Groups[i].Operations, d.operation(strings.ToUpper(method), path, op))
				}
			}
		}
	}
	for _, name := range sortedKeys(d.Components.Schemas) {
		s := d.Components.Schemas[name]
		if len(s.AllOf) > 0 { // a problem with its codes, which the answers list
			continue
		}
		m.Schemas = append(m.Schemas, views.APISchema{Name: name, Text: s.Description, Rule: s.rule(), Fields: s.fields()})
	}
	return m, nil
})

func (d *apiDocument) operation(method, path string, op apiOperation) views.APIOperation {
	o := views.APIOperation{
		ID: op.OperationID, Method: method, Path: path, Summary: op.Summary, Text: paragraphs(op.Description), Deprecated: op.Deprecated, Needs: needs(op.Security),
	}
	curl := []string{"curl"}
	if method != http.MethodGet {
		curl = append(curl, "-X", method)
	}
	if len(op.Security) > 0 {
		curl = append(curl, `-H "Authorization: Bearer $TOKEN"`)
	}
	address := path
	for _, p := range op.Parameters {
		if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
			p = d.Components.Parameters[name]
		}
		o.Parameters = append(o.Parameters, views.APIField{Name: p.Name, In: p.In, Required: p.Required, Type: p.Schema.kind(), Rule: p.Schema.rule(), Text: p.Description})
		if p.In == "path" {
			address = strings.Replace(address, "{"+p.Name+"}", fmt.Sprint(p.Example), 1)
		}
		if p.In == "header" && p.Required {
			curl = append(curl, "-H '"+p.Name+": "+fmt.Sprint(p.Example)+"'")
		}
	}
	if b := op.RequestBody; b != nil {
		content := b.Content["application/json"]
		s := d.resolve(content.Schema)
		o.Body = &views.APIBody{Text: b.Description, Required: b.Required, Type: content.Schema.kind(), Fields: s.fields()}
		if b.Required {
			curl = append(curl, "-H 'Content-Type: application/json'", "-d '"+compact(content.Example)+"'")
		}
	}
	for _, status := range sortedKeys(op.Responses) {
		r := op.Responses[status]
		if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
			r = d.Components.Responses[name]
		}
		o.Answers = append(o.Answers, d.answer(status, r))
	}
	o.Curl = strings.Join(append(curl, `"$SERVER`+address+`"`), " ")
	return o
}

func (d *apiDocument) answer(status string, r apiResponse) views.APIAnswer {
	a := views.APIAnswer{Status: status, Text: r.Description, Headers: strings.Join(headersOf(r), ", ")}
	for _, kind := range sortedKeys(r.Content) {
		s := r.Content[kind].Schema
		a.Type = s.kind()
		for _, part := range d.resolve(s).AllOf {
			if code, ok := part.Properties["code"]; ok {
				a.Codes = append(a.Codes, code.words()...)
			}
		}
	}
	return a
}

// headersOf are those that are not in every answer.
func headersOf(r apiResponse) []string {
	return slices.DeleteFunc(sortedKeys(r.Headers), func(h string) bool { return h == "X-Request-Id" || strings.HasPrefix(h, "RateLimit") })
}

func (d *apiDocument) resolve(s apiSchema) apiSchema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return d.Components.Schemas[name]
	}
	return s
}

// needs says whose token an operation asks for.
func needs(security []map[string][]string) string {
	var scopes []string
	for _, way := range security {
		if list, ok := way["token"]; ok {
			scopes = append(scopes, list...)
		}
	}
	switch {
	case len(scopes) > 0:
		return "scope " + strings.Join(scopes, " or ")
	case len(security) == 0:
		return "no token"
	}
	return "any token"
}

// fields lists the required ones first, in their order.
func (s apiSchema) fields() []views.APIField {
	names := slices.Clone(s.Required)
	for _, name := range sortedKeys(s.Properties) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := make([]views.APIField, len(names))
	for i, name := range names {
		f := s.Properties[name]
		out[i] = views.APIField{Name: name, Required: slices.Contains(s.Required, name), Type: f.kind(), Rule: f.rule(), Text: f.Description}
	}
	return out
}

func (s apiSchema) kind() views.APIType {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return views.APIType{Name: name, Schema: name}
	}
	switch t := s.Type.(type) {
	case string:
		if t == "array" && s.Items != nil {
			of := s.Items.kind()
			return views.APIType{Name: "array of " + of.Name, Schema: of.Schema}
		}
		if s.Format != "" {
			return views.APIType{Name: s.Format}
		}
		return views.APIType{Name: t}
	case []any:
		return views.APIType{Name: strings.Join(wordsOf(t), " or ")}
	}
	kinds := make([]string, len(s.AnyOf))
	for i, x := range s.AnyOf {
		kinds[i] = x.kind().Name
	}
	if len(kinds) > 0 {
		return views.APIType{Name: strings.Join(kinds, " or ")}
	}
	return views.APIType{Name: "any JSON"}
}

// rule says what limits a value, in a line.
func (s apiSchema) rule() string {
	var rules []string
	say := func(format string, v any) { rules = append(rules, fmt.Sprintf(format, v)) }
	if list := s.words(); len(list) > 0 {
		say("one of: %s", strings.Join(list, ", "))
	}
	for _, x := range []struct {
		format string
		number *json.Number
	}{{"at least %s", s.Minimum}, {"more than %s", s.ExclusiveMinimum}, {"at most %s", s.Maximum}} {
		if x.number != nil {
			say(x.format, x.number.String())
		}
	}
	for _, x := range []struct {
		format string
		number *int
	}{{"at least %d characters", s.MinLength}, {"at most %d characters", s.MaxLength}, {"at least %d of them", s.MinItems}, {"at most %d of them", s.MaxItems}} {
		if x.number != nil {
			say(x.format, *x.number)
		}
	}
	if s.Pattern != "" {
		say("matches %s", s.Pattern)
	}
	if s.Default != nil {
		say("default %s", wordsOf([]any{s.Default})[0])
	}
	if s.Items != nil {
		if of := s.Items.rule(); of != "" {
			say("each %s", of)
		}
	}
	for _, x := range s.AnyOf {
		if of := x.rule(); of != "" {
			rules = append(rules, x.kind().Name+" "+of)
		}
	}
	return strings.Join(rules, "; ")
}

// words are the values that are allowed, if they are counted.
func (s apiSchema) words() []string {
	if s.Const != nil {
		return wordsOf([]any{s.Const})
	}
	return wordsOf(s.Enum)
}

func wordsOf(list []any) []string {
	out := make([]string, len(list))
	for i, v := range list {
		if parts, ok := v.([]any); ok {
			v = strings.Join(wordsOf(parts), "+")
		}
		out[i] = fmt.Sprint(v)
	}
	return out
}

func paragraphs(text string) []string {
	var out []string
	for p := range strings.SplitSeq(text, "\n\n") {
		if p = strings.Join(strings.Fields(p), " "); p != "" {
			out = append(out, p)
		}
	}
	return out
}

func compact(text json.RawMessage) string {
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return string(text)
	}
	return out.String()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
