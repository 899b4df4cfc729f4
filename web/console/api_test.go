package console

import (
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// TestReferenceTellsEveryOperation with all that a caller needs, and leads nowhere that is not
// on the page.
func TestReferenceTellsEveryOperation(t *testing.T) {
	t.Parallel()
	m, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, s := range m.Schemas {
		anchors[s.Name] = true
		if len(s.Fields) == 0 && s.Rule == "" {
			t.Errorf("schema %s has neither fields nor a rule", s.Name)
		}
	}
	told, leads := 0, func(where, schema string) {
		if schema != "" && !anchors[schema] && !strings.HasPrefix(schema, "Problem") {
			t.Errorf("%s leads to the schema %s, which is not on the page", where, schema)
		}
	}
	for _, g := range m.Groups {
		if len(g.Operations) == 0 || g.Text == "" {
			t.Errorf("group %s is empty", g.Name)
		}
		for _, o := range g.Operations {
			told++
			if o.Summary == "" || o.Needs == "" || len(o.Answers) == 0 || !strings.HasPrefix(o.Curl, "curl ") || strings.ContainsAny(o.Curl, "{}<>") && o.Body == nil {
				t.Errorf("%s %s is told by %+v", o.Method, o.Path, o)
			}
			for _, p := range o.Parameters {
				leads(o.ID, p.Type.Schema)
				if p.Name == "" || p.Text == "" || p.Type.Name == "" {
					t.Errorf("%s has the parameter %+v", o.ID, p)
				}
			}
			for _, a := range o.Answers {
				if a.Text == "" || a.Status >= "4" && a.Status != "503" && len(a.Codes) == 0 {
					t.Errorf("%s has the answer %+v", o.ID, a)
				}
				if len(a.Codes) == 0 {
					leads(o.ID, a.Type.Schema)
				}
			}
			if o.Body != nil && (len(o.Body.Fields) == 0 || o.Body.Required && !strings.Contains(o.Curl, "-d '{")) {
				t.Errorf("%s has the body %+v and the command %s", o.ID, o.Body, o.Curl)
			}
		}
	}
	if want := strings.Count(string(openapi.Document()), `"operationId":`); told != want || want < 40 {
		t.Errorf("%d operations told, of %d", told, want)
	}
}

func TestRulesOfASchemaInWords(t *testing.T) {
	t.Parallel()
	m, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range m.Schemas {
		for _, f := range s.Fields {
			got[s.Name+"."+f.Name] = strings.TrimSpace(f.Type.Name + ": " + f.Rule)
		}
	}
	for field, want := range map[string]string{
		"Enqueue.max_attempts": "integer: at least 1; at most 100", "Enqueue.tags": "array of string: at most 20 of them; each at least 1 characters; at most 100 characters",
		"Enqueue.type": "Name:", "Enqueue.run_at": "date-time:", "Unique.scope": "string: one of: type, queue, global; default type", "JobList.next_cursor": "string or null:",
		"Enqueue.payload": "any JSON:",
	} {
		if got[field] != want {
			t.Errorf("%s is told as %q, want %q", field, got[field], want)
		}
	}
}
