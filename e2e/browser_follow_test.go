package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/playwright-community/playwright-go"
)

// staysHere marks the document, so that [visitor.hasStayed] can tell a reload.
func (v *visitor) staysHere() { v.t.Helper(); v.evaluate("() => { window.sameDocument = true }") }

func (v *visitor) hasStayed() {
	v.t.Helper()
	if v.evaluate("() => window.sameDocument") != true {
		v.t.Error("the page was loaded anew")
	}
}

func enqueueAndFollow(t *testing.T, s *stage) {
	tg := newTarget(t)
	list := s.visit(t)
	list.open("/jobs?queue=follow")
	list.sees(list.GetByText("No job matches"))
	list.staysHere()
	id, ok := s.post(fmt.Sprintf(`{"type":"webhook","queue":"follow","payload":{"url":%q,"body":{"n":12345678901234567890}}}`, tg.url), "")
	if !ok {
		t.Fatal("enqueue was refused")
	}
	running := tg.called(t, patience*1e6)
	page := s.visit(t)
	page.open("/jobs/" + id)
	page.says(page.GetByTestId("job-head"), "Running")
	page.says(page.GetByRole("region", playwright.PageGetByRoleOptions{Name: "Payload"}), "12345678901234567890")
	page.staysHere()
	list.says(list.row(id), "Running")
	running.answer <- http.StatusOK
	page.says(page.GetByTestId("job-head"), "Completed")
	page.says(page.GetByTestId("attempt-row"), "Completed")
	page.hasStayed()
	list.says(list.row(id), "Completed")
	list.hasStayed()
}

// later enqueues a job that is due tomorrow.
func (s *stage) later(t *testing.T, queue string) string {
	t.Helper()
	id, ok := s.post(fmt.Sprintf(`{"type":"report","queue":%q,"delay_seconds":86400,"payload":{"kind":"throughput"}}`, queue), "")
	if !ok {
		t.Fatal("enqueue was refused")
	}
	return id
}

func cancelInTheDialog(t *testing.T, s *stage) {
	id := s.later(t, "cancel")
	v := s.visit(t)
	v.open("/jobs/" + id)
	v.says(v.GetByTestId("job-head"), "Scheduled")
	link := v.link("Cancel job " + short(id))
	v.click(link)
	v.says(v.dialog(), "Cancel job "+short(id)+"?")
	v.must(expect.Locator(v.dialog().GetByLabel("Reason (optional)")).ToBeFocused())
	v.press("Escape")
	v.must(expect.Locator(v.dialog()).ToBeHidden())
	v.must(expect.Locator(link).ToBeFocused())
	v.press("Enter")
	v.click(v.dialog().GetByRole("link", playwright.LocatorGetByRoleOptions{Name: "Keep it"}))
	v.must(expect.Locator(v.dialog()).ToBeHidden())
	v.click(link)
	v.must(v.dialog().GetByLabel("Reason (optional)").Fill("ordered twice"))
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Cancel job"}))
	v.says(v.flash(), "was cancelled.")
	v.says(v.GetByTestId("job-head"), "Cancelled")
	v.says(v.GetByRole("region", playwright.PageGetByRoleOptions{Name: "Activity"}), "ordered twice")
	v.missing(v.link("Cancel job " + short(id)))
}

func cancelWithoutScript(t *testing.T, s *stage) {
	id := s.later(t, "cancel")
	v := s.visit(t, withoutScript)
	v.open("/jobs/" + id)
	v.click(v.link("Cancel job " + short(id)))
	v.at("/jobs/" + id + "/cancel")
	v.fill("Reason (optional)", "ordered twice")
	v.click(v.button("Cancel job"))
	v.at("/jobs/" + id)
	v.says(v.flash(), "was cancelled.")
	v.says(v.GetByTestId("job-head"), "Cancelled")
}

func newJobForm(t *testing.T, s *stage) {
	v := s.visit(t)
	v.expects("the server responded with a status of 422")
	v.open("/jobs")
	v.click(v.link("New job").First()) // a list without jobs offers it once more
	v.at("/jobs/new")
	v.fill("Queue", "form")
	v.fill("Payload", `{"kind": "throughput",`)
	v.fill("Attempts", "many")
	v.fill("Run at", "2030-01-01T06:00:00Z")
	v.click(v.button("Enqueue"))
	problems := v.GetByRole("alert").Filter(playwright.LocatorFilterOptions{HasText: "3 fields need attention."})
	v.must(expect.Locator(problems).ToBeFocused())
	v.click(problems.GetByRole("link", playwright.LocatorGetByRoleOptions{Name: "type"}))
	v.must(expect.Locator(v.GetByLabel("Type", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)})).ToBeFocused())
	v.fill("Type", "report")
	v.fill("Payload", `{"kind": "throughput"}`)
	v.fill("Attempts", "2")
	v.click(v.button("Enqueue"))
	v.says(v.flash(), "was enqueued.")
	v.sees(v.heading("report"))
	v.says(v.GetByTestId("job-head"), "Scheduled")
	v.must(expect.Page(v.Page).ToHaveURL(regexp.MustCompile("/console/jobs/[0-9a-f-]{36}$")))
}

