package openapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// withSchemas is what OpenAPI says of its documents, and JSON Schema of the schemas in them.
const withSchemas = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"$ref": "https://spec.openapis.org/oas/3.1/schema/2026-08-03",
	"$defs": {"schema": {"$dynamicAnchor": "meta", "$ref": "https://json-schema.org/draft/2020-12/schema"}}
}`

func read(t *testing.T, text []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// documents is the schema of OpenAPI documents.
func documents(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("testdata/oas-3.1.json")
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for url, schema := range map[string][]byte{"https://spec.openapis.org/oas/3.1/schema/2026-08-03": text, "with-schemas.json": []byte(withSchemas)} {
		if err := c.AddResource(url, read(t, schema)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("with-schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDocumentIsOpenAPI31 holds the document against the schema that the OpenAPI Initiative
// has of such.
func TestDocumentIsOpenAPI31(t *testing.T) {
	t.Parallel()
	valid := documents(t)
	if err := valid.Validate(read(t, openapi.Document())); err != nil {
		t.Errorf("the document is not OpenAPI 3.1: %v", err)
	}
	for flaw, change := range map[string][2]string{
		"another version":                {`"openapi": "3.1.0"`, `"openapi": "3.0.3"`},
		"a word that OpenAPI has not":    {`"operationId": "getJob"`, `"operationID": "getJob"`},
		"a parameter that is nowhere":    {`"in": "query"`, `"in": "body"`},
		"a path without its slash":       {`"/api/v1/jobs/bulk"`, `"api/v1/jobs/bulk"`},
		"a type that JSON has not":       {`"type": "integer"`, `"type": "int"`},
		"a schema that is a word":        {`"minimum": 1`, `"minimum": "1"`},
		"an answer without what it says": {`"description": "The job still has the ETag of If-None-Match."`, `"summary": "-"`},
	} {
		spoilt := bytes.Replace(openapi.Document(), []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(spoilt, openapi.Document()) {
			t.Errorf("%s: the document has no %s to spoil", flaw, change[0])
		}
		if valid.Validate(read(t, spoilt)) == nil {
			t.Errorf("%s passes for OpenAPI 3.1", flaw)
		}
	}
}

// TestEveryComponentIsUsed finds what nothing refers to, and references to nothing.
func TestEveryComponentIsUsed(t *testing.T) {
	t.Parallel()
	whole := read(t, openapi.Document())
	used := map[string]bool{}
	walk("", whole, func(at string, object map[string]any) {
		if s, ok := object["$ref"].(string); ok {
			used[s] = true
		}
		for key, value := range object {
			if value == nil { // a comma in a text without quotes makes such
				t.Errorf("%s/%s has no value", at, key)
			}
		}
	})
	for kind, list := range whole.(map[string]any)["components"].(map[string]any) {
		for name := range list.(map[string]any) {
			ref := "#/components/" + kind + "/" + name
			if !used[ref] && kind != "securitySchemes" {
				t.Errorf("nothing refers to %s", ref)
			}
			delete(used, ref)
		}
	}
	if len(used) > 0 {
		t.Errorf("references to nothing: %v", slices.Collect(maps.Keys(used)))
	}
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "*", "%2A")

// walk calls do with every object in v and its place.
func walk(at string, v any, do func(at string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		do(at, v)
		for key, value := range v {
			walk(at+"/"+pointer.Replace(key), value, do)
		}
	case []any:
		for i, value := range v {
			walk(at+"/"+strconv.Itoa(i), value, do)
		}
	}
}

// TestExamplesAreWhatTheySay: an example fits the schema beside it, or that it stands in.
func TestExamplesAreWhatTheySay(t *testing.T) {
	t.Parallel()
	whole := read(t, openapi.Document())
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	seen := 0
	fits := func(at string, value any) {
		seen++
		s, err := c.Compile("openapi.json#" + at)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(value); err != nil {
			t.Errorf("the example at %s: %v", at, err)
		}
	}
	walk("", whole, func(at string, object map[string]any) {
		if value, ok := object["example"]; ok {
			fits(at+"/schema", value)
		}
		if list, ok := object["examples"].([]any); ok {
			for _, value := range list {
				fits(at, value)
			}
		}
	})
	if seen < 20 {
		t.Errorf("only %d examples are there", seen)
	}
}

type operation struct {
	OperationID, Summary string
	Tags                 []string
	Security             []map[string][]string
	Parameters           []parameter
	RequestBody          *struct {
		Content map[string]struct{ Example json.RawMessage }
	}
	Responses map[string]response
}

type parameter struct {
	Ref         string `json:"$ref"`
	Description string
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema struct {
			Ref string `json:"$ref"`
		}
	}
}

// TestOperationsSayWhatTheyAre: what people and generators of clients need of each.
func TestOperationsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	var doc struct {
		Tags       []struct{ Name string }
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]parameter
			Responses  map[string]response
		}
	}
	if err := json.Unmarshal(openapi.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	tags, ids := map[string]bool{}, map[string]bool{}
	for _, tag := range doc.Tags {
		tags[tag.Name] = true
	}
	described := func(at string, list []parameter) {
		for i, p := range list {
			if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
				p = doc.Components.Parameters[name]
			}
			if p.Description == "" {
				t.Errorf("%s: parameter %d has no description", at, i)
			}
		}
	}
	for path, item := range doc.Paths {
		for method, text := range item {
			name := method + " " + path
			if method == "parameters" {
				var shared []parameter
				if err := json.Unmarshal(text, &shared); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				described(path, shared)
				continue
			}
			var op operation
			if err := json.Unmarshal(text, &op); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s: operationId %q is missing or used twice", name, op.OperationID)
			}
			ids[op.OperationID] = true
			if op.Summary == "" || strings.HasSuffix(op.Summary, ".") {
				t.Errorf("%s: summary %q", name, op.Summary)
			}
			if len(op.Tags) != 1 || !tags[op.Tags[0]] {
				t.Errorf("%s: tags %v, want one of those at the top", name, op.Tags)
			}
			if op.Security == nil {
				t.Errorf("%s does not say which scope it needs", name)
			}
			described(name, op.Parameters)
			if op.RequestBody != nil {
				for kind, content := range op.RequestBody.Content {
					if content.Example == nil {
						t.Errorf("%s: a body of %s has no example", name, kind)
					}
				}
			}
			for status, r := range op.Responses {
				if component, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
					r = doc.Components.Responses[component]
				}
				ref := r.Content["application/problem+json"].Schema.Ref
				isProblem := len(r.Content) == 1 && strings.HasPrefix(ref, "#/components/schemas/Problem")
				if isReport := path == "/readyz" && status == "503"; isProblem != (status >= "400" && !isReport) {
					t.Errorf("%s: the answer %s is a problem: %t", name, status, isProblem)
				}
			}
		}
	}
}
