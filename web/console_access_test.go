package web

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/access"
)

// hidden are the fields that a page's own form carries.
func hidden(page reply, action string) url.Values {
	form := url.Values{}
	_, own, _ := strings.Cut(page.body, `action="/console`+action+`"`)
	own, _, _ = strings.Cut(own, "</form>")
	for _, f := range hiddenFields.FindAllStringSubmatch(own, -1) {
		form.Set(f[1], f[2])
	}
	return form
}

// as returns how the person of a session reads and submits.
func (s *site) as(cookie string) (get func(string) reply, submit func(string, url.Values) reply) {
	return func(path string) reply { return s.get(path, "Cookie", cookie) },
		func(path string, form url.Values) reply { return s.submit(path, form, "Cookie", cookie) }
}

// TestAnAdminSettlesWhoMayDoWhat goes the whole way without a script.
func TestAnAdminSettlesWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	get, submit := w.as(w.sessions["admin"])
	get("/access/users").shows("people", http.StatusOK, "the-admin", "the-operator", "Viewer", "every queue", "Add a person", "Tokens")
	get("/access/new-user").shows("the form", http.StatusOK, "Add a person", "acts on jobs, queues, workers and dead letters")
	form := url.Values{"name": {"Bob"}, "role": {"operator"}, "queues": {"sms, mail"}, "password": {"short"}, "again": {"short"}, "reason": {"new on call"}}
	refused := submit("/access/users", form)
	refused.shows("a short password", http.StatusUnprocessableEntity, "at least 12 characters", "Bob", "sms, mail")
	if strings.Contains(refused.body, `value="short"`) {
		t.Error("a password is shown again")
	}
	form.Set("password", password)
	submit("/access/users", form).shows("two passwords", http.StatusUnprocessableEntity, "The two differ.")
	form.Set("again", password)
	submit("/access/users", form).redirects("add", http.StatusSeeOther, "/console/access/users/bob")
	submit("/access/users", form).shows("add again", http.StatusConflict, "Somebody has this name")
	get("/access/users/bob").shows("bob", http.StatusOK, "Operator", "mail, sms", "No session is open", "create", "Revert")
	bob := w.signIn("bob")
	get("/access/users/bob").shows("bob's session", http.StatusOK, "End sessions", "127.0.0.1")

	ask := get("/access/users/bob/edit?role=viewer&queues=mail")
	ask.shows("the question", http.StatusOK, "Change what bob may do?", "Operator → Viewer", "mail, sms → mail", "sessions end at once")
	edit := hidden(ask, "/access/users/bob/edit")
	edit.Set("reason", "off call")
	submit("/access/users/bob/edit", edit).redirects("edit", http.StatusSeeOther, "/console/access/users/bob")
	if r := w.get("/jobs", "Cookie", bob); r.status != http.StatusSeeOther {
		t.Errorf("after the edit bob's session = %d, want the page to sign in", r.status)
	}
	submit("/access/users/bob/edit", edit).shows("on what has changed", http.StatusConflict, "somebody has changed bob since")
	page := get("/access/users/bob")
	page.shows("bob after the edit", http.StatusOK, "off call", "Viewer, mail")
	back := regexp.MustCompile(`href="/console(/access/users/bob/edit\?[^"]*)"`).FindStringSubmatch(page.body)
	if back == nil {
		t.Fatal("the edit has no Revert")
	}
	revert := get(strings.ReplaceAll(back[1], "&amp;", "&"))
	revert.shows("the way back", http.StatusOK, "Viewer → Operator", "mail → mail, sms")
	submit("/access/users/bob/edit", hidden(revert, "/access/users/bob/edit")).redirects("revert", http.StatusSeeOther, "/console/access/users/bob")
	get("/audit?target=bob").shows("the trail", http.StatusOK, "edit", "off call", "Revert", "user bob")

	get("/access/users/bob/edit?role=operator&queues=sms,mail").shows("no change", http.StatusOK, "Nothing would change")
	submit("/access/users/bob/edit", url.Values{"role": {"root"}, "queues": {"a+b"}}).shows("an unknown role", http.StatusUnprocessableEntity, "The role: It must be admin, operator or viewer")
	w.signIn("bob")
	get("/access/users/bob/end-sessions").shows("ask to end", http.StatusOK, "1 → 0")
	submit("/access/users/bob/end-sessions", nil).redirects("end", http.StatusSeeOther, "/console/access/users/bob")
	submit("/access/users/bob/password", url.Values{"password": {password + "!"}, "again": {password}}).shows("two passwords", http.StatusUnprocessableEntity, "differs from the first")
	submit("/access/users/bob/password", url.Values{"password": {password + "!"}, "again": {password + "!"}}).redirects("reset", http.StatusSeeOther, "/console/access/users/bob")
	w.submit("/login", url.Values{"name": {"bob"}, "password": {password}}).shows("the old password", http.StatusUnauthorized, "Name or password is wrong.")
	get("/access/users/bob/disable").shows("ask to disable", http.StatusOK, "yes → no")
	submit("/access/users/bob/disable", nil).redirects("disable", http.StatusSeeOther, "/console/access/users/bob")
	get("/access/users/bob").shows("disabled", http.StatusOK, "Disabled", "Enable")
	submit("/access/users/bob/enable", nil).redirects("enable", http.StatusSeeOther, "/console/access/users/bob")
	get("/access/users/nobody").shows("nobody", http.StatusNotFound, "Nobody has the name")

	for _, path := range []string{"/access/users/the-admin/disable", "/access/users/the-admin/edit"} {
		submit(path, url.Values{"role": {"viewer"}, "queues": {""}}).shows("the last admin: "+path, http.StatusConflict, "the-admin is the last admin of every queue")
	}
	if w.count("SELECT count(*) FROM console_users WHERE name = 'the-admin' AND role = 'admin' AND disabled_at IS NULL AND generation = 1") != 1 {
		t.Error("the last admin was changed")
	}
}

