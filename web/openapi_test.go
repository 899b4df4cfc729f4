package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	flaws "github.com/pb33f/libopenapi-validator/errors"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// description is the API's document, as every request of these tests is held against.
type description struct {
	model *v3.Document
	check validator.Validator
}

// described compiles the document once. Its answers may get more fields one day; in these
// tests they may not.
var described = sync.OnceValues(func() (description, error) {
	var whole map[string]any
	if err := json.Unmarshal(openapi.Document(), &whole); err != nil {
		return description{}, err
	}
	closeSchemas(whole, false)
	text, err := json.Marshal(whole)
	if err != nil {
		return description{}, err
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return description{}, err
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		return description{}, err
	}
	// Who may ask is the walk's to judge.
	check := validator.NewValidatorFromV3Model(&model.Model, config.WithFormatAssertions(), config.WithoutSecurityValidation())
	return description{&model.Model, check}, nil
})

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

// operationOf finds what the document says of a request, by the router's own table; nil
// for pages, and where the router has no such path or method.
func (s *site) operationOf(d description, r *http.Request) (path string, item *v3.PathItem, op *v3.Operation) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	c := s.echo.NewContext(r, nil)
	s.echo.Router().Find(method, echo.GetPath(r), c)
	path = routeParameter.Replace(c.Path())
	item = d.model.Paths.PathItems.GetOrZero(path)
	if item == nil {
		return path, nil, nil
	}
	return path, item, item.GetOperations().GetOrZero(strings.ToLower(method))
}

// asDescribed holds an answer against the document, and the request if it was accepted.
func (s *site) asDescribed(r *http.Request, got reply) {
	s.t.Helper()
	d, err := described()
	if err != nil {
		s.t.Fatalf("read the API's document: %v", err)
	}
	path, item, op := s.operationOf(d, r)
	if op == nil {
		return
	}
	name := r.Method + " " + path + " = " + strconv.Itoa(got.status)
	again := r.Clone(r.Context())
	if r.Method == http.MethodHead {
		again.Method = http.MethodGet
	} else {
		body := io.NopCloser(strings.NewReader(got.body))
		res := &http.Response{StatusCode: got.status, Header: got.header, Body: body, Request: again}
		_, bad := d.check.GetResponseBodyValidator().ValidateResponseBodyWithPathItem(again, res, item, path)
		s.notDescribed(name+": answer "+cutAt(got.body, 2000), bad)
	}
	if answer := op.Responses.Codes.GetOrZero(strconv.Itoa(got.status)); answer != nil {
		for _, h := range toldHeaders {
			if got.header.Get(h) != "" && (answer.Headers == nil || answer.Headers.GetOrZero(h) == nil) {
				s.t.Errorf("%s has the header %s, of which the API's document does not tell", name, h)
			}
		}
	}
	if got.status >= 300 {
		return
	}
	parameters := slices.Concat(item.Parameters, op.Parameters)
	for key := range r.URL.Query() {
		if !slices.ContainsFunc(parameters, func(p *v3.Parameter) bool { return p.In == "query" && p.Name == key }) {
			s.t.Errorf("%s: the API's document has no query parameter %s", name, key)
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody == nil {
			return // it was a stream
		}
		body, err := r.GetBody()
		if err != nil {
			s.t.Fatalf("%s: %v", name, err)
		}
		again.Body = body
	}
	_, bad := d.check.ValidateHttpRequestWithPathItem(again, item, path)
	s.notDescribed(name+": request "+r.URL.RequestURI(), bad)
}

func (s *site) notDescribed(what string, bad []*flaws.ValidationError) {
	s.t.Helper()
	for _, f := range bad {
		var places bytes.Buffer
		for _, x := range f.SchemaValidationErrors {
			fmt.Fprintf(&places, "\n\t%s: %s", strings.Join(x.InstancePath, "/"), x.Reason)
		}
		s.t.Errorf("%s is not as the API's document says: %s: %s%s", what, f.Message, f.Reason, places.String())
	}
}

// TestEveryRouteIsDescribed, with the scope that it asks for; and the document describes no
// other.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]*v3.Operation{}
	for path, item := range d.model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			left[strings.ToUpper(method)+" "+path] = op
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
func allows(op *v3.Operation, needs string) bool {
	if len(op.Security) == 0 {
		return needs == isOpen
	}
	for _, way := range op.Security {
		scopes, token := []string(nil), false
		if way.Requirements != nil {
			scopes, token = way.Requirements.Get("token")
		}
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
