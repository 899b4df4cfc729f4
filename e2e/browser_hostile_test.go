package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/playwright-community/playwright-go"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// hostile are texts that run, load or lead elsewhere where one of them is not
// escaped: each pushes to window.ran, asks outside.example, or opens a dialog.
var hostile = []string{
	`<script>ran.push(1)</script>`,
	`<ScRiPt src=//outside.example/x.js></sCrIpT>`,
	`"><img src=x onerror=ran.push(1)>`,
	`'><img src=//outside.example/p onload=ran.push(1)>`,
	`<svg onload=ran.push(1)>`,
	`<svg><script>ran.push(1)</script></svg>`,
	`<svg><animate onbegin=ran.push(1) attributeName=x dur=1s>`,
	`<svg><a xlink:href="javascript:ran.push(1)"><text>x</text></a></svg>`,
	`<math><mtext></form><form><mglyph><style></math><img src onerror=ran.push(1)>`,
	`<iframe srcdoc="<script>parent.ran.push(1)</script>">`,
	`<iframe src="javascript:parent.ran.push(1)">`,
	`<object data="//outside.example/o"></object>`,
	`<embed src="//outside.example/e">`,
	`<link rel=stylesheet href=//outside.example/s.css>`,
	`<base href=//outside.example/>`,
	`<meta http-equiv=refresh content="0;url=//outside.example/">`,
	`<style>@import url(//outside.example/i.css);</style>`,
	`<style>*{background:url(//outside.example/b)}</style>`,
	`" style="background:url(//outside.example/b)" x="`,
	`" onmouseover="ran.push(1)" x="`,
	`' onfocus='ran.push(1)' autofocus x='`,
	`" autofocus tabindex=1 onfocus="ran.push(1)" x="`,
	`<details open ontoggle=ran.push(1)>`,
	`<video><source onerror=ran.push(1)></video>`,
	`<form action=//outside.example/f><button>go</button></form>`,
	`<button form=display formaction=//outside.example/f>go</button>`,
	`<template><script>ran.push(1)</script></template>`,
	`<hx-partial hx-target="body" hx-swap="innerHTML">gone</hx-partial>`,
	`<b hx-get="//outside.example/h" hx-trigger="load">x</b>`,
	`<b hx-on:click="ran.push(1)" hx-trigger="load[ran.push(1)]">x</b>`,
	`</textarea><script>ran.push(1)</script>`,
	`</title><script>ran.push(1)</script>`,
	`</time></td></tr></table><script>ran.push(1)</script>`,
	`</script><script>ran.push(1)</script>`,
	`<!--><img src=x onerror=ran.push(1)>-->`,
	`javascript:ran.push(1)//`,
	"java\tscript:ran.push(1)//\u202egnp.exe",
	`data:text/html,<script>opener.ran.push(1)</script>`,
	`//outside.example/%2e%2e/?a=1&b[]=2#x`,
	`{{constructor.constructor('ran.push(1)')()}}${ran.push(1)}&lt;b&gt;&#60;b&#62;\u003cb\u003e`,
}

// TestHostileTextsStayText seeds rows straight into the tables, since the doors
// refuse some of these, and reads them on every page that shows such a text.
func TestHostileTextsStayText(t *testing.T) {
	t.Parallel()
	if len(hostile) != 40 {
		t.Fatalf("%d texts, want 40", len(hostile))
	}
	s := stageOn(t, dbtest.NewURL(t))
	ids := make([]string, len(hostile))
	workers := make([]string, len(hostile))
	for i, text := range hostile {
		ids[i], workers[i] = s.seedHostile(t, i, text)
	}
	t.Run("lists", func(t *testing.T) {
		t.Parallel()
		v := s.visit(t)
		for _, path := range []string{"/", "/jobs", "/jobs?state=dead", "/queues", "/types", "/dlq", "/dlq?view=jobs", "/dlq?view=discarded", "/workers", "/audit"} {
			v.open(path)
			v.harmless(path)
		}
		// What the script puts on the page is text too.
		for _, path := range []string{"/jobs", "/dlq?view=jobs", "/audit"} {
			v.open(path)
			v.staysHere()
			id, _ := s.seedHostile(t, len(hostile)+len(path), hostile[2])
			v.sees(v.GetByRole("row").Filter(playwright.LocatorFilterOptions{HasText: short(id)}).First())
			v.harmless(path + ", followed")
			v.hasStayed()
		}
	})
	for half := range 2 {
		t.Run(fmt.Sprintf("details %d", half), func(t *testing.T) {
			t.Parallel()
			v := s.visit(t)
			v.expects("the server responded with a status of (400|404)")
			for i := half; i < len(hostile); i += 2 {
				s.readHostile(v, i, ids[i], workers[i])
			}
		})
	}
}