// TestATokenIsShownOnce: its secret is on the page that answers the form, and nowhere
// else.
func TestATokenIsShownOnce(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	get, submit := w.as(w.sessions["admin"])
	get("/access/new-token").shows("the form", http.StatusOK, "dlq:write", "Days until it expires")
	submit("/access/tokens", url.Values{"name": {"ci"}}).shows("without a scope", http.StatusUnprocessableEntity, "It is missing: jobs:read")
	form := url.Values{"name": {"CI"}, "scope": {"dlq:write", "jobs:read"}, "queues": {"mail"}, "days": {"x"}, "reason": {"the build"}}
	submit("/access/tokens", form).shows("an expiry that is none", http.StatusUnprocessableEntity, "A whole number of days")
	form.Set("days", "30")
	made := submit("/access/tokens", form)
	made.shows("the new token", http.StatusOK, "This is the only time that it is shown", "jobs:read, dlq:write", "mail")
	secret := regexp.MustCompile(`rje_[0-9A-Za-z]{40}`).FindString(made.body)
	if secret == "" || made.header.Get("Cache-Control") != "no-store" || made.header.Get("Location") != "" || strings.Contains(made.header.Get("Set-Cookie"), "console_flash") {
		t.Fatalf("the answer with the token %q has headers %v", secret, made.header)
	}
	if n := strings.Count(made.body, secret); n != 1 {
		t.Errorf("the secret stands %d times on its page", n)
	}
	if got := w.send("GET", "/api/v1/jobs?queue=mail", nil, "Authorization", "Bearer "+secret); got.status != http.StatusOK {
		t.Errorf("the new token gets %d %s", got.status, got.body)
	}
	submit("/access/tokens", form).shows("the form sent again", http.StatusConflict, "A token of this name exists")
	list := get("/access/tokens")
	list.shows("the list", http.StatusOK, "ci", "rje_"+secret[4:12]+"…", "jobs:read, dlq:write", "the-admin", "mail", "Revoke", "never used")
	for what, text := range map[string]string{"the list": list.body, "the trail": get("/audit").body, "the log": w.log.String(), "the database": w.text("SELECT string_agg(o::text, ' ') FROM operator_actions AS o")} {
		if strings.Contains(text, secret) || strings.Contains(text, secret[12:]) {
			t.Errorf("%s has the secret", what)
		}
	}
	revoke := "/access/tokens/" + secret[4:12] + "/revoke"
	get(revoke).shows("the question", http.StatusOK, "Revoke token ci?", "yes → no", "There is no way back")
	submit(revoke, url.Values{"reason": {"leaked"}}).redirects("revoke", http.StatusSeeOther, "/console/access/tokens")
	get("/access/tokens").shows("the list", http.StatusOK, "Revoked")
	get(revoke).shows("revoked before", http.StatusNotFound, "revoked before")
}

