package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/playwright-community/playwright-go"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

// TestOperatorsRepairManyInTheBrowser: each journey has programs and a database of
// its own, since all its jobs die of the same cause.
func TestOperatorsRepairManyInTheBrowser(t *testing.T) {
	t.Parallel()
	for name, journey := range map[string]func(*testing.T, *stage){
		"replay a group by click":          replayGroupByClick,
		"replay a group by keyboard":       replayGroupByKeyboard,
		"replay a group without script":    replayGroupWithoutScript,
		"a canary halts and goes on":       canaryHaltsAndGoesOn,
		"discard a group, pause and stop":  discardGroupPauseAndStop,
		"the number moves before the form": numberMovesBeforeTheForm,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stageOn(t, dbtest.NewURL(t), quick...)
			s.start("worker")
			journey(t, s)
		})
	}
}

// deadGroup enqueues n jobs that die at once, and returns their ids and the
// fingerprint.
func (s *stage) deadGroup(t *testing.T, g *gateway, n int) (ids []string, group string) {
	t.Helper()
	g.status.Store(http.StatusInternalServerError)
	for range n {
		id, ok := s.post(fmt.Sprintf(`{"type":"webhook","max_attempts":1,"payload":{"url":%q}}`, g.url), "")
		if !ok {
			t.Fatal("enqueue was refused")
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		s.becomes(t, id, "dead_letter")
	}
	s.scan(t, &group, "SELECT fingerprint FROM dead_letter_jobs WHERE job_id = '"+ids[0]+"'")
	return ids, url.PathEscape(group)
}

func (s *stage) allBecome(t *testing.T, ids []string, state string) {
	t.Helper()
	for _, id := range ids {
		s.becomes(t, id, state)
	}
}

// heads waits until the page is that of an operation, and for its state.
func (v *visitor) heads(title, state string) {
	v.t.Helper()
	v.sees(v.heading(title))
	v.must(expect.Page(v.Page).ToHaveURL(regexp.MustCompile(`/console/operations/[0-9a-f-]{36}$`)))
	v.says(v.Locator(".page-head"), state)
}

func replayGroupByClick(t *testing.T, s *stage) {
	g := newGateway(t)
	ids, _ := s.deadGroup(t, g, 7)
	g.mend()
	v := s.visit(t)
	v.open("/dlq")
	v.click(v.Locator("main tbody").GetByRole("link").First())
	v.must(expect.Page(v.Page).ToHaveURL(regexp.MustCompile("/dlq/groups/")))
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Replay all"}))
	v.sees(v.dialog())
	v.says(v.dialog(), "Replay 7 jobs?")
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Replay 7 jobs"}))
	v.sees(v.dialog()) // not without a reason
	v.fill("Reason", "the gateway is mended")
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Replay 7 jobs"}))
	v.heads("Replay 7 jobs", "Completed")
	v.says(v.GetByRole("main"), "7 of 7")
	s.allBecome(t, ids, "completed")
	v.open("/audit")
	v.says(v.GetByRole("main"), "the gateway is mended")
}

func replayGroupByKeyboard(t *testing.T, s *stage) {
	g := newGateway(t)
	ids, group := s.deadGroup(t, g, 3)
	g.mend()
	v := s.visit(t)
	v.open("/dlq/groups/" + group)
	v.scripted()
	v.must(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Replay all"}).Focus())
	v.press("Enter")
	v.sees(v.dialog())
	v.must(v.dialog().GetByLabel("All at once").Focus())
	v.press("Space")
	v.must(v.GetByLabel("Reason", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)}).Focus())
	v.must(v.Keyboard().Type("by keyboard"))
	v.must(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Replay 3 jobs"}).Focus())
	v.press("Enter")
	v.heads("Replay 3 jobs", "Completed")
	v.says(v.GetByRole("main"), "all at once")
	s.allBecome(t, ids, "completed")
}

func replayGroupWithoutScript(t *testing.T, s *stage) {
	g := newGateway(t)
	ids, group := s.deadGroup(t, g, 3)
	g.mend()
	v := s.visit(t, withoutScript)
	v.open("/dlq/groups/" + group)
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Replay all"}))
	v.sees(v.heading("Replay 3 jobs?"))
	v.must(v.GetByLabel("Steady").Check())
	v.fill("Jobs a minute", "6000")
	v.fill("Reason", "no script here")
	v.click(v.button("Replay 3 jobs"))
	v.sees(v.heading("Replay 3 jobs"))
	s.allBecome(t, ids, "completed")
	if _, err := v.Reload(); err != nil {
		t.Fatal(err)
	}
	v.says(v.GetByRole("main"), "6,000 a minute")
}

// The target is still broken: the first steps fail again, and the rest stays as it
// is until somebody continues.
func canaryHaltsAndGoesOn(t *testing.T, s *stage) {
	g := newGateway(t)
	ids, group := s.deadGroup(t, g, 9)
	v := s.visit(t)
	v.open("/dlq/groups/" + group)
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Replay all"}))
	v.fill("Reason", "is it mended?")
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Replay 9 jobs"}))
	v.heads("Replay 9 jobs", "Halted")
	v.says(v.GetByRole("main"), "It halted itself.")
	v.says(v.GetByRole("main"), "5 of 9")
	g.mend()
	v.click(v.GetByRole("button", playwright.PageGetByRoleOptions{Name: "Continue operation"}))
	v.heads("Replay 9 jobs", "Completed")
	again := 0
	for _, id := range ids {
		if s.job(id).Status == "dead_letter" {
			again++
		}
	}
	if again != 5 {
		t.Errorf("%d jobs are dead, want the 5 of the first steps, which failed again", again)
	}
}

// A discard at a pace that leaves time is paused, then stopped: what was not reached stays.
func discardGroupPauseAndStop(t *testing.T, s *stage) {
	g := newGateway(t)
	ids, group := s.deadGroup(t, g, 4)
	v := s.visit(t)
	v.open("/dlq/groups/" + group)
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Replay all"}))
	v.must(v.dialog().GetByLabel("Steady").Check())
	v.fill("Jobs a minute", "1")
	v.fill("Reason", "slowly")
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Replay 4 jobs"}))
	v.heads("Replay 4 jobs", "Running")
	v.click(v.GetByRole("button", playwright.PageGetByRoleOptions{Name: "Pause operation"}))
	v.heads("Replay 4 jobs", "Paused")
	v.click(v.GetByRole("button", playwright.PageGetByRoleOptions{Name: "Stop operation"}))
	v.heads("Replay 4 jobs", "Stopped")
	v.missing(v.GetByRole("button", playwright.PageGetByRoleOptions{Name: "Continue operation"}))

	v.open("/dlq/groups/" + group)
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Discard all"}))
	v.fill("Reason", "of no use any more")
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: regexp.MustCompile(`^Discard \d jobs$`)}))
	v.says(v.Locator(".page-head"), "Completed")
	v.must(expect.Locator(v.Locator("h1")).ToHaveText(regexp.MustCompile(`^Discard \d jobs$`)))
	for _, id := range ids {
		var discarded bool
		if err := s.pool.QueryRow(t.Context(), "SELECT discarded_at IS NOT NULL FROM dead_letter_jobs WHERE job_id = $1", id).Scan(&discarded); err != nil || !discarded {
			t.Errorf("job %s: discarded %v, %v", id, discarded, err)
		}
	}
}

// Between the question and the answer the group has grown: nothing is done, the new
// number is shown, and the next answer counts.
func numberMovesBeforeTheForm(t *testing.T, s *stage) {
	g := newGateway(t)
	ids, group := s.deadGroup(t, g, 2)
	v := s.visit(t)
	v.expects("the server responded with a status of 409")
	v.open("/dlq/groups/" + group)
	v.click(v.GetByRole("link", playwright.PageGetByRoleOptions{Name: "Replay all"}))
	v.says(v.dialog(), "Replay 2 jobs?")
	more, _ := s.deadGroup(t, g, 2)
	g.mend()
	v.fill("Reason", "both of them")
	v.click(v.dialog().GetByRole("button", playwright.LocatorGetByRoleOptions{Name: "Replay 2 jobs"}))
	v.sees(v.heading("Replay 4 jobs?"))
	v.says(v.GetByRole("main"), "The number has moved from 2 to 4")
	v.must(expect.Locator(v.GetByLabel("Reason", playwright.PageGetByLabelOptions{Exact: playwright.Bool(true)})).ToHaveValue("both of them"))
	v.click(v.button("Replay 4 jobs"))
	v.heads("Replay 4 jobs", "Completed")
	s.allBecome(t, append(ids, more...), "completed")
}
