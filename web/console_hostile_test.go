package web

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/html"
)

// hostile are texts that want to be more than text.
var hostile = []string{
	`<script>alert(1)</script>`, `"onmouseover="alert(1)`, `'><img src=x onerror=alert(1)>`, `javascript:alert(1)`, `</textarea><script>alert(1)</script>`,
	`<div hx-get="/console/x" hx-trigger="load">`, `{{.Frame}} ${alert(1)} {% raw %}`, `<!--`, `]]>`, "a\u202eb\u2066c", `<hx-partial hx-target="body">x</hx-partial>`,
	`<svg onload=alert(1)>`, `&lt;b&gt;`, `<a href="//evil.example">x</a>`, `</title><script>alert(1)</script>`,
}

// poisoned makes one dead job that carries text wherever something else writes.
func (s *site) poisoned(text string) (id string, worker int64) {
	s.t.Helper()
	job := uuid.Must(uuid.NewV7())
	id = job.String()
	s.exec(`INSERT INTO jobs (id, type, queue, version, payload, tags) VALUES ($1, left($2, 90), left($2, 90), 1, jsonb_build_object($2, $2, 'list', jsonb_build_array($2)), ARRAY[$2])`, job, text)
	worker = int64(s.count(`SELECT max(id) + 1 FROM (SELECT 0::bigint AS id UNION ALL SELECT id FROM workers) AS w`))
	s.exec(`INSERT INTO workers (id, name, hostname, pid, version, queues, types, slots, lease_ms) OVERRIDING SYSTEM VALUE
		VALUES ($1, $2, $2, 1, $2, ARRAY[left($2, 90)], ARRAY[left($2, 90)], 4, 30000)`, worker, text)
	token := s.count(`SELECT nextval('job_claims_id_seq')`)
	s.exec(`INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome, error_class, error, stack, fingerprint, logs)
		VALUES ($1, $2, $3, now(), now(), 1, 2, left($4, 90), $4, 'goroutine 1:' || chr(10) || $4 || '(0x1)' || chr(10) || chr(9) || $4, $4,
			jsonb_build_array(jsonb_build_object('time', now(), 'level', 'INFO', 'msg', $4, 'fields', jsonb_build_object($4, $4))))`, job, token, worker, text)
	s.exec(`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, stack, fingerprint)
		SELECT id, $2, 1, queue, type, 'exhausted', left($3, 90), $3, $3, $3 FROM jobs WHERE id = $1`, job, token, text)
	s.exec(`SELECT record_operator_action($1, 'console', 'replay', 'job', $2, $1, NULL, jsonb_build_object('state', $1::text), 1, $1, $1)`, text, id)
	s.exec(`INSERT INTO queues (name, paused_at, paused_reason) VALUES (left($1, 90), now(), $1)`, text)
	s.exec(`INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms) VALUES (left($1, 90), left($1, 90), 1, 1, 1)`, text)
	s.exec(`INSERT INTO refused_writes (job_id, token_held, worker_id, operation) VALUES ($1, $2, $3, $4)`, job, token, worker, text)
	return id, worker
}

// TestHostileTextIsAlwaysText puts each text everywhere and looks at the pages as a
// browser parses them: no element, attribute or address may come of it.
func TestHostileTextIsAlwaysText(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	var ids []string
	for _, text := range hostile {
		id, _ := s.poisoned(text)
		ids = append(ids, id)
	}
	paths := []string{"/", "/jobs", "/jobs?state=dead", "/queues", "/types", "/dlq", "/dlq?view=jobs", "/workers", "/audit", "/system"}
	for i, text := range hostile {
		e := url.PathEscape(text)
		paths = append(paths, "/jobs/"+ids[i], "/jobs/new?from="+ids[i], "/dlq/"+ids[i]+"/discard", "/workers/"+fmt.Sprint(i+1), "/dlq/groups/"+e,
			"/queues/"+e, "/types/"+e, "/jobs?tag="+url.QueryEscape(text), "/jobs?q="+url.QueryEscape(text), "/jobs?queue="+url.QueryEscape(text),
			"/audit?actor="+url.QueryEscape(text), "/jobs/new?type="+url.QueryEscape(text), "/dlq?view=jobs&type="+url.QueryEscape(text))
	}
	for _, path := range paths {
		for _, headers := range [][]string{nil, fragment("div#live"), fragment("div#dialog-body")} {
			r := s.get(path, headers...)
			if r.status >= 500 {
				t.Errorf("%s = %d: %.300s", path, r.status, plainText(r.body))
			}
			sound(t, path, r)
		}
	}
	form := url.Values{"type": {hostile[2]}, "queue": {hostile[1]}, "payload": {hostile[4]}, "key": {hostile[0]}, "tags": {hostile[0]}, "run_at": {hostile[3]}, "copied_from": {hostile[1]}}
	r := s.submit("/jobs", form)
	r.shows("a hostile form", http.StatusUnprocessableEntity)
	sound(t, "a hostile form", r)
	for _, did := range []string{`{"d":"replay","i":"` + ids[0] + `","t":"<script>x</script>"}`, `{"d":"<b>","i":"x"}`, `[1]`, `"`} {
		sound(t, "a forged flash", s.get("/jobs", "Cookie", "console_flash="+encodeCookie(did)))
	}
}

