package web

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// trail is what an act must leave behind, whichever door it came by.
func (s *site) trail(id string) string {
	s.t.Helper()
	return s.text(`SELECT string_agg(action || ' ' || actor || ' ' || source || ' ' || coalesce(reason, '-') || ' ' || affected || ' ' ||
		(request_id IS NOT NULL) || ' ' || coalesce(address, '-'), '; ' ORDER BY id) FROM operator_actions WHERE target = $1`, id)
}

func (s *site) text(sql string, args ...any) string {
	s.t.Helper()
	var out *string
	ctx, cancel := shortly()
	defer cancel()
	if err := s.pool.QueryRow(ctx, sql, args...).Scan(&out); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	if out == nil {
		return ""
	}
	return *out
}

// where tells a job's state as the engine has it.
func (s *site) where(id string) string {
	s.t.Helper()
	return s.text(`SELECT state || CASE WHEN discarded_at IS NOT NULL THEN ' discarded' ELSE '' END FROM job_states WHERE id = $1`, id)
}

// buried is a dead job that no worker takes.
func (s *site) buried() string {
	s.t.Helper()
	id := s.enqueue(`{"type":"email","queue":"mail"}`)
	s.die(id, int64(s.count(`SELECT nextval('job_claims_id_seq')`)))
	return id
}

// TestEveryButtonWorksEverywhere does each act by each door: effect and audit row
// must be the same.
func TestEveryButtonWorksEverywhere(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	row := func(id string) []string { return fragment("tr#dead-" + id) }
	waiting := func() string { return s.enqueue(`{"type":"email","queue":"mail"}`) }
	later := func() string { return s.enqueue(`{"type":"email","queue":"mail","delay_seconds":3600}`) }
	running := func() string {
		id := waiting()
		s.run(id, int64(s.count(`SELECT nextval('job_claims_id_seq')`)))
		return id
	}
	why := url.Values{"reason": {"INC-204"}}
	for _, act := range []struct {
		name, state string
		job         func() string
		doors       map[string]func(id string) reply
	}{
		{"replay", "pending", s.buried, map[string]func(string) reply{
			"list": func(id string) reply { return s.submit("/dlq/"+id+"/replay", why, row(id)...) },
			"detail": func(id string) reply {
				return s.submit("/dlq/"+id+"/replay", why, "Referer", s.url+"/console/jobs/"+id)
			},
			"api": func(id string) reply {
				return s.send("POST", "/api/v1/dlq/"+id+"/replay", strings.NewReader(`{"reason":"INC-204"}`), "Content-Type", "application/json")
			},
		}},
		{"discard", "dead_letter discarded", s.buried, map[string]func(string) reply{
			"list":   func(id string) reply { return s.submit("/dlq/"+id+"/discard", why, row(id)...) },
			"detail": func(id string) reply { return s.submit("/dlq/"+id+"/discard", why) },
			"api": func(id string) reply {
				return s.send("POST", "/api/v1/dlq/"+id+"/discard", strings.NewReader(`{"reason":"INC-204"}`), "Content-Type", "application/json")
			},
		}},
		{"cancel", "cancelled", waiting, map[string]func(string) reply{
			"detail": func(id string) reply { return s.submit("/jobs/"+id+"/cancel", why) },
			"dialog": func(id string) reply { return s.submit("/jobs/"+id+"/cancel", why, fragment("div#dialog-body")...) },
		}},
		{"run_now", "pending", later, map[string]func(string) reply{
			"detail": func(id string) reply { return s.submit("/jobs/"+id+"/run-now", why) },
			"api": func(id string) reply {
				return s.send("POST", "/api/v1/jobs/"+id+"/run-now", strings.NewReader(`{"reason":"INC-204"}`), "Content-Type", "application/json")
			},
		}},
		{"stop", "leased", running, map[string]func(string) reply{
			"detail": func(id string) reply { return s.submit("/jobs/"+id+"/stop", why) },
			"dialog": func(id string) reply { return s.submit("/jobs/"+id+"/stop", why, fragment("div#dialog-body")...) },
			"api": func(id string) reply {
				return s.send("POST", "/api/v1/jobs/"+id+"/stop", strings.NewReader(`{"reason":"INC-204"}`), "Content-Type", "application/json")
			},
		}},
	} {
		for door, do := range act.doors {
			id := act.job()
			r := do(id)
			if r.status >= 400 {
				t.Errorf("%s by %s = %d: %.300s", act.name, door, r.status, plainText(r.body))
				continue
			}
			source, actor := "console", "anonymous (no sign-in)"
			if door == "api" {
				source, actor = "api", "development"
			}
			if got, want := s.trail(id), act.name+" "+actor+" "+source+" INC-204 1 true 127.0.0.1"; got != want {
				t.Errorf("%s by %s left %q, want %q", act.name, door, got, want)
			}
			if got := s.where(id); got != act.state {
				t.Errorf("%s by %s: the job is %s, want %s", act.name, door, got, act.state)
			}
		}
	}
}

