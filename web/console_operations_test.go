package web

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// many plants n dead letters of one cause and returns the address of its group.
func (s *site) many(n int, fingerprint string) string {
	s.t.Helper()
	s.long(`WITH j AS (INSERT INTO jobs (id, type, queue, version) SELECT uuid_v7(), 'charge', 'billing', 1 FROM generate_series(1, $1::int) RETURNING id)
		INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, fingerprint)
		SELECT j.id, nextval('job_claims_id_seq'), 5, 'billing', 'charge', 'exhausted', 'GatewayTimeout', 'gateway timeout', $2 FROM j`, n, fingerprint)
	return "/dlq/groups/" + fingerprint
}

var (
	askedFor     = regexp.MustCompile(`href="/console(/operations/new\?action=(?:replay|discard)[^"]*)"`)
	hiddenFields = regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)"`)
)

// question opens the page before an act on a whole group, from the group's own page.
func (s *site) question(group, action string) (reply, url.Values) {
	s.t.Helper()
	for _, m := range askedFor.FindAllStringSubmatch(s.get(group).body, -1) {
		at := strings.ReplaceAll(m[1], "&amp;", "&")
		if strings.Contains(at, "action="+action) {
			page := s.get(at)
			form := url.Values{}
			_, own, _ := strings.Cut(page.body, `action="/console/operations"`)
			for _, f := range hiddenFields.FindAllStringSubmatch(own, -1) {
				form.Set(f[1], f[2])
			}
			return page, form
		}
	}
	s.t.Fatalf("%s offers no %s of all", group, action)
	return reply{}, nil
}

// TestF3AllOfAGroup shows the number first, and touches exactly what it showed.
func TestF3AllOfAGroup(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	group := s.many(120, "v1:abc")
	s.many(30, "v1:other")
	page, form := s.question(group, "replay")
	page.shows("the question", http.StatusOK, "Replay 120 jobs?", "Canary", "Steady", "All at once", "charge", "billing", "Reason", "The first of them")
	if form.Get("expected") != "120" {
		t.Fatalf("the form carries %v", form)
	}
	form.Set("pace", "all")
	s.submit("/operations", form).shows("without a reason", http.StatusUnprocessableEntity, "Say why", "Replay 120 jobs?")
	form.Set("reason", "gateway fixed, INC-204")
	s.many(40, "v1:abc") // a third more since the question
	s.submit("/operations", form).shows("after the number moved", http.StatusConflict, "has moved from 120 to 160", "Replay 160 jobs?")
	if n := s.count(`SELECT count(*) FROM operations`); n != 0 {
		t.Fatalf("%d operations were made", n)
	}
	form.Set("expected", "160")
	made := s.submit("/operations", form)
	if made.status != http.StatusSeeOther || !strings.HasPrefix(made.header.Get("Location"), "/console/operations/") {
		t.Fatalf("confirmed = %d to %q", made.status, made.header.Get("Location"))
	}
	at := strings.TrimPrefix(made.header.Get("Location"), "/console")
	s.get(at).shows("its page", http.StatusOK, "Replay 160 jobs", "Running", "0 of 160", "gateway fixed, INC-204", "all at once", "anonymous", "Pause operation", "Stop operation")
	s.get("/operations").shows("the list", http.StatusOK, "Replay 160 jobs", "INC-204", "Running")
	s.get("/audit").shows("the trail", http.StatusOK, "operation replay", "160", "INC-204")
	if n := s.count(`SELECT count(*) FROM operation_jobs AS o JOIN dead_letter_jobs AS d USING (job_id) WHERE d.fingerprint = 'v1:abc'`); n != 160 {
		t.Errorf("the set has %d jobs of the group, want 160", n)
	}
	if n := s.count(`SELECT count(*) FROM operation_jobs`); n != 160 {
		t.Errorf("the set has %d jobs, want 160", n)
	}
	// It is steered by its buttons, and says so when there is nothing to steer any more.
	s.submit(at+"/pause", nil).redirects("pause", http.StatusSeeOther, "/console"+at)
	s.get(at).shows("paused", http.StatusOK, "Paused", "Continue operation", "Stop operation")
	s.submit(at+"/continue", nil)
	s.submit(at+"/stop", nil)
	s.submit(at+"/continue", nil).redirects("continue what has stopped", http.StatusSeeOther, "/console"+at)
	s.get(at).shows("stopped", http.StatusOK, "Stopped", "Ended", "None so far.")
	if got := s.trail(strings.TrimPrefix(at, "/operations/")); strings.Count(got, ";") != 3 || !strings.HasPrefix(got, "operation replay anonymous (no sign-in) console gateway fixed, INC-204 160 true") {
		t.Errorf("the trail is %q", got)
	}
}

func TestThousandsAreTyped(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	group := s.many(1001, "v1:abc")
	page, form := s.question(group, "discard")
	page.shows("the question", http.StatusOK, "Discard 1,001 jobs?", "Type 1001 to confirm")
	if strings.Contains(page.body, "Canary") {
		t.Error("a discard is asked for its pace")
	}
	form.Set("reason", "test data")
	for _, typed := range []string{"", "1000", "1,001", "yes"} {
		form.Set("typed", typed)
		s.submit("/operations", form).shows("typed "+strconv.Quote(typed), http.StatusUnprocessableEntity, "Type the number of jobs", "test data")
	}
	form.Set("typed", "1001")
	if r := s.submit("/operations", form); r.status != http.StatusSeeOther {
		t.Errorf("typed rightly = %d: %.300s", r.status, plainText(r.body))
	}
}

func TestOperationsRefuseWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.many(5, "v1:abc")
	for _, q := range []string{"", "action=delete", "action=replay&action=discard", "action=replay&unknown=1", "action=replay&queue=%00"} {
		if r := s.get("/operations/new?" + q); r.status != http.StatusBadRequest {
			t.Errorf("?%s = %d", q, r.status)
		}
	}
	s.get("/operations/new?action=replay&queue=nowhere").shows("nothing fits", http.StatusNotFound, "No dead job fits any more")
	for _, id := range []string{"x", "01000000-0000-7000-8000-000000000000", "%00"} {
		if r := s.get("/operations/" + id); r.status != http.StatusNotFound {
			t.Errorf("operation %s = %d", id, r.status)
		}
		if r := s.submit("/operations/"+id+"/stop", nil); r.status != http.StatusNotFound {
			t.Errorf("stop %s = %d", id, r.status)
		}
	}
	good := url.Values{"action": {"replay"}, "expected": {"5"}, "pace": {"all"}, "reason": {"x"}}
	for field, values := range map[string][]string{"expected": {"", "x", "0", "-1", "99999999999999999999"}, "action": {"", "cancel", "run_now"},
		"pace": {"fast", ""}, "per_minute": {"0", "x", "1000001", "-5"}, "reason": {strings.Repeat("x", 501), "a\x00b"}} {
		for _, v := range values {
			form := url.Values{}
			for k := range good {
				form.Set(k, good.Get(k))
			}
			form.Set(field, v)
			if field == "per_minute" {
				form.Set("pace", "rate")
			}
			r := s.submit("/operations", form)
			if field == "pace" && v == "" {
				continue // a form without script that left it out takes all
			}
			if r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity {
				t.Errorf("%s %.30q = %d: %.200s", field, v, r.status, plainText(r.body))
			}
		}
	}
}
