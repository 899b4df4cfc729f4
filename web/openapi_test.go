package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// description is the API's document, as every request of these tests is held against.
type description struct {
	whole struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]describedParameter
			Responses  map[string]describedResponse
			Schemas    map[string]json.RawMessage
		}
	}
	compiler *jsonschema.Compiler
	mu       sync.Mutex // guards compiler
	schemas  sync.Map   // of a place in the document: *jsonschema.Schema
}

type describedOperation struct {
	OperationID string
	Security    []map[string][]string
	Parameters  []describedParameter
	RequestBody *struct {
		Required bool
		Content  map[string]struct{}
	}
	Responses map[string]describedResponse
}

type describedParameter struct {
	Ref      string `json:"$ref"`
	Name, In string
	Required bool
	Schema   struct{ Type string }

	at string // its place in the document
}

type describedResponse struct {
	Ref     string `json:"$ref"`
	Headers map[string]struct{}
	Content map[string]struct{ Schema json.RawMessage }

	at string
}

// describedProblem is a schema as the document writes that of a problem: all problems', and
// what is its own.
type describedProblem struct {
	Properties problemProperties
	AllOf      []struct{ Properties problemProperties }
}

type problemProperties struct {
	Status struct{ Const int }
	Code   struct {
		Const string
		Enum  []string
	}
}

func (p problemProperties) codes() []string {
	if p.Code.Const != "" {
		return []string{p.Code.Const}
	}
	return p.Code.Enum
}

// described reads the document once. Its answers may get more fields one day; in these
// tests they may not.
var described = sync.OnceValues(func() (*description, error) {
	d := &description{compiler: jsonschema.NewCompiler()}
	if err := json.Unmarshal(openapi.Document(), &d.whole); err != nil {
		return nil, err
	}
	closed, err := jsonschema.UnmarshalJSON(bytes.NewReader(openapi.Document()))
	if err != nil {
		return nil, err
	}
	closeSchemas(closed, false)
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource("openapi.json", closed)
})

var pointer = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "*", "%2A")

func place(steps ...string) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("/" + pointer.Replace(s))
	}
	return b.String()
}

// holds tells what is wrong with a value by the schema at a place.
func (d *description) holds(at string, value any) error {
	s, known := d.schemas.Load(at)
	if !known {
		d.mu.Lock()
		defer d.mu.Unlock()
		compiled, err := d.compiler.Compile("openapi.json#" + at)
		if err != nil {
			return err
		}
		d.schemas.Store(at, compiled)
		s = compiled
	}
	return s.(*jsonschema.Schema).Validate(value)
}

// operation is what the document says of a method of a path; nil if nothing.
func (d *description) operation(method, path string) (*describedOperation, error) {
	method = strings.ToLower(method)
	text, known := d.whole.Paths[path][method]
	if !known {
		return nil, nil
	}
	op := &describedOperation{}
	if err := json.Unmarshal(text, op); err != nil {
		return nil, err
	}
	for i := range op.Parameters {
		op.Parameters[i].at = place("paths", path, method, "parameters", strconv.Itoa(i))
	}
	var shared []describedParameter
	if text, ok := d.whole.Paths[path]["parameters"]; ok {
		if err := json.Unmarshal(text, &shared); err != nil {
			return nil, err
		}
	}
	for i, p := range shared {
		p.at = place("paths", path, "parameters", strconv.Itoa(i))
		op.Parameters = append(op.Parameters, p)
	}
	for i, p := range op.Parameters {
		if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
			op.Parameters[i] = d.whole.Components.Parameters[name]
			op.Parameters[i].at = place("components", "parameters", name)
		}
	}
	for status, r := range op.Responses {
		r.at = place("paths", path, method, "responses", status)
		if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
			r = d.whole.Components.Responses[name]
			r.at = place("components", "responses", name)
		}
		op.Responses[status] = r
	}
	return op, nil
}

// each calls do with every operation.
func (d *description) each(do func(method, path string, op *describedOperation)) error {
	for path, item := range d.whole.Paths {
		for method := range item {
			if method == "parameters" {
				continue
			}
			op, err := d.operation(method, path)
			if err != nil {
				return err
			}
			do(strings.ToUpper(method), path, op)
		}
	}
	return nil
}

// problem is what is a refusal's own.
func (d *description) problem(r describedResponse) (problemProperties, error) {
	var schema struct {
		Ref string `json:"$ref"`
	}
	if err := json.Unmarshal(r.Content["application/problem+json"].Schema, &schema); err != nil {
		return problemProperties{}, err
	}
	var p describedProblem
	if err := json.Unmarshal(d.whole.Components.Schemas[strings.TrimPrefix(schema.Ref, "#/components/schemas/")], &p); err != nil {
		return problemProperties{}, fmt.Errorf("schema %q: %w", schema.Ref, err)
	}
	if len(p.AllOf) != 2 || len(p.AllOf[1].Properties.codes()) == 0 {
		return problemProperties{}, fmt.Errorf("schema %q is not that of a problem with its codes", schema.Ref)
	}
	return p.AllOf[1].Properties, nil
}