// TestTheFirstAccountIsAnAdmins: with it everybody must sign in.
func TestTheFirstAccountIsAnAdmins(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	s := newConsoleOn(t, pool, func(c *Config) { c.Accounts = access.New(access.Config{Pool: pool}) })
	s.get("/access/new-user").shows("the form", http.StatusOK, "With the first account, everybody must sign in.")
	form := url.Values{"name": {"ann"}, "role": {"viewer"}, "password": {password}, "again": {password}}
	s.submit("/access/users", form).shows("a viewer", http.StatusUnprocessableEntity, "The first account must be an admin")
	form.Set("role", "admin")
	s.submit("/access/users", form).redirects("an admin", http.StatusSeeOther, "/console/access/users/ann")
	if r := s.get("/access/users"); r.status != http.StatusSeeOther || !strings.HasPrefix(r.header.Get("Location"), "/console/login") {
		t.Errorf("after the first account = %d %s", r.status, r.header.Get("Location"))
	}
}

func TestAPersonSettlesTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	here, there, away := w.sessions["viewer"], w.signIn("the-viewer"), w.signIn("the-viewer")
	get, submit := w.as(here)
	page := get("/account")
	page.shows("the account", http.StatusOK, "the-viewer", "Viewer", "every queue", "this session", "End all others", "Current password", "Comfortable", "Clock, local", "Shortcuts")
	ends := regexp.MustCompile(`action="/console(/account/sessions/[0-9]+/end)"`).FindAllStringSubmatch(page.body, -1)
	if len(ends) != 2 {
		t.Fatalf("%d sessions can be ended, want the two others", len(ends))
	}
	_, stranger := w.as(w.sessions["operator"])
	stranger(ends[0][1], nil).shows("another's session", http.StatusNotFound)
	submit(ends[0][1], nil).redirects("end one", http.StatusSeeOther, "/console/account")
	open := func(cookie string) bool { return w.get("/account", "Cookie", cookie).status == http.StatusOK }
	if open(there) == open(away) || !open(here) {
		t.Error("want one of the two others ended, and this one open")
	}
	submit("/account/sessions/end-others", nil).redirects("end all others", http.StatusSeeOther, "/console/account")
	if open(there) || open(away) || !open(here) {
		t.Error("want the others ended, and this one open")
	}
	extended := submit("/account/extend", nil)
	if extended.status != http.StatusNoContent || extended.header.Get("Session-Ends") == "" {
		t.Errorf("extend = %d %v", extended.status, extended.header)
	}
	w.exec("UPDATE console_sessions SET used_at = used_at - interval '11 hours'")
	submit("/account/extend", nil)
	if w.count("SELECT count(*) FROM console_sessions WHERE used_at > now() - interval '1 minute'") != 1 {
		t.Error("to extend is no use of the session")
	}
	change := url.Values{"current": {"a wrong password"}, "password": {password + "!"}, "again": {password + "!"}}
	submit("/account/password", change).shows("a wrong password", http.StatusUnprocessableEntity, "This is not your password.")
	change.Set("current", password)
	change.Set("again", password)
	submit("/account/password", change).shows("two passwords", http.StatusUnprocessableEntity, "The two differ.")
	change.Set("again", password+"!")
	done := submit("/account/password", change)
	done.redirects("change", http.StatusSeeOther, "/console/account")
	fresh := regexp.MustCompile(`session=[^;]+`).FindString(strings.Join(done.header.Values("Set-Cookie"), "; "))
	if open(here) || fresh == "" || !open(fresh) {
		t.Errorf("want the old session ended and a new one open, set %q", done.header.Values("Set-Cookie"))
	}
	if strings.Contains(w.log.String(), password) {
		t.Error("the log has a password")
	}
}

