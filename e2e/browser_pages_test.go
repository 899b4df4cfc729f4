package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playwright-community/playwright-go"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// page is a page of the console as it should be found: {name} in the path stands
// for what the stage has.
type page struct {
	path    string
	status  int    // 0: any
	heading string // "": any
}

// pagesWithData are all pages of the router's table that are read, each with
// something to show.
var pagesWithData = []page{
	{"/jobs/{running}/stop", 200, ""}, // first: the simulated leases last half a minute
	{"/", 200, "Overview"},
	{"/jobs", 200, "Jobs"},
	{"/jobs?state=dead&queue={queue}", 200, "Jobs"},
	{"/jobs/new", 200, "New job"},
	{"/jobs/new?from={completed}", 200, "New job"},
	{"/jobs/{dead}", 200, ""},
	{"/jobs/{completed}", 200, ""},
	{"/jobs/{running}", 200, ""},
	{"/jobs/{retrying}", 200, ""},
	{"/jobs/{waiting}", 200, "report"},
	{"/jobs/{waiting}/cancel", 200, "Cancel job {short waiting}?"},
	{"/jobs/{waiting}/reveal", 200, "Reveal the payload of job {short waiting}?"},
	{"/queues", 200, "Queues"},
	{"/queues?sort=name", 200, "Queues"},
	{"/queues/{queue}", 200, "{queue}"},
	{"/types", 200, "Types"},
	{"/types/{type}", 200, "{type}"},
	{"/dlq", 200, "Dead letters"},
	{"/dlq?view=jobs", 200, "Dead letters"},
	{"/dlq?view=discarded", 200, "Dead letters"},
	{"/dlq/groups/{group}", 200, ""},
	{"/dlq/{dead}/discard", 200, "Discard job {short dead}?"},
	{"/operations", 200, "Operations"},
	{"/operations/{operation}", 200, ""},
	{"/operations/new?action=replay&fingerprint={group}", 200, ""},
	{"/operations/new?action=discard&queue={queue}", 200, ""},
	{"/workers", 200, "Workers"},
	{"/workers/{worker}", 200, ""},
	{"/audit", 200, "Audit"},
	{"/system", 200, "System"},
	{"/account", 200, "Account"},
	{"/access/users", 200, "People"},
	{"/access/tokens", 200, "Tokens"},
	{"/help", 200, "Help"},
	{"/help/api", 200, "API"},
	{"/help/api/schemas", 200, "API schemas"},
	{"/help/problems/not-dead", 200, ""},
}

// pagesWithout are those that may have nothing to show.
var pagesWithout = []page{
	{"/", 200, "Overview"}, {"/jobs", 200, "Jobs"}, {"/jobs?queue=biling", 200, "Jobs"}, {"/queues", 200, "Queues"}, {"/types", 200, "Types"},
	{"/dlq", 200, "Dead letters"}, {"/dlq?view=jobs", 200, "Dead letters"}, {"/dlq?view=discarded", 200, "Dead letters"},
	{"/workers", 200, "Workers"}, {"/operations", 200, "Operations"}, {"/audit", 200, "Audit"}, {"/system", 200, "System"},
}

// pagesInError are what a reader meets when something is wrong with the address or
// the job.
var pagesInError = []page{
	{"/nothing", 404, "Nothing is here"},
	{"/jobs/01000000-0000-7000-8000-000000000000", 404, "Nothing is here"},
	{"/dlq/groups/ffffffff", 404, "Nothing is here"},
	{"/queues/nowhere", 404, "Nothing is here"},
	{"/workers/999999", 404, "Nothing is here"},
	{"/operations/01000000-0000-7000-8000-000000000000", 404, "Nothing is here"},
	{"/operations/new?action=replay&queue=nowhere", 404, "Nothing is here"},
	{"/jobs?state=sleeping", 400, "Jobs"},
	{"/jobs?colour=red", 400, ""},
	{"/jobs/{completed}/cancel", 409, "The job has changed"},
}

// pagesWithoutDatabase are asked for while Postgres is away. Whether the overview
// says 503 depends on how soon the refusal comes; it shows its last figures.
var pagesWithoutDatabase = []page{
	{"/", 0, "Overview"}, {"/jobs", 503, "The database does not answer"}, {"/queues", 200, "Queues"}, {"/dlq", 503, "The database does not answer"},
	{"/audit", 503, "The database does not answer"}, {"/system", 503, "The database does not answer"}, {"/help", 200, "Help"},
}