// seedHostile writes a dead job whose every text is hostile, with its run, worker,
// queue, key and the act of an operator.
func (s *stage) seedHostile(t *testing.T, n int, text string) (id, worker string) {
	t.Helper()
	payload, err := json.Marshal(map[string]any{text: text, "nested": map[string]any{text: []any{text}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.pool.QueryRow(t.Context(), `
		WITH w AS (INSERT INTO workers (name, hostname, pid, version, queues, types, slots, lease_ms, heartbeat_at)
			VALUES ($1, $1, $2, $1, ARRAY[$1], ARRAY[$1], 4, 30000, now()) RETURNING id),
		q AS (INSERT INTO queues (name, paused_at, paused_reason) VALUES ($1, now(), $1) ON CONFLICT DO NOTHING),
		j AS (INSERT INTO jobs (id, type, queue, version, payload, tags) VALUES (uuid_v7(), $1, $1, 1, $3, ARRAY[$1]) RETURNING id),
		k AS (INSERT INTO idempotency_keys (scope, key, request_hash, job_id, expires_at) SELECT 'enqueue', $1 || $2, '', id, now() + interval '1 day' FROM j),
		e AS (INSERT INTO job_executions (job_id, fencing_token, worker_id, claimed_at, started_at, attempt, outcome, error_class, error, stack, fingerprint, logs)
			SELECT j.id, $2, w.id, now(), now(), 5, 2, $1, $1, $1 || E'\n\t' || $1, 'hostile-' || $2,
			jsonb_build_array(jsonb_build_object('t', now(), 'level', 'INFO', 'msg', $1::text, $1::text, $1::text)) FROM j, w),
		d AS (INSERT INTO dead_letter_jobs (job_id, fencing_token, attempt, queue, type, reason, error_class, error, stack, fingerprint, worker)
			SELECT j.id, $2, 5, $1, $1, 'exhausted', $1, $1, $1, 'hostile-' || $2, jsonb_build_object('name', $1::text, 'hostname', $1::text, 'version', $1::text) FROM j)
		SELECT j.id::text, w.id::text FROM j, w`, text, 1000+n, payload).Scan(&id, &worker); err != nil {
		t.Fatalf("seed %q: %v", text, err)
	}
	if _, err := s.pool.Exec(t.Context(), `SELECT record_operator_action($1, 'api', $1, 'job', $2, $1, jsonb_build_object($1::text, $1::text), NULL, 1, $1, $1)`, text, id); err != nil {
		t.Fatal(err)
	}
	return id, worker
}

// readHostile reads a text on the page of its job, and in full on every other page
// of one thing, else on one of these.
func (s *stage) readHostile(v *visitor, n int, id, worker string) {
	v.t.Helper()
	text := hostile[n]
	read := func(path, heading string) {
		v.t.Helper()
		v.open(path)
		v.harmless(path)
		if got := plainText(fmt.Sprint(v.evaluate(`() => document.querySelector("h1").textContent`))); got != plainText(heading) {
			v.t.Errorf("%s is headed %q, want %q", path, got, heading)
		}
	}
	read("/jobs/"+id, text)
	for _, section := range []string{"attempts", "payload", "activity"} {
		shown := plainText(fmt.Sprint(v.evaluate(`(id) => document.getElementById(id).textContent`, section)))
		quoted, err := json.Marshal(plainText(text))
		v.must(err)
		if !strings.Contains(shown, plainText(text)) && !strings.Contains(shown, strings.Trim(string(quoted), `"`)) {
			v.t.Errorf("%q is not among the %s", text, section)
		}
	}
	others := []func(){
		func() {
			v.click(v.link("Discard job " + short(id)))
			v.sees(v.dialog())
			v.harmless("/dlq/" + id + "/discard, in the dialog")
		},
		func() { read("/jobs/new?from="+id, "New job") },
		func() { read("/workers/"+worker, text) },
	}
	if !strings.Contains(text, "\t") { // no address names what has a tab in it
		others = append(others,
			func() { read("/queues/"+url.PathEscape(text), text) },
			func() { read("/types/"+url.PathEscape(text), text) })
	}
	if !*full {
		at := n / 2 % len(others) // each half of the texts goes through all of them
		others = others[at : at+1]
	}
	for _, look := range others {
		look()
	}
}

// plainText is a text without what pages may draw in another way: space at its
// ends, tabs, and characters that turn the direction of writing.
func plainText(s string) string {
	return strings.NewReplacer("\t", "", `\t`, "", "\u202e", "", `\u202e`, "").Replace(strings.TrimSpace(s))
}

// harmless reports what a text has made of a page but text. That nothing was
// asked of elsewhere, and no dialog opened, is watched all the time.
func (v *visitor) harmless(path string) {
	v.t.Helper()
	found := v.evaluate(`() => {
		const wrong = [];
		if (ran.length) wrong.push("a script ran " + ran.length + " times");
		const scripts = document.querySelectorAll("script");
		if (scripts.length !== 3) wrong.push(scripts.length + " scripts");
		for (const e of document.querySelectorAll("img, iframe, object, embed, base, style, math, video, source, foreignObject, animate, hx-partial, [style]:not(.tip), [autofocus], [formaction], [srcdoc]"))
			wrong.push(e.outerHTML.slice(0, 200));
		for (const e of document.querySelectorAll("*")) for (const a of e.attributes) {
			if (/^on|^hx-on/.test(a.name)) wrong.push(a.name + " on " + e.outerHTML.slice(0, 200));
			if (/^(href|src|action|formaction|xlink:href|hx-(get|post))$/.test(a.name) && !new URL(a.value, location).href.startsWith(location.origin + "/console/")) wrong.push(a.name + " " + a.value);
		}
		return JSON.stringify(wrong);
	}`)
	var wrong []string
	if err := json.Unmarshal([]byte(fmt.Sprint(found)), &wrong); err != nil {
		v.t.Fatal(err)
	}
	for _, w := range wrong {
		v.t.Errorf("%s: %s", path, w)
	}
}