// closeSchemas lets no object have properties beside its own. The parts of an allOf stay
// open, since each is but a part.
func closeSchemas(v any, part bool) {
	switch v := v.(type) {
	case map[string]any:
		_, isSchema := v["properties"].(map[string]any)
		if _, said := v["additionalProperties"]; isSchema && !said && !part {
			v["additionalProperties"] = false
		}
		for key, value := range v {
			if parts, ok := value.([]any); ok && key == "allOf" {
				for _, x := range parts {
					closeSchemas(x, true)
				}
				continue
			}
			closeSchemas(value, false)
		}
	case []any:
		for _, value := range v {
			closeSchemas(value, false)
		}
	}
}

// toldHeaders are those that an answer may have only where the document says so.
var toldHeaders = []string{"ETag", "Link", "Location", "Retry-After", "Idempotency-Replayed", "RateLimit", "RateLimit-Policy", "WWW-Authenticate"}

var routeParameter = strings.NewReplacer("/:id", "/{id}", "/:name", "/{name}", "/:type", "/{type}")

// asDescribed holds an answer against the document, and the request if it was accepted. Pages
// are not described, nor what the router has no path or method for.
func (s *site) asDescribed(r *http.Request, got reply) {
	s.t.Helper()
	d, err := described()
	if err != nil {
		s.t.Errorf("read the API's document: %v", err)
		return
	}
	method := r.Method
	if method != strings.ToUpper(method) {
		return // get is not GET: no operation has such a method
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	c := s.echo.NewContext(r, nil)
	s.echo.Router().Find(method, echo.GetPath(r), c)
	path := routeParameter.Replace(c.Path())
	op, err := d.operation(method, path)
	if err != nil {
		s.t.Errorf("read the API's document at %s: %v", path, err)
	}
	if op == nil {
		return
	}
	name := r.Method + " " + path + " = " + strconv.Itoa(got.status)
	if err := d.answer(op, got, r.Method == http.MethodHead); err != nil {
		s.t.Errorf("%s is not as the API's document says: %v\n%s", name, err, cutAt(got.body, 2000))
	}
	// In a bulk of items that stand each for itself some may have been refused.
	if got.status < 300 && !(op.OperationID == "createJobs" && got.status == http.StatusOK) {
		if err := d.request(op, r, place("paths", path, strings.ToLower(method), "requestBody")); err != nil {
			s.t.Errorf("%s: what was accepted is not as the API's document says: %v", name, err)
		}
	}
}

func (d *description) answer(op *describedOperation, got reply, head bool) error {
	want, known := op.Responses[strconv.Itoa(got.status)]
	if !known {
		return errors.New("it has no such status")
	}
	for _, h := range toldHeaders {
		value := got.header.Get(h)
		if value == "" {
			continue
		}
		if _, told := want.Headers[h]; !told {
			return fmt.Errorf("it does not tell of the header %s", h)
		}
	}
	if head || len(want.Content) == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(got.header.Get("Content-Type"))
	if err != nil {
		return err
	}
	content, told := want.Content[kind]
	if _, any := want.Content["*/*"]; !told && !any {
		return fmt.Errorf("it has no content of type %s", kind)
	}
	if content.Schema == nil || !strings.HasSuffix(kind, "json") {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(got.body))
	if err != nil {
		return err
	}
	return d.holds(want.at+place("content", kind, "schema"), value)
}

// request holds what was accepted against the document. A body that was a stream is gone.
func (d *description) request(op *describedOperation, r *http.Request, body string) error {
	query := r.URL.Query()
	for _, p := range op.Parameters {
		given := r.Header.Values(p.Name)
		if p.In == "query" {
			given = query[p.Name]
			delete(query, p.Name)
		}
		switch {
		case p.In == "path":
			continue
		case len(given) == 0 && p.Required:
			return fmt.Errorf("%s is missing", p.Name)
		case len(given) == 0:
			continue
		}
		if err := d.holds(p.at+"/schema", p.value(given)); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if _, refuses := op.Responses["400"]; refuses {
		for name := range query {
			return fmt.Errorf("it has no query parameter %s", name)
		}
	}
	if r.GetBody == nil {
		return nil
	}
	stream, err := r.GetBody()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(stream)
	if err != nil || op.RequestBody == nil {
		return err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		if op.RequestBody.Required {
			return errors.New("it asks for a body")
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if _, told := op.RequestBody.Content[kind]; !told {
		return fmt.Errorf("it has no body of type %s", kind)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return d.holds(body+place("content", kind, "schema"), value)
}

// value is what a parameter's text stands for.
func (p describedParameter) value(given []string) any {
	switch p.Schema.Type {
	case "integer", "boolean":
		if v, err := jsonschema.UnmarshalJSON(strings.NewReader(given[0])); err == nil {
			return v
		}
	case "array":
		var list []any
		for _, s := range given {
			for part := range strings.SplitSeq(s, ",") {
				list = append(list, part)
			}
		}
		return list
	}
	return given[0]
}
