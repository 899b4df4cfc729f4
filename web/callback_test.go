package web

import (
	"net/url"
	"strings"
	"testing"
)

// TestACallbackOverHTTP is asked for, refused in its place, and seen on both jobs.
func TestACallbackOverHTTP(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	const hook = "https://example.com/hook"
	id := s.enqueue(`{"type":"email","callback_url":"` + hook + `"}`)
	before := s.do("GET", "/api/v1/jobs/"+id, "")
	if before.text("callback", "url") != hook || before.field("callback", "job_id") != nil || before.field("callback", "status") != nil {
		t.Errorf("before the end: %s", before.body)
	}
	s.get("/jobs/"+id).shows("the job's page", 200, "Related", "Callback", "when the job ends", hook)
	if got := s.do("DELETE", "/api/v1/jobs/"+id, ""); got.status != 200 {
		t.Fatalf("DELETE = %d %s", got.status, got.body)
	}
	ended := s.do("GET", "/api/v1/jobs/"+id, "")
	callback := ended.text("callback", "job_id")
	if callback == "" || ended.text("callback", "status") != "pending" {
		t.Fatalf("after the end: %s", ended.body)
	}
	made := s.do("GET", "/api/v1/jobs/"+callback, "")
	if made.text("callback_of") != id || made.text("type") != "webhook" || made.text("payload", "url") != hook || made.text("payload", "body", "data", "id") != id {
		t.Errorf("the callback: %s", made.body)
	}
	s.get("/jobs/"+id).shows("the job's page", 200, `href="/console/jobs/`+callback+`"`, "waiting", hook)
	s.get("/jobs/"+callback).shows("the callback's page", 200, "Callback of", `href="/console/jobs/`+id+`"`)

	// What becomes of the callback is a change of the job as it is read.
	tag := ended.header.Get("ETag")
	if got := s.do("GET", "/api/v1/jobs/"+id, "", "If-None-Match", tag); got.status != 304 {
		t.Errorf("unchanged: %d", got.status)
	}
	if got := s.do("DELETE", "/api/v1/jobs/"+callback, ""); got.status != 200 {
		t.Fatalf("DELETE = %d %s", got.status, got.body)
	}
	if got := s.do("GET", "/api/v1/jobs/"+id, "", "If-None-Match", tag); got.status != 200 || got.text("callback", "status") != "cancelled" {
		t.Errorf("the callback was cancelled: %d %s", got.status, got.body)
	}
	if got := s.do("GET", "/api/v1/jobs/"+s.enqueue(`{"type":"email"}`), ""); got.field("callback") != nil || got.field("callback_of") != nil {
		t.Errorf("without: %s", got.body)
	}

	for body, place := range map[string]string{`"x"`: "/callback_url", `5`: "/callback_url", `""`: "/callback_url", `"ftp://example.com"`: "/callback_url",
		`"https://ann:secret@example.com"`: "/callback_url", `"https://example.com/` + strings.Repeat("x", 2048) + `"`: "/callback_url"} {
		s.post(`{"type":"email","callback_url":`+body+`}`).refused(body, 422, "validation-failed", place)
	}
	s.post(`{"type":"webhook","callback_url":"`+hook+`","copied_from":"`+callback+`"}`).refused("a callback of a callback", 422, "validation-failed", "/callback_url")
	s.bulk(`{"jobs":[{"type":"email"},{"type":"email","callback_url":"x"}]}`).refused("among many", 422, "validation-failed", "/jobs/1/callback_url")
	if got := s.bulk(`{"jobs":[{"type":"email","callback_url":"` + hook + `"},{"type":"email"}]}`); got.status != 201 {
		t.Errorf("many: %d %s", got.status, got.body)
	} else if one := s.do("GET", "/api/v1/jobs/"+got.text("jobs", "0", "id"), ""); one.text("callback", "url") != hook {
		t.Errorf("one of many: %s", one.body)
	}
	s.bulk(`{"jobs":[{"type":"email"},{"type":"webhook","callback_url":"`+hook+`","copied_from":"`+callback+`"}]}`).refused("a callback of a callback among many", 422, "validation-failed", "/jobs/1/callback_url")
}

// TestACallbackByTheForm of a new job, and by that of a copy.
func TestACallbackByTheForm(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	const hook = "https://example.com/hook"
	form := url.Values{"type": {"email"}, "payload": {"{}"}, "callback_url": {"example.com"}}
	s.submit("/jobs", form).shows("the form", 422, "callback_url", `value="example.com"`)
	form.Set("callback_url", hook)
	if got := s.submit("/jobs", form); got.status != 303 {
		t.Fatalf("POST = %d %s", got.status, got.body)
	}
	s.until(1, "SELECT count(*) FROM jobs JOIN owed_callbacks ON job_id = id WHERE callback_url = $1", hook)
	var id string
	if err := s.pool.QueryRow(t.Context(), "SELECT id FROM jobs").Scan(&id); err != nil {
		t.Fatal(err)
	}
	s.get("/jobs/new?from="+id).shows("the form of a copy", 200, `value="`+hook+`"`)
}

// TestAFailedCallbackIsSeen on the job it tells of.
func TestAFailedCallbackIsSeen(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.exec(`CREATE FUNCTION no_callbacks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of order'; END $$`)
	s.exec(`CREATE TRIGGER no_callbacks BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.callback_of IS NOT NULL) EXECUTE FUNCTION no_callbacks()`)
	id := s.enqueue(`{"type":"email","callback_url":"https://example.com/hook"}`)
	if got := s.do("DELETE", "/api/v1/jobs/"+id, ""); got.status != 200 {
		t.Fatalf("DELETE = %d %s", got.status, got.body)
	}
	if got := s.do("GET", "/api/v1/jobs/"+id, ""); got.text("status") != "cancelled" || got.text("callback", "error") != "out of order" || got.text("callback", "failed_at") == "" {
		t.Errorf("the job: %s", got.body)
	}
	s.get("/jobs/"+id).shows("its page", 200, "could not be made", "out of order")
}
