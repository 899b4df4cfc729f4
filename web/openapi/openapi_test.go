package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pb33f/go-yaml"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// TestDocumentIsCurrent: openapi.json is what the files of src add up to.
func TestDocumentIsCurrent(t *testing.T) {
	t.Parallel()
	got := assemble(t)
	if *update {
		if err := os.WriteFile("openapi.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(openapi.Document()), string(got)); diff != "" {
		t.Errorf("openapi.json is not what src makes; run: go test ./web/openapi -run TestDocumentIsCurrent -update\n%s", diff)
	}
}

// assemble puts the files together. What begins with x- at the top of a file is for that
// file alone.
func assemble(t *testing.T) []byte {
	t.Helper()
	files, err := filepath.Glob("src/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("files of src: %v, %v", files, err)
	}
	whole := map[string]any{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var part map[string]any
		if err := yaml.Unmarshal(text, &part); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		maps.DeleteFunc(part, func(key string, _ any) bool { return strings.HasPrefix(key, "x-") })
		if err := merge(whole, part, ""); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(whole); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// merge adds part to whole. What both have must be objects.
func merge(whole, part map[string]any, at string) error {
	for key, value := range part {
		before, known := whole[key]
		if !known {
			whole[key] = value
			continue
		}
		a, isObject := before.(map[string]any)
		b, too := value.(map[string]any)
		if !isObject || !too {
			return fmt.Errorf("%s/%s is given twice", at, key)
		}
		if err := merge(a, b, at+"/"+key); err != nil {
			return err
		}
	}
	return nil
}

// TestDocumentIsOpenAPI31 holds the document against the schema that OpenAPI has of itself,
// and finds every reference.
func TestDocumentIsOpenAPI31(t *testing.T) {
	t.Parallel()
	doc, err := libopenapi.NewDocument(openapi.Document())
	if err != nil {
		t.Fatal(err)
	}
	if v := doc.GetVersion(); v != "3.1.0" {
		t.Errorf("openapi is %s, want 3.1.0", v)
	}
	if _, err := doc.BuildV3Model(); err != nil {
		t.Errorf("build model: %v", err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if _, flaws := v.ValidateDocument(); len(flaws) > 0 {
		for _, f := range flaws {
			t.Errorf("%s: %s %v", f.Message, f.Reason, f.SchemaValidationErrors)
		}
	}
}

// TestEveryComponentIsUsed finds what nothing refers to, and references to nothing.
func TestEveryComponentIsUsed(t *testing.T) {
	t.Parallel()
	var whole map[string]any
	if err := json.Unmarshal(openapi.Document(), &whole); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	walk(whole, func(key string, value any) {
		if s, ok := value.(string); ok && key == "$ref" {
			used[s] = true
		}
		if value == nil { // a comma in a text without quotes makes such
			t.Errorf("the key %q has no value", key)
		}
	})
	for kind, list := range whole["components"].(map[string]any) {
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

func walk(v any, do func(key string, value any)) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			do(key, value)
			walk(value, do)
		}
	case []any:
		for _, value := range v {
			walk(value, do)
		}
	}
}

// TestOperationsSayWhatTheyAre: what people and generators of clients need of each.
func TestOperationsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	doc, err := libopenapi.NewDocument(openapi.Document())
	if err != nil {
		t.Fatal(err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	tags, ids := map[string]bool{}, map[string]bool{}
	for _, tag := range model.Model.Tags {
		tags[tag.Name] = true
	}
	for path, item := range model.Model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			name := method + " " + path
			if op.OperationId == "" || ids[op.OperationId] {
				t.Errorf("%s: operationId %q is missing or used twice", name, op.OperationId)
			}
			ids[op.OperationId] = true
			if op.Summary == "" || strings.HasSuffix(op.Summary, ".") {
				t.Errorf("%s: summary %q", name, op.Summary)
			}
			if len(op.Tags) != 1 || !tags[op.Tags[0]] {
				t.Errorf("%s: tags %v, want one of those at the top", name, op.Tags)
			}
			if op.Security == nil {
				t.Errorf("%s does not say which scope it needs", name)
			}
			if op.RequestBody != nil {
				for kind, content := range op.RequestBody.Content.FromOldest() {
					if content.Example == nil {
						t.Errorf("%s: a body of %s has no example", name, kind)
						continue
					}
					holds(t, name, content.Schema, content.Example)
				}
			}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.Description == "" {
					t.Errorf("%s: parameter %s has no description", name, p.Name)
				}
				if p.Example != nil {
					holds(t, name+" parameter "+p.Name, p.Schema, p.Example)
				}
			}
		}
	}
	examples := 0
	for name, proxy := range model.Model.Components.Schemas.FromOldest() {
		for _, x := range proxy.Schema().Examples {
			examples++
			holds(t, name, proxy, x)
		}
	}
	if examples == 0 {
		t.Error("no schema has an example")
	}
}

// holds checks an example against its schema.
func holds(t *testing.T, name string, schema *base.SchemaProxy, example interface{ Decode(any) error }) {
	t.Helper()
	var value any
	if err := example.Decode(&value); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	check := schema_validation.NewSchemaValidator(config.WithFormatAssertions())
	if ok, errs := check.ValidateSchemaBytes(schema.Schema(), text); !ok {
		for _, e := range errs {
			t.Errorf("%s: example %s: %s %v", name, text, e.Reason, e.SchemaValidationErrors)
		}
	}
}
