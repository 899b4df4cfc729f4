package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

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
