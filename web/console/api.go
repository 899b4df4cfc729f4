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

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// helpAPI is the API's document, to read: its operations.
func (k *Console) helpAPI(c echo.Context) error {
	return k.reference(c, "API", views.APIPage)
}

// helpAPISchemas is what they take and answer.
func (k *Console) helpAPISchemas(c echo.Context) error {
	return k.reference(c, "API schemas", views.APISchemasPage)
}

func (k *Console) reference(c echo.Context, title string, page func(views.API) templ.Component) error {
	if _, err := query(c); err != nil {
		return err
	}
	m, err := reference()
	if err != nil {
		return err
	}
	v := k.visit(c)
	m.Frame = v.frame(title, "help", false)
	return v.render(http.StatusOK, page(m))
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

	answers, bodies map[string]int // how many operations have them
}

// apiOperation is a method of a path. Its Parameters have those of the path too.
type apiOperation struct {
	method, path string

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

var methods = []string{"get", "post", "put", "patch", "delete"}

// commonFrom is in how many operations an answer is told once for all.
const commonFrom = 10

// reference is the document as the page draws it; it does not change.
var reference = sync.OnceValues(func() (views.API, error) {
	var d apiDocument
	if err := json.Unmarshal(openapi.Document(), &d); err != nil {
		return views.API{}, fmt.Errorf("read the API's document: %w", err)
	}
	operations, err := d.operations()
	if err != nil {
		return views.API{}, err
	}
	d.count(operations)
	m := views.API{Document: "/api/v1/openapi.json", Text: paragraphs(d.Info.Description), Common: d.common()}
	for _, t := range d.Tags {
		g := views.APIGroup{ID: strings.ReplaceAll(t.Name, " ", "-"), Name: strings.ToUpper(t.Name[:1]) + t.Name[1:], Text: t.Description}
		for _, op := range operations {
			switch {
			case !slices.Contains(op.Tags, t.Name):
			case op.Deprecated:
				g.Twins = append(g.Twins, op.method+" "+op.path)
			default:
				g.Operations = append(g.Operations, d.operation(op))
			}
		}
		m.Groups = append(m.Groups, g)
	}
	for _, name := range sortedKeys(d.Components.Schemas) {
		s := d.Components.Schemas[name]
		if len(s.AllOf) == 0 { // else it is a problem with its codes, which the answers tell
			m.Schemas = append(m.Schemas, views.APISchema{Name: name, Text: s.Description, Rule: s.rule(), Fields: s.fields()})
		}
	}
	return m, nil
})

// operations are those of every path, each method in its order.
func (d *apiDocument) operations() ([]apiOperation, error) {
	var out []apiOperation
	for _, path := range sortedKeys(d.Paths) {
		var shared []apiParameter
		if text, ok := d.Paths[path]["parameters"]; ok {
			if err := json.Unmarshal(text, &shared); err != nil {
				return nil, fmt.Errorf("read the API's document at %s: %w", path, err)
			}
		}
		for _, method := range methods {
			text, ok := d.Paths[path][method]
			if !ok {
				continue
			}
			op := apiOperation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(text, &op); err != nil {
				return nil, fmt.Errorf("read the API's document at %s %s: %w", method, path, err)
			}
			op.Parameters = slices.Concat(shared, op.Parameters)
			out = append(out, op)
		}
	}
	return out, nil
}

// count finds how many operations give an answer, and take a body.
func (d *apiDocument) count(operations []apiOperation) {
	d.answers, d.bodies = map[string]int{}, map[string]int{}
	for _, op := range operations {
		for _, r := range op.Responses {
			d.answers[r.Ref]++
		}
		if op.RequestBody != nil && !op.Deprecated {
			d.bodies[nameOf(op.RequestBody.Content["application/json"].Schema.Ref)]++
		}
	}
}

// isCommon is of the answers that many operations give, which are told once.
func (d *apiDocument) isCommon(r apiResponse) bool {
	return r.Ref != "" && d.answers[r.Ref] >= commonFrom
}

func (d *apiDocument) common() []views.APIAnswer {
	var out []views.APIAnswer
	for _, name := range sortedKeys(d.Components.Responses) {
		r := d.Components.Responses[name]
		if d.isCommon(apiResponse{Ref: "#/components/responses/" + name}) {
			out = append(out, d.answer("", r))
		}
	}
	slices.SortStableFunc(out, func(a, b views.APIAnswer) int { return strings.Compare(a.Status, b.Status) })
	return out
}

func (d *apiDocument) operation(op apiOperation) views.APIOperation {
	o := views.APIOperation{
		ID: op.OperationID, Method: op.method, Path: op.path, Summary: op.Summary, Text: paragraphs(op.Description), Needs: needs(op.Security),
	}
	curl := []string{"curl"}
	if op.method != http.MethodGet {
		curl = append(curl, "-X", op.method)
	}
	if len(op.Security) > 0 {
		curl = append(curl, `-H "Authorization: Bearer $TOKEN"`)
	}
	address := op.path
	for _, p := range op.Parameters {
		if p.Ref != "" {
			p = d.Components.Parameters[nameOf(p.Ref)]
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
		o.Body = &views.APIBody{Text: b.Description, Required: b.Required, Type: content.Schema.kind()}
		if s := d.resolve(content.Schema); d.bodies[o.Body.Type.Schema] == 1 {
			o.Body.Text = strings.TrimSpace(o.Body.Text + " " + s.Description)
			o.Body.Fields = s.fields()
		}
		if b.Required {
			curl = append(curl, "-H 'Content-Type: application/json'", "-d '"+compact(content.Example)+"'")
		}
	}
	var common []string
	for _, status := range sortedKeys(op.Responses) {
		r := op.Responses[status]
		switch {
		case d.isCommon(r):
			common = append(common, status)
		case r.Ref != "":
			o.Answers = append(o.Answers, d.answer(status, d.Components.Responses[nameOf(r.Ref)]))
		default:
			o.Answers = append(o.Answers, d.answer(status, r))
		}
	}
	o.Common = strings.Join(common, ", ")
	o.Curl = strings.Join(append(curl, `"$SERVER`+address+`"`), " ")
	return o
}

// answer is a status, or that of its problem.
func (d *apiDocument) answer(status string, r apiResponse) views.APIAnswer {
	a := views.APIAnswer{Status: status, Text: r.Description, Headers: strings.Join(headersOf(r), ", ")}
	for _, kind := range sortedKeys(r.Content) {
		s := r.Content[kind].Schema
		a.Type = s.kind()
		for _, part := range d.resolve(s).AllOf {
			a.Codes = append(a.Codes, part.Properties["code"].words()...)
			if status == "" && part.Properties["status"].Const != nil {
				a.Status = fmt.Sprint(part.Properties["status"].Const)
			}
		}
	}
	return a
}

// headersOf are those that are not in every answer.
func headersOf(r apiResponse) []string {
	return slices.DeleteFunc(sortedKeys(r.Headers), func(h string) bool { return h == "X-Request-Id" || strings.HasPrefix(h, "RateLimit") })
}

// nameOf is the component that a reference leads to.
func nameOf(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }

func (d *apiDocument) resolve(s apiSchema) apiSchema {
	if s.Ref != "" {
		return d.Components.Schemas[nameOf(s.Ref)]
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

// fields lists the required ones first, in their order, and those of an object after it.
func (s apiSchema) fields() []views.APIField {
	names := slices.Clone(s.Required)
	for _, name := range sortedKeys(s.Properties) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var out []views.APIField
	for _, name := range names {
		f := s.Properties[name]
		out = append(out, views.APIField{Name: name, Required: slices.Contains(s.Required, name), Type: f.kind(), Rule: f.rule(), Text: f.Description})
		inner := f
		if f.Items != nil {
			inner, name = *f.Items, name+"[]"
		}
		for _, x := range inner.fields() {
			x.Name = name + "." + x.Name
			out = append(out, x)
		}
	}
	return out
}

func (s apiSchema) kind() views.APIType {
	if name := nameOf(s.Ref); name != "" {
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