// TestPagesAreSound looks at every page in both themes, with data, without and in
// error: axe finds nothing, the policy refuses nothing, no request goes elsewhere,
// nothing needs scrolling sideways at 320 px, and the HTML is valid.
func TestPagesAreSound(t *testing.T) {
	t.Parallel()
	html := &folder{dir: t.TempDir()}
	t.Run("pages", func(t *testing.T) {
		for name, look := range map[string]func(*testing.T){
			"with data": func(t *testing.T) {
				s := incident(t)
				names := s.names(t)
				s.look(t, html, names, pagesWithData)
				s.look(t, html, names, pagesInError)
			},
			"without data": func(t *testing.T) {
				stageOn(t, dbtest.NewURL(t), quick...).look(t, html, strings.NewReplacer(), pagesWithout)
			},
			"without a database": func(t *testing.T) {
				s := newStage(t, append(quick, "DB_TIMEOUT=1s", "AUTH_MODE=none")...)
				s.status("/console/") // the figures it goes on showing
				s.pg.Stop()
				t.Cleanup(s.pg.Start) // to be removed, it must run
				s.look(t, html, strings.NewReplacer(), pagesWithoutDatabase)
			},
			"signing in": func(t *testing.T) {
				stageOn(t, dbtest.NewURL(t), append(quick, "BOOTSTRAP_ADMIN_PASSWORD="+adminPassword)...).lookAtSignIn(t, html)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				look(t)
			})
		}
	})
	html.validate(t)
}

// incident is a stage at the moment of the simulated incident: jobs in every place,
// a paused queue, a lost worker, acts of operators. No worker changes it.
func incident(t *testing.T, more ...string) *stage {
	t.Helper()
	s := stageOn(t, dbtest.NewURL(t))
	s.jobctl(t, append([]string{"simulate", "--scenario", "incident", "--seed", "7"}, more...)...)
	return s
}

func (s *stage) scan(t *testing.T, into *string, sql string) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql).Scan(into); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (s *stage) jobctl(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "jobctl"), args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+s.url, "JOBCTL_SERVER="+s.api)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("jobctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// names is what {name} in a path stands for, from the moment of the incident: what
// its lost workers hold is taken back half a minute later.
func (s *stage) names(t *testing.T) *strings.Replacer {
	t.Helper()
	var pairs []string
	for name, sql := range map[string]string{
		"dead":      "SELECT job_id::text FROM dead_letter_jobs WHERE discarded_at IS NULL ORDER BY died_at DESC, job_id LIMIT 1",
		"completed": "SELECT id::text FROM job_states WHERE state = 'completed' ORDER BY id LIMIT 1",
		"running":   "SELECT job_ids[1]::text FROM job_claims ORDER BY id DESC LIMIT 1",
		"retrying":  "SELECT job_id::text FROM job_scheduled WHERE failed ORDER BY run_at DESC, job_id LIMIT 1",
		"waiting":   "SELECT enqueue_job(type => 'report', delay => '1 day', payload => '{\"kind\":\"throughput\"}')::text",
		"group":     "SELECT fingerprint FROM dead_letter_jobs WHERE discarded_at IS NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1",
		"queue":     "SELECT queue FROM dead_letter_jobs WHERE discarded_at IS NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1",
		"type":      "SELECT type FROM dead_letter_jobs WHERE discarded_at IS NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1",
		"worker":    "SELECT worker_id::text FROM job_claims ORDER BY id DESC LIMIT 1",
		"operation": haltedCanary,
	} {
		var value string
		s.scan(t, &value, sql)
		pairs = append(pairs, "{"+name+"}", value, "{short "+name+"}", value[max(0, len(value)-8):])
	}
	return strings.NewReplacer(pairs...)
}

// haltedCanary is the replay that somebody tried in the incident: five jobs, all of which failed again.
const haltedCanary = `
	WITH g AS (SELECT fingerprint FROM dead_letter_jobs WHERE discarded_at IS NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1),
	d AS (SELECT x.job_id, x.fencing_token, row_number() OVER (ORDER BY x.died_at, x.job_id) AS n FROM dead_letter_jobs AS x JOIN g USING (fingerprint)),
	o AS (INSERT INTO operations (id, action, selection, cut_off, pace, state, halted_reason, actor, source, reason, total, done, step)
	  SELECT uuid_v7(), 'replay', jsonb_build_object('fingerprint', g.fingerprint), now(), 'canary', 'halted', '5 of the last 5 jobs that ran failed again',
	    'oncall-us', 'console', 'canary: is the gateway back?', (SELECT count(*) FROM d), 5, 5 FROM g RETURNING id),
	j AS (INSERT INTO operation_jobs (operation_id, n, job_id, token, acted_at)
	  SELECT o.id, d.n, d.job_id, CASE WHEN d.n <= 5 THEN d.fencing_token - 1 END, CASE WHEN d.n <= 5 THEN now() END FROM d CROSS JOIN o)
	SELECT id::text FROM o`

// look examines pages in turn.
func (s *stage) look(t *testing.T, html *folder, names *strings.Replacer, pages []page) {
	t.Helper()
	v := s.visit(t)
	v.withAxe()
	v.expects("the server responded with a status of (400|404|409|503)")
	for _, p := range pages {
		path := names.Replace(p.path)
		r, err := v.Goto("/console" + path)
		v.must(err)
		if p.status != 0 && r.Status() != p.status {
			t.Errorf("%s answers %d, want %d", path, r.Status(), p.status)
			continue
		}
		if p.heading != "" {
			v.sees(v.GetByRole("heading", playwright.PageGetByRoleOptions{Name: names.Replace(p.heading), Level: playwright.Int(1), Exact: playwright.Bool(true)}))
		}
		what := fmt.Sprintf("%s (%d)", path, r.Status())
		text, err := r.Text()
		v.must(err)
		html.add(t, what, text)
		v.axe(what)
		v.reflows(what)
	}
}

func (s *stage) lookAtSignIn(t *testing.T, html *folder) {
	t.Helper()
	v := s.visit(t)
	v.withAxe()
	v.expects("the server responded with a status of (401|422)")
	r, err := v.Goto("/console/")
	v.must(err)
	text, err := r.Text()
	v.must(err)
	html.add(t, "/login", text)
	v.axe("/login")
	v.signIn("not the password")
	v.says(v.GetByRole("alert"), "Name or password is wrong.")
	v.axe("/login, refused")
	v.reflows("/login, refused")
	v.signIn(adminPassword)
	v.sees(v.heading("Overview"))
	v.axe("/ of a person signed in")
	v.lookAtAccess(t, html)
	v.open("/jobs/new")
	v.click(v.button("Enqueue"))
	v.sees(v.GetByText("1 field needs attention."))
	v.axe("/jobs/new with a mistake")
	v.reflows("/jobs/new with a mistake")
	v.press("?")
	v.sees(v.dialog())
	v.axe("the dialog of shortcuts")
}

// withAxe has every page of the context come with axe. A script element could not
// bring it: the policy refuses it.
func (v *visitor) withAxe() {
	v.t.Helper()
	dir, err := tools()
	v.must(err)
	v.must(v.context.AddInitScript(playwright.Script{Path: playwright.String(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))}))
}

