package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

func TestASchemaIsSetReadAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = "/api/v1/types/order%3Amade/schema"
	s.do("GET", path, "").refused("none yet", http.StatusNotFound, "not-found", "")
	s.ask("DELETE", path, "").refused("removal of none", http.StatusNotFound, "not-found", "")
	set := s.ask("PUT", path, `{"schema":{"required":["to"],"minimum":9007199254740993},"reason":"since 2.4"}`)
	if set.status != http.StatusOK || set.text("type") != "order:made" || fmt.Sprint(set.field("version")) != "1" || set.text("updated_by") == "" ||
		fmt.Sprint(set.field("schema", "minimum")) != "9007199254740993" {
		t.Fatalf("PUT = %d %s", set.status, set.body)
	}
	if got := s.do("GET", path, ""); got.status != http.StatusOK || got.body != set.body {
		t.Errorf("GET = %d %s, want %s", got.status, got.body, set.body)
	}
	if n := s.count("SELECT count(*) FROM operator_actions WHERE action = 'set_schema' AND target = 'order:made' AND source = 'api' AND reason = 'since 2.4' AND request_id IS NOT NULL"); n != 1 {
		t.Errorf("%d audit rows, want 1", n)
	}
	s.post(`{"type":"order:made"}`).refused("a payload", http.StatusUnprocessableEntity, "schema-violation", "/payload/to")
	gone := s.ask("DELETE", path, `{"reason":"too strict"}`)
	if gone.status != http.StatusNoContent || gone.body != "" {
		t.Errorf("DELETE = %d %s", gone.status, gone.body)
	}
	s.enqueue(`{"type":"order:made"}`)
	for body, place := range map[string]string{
		`{}`: "/schema", `{"schema":[]}`: "/schema", `{"schema":null}`: "/schema", `{"schema":{"type":"strin"}}`: "/schema", `{"schema":{},"scheme":1}`: "/scheme",
		`{"schema":{},"reason":7}`: "/reason", `{"schema":{"a":{"b.c":"\ud800"}}}`: "/schema/a/b.c", `{"schema":{"$ref":"http://127.0.0.1/x"}}`: "/schema",
	} {
		s.ask("PUT", path, body).refused(body, http.StatusUnprocessableEntity, "validation-failed", place)
	}
	s.ask("PUT", "/api/v1/types/order%20made/schema", `{"schema":{}}`).refused("a bad name", http.StatusUnprocessableEntity, "validation-failed", "/type")
	s.ask("PUT", path, `{"schema":{"description":"`+strings.Repeat("x", engine.MaxSchemaBytes)+`"}}`).refused("too large", http.StatusUnprocessableEntity, "validation-failed", "/schema")
	s.ask("PUT", path, `{"schema":{"description":"`+strings.Repeat("x", 2*engine.MaxSchemaBytes)+`"}}`).refused("far too large", http.StatusRequestEntityTooLarge, "payload-too-large", "")
}

func TestAMisfitIsNamedByItsPlaceAtEveryDoorOfTheWeb(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	later := s.enqueue(`{"type":"strict","delay_seconds":3600}`)
	s.ask("PUT", "/api/v1/types/strict/schema", `{"schema":{"properties":{"a.b":{"properties":{"c/d":{"type":"integer"}}}}}}`)
	const bad, good = `{"a.b":{"c/d":"secret"}}`, `{"a.b":{"c/d":1}}`
	refused := s.post(`{"type":"strict","payload":` + bad + `}`)
	refused.refused("one", http.StatusUnprocessableEntity, "schema-violation", "/payload/a.b/c~1d")
	if refused.field("errors", "0", "code") != "schema" || strings.Contains(refused.body, "secret") {
		t.Errorf("refused with %s", refused.body)
	}
	s.enqueue(`{"type":"strict","payload":` + good + `}`)
	s.patch(later, `{"payload":`+bad+`}`, "If-Match", "*").refused("an edit", http.StatusUnprocessableEntity, "schema-violation", "/payload/a.b/c~1d")
	many := `{"jobs":[{"type":"strict"},{"type":"strict","payload":` + bad + `}]`
	s.bulk(many+`}`).refused("among many", http.StatusUnprocessableEntity, "schema-violation", "/jobs/1/payload/a.b/c~1d")
	each := s.bulk(many + `,"atomic":false}`)
	if got := fmt.Sprintln(each.field("jobs", "0", "status"), each.field("jobs", "1", "status"), each.field("jobs", "1", "problem", "code"),
		each.field("jobs", "1", "problem", "errors", "0", "pointer")); got != "201 422 schema-violation /jobs/1/payload/a.b/c~1d\n" {
		t.Errorf("each = %s", each.body)
	}
	form := url.Values{"type": {"strict"}, "payload": {bad}}
	s.submit("/jobs", form).shows("the console's form", http.StatusUnprocessableEntity, "a.b.c/d: is of type string, must be integer", "strict")
	form.Set("payload", good)
	if got := s.submit("/jobs", form); got.status != http.StatusSeeOther {
		t.Errorf("what fits, from the console = %d", got.status)
	}
	s.get("/audit").shows("the audit page", http.StatusOK, "set_schema", "type strict")
	s.get("/help").shows("its help", http.StatusOK, "does not fit the schema")
}