func TestReplayInOneClickWithAndWithoutScript(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.buried()
	list := s.get("/dlq?view=jobs")
	list.shows("list", http.StatusOK, `action="/console/dlq/`+id+`/replay"`, `data-testid="replay"`)
	r := s.submit("/dlq/"+id+"/replay", nil, "Referer", s.url+"/console/dlq?view=jobs")
	r.redirects("replay without script", http.StatusSeeOther, "/console/dlq?view=jobs")
	flash := s.get("/dlq?view=jobs", "Cookie", flashOf(r))
	flash.shows("the page after it", http.StatusOK, "was replayed and is ready again", "No dead jobs.")
	if !strings.Contains(strings.Join(flash.header.Values("Set-Cookie"), ";"), "console_flash=; ") {
		t.Errorf("the flash is not taken away: %v", flash.header.Values("Set-Cookie"))
	}
	if c := r.header.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Lax") {
		t.Errorf("flash cookie %q", c)
	}

	scripted := s.buried()
	row := s.submit("/dlq/"+scripted+"/replay", nil, fragment("tr#dead-"+scripted)...)
	row.shows("the row after it", http.StatusOK, "Replayed", "→ Ready", "/console/jobs/"+scripted+"/cancel", "was replayed", "hx-partial")
	if strings.Contains(row.body, "<html") || !strings.Contains(row.body, `id="dead-`+scripted+`"`) {
		t.Errorf("the answer is no row: %.300s", row.body)
	}
}

func flashOf(r reply) string {
	c, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	return c
}

func TestDiscardUndoAndRestore(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.buried()
	r := s.submit("/dlq/"+id+"/discard", url.Values{"reason": {"duplicate"}})
	r.redirects("discard", http.StatusSeeOther, "/console/dlq?view=jobs")
	s.get("/dlq?view=jobs", "Cookie", flashOf(r)).shows("after it", http.StatusOK, "Undo", `action="/console/dlq/`+id+`/restore"`, "No dead jobs.")
	s.get("/dlq?view=discarded").shows("discarded", http.StatusOK, short(id), "Restore")
	s.submit("/dlq/"+id+"/restore", nil).redirects("undo", http.StatusSeeOther, "/console/dlq?view=discarded")
	if got := s.where(id); got != "dead_letter" {
		t.Errorf("after undo the job is %s", got)
	}
	s.get("/dlq?view=jobs").shows("the list again", http.StatusOK, short(id))
}

func TestTwoOperatorsAndOneJob(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.buried()
	s.submit("/dlq/"+id+"/replay", url.Values{"reason": {"first"}})
	second := s.submit("/dlq/"+id+"/replay", nil)
	second.shows("the second replay", http.StatusConflict, "The job has changed", "was not replayed: it is waiting", "Ready", "Replayed by anonymous (no sign-in)")
	s.submit("/dlq/"+id+"/replay", nil, fragment("div#live")...).shows("by script", http.StatusConflict, "was not replayed")
	row := s.submit("/dlq/"+id+"/replay", nil, fragment("tr#dead-"+id)...)
	row.shows("by its row", http.StatusOK, "was not replayed: it is waiting", "Replayed by anonymous", `hx-target="#alert"`)
	s.get("/dlq/"+id+"/discard").shows("asking for a discard", http.StatusConflict, "was not discarded")
	if n := s.count(`SELECT count(*) FROM operator_actions`); n != 1 {
		t.Errorf("%d rows in the trail, want 1", n)
	}
	s.submit("/jobs/"+id+"/cancel", nil)
	s.submit("/jobs/"+id+"/cancel", nil).redirects("a repeated cancel", http.StatusSeeOther, "/console/jobs/"+id)
	s.get("/jobs/"+id+"/cancel").shows("asking again", http.StatusConflict, "Cancelled by")
}

func TestEnqueueByFormKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	bad := url.Values{
		"type": {"email"}, "queue": {"no such name!"}, "payload": {"{\"a\": 1,\n  oops}"}, "priority": {"9"}, "run_at": {"tomorrow"}, "max_attempts": {"many"},
		"tags": {"eu, vip"}, "key": {"k-1"},
	}
	r := s.submit("/jobs", bad)
	r.shows("bad form", http.StatusUnprocessableEntity, "4 fields need attention", "not JSON at line 2", "run_at", "whole number", `value="no such name!"`, "eu, vip", "tomorrow", "oops")
	bad.Set("payload", `{"a":1}`)
	bad.Set("priority", "1")
	bad.Set("run_at", "")
	bad.Set("max_attempts", "")
	s.submit("/jobs", bad).shows("bad queue", http.StatusUnprocessableEntity, "1 field needs attention", "starting with a letter")
	s.nothingStored()
	bad.Set("queue", "mail")
	bad.Set("payload", `{"id": 12345678901234567890123, "big": 1.50}`)
	done := s.submit("/jobs", bad)
	if done.status != http.StatusSeeOther {
		t.Fatalf("good form = %d: %.400s", done.status, plainText(done.body))
	}
	page := s.send("GET", done.header.Get("Location"), nil, "Cookie", flashOf(done))
	page.shows("its page", http.StatusOK, "was enqueued", "12345678901234567890123", "1.50", "eu", "vip")
	s.submit("/jobs", bad).redirects("the same key", http.StatusSeeOther, done.header.Get("Location"))
	bad.Set("payload", `{}`)
	s.submit("/jobs", bad).shows("the key with other content", http.StatusUnprocessableEntity, "used before with other content", `value="k-1"`)
	if n := s.count(`SELECT count(*) FROM jobs`); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestACopyCarriesWhatTheFormCouldNotShow(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.enqueue(`{"type":"email","queue":"mail","payload":{"to":"a@example.com","card":{"number":"4111"},"list":[{"token":"t-1","n":12345678901234567890123}]}}`)
	form := s.get("/jobs/new?from=" + id)
	form.shows("form", http.StatusOK, "••••••••", "copied from")
	if strings.Contains(form.body, "4111") || strings.Contains(form.body, "t-1") {
		t.Error("the form shows masked values")
	}
	r := s.submit("/jobs", url.Values{
		"type": {"email"}, "queue": {"mail"}, "copied_from": {id}, "payload": {`{"to":"b@example.com","card":"••••••••","list":[{"token":"••••••••","n":12345678901234567890123}]}`},
	})
	if r.status != http.StatusSeeOther {
		t.Fatalf("copy = %d: %.300s", r.status, plainText(r.body))
	}
	_, copied, _ := strings.Cut(r.header.Get("Location"), "/jobs/")
	got := s.text(`SELECT payload::text FROM jobs WHERE id = $1`, copied)
	if !strings.Contains(got, `"4111"`) || !strings.Contains(got, `"t-1"`) || !strings.Contains(got, "12345678901234567890123") || !strings.Contains(got, "b@example.com") {
		t.Errorf("payload of the copy: %s", got)
	}
	raw := s.get("/jobs/" + id + "/payload")
	raw.shows("download", http.StatusOK, "12345678901234567890123", "••••••••")
	if strings.Contains(raw.body, "4111") || !strings.HasPrefix(raw.header.Get("Content-Disposition"), "attachment") || raw.header.Get("Content-Type") != "application/json" {
		t.Errorf("download %v: %s", raw.header, raw.body)
	}
}

