package web

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
	"github.com/reliable-job-engine/reliable-job-engine/web/console"
)

// pages are the console's pages with what each must show of a scene.
func (s *scene) pages() map[string][]string {
	return map[string][]string{
		"/":                            {"Degraded", "dead letters", "Is work flowing?", "What is failing?", "Where is it stuck?", "Are the workers alive?", "What changed?", "gateway timeout", "held is paused.", "INC-204", "1 live"},
		"/jobs":                        {"All", "Completed", "charge", "email", "held", short(s.ready)},
		"/jobs?state=dead":             {short(s.dead), "gateway timeout", "state"},
		"/jobs?state=ready":            {short(s.ready)},
		"/jobs?state=scheduled":        {short(s.scheduled), "in "},
		"/jobs?state=running":          {short(s.running), "block"},
		"/jobs?state=retrying":         {short(s.retrying), "high"},
		"/jobs?state=completed":        {short(s.completed)},
		"/jobs?state=cancelled":        {short(s.cancelled)},
		"/jobs?q=queue:billing":        {short(s.dead), short(s.retrying), "billing"},
		"/jobs?q=charge":               {short(s.dead)},
		"/jobs?tag=vip":                {short(s.completed)},
		"/jobs?priority=high":          {short(s.retrying)},
		"/jobs?queue=biling":           {"No job matches queue:biling.", "Closest queue: billing."},
		"/jobs/" + s.completed:         {"Completed", "12345678901234567890123", "1970670598291982290", "masked", "sending", "w-test", "1.8.2", "run 1", "Nobody has acted"},
		"/jobs/" + s.dead:              {"Replay", "Discard", "its attempts are used up", "gateway timeout", "slow gateway", "1 of 1", "fp "},
		"/jobs/" + s.panicked:          {"nil map in handler", "panic", "more frame"},
		"/jobs/" + s.running:           {"It runs on w-test under token", "unless renewed"},
		"/jobs/" + s.retrying:          {"It waits out its backoff after attempt 1 of 5", "Cancel…"},
		"/jobs/" + s.scheduled:         {"It is not due yet: in"},
		"/jobs/" + s.ready:             {"Its queue held was paused"},
		"/jobs/" + s.cancelled:         {"Cancelled", "ann", "not wanted"},
		"/jobs/" + s.discarded:         {"Discarded", "Restore"},
		"/jobs/new":                    {"New job", "Payload", "Enqueue"},
		"/jobs/new?from=" + s.dead:     {"copied from", short(s.dead), "charge"},
		"/jobs/" + s.ready + "/cancel": {"Cancel job " + short(s.ready) + "?", "Keep it", "Reason"},
		"/dlq/" + s.dead + "/discard":  {"Discard job " + short(s.dead) + "?", "Undo works for 7 days"},
		"/queues":                      {"billing", "mail", "held", "Paused", "INC-204", "4 queues"},
		"/queues?sort=name":            {"billing"},
		"/queues/billing":              {"Oldest ready", "2 dead", "w-test", "charge"},
		"/queues/held":                 {"Paused", short(s.ready)},
		"/types":                       {"charge", "email", "broken", "block"},
		"/types/charge":                {"w-test", "gateway timeout", short(s.dead)},
		"/dlq":                         {"Groups", "gateway timeout", "nil map in handler", "charge in billing", "Replay newest"},
		"/dlq?view=jobs":               {short(s.dead), short(s.panicked), "exhausted", "Replay"},
		"/dlq?view=discarded":          {short(s.discarded), "Restore"},
		s.group(s.dead):                {"gateway timeout", short(s.dead), "What defines this group", "The newest failure"},
		"/operations":                  {"No operation yet.", "Dead letters"},
		"/operations/new?action=replay&queue=billing": {"Replay 2 jobs?", "Canary", "charge", "Keep as is"},
		"/operations/new?action=discard&type=charge":  {"Discard 1 job?", "Reason", "restored one by one for 7 days"},
		"/workers":                       {"w-test", "Live", "1.8.2", "of 4"},
		"/workers/" + s.worker():         {"w-test", short(s.running), short(s.dead), "block"},
		"/audit":                         {"ann", "cancel", "discard", "not wanted"},
		"/audit?actor=ann&action=cancel": {"not wanted"},
		"/system":                        {"PostgreSQL", "Database size", "reaper", "w-test", "POLL_INTERVAL", "hidden", "1.2.3"},
		"/help":                          {"Ready", "validation-failed", "RETENTION_COMPLETED", "API reference"},
		"/help/api":                      {"POST /api/v1/jobs/bulk", "scope dlq:write", "idempotency-key-in-flight", "help/api/schemas#Job", "at most 100", "curl -X POST", "schema-violation"},
		"/help/api/schemas":              {"lease.worker_id", "groups[].oldest_at"},
	}
}

func short(id string) string { return id[len(id)-8:] }

var headings = regexp.MustCompile(`<h1[ >]`)

