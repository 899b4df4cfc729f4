package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const bulkPath = "/api/v1/jobs/bulk"

func (s *site) bulk(body string, headers ...string) reply {
	s.t.Helper()
	return s.do("POST", bulkPath, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

func TestManyAreEnqueuedAllOrNone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got := s.bulk(`{"jobs":[{"type":"email","payload":{"n":0}},{"type":"report","queue":"r","priority":"high","delay_seconds":60},
		{"type":"email","idempotency_key":"twin"},{"type":"email","idempotency_key":"twin"},{"type":"email","payload":{"n":4},"unique":{"key":"u"}}]}`, "Traceparent", parent)
	if got.status != http.StatusCreated || got.text("jobs", "1", "queue") != "r" || fmt.Sprint(got.field("jobs", "1", "priority")) != "3" ||
		got.text("jobs", "2", "id") != got.text("jobs", "3", "id") || got.field("jobs", "5") != nil || got.header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("bulk = %d %s", got.status, got.body)
	}
	for i, n := range map[string]string{"0": "0", "4": "4"} {
		if one := s.do("GET", "/api/v1/jobs/"+got.text("jobs", i, "id"), ""); fmt.Sprint(one.field("payload", "n")) != n || one.text("traceparent") != parent {
			t.Errorf("job %s = %s", i, one.body)
		}
	}
	before := s.count("SELECT count(*) FROM jobs")
	bad := s.bulk(`{"jobs":[{"type":"email"},{"type":"email","priority":6,"colour":"red"},{"typ":"email"},"job",{"type":"email","payload":{"a":{"b":"\u0000"}}}]}`)
	bad.refused("bad jobs", 422, "validation-failed", "/jobs/1/priority")
	var pointers []string
	flaws, _ := bad.field("errors").([]any)
	for i := range flaws {
		pointers = append(pointers, bad.text("errors", fmt.Sprint(i), "pointer"))
	}
	if strings.Join(pointers, " ") != "/jobs/1/priority /jobs/1/colour /jobs/2/type /jobs/2/typ /jobs/3" {
		t.Errorf("pointers %v", pointers)
	}
	s.bulk(`{"jobs":[{"type":"email"},{"type":"e mail"}]}`).refused("a name only the engine checks", 422, "validation-failed", "/jobs/1/type")
	s.bulk(`{"jobs":[{"type":"email"},{"type":"email","payload":{"a":{"b":"\u0000"}}}]}`).refused("a NUL", 422, "validation-failed", "/jobs/1/payload/a/b")
	s.bulk(`{"jobs":[{"type":"email"},{"type":"email","payload":{"other":1},"idempotency_key":"twin"}]}`).
		refused("a key with other content", 422, "idempotency-key-reused", "/jobs/1/idempotency_key")
	held := s.bulk(`{"jobs":[{"type":"email"},{"type":"email","unique":{"key":"u","on_conflict":"reject"}}]}`)
	held.refused("a unique key", 409, "unique-conflict", "/jobs/1/unique/key")
	if held.text("job_id") != got.text("jobs", "4", "id") {
		t.Errorf("the holder: %s", held.body)
	}
	for body, place := range map[string]string{
		`{}`: "/jobs", `{"jobs":[]}`: "/jobs", `{"jobs":{}}`: "/jobs", `{"jobs":null}`: "/jobs", `{"jobs":[1]}`: "/jobs/0", `[]`: "",
		`{"jobs":[{"type":"email"}],"atomic":"no"}`: "/atomic", `{"jobs":[{"type":"email"}],"atomik":true}`: "/atomik",
		`{"jobs":[{"type":"email","type":"email"}]}`:                            "/jobs/0/type",
		`{"jobs":[{"type":"email","payload":` + nestedObject(65) + `}]}`:        "/jobs/0/payload",
		`{"jobs":[{"type":"email","payload":` + nestedObject(500) + `}]}`:       "/jobs",
		`{"jobs":[{"type":"email","run_at":"2026-12-01","delay_seconds":5}]}`:   "/jobs/0/run_at",
		`{"jobs":[{"type":"email","unique":{"key":"x","scope":"everywhere"}}]}`: "/jobs/0/unique/scope",
	} {
		s.bulk(body).refused(body[:min(len(body), 80)], 422, "validation-failed", place)
	}
	s.bulk(`{"jobs":[{]}`).refused("no JSON", 400, "malformed-json", "")
	s.do("POST", bulkPath, `{"jobs":[]}`, "Content-Type", "text/plain").refused("text", 415, "unsupported-media-type", "")
	if n := s.count("SELECT count(*) FROM jobs"); n != before {
		t.Errorf("refused calls left %d jobs", n-before)
	}
}

func nestedObject(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }

func TestABulkUnderAKeyIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"jobs":[{"type":"email"},{"type":"report","priority":5}]}`
	first := s.bulk(body, "Idempotency-Key", `"b-1"`)
	again := s.bulk(`{"atomic":true,"jobs":[ {"payload":{},"type":"email"}, {"priority":"critical","type":"report"} ]}`, "Idempotency-Key", "b-1")
	if first.status != 201 || again.status != 200 || again.header.Get("Idempotency-Replayed") != "true" || again.body != first.body || s.count("SELECT count(*) FROM jobs") != 2 {
		t.Errorf("first %d %s, again %d %s", first.status, first.body, again.status, again.body)
	}
	reused := s.bulk(`{"jobs":[{"type":"email"}]}`, "Idempotency-Key", "b-1")
	reused.refused("other content", 422, "idempotency-key-reused", "")
	if reused.text("job_id") != first.text("jobs", "0", "id") {
		t.Errorf("the holder: %s", reused.body)
	}
	s.post(`{"type":"email"}`, "Idempotency-Key", "b-1").refused("one job under the key of many", 422, "idempotency-key-reused", "")
	s.bulk(`{"jobs":[{"type":"email","idempotency_key":"b-2"}]}`, "Idempotency-Key", "b-2").refused("the key of the call", 422, "validation-failed", "/jobs/0/idempotency_key")
	s.bulk(body, "Idempotency-Key", strings.Repeat("k", 256)).refused("a key too long", 422, "validation-failed", "Idempotency-Key")
	s.bulk(`{"atomic":false,"jobs":[{"type":"email"}]}`, "Idempotency-Key", "b-3").refused("a key for each by itself", 422, "validation-failed", "Idempotency-Key")
}

func TestManyAreEnqueuedEachByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	there := s.enqueue(`{"type":"email","unique":{"key":"u"}}`, "Idempotency-Key", "there")
	got := s.bulk(`{"atomic":false,"jobs":[{"type":"email","payload":{"n":0}},{"type":"email","priority":9},{"type":"e mail"},{"type":"email","unique":{"key":"u"},"idempotency_key":"there"},
		{"type":"email","idempotency_key":"there"},{"type":"email","unique":{"key":"u","on_conflict":"reject"}},{"type":"email","unique":{"key":"u"}},
		{"type":"email","payload":{"x":"` + strings.Repeat("y", 262144) + `"}},{"type":"report"}]}`)
	if got.status != http.StatusOK || fmt.Sprint(got.field("refused")) != "5" {
		t.Fatalf("bulk = %d %.2000s", got.status, got.body)
	}
	for i, want := range []struct {
		status      int
		code, place string
	}{{201, "", ""}, {422, "validation-failed", "/jobs/1/priority"}, {422, "validation-failed", "/jobs/2/type"}, {200, "", ""},
		{422, "idempotency-key-reused", "/jobs/4/idempotency_key"}, {409, "unique-conflict", "/jobs/5/unique/key"}, {200, "", ""},
		{422, "validation-failed", "/jobs/7/payload"}, {201, "", ""}} {
		n := fmt.Sprint(i)
		status, _ := got.field("jobs", n, "status").(json.Number)
		if status.String() != fmt.Sprint(want.status) || got.text("jobs", n, "problem", "code") != want.code || got.text("jobs", n, "problem", "errors", "0", "pointer") != want.place ||
			(want.code == "") != (got.text("jobs", n, "job", "id") != "") {
			t.Errorf("job %d = %v, want %+v", i, got.field("jobs", n), want)
		}
	}
	if got.text("jobs", "3", "job", "id") != there || got.field("jobs", "3", "idempotency_replayed") != true || got.text("jobs", "6", "job", "unique_outcome") != "held" ||
		got.text("jobs", "5", "problem", "job_id") != there || got.text("jobs", "5", "problem", "request_id") != got.header.Get("X-Request-Id") {
		t.Errorf("jobs = %.3000s", got.body)
	}
	if n := s.count("SELECT count(*) FROM jobs"); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
}

// TestBulksOfHostileSizes are refused by name, and the largest that is allowed is not.
func TestBulksOfHostileSizes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	jobs := func(n int, job string) string {
		return `{"jobs":[` + strings.TrimSuffix(strings.Repeat(job+",", n), ",") + `]}`
	}
	s.bulk(jobs(1001, `{"type":"email"}`)).refused("1,001 jobs", 422, "validation-failed", "/jobs")
	s.bulk(jobs(2<<20-20, `1`)).refused("two million numbers", 422, "validation-failed", "/jobs")
	many := s.bulk(jobs(1000, `{"x":1}`))
	many.refused("1,000 bad jobs", 422, "validation-failed", "/jobs/0/type")
	if flaws, _ := many.field("errors").([]any); len(flaws) != 100 || !strings.HasPrefix(many.text("detail"), "2000 fields need attention.") {
		t.Errorf("%d flaws told: %s", len(flaws), many.text("detail"))
	}
	pad := func(size int) string {
		body := jobs(16, `{"type":"email","payload":{"x":"`+strings.Repeat("y", 250_000)+`"}}`)
		return body + strings.Repeat(" ", size-len(body))
	}
	s.bulk(pad(4<<20+1)).refused("a byte more than 4 MiB", 413, "payload-too-large", "")
	s.bulk(jobs(1, `{"type":"email","payload":{"x":"`+strings.Repeat("y", 262144)+`"}}`)).refused("one job too large", 422, "validation-failed", "/jobs/0/payload")
	endless := &endlessBody{}
	s.send("POST", bulkPath, endless, "Authorization", "Bearer "+apiToken, "Content-Type", "application/json").refused("an endless body", 413, "payload-too-large", "")
	s.nothingStored()
	if got := s.bulk(pad(4 << 20)); got.status != 201 {
		t.Errorf("4 MiB = %d %.300s", got.status, got.body)
	}
	if got := s.bulk(jobs(1000, `{"type":"email"}`)); got.status != 201 || s.count("SELECT count(*) FROM job_ready") != 1016 {
		t.Errorf("1,000 jobs = %d %.300s", got.status, got.body)
	}
}