var event = regexp.MustCompile(`^on|^hx-on|^style$`)

// sound walks what a browser would make of an answer.
func sound(t *testing.T, what string, r reply) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(r.body))
	if err != nil {
		t.Errorf("%s does not parse: %v", what, err)
		return
	}
	for n := range doc.Descendants() {
		if n.Type == html.CommentNode {
			t.Errorf("%s holds a comment: %.100s", what, n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script":
			if src := attr(n, "src"); !strings.HasPrefix(src, "/console/static/") {
				t.Errorf("%s holds a script: src=%q", what, src)
			}
		case "iframe", "object", "embed", "base", "img", "b-evil":
			t.Errorf("%s holds <%s>", what, n.Data)
		}
		for _, a := range n.Attr {
			value := strings.ToLower(strings.TrimSpace(a.Val))
			switch {
			case event.MatchString(a.Key):
				t.Errorf("%s: <%s %s=%q>", what, n.Data, a.Key, a.Val)
			case (a.Key == "href" || a.Key == "action" || a.Key == "src" || a.Key == "formaction") && !local(value):
				t.Errorf("%s: <%s %s=%q> leads elsewhere", what, n.Data, a.Key, a.Val)
			case a.Key == "hx-get" || a.Key == "hx-post":
				if !local(value) || value == "" {
					t.Errorf("%s: %s=%q leads elsewhere", what, a.Key, a.Val)
				}
			case strings.HasPrefix(a.Key, "hx-") && (strings.Contains(value, "alert") || strings.HasPrefix(value, "js:") || a.Key == "hx-target" && value == "body"):
				t.Errorf("%s: %s=%q is active", what, a.Key, a.Val)
			}
		}
	}
}