func TestEveryPageShowsItsDataUnderThePolicy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for path, texts := range s.pages() {
		r := s.get(path)
		r.shows(path, http.StatusOK, texts...)
		h := r.header
		if h.Get("Content-Security-Policy") != console.Policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" ||
			h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "text/html; charset=UTF-8" {
			t.Errorf("%s: headers %v", path, h)
		}
		if n := len(headings.FindAllString(r.body, -1)); n != 1 {
			t.Errorf("%s has %d first headings, want 1", path, n)
		}
		if len(r.body) > 150<<10 {
			t.Errorf("%s has %d bytes, want at most 150 KB", path, len(r.body))
		}
		if strings.Contains(r.body, "%!") || strings.Contains(r.body, "0001-01-01") || strings.Contains(r.body, "4111") || strings.Contains(r.body, "s3cret") {
			t.Errorf("%s shows what it must not: %.300s", path, plainText(r.body))
		}
	}
}

func TestThePolicyIsTheOneThatWasAgreedOn(t *testing.T) {
	t.Parallel()
	want := "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; " +
		"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx"
	if console.Policy != want {
		t.Errorf("policy %q, want %q", console.Policy, want)
	}
}

func TestEveryPageStandsOnAnEmptyInstallation(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	for path, texts := range map[string][]string{
		"/":                   {"No job has been enqueued yet.", "jobctl jobs enqueue"},
		"/jobs":               {"No job has been enqueued yet.", "curl"},
		"/jobs?state=dead":    {"No job matches state:dead.", "after 5 failed attempts"},
		"/queues":             {"No queue is known yet."},
		"/types":              {"No type is known yet."},
		"/dlq":                {"No dead jobs.", "Jobs land here after 5 failed attempts."},
		"/dlq?view=jobs":      {"No dead jobs."},
		"/dlq?view=discarded": {"Nothing is discarded."},
		"/workers":            {"No worker has started yet."},
		"/audit":              {"Nobody has done anything yet."},
		"/system":             {"nobody"},
		"/help":               {"States"},
		"/help/api":           {"Enqueue a job"},
		"/help/api/schemas":   {"TypeSchema"},
		"/jobs/new":           {"New job"},
	} {
		s.get(path).shows(path, http.StatusOK, texts...)
	}
	s.send("GET", "/", nil).redirects("/", http.StatusFound, "/console/")
	s.get("").redirects("the base path", http.StatusFound, "/console/")
}

func (r reply) redirects(what string, status int, to string) {
	r.t.Helper()
	if r.status != status || r.header.Get("Location") != to {
		r.t.Errorf("%s = %d to %q, want %d to %q: %.300s", what, r.status, r.header.Get("Location"), status, to, plainText(r.body))
	}
}

func TestABareIdLeadsToTheJob(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	id := s.enqueue(`{"type":"email"}`)
	for _, q := range []string{"q=" + id, "q=" + strings.ToUpper(id), "q=%20" + id + "%20", "id=" + id} {
		s.get("/jobs?"+q).redirects(q, http.StatusFound, "/console/jobs/"+id)
	}
	s.get("/jobs/0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10").shows("unknown id", http.StatusNotFound, "Nothing is here", "kept 7 days")
}