func copyAJob(t *testing.T, s *stage) {
	id, ok := s.post(`{"type":"report","queue":"copied","delay_seconds":86400,"payload":{"kind":"throughput","api_token":"s3cret"}}`, "")
	if !ok {
		t.Fatal("enqueue was refused")
	}
	v := s.visit(t)
	v.open("/jobs/" + id)
	v.click(v.link("Enqueue a copy of job " + short(id)))
	v.must(expect.Locator(v.GetByLabel("Payload", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)})).Not().ToHaveValue(regexp.MustCompile("s3cret")))
	v.fill("Run at", "2030-01-01T06:00:00Z")
	v.click(v.button("Enqueue"))
	v.says(v.flash(), "was enqueued.")
	var kept string
	copied := v.URL()[strings.LastIndex(v.URL(), "/")+1:]
	if err := s.pool.QueryRow(t.Context(), "SELECT payload->>'api_token' FROM jobs WHERE id = $1", copied).Scan(&kept); err != nil || kept != "s3cret" {
		t.Errorf("the copy's masked value is %q, %v; want the original", kept, err)
	}
	v.click(v.link(short(id))) // copied from
	v.at("/jobs/" + id)
	v.click(v.link(short(copied)))
	v.at("/jobs/" + copied)
}

func filterPageLinkBack(t *testing.T, s *stage) {
	if _, err := s.pool.Exec(t.Context(), `SELECT enqueue_job(type => 'report', queue => 'paged', delay => '1 day', priority => i % 2 * 3,
		tags => ARRAY['half-' || i % 2], payload => '{"kind":"throughput"}') FROM generate_series(1, 120) AS i`); err != nil {
		t.Fatal(err)
	}
	v := s.visit(t)
	v.open("/jobs")
	v.click(v.GetByText("Filter", playwright.PageGetByTextOptions{Exact: playwright.Bool(true)}))
	v.fill("Queue", "paged")
	v.click(v.button("Apply"))
	v.must(expect.Page(v.Page).ToHaveURL(regexp.MustCompile(`[?&]queue=paged`)))
	rows := v.GetByTestId("job-row")
	v.must(expect.Locator(rows).ToHaveCount(50))
	first, err := rows.First().GetAttribute("data-id")
	v.must(err)
	v.click(v.link("Older"))
	v.must(expect.Locator(rows.First()).Not().ToHaveAttribute("data-id", first))
	v.must(expect.Locator(rows).ToHaveCount(50))
	second, err := rows.First().GetAttribute("data-id")
	v.must(err)

	guest := s.visit(t) // the address is the whole state
	if _, err := guest.Goto(v.URL()); err != nil {
		t.Fatal(err)
	}
	guest.must(expect.Locator(guest.GetByTestId("job-row").First()).ToHaveAttribute("data-id", second))

	v.press("]")
	v.must(expect.Locator(rows).ToHaveCount(20))
	v.press("[")
	v.must(expect.Locator(rows.First()).ToHaveAttribute("data-id", second))
	_, err = v.GoBack()
	v.must(err)
	v.must(expect.Locator(rows).ToHaveCount(20))
	_, err = v.GoBack()
	v.must(err)
	_, err = v.GoBack()
	v.must(err)
	v.must(expect.Locator(rows.First()).ToHaveAttribute("data-id", first))

	v.press("/")
	v.press("Control+a")
	v.must(v.Keyboard().Type("queue:paged tag:half-1 priority:high"))
	v.press("Enter")
	v.must(expect.Locator(rows).ToHaveCount(50))
	v.click(v.link("Older"))
	v.must(expect.Locator(rows).ToHaveCount(10))
	v.click(v.link("Remove tag half-1"))
	v.must(expect.Page(v.Page).Not().ToHaveURL(regexp.MustCompile("half-1")))
	v.click(v.tab("State", "Completed"))
	v.sees(v.GetByText("No job matches"))
}

var changesShow = regexp.MustCompile(`^\d+ changes? — show$`)

func liveHoldsStill(t *testing.T, s *stage) {
	v := s.visit(t)
	first := s.later(t, "hold")
	v.open("/jobs?queue=hold")
	v.sees(v.row(first))
	control := v.GetByTestId("live-control")
	show := v.GetByRole("button", playwright.PageGetByRoleOptions{Name: changesShow})

	// Paused, it offers what has changed.
	v.click(control)
	v.says(control, "Paused")
	second := s.later(t, "hold")
	v.sees(show)
	v.missing(v.row(second))
	v.click(show)
	v.sees(v.row(second))
	v.click(control)
	v.says(control, "Live")

	// A row under the pointer does not move; once the pointer is gone, it may.
	v.must(v.row(first).Hover())
	third := s.later(t, "hold")
	v.sees(show)
	v.missing(v.row(third))
	v.must(v.heading("Jobs").Hover())
	v.sees(v.row(third))
	v.missing(show)

	// So it is with the keyboard's focus.
	v.press("j")
	fourth := s.later(t, "hold")
	v.sees(show)
	v.missing(v.row(fourth))
	v.must(v.row(third).GetByRole("link").First().Blur())
	v.sees(v.row(fourth))
}