// TestAMaskedPayloadIsShownForAReason, on the page that answers, and its row is written.
func TestAMaskedPayloadIsShownForAReason(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	id := w.enqueue(`{"type":"email","queue":"mail","payload":{"to":"customer@example.com","card":"4111-1111"}}`)
	get, submit := w.as(w.sessions["operator"])
	page := get("/jobs/" + id)
	page.shows("the job", http.StatusOK, "Reveal…", "••••••••")
	if viewer := w.get("/jobs/"+id, "Cookie", w.sessions["viewer"]); strings.Contains(viewer.body, "/reveal") || strings.Contains(viewer.body, "4111-1111") {
		t.Error("a viewer is offered what is masked")
	}
	ask := get("/jobs/" + id + "/reveal")
	ask.shows("the question", http.StatusOK, "Reveal the payload of job", "Reason")
	submit("/jobs/"+id+"/reveal", nil).shows("without a reason", http.StatusUnprocessableEntity, "Say why")
	if got := w.trail(id); got != "" {
		t.Errorf("trail before a reason: %q", got)
	}
	form := hidden(ask, "/jobs/"+id+"/reveal")
	form.Set("reason", "customer asks, INC-204")
	shown := submit("/jobs/"+id+"/reveal", form)
	shown.shows("the payload", http.StatusOK, "4111-1111", "shown whole, on this page alone", "Payload revealed", "customer asks, INC-204")
	if shown.header.Get("Cache-Control") != "no-store" || strings.Contains(shown.body, "data-live=") || strings.Contains(w.log.String(), "4111-1111") {
		t.Errorf("the page with the payload may be kept, or follows: %v", shown.header)
	}
	if got := w.trail(id); got != "reveal the-operator console customer asks, INC-204 1 true 127.0.0.1" {
		t.Errorf("trail %q", got)
	}
	for _, path := range []string{"/jobs/" + id, "/jobs/" + id + "/payload"} {
		if r := get(path); strings.Contains(r.body, "4111-1111") {
			t.Errorf("%s shows it afterwards", path)
		}
	}
	w.exec("UPDATE jobs SET version = version + 1 WHERE id = $1", id)
	submit("/jobs/"+id+"/reveal", form).shows("a job that has changed", http.StatusConflict, "has changed since")
}