// axe reports what axe finds on the page as it is now, in both themes. A theme is
// an attribute of the document and changes colours alone, so that the rules about
// anything else are asked once.
func (v *visitor) axe(what string) {
	v.t.Helper()
	found := v.evaluate(`async () => {
		const all = [], colours = ["color-contrast", "link-in-text-block"];
		for (const theme of ["light", "dark", ""]) {
			if (theme) document.documentElement.dataset.theme = theme;
			const only = theme ? { runOnly: colours } : { rules: Object.fromEntries(colours.map((c) => [c, { enabled: false }])) };
			const r = await axe.run(document, { resultTypes: ["violations"], ...only });
			for (const v of r.violations) all.push(theme + ": " + v.id + ": " + v.help + "\n" +
				v.nodes.slice(0, 3).map((n) => "    " + n.html.slice(0, 300) + "\n      " + n.failureSummary).join("\n"));
		}
		return JSON.stringify(all);
	}`)
	var violations []string
	if err := json.Unmarshal([]byte(fmt.Sprint(found)), &violations); err != nil {
		v.t.Fatal(err)
	}
	for _, violation := range violations {
		v.t.Errorf("%s: axe, %s", what, violation)
	}
}

// reflows reports a page that needs scrolling sideways on 320 px.
func (v *visitor) reflows(what string) {
	v.t.Helper()
	v.must(v.SetViewportSize(320, 640))
	if wide := v.evaluate("() => document.documentElement.scrollWidth"); fmt.Sprint(wide) != "320" {
		v.t.Errorf("%s is %v px wide on a screen of 320", what, wide)
	}
	v.must(v.SetViewportSize(1280, 720))
}

// folder collects the HTML of pages as they came from the server.
type folder struct {
	dir string

	mu    sync.Mutex
	names []string
}

func (f *folder) add(t *testing.T, name, html string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.WriteFile(f.file(len(f.names)), []byte(html), 0o600); err != nil {
		t.Fatal(err)
	}
	f.names = append(f.names, name)
}

func (f *folder) file(n int) string { return filepath.Join(f.dir, fmt.Sprintf("%03d.html", n)) }

// validate has html-validate read all pages, by the standard's rules.
func (f *folder) validate(t *testing.T) {
	t.Helper()
	dir, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs(filepath.Join("testdata", "html-validate.json"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// To a file: node leaves behind what a pipe has not taken.
	said, err := os.Create(filepath.Join(t.TempDir(), "faults.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.CommandContext(ctx, "node", filepath.Join(dir, "node_modules", "html-validate", "bin", "html-validate.mjs"), "--config", rules, "--formatter", "json", f.dir)
	cmd.Stdout = said
	err = cmd.Run()
	out, bad := os.ReadFile(said.Name())
	if bad != nil {
		t.Fatal(bad)
	}
	var pages []struct {
		FilePath string
		Messages []struct {
			RuleID, Message string
			Line, Column    int
		}
	}
	if bad := json.Unmarshal(out, &pages); bad != nil {
		t.Fatalf("html-validate: %v, %v: %s", err, bad, out)
	}
	if err == nil && len(pages) > 0 || err != nil && len(pages) == 0 {
		t.Fatalf("html-validate: %v with %d pages at fault", err, len(pages))
	}
	for _, p := range pages {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(p.FilePath), "%03d.html", &n); err != nil {
			t.Fatal(err)
		}
		for _, m := range p.Messages {
			t.Errorf("%s, line %d, column %d: %s (%s)", f.names[n], m.Line, m.Column, m.Message, m.RuleID)
		}
	}
	t.Logf("%d pages validated", len(f.names))
}
