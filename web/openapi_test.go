package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/pb33f/jsonschema/v6"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// description is the API's document, as every request of these tests is held against.
type description struct {
	whole struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]describedParameter
			Responses  map[string]describedResponse
		}
	}
	compiler *jsonschema.Compiler
	mu       sync.Mutex // guards compiler
	schemas  sync.Map   // of a place in the document: *jsonschema.Schema
}

type describedOperation struct {
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

var routeParameter = strings.NewReplacer("/:id", "/{id}", "/:name", "/{name}")

// asDescribed holds an answer against the document, and the request if it was accepted. Pages
// are not described, nor what the router has no path or method for.
func (s *site) asDescribed(r *http.Request, got reply) {
	s.t.Helper()
	d, err := described()
	if err != nil {
		s.t.Fatalf("read the API's document: %v", err)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	c := s.echo.NewContext(r, nil)
	s.echo.Router().Find(method, echo.GetPath(r), c)
	path := routeParameter.Replace(c.Path())
	op, err := d.operation(method, path)
	if err != nil {
		s.t.Fatalf("read the API's document: %v", err)
	}
	if op == nil {
		return
	}
	name := r.Method + " " + path + " = " + strconv.Itoa(got.status)
	if err := d.answer(op, got, r.Method == http.MethodHead); err != nil {
		s.t.Errorf("%s is not as the API's document says: %v\n%s", name, err, cutAt(got.body, 2000))
	}
	if got.status < 300 {
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
	for name := range query {
		return fmt.Errorf("it has no query parameter %s", name)
	}
	if r.GetBody == nil {
		return nil
	}
	stream, err := r.GetBody()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(stream)
	if err != nil || len(bytes.TrimSpace(text)) == 0 || op.RequestBody == nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return d.holds(body+place("content", "application/json", "schema"), value)
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

// TestEveryRouteIsDescribed, with the scope that it asks for; and the document describes no
// other.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]*describedOperation{}
	for path, item := range d.whole.Paths {
		for method := range item {
			if method == "parameters" {
				continue
			}
			if left[strings.ToUpper(method)+" "+path], err = d.operation(method, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range newConsoleOn(t, newPool(t)).echo.Routes() {
		if strings.HasPrefix(r.Path, "/console") || r.Method == echo.RouteNotFound {
			continue
		}
		name := r.Method + " " + routeParameter.Replace(r.Path)
		op := left[name]
		if op == nil {
			t.Errorf("the API's document does not describe %s", name)
			continue
		}
		delete(left, name)
		if needs := routeRules[routeKey(r.Method, r.Path)].needs; !allows(op, needs) {
			t.Errorf("%s needs %s; the API's document says otherwise", name, needs)
		}
	}
	for name := range left {
		t.Errorf("the API's document describes %s, and there is no such route", name)
	}
}

// allows tells whether one of an operation's ways in asks for what a route needs, no less.
func allows(op *describedOperation, needs string) bool {
	if len(op.Security) == 0 {
		return needs == isOpen
	}
	for _, way := range op.Security {
		scopes, token := way["token"]
		switch {
		case needs == isOpen && !token, needs == anyToken && token && len(scopes) == 0, slices.Equal(scopes, []string{needs}):
			return true
		}
	}
	return false
}

// TestEveryProblemIsDescribed: the document has the server's codes and no other, each where
// its status is.
func TestEveryProblemIsDescribed(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
			Schemas map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(openapi.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	var whole struct {
		Properties struct{ Code struct{ Enum []string } }
	}
	if err := json.Unmarshal(doc.Components.Schemas["Problem"], &whole); err != nil {
		t.Fatal(err)
	}
	for _, code := range whole.Properties.Code.Enum {
		if _, known := codes[code]; !known {
			t.Errorf("the document's Problem has the code %s, which no answer has", code)
		}
	}
	if len(whole.Properties.Code.Enum) != len(codes) {
		t.Errorf("the document's Problem has the codes %v, want the %d of this server", whole.Properties.Code.Enum, len(codes))
	}
	// No operation answers what a path without one does.
	seen := map[string]bool{"method-not-allowed": true}
	for name, response := range doc.Components.Responses {
		var schema struct {
			AllOf []struct {
				Properties struct {
					Status struct{ Const int }
					Code   struct {
						Const string
						Enum  []string
					}
				}
			}
		}
		ref := strings.TrimPrefix(response.Content["application/problem+json"].Schema.Ref, "#/components/schemas/")
		if err := json.Unmarshal(doc.Components.Schemas[ref], &schema); err != nil || len(schema.AllOf) != 2 {
			t.Fatalf("response %s: schema %q: %v", name, ref, err)
		}
		own := schema.AllOf[1].Properties
		list := own.Code.Enum
		if own.Code.Const != "" {
			list = append(list, own.Code.Const)
		}
		for _, code := range list {
			seen[code] = true
			if codes[code].status != own.Status.Const {
				t.Errorf("response %s has %s as %d, which is %d", name, code, own.Status.Const, codes[code].status)
			}
		}
		for path, item := range doc.Paths {
			for method, text := range item {
				var op struct {
					Responses map[string]struct {
						Ref string `json:"$ref"`
					}
				}
				if method == "parameters" {
					continue
				}
				if err := json.Unmarshal(text, &op); err != nil {
					t.Fatal(err)
				}
				for status, r := range op.Responses {
					if r.Ref == "#/components/responses/"+name && status != strconv.Itoa(own.Status.Const) {
						t.Errorf("%s %s has the response %s as %s", method, path, name, status)
					}
				}
			}
		}
	}
	for code := range codes {
		if !seen[code] {
			t.Errorf("no response of the document has the code %s", code)
		}
	}
}

// TestTheDocumentHoldsAnswersToTheTruth: what it does not describe fails.
func TestTheDocumentHoldsAnswersToTheTruth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.enqueue(`{"type":"email"}`)
	good := s.do("GET", "/api/v1/jobs/"+id, "")
	for name, c := range map[string]struct {
		status int
		header []string
		body   string
	}{
		"an unknown field":          {200, nil, strings.Replace(good.body, `{`, `{"surprise":1,`, 1)},
		"a field that is missing":   {200, nil, strings.Replace(good.body, `"version":`, `"Version":`, 1)},
		"a state that is none":      {200, nil, strings.Replace(good.body, `"pending"`, `"waiting"`, 1)},
		"another status":            {418, nil, good.body},
		"another kind of content":   {200, []string{"Content-Type", "text/html"}, good.body},
		"a header that is not told": {200, []string{"Retry-After", "1"}, good.body},
		"a code of another route":   {404, []string{"Content-Type", "application/problem+json"}, `{"type":"t","title":"t","status":404,"code":"not-waiting","instance":"/","request_id":"r"}`},
	} {
		told := &complaints{TB: t}
		odd := reply{told, c.status, good.header.Clone(), c.body}
		for i := 0; i < len(c.header); i += 2 {
			odd.header.Set(c.header[i], c.header[i+1])
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/jobs/"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		(&site{t: told, echo: s.echo}).asDescribed(r, odd)
		if told.n == 0 {
			t.Errorf("%s passes for what the document describes: %s", name, c.body)
		}
	}
}

// complaints counts what would fail a test.
type complaints struct {
	testing.TB
	n int
}

func (c *complaints) Errorf(string, ...any) { c.n++ }

// TestTheDocumentIsReadOnce: who has it is not sent it again.
func TestTheDocumentIsReadOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.do("GET", "/api/v1/openapi.json", "")
	tag := first.header.Get("ETag")
	if first.status != http.StatusOK || tag == "" || first.body != string(openapi.Document()) {
		t.Fatalf("the document = %d, ETag %q, %d bytes", first.status, tag, len(first.body))
	}
	for _, given := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if again := s.do("GET", "/api/v1/openapi.json", "", "If-None-Match", given); again.status != http.StatusNotModified || again.body != "" || again.header.Get("ETag") != tag {
			t.Errorf("with If-None-Match %s = %d, %d bytes", given, again.status, len(again.body))
		}
	}
	if other := s.do("GET", "/api/v1/openapi.json", "", "If-None-Match", `"x"`); other.status != http.StatusOK {
		t.Errorf("with another's tag = %d", other.status)
	}
	s.do("GET", "/api/v1/openapi.json?x=1", "").refused("a query", http.StatusBadRequest, "bad-query", "x")
}