func local(address string) bool {
	return address == "" || address[0] == '#' || address == "about:invalid#templfailedsanitizationurl" || strings.HasPrefix(address, "/console") && !strings.HasPrefix(address, "//")
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// TestOddAddressesAreRefused sends values that no page has: 400 or 404, never 5xx,
// and nothing of them comes back as markup.
func TestOddAddressesAreRefused(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.enqueue(`{"type":"email"}`)
	odd := []string{`"onmouseover="`, "-1", "99999999999999999999", "\x00", "a\x00b", strings.Repeat("a", 8<<10), "\xff\xfe", "../../etc/passwd", "%", "' OR 1=1 --", "\u202e", "null", "1e9", "[]"}
	pages := map[string][]string{
		"/jobs": {"cursor", "limit", "back", "state", "priority", "id", "q", "type", "queue", "tag", "live", "page", "sort"}, "/audit": {"cursor", "limit", "actor"},
		"/dlq": {"view", "sort", "cursor", "reason", "limit"}, "/queues": {"sort"}, "/workers": {"x"}, "/types": {"sort"}, "/dlq/groups/fp1": {"cursor"},
		"/jobs/new": {"from"}, "/jobs/" + id: {"live", "tab"}, "/": {"range"}, "/system": {"x"}, "/help": {"x"}, "/help/api": {"x"}, "/help/api/schemas": {"x"},
	}
	mustRefuse := map[string]bool{"cursor": true, "limit": true, "state": true, "priority": true, "id": true, "live": true, "page": true, "view": true, "reason": true, "x": true, "range": true, "tab": true, "from": true}
	for page, names := range pages {
		for _, name := range names {
			for _, value := range odd {
				q := url.Values{name: {value}}
				if page == "/dlq" && (name == "cursor" || name == "limit") {
					q.Set("view", "jobs")
				}
				path := page + "?" + q.Encode()
				r := s.get(path)
				if r.status >= 500 || mustRefuse[name] && r.status != http.StatusBadRequest && r.status != http.StatusNotFound {
					t.Errorf("%.80s = %d: %.200s", path, r.status, plainText(r.body))
				}
				sound(t, path, r)
			}
			array := page + "?" + name + "=a&" + name + "=b"
			if r := s.get(array); r.status != http.StatusBadRequest {
				t.Errorf("%s = %d, want 400", array, r.status)
			}
		}
		if r := s.get(page + "?a%zz=1"); r.status != http.StatusBadRequest {
			t.Errorf("%s with a broken query = %d, want 400", page, r.status)
		}
	}
	for _, value := range odd {
		for _, page := range []string{"/jobs/", "/queues/", "/types/", "/workers/", "/dlq/groups/", "/help/problems/", "/"} {
			r := s.get(page + url.PathEscape(value))
			if r.status != http.StatusNotFound && r.status != http.StatusBadRequest {
				t.Errorf("%s%.40q = %d, want 404", page, value, r.status)
			}
			sound(t, page, r)
		}
	}
	for _, cursor := range []string{"1_" + id, "253370764800000001_" + id, "-5_" + id, "9223372036854775807_" + id, "1_", "_"} {
		r := s.get("/dlq?view=jobs&cursor=" + cursor)
		if cursor != "1_"+id && r.status != http.StatusBadRequest || r.status >= 500 {
			t.Errorf("cursor %s = %d", cursor, r.status)
		}
	}
	// Dates at both ends of what can be told.
	for _, at := range []string{"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "294277-01-01T00:00:00Z", "2026-13-01", "5"} {
		r := s.submit("/jobs", url.Values{"type": {"email"}, "payload": {"{}"}, "run_at": {at}})
		r.shows("run at "+at, http.StatusUnprocessableEntity, "run_at")
	}
}

func TestAMistakeInTheBoxIsMarkedAndKept(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.enqueue(`{"type":"email","queue":"billing"}`)
	for q, want := range map[string]string{
		"state:bogus":    "There is no state &#34;bogus&#34;. Use ready, scheduled",
		"colour:red":     "There is no colour: here.",
		"priority:9x":    "Use 0 to 5, low, default, high or critical",
		`queue:"billing`: "This quote is not closed.",
		"queue:":         "A value is missing here, as in queue:billing,mail.",
		"age:5":          "<mark>5</mark>",
		"id:12":          "There is no id: here.",
	} {
		r := s.get("/jobs?q=" + url.QueryEscape(q))
		r.shows(q, http.StatusBadRequest, want, "The query was not understood.")
		box := html.EscapeString(q)
		if !strings.Contains(r.body, `value="`+box+`"`) {
			t.Errorf("%s: the box does not hold what was typed", q)
		}
	}
	s.get("/jobs?q=bil").shows("a prefix", http.StatusOK, "billing")
	s.get("/jobs?q=nobody").shows("an unknown word", http.StatusOK, "No job matches nobody.")
}

// TestHugePayloadsStayOffTheLists is G1: 50 jobs of a megabyte each.
func TestHugePayloadsStayOffTheLists(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.long(`INSERT INTO jobs (id, type, queue, version, payload) SELECT uuid_v7(), 'big', 'mail', 1,
		jsonb_build_object('text', (SELECT string_agg(md5((i * 40000 + k)::text), '') FROM generate_series(1, 31250) AS k)) FROM generate_series(1, 50) AS i`)
	s.long(`INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome, error_class, error, stack, fingerprint)
		SELECT id, nextval('job_claims_id_seq'), 1, now(), now(), 1, 2, 'big', repeat('long error ', 5000), repeat('x', 60000), 'fp' FROM jobs`)
	s.long(`INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, fingerprint)
		SELECT e.job_id, e.fencing_token, 1, 'mail', 'big', 'exhausted', 'big', e.error, 'fp' FROM job_executions AS e`)
	for _, path := range []string{"/jobs", "/jobs?state=dead", "/dlq?view=jobs", "/dlq", "/dlq/groups/fp", "/types/big", "/"} {
		s.get(path) // the first look reads the figures
		start := time.Now()
		r := s.get(path)
		took := time.Since(start)
		r.shows(path, http.StatusOK, "big")
		if len(r.body) > 300<<10 || took > 500*time.Millisecond {
			t.Errorf("%s has %d bytes after %v, want at most 300 KB within 500 ms", path, len(r.body), took)
		}
	}
	id := s.text(`SELECT id::text FROM jobs ORDER BY id LIMIT 1`)
	r := s.get("/jobs/" + id)
	r.shows("the job's page", http.StatusOK, "Download", "cut here")
	if len(r.body) > 300<<10 {
		t.Errorf("the job's page has %d bytes", len(r.body))
	}
	if whole := s.get("/jobs/" + id + "/payload"); len(whole.body) < 1_000_000 {
		t.Errorf("the download has %d bytes, want all", len(whole.body))
	}
}
