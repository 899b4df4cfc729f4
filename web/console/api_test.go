package console

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// TestReferenceTellsEveryOperation with all that a caller needs, and leads to no schema that
// is not told.
func TestReferenceTellsEveryOperation(t *testing.T) {
	t.Parallel()
	m, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, s := range m.Schemas {
		shown[s.Name] = true
		if len(s.Fields) == 0 && s.Rule == "" {
			t.Errorf("schema %s has neither fields nor a rule", s.Name)
		}
	}
	leads := func(where string, to views.APIType) {
		if to.Schema != "" && !shown[to.Schema] {
			t.Errorf("%s leads to the schema %s, which is not told", where, to.Schema)
		}
	}
	for _, s := range m.Schemas {
		for _, f := range s.Fields {
			leads(s.Name+"."+f.Name, f.Type)
		}
	}
	told := 0
	for _, g := range m.Groups {
		if len(g.Operations)+len(g.Twins) == 0 || g.Text == "" {
			t.Errorf("group %s is empty", g.Name)
		}
		told += len(g.Operations) + len(g.Twins)
		for _, o := range g.Operations {
			if o.Summary == "" || o.Needs == "" || len(o.Answers) == 0 || !strings.HasPrefix(o.Curl, "curl ") || strings.ContainsAny(o.Curl, "{}<>") && o.Body == nil {
				t.Errorf("%s %s is told by %+v", o.Method, o.Path, o)
			}
			for _, p := range o.Parameters {
				leads(o.ID, p.Type)
				if p.Name == "" || p.Text == "" || p.Type.Name == "" {
					t.Errorf("%s has the parameter %+v", o.ID, p)
				}
			}
			for _, a := range o.Answers {
				if a.Text == "" || a.Status >= "4" && a.Status != "503" && len(a.Codes) == 0 {
					t.Errorf("%s has the answer %+v", o.ID, a)
				}
				if len(a.Codes) == 0 {
					leads(o.ID, a.Type)
				}
			}
			if o.Body != nil {
				leads(o.ID, o.Body.Type)
				if o.Body.Required && len(o.Body.Fields) == 0 && o.Body.Type.Schema != "DeadLetterOperation" {
					t.Errorf("%s does not tell the fields of its body", o.ID)
				}
				if o.Body.Required && !strings.Contains(o.Curl, "-d '{") {
					t.Errorf("%s has a body, and the command %s", o.ID, o.Curl)
				}
			}
		}
	}
	if want := strings.Count(string(openapi.Document()), `"operationId":`); told != want || want < 40 {
		t.Errorf("%d operations told, of %d", told, want)
	}
}

// TestReferenceTellsEveryAnswer: those that are told once stand in every operation by their
// status, so that nothing is lost.
func TestReferenceTellsEveryAnswer(t *testing.T) {
	t.Parallel()
	m, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	var common, codes []string
	for _, a := range m.Common {
		common = append(common, a.Status)
		codes = append(codes, a.Codes...)
	}
	for _, code := range []string{"unauthenticated", "forbidden", "rate-limited", "request-timeout", "timeout", "unavailable", "internal"} {
		if !slices.Contains(codes, code) {
			t.Errorf("%s is not among what is told once: %v", code, codes)
		}
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(openapi.Document(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, g := range m.Groups {
		for _, o := range g.Operations {
			var op struct{ Responses map[string]json.RawMessage }
			if err := json.Unmarshal(doc.Paths[o.Path][strings.ToLower(o.Method)], &op); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range o.Answers {
				got = append(got, a.Status)
			}
			for status := range strings.SplitSeq(o.Common, ", ") {
				if got = append(got, status); !slices.Contains(common, status) {
					t.Errorf("%s names the answer %s, which is not told", o.ID, status)
				}
			}
			slices.Sort(got)
			if want := slices.Sorted(maps.Keys(op.Responses)); !slices.Equal(got, want) {
				t.Errorf("%s is told with the answers %v, want %v", o.ID, got, want)
			}
		}
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
		"Enqueue.payload": "any JSON:", "Job.lease.worker_id": "Token:", "Preview.groups[].jobs": "integer: at least 0",
	} {
		if got[field] != want {
			t.Errorf("%s is told as %q, want %q", field, got[field], want)
		}
	}
}