// TestWithoutADatabasePagesKeepTheirFrame stops a real server under the console:
// the last good figures stay with their time, all else is a page of its own.
func TestWithoutADatabasePagesKeepTheirFrame(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	migrated := func(name string) *pgxpool.Pool {
		if err := db.Migrate(ctx, server.URL(name), nil); err != nil {
			t.Fatalf("migrate: %v", err)
		}
		return dbtest.OpenURL(t, server.URL(name))
	}
	soon := func(c *Config) { c.RequestTimeout = 3 * time.Second }
	s := newConsoleOn(t, migrated("jobs"), soon)
	id := s.enqueue(`{"type":"email","queue":"mail"}`)
	s.get("/").shows("overview", http.StatusOK, "mail")
	// The same where nobody has an account yet, and where people sign in.
	unsure := newConsoleOn(t, s.pool, soon, func(c *Config) { c.Accounts = access.New(access.Config{Pool: s.pool}) })
	unsure.get("/").shows("overview before the first account", http.StatusOK, "mail")
	people := migrated("people")
	accounts := access.New(access.Config{Pool: people})
	if _, err := accounts.Create(ctx, access.UserSpec{Name: "the-operator", Password: password, Role: access.RoleOperator}, engine.Actor{Name: "test"}); err != nil {
		t.Fatalf("create account: %v", err)
	}
	guarded := newConsoleOn(t, people, soon, func(c *Config) { c.Token, c.Accounts = apiToken, accounts })
	session := guarded.signIn("the-operator")
	guarded.get("/", "Cookie", session).shows("overview of somebody signed in", http.StatusOK, "the-operator", "Operator")
	server.StopImmediate()
	deadline := time.Now().Add(20 * time.Second)
	for s.get("/").status == http.StatusOK || unsure.get("/").status == http.StatusOK || guarded.get("/", "Cookie", session).status == http.StatusOK {
		if time.Now().After(deadline) {
			t.Fatal("an overview never notices that the database is away")
		}
		time.Sleep(100 * time.Millisecond)
	}
	overview := s.get("/")
	overview.shows("overview without a database", http.StatusServiceUnavailable, "Critical", "the database does not answer", "no fresh data since", "UTC", "mail")
	if overview.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	live := s.get("/", fragment("div#live")...)
	live.shows("live overview", http.StatusOK, "no fresh data since")
	s.get("/queues").shows("queues", http.StatusOK, "no fresh data since", "mail")
	unsure.get("/").shows("overview before the first account", http.StatusServiceUnavailable, "no fresh data since", "mail")
	guarded.get("/", "Cookie", session).shows("overview of somebody signed in", http.StatusServiceUnavailable, "no fresh data since", "the-operator")
	for _, cookie := range []string{"", "session=forged"} {
		if r := guarded.get("/", "Cookie", cookie); strings.Contains(r.body, "no fresh data") || r.status == http.StatusOK {
			t.Errorf("overview with cookie %q and no database = %d: %.300s", cookie, r.status, plainText(r.body))
		}
	}
	if r := guarded.submit("/jobs", url.Values{"type": {"email"}}, "Cookie", session); r.status < 400 {
		t.Errorf("a form of somebody whose session nobody can confirm = %d", r.status)
	}
	for _, path := range []string{"/jobs", "/jobs/" + id, "/dlq", "/workers", "/audit", "/system"} {
		r := s.get(path)
		r.shows(path, http.StatusServiceUnavailable, "The database does not answer", "Overview", "Dead letters")
		if r.header.Get("Content-Security-Policy") != console.Policy || strings.Contains(r.body, "127.0.0.1") {
			t.Errorf("%s: headers %v, or an address on the page", path, r.header)
		}
	}
	server.Start()
	for s.get("/").status != http.StatusOK {
		if time.Now().After(deadline.Add(20 * time.Second)) {
			t.Fatal("the overview does not come back with the database")
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.get("/jobs/"+id).shows("job", http.StatusOK, "mail")
}

func TestALiveRegionThatHasNotChangedIs304(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	s.enqueue(`{"type":"email","queue":"mail"}`)
	for _, path := range []string{"/jobs", "/queues", "/dlq", "/audit"} {
		headers := append(fragment("div#live"), "Cookie", "console_now=2026-11-30T02:14:07Z; console_times=utc")
		first := s.get(path, headers...)
		tag := first.header.Get("HX-PTag")
		if first.status != http.StatusOK || tag == "" || strings.Contains(first.body, "<html") {
			t.Errorf("%s as a region = %d with tag %q: %.200s", path, first.status, tag, first.body)
			continue
		}
		// Rates move by themselves for a while after an enqueue, so that one of some
		// polls must find nothing new.
		unchanged := false
		for range 20 {
			again := s.get(path, append(headers, "HX-PTag", tag)...)
			if unchanged = again.status == http.StatusNotModified && again.body == ""; unchanged {
				break
			}
			tag = again.header.Get("HX-PTag")
			time.Sleep(100 * time.Millisecond)
		}
		if !unchanged {
			t.Errorf("%s: an unchanged region is never 304", path)
		}
	}
	s.enqueue(`{"type":"email","queue":"mail"}`)
	s.get("/jobs?live=off").shows("a frozen page", http.StatusOK, "Frozen")
	if r := s.get("/jobs?live=off"); strings.Contains(r.body, "data-live") {
		t.Error("a frozen page follows")
	}
}

func TestACookieFixesNowButNotInProduction(t *testing.T) {
	t.Parallel()
	s := newConsole(t)
	now := []string{"Cookie", "console_now=2030-01-02T03:04:05Z"}
	s.get("/jobs", now...).shows("jobs", http.StatusOK, "03:04:05")
	p := newConsole(t, func(c *Config) { c.Console.Env = "production" })
	if r := p.get("/jobs", now...); strings.Contains(r.body, "03:04:05") || !strings.Contains(r.body, "production") {
		t.Error("a cookie fixes the time in production")
	}
}

func TestOneZoneIsStatedEverywhere(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t)
	url := dbtest.URL(t, pool)
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	// The database's zone, the server's and the reader's differ.
	s := newConsoleOn(t, dbtest.OpenURL(t, url+sep+"timezone=Asia%2FTokyo"))
	id := s.enqueue(`{"type":"email"}`)
	r := s.get("/jobs/"+id, "Cookie", "console_times=utc")
	r.shows("job", http.StatusOK, " UTC")
	for _, m := range regexp.MustCompile(`datetime="([^"]*)"`).FindAllStringSubmatch(r.body, -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil || !strings.HasSuffix(m[1], "Z") {
			t.Errorf("datetime %q is not in UTC", m[1])
		} else if d := time.Since(at); d < -time.Minute || d > time.Hour {
			t.Errorf("datetime %q is %v away from now", m[1], d)
		}
	}
	// What has happened is never said to lie ahead, even seen from an earlier moment.
	ahead := s.get("/jobs", "Cookie", "console_now=2026-01-01T00:00:00Z")
	if strings.Contains(plainText(ahead.body), " in 1 h") || !strings.Contains(ahead.body, "just now") {
		t.Errorf("a job made after now: %.800s", plainText(ahead.body))
	}
}