// TestAPersonOfSomeQueuesSeesThoseAlone, on every page that shows more than one queue.
func TestAPersonOfSomeQueuesSeesThoseAlone(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.exec("INSERT INTO workers (name, hostname, pid, version, queues, types, slots, lease_ms) VALUES ('w-billing', 'h', 2, 'v1', '{billing}', '{charge}', 4, 30000), ('w-both', 'h', 3, 'v1', '{mail,billing}', '{email,charge}', 4, 30000)")
	secret := w.enqueue(`{"type":"charge","queue":"billing","payload":{"password":"hunter2hunter2"}}`)
	mail := w.enqueue(`{"type":"email","queue":"mail"}`)
	theirs := w.deadIn("billing", 2)
	w.exec("UPDATE dead_letter_jobs SET fingerprint = 'shared', error_class = 'Boom'")
	w.exec(`INSERT INTO queues (name, paused_at, paused_reason) VALUES ('billing', now(), 'INC-999') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_reason = 'INC-999'`)
	cookie := w.limited("mail-operator", access.RoleOperator, "mail")
	get, submit := w.as(cookie)
	for path, has := range map[string][]string{
		"/": {"You see mail alone", "mail", "queue without a live worker"}, "/jobs": {short(mail)}, "/jobs?q=type:charge": {"No job matches"}, "/jobs?q=queue:billing": {"No job matches"},
		"/queues": {"1 queue", "mail"}, "/types": {"email"}, "/types/email": {short(mail)}, "/dlq": {"Boom", "email in mail"}, "/dlq?view=jobs": {short(w.dead)},
		"/dlq/groups/shared": {short(w.dead), "Replay all"}, "/workers": {"w1", "w-both"}, "/operations": {short(w.operation)}, "/jobs/new": {"mail"}, "/help": {"Help"},
		"/account": {"mail-operator", "Operator of mail"},
	} {
		got := get(path)
		got.shows(path, http.StatusOK, has...)
		for _, not := range append(theirs, secret, "billing", "w-billing", "INC-999", "/console/audit\"", "/console/system\"", "/console/access") {
			if len(not) == 36 {
				not = short(not)
			}
			body := got.body
			if path == "/help" || strings.Contains(path, "billing") {
				body = strings.ReplaceAll(body, "billing", "") // an example, or what was asked for
			}
			if strings.Contains(body, not) {
				i := strings.Index(body, not)
				t.Errorf("%s shows %q: …%s…", path, not, body[max(0, i-100):min(len(body), i+60)])
			}
		}
	}
	ask := get("/dlq/groups/shared")
	at := askedFor.FindStringSubmatch(ask.body)
	if at == nil || !strings.Contains(at[1], "queue=mail") {
		t.Fatalf("the group's acts are not of the queue mail: %v", at)
	}
	get(strings.ReplaceAll(at[1], "&amp;", "&")).shows("the question", http.StatusOK, "Replay 1 job?")
	for _, act := range []string{"/operations/new?action=replay&fingerprint=shared", "/operations/new?action=discard&q=state:dead", "/operations/new?action=replay&queue=billing"} {
		get(act).shows(act, http.StatusForbidden, "You are limited to: mail.")
	}
	submit("/operations", url.Values{"action": {"discard"}, "fingerprint": {"shared"}, "expected": {"3"}, "reason": {"x"}}).shows("an act on all of a group", http.StatusForbidden, "Choose the jobs of one queue")
	// A copy of another's job would carry what it holds.
	get("/jobs/new?from="+secret).shows("a copy", http.StatusNotFound)
	submit("/jobs", url.Values{"type": {"email"}, "queue": {"mail"}, "copied_from": {secret}, "payload": {`{"password":"••••••••"}`}}).shows("a copy by form", http.StatusNotFound)
	submit("/jobs", url.Values{"type": {"email"}}).shows("the queue that none names", http.StatusForbidden, "Queue “default” is another's. You are limited to: mail.")
	if n := w.count("SELECT count(*) FROM jobs WHERE payload::text LIKE '%hunter2%'"); n != 1 {
		t.Errorf("%d jobs hold the payload of another queue", n)
	}
	// An act pins the job as it was looked at: it may not follow it into another queue.
	if _, err := w.pool.Exec(t.Context(), "UPDATE jobs SET version = 7 WHERE id = $1", mail); err != nil {
		t.Fatal(err)
	}
	submit("/jobs/"+mail+"/cancel", url.Values{"version": {"6"}}).shows("an old version", http.StatusConflict, "has changed since")
	submit("/jobs/"+mail+"/cancel", nil).redirects("cancel", http.StatusSeeOther, "/console/jobs/"+mail)
	if n := w.count("SELECT count(*) FROM operator_actions WHERE actor = 'mail-operator' AND target_kind = 'job'"); n != 1 {
		t.Errorf("%d acts on jobs, want the one", n)
	}
	both := w.limited("both", access.RoleOperator, "mail", "billing")
	w.get("/dlq/groups/shared", "Cookie", both).shows("a group of two queues", http.StatusOK, "Replay all in mail…", "Replay all in billing…")
}

// TestLiftingALimitTakesEffectWithTheNextSession and not in one that goes on.
func TestLiftingALimitTakesEffectWithTheNextSession(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	cookie := w.limited("mail-viewer", access.RoleViewer, "mail")
	w.get("/audit", "Cookie", cookie).shows("before", http.StatusForbidden, "You are limited to: mail.")
	if err := access.New(access.Config{Pool: w.pool}).Edit(t.Context(), "mail-viewer", access.UserEdit{Queues: &[]string{}}, engine.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	if r := w.get("/audit", "Cookie", cookie); r.status != http.StatusSeeOther {
		t.Errorf("in the old session = %d, want the page to sign in", r.status)
	}
	w.get("/audit", "Cookie", w.signIn("mail-viewer")).shows("after", http.StatusOK, "edit")
}