func TestTheBadgeIsRightAfterAnAct(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	one, two := s.buried(), s.buried()
	s.get("/jobs").shows("before", http.StatusOK, "2 dead jobs")
	s.submit("/dlq/"+one+"/replay", nil)
	s.get("/jobs").shows("after a replay", http.StatusOK, "1 dead jobs")
	s.submit("/dlq/"+two+"/discard", nil)
	if r := s.get("/jobs"); strings.Contains(plainText(r.body), "dead jobs") {
		t.Errorf("after a discard the badge counts still: %.500s", plainText(r.body))
	}
}

func TestDisplayIsKeptInCookies(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	r := s.submit("/display", url.Values{"theme": {"dark"}, "density": {"comfortable"}, "times": {"utc"}, "keys": {"off"}, "return": {"/console/jobs?state=dead"}})
	r.redirects("display", http.StatusSeeOther, "/console/jobs?state=dead")
	var cookies []string
	for _, c := range r.header.Values("Set-Cookie") {
		pair, _, _ := strings.Cut(c, ";")
		cookies = append(cookies, pair)
	}
	s.get("/jobs", "Cookie", strings.Join(cookies, "; ")).shows("jobs", http.StatusOK, `data-theme="dark"`, `data-density="comfortable"`, `data-times="utc"`, `data-keys="off"`)
	for _, to := range []string{"https://evil.example/", "//evil.example/", "/\\evil.example", "/console/../api", "javascript:alert(1)", "/api/v1/jobs", strings.Repeat("/console/", 500)} {
		if got := s.submit("/display", url.Values{"return": {to}}).header.Get("Location"); got != "/console/" {
			t.Errorf("return %.40q leads to %q", to, got)
		}
	}
}

// TestAFormDoesWhatItsPageShowed: between the page and the click somebody replayed the job and it died again, maybe of
// something else. The click was not meant for that.
func TestAFormDoesWhatItsPageShowed(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	version := regexp.MustCompile(`name="version" value="(\d+)"`)
	for _, act := range []struct{ page, form string }{
		{"/dlq/%s/discard", "/dlq/%s/discard"}, {"/dlq?view=jobs", "/dlq/%s/replay"}, {"/jobs/%s", "/dlq/%s/replay"},
	} {
		id := s.buried()
		path := func(format string) string { return strings.Replace(format, "%s", id, 1) }
		page := s.get(path(act.page))
		// Of a list, the form of this job's row.
		_, own, _ := strings.Cut(page.body, path(act.form))
		found := version.FindStringSubmatch(own)
		if found == nil {
			t.Fatalf("the form of %s has no version: %.300s", path(act.page), plainText(page.body))
		}
		s.submit("/dlq/"+id+"/replay", nil).redirects("the other operator's replay", http.StatusSeeOther, "/console/jobs/"+id)
		s.die(id, int64(s.count(`SELECT nextval('job_claims_id_seq')`)))
		before := s.trail(id)
		late := s.submit(path(act.form), url.Values{"version": {found[1]}})
		late.shows("late "+act.form, http.StatusConflict, "has changed since this page was made", "Replayed by")
		if got := s.where(id); got != "dead_letter" {
			t.Errorf("after the late form of %s the job is %s", act.page, got)
		}
		if after := s.trail(id); after != before {
			t.Errorf("the refused act left %q", after)
		}
		// The fresh page's form works.
		_, own, _ = strings.Cut(s.get(path(act.page)).body, path(act.form))
		if again := s.submit(path(act.form), url.Values{"version": {version.FindStringSubmatch(own)[1]}}); again.status != http.StatusSeeOther {
			t.Errorf("the fresh form of %s = %d", act.page, again.status)
		}
	}
	id := s.buried()
	for _, bad := range []string{"x", "-1", "99999999999", "1.0"} {
		if r := s.submit("/dlq/"+id+"/discard", url.Values{"version": {bad}}); r.status != http.StatusBadRequest {
			t.Errorf("version %q = %d", bad, r.status)
		}
	}
}
